# SPDX-License-Identifier: Apache-2.0
"""Proofs of what is outstanding and who waits for it: rings, trackers, queues, and the memory of their operations."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SEPARATE
from weft.hw.contract.units import UNIT_NAMES, depths
from weft.hw.control.issue import issue_layout
from weft.hw.control.tracker import Ring, Tracker, after, done_layout, range_layout, wait_layout
from weft.hw.control.unit_queue import OperationMemory, UnitQueue
from weft.tb.bench.hazards import DRAM0, DRAM1, LOCAL, SHARED, Touch, conflicts, waits_for
from weft.tb.formal.archs import SMALL
from weft.tb.formal.fifos import Mark
from weft.tb.formal.harness import Broken, Harness, Inside, at_most_one, is_one, is_zero, ones, toggles
from weft.tb.formal.prove import Proof

ARCH = SMALL.replace(local_depth=4, accumulator_depth=4, dram0_depth=4, dram1_depth=4, simd_loop_depth=2,
                     dram_ports=SEPARATE)
BYTES_ARCH = ARCH.replace(data_type="INT8")
ONE_PORT = ARCH.replace(dram_ports="shared")
SIGNALS = ONE_PORT.replace(cores=2, sync_counters=2, axi_address_width=18)


def machine_of(unit: str) -> Arch:
    """Return the machine on which the proofs about a unit are made: one that has it."""
    return SIGNALS if unit == "sync" else ONE_PORT if unit in SHARED else ARCH


# -- places in a ring --------------------------------------------------------------------------------------------------
def row_of_places(bits: Value, first: Value, behind: Value, depth: int) -> Value:
    """Return whether the places set are those from ``first`` up to before ``behind``, around the end.

    If both are equal, all or none are set."""
    result = (first < depth) & (behind < depth)
    for place in range(depth):
        within = Mux(first < behind, (first <= place) & (place < behind), (first <= place) | (place < behind))
        result = result & ((bits[place] == within) | (first == behind))
    return result & ((first != behind) | bits.all() | ~bits.any())


def distance(first: Value, place: Value, depth: int) -> Value:
    """Return the steps around the ring from ``first`` to ``place``."""
    if depth & (depth - 1) == 0:
        return (place - first)[:depth.bit_length() - 1]
    return Mux(place >= first, place - first, place + depth - first)


def how_many(bits: Value, first: Value, behind: Value, depth: int) -> Value:
    """Return how many places of a row are set: this is easier for a solver than to count the bits."""
    return Mux(bits.all(), depth, distance(first, behind, depth))


class Places:
    """The places of a Ring inside a block, with assertions that tie them together."""

    def __init__(self, harness: Harness, inside: Inside, path: str, depth: int) -> None:
        self.depth, label = depth, path.replace(".", "_")
        self.used, self.hit, self.oldest, self.newest, self.leaving = (
            inside(f"{path}.{name}".lstrip(".")) for name in ("used", "hit", "oldest", "newest", "leaving"))
        self.count = how_many(self.used, self.oldest, self.newest, depth)
        harness.always(row_of_places(self.used, self.oldest, self.newest, depth), f"{label}_places")
        harness.always((self.hit & ~self.used) == 0, f"{label}_hits_are_there")
        flags = inside(f"{path}.full".lstrip(".")), inside(f"{path}.some".lstrip("."))
        harness.always((flags[0] == self.used.all()) & (flags[1] == self.used.any()), f"{label}_flags")

    def ahead(self, place: Value) -> Value:
        """Return how many are older than what is at ``place``."""
        return distance(self.oldest, place, self.depth)

    def at(self, ahead: Value) -> Value:
        """Return the place that has so many older ones."""
        place = self.oldest + ahead
        return Mux(place >= self.depth, place - self.depth, place)


class Waiting:
    """The content of a UnitQueue inside a block, with assertions that tie its places together. ``push``: its input."""

    def __init__(self, harness: Harness, inside: Inside, path: str, depth: int, rings: dict[str, int]) -> None:
        self.depth, self._inside, self._path = depth, inside, path
        self._layout = data.StructLayout({name: wait_layout(size) for name, size in rings.items()})
        self.stored, self.there, self.head, self.next, self.tail, self.reserved, self.wanted, self.valid, self.taken = (
            inside(f"{path}.{name}") for name in
            ("stored", "there", "head", "next", "tail", "reserved", "wanted", "valid", "taken"))
        self.push = inside.reads(f"{path}.push")
        place = inside(f"{path}.place")
        harness.always(place == Mux(self.push, after(self.tail, depth), self.tail), f"{path}_place")
        harness.always(~inside.reads(f"{path}.fetch") | self.wanted, f"{path}_fetched")
        self.level = how_many(self.stored, self.next, self.tail, depth) + self.there
        harness.always(row_of_places(self.stored, self.next, self.tail, depth), f"{path}_places")
        harness.always(~self.there | ((after(self.head, depth) == self.next) & (self.head < depth)), f"{path}_head")
        harness.always((self.reserved == self.level + self.push) & (self.reserved <= depth), f"{path}_reserved")
        harness.always(inside(f"{path}.has_room") == (self.reserved != depth), f"{path}_has_room")

    def at(self, ahead: Value) -> Value:
        """Return the place of the operation that has so many in front."""
        place = Mux(self.there, self.head, self.next) + ahead
        return Mux(place >= self.depth, place - self.depth, place)

    def holds(self, place: Value) -> Value:
        return self.stored.bit_select(place, 1) | (self.there & (self.head == place))

    def ahead(self, place: Value) -> Value:
        """Return how many are in front of what is at ``place``."""
        return distance(Mux(self.there, self.head, self.next), place, self.depth)

    def waits(self, place: Value, name: str) -> Any:
        """Return what the operation at ``place`` waits for in this ring."""
        kept: Value = Const(0, 1)
        for index in range(self.depth):
            slot = data.View(self._layout, self._inside(f"{self._path}.waits{index}"))
            kept = Mux(place == index, slot[name].as_value(), kept)
        return data.View(self._layout[name].shape, kept[:self._layout[name].shape.size])


# -- one ring, one tracker ---------------------------------------------------------------------------------------------
def waits_for_marked(harness: Harness, block: Any, places: Places, mark: Mark, hit: Value, name: str) -> None:
    """Assert that what was offered in the cycle before and ``hit`` the marked one waits for it or for a newer one.

    It does not if the marked one is done by now. Nothing was pushed meanwhile."""
    hit = harness.past(hit & mark.inside, f"{name}_hit")
    behind = places.ahead(block.wait.place) >= mark.ahead
    harness.always(~(hit & mark.inside & ~mark.leaves) | (block.wait.needed & behind), f"{name}_waits_for_it")


def waits_end(harness: Harness, block: Any, places: Places) -> None:
    """Assert that what is to be waited for is there and will be done later than now."""
    place = block.wait.place
    here = places.used.bit_select(place, 1) & ~places.leaving.bit_select(place, 1)
    harness.always(~block.wait.needed | (here & (place < places.depth)), "waits_for_what_is_there")


def ring(depth: int) -> Any:
    """Return a function that makes the proof that each place that a newcomer hits is waited for."""
    def build(broken: Broken | None = None) -> Harness:
        harness, block = Harness(), Ring(depth)
        inside = harness.block(block, broken=broken)
        harness.assume(~block.push | block.room, "pushes_only_with_room")
        harness.assume(~block.done | ~block.empty, "done_only_if_outstanding")
        places = Places(harness, inside, "", depth)
        mark = Mark(harness, block.push, block.done, places.newest, places.count)
        harness.always(~mark.inside | ((mark.ahead < places.count) & (mark.value == places.at(mark.ahead))), "kept")
        harness.always(~mark.leaves | (block.event.happens & (block.event.place == mark.value)), "event")
        harness.always(block.event.happens == block.done, "event_if_done")
        harness.always((block.room == (places.count != depth)) & (block.empty == (places.count == 0)), "levels")
        quiet = ~block.push & ~(mark.leaves)
        waits_for_marked(harness, block, places, mark, quiet & block.hits.bit_select(mark.value, 1), "hit")
        with harness.m.If(~harness.past(block.push, "push")):
            waits_end(harness, block, places)
        return harness
    return build


def touches(touch: Touch, ranges: Any, address: Value) -> Value:
    """Return whether an operation's access reads or writes this address."""
    valid = ranges.range1 if touch.operand else (ranges.local0 if touch.memory == LOCAL else ranges.accumulators0)
    if touch.memory in (DRAM0, DRAM1) and "dram1" in ranges.shape().members:
        valid = valid & (ranges.dram1 == (touch.memory == DRAM1))
    return valid & (ranges[f"first{touch.operand}"] <= address) & (address <= ranges[f"last{touch.operand}"])


