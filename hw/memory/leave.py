"""The way out of the accumulators, one for all units that read them: rows rounded off to the data type's width."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, ROUNDED_READ_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.delay import delayed
from weft.hw.parts.numbers import circuits
from weft.hw.parts.ports import LeavePort, accumulator_read_port
from weft.hw.parts.select import select


class Leave(wiring.Component):
    """``readers`` name the units, each with a port of its name; they take turns. One row a cycle.

    The last step, ``fixed_point.clip``, is left to the receiver. Numbers without points of their own ignore the shift.
    """

    def __init__(self, arch: Arch, readers: tuple[str, ...]) -> None:
        self._arch, self._readers = arch, readers
        super().__init__({
            **{name: In(LeavePort(arch)) for name in readers}, "accumulator_read": Out(accumulator_read_port(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        # requests -> whose turn -> accumulators -> the coarse shift -> the fine shift, rounded: response
        m = Module()
        read, ports = self.accumulator_read, [getattr(self, name) for name in self._readers]
        requests = [port.request for port in ports]
        m.submodules.turns = turns = RoundRobin(len(ports), keeps=True)
        m.d.comb += [
            turns.requests.eq(Cat(request.valid for request in requests)), turns.advance.eq(read.request.ready),
            read.request.valid.eq(turns.requests.any()),
            read.request.payload.eq(select(turns.grant, [request.payload.address for request in requests])),
            *(request.ready.eq(read.request.ready & mine) for request, mine in zip(requests, turns.open, strict=True)),
        ]
        taken = turns.grant & read.request.ready.replicate(len(ports))
        answered = delayed(m, taken, ROUNDED_READ_LATENCY, name="answered", reset=True)
        shift = select(turns.grant, [request.payload.leave_shift for request in requests])
        rows = self._rounded(m, delayed(m, shift, ACCUMULATOR_READ_LATENCY - 1, name="coming_shift"))
        for port, valid in zip(ports, answered, strict=True):
            m.d.comb += [port.response.valid.eq(valid), Cat(port.response.payload).eq(Cat(rows))]
        return m

    def _rounded(self, m: Module, coming_shift: Value) -> list[Value]:
        """Two steps, each with a register. ``coming_shift``: the row's, a cycle before it."""
        width, bits = self._arch.number.width, self._arch.accumulator_bits
        shift, fine_shift = (Signal(len(coming_shift), reset_less=True, name=name) for name in ("shift", "fine_shift"))
        from_shift = Signal(bits, reset_less=True)
        m.d.sync += [shift.eq(coming_shift), fine_shift.eq(shift),
                     from_shift.eq(fixed_point.reached(coming_shift, bits))]
        coarse, fine, reached = circuits(self._arch).leave_shifts(shift, fine_shift, from_shift)
        rows: list[Value] = []
        for lane, value in enumerate(self.accumulator_read.response.payload):
            step = fixed_point.cut(value, coarse, reached, width)
            cut = Signal(len(step), reset_less=True, name=f"cut_{lane}")
            rounded = Signal(width + 2, reset_less=True, name=f"rounded_{lane}")
            m.d.sync += [cut.eq(step), rounded.eq(fixed_point.round_off(cut, fine, width))]
            rows.append(rounded)
        return rows
