"""The way out of the accumulators: rows rounded off to the data type's width."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Module, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw import fixed_point
from weft.hw.arch import EVERY_STEP, Arch
from weft.hw.operations import shift_width
from weft.hw.ports import accumulator_layout
from weft.hw.timing import LEAVE_LATENCY


def rounded_layout(arch: Arch) -> data.ArrayLayout:
    """A row that still has to be clipped (``fixed_point.clip``), a LUT's work for who takes it."""
    return data.ArrayLayout(unsigned(arch.number.width + 2), arch.lane_count)


class Leave(wiring.Component):
    """``row`` and its leave ``shift`` in, ``rounded`` out LATENCY cycles later; free running, a row a cycle.

    The last step, ``fixed_point.clip``, is left to the receiver. With every_step the shift is not looked at.
    """

    LATENCY = LEAVE_LATENCY

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "row": In(accumulator_layout(arch)), "shift": In(shift_width(arch)), "rounded": Out(rounded_layout(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width = self._arch.number.width
        shift, fine_shift = self.shift, Signal.like(self.shift, reset_less=True)
        m.d.sync += fine_shift.eq(shift)
        if self._arch.mac_rounding == EVERY_STEP:
            shift = fine_shift = Const(0, 1)
        for lane in range(self._arch.lane_count):
            step = fixed_point.cut(self.row[lane], shift, width)
            cut = Signal(len(step), reset_less=True, name=f"cut_{lane}")
            rounded = Signal(width + 2, reset_less=True, name=f"rounded_{lane}")
            m.d.sync += [cut.eq(step), rounded.eq(fixed_point.round_off(cut, fine_shift, width))]
            m.d.comb += self.rounded[lane].eq(rounded)
        return m
