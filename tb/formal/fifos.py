# SPDX-License-Identifier: Apache-2.0
"""Proofs of queues: what goes in comes out, in order and unchanged. A marked element, any of them, is followed."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.gearbox import Gearbox, StreamFifo
from weft.hw.parts.ports import local_read_port
from weft.hw.parts.slices import PingPong, RegisterSlice
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, is_one, is_zero
from weft.tb.formal.prove import BOUNDED, Proof
from weft.tb.formal.streams import pointers_tell


class Mark:
    """A mark on one element that enters a queue, freely chosen, and a count of those in front of it.

    ``now``: it enters in this cycle. ``inside``: it has not left. ``ahead``: elements in front. ``value``: what it
    was. ``leaves``: it leaves in this cycle."""

    def __init__(self, harness: Harness, enters: Any, leaves: Any, value: Any, level: Any, name: str = "mark") -> None:
        m, value = harness.m, Value.cast(value)
        chosen, used = Signal(name=f"{name}_chosen"), Signal(name=f"{name}_used")
        harness.free(chosen, f"{name}_free")
        self.now, self.inside, self.leaves = (Signal(name=f"{name}_{end}") for end in ("now", "inside", "leaves"))
        self.ahead, self.value = Signal(8, name=f"{name}_ahead"), Signal(len(value), name=f"{name}_value")
        m.d.comb += [self.now.eq(chosen & ~used & enters), self.leaves.eq(self.inside & leaves & (self.ahead == 0))]
        with m.If(self.now):
            m.d.sync += [used.eq(1), self.inside.eq(1), self.value.eq(value), self.ahead.eq(level - leaves)]
        with m.Elif(self.leaves):
            m.d.sync += self.inside.eq(0)
        with m.Elif(self.inside & leaves):
            m.d.sync += self.ahead.eq(self.ahead - 1)
        harness.always(~self.inside | used, f"{name}_used")


def stream_fifo(broken: Broken | None = None) -> Harness:
    harness, block, depth = Harness(), StreamFifo(3, 3), 3
    inside = harness.block(block, broken=broken)
    mark = Mark(harness, block.i.valid & block.i.ready, block.o.valid & block.o.ready, block.i.payload, block.level)
    place = Signal(3)
    harness.m.d.comb += place.eq(inside("fifo.consume") + mark.ahead)
    stored = inside.watch(harness, "fifo.storage", Mux(place >= depth, place - depth, place))
    harness.always(~mark.inside | ((mark.ahead < block.level) & (stored == mark.value)), "stored")
    harness.always(~mark.leaves | (block.o.payload == mark.value), "comes_out")
    return harness


def register_slice(broken: Broken | None = None) -> Harness:
    """Prove a RegisterSlice: the first element is in the output's register, the second in the spare one."""
    harness, block = Harness(), RegisterSlice(3)
    inside = harness.block(block, broken=broken)
    free, payload, spare = (inside(name) for name in ("free", "payload", "spare"))
    level = block.o.valid + ~free
    mark = Mark(harness, block.i.valid & block.i.ready, block.o.valid & block.o.ready, block.i.payload, level)
    harness.always(free | block.o.valid, "spare_only_behind_another")
    harness.always(~mark.inside | ((mark.ahead < level) & (Mux(mark.ahead == 0, payload, spare) == mark.value)),
                   "stored")
    harness.always(~mark.leaves | (block.o.payload == mark.value), "comes_out")
    return harness


def ping_pong(broken: Broken | None = None) -> Harness:
    """Prove a PingPong: the oldest element is where the next one is read, the other one in the other place.

    The narrow fields are in a slice that holds as many elements."""
    harness, block = Harness(), PingPong(data.StructLayout({"wide": 2, "tag": 2}), ("tag",))
    inside = harness.block(block, broken=broken)
    free, oldest, places = inside("free"), inside("oldest"), (inside("place0"), inside("place1"))
    level = block.o.valid + ~free
    mark = Mark(harness, block.i.valid & block.i.ready, block.o.valid & block.o.ready, block.i.payload, level)
    pointers_tell(harness, block, inside)
    tag = Mux(mark.ahead[0], inside("narrow.spare"), inside("narrow.payload"))
    stored = Cat(Mux(oldest ^ mark.ahead[0], places[1], places[0]), tag)
    harness.always(~mark.inside | ((mark.ahead < level) & (stored == mark.value)), "stored")
    harness.always(~mark.leaves | (block.o.payload.as_value() == mark.value), "comes_out")
    return harness


def read_stream(broken: Broken | None = None) -> Harness:
    """Prove a ReadStream: rows and tags come back in the order asked.

    The memory behind it has in every row the row's own address."""
    harness, block = Harness(), ReadStream(local_read_port(SMALL), data.StructLayout({"a": 2}), LOCAL_READ_LATENCY)
    harness.block(block, leave=("port.response",), broken=broken)
    m, request, response = harness.m, block.port.request, block.port.response
    stages = [(request.valid & request.ready, request.payload)]
    for stage in range(LOCAL_READ_LATENCY):
        valid, address = Signal(name=f"valid{stage}"), Signal.like(request.payload, name=f"address{stage}")
        m.d.sync += [valid.eq(stages[-1][0]), address.eq(stages[-1][1])]
        stages.append((valid, address))
    m.d.comb += [response.valid.eq(stages[-1][0]), response.payload.as_value().eq(stages[-1][1])]
    taken, given = block.i.valid & block.i.ready, block.o.valid & block.o.ready
    level = harness.count(taken, given, 8, "elements")
    mark = Mark(harness, taken, given, block.i.payload, level)
    asked = data.View(block.i.payload.shape(), mark.value)
    harness.always(~mark.leaves | ((block.o.payload.data.as_value() == asked.address)
                                   & (block.o.payload.tag.as_value() == asked.tag.as_value())), "comes_out")
    harness.always((level != 0) | ~block.o.valid, "nothing_else_comes_out")
    harness.always(level <= 8, "no_more_than_fit")
    return harness


