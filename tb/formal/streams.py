# SPDX-License-Identifier: Apache-2.0
"""Proofs of the stream rules: what is offered stays as it is and offered until taken, on every stream of a block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amaranth.lib import data

from weft.hw.bus.csr_slave import CsrSlave
from weft.hw.bus.dram_reader import DramReader
from weft.hw.bus.dram_writer import DramWriter
from weft.hw.bus.program_reader import ProgramReader
from weft.hw.contract.timing import (
    ACCUMULATOR_READ_LATENCY,
    LOCAL_READ_LATENCY,
    READ_STREAM_SPARE,
    ROUNDED_READ_LATENCY,
    WRITER_VECTORS_AHEAD,
)
from weft.hw.control.decoder import Decoder
from weft.hw.control.fetch import Fetch
from weft.hw.memory.input_rescaler import InputRescaler
from weft.hw.memory.move_in import MoveInUnit
from weft.hw.memory.move_out import MoveOutUnit
from weft.hw.memory.read_stream import ReadStream
from weft.hw.memory.requantizer import Requantizer
from weft.hw.parts.gearbox import Gearbox
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import local_read_port
from weft.hw.parts.slices import PingPong, RegisterSlice
from weft.hw.parts.walker import Walker
from weft.hw.simd.simd_unit import SimdUnit
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, Inside, is_one, is_zero, ones, toggles
from weft.tb.formal.prove import BOUNDED, INDUCTION, Proof

Invariants = Callable[[Harness, Any, Inside], Any]


def rules(name: str, says: str, make: Callable[[], Any], broken: Broken, *, invariants: Invariants | None = None,
          unless: Callable[[Any], dict] | None = None, depth: int = 3, mode: str = INDUCTION, fast: bool = True,
          **options: Any) -> Proof:
    """Return the proof of the stream rules on all streams of a block.

    ``invariants`` are asserted as well and help the induction."""
    def build(broken: Broken | None = None) -> Harness:
        harness, block = Harness(), make()
        excuses = unless(block) if unless else None
        inside = harness.block(block, unless=excuses, broken=broken, **options)
        if invariants:
            invariants(harness, block, inside)
        return harness
    return Proof(f"stream_{name}", f"stream rules: {says}", build, broken, depth, mode, fast)


# -- invariants --------------------------------------------------------------------------------------------------------
def buffered_fifo(harness: Harness, inside: Inside, path: str) -> Any:
    """Assert the invariants of Amaranth's buffered FIFO: two rows inside, the first at the output. Return its level."""
    level, shown = inside(f"{path}.inner_level"), inside(f"{path}.r_rdy")
    harness.always((level < 2) | shown, f"{path.replace('.', '_')}_shown")
    return level + shown


def read_stream_counts(harness: Harness, inside: Inside, path: str, requested: Any) -> None:
    """Assert that everything ``requested``, a bit for each cycle, is under way in the memory or in the FIFO.

    Each has its tag."""
    rows, tags = (buffered_fifo(harness, inside, f"{path}{name}") for name in ("rows", "tags"))
    under_way = inside(f"{path}under_way")
    harness.always(under_way == rows + ones(requested), "rows_under_way")
    harness.always(under_way == tags, "a_tag_each")
    harness.always(inside(f"{path}room") == (under_way != len(requested) + READ_STREAM_SPARE),
                   "room_for_what_is_under_way")


def leave_keeps(harness: Harness, block: Requantizer, inside: Inside) -> None:
    """Assert that the turns of two readers are a row of ones from one place on: none, the upper one or both."""
    harness.always(inside("turns.later") != 1, "turns_are_a_row_of_ones")


def writer_places(harness: Harness, block: DramWriter, inside: Inside) -> None:
    inside_fifo = inside("vectors.fifo.level") + ones(harness.under_way["local_read_request"])
    harness.always(inside("places") + inside_fifo == WRITER_VECTORS_AHEAD, "places")
    harness.always(inside("room") == (inside("places") != 0), "room_while_there_are_places")


def simd_waits(harness: Harness, block: SimdUnit, inside: Inside) -> None:
    """Assert that cycles to wait are a row of ones from bit 0 up."""
    wait = inside("issue.wait")
    harness.always((wait & (wait + 1)) == 0, "wait_is_a_row_of_ones")


def pointers_tell(harness: Harness, block: Any, inside: Inside) -> None:
    """Assert that a PingPong's pointers differ while it holds one element, and that its slice holds as many."""
    for index in (0, 1):
        held = block.o.valid & ((inside("oldest") == index) | ~inside("free"))
        harness.always(inside(f"open{index}") != held, f"place{index}_is_open_while_it_holds_none")
    harness.always(inside("free") | block.o.valid, "full_is_not_empty")
    harness.always((inside("newest") ^ inside("oldest")) == (block.o.valid & inside("free")), "pointers_tell")
    harness.always((inside("narrow.free") == inside("free")) & (inside("narrow.o__valid") == block.o.valid), "as_full")


