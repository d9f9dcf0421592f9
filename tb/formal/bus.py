# SPDX-License-Identifier: Apache-2.0
"""AXI rules of the DRAM engines: bursts within bounds, beats and strobes where they belong."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from weft.hw.bus import axi, dram_reader, dram_writer
from weft.hw.bus.dram_reader import BurstSplitter, DramReader, dram_segment_layout
from weft.hw.bus.dram_writer import DramWriter
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness
from weft.tb.formal.prove import BOUNDED, Proof

ARCH = SMALL.replace(local_depth=4, dram0_depth=4, dram1_depth=4, axi_max_burst=2)
FEW = 2
"""The bursts outstanding in the bounded proofs: few, so that the bound is reached."""


def splitter(broken: Broken | None = None) -> Harness:
    """Prove that every burst lies within an aligned block of max_burst beats.

    A segment's bursts have each of its beats once."""
    harness, arch = Harness(), SMALL.replace(axi_max_burst=4)
    block = BurstSplitter(dram_segment_layout(arch), arch.axi_max_burst)
    inside = harness.block(block, leave=("cancel",), broken=broken)
    segment, burst = block.i.payload, block.o.payload
    within = burst.beat[:2] + burst.len
    harness.always(~block.o.valid | (within < arch.axi_max_burst), "no_boundary_crossed")
    harness.always(~block.o.valid | (burst.len < arch.axi_max_burst), "no_longer_than_max_burst")
    left, following = Signal(16), Signal.like(burst.beat)
    with harness.m.If(block.i.valid & block.i.ready):
        harness.m.d.sync += [left.eq(segment.beats_m1 + 1), following.eq(segment.beat)]
    with harness.m.Elif(block.o.valid & block.o.ready):
        harness.m.d.sync += [left.eq(left - burst.len - 1), following.eq(following + burst.len + 1)]
    harness.always(block.o.valid == (left != 0), "all_beats")
    harness.always(~block.o.valid | (burst.beat == following), "in_order")
    reached, end = (Cat(inside(f"{at}_beat"), inside(number)) for at, number in (
        ("first", "number"), ("last", "last_number")))
    harness.always(~block.o.valid | (reached + left == end + 1), "left")
    harness.always(~block.o.valid | (burst.last == (inside("number") == inside("last_number"))), "last_number")
    harness.always(~block.o.valid | (burst.last == (left == burst.len + 1)), "last")
    return harness


def legal(harness: Harness, arch: Arch, block: Any) -> Value:
    """Return one operation, any legal one and constant; its DRAM side ends within the window."""
    operation = block.operation.payload
    fields = harness.constant(operation.shape(), "any_operation")
    harness.assume(operation.as_value() == fields.as_value(), "one_kind_of_operation")
    last = (operation.dram.base + (operation.size_m1 << operation.dram.stride_log2)
            + operation.rows_m1 * operation.dram.pitch)
    harness.assume(last < arch.dram0_depth, "within_the_window")
    harness.assume((operation.window == 1) & (operation.rows_m1 < 2) & (operation.size_m1 < 2), "small")
    return operation


def address_rules(harness: Harness, arch: Arch, channel: Any, operation: Any) -> None:
    """Assert the rules of ar and aw.

    Bursts are INCR, of at most max_burst full beats, within 4 KiB and within the operation's window."""
    payload, beat_bytes = channel.payload, arch.axi_data_width // 8
    end = Signal(arch.axi_address_width + 1)
    harness.m.d.comb += end.eq(payload.addr + (payload.len + 1) * beat_bytes - 1)
    window = Signal(arch.axi_address_width + 1)
    harness.m.d.comb += window.eq(operation.window * DRAM_OFFSET_BYTES)
    bytes_needed = arch.dram0_depth * arch.vector_bytes
    harness.always(~channel.valid | (payload.len < arch.axi_max_burst), "max_burst")
    harness.always(~channel.valid | (payload.addr[12:] == end[12:]), "no_4_KiB_crossed")
    harness.always(~channel.valid | ((payload.burst == axi.Burst.INCR)
                                     & (payload.size == axi.size_log2(arch.axi_data_width))), "full_beats")
    harness.always(~channel.valid | ((payload.addr >= window) & (end < window + bytes_needed)), "within_the_window")


