# SPDX-License-Identifier: Apache-2.0
"""Functions of scalars before they are requantized: a slope below zero, and a largest value."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes.fixed_point import SLOPE_POINT
from weft.hw.contract.timing import SLOPE_LATENCY, output_latency
from weft.hw.parts import fixed_point
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.operations import register_fields
from weft.hw.parts.ports import vector_layout

FUNCTIONS = ("output_slope", "output_maximum")
"""The architecture keys of these functions, which are the names of their fields in a move-out's operation."""


def functions_of(arch: Arch) -> tuple[str, ...]:
    """Return the names in ``FUNCTIONS`` that a machine has."""
    return tuple(name for name in FUNCTIONS if getattr(arch, name))


class OutputFunctions(wiring.Component):
    """``scalars`` are the ``row`` ``output_latency`` cycles later, with the ReLU that the machine has; a row a cycle.

    ``relu`` and the fields of ``functions_of`` come with their row. Rows without ``relu`` pass as they are. Meaning:
    ``FixedPoint.move_out`` behind its requantization."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        fields = register_fields(arch, "move_out")
        super().__init__({
            "row": In(vector_layout(arch)), "relu": In(1), "scalars": Out(vector_layout(arch)),
            **{name: In(fields[name]) for name in functions_of(arch)},
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a row is multiplied by the slope and rounded, then limited."""
        m = Module()
        relus = DelayLine(m, self.relu, output_latency(self._arch), name="relu_line")
        values = [value.as_signed() for value in self.row]
        age = 0
        if self._arch.output_slope:
            values, age = self._sloped(m, values, relus.tap(SLOPE_LATENCY - 1)), SLOPE_LATENCY
        if self._arch.output_maximum:
            maximum = delayed(m, self.output_maximum, age, name="maximum")
            values = [self._limited(m, lane, value, relus.tap(age), maximum) for lane, value in enumerate(values)]
        m.d.comb += [out.eq(value) for out, value in zip(self.scalars, values, strict=True)]
        return m

    def _sloped(self, m: Module, values: list[Value], relu: Value) -> list[Value]:
        """Return the scalars of a row SLOPE_LATENCY cycles later, negative ones times the slope if ``relu`` is set.

        ``relu`` belongs to the row that is being rounded, and so comes SLOPE_LATENCY - 1 cycles after its scalars."""
        width, found = self._arch.number.width, []
        for lane, value in enumerate(values):
            exact = signed(width + len(self.output_slope))
            product, passed = (Signal(exact, reset_less=True, name=f"{name}_{lane}") for name in ("product", "passed"))
            sloped = Signal(signed(width), reset_less=True, name=f"sloped_{lane}")
            kept = delayed(m, value, SLOPE_LATENCY - 1, name=f"kept_{lane}").as_signed()
            rounded = fixed_point.saturate(fixed_point.round_half_even(passed, SLOPE_POINT), width)
            m.d.sync += [product.eq(value * self.output_slope), passed.eq(product),
                         sloped.eq(Mux(relu & kept[-1], rounded, kept))]
            found.append(sloped)
        return found

    def _limited(self, m: Module, lane: int, value: Value, relu: Value, maximum: Value) -> Value:
        """Return a register that holds the scalar ``value`` of ``lane`` a cycle later, limited if ``relu`` is set.

        The limit is ``maximum``. It and ``relu`` belong to the row of the scalar, and come in the same cycle."""
        limited = Signal(signed(self._arch.number.width), reset_less=True, name=f"limited_{lane}")
        m.d.sync += limited.eq(Mux(relu & (value > maximum), maximum, value))
        return limited