def gearbox(units_in: int, units_out: int, flush: bool) -> Any:
    """Return a function that makes the proof of a Gearbox.

    The marked unit leaves in the output word and at the place where the contract puts it."""
    def build(broken: Broken | None = None) -> Harness:
        harness, block = Harness(), Gearbox(2, units_in, units_out, flush=flush)
        harness.block(block, broken=broken)
        word, m = block.i.payload, harness.m
        harness.assume(word.end <= units_in, "end")
        harness.assume((word.skip < word.end) if flush else (word.skip <= word.end), "skip")
        harness.assume(word.lead < units_out, "lead")
        accept, given = block.i.valid & block.i.ready, block.o.valid & block.o.ready
        words_in, words_out = Signal(6), Signal(6)      # output words complete, and output words given
        fill, fresh = Signal(6), Signal(init=1)         # units of the output word that is being filled
        start, total = Signal(6), Signal(6)
        m.d.comb += [start.eq(Mux(fresh, word.lead, fill) if flush else fill), total.eq(start + word.end - word.skip)]
        whole, rest = partitioned(m, total, units_out)
        with m.If(accept):
            m.d.sync += [fresh.eq(word.last), fill.eq(Mux(word.last, 0, rest)), words_in.eq(
                words_in + whole + ((word.last & (rest != 0)) if flush else 0))]
        m.d.sync += words_out.eq(words_out + given)
        _follow(harness, block, start, total, words_in, words_out, flush)
        harness.always(~block.o.valid | (words_out < words_in), "no_word_too_many")
        return harness
    return build


def _follow(harness: Harness, block: Gearbox, start, total, words_in, words_out, flush: bool) -> None:
    m, word, units_out = harness.m, block.i.payload, len(block.o.payload.mask)
    unit, chosen, used = harness.constant(range(8), "marked_unit"), Signal(), Signal()
    harness.free(chosen, "mark_free")
    position, marked = Signal(6), Signal(2)
    m.d.comb += position.eq(start + unit - word.skip)
    whole, place = partitioned(m, position, units_out)
    complete, _ = partitioned(m, total, units_out)
    counts = (unit >= word.skip) & (unit < word.end)
    kept = ~word.last | (whole < complete) if not flush else Const(1)
    at_word, at_place = Signal(6), Signal(6)
    with m.If(chosen & ~used & block.i.valid & block.i.ready & counts & kept):
        m.d.sync += [used.eq(1), marked.eq(word.data.word_select(unit[:2], 2)), at_word.eq(words_in + whole),
                     at_place.eq(place)]
    dropped = Signal()  # with the rest of its segment, too small for a word
    if not flush:
        with m.If(used & block.i.valid & block.i.ready & word.last & (at_word == words_in + complete)):
            m.d.sync += dropped.eq(1)
    out = block.o.payload
    harness.always(~(used & ~dropped & block.o.valid & (words_out == at_word)) | (
        out.mask.bit_select(at_place[:2], 1) & (out.data.word_select(at_place[:2], 2) == marked)), "comes_out")


def partitioned(m: Module, value: Signal, by: int) -> tuple[Signal, Signal]:
    """Return quotient and remainder of a small number."""
    quotient, rest = Signal.like(value, name="quotient"), Signal.like(value, name="rest")
    with m.Switch(value):
        for number in range(16):
            with m.Case(number):
                m.d.comb += [quotient.eq(number // by), rest.eq(number % by)]
    return quotient, rest


PROOFS = [
    Proof("order_stream_fifo", "StreamFifo: every element comes out, in order, unchanged", stream_fifo,
          {"fifo.consume": is_zero}),
    Proof("order_register_slice", "RegisterSlice: every element comes out, in order, unchanged", register_slice,
          {"free": is_one}),
    Proof("order_ping_pong", "PingPong: every element comes out, in order, unchanged", ping_pong,
          {"oldest": is_zero}),
    Proof("order_read_stream", "ReadStream: rows and tags in the order asked, none lost, none twice", read_stream,
          {"room": is_one}, 8, BOUNDED),
    Proof("order_gearbox", "Gearbox 3 to 2: units in order, segments aligned", gearbox(3, 2, False),
          {"closing": is_zero}, 6, BOUNDED, fast=False),
    Proof("order_gearbox_widening", "Gearbox 2 to 3: units in order, segments aligned", gearbox(2, 3, False),
          {"closing": is_zero}, 6, BOUNDED, fast=False),
    Proof("order_gearbox_flush", "Gearbox 3 to 2 with flush and lead: units in order, masks", gearbox(3, 2, True),
          {"position": is_zero}, 6, BOUNDED, fast=False),
]
