"""Fixed point, exact sums: scalars enter by a shift, and the bias is added below each column.

There because yosys starts a DSP cascade only at a block that adds nothing.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal, Value, signed, unsigned
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.numbers import FixedPointOnce
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import delayed
from weft.hw.parts.numbers.base import Circuits
from weft.hw.parts.operations import shift_width
from weft.hw.parts.ports import partial_sum_width


class OnceCircuits(Circuits):
    name = FixedPointOnce.name

    def turn(self, scalar: Value, shift: Value, fits: Value) -> Value:
        return fixed_point.turn(scalar, shift, fits)

    def place(self, turned: Value, shift: Value, from_shift: Value) -> Value:
        return fixed_point.place(turned, shift, from_shift)

    def leave_shifts(self, shift: Value, fine_shift: Value, from_shift: Value) -> tuple[Value, Value, Value]:
        return shift, fine_shift, from_shift

    def add_product(self, partial_sum: Value, product: Value, width: int) -> Value:
        return (partial_sum + product)[:width]

    def add_bias(self, m: Module, j: int, bias: Value, enter_shift: Value, column: list[Any]) -> Value:
        m.submodules[f"bias_adder_{j}"] = adder = BiasAdder(self.arch)
        m.d.comb += [
            adder.bias.eq(delayed(m, bias, self.arch.array_size - 1, name=f"bias_wave_{j}")),
            adder.enter_shift.eq(enter_shift), adder.sum_i.eq(column[-1].partial_sum_o),
        ]
        return adder.sum_o


class BiasAdder(wiring.Component):
    """Below a column with mac_rounding ``once``: adds the bias to the sum of its products.

    The sum_i of cycle t + 2 plus the ``bias`` of cycle t, entered by the ``enter_shift`` of cycle t, is ``sum_o`` at
    t + LATENCY.
    """

    LATENCY = 3

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "bias": In(signed(arch.number.width)), "enter_shift": In(unsigned(shift_width(arch))),
            "sum_i": In(signed(arch.numbers.row_sum_width(arch.array_size - 1))),
            "sum_o": Out(signed(partial_sum_width(arch))),
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        width = self._arch.accumulator_bits
        step = fixed_point.turn(self.bias, self.enter_shift, fixed_point.fitting(
            self.enter_shift, len(self.bias), width))
        turned, shift = Signal(len(step), reset_less=True), Signal.like(self.enter_shift, reset_less=True)
        from_shift, entered = Signal(width, reset_less=True), Signal(signed(width), reset_less=True)
        total = Signal(self.sum_o.shape(), reset_less=True)
        m.d.sync += [
            turned.eq(step), shift.eq(self.enter_shift), from_shift.eq(fixed_point.reached(self.enter_shift, width)),
            entered.eq(fixed_point.place(turned, shift, from_shift)), total.eq(self.sum_i + entered),
        ]
        m.d.comb += self.sum_o.eq(total)
        return m
