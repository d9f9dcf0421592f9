# SPDX-License-Identifier: Apache-2.0
"""The common circuits of both fixed-point schemes: scalars are shifted into the accumulators."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from amaranth.hdl import Module, Signal, Value

from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.schemes.base import Circuits


class FixedPointCircuits(Circuits):
    """The circuits of a fixed-point scheme; they rescale inputs in two steps, each with a register."""

    @abstractmethod
    def turn(self, scalar: Value, shift: Value, fits: Value) -> Value:
        """Return the first step. ``fits``: ``fixed_point.fitting`` of the shift."""

    @abstractmethod
    def place(self, turned: Value, shift: Value, from_shift: Value) -> Value:
        """Return the second step, an accumulator value. ``from_shift``: ``fixed_point.reached`` of the shift."""

    def rescale(self, m: Module, request: Any) -> list[Value]:
        """Return the accumulator values: one cycle makes the masks, then come two steps, each with a register."""
        assert ACCUMULATE_DATA_LATENCY == 3
        width, bits = self.arch.number.width, self.arch.accumulator_bits
        line = DelayLine(m, request.input_shift, 2, name="shift")
        fits, from_shift = (Signal(length, reset_less=True, name=name) for length, name in (
            (width - 1, "fits"), (bits, "from_shift")))
        m.d.sync += [fits.eq(fixed_point.fitting(request.input_shift, width, bits)),
                     from_shift.eq(fixed_point.reached(line.tap(1), bits))]
        values: list[Value] = []
        for lane in range(self.arch.array_size):
            scalar = delayed(m, request.data[lane], 1, name=f"scalar_{lane}").as_signed()
            step = self.turn(scalar, line.tap(1), fits)
            turned = Signal(len(step), reset_less=True, name=f"turned_{lane}")
            placed = Signal(bits, reset_less=True, name=f"placed_{lane}")
            m.d.sync += [turned.eq(step), placed.eq(self.place(turned, line.tap(2), from_shift))]
            values.append(placed)
        return values