def shares(left_unit: str, left: Any, right_unit: str, right: Any, address: Value) -> Value:
    """Return whether two operations both touch the address in some memory and one of them writes it."""
    result: Value = Const(0, 1)
    for ours, theirs in conflicts(left_unit, right_unit, tables=False):
        result = result | (touches(ours, left, address) & touches(theirs, right, address))
    return result


def tracker(unit: str, arch: Arch) -> Any:
    """Return a function that makes the proof that new operations wait for one with which they share an address."""
    def build(broken: Broken | None = None) -> Harness:
        harness, depth = Harness(), depths(arch, unit).outstanding
        layout = range_layout(issue_layout(arch))
        block = Tracker(arch, unit, layout)
        inside = harness.block(block, broken=broken)
        harness.assume(~block.push | block.room, "pushes_only_with_room")
        harness.assume(~block.push | block.new_unit[unit], "what_is_pushed_is_new")
        harness.assume(~block.done | ~block.empty, "done_only_if_outstanding")
        harness.assume(~(block.new_unit.simd & block.new.local0), "new_simd_reads_no_tables")  # it has no tables
        if unit == "simd":
            harness.assume(~block.ranges.local0, "simd_reads_no_tables")
        places = Places(harness, inside, "ring", depth)
        mark = Mark(harness, block.push, block.done, block.ranges, places.count)
        kept, address = Signal(layout), harness.constant(8, "address")
        harness.m.d.comb += kept.as_value().eq(mark.value)
        for index in range(depth):
            here = mark.inside & (places.at(mark.ahead) == index)
            harness.always(~here | (inside(f"entry{index}") == mark.value), f"entry{index}_kept")
        harness.always(~mark.inside | (mark.ahead < places.count), "ahead")
        harness.always(~mark.leaves | (block.event.happens & (block.event.place == places.at(mark.ahead))), "event")
        if unit == "simd":
            harness.always(~mark.inside | ~kept.local0, "kept_reads_no_tables")
        with harness.m.If(~harness.past(block.push, "push")):
            waits_end(harness, block, places)
        for name in sorted(waits_for(unit, tables=False, shared=arch.shared_dram, signals=arch.sync_counters > 0)):
            asked = block.new_unit[name] & shares(unit, kept, name, block.new, address)
            waits_for_marked(harness, block, places, mark, asked, name)
        return harness
    return build


