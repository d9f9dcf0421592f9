# SPDX-License-Identifier: Apache-2.0
"""Accumulators: interleaved banks, each a pipeline that reads, adds, saturates and writes one vector a cycle."""

from __future__ import annotations

from itertools import pairwise

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATE_DATA_LATENCY, ACCUMULATOR_READ_LATENCY
from weft.hw.memory.banks import Interleave, block_ram
from weft.hw.memory.local import served
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.delay import DelayLine, delayed
from weft.hw.parts.fixed_point import resize
from weft.hw.parts.ports import (
    AccumulatePort,
    accumulator_layout,
    accumulator_read_port,
    accumulator_write_port,
    sum_layout,
)
from weft.hw.parts.select import pick, select

FORWARDING_DEPTH = 4
"""The writes of so many last cycles are not seen by a read of the block RAM yet, so they are forwarded."""


class Accumulators(wiring.Component):
    """The accumulators: ``mat_mul`` writes sums, ``writers`` write or accumulate scalars, ``readers`` read rows.

    A write replaces a row by sat(value), an accumulate by sat(row + value); scalars have accumulator_width bits. In its
    bank an accumulate needs the read and the write port, a write the write port, a read the read port. ``mat_mul`` is
    always taken at once, for the array cannot wait; then writers take turns. A reader and an accumulating writer that
    want the same read port alternate. ``contended``: a sum kept another client waiting in this cycle.

    The data of a write follow its request ACCUMULATE_DATA_LATENCY cycles later, when its bank has read the row that
    they may be added to. Whatever is taken sees everything taken in an earlier cycle, even one cycle earlier at the
    same address. Reads are answered ``ACCUMULATOR_READ_LATENCY`` cycles after they were taken."""

    def __init__(self, arch: Arch, readers: tuple[str, ...], writers: tuple[str, ...]) -> None:
        self._arch, self._readers, self._writers = arch, readers, writers
        super().__init__({
            "mat_mul": In(AccumulatePort(arch.accumulator_address_width, sum_layout(arch))),
            **{name: In(accumulator_read_port(arch)) for name in readers},
            **{name: In(accumulator_write_port(arch)) for name in writers},
            "contended": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: requests -> arbitration, bank by bank -> a bank's pipeline: read, add, saturate, write -> the row:
        response."""
        m = Module()
        arch = self._arch
        interleave = Interleave(arch.accumulator_banks, arch.accumulator_depth)
        readers = [getattr(self, name) for name in self._readers]
        writers = [getattr(self, name) for name in self._writers]
        rows = [widened(port.data, wide_layout(arch)) for port in (self.mat_mul, *writers)]
        grants, banks = [], []
        m.d.comb += self.mat_mul.request.ready.eq(1)
        for index in range(interleave.count):
            m.submodules[f"bank{index}"] = bank = AccumulatorBank(arch, interleave.rows, interleave.row_width)
            grant = self._arbitrate(m, interleave, index, bank, readers, writers, rows)
            grants.append(grant)
            banks.append(bank)
        for index, (name, port) in enumerate(zip(self._readers, readers, strict=True)):
            self._answer(m, name, port, [grant[index] for grant in grants], banks)
        sums = self.mat_mul.request
        m.d.comb += self.contended.eq(sums.valid & Cat(
            *(port.request.valid & interleave.same_bank(port.request.payload.address, sums.payload.address)
              for port in writers),
            *(port.request.valid & interleave.same_bank(port.request.payload, sums.payload.address)
              & sums.payload.accumulate for port in readers)).any())
        return m

    def _answer(self, m: Module, name: str, port, grants: list, banks: list) -> None:
        """Register the row of the bank that served this client as its response."""
        valid, number = served(m, name, grants, ACCUMULATOR_READ_LATENCY - 2)
        chosen = Cat(valid, pick(number, [bank.in_result for bank in banks]), number)
        chosen = delayed(m, chosen, 1, name=f"{name}_chosen", reset=True)
        rows = [row for bank in banks for row in (Cat(bank.fetched, Const(0, len(bank.at_top))),
                                                  Cat(bank.result, bank.at_top))]
        row = Signal(accumulator_layout(self._arch), reset_less=True, name=f"{name}_row")
        m.d.comb += port.response.payload.eq(row)
        m.d.sync += [port.response.valid.eq(chosen[0]), row.eq(filled(self._arch, pick(chosen[1:], rows)))]

    def _arbitrate(self, m: Module, interleave: Interleave, index: int, bank, readers: list, writers: list,
                   rows: list):
        """Fill one bank's request register; return the one-hot grant of the readers.

        ``rows``: what ``mat_mul`` and the writers give."""
        sums = self.mat_mul.request
        mat_mul = Signal(name=f"mat_mul_in_bank{index}")
        m.d.comb += mat_mul.eq(sums.valid & interleave.in_bank(sums.payload.address, index))
        reads, writes = RoundRobin(len(readers)), RoundRobin(len(writers))
        m.submodules[f"reads{index}"], m.submodules[f"writes{index}"] = reads, writes
        readers_turn = Signal(name=f"readers_turn{index}")  # a reader was held back by an accumulating writer
        # A reader held back goes on asking, so that its turn blocks an accumulating writer whether looked at or not.
        may_read = [interleave.in_bank(port.request.payload, index) for port in readers]
        may_write = [interleave.in_bank(port.request.payload.address, index)
                     & ~(mat_mul | (port.request.payload.accumulate & readers_turn)) for port in writers]
        m.d.comb += [
            reads.requests.eq(Cat(port.request.valid & may for port, may in zip(readers, may_read, strict=True))),
            writes.requests.eq(Cat(port.request.valid & may for port, may in zip(writers, may_write, strict=True))),
        ]
        requests = [sums, *(port.request for port in writers)]
        chosen = Cat(mat_mul, writes.grant)
        adds = select(chosen, [request.payload.accumulate for request in requests])
        held = adds & reads.requests.any()
        grant = reads.grant & (~adds).replicate(len(readers))
        m.d.comb += [reads.advance.eq(~adds), writes.advance.eq(1)]
        m.d.sync += readers_turn.eq(held)
        turns = (*((port, may & ~adds & turn) for port, may, turn in zip(readers, may_read, reads.open, strict=True)),
                 *((port, may & turn) for port, may, turn in zip(writers, may_write, writes.open, strict=True)))
        for port, ready in turns:
            with m.If(ready):
                m.d.comb += port.request.ready.eq(1)
        row = select(chosen, [interleave.row(request.payload.address) for request in requests])
        read_row = select(grant, [interleave.row(port.request.payload) for port in readers])
        source = delayed(m, chosen, ACCUMULATE_DATA_LATENCY, name=f"source{index}")
        register = {name: Signal.like(getattr(bank, name), reset_less=True, name=f"{name}{index}")
                    for name in ("w_accumulate", "w_addr", "r_addr", "w_row")}
        m.d.comb += [getattr(bank, name).eq(value) for name, value in register.items()]
        m.d.sync += [
            bank.w_en.eq(chosen.any()), register["w_accumulate"].eq(adds), register["w_addr"].eq(row),
            register["w_row"].as_value().eq(select(source, rows)),
            register["r_addr"].eq(Mux(adds, row, read_row)),
        ]
        return grant


def widened(row: data.View, layout: data.ArrayLayout) -> Value:
    """Return a row with each scalar sign-extended to the scalars of ``layout``."""
    width = layout.elem_shape.width
    return Cat(*(resize(row[lane], width) for lane in range(layout.length)))


class AccumulatorBank(wiring.Component):
    """One bank of the accumulators.

    The inputs are registers of the arbitration: ``r_addr`` is the row to read, ``w_*`` the write that goes with it; the
    scalars ``w_row`` come ACCUMULATE_DATA_LATENCY cycles later. The row read, newer writes included, is ``result`` if
    ``in_result`` was high in the cycle before, else ``fetched``: both come 3 cycles after ``r_addr``. The write reaches
    the block RAM a cycle later.

    A scalar at the upper end of its range may stand in ``result``, and in the block RAM, as zero with its bit of
    ``at_top`` set (:func:`filled`). A flip-flop that is cleared or set costs no look-up table, as a choice for each bit
    would."""

    def __init__(self, arch: Arch, rows: int, row_width: int) -> None:
        self._arch, self._rows = arch, rows
        super().__init__({
            "r_addr": In(row_width), "in_result": Out(1),
            "result": Out(accumulator_layout(arch)), "at_top": Out(arch.array_size),
            "fetched": Out(accumulator_layout(arch)),
            "w_en": In(1), "w_accumulate": In(1), "w_addr": In(row_width), "w_row": In(wide_layout(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a row of block RAM, or a newer write to it, goes through the adder back to block RAM."""
        m = Module()
        read, stored, write = block_ram(m, "ram", self._rows, word_width(self._arch))
        m.d.comb += read.addr.eq(self.r_addr)
        place = data.StructLayout({"en": 1, "addr": len(self.w_addr)})
        stages = [Signal(place, name=f"write{age}") for age in range(FORWARDING_DEPTH + 1)]
        m.d.comb += [stages[0].en.eq(self.w_en), stages[0].addr.eq(self.w_addr)]
        m.d.sync += [later.eq(stage) for stage, later in pairwise(stages)]
        m.d.comb += [
            write.en.eq(stages[-1].en), write.addr.eq(stages[-1].addr), write.data.eq(Cat(self.result, self.at_top)),
        ]
        # Whether the write 1, 2, ... cycles before this read is to its row; from the next cycle on.
        hits = [Signal(name=f"hit{age}") for age in range(1, len(stages))]
        for hit, newer in zip(hits, stages[1:], strict=True):
            m.d.sync += hit.eq(newer.en & (newer.addr == self.r_addr))
        m.d.sync += self.in_result.eq(hits[0])
        self._fetch(m, stored, hits[1:])
        self._add(m)
        return m

    def _fetch(self, m: Module, stored, hits: list) -> None:
        """Register the row as ``fetched``: from the block RAM, or from the newest write that it does not show yet."""
        past = DelayLine(m, Cat(self.result, self.at_top), len(hits) - 1, name="past")
        age, fetched = Signal(range(len(hits) + 1)), Signal(self.fetched.shape(), reset_less=True)
        m.d.sync += [
            age.eq(Mux(hits[0], 1, Mux(hits[1], 2, Mux(hits[2], 3, 0)))),
            fetched.eq(filled(self._arch, pick(age, [stored, *(past.tap(cycles) for cycles in range(len(hits)))]))),
        ]
        m.d.comb += self.fetched.eq(fetched)

    def _add(self, m: Module) -> None:
        """Add to the row that was read, or replace it; saturate.

        On the chip the left side of a sum goes straight into the carry chain, so its register costs nothing more.
        What is added to it is chosen in the chain's own look-up tables."""
        add_result, add_fetched = Signal(), Signal()
        accumulate = delayed(m, self.w_accumulate, 2, name="accumulate", reset=True)
        m.d.sync += [add_result.eq(accumulate & self.in_result), add_fetched.eq(accumulate & ~self.in_result)]
        below = self._arch.accumulator_bits - 1  # bits below the sign
        result, at_top = Signal(self.result.shape(), reset_less=True), Signal.like(self.at_top, reset_less=True)
        newest = data.View(result.shape(), filled(self._arch, Cat(result, at_top)))
        for lane in range(self._arch.array_size):
            rows = [row[lane].as_unsigned() for row in (newest, self.fetched)]
            old = select(Cat(add_result, add_fetched), rows).as_signed()
            both = self.w_row[lane] + old
            total, over = Signal(both.shape(), name=f"total{lane}"), Signal(name=f"over{lane}")
            sign = total[-1]
            m.d.comb += [total.eq(both), over.eq(total[below:] != sign.replicate(len(total) - below))]
            m.d.sync += [result[lane].eq(Cat(Mux(over, 0, total[:below]), sign)), at_top[lane].eq(over & ~sign)]
        m.d.comb += [self.result.eq(result), self.at_top.eq(at_top)]


def word_width(arch: Arch) -> int:
    """Return the bits of a bank's word: a row's scalars, and a bit for each that says whether it is at the top."""
    return arch.array_size * (arch.accumulator_bits + 1)


def filled(arch: Arch, word: Value) -> Value:
    """Return the row of a bank's word: scalars that are at the top get all bits below the sign set."""
    size, bits = arch.array_size, arch.accumulator_bits
    row, at_top = word[:size * bits], word[size * bits:]
    ones = Const((1 << bits - 1) - 1, bits - 1)
    return Cat(*(Cat(Mux(at_top[lane], ones, scalar[:-1]), scalar[-1])
                 for lane, scalar in enumerate(row.word_select(lane, bits) for lane in range(size))))


def wide_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of the widest row that is written: exact sums of the array, or scalars of accumulator_width."""
    sums, scalars = sum_layout(arch), accumulator_layout(arch)
    return sums if sums.size >= scalars.size else scalars
