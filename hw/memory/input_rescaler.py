# SPDX-License-Identifier: Apache-2.0
"""The input rescaler: it turns the scalars that units write to the accumulators into accumulator values."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.ports import InputRescalerPort, accumulator_write_port
from weft.hw.parts.schemes import circuits
from weft.hw.parts.select import select
from weft.hw.parts.slices import stage


class InputRescaler(wiring.Component):
    """One rescaler for all ``writers``, each with a port of its name; they take turns, one row a cycle.

    The write is offered to the accumulators INPUT_RESCALE_LATENCY cycles after the request was taken. Its row
    follows when the accumulators want it, rescaled on the way as the number scheme says, in a pipeline that never
    waits."""

    def __init__(self, arch: Arch, writers: tuple[str, ...]) -> None:
        self._arch, self._writers = arch, writers
        super().__init__({
            **{name: In(InputRescalerPort(arch)) for name in writers},
            "accumulator_write": Out(accumulator_write_port(arch)),
        })

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit.

        Flow: requests -> whose turn -> the register: request to the accumulators -> scalars, turned, placed: data."""
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
        m.d.comb += [entered.eq(value) for entered, value in zip(
            self.accumulator_write.data, circuits(self._arch).rescale(m, held.o.payload), strict=True)]
        return m
