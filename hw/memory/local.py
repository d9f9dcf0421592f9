# SPDX-License-Identifier: Apache-2.0
"""Local memory: interleaved banks of one read and one write port each, shared by round robin."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.memory.banks import Interleave, block_ram
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.delay import delayed
from weft.hw.parts.ports import local_read_port, local_write_port
from weft.hw.parts.select import pick, select


class LocalMemory(wiring.Component):
    """Local memory for the clients ``readers`` and ``writers``; each gets a port of its name (see ``ports.py``).

    Every cycle each bank serves one read and one write. The clients that ask for a bank take turns. Only the reader
    ``first`` never waits, nor do those ``beside`` it, which never ask for a bank of each other's or of its. The writer
    ``first_writer`` never waits either. If it took turns, a client at half its pace would meet it in bank after bank
    and slow it down to half. ``contended`` tells the reader ``first`` that it, or one beside it, kept another one
    waiting in this cycle; it must leave a gap later. Other writers wait for ``first_writer`` as long as its operation
    stays in a bank.

    A read is answered ``LOCAL_READ_LATENCY`` cycles after it was taken. A write is seen by every read taken in a
    later cycle (with register slices from the second cycle on; the interlock lets no read begin before). Contents
    are zero at power-up and survive a reset."""

    def __init__(self, arch: Arch, readers: tuple[str, ...], writers: tuple[str, ...],
                 first: str | None = None, first_writer: str | None = None, beside: tuple[str, ...] = ()) -> None:
        self._arch, self._readers, self._writers = arch, readers, writers
        self._first, self._first_writer = () if first is None else (first, *beside), first_writer
        super().__init__({
            **{name: In(local_read_port(arch)) for name in readers},
            **{name: In(local_write_port(arch)) for name in writers},
            **({"contended": Out(1)} if self._first else {}),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: requests -> arbitration, bank by bank -> block RAM -> its output register -> the bank's row: response."""
        m = Module()
        arch = self._arch
        interleave = Interleave(arch.local_banks, arch.local_depth)
        readers = [getattr(self, name) for name in self._readers]
        writers = [getattr(self, name) for name in self._writers]
        width = arch.array_size * arch.number.width
        # With register slices a cycle ago, so that a grant drives no wide multiplexer.
        vectors = [delayed(m, port.request.payload.data, arch.register_slices, name=f"{name}_vector")
                   for name, port in zip(self._writers, writers, strict=True)]
        outputs, grants = [], []
        first = tuple(map(self._readers.index, self._first))
        first_writer = () if self._first_writer is None else (self._writers.index(self._first_writer),)
        for bank in range(interleave.count):
            read, output, write = block_ram(m, f"bank{bank}", interleave.rows, width)
            grant = choose(m, f"read{bank}", interleave, bank, [port.request for port in readers], first=first)
            take_read(m, read, interleave, grant, readers)
            grants.append(grant)
            outputs.append(output)
            grant = choose(m, f"write{bank}", interleave, bank, [port.request for port in writers], "address",
                           first_writer)
            take_write(m, f"write{bank}", write, interleave, grant, writers, vectors, arch.register_slices)
        for index, (name, port) in enumerate(zip(self._readers, readers, strict=True)):
            valid, bank = served(m, name, [grant[index] for grant in grants], LOCAL_READ_LATENCY - 1)
            respond(m, port, valid, bank, outputs)
        if first:
            m.d.comb += self.contended.eq(reduce(or_, [readers[index].request.valid & Cat(
                port.request.valid & interleave.same_bank(port.request.payload, readers[index].request.payload)
                for other, port in enumerate(readers) if other not in first).any() for index in first]))
        return m


def choose(m: Module, name: str, interleave: Interleave, bank: int, requests: list, field: str | None = None,
           first: tuple[int, ...] = ()):
    """Return the one-hot grant of a bank's port among client requests.

    Clients of ``first`` are served whenever they ask; no two of them ask for a bank at a time. ``ready`` of a request
    does not wait for its own valid."""
    m.submodules[name] = arbiter = RoundRobin(len(requests))
    in_bank = [interleave.in_bank(request.payload[field] if field else request.payload, bank) for request in requests]
    asks = [request.valid & here for request, here in zip(requests, in_bank, strict=True)]
    for index, request in enumerate(requests):
        free = Const(1, 1) if not first or index in first else ~reduce(or_, [asks[other] for other in first])
        m.d.comb += arbiter.requests[index].eq(asks[index] & free)
        with m.If(in_bank[index] & (Const(1, 1) if index in first else arbiter.open[index] & free)):
            m.d.comb += request.ready.eq(1)
    m.d.comb += arbiter.advance.eq(1)
    return arbiter.grant


def take_read(m: Module, read, interleave: Interleave, grant, readers: list) -> None:
    """Register the chosen address in front of the block RAM."""
    row = Signal(interleave.row_width, reset_less=True)
    m.d.sync += row.eq(select(grant, [interleave.row(port.request.payload) for port in readers]))
    m.d.comb += read.addr.eq(row)


def take_write(m: Module, name: str, write, interleave: Interleave, grant, writers: list, vectors: list,
               late: int) -> None:
    """Register the chosen write in front of the block RAM, as late as reads are, which keeps their order.

    ``vectors``: what the writers offered ``late`` cycles ago; then the write is that much later."""
    vector = Signal(len(write.data), reset_less=True, name=f"{name}_vector")
    row = select(grant, [interleave.row(port.request.payload.address) for port in writers])
    granted = delayed(m, grant, late, name=f"{name}_granted", reset=True)
    m.d.sync += [write.en.eq(granted.any()), vector.eq(select(granted, vectors))]
    m.d.comb += [write.addr.eq(delayed(m, row, 1 + late, name=f"{name}_row")), write.data.eq(vector)]


def served(m: Module, name: str, grants: list, cycles: int) -> tuple[Value, Value]:
    """Return whether any bank took the client's request ``cycles`` ago, and that bank's number.

    ``grants``: for each bank, whether it takes the client's request now."""
    number = [Cat(grant for bank, grant in enumerate(grants) if bank >> bit & 1).any()
              for bit in range(bits_to_count(len(grants)))]
    line = delayed(m, Cat(Cat(*grants).any(), *number), cycles, name=f"{name}_served", reset=True)
    return line[0], line[1:]


def respond(m: Module, port, valid, number: Value, rows: list) -> None:
    """Register rows[number] as the port's response, zeros if it is not ``valid``: the last cycle of a read."""
    row = Signal(len(rows[0]), reset_less=True)
    m.d.comb += port.response.payload.as_value().eq(row)
    m.d.sync += [port.response.valid.eq(valid), row.eq(Mux(valid, pick(number, rows), 0))]
