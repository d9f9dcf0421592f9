# SPDX-License-Identifier: Apache-2.0
"""The requantizer: it turns accumulator rows that units read into scalars, with ReLU when asked.

On INT8 machines the move_out unit requantizes by itself, and gets its rows as they are."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, ROUNDED_READ_LATENCY
from weft.hw.parts import fixed_point
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.ports import RequantizerPort, accumulator_read_port, requantizer_port
from weft.hw.parts.schemes import circuits
from weft.hw.parts.select import select


class Requantizer(wiring.Component):
    """One requantizer for all ``readers``, each with a port of its name; they take turns, one row a cycle.

    If the number scheme has no output shift, the shift is ignored. A port that is a plain :class:`ReadPort`
    (``ports.requantizer_port``) gets its rows as they are."""

    def __init__(self, arch: Arch, readers: tuple[str, ...]) -> None:
        self._arch, self._readers = arch, readers
        super().__init__({
            **{name: In(requantizer_port(arch, name)) for name in readers},
            "accumulator_read": Out(accumulator_read_port(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: each cycle one port has its turn, and its request reads a row of the accumulators.

        For a port of scalars the row is shifted coarsely, then shifted finely and rounded, and is then the response.
        Another port gets the row itself, earlier."""
        m = Module()
        read, ports = self.accumulator_read, [getattr(self, name) for name in self._readers]
        requests = [port.request for port in ports]
        m.submodules.turns = turns = RoundRobin(len(ports), keeps=True)
        m.d.comb += [
            turns.requests.eq(Cat(request.valid for request in requests)), turns.advance.eq(read.request.ready),
            read.request.valid.eq(turns.requests.any()),
            read.request.payload.eq(select(turns.grant, [self._address(port) for port in ports])),
            *(request.ready.eq(read.request.ready & mine) for request, mine in zip(requests, turns.open, strict=True)),
        ]
        taken = turns.grant & read.request.ready.replicate(len(ports))
        answers = DelayLine(m, taken, ROUNDED_READ_LATENCY, name="answered", reset=True)
        ways = [Cat(port.request.payload.relu, port.request.payload.output_shift) for port in ports
                if self._rounds(port)]
        grants = Cat(turn for turn, port in zip(turns.grant, ports, strict=True) if self._rounds(port))
        way = delayed(m, select(grants, ways), ACCUMULATOR_READ_LATENCY - 1, name="coming_way")
        rows = self._rounded(m, way[1:], way[0])
        for index, port in enumerate(ports):
            if self._rounds(port):
                valid, given = answers.tap(ROUNDED_READ_LATENCY)[index], rows
            else:
                valid, given = answers.tap(ACCUMULATOR_READ_LATENCY)[index], list(read.response.payload)
            m.d.comb += [port.response.valid.eq(valid), Cat(port.response.payload).eq(Cat(given))]
        return m

    def _rounds(self, port) -> bool:
        """Tell whether ``port`` gets rounded scalars; another port gets rows of the accumulators as they are."""
        return isinstance(port.signature, RequantizerPort)

    def _address(self, port) -> Value:
        """Return the address of the accumulators that a reader asks for at ``port``, whatever kind the port has."""
        return port.request.payload.address if self._rounds(port) else port.request.payload

    def _rounded(self, m: Module, coming_shift: Value, coming_relu: Value) -> list[Value]:
        """Return the scalars of the row, two steps later, each with a register.

        ``coming_shift`` and ``coming_relu`` belong to the row, and come a cycle before it."""
        width, bits = self._arch.number.width, self._arch.accumulator_bits
        shift, fine_shift = (Signal(len(coming_shift), reset_less=True, name=name) for name in ("shift", "fine_shift"))
        from_shift, relu = Signal(bits, reset_less=True), Signal(reset_less=True)
        m.d.sync += [shift.eq(coming_shift), fine_shift.eq(shift), relu.eq(coming_relu),
                     from_shift.eq(fixed_point.reached(coming_shift, bits))]
        coarse, fine, reached = circuits(self._arch).output_shifts(shift, fine_shift, from_shift)
        rows: list[Value] = []
        for lane, value in enumerate(self.accumulator_read.response.payload):
            step = fixed_point.cut(value, coarse, reached, width)
            cut = Signal(len(step), reset_less=True, name=f"cut_{lane}")
            kept = Signal(width + 1, name=f"kept_{lane}")
            rounded = Signal(signed(width), reset_less=True, name=f"rounded_{lane}")
            m.d.comb += kept.eq(fixed_point.round_off(cut, fine, width))
            m.d.sync += [cut.eq(Mux(relu & value[-1], 0, step)), rounded.eq(fixed_point.add_up(kept))]
            rows.append(rounded)
        return rows
