"""The way out of the accumulators: rows rounded off to the data type's width."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LEAVE_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.numbers import circuits
from weft.hw.parts.operations import shift_width
from weft.hw.parts.ports import accumulator_layout


def rounded_layout(arch: Arch) -> data.ArrayLayout:
    """A row that still has to be clipped (``fixed_point.clip``), a LUT's work for who takes it."""
    return data.ArrayLayout(unsigned(arch.number.width + 2), arch.lane_count)


class Leave(wiring.Component):
    """``row`` and its leave ``shift`` come in, the shift a cycle before the row. ``rounded`` goes out LATENCY cycles
    after the row. The block runs freely and takes a row every cycle.

    The last step, ``fixed_point.clip``, is left to the receiver. Numbers without points of their own ignore the shift.
    """

    LATENCY = LEAVE_LATENCY

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "row": In(accumulator_layout(arch)), "shift": In(shift_width(arch)), "rounded": Out(rounded_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width, bits = self._arch.number.width, self._arch.accumulator_bits
        shift, fine_shift = (Signal.like(self.shift, reset_less=True, name=name) for name in ("shift", "fine_shift"))
        from_shift = Signal(bits, reset_less=True)
        m.d.sync += [shift.eq(self.shift), fine_shift.eq(shift), from_shift.eq(fixed_point.reached(self.shift, bits))]
        coarse, fine, reached = circuits(self._arch).leave_shifts(shift, fine_shift, from_shift)
        for lane in range(self._arch.lane_count):
            step = fixed_point.cut(self.row[lane], coarse, reached, width)
            cut = Signal(len(step), reset_less=True, name=f"cut_{lane}")
            rounded = Signal(width + 2, reset_less=True, name=f"rounded_{lane}")
            m.d.sync += [cut.eq(step), rounded.eq(fixed_point.round_off(cut, fine, width))]
            m.d.comb += self.rounded[lane].eq(rounded)
        return m
