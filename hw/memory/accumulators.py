"""Accumulators: interleaved banks, each a pipeline that reads, adds, saturates and writes one vector a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.arch import Arch
from weft.hw.fixed_point import resize, saturate
from weft.hw.memory.arbiter import RoundRobin
from weft.hw.memory.banks import Interleave, block_ram
from weft.hw.memory.local import answer, select
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
        grants, outputs = [], []
        m.d.comb += self.mat_mul.request.ready.eq(1)
        for index in range(interleave.count):
            m.submodules[f"bank{index}"] = bank = AccumulatorBank(arch, interleave.rows, interleave.row_width)
            grant = self._arbitrate(m, interleave, index, bank, readers, writers)
            grants.append(grant)
            outputs.append(bank.r_data.as_value())
        for index, (name, port) in enumerate(zip(self._readers, readers, strict=True)):
            answer(m, name, port, [grant[index] for grant in grants], outputs, ACCUMULATOR_READ_LATENCY)
        return m

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
        wide = bank.w_data.shape()
        row = select(chosen, [interleave.row(request.payload.address) for request in requests])
        read_row = select(grant, [interleave.row(port.request.payload) for port in readers])
        values = [widened(request.payload.data, wide) for request in requests]
        m.d.sync += [
            bank.w_en.eq(chosen.any()), bank.w_accumulate.eq(adds), bank.w_addr.eq(row),
            bank.w_data.as_value().eq(select(chosen, values)),
            bank.r_addr.eq(Mux(adds, row, read_row)),
        ]


def widened(row, layout: data.ArrayLayout):
    """Each scalar of a row sign-extended to the scalars of ``layout``."""
    width = layout.elem_shape.width
    return Cat(*(resize(row[lane], width) for lane in range(layout.length)))


class AccumulatorBank(wiring.Component):
    """One bank. Inputs are registers of the arbitration: ``r_addr`` the row to read, ``w_*`` the write that goes with
    it.

    ``r_data`` follows ``r_addr`` by 2 cycles, newer writes included; the write reaches the block RAM a cycle later.
    """

    def __init__(self, arch: Arch, rows: int, row_width: int) -> None:
        self._arch, self._rows = arch, rows
        super().__init__({
            "r_addr": In(row_width), "r_data": Out(accumulator_layout(arch)),
            "w_en": In(1), "w_accumulate": In(1), "w_addr": In(row_width), "w_data": In(wide_layout(arch)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = accumulator_layout(self._arch)
        read, stored, write = block_ram(m, "ram", self._rows, layout.size)
        m.d.comb += read.addr.eq(self.r_addr)
        write_stage = data.StructLayout({
            "en": 1, "accumulate": 1, "addr": len(self.w_addr), "data": self.w_data.shape()})
        in_ram, adding = (Signal(write_stage, name=name) for name in ("in_ram", "adding"))
        m.d.sync += [
            in_ram.en.eq(self.w_en), in_ram.accumulate.eq(self.w_accumulate), in_ram.addr.eq(self.w_addr),
            in_ram.data.eq(self.w_data), adding.eq(in_ram),
        ]
        result = Signal(layout, reset_less=True)
        self._forward(m, result, stored, in_ram, adding, write)
        self._add(m, result, adding)
        m.d.comb += write.data.eq(result.as_value())
        return m

    def _forward(self, m: Module, result, stored, in_ram, adding, write) -> None:
        """``r_data``: the newest of the last three results with the address read, else what the block RAM gave.

        The block RAM does not show the writes of the last three cycles. Addresses are compared two cycles ahead, so
        that the two older results are chosen between a cycle ahead.
        """
        in_write = Signal(data.StructLayout({"en": 1, "addr": len(self.w_addr)}))
        m.d.sync += [in_write.en.eq(adding.en), in_write.addr.eq(adding.addr)]
        m.d.comb += [write.en.eq(in_write.en), write.addr.eq(in_write.addr)]
        early = [Signal(name=f"early_hit{age}") for age in range(FORWARDING_DEPTH)]
        for hit, writing in zip(early, (in_ram, adding, in_write), strict=True):
            m.d.sync += hit.eq(writing.en & (writing.addr == self.r_addr))
        newest_hit, older_hit = Signal(), Signal()
        before, older = Signal.like(stored, reset_less=True), Signal.like(stored, reset_less=True)
        m.d.sync += [
            newest_hit.eq(early[0]), older_hit.eq(early[1] | early[2]),
            before.eq(result), older.eq(Mux(early[1], result, before)),
        ]
        m.d.comb += self.r_data.as_value().eq(Mux(newest_hit, result.as_value(), Mux(older_hit, older, stored)))

    def _add(self, m: Module, result, adding) -> None:
        """Add or replace, saturate."""
        width = self._arch.accumulator_bits
        for lane in range(self._arch.array_size):
            old = Mux(adding.accumulate, self.r_data[lane], 0)
            m.d.sync += result[lane].eq(saturate(adding.data[lane] + old, width))


def wide_layout(arch: Arch) -> data.ArrayLayout:
    """The widest scalar written: an exact sum of the array, or an accumulator's own width."""
    sums, scalars = sum_layout(arch), accumulator_layout(arch)
    return sums if sums.size >= scalars.size else scalars
