# SPDX-License-Identifier: Apache-2.0
"""The ports of a block in Amaranth's simulator by their dotted path (``i.payload``), and their values as integers.

``to_bits`` and ``from_bits`` translate structures."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Shape, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

RESET = "reset"
"""The input that resets the block."""


def to_bits(shape: Any, value: Any) -> int:
    """Return the raw bits of nested dicts, lists and integers in a layout, or in a plain shape.

    Fields not given are zero."""
    if isinstance(shape, data.StructLayout):
        assert set(value) <= set(shape.members), f"unknown fields {set(value) - set(shape.members)}"
        return sum(to_bits(shape[name].shape, each) << shape[name].offset for name, each in value.items())
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        assert len(value) == shape.length
        return sum(to_bits(shape.elem_shape, each) << width * index for index, each in enumerate(value))
    shape, value = Shape.cast(shape), int(getattr(value, "value", value))
    low, high = (-(1 << shape.width >> 1), 1 << shape.width >> 1) if shape.signed else (0, 1 << shape.width)
    assert low <= value < high, f"{value} does not fit {shape}"
    return value & ((1 << shape.width) - 1)


def from_bits(shape: Any, raw: int) -> Any:
    """Return nested dicts, lists and integers from raw bits: the reverse of :func:`to_bits`."""
    if isinstance(shape, data.StructLayout):
        return {name: from_bits(field.shape, raw >> field.offset & ((1 << field.width) - 1)) for name, field in shape}
    if isinstance(shape, data.ArrayLayout):
        width = Shape.cast(shape.elem_shape).width
        mask = (1 << width) - 1
        return [from_bits(shape.elem_shape, raw >> width * index & mask) for index in range(shape.length)]
    shape = Shape.cast(shape)
    return raw - (1 << shape.width) if shape.signed and raw >> shape.width - 1 & 1 else raw


class Ports:
    """What a model sees of the block in one cycle."""

    def __init__(self, dut: Any) -> None:
        self.inputs: dict[str, Value] = {RESET: Signal(name=RESET)}
        self.outputs: dict[str, Value] = {}
        self.shapes: dict[str, Any] = {}
        for path, member, port in dut.signature.flatten(dut):
            name, value = ".".join(map(str, path)), Value.cast(port)
            self.shapes[name] = member.shape
            if not isinstance(value, Const):
                (self.inputs if member.flow is In else self.outputs)[name] = value
        # Amaranth works a value's width out anew each time it is asked for
        self._widths = {name: len(value) for name, value in (self.inputs | self.outputs).items()}
        self._joined: dict[tuple[str, ...], Value] = {}
        self._ctx: Any = None
        self.restart()

    def restart(self) -> None:
        """Go to cycle 0, with nothing driven."""
        self.cycle = 0
        self._driven: dict[str, int] = {}
        self._seen = self._driven
        self._held: dict[str, int] = {}

    def __setitem__(self, name: str, value: int) -> None:
        assert name in self.inputs, name
        self._driven[name] = value & ((1 << self._widths[name]) - 1)

    def __getitem__(self, name: str) -> int:
        """Return the raw bits of an output, or of an input as driven in this cycle."""
        if name not in self.outputs:
            return self._seen.get(name, 0)
        return int(self._ctx.get(self.outputs[name]))

    def put(self, name: str, value: Any) -> None:
        """Drive a structure."""
        self[name] = to_bits(self.shapes[name], value)

    def get(self, name: str) -> Any:
        """Read a structure, or a number with its sign."""
        return from_bits(self.shapes[name], self[name] & ((1 << self._widths[name]) - 1))

    def next_cycle(self) -> None:
        self.cycle += 1
        self._seen = self._driven

    async def apply(self, ctx: Any) -> None:
        """Set what changed, at once: the simulator settles after each ``set``, and looks at all that it is given."""
        self._ctx, self._seen = ctx, dict(self._driven)
        changed = tuple(name for name in self.inputs if self._held.get(name) != self._driven.get(name, 0))
        raw = offset = 0
        for name in changed:
            self._held[name] = self._driven.get(name, 0)
            raw |= self._held[name] << offset
            offset += self._widths[name]
        if changed not in self._joined:
            self._joined[changed] = Cat(self.inputs[name] for name in changed)
        ctx.set(self._joined[changed], raw)
