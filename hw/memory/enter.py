"""The way into the accumulators, one for all units that write scalars to them: shifted left, or where numbers have
scales multiplied; saturated."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.ports import EnterPort, accumulator_write_port
from weft.hw.parts.schemes import circuits
from weft.hw.parts.select import select
from weft.hw.parts.slices import stage


class Enter(wiring.Component):
    """``writers`` name the units, each with a port of its name; they take turns. One row a cycle.

    The write is offered to the accumulators ENTER_LATENCY cycles after the request was taken. Its row follows as late
    as they want it: it enters on the way, in a pipeline that never waits.
    """

    def __init__(self, arch: Arch, writers: tuple[str, ...]) -> None:
        self._arch, self._writers = arch, writers
        super().__init__({
            **{name: In(EnterPort(arch)) for name in writers}, "accumulator_write": Out(accumulator_write_port(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        # requests -> whose turn -> the register: request to the accumulators -> scalars, turned, placed: data
        m = Module()
        ports, write = [getattr(self, name) for name in self._writers], self.accumulator_write.request
        requests = [port.request for port in ports]
        given = requests[0].payload.shape()
        target = data.StructLayout({**{name: given[name].shape for name in ("address", "accumulate", "last")},
                                    "whose": len(ports)})
        ways = [name for name in given.members if name not in target.members]
        held = stage(m, self._arch, "held", data.StructLayout(
            {"target": target, **{name: given[name].shape for name in ways}}), "target")
        m.submodules.turns = turns = RoundRobin(len(ports))
        chosen = data.View(given, select(turns.grant, [request.payload.as_value() for request in requests]))
        leaving, leaves = held.o.payload.target, held.o.valid & held.o.ready
        m.d.comb += [
            turns.requests.eq(Cat(request.valid for request in requests)), turns.advance.eq(held.i.ready),
            *(request.ready.eq(held.i.ready & mine) for request, mine in zip(requests, turns.open, strict=True)),
            held.i.valid.eq(turns.requests.any()), held.i.payload.target.whose.eq(turns.grant),
            *(held.i.payload.target[name].eq(chosen[name]) for name in target.members if name != "whose"),
            *(held.i.payload[name].eq(chosen[name]) for name in ways),
            write.valid.eq(held.o.valid), held.o.ready.eq(write.ready),
            write.payload.address.eq(leaving.address), write.payload.accumulate.eq(leaving.accumulate),
        ]
        for index, port in enumerate(ports):
            m.d.comb += [port.written.eq(leaves & leaving.whose[index]), port.written_last.eq(leaving.last)]
        if self._arch.scheme.has_scales:
            self._multiply(m, held.o.payload)
        else:
            self._enter(m, held.o.payload.enter_shift, held.o.payload.data)
        return m

    def _multiply(self, m: Module, given) -> None:
        """Minus the zero point, the product, saturated: a register each."""
        bits, difference_width = self._arch.accumulator_bits, self._arch.number.width + 1
        factor = delayed(m, given.enter_factor, 1, name="factor")
        for lane in range(self._arch.array_size):
            difference = Signal(signed(difference_width), reset_less=True, name=f"difference_{lane}")
            product = Signal(signed(difference_width + len(factor)), reset_less=True, name=f"product_{lane}")
            placed = Signal(signed(bits), reset_less=True, name=f"placed_{lane}")
            m.d.sync += [difference.eq(given.data[lane] - given.enter_zero), product.eq(difference * factor),
                         placed.eq(fixed_point.saturate(product, bits))]
            m.d.comb += self.accumulator_write.data[lane].eq(placed)

    def _enter(self, m: Module, shift: Value, row: Value) -> None:
        """Two steps, each with a register, behind one in which the masks are made."""
        assert ACCUMULATE_DATA_LATENCY == 3
        arch, numbers = self._arch, circuits(self._arch)
        width, bits = arch.number.width, arch.accumulator_bits
        line = DelayLine(m, shift, 2, name="shift")
        fits, from_shift = (Signal(length, reset_less=True, name=name) for length, name in (
            (width - 1, "fits"), (bits, "from_shift")))
        m.d.sync += [fits.eq(fixed_point.fitting(shift, width, bits)),
                     from_shift.eq(fixed_point.reached(line.tap(1), bits))]
        for lane in range(arch.array_size):
            scalar = delayed(m, row[lane], 1, name=f"scalar_{lane}").as_signed()
            step = numbers.turn(scalar, line.tap(1), fits)
            turned = Signal(len(step), reset_less=True, name=f"turned_{lane}")
            placed = Signal(bits, reset_less=True, name=f"placed_{lane}")
            m.d.sync += [turned.eq(step), placed.eq(numbers.place(turned, line.tap(2), from_shift))]
            m.d.comb += self.accumulator_write.data[lane].eq(placed)
