# SPDX-License-Identifier: Apache-2.0
"""Proofs of cores that wait for each other: no post is lost, no wait ends early or lasts longer than it must."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.contract.instructions import COUNT_WIDTH, COUNTER_WIDTH
from weft.hw.control.sync_unit import SyncUnit
from weft.hw.parts.operation_table import operation_layout
from weft.tb.formal.harness import Broken, Harness, Inside, is_one, is_zero
from weft.tb.formal.prove import Proof
from weft.tb.formal.rings import SIGNALS

CORES, COUNTERS = SIGNALS.cores, SIGNALS.sync_counters


class Pair(wiring.Component):
    """The sync units of two cores, joined as in the system."""

    def __init__(self) -> None:
        operation = stream.Signature(operation_layout(SIGNALS, "sync"))
        super().__init__({
            **{f"operation{k}": In(operation) for k in range(CORES)},
            "done": Out(CORES), "overflow": Out(CORES), "stop": In(CORES),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        units = [SyncUnit(SIGNALS) for _ in range(CORES)]
        for k, unit in enumerate(units):
            m.submodules[f"unit{k}"] = unit
            connect(m, flipped(getattr(self, f"operation{k}")), unit.operation)
            m.d.comb += [self.done[k].eq(unit.done), self.overflow[k].eq(unit.overflow), unit.stop.eq(self.stop[k])]
            for source, posted in zip(units, unit.posted, strict=True):
                m.d.comb += [posted.valid.eq(source.post.valid & source.post.cores[k]),
                             posted.counter.eq(source.post.counter)]
        return m


class Taken:
    """The operation that a unit took last, as its program has it, until the unit says that it is done."""

    def __init__(self, harness: Harness, block: Pair, inside: Inside, k: int) -> None:
        port = getattr(block, f"operation{k}")
        self.there, self.wait = Signal(name=f"there{k}"), Signal(name=f"wait{k}")
        self.counter, self.above = Signal(COUNTER_WIDTH, name=f"counter{k}"), Signal(16, name=f"above{k}")
        self.done, self.stop = block.done[k], block.stop[k]
        target = port.payload.target
        with harness.m.If(port.valid & port.ready):
            harness.m.d.sync += [self.there.eq(1), self.wait.eq(port.payload.wait),
                                 self.counter.eq(target[:COUNTER_WIDTH]), self.above.eq(target[COUNTER_WIDTH:])]
        with harness.m.Elif(self.done):
            harness.m.d.sync += self.there.eq(0)
        harness.assume(target[:COUNTER_WIDTH] < COUNTERS, f"legal_counter{k}")
        harness.assume(~port.payload.wait | (target[COUNTER_WIDTH:] < 1 << COUNT_WIDTH), f"legal_amount{k}")
        harness.always(self.there == inside(f"unit{k}.busy"), f"busy{k}")
        own = Cat(self.wait, self.counter, self.above)
        harness.always(~self.there | (Value.cast(inside(f"unit{k}.held")) == own), f"held{k}")
        harness.always(~self.wait | (self.above < 1 << COUNT_WIDTH), f"amount{k}")

    def posts(self, core: Value, counter: Value) -> Value:
        """Return whether it adds 1 to a counter of a core in this cycle."""
        return self.there & ~self.wait & ~self.stop & self.above.bit_select(core, 1) & (self.counter == counter)


def signals(broken: Broken | None = None) -> Harness:
    """Prove any counter of any core against a count of what programs post and what waits take.

    No post is lost if both cores post at once. A wait ends in the cycle in which its counter holds its amount, not
    sooner and not later; a post in its first cycle. So a core waits for nothing but posts. A stopped core takes and
    posts nothing, and waits for nothing. A counter that overflows stops its core, and is left out."""
    harness, block = Harness(), Pair()
    inside = harness.block(block, broken=broken)
    core, counter = harness.constant(range(CORES), "core"), harness.constant(range(COUNTERS), "counter")
    harness.assume(~block.overflow.any(), "no_counter_is_full")
    taken = [Taken(harness, block, inside, k) for k in range(CORES)]
    holds, takes = Signal(COUNT_WIDTH + 2, name="holds"), Signal(16)
    for k, each in enumerate(taken):
        mine = each.there & each.wait & (each.counter == counter) & (core == k)
        harness.always(~(mine & each.done & ~each.stop) | (holds >= each.above), f"no_wait_is_early{k}")
        harness.always(~(mine & (holds >= each.above)) | each.done, f"no_wait_is_late{k}")
        harness.always(~(each.there & (~each.wait | each.stop)) | each.done, f"a_post_goes_at_once{k}")
        harness.always(~each.done | each.there, f"only_what_was_taken_is_done{k}")
        with harness.m.If(mine & each.done & ~each.stop):
            harness.m.d.comb += takes.eq(each.above)
    posts = sum((each.posts(core, counter) for each in taken), start=Const(0, 1))
    harness.m.d.sync += holds.eq(holds + posts - takes)
    values = Cat(inside(f"unit{k}.counter{n}") for k in range(CORES) for n in range(COUNTERS))
    harness.always(holds == values.word_select(Mux(core == 0, 0, COUNTERS) + counter, COUNT_WIDTH), "no_post_is_lost")
    return harness


PROOFS: list[Proof] = [
    Proof("signals", "SyncUnits of two cores: no post is lost if both post, no wait ends early or late", signals,
          {"unit0.counter1_then": is_zero}, 1),
    Proof("signals_early", "the same, around a wait that ends at once", signals, {"unit1.done": is_one}, 1),
]