# -- queues and their memory -------------------------------------------------------------------------------------------
class Queues(wiring.Component):
    """UnitQueues with their OperationMemory, as the interlock connects them.

    ``enter``: an operation for ``queue`` comes when there is room; its waits come a cycle later."""

    DEPTHS, REFILL, RINGS, OPERATION = (3, 2), (False, True), {"x": 3, "y": 2}, data.StructLayout({"a": 3})

    def __init__(self) -> None:
        count = len(self.DEPTHS)
        super().__init__({
            "enter": In(1), "queue": In(range(count)), "operation": In(self.OPERATION),
            "waits": In(data.StructLayout({name: wait_layout(size) for name, size in self.RINGS.items()})),
            "events": In(data.StructLayout({name: done_layout(size) for name, size in self.RINGS.items()})),
            "wanted": Out(count), "fetch": Out(count),
            **{f"o{index}": Out(stream.Signature(self.OPERATION)) for index in range(count)},
        })

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        m.submodules.memory = memory = OperationMemory(self.OPERATION, self.DEPTHS)
        m.d.comb += [memory.operation.eq(self.operation), self.wanted.eq(memory.wanted), self.fetch.eq(memory.fetch)]
        for index, (depth, refill) in enumerate(zip(self.DEPTHS, self.REFILL, strict=True)):
            m.submodules[f"queue{index}"] = queue = UnitQueue(depth, self.RINGS, refill=refill)
            port = getattr(self, f"o{index}")
            m.d.sync += queue.push.eq(queue.reserve)
            m.d.comb += [
                queue.reserve.eq(self.enter & (self.queue == index) & queue.room),
                queue.waits.eq(self.waits), queue.events.eq(self.events),
                memory.write[index].eq(queue.reserve), memory.place[index].eq(queue.place),
                memory.wanted[index].eq(queue.wanted), memory.next[index].eq(queue.next),
                queue.fetch.eq(memory.fetch[index]), port.payload.eq(memory.heads[index]),
                port.valid.eq(queue.valid), queue.ready.eq(port.ready),
            ]
        return m


