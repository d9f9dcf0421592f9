# SPDX-License-Identifier: Apache-2.0
"""Reads of the same constants by several cores, served by one burst."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value

from weft.hw.bus import axi
from weft.hw.contract.arch import Arch
from weft.hw.contract.registers import MODIFIABLE
from weft.hw.parts.select import select


class JoinedReads:
    """The reads that the data ``ports`` of cores on a memory port offer, and which of them are alike.

    A read may be joined if it is of DRAM1, where constants lie, and its AxCACHE says ``MODIFIABLE``, as AXI has it of
    bursts that may be merged. It waits until every core of ``members`` asks for the same, but at most ``join_cycles``
    cycles, and no longer than one that waits already. So cores that run the same program wait for the slowest and go on
    together, while a core that never asks delays the others and keeps nobody waiting for ever.

    ``requests``: bit k says whether the read of port k may be served now."""

    def __init__(self, m: Module, arch: Arch, ports: list, members: Value) -> None:
        self._m, self._most = m, arch.join_cycles
        self._joins = [port.ar.valid & (port.ar.payload.user == axi.DRAM1_USER)
                       & (port.ar.payload.cache & MODIFIABLE).any() for port in ports]
        self._alike = [Signal(len(ports), name=f"alike{k}") for k in range(len(ports))]
        for k, mine in enumerate(ports):
            m.d.comb += self._alike[k].eq(Cat(
                self._joins[k] & self._joins[other] & same(mine.ar.payload, port.ar.payload)
                for other, port in enumerate(ports)))
        self._waited = Signal(range(self._most + 1), name="join_waited")
        waits_no_longer = self._waited == self._most
        self.requests = [port.ar.valid & (~joins | waits_no_longer | ((members & ~alike) == 0))
                         for port, joins, alike in zip(ports, self._joins, self._alike, strict=True)]

    def served(self, grant: Value) -> Value:
        """Return whose reads are served with the one that is granted, a bit a port; none if no port's is."""
        return grant[:len(self._alike)] | select(grant, self._alike)

    def step(self, taken: Value) -> None:
        """Count the cycles that reads wait to be joined; ``taken``: bit k, the read of port k is served now."""
        waits = (Cat(self._joins) & ~taken[:len(self._joins)]).any()
        self._m.d.sync += self._waited.eq(Mux(waits, Mux(self._waited == self._most, self._most, self._waited + 1), 0))


def same(first, second) -> Value:
    """Return whether two addresses ask for the same beats."""
    return (first.addr == second.addr) & (first.len == second.len)
