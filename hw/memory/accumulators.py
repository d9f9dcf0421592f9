"""Accumulators: interleaved banks, each a pipeline that reads, adds, saturates and writes one vector a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.arch import Arch
from weft.hw.delay import delayed
from weft.hw.fixed_point import resize, saturate
from weft.hw.memory.arbiter import RoundRobin
from weft.hw.memory.banks import Interleave
from weft.hw.memory.local import pick, respond, select, served
from weft.hw.ports import (
    AccumulatePort,
    accumulator_layout,
    accumulator_read_port,
    accumulator_write_port,
    sum_layout,
)
from weft.hw.timing import ACCUMULATOR_READ_LATENCY

FORWARDING_DEPTH = 3
"""Writes of the last cycles that a read of the block RAM does not see yet: they are forwarded."""


class Accumulators(wiring.Component):
    """Clients: ``mat_mul`` writes sums and is taken at once, always (the array cannot wait); ``writers`` write or
    accumulate scalars of accumulator_width, ``readers`` read.

    An accumulate needs the read and the write port of its bank, an overwrite the write port, a read the read port.
    After ``mat_mul``, writers take turns; a reader and an accumulating writer that want one read port alternate.
    Everything taken is seen by everything taken in a later cycle, back to back on one address too. acc' = sat(value)
    or sat(acc + value). Reads are answered ``ACCUMULATOR_READ_LATENCY`` cycles after they were taken.
    """

    def __init__(self, arch: Arch, readers: tuple[str, ...], writers: tuple[str, ...]) -> None:
        self._arch, self._readers, self._writers = arch, readers, writers
        super().__init__({
            "mat_mul": In(AccumulatePort(arch.accumulator_address_width, sum_layout(arch))),
            **{name: In(accumulator_read_port(arch)) for name in readers},
            **{name: In(accumulator_write_port(arch)) for name in writers},
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        arch = self._arch
        interleave = Interleave(arch.accumulator_banks, arch.accumulator_depth)
        readers = [getattr(self, name) for name in self._readers]
        writers = [getattr(self, name) for name in self._writers]
        grants, banks = [], []
        m.d.comb += self.mat_mul.request.ready.eq(1)
        for index in range(interleave.count):
            m.submodules[f"bank{index}"] = bank = AccumulatorBank(arch, interleave.rows, interleave.row_width)
            grant = self._arbitrate(m, interleave, index, bank, readers, writers)
            grants.append(grant)
            banks.append(bank)
        for index, (name, port) in enumerate(zip(self._readers, readers, strict=True)):
            self._answer(m, name, port, [grant[index] for grant in grants], banks)
        return m

    def _answer(self, m: Module, name: str, port, grants: list, banks: list) -> None:
        """Register the row of the bank that served this client, from where the bank has it."""
        valid, number = served(m, name, grants, ACCUMULATOR_READ_LATENCY - 2)
        chosen = Cat(valid, pick(number, [bank.in_result for bank in banks]), number)
        chosen = delayed(m, chosen, 1, name=f"{name}_chosen", reset=True)
        rows = [row.as_value() for bank in banks for row in (bank.fetched, bank.result)]
        respond(m, port, chosen[0], chosen[1:], rows)

    def _arbitrate(self, m: Module, interleave: Interleave, index: int, bank, readers: list, writers: list):
        """Fill one bank's request register; returns the readers' one-hot grant."""
        sums = self.mat_mul.request
        mat_mul = Signal(name=f"mat_mul_in_bank{index}")
        m.d.comb += mat_mul.eq(sums.valid & interleave.in_bank(sums.payload.address, index))
        reads, writes = RoundRobin(len(readers)), RoundRobin(len(writers))
        m.submodules[f"reads{index}"], m.submodules[f"writes{index}"] = reads, writes
        readers_turn = Signal(name=f"readers_turn{index}")  # a reader was held back by an accumulating writer
        for bit, port in enumerate(readers):
            m.d.comb += reads.requests[bit].eq(port.request.valid & interleave.in_bank(port.request.payload, index))
        for bit, port in enumerate(writers):
            request = port.request
            blocked = mat_mul | (request.payload.accumulate & readers_turn & reads.requests.any())
            m.d.comb += writes.requests[bit].eq(
                request.valid & interleave.in_bank(request.payload.address, index) & ~blocked)
        requests = [sums, *(port.request for port in writers)]
        chosen = Cat(mat_mul, writes.grant)
        adds = select(chosen, [request.payload.accumulate for request in requests])
        held = adds & reads.requests.any()
        grant = reads.grant & (~adds).replicate(len(readers))
        m.d.comb += [reads.advance.eq(~adds), writes.advance.eq(1)]
        m.d.sync += readers_turn.eq(held)
        for bit, port in enumerate(readers):
            with m.If(grant[bit]):
                m.d.comb += port.request.ready.eq(1)
        for bit, port in enumerate(writers):
            with m.If(writes.grant[bit]):
                m.d.comb += port.request.ready.eq(1)
        self._fill(m, interleave, bank, chosen, requests, adds, grant, readers)
        return grant

    def _fill(self, m: Module, interleave: Interleave, bank, chosen, requests: list, adds, grant,
              readers: list) -> None:
        """Register the bank's chosen write and read."""
        wide = bank.w_complement.shape()
        row = select(chosen, [interleave.row(request.payload.address) for request in requests])
        read_row = select(grant, [interleave.row(port.request.payload) for port in readers])
        values = [widened(request.payload.data, wide) for request in requests]
        m.d.sync += [
            bank.w_en.eq(chosen.any()), bank.w_accumulate.eq(adds), bank.w_addr.eq(row),
            bank.w_complement.as_value().eq(~select(chosen, values)),
            bank.r_addr.eq(Mux(adds, row, read_row)),
        ]


