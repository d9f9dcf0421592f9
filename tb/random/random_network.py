# SPDX-License-Identifier: Apache-2.0
"""A random network while it is made: its tensors, and what the operators of ``random_operators.py`` are made with."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from weft.tb.compile.run_model import ModelMaker

MOST_PIXELS = 400
"""Of any tensor."""

MOST_CHANNELS = 40


@dataclass(frozen=True)
class Tensor:
    """A tensor [1, channels, height, width]."""

    name: str
    channels: int
    height: int
    width: int

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width


class Network:
    """A network in the making: ``tensors`` so far, and those still ``unread``.

    ``random`` is decided by an architecture's name and a seed."""

    def __init__(self, arch: str, seed: int) -> None:
        self.random = np.random.default_rng([seed, zlib.crc32(arch.encode())])
        channels, height, width = self.integer(1, 14), self.integer(1, 13), self.integer(1, 13)
        self.maker = ModelMaker((1, channels, height, width), seed, opset=19)
        self.tensors = [Tensor("x", channels, height, width)]
        self.unread = {"x"}

    def integer(self, low: int, end: int) -> int:
        """Return a number, low <= number < end."""
        return int(self.random.integers(low, end))

    def maybe(self, chance: float) -> bool:
        return bool(self.random.random() < chance)

    def pick(self) -> Tensor:
        """Return a tensor to go on from: mostly the newest."""
        return self.tensors[-1] if self.maybe(0.7) else self.tensors[self.integer(0, len(self.tensors))]

    def node(self, op: str, *inputs: Tensor | str, **attributes: object) -> str:
        names = [entry if isinstance(entry, str) else entry.name for entry in inputs]
        self.unread -= set(names)
        return self.maker.node(op, *names, **attributes)

    def made(self, name: str, channels: int, height: int, width: int) -> Tensor:
        tensor = Tensor(name, channels, height, width)
        self.tensors.append(tensor)
        self.unread.add(name)
        return tensor

    def same(self, op: str, source: Tensor, *inputs: str, **attributes: object) -> Tensor:
        """Add an operator that keeps the shape; return its result."""
        return self.made(self.node(op, source, *inputs, **attributes), source.channels, *source.size)

    def ints(self, *values: int) -> str:
        return self.maker.constant(np.array(values, np.int64))

    def floats(self, *values: float) -> str:
        return self.maker.constant(np.array(values, np.float32))

    def scaled(self, fan_in: int, *shape: int) -> str:
        """Add weights that keep values near one; return their name."""
        values = self.maker.random.standard_normal(shape) / np.sqrt(max(fan_in, 1))
        return self.maker.constant(values.astype(np.float32))

    def conv(self, source: Tensor, channels: int, window: dict[str, tuple[int, ...]], group: int = 1) -> Tensor:
        kernel = window["kernel_shape"]
        per_group = source.channels // group
        inputs = [self.scaled(per_group * kernel[0] * kernel[1], channels, per_group, *kernel)]
        inputs += [self.scaled(4, channels)] if self.maybe(0.7) else []
        return self.made(self.node("Conv", source, *inputs, group=group, **window), channels,
                         *(outputs(source, window, axis) for axis in range(2)))

    def window(self, source: Tensor, most: int = 4, padding: bool = True) -> dict[str, tuple[int, ...]]:
        """Return kernel, strides, dilations and pads (each below the kernel's reach) with at least one output pixel."""
        kernel, strides, dilations = ([self.integer(1, end) for _ in range(2)] for end in (most + 1, 4, 3))
        pads = [0, 0, 0, 0]
        for axis, size in enumerate(source.size):
            strides[axis] = 1 if self.maybe(0.5) else strides[axis]
            dilations[axis] = 1 if self.maybe(0.6) else dilations[axis]
            reach = (kernel[axis] - 1) * dilations[axis]
            for side in (axis, axis + 2) if padding and self.maybe(0.6) else ():
                pads[side] = self.integer(0, min(reach, 3) + 1)
            while size + pads[axis] + pads[axis + 2] <= (kernel[axis] - 1) * dilations[axis]:
                kernel[axis] -= 1
            if padding:
                pads[axis], pads[axis + 2] = (min(pads[side], (kernel[axis] - 1) * dilations[axis])
                                              for side in (axis, axis + 2))
        return {"kernel_shape": tuple(kernel), "strides": tuple(strides), "dilations": tuple(dilations),
                "pads": tuple(pads)}


def outputs(source: Tensor, window: dict[str, tuple[int, ...]], axis: int) -> int:
    pads = window["pads"][axis] + window["pads"][axis + 2]
    reach = (window["kernel_shape"][axis] - 1) * window["dilations"][axis]
    return (source.size[axis] + pads - reach - 1) // window["strides"][axis] + 1