def queues(broken: Broken | None) -> tuple[Harness, Queues, Inside, list[Waiting]]:
    harness, block = Harness(), Queues()
    inside = harness.block(block, broken=broken)
    waiting = [Waiting(harness, inside, f"queue{index}", depth, block.RINGS)
               for index, depth in enumerate(block.DEPTHS)]
    pushes = Cat(*(queue.push for queue in waiting))
    harness.always(at_most_one(pushes), "one_comes_at_a_time")
    return harness, block, inside, waiting


def unit_queue_streams(broken: Broken | None = None) -> Harness:
    return queues(broken)[0]


def unit_queue(broken: Broken | None = None) -> Harness:
    """Prove the queues: of each queue one operation is marked, and comes out in its turn and unchanged.

    It does not come out before each event that it was told to wait for, and then at once. A queue that wants a fetch
    keeps wanting it until it gets it, a cycle later or more."""
    harness, block, inside, waiting = queues(broken)
    fetched, wanted = block.fetch, block.wanted
    unserved = harness.past(wanted & ~fetched, "unserved")
    harness.always(((fetched & ~unserved) == 0) & (ones(fetched) <= 1) & (fetched.any() == unserved.any()), "fetches")
    harness.always((unserved & ~wanted) == 0, "wants_until_fetched")
    for index, queue in enumerate(waiting):
        port = getattr(block, f"o{index}")
        name, taken = f"mark{index}", port.valid & port.ready
        entering = harness.past(block.operation, f"{name}_operation")
        mark = Mark(harness, queue.push, taken, entering, queue.level, name)
        place, shown = queue.at(mark.ahead), queue.there & (mark.ahead == 0)
        row = Signal(range(sum(block.DEPTHS)), name=f"{name}_row")
        harness.m.d.comb += row.eq(sum(block.DEPTHS[:index]) + place)
        stored = inside.watch(harness, "memory.rows", row)
        harness.always(~mark.inside | (mark.ahead < queue.level), f"{name}_ahead")
        harness.always(~mark.inside | (Mux(shown, port.payload.as_value(), stored) == mark.value), f"{name}_stored")
        harness.always(~mark.leaves | (port.payload.as_value() == mark.value), f"{name}_comes_out")
        harness.always((queue.level != 0) | ~port.valid, f"nothing_else_comes_out_{index}")
        left = Signal(len(block.RINGS), name=f"{name}_left")  # events that the marked one must still see
        for bit, ring_name in enumerate(block.RINGS):
            wait, event = block.waits[ring_name], block.events[ring_name]
            awaited = Signal.like(wait.place, name=f"{name}_awaits_{ring_name}")
            with harness.m.If(mark.now):
                harness.m.d.sync += [left[bit].eq(wait.needed), awaited.eq(wait.place)]
            with harness.m.Elif(event.happens & (event.place == awaited)):
                harness.m.d.sync += left[bit].eq(0)
            kept = queue.waits(place, ring_name)
            same = (kept.needed == left[bit]) & (kept.place == awaited)
            harness.always(~mark.inside | same, f"{name}_{ring_name}_kept")
        harness.always(~(mark.inside & shown) | (port.valid == (left == 0)), f"{name}_waits_exactly_as_told")
    return harness


PROOFS = [
    Proof("stream_unit_queue", "stream rules: operations that leave UnitQueues, from their OperationMemory",
          unit_queue_streams, {"queue0.waits0": toggles}),
    Proof("order_unit_queue", "UnitQueue, OperationMemory: order, and an operation is offered when it has seen its "
          "events, not before; fetches", unit_queue, {"queue0.room": is_one}),
    Proof("ring", "interlock: whoever comes waits for the newest of what it hits; places", ring(8),
          {"newest": is_zero}),
    Proof("ring_odd", "interlock: the same in a ring of three places", ring(3), {"wait": is_zero}),
    *(Proof(f"tracker_{unit}", f"interlock: a new operation waits for every {unit} operation that it conflicts with; "
            "places", tracker(unit, machine_of(unit)), {"ring.wait": is_zero}, 2) for unit in UNIT_NAMES),
    Proof("tracker_move_out_bytes", "interlock of an INT8 machine: as tracker_move_out, for a LoadScale too",
          tracker("move_out", BYTES_ARCH), {"ring.wait": is_zero}, 2, fast=False),
]