def reader(broken: Broken | None = None) -> Harness:
    harness, arch = Harness(), ARCH
    keep, dram_reader.OUTSTANDING_BURSTS = dram_reader.OUTSTANDING_BURSTS, FEW
    try:
        block = DramReader(arch)
        harness.block(block, rules=False, broken=broken)
    finally:
        dram_reader.OUTSTANDING_BURSTS = keep
    address_rules(harness, arch, block.ar, legal(harness, arch, block))
    outstanding = harness.count(block.ar.valid & block.ar.ready,
                                block.r.valid & block.r.ready & block.r.payload.last, 8, "outstanding")
    harness.assume(~block.r.valid | (outstanding != 0), "asked")
    harness.always(outstanding <= FEW, "no_more_outstanding")
    return harness


def writer(broken: Broken | None = None) -> Harness:
    """Prove the rules of addresses and data of a DRAM writer.

    Beats belong to bursts in order, ``last`` is on the last one, and strobes are on the operation's bytes only."""
    harness, arch = Harness(), ARCH
    keep, dram_writer.OUTSTANDING_BURSTS = dram_writer.OUTSTANDING_BURSTS, FEW
    try:
        block = DramWriter(arch)
        harness.block(block, rules=False, latency=LOCAL_READ_LATENCY, broken=broken)
    finally:
        dram_writer.OUTSTANDING_BURSTS = keep
    m, operation = harness.m, legal(harness, arch, block)
    address_rules(harness, arch, block.aw, operation)
    issued, ended = block.aw.valid & block.aw.ready, block.w.valid & block.w.ready & block.w.payload.last
    outstanding = harness.count(issued, block.b.valid & block.b.ready, 8, "outstanding")
    unanswered = harness.count(ended, block.b.valid & block.b.ready, 8, "unanswered")
    harness.assume(~block.b.valid | ((outstanding != 0) & (unanswered != 0)), "answers_what_is_complete")
    harness.always(outstanding <= FEW, "no_more_outstanding")
    # The marked burst: the n-th address, and its beats.
    number = harness.constant(3, "marked_burst")
    addresses, bursts, beat = Signal(4), Signal(4), Signal(8)
    known, address, length = Signal(), Signal(arch.axi_address_width), Signal(8)
    m.d.sync += [addresses.eq(addresses + issued), bursts.eq(bursts + ended)]
    with m.If(block.aw.valid & (addresses == number)):
        m.d.sync += [known.eq(1), address.eq(block.aw.payload.addr), length.eq(block.aw.payload.len)]
    with m.If(block.w.valid & block.w.ready):
        m.d.sync += beat.eq(Mux(block.w.payload.last, 0, beat + 1))
    mine = block.w.valid & (bursts == number)
    harness.always(~mine | known, "no_beat_before_its_address_is_offered")
    harness.always(~mine | (block.w.payload.last == (beat == length)), "last_on_the_last_beat")
    byte = harness.constant(2, "any_byte")
    place = Signal(arch.axi_address_width)
    m.d.comb += place.eq(address + (beat << 2) + byte)
    touched: Value = Const(0, 1)
    for row in range(2):
        for k in range(2):
            vector = operation.dram.base + (k << operation.dram.stride_log2) + (operation.dram.pitch if row else 0)
            start = operation.window * DRAM_OFFSET_BYTES + vector * arch.vector_bytes
            touched = touched | ((row <= operation.rows_m1) & (k <= operation.size_m1)
                                 & (place >= start) & (place < start + arch.vector_bytes))
    harness.always(~(mine & block.w.payload.strb.bit_select(byte, 1)) | touched, "strobes_on_its_bytes_only")
    return harness


PROOFS = [
    Proof("splitter", "bursts: aligned blocks (so never across 4 KiB), at most max_burst, all beats once, in order",
          splitter, {"first_beat": lambda *_: 3}),
    Proof("axi_reader", "DramReader: ar within window, 4 KiB and max_burst; outstanding bursts bounded", reader,
          {"burst_len": lambda *_: 7}, 9, BOUNDED, fast=False),
    Proof("axi_writer", "DramWriter: aw likewise; w.last on the right beat; strobes only on the operation's bytes",
          writer, {"ends": lambda *_: 0}, 10, BOUNDED, fast=False),
]