def answers_only_what_was_asked(harness: Harness, block: Any, inside: Inside) -> None:
    """Assume the slave's part: a beat comes only while a burst is outstanding. How long bursts are is left open."""
    outstanding = harness.count(block.ar.valid & block.ar.ready,
                                block.r.valid & block.r.ready & block.r.payload.last, 64, "outstanding")
    harness.assume(~block.r.valid | (outstanding != 0), "asked")


# -- proofs ------------------------------------------------------------------------------------------------------------
TAG = data.StructLayout({"a": 1})
WIDE_AND_TAG = data.StructLayout({"wide": 1, "tag": 1})

PROOFS = [
    rules("walker", "addresses of a Walker",
          lambda: Walker(operation_layout(SMALL, "move_out"), ("accumulator", "local")), {"o__valid": toggles}),
    rules("register_slice", "payloads of a RegisterSlice", lambda: RegisterSlice(3), {"o__valid": toggles}),
    rules("ping_pong", "payloads of a PingPong", lambda: PingPong(WIDE_AND_TAG, ("tag",)), {"o__valid": toggles},
          invariants=pointers_tell),
    rules("decoder", "decoded instructions, except when halted", lambda: Decoder(SMALL),
          {"give.o__valid": toggles}, unless=lambda block: {"o": block.halt}),
    rules("fetch", "instructions of Fetch, except when discarded", lambda: Fetch(SMALL),
          {"gearbox.i__ready": is_one}, unless=lambda block: {"instruction": block.discard}),
    rules("read_stream", "requests and rows of a ReadStream",
          lambda: ReadStream(local_read_port(SMALL), TAG, LOCAL_READ_LATENCY), {"room": is_one},
          latency=LOCAL_READ_LATENCY, invariants=lambda h, _, inside: read_stream_counts(
              h, inside, "", h.under_way["port_request"])),
    rules("move_in", "reads and writes of the MoveInUnit", lambda: MoveInUnit(SMALL), {"walker.o__valid": toggles},
          latency=LOCAL_READ_LATENCY, invariants=lambda h, _, inside: read_stream_counts(
              h, inside, "rows.", h.under_way["local_read_request"])),
    rules("move_out", "reads and writes of the MoveOutUnit", lambda: MoveOutUnit(SMALL), {"walker.o__valid": toggles},
          latency=ROUNDED_READ_LATENCY, invariants=lambda h, _, inside: read_stream_counts(
              h, inside, "rows.", h.under_way["accumulator_read_request"])),
    rules("requantizer", "the reads of Requantizer", lambda: Requantizer(SMALL, ("simd", "move_out")),
          {"turns.later": toggles},
          latency=ACCUMULATOR_READ_LATENCY, invariants=leave_keeps),
    rules("input_rescaler", "the writes of InputRescaler", lambda: InputRescaler(SMALL, ("simd", "move_in")),
          {"held.o__valid": toggles}),
    rules("simd", "reads and writes of the SimdUnit", lambda: SimdUnit(SMALL), {"issue.wait": toggles},
          latency=ROUNDED_READ_LATENCY, invariants=simd_waits),
    rules("dram_reader", "ar and local writes of the DramReader", lambda: DramReader(SMALL),
          {"burst_len": lambda inside, _: inside("splitter.number")}),
    rules("dram_writer", "aw, w and local reads of the DramWriter", lambda: DramWriter(SMALL),
          {"burst_len": lambda inside, _: inside("splitter.number")},
          latency=LOCAL_READ_LATENCY, invariants=writer_places),
    rules("program_reader", "ar and beats of the ProgramReader, except when stopped", lambda: ProgramReader(SMALL),
          {"burst_len": lambda inside, _: inside("splitter.number")},
          unless=lambda block: {"beats": block.stop | block.error}, invariants=answers_only_what_was_asked,
          depth=9, mode=BOUNDED),
    rules("csr", "b and r of the CSR slave", lambda: CsrSlave(SMALL), {"axil__b__valid": toggles}),
    rules("gearbox", "words of a Gearbox", lambda: Gearbox(2, 3, 2), {"remaining": is_zero}),
    rules("gearbox_widening", "words of a Gearbox to larger words", lambda: Gearbox(2, 2, 3),
          {"remaining": is_zero}),
    rules("gearbox_flush", "words and masks of a Gearbox that flushes", lambda: Gearbox(2, 3, 2, flush=True),
          {"closing": toggles}),
]
