# SPDX-License-Identifier: Apache-2.0
"""Inputs, outputs and constants of a compiled model, and their entries in a ``.tmodel``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.hw.contract.numerics import DataType
from weft.tmodel.elements import Order, positions, strides_of
from weft.tmodel.packing import Packing
from weft.tmodel.scales import TensorNumbers, TensorPoint, TensorScale
from weft.tmodel.schema import PackingEntry, PortEntry
from weft.tmodel.window import Window


@dataclass(frozen=True)
class Port:
    """An input or output: ``size`` vectors of DRAM0 from ``base``.

    ``shape`` is the user's, ``layout`` [channels, height, width] in memory. ``order`` says where in the layout (with
    ``packing``: in its source) each element lies. A real value v is stored as v x 2**``point``, or in a byte of
    ``scale``. Files of the original tools have None for all these."""

    name: str
    base: int
    size: int
    shape: tuple[int, ...] | None = None
    layout: tuple[int, int, int] | None = None
    point: int | None = None
    order: Order | None = None
    packing: Packing | None = None
    scale: TensorScale | None = None

    def holding(self, numbers: TensorNumbers) -> Port:
        """Return the port with a binary point, or with a scale and zero point."""
        if isinstance(numbers, TensorScale):
            return replace(self, scale=numbers)
        return replace(self, point=numbers.point)

    def numbers(self, number: DataType) -> TensorNumbers:
        """Return how the port encodes real numbers, on a machine whose scalars are ``number``."""
        return self.scale or TensorPoint(number, self.point)

    def to_json(self) -> dict[str, Any]:
        """Return the port's entry in a ``.tmodel``."""
        return {"name": self.name, "base": self.base, "size": self.size, "shape": self.shape, "layout": self.layout,
                **self._numbers_to_json(), **self._order_to_json(),
                **({} if self.packing is None else {"packing": self.packing.to_json()})}

    def _numbers_to_json(self) -> dict[str, Any]:
        """Return the keys of the binary point or scale."""
        if self.scale is None:
            return {"point": self.point}
        return self.scale._asdict()

    def _order_to_json(self) -> dict[str, Any]:
        """Return the keys of the order, as strides if possible, else as runs."""
        if self.order is None or self.shape is None:
            return {}
        strides = strides_of(np.asarray(self.order).reshape(self.shape))
        return {"order": runs(self.order)} if strides is None else {"strides": strides}

    @classmethod
    def from_entry(cls, entry: PortEntry) -> Port:
        """Return the port of an entry that ``checks.py`` has checked."""
        packing = packing_of(entry.packing) if entry.packing is not None else None
        scale = None if entry.scale is None else TensorScale(entry.scale, entry.zero)
        return cls(entry.name, entry.base, entry.size, entry.shape, entry.layout, entry.point, _order(entry), packing,
                   scale)


def packing_of(entry: PackingEntry) -> Packing:
    """Return the packing of an entry."""
    return Packing(entry.source, Window(entry.kernel, entry.strides, entry.pads, entry.dilations), entry.size)


def _order(entry: PortEntry) -> np.ndarray | None:
    """Return the order that an entry states by strides or runs, or None."""
    if entry.strides is not None and entry.shape is not None:
        return positions(entry.shape, entry.strides).ravel()
    if entry.order is not None:
        return np.concatenate([first + step * np.arange(count) for first, step, count in entry.order])
    return None


def runs(order: Order) -> list[list[int]]:
    """Return a list of positions as runs, each [first, step, count]."""
    found: list[list[int]] = []
    for value in map(int, order):
        if found and found[-1][2] == 1:
            found[-1] = [found[-1][0], value - found[-1][0], 2]
        elif found and value == found[-1][0] + found[-1][1] * found[-1][2]:
            found[-1][2] += 1
        else:
            found.append([value, 0, 1])
    return found


@dataclass(frozen=True)
class ConstFile:
    """The file of ``size`` vectors of constants for DRAM1 at ``base``.

    With ``memory`` "dram0" they are for DRAM0, in every image's window."""

    file_name: str
    base: int
    size: int
    memory: str = "dram1"

    def to_json(self) -> dict[str, Any]:
        """Return the entry in a ``.tmodel``, in the original's form unless it is for DRAM0."""
        return {key: value for key, value in vars(self).items() if key != "memory" or value != "dram1"}


def layers_to_text(layers: np.ndarray) -> str:
    """Return indices [instructions] as runs: [2, 2, 5] -> "2x2 5x1"."""
    firsts = np.flatnonzero(np.diff(layers, prepend=-1))
    counts = np.diff(firsts, append=len(layers))
    return " ".join(f"{layer}x{count}" for layer, count in zip(layers[firsts], counts, strict=True))


def layer_runs(text: str) -> list[tuple[int, int]]:
    """Return (layer, count) of each run of a text by :func:`layers_to_text`. Raise ValueError for other text."""
    found = []
    for run in text.split():
        layer, cross, count = run.partition("x")
        if not (cross and all(_is_number(part) for part in (layer, count)) and int(count)):
            raise ValueError(f"instruction_layers with {run[:40]!r} instead of LAYERxCOUNT")
        found.append((int(layer), int(count)))
    return found


def _is_number(text: str) -> bool:
    """Tell whether a text is a number of at most 11 digits."""
    return text.isascii() and text.isdigit() and len(text) < 12


def layers_from_text(text: str) -> np.ndarray:
    """Return the indices of a text by :func:`layers_to_text`; the counts must have been checked."""
    pairs = np.array(layer_runs(text), np.int64).reshape(-1, 2)
    return np.repeat(pairs[:, 0], pairs[:, 1])