def widened(row, layout: data.ArrayLayout):
    """Each scalar of a row sign-extended to the scalars of ``layout``."""
    width = layout.elem_shape.width
    return Cat(*(resize(row[lane], width) for lane in range(layout.length)))


class AccumulatorBank(wiring.Component):
    """One bank. Inputs are registers of the arbitration: ``r_addr`` the row to read, ``w_*`` the write that goes with
    it, its scalars complemented.

    The row read, newer writes included, is ``result`` where ``in_result`` was high in the cycle before, else
    ``fetched``: both 2 cycles after ``r_addr``. The write reaches the block RAM a cycle later.
    """

    def __init__(self, arch: Arch, rows: int, row_width: int) -> None:
        self._arch, self._rows = arch, rows
        super().__init__({
            "r_addr": In(row_width), "in_result": Out(1),
            "result": Out(accumulator_layout(arch)), "fetched": Out(accumulator_layout(arch)),
            "w_en": In(1), "w_accumulate": In(1), "w_addr": In(row_width), "w_complement": In(wide_layout(arch)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.ram = ram = Memory(shape=unsigned(accumulator_layout(self._arch).size), depth=self._rows, init=[])
        read, write = ram.read_port(), ram.write_port()
        m.d.comb += read.addr.eq(self.r_addr)
        place = data.StructLayout({"en": 1, "addr": len(self.w_addr)})
        request, in_ram, adding, writing = (Signal(place, name=name) for name in (
            "request", "in_ram", "adding", "writing"))  # the write in each stage
        m.d.comb += [request.en.eq(self.w_en), request.addr.eq(self.w_addr)]
        m.d.sync += [in_ram.eq(request), adding.eq(in_ram), writing.eq(adding)]
        m.d.comb += [write.en.eq(writing.en), write.addr.eq(writing.addr), write.data.eq(self.result.as_value())]
        hits = [Signal(name=f"hit{age + 1}") for age in range(FORWARDING_DEPTH)]
        for hit, newer in zip(hits, (in_ram, adding, writing), strict=True):
            m.d.sync += hit.eq(newer.en & (newer.addr == self.r_addr))
        result = Signal(self.result.shape(), reset_less=True)
        m.d.comb += [self.result.eq(result), self.in_result.eq(hits[0])]
        self._fetch(m, read.data, hits)
        self._add(m, result, hits[0])
        return m

    def _fetch(self, m: Module, stored, hits) -> None:
        """The row as the block RAM gives it, or as one of the two older writes leaves it that it did not show yet."""
        before, fetched = (Signal(self.result.shape(), name=name, reset_less=True) for name in ("before", "fetched"))
        row = Mux(hits[1], self.result.as_value(), Mux(hits[2], before.as_value(), stored))
        m.d.sync += [before.eq(self.result), fetched.eq(row)]
        m.d.comb += self.fetched.eq(fetched)

    def _add(self, m: Module, result, in_result) -> None:
        """Add to what was read, or replace it; saturate.

        a + b is written ~(~a - b): yosys puts the left side of a difference on the carry chain's direct input, where a
        register is free, and takes the choice of what to add into the chain's own tables.
        """
        accumulate, add_result, add_fetched = Signal(), Signal(), Signal()
        in_ram, adding = (Signal(self.w_complement.shape(), name=f"complement_{name}", reset_less=True)
                          for name in ("in_ram", "adding"))
        m.d.sync += [
            accumulate.eq(self.w_accumulate), in_ram.eq(self.w_complement), adding.eq(in_ram),
            add_result.eq(accumulate & in_result), add_fetched.eq(accumulate & ~in_result),
        ]
        for lane in range(self._arch.array_size):
            rows = [row[lane].as_unsigned() for row in (self.result, self.fetched)]
            old = select(Cat(add_result, add_fetched), rows).as_signed()
            m.d.sync += result[lane].eq(saturate(~(adding[lane] - old), self._arch.accumulator_bits))


def wide_layout(arch: Arch) -> data.ArrayLayout:
    """The widest scalar written: an exact sum of the array, or an accumulator's own width."""
    sums, scalars = sum_layout(arch), accumulator_layout(arch)
    return sums if sums.size >= scalars.size else scalars
