# SPDX-License-Identifier: Apache-2.0
"""Proofs of the interlock: no operation is offered before all that it conflicts with is done, and none is stuck."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.units import UNIT_NAMES, depths, dram_units, faulting_depth, unit_names
from weft.hw.control.interlock import Interlock, queued_together, window_of
from weft.hw.control.issue import fill_queued, issue_layout, queued_layout
from weft.hw.control.tracker import range_layout, range_of, watched_by
from weft.hw.parts.operation_table import fill_operation
from weft.tb.bench.hazards import SHARED, Touch, conflicts, waits_for
from weft.tb.bench.issue_model import operation_layouts
from weft.tb.formal.fifos import Mark
from weft.tb.formal.harness import Broken, Harness, is_one, is_zero, one_hot, toggles
from weft.tb.formal.prove import Proof
from weft.tb.formal.rings import ARCH, BYTES_ARCH, SIGNALS, Places, Waiting, machine_of, touches

DEPTHS = {name: depths(ARCH, name).outstanding for name in UNIT_NAMES}


class Machine:
    """An interlock, a decoder that keeps its promises, and units that end operations when they like.

    A unit ends only an operation that is outstanding. The trackers and queues asked for get the assertions that tie
    their places together, for the induction: the solver need not think of all at once. ``rules``: the units' streams
    keep the stream rules."""

    def __init__(self, broken: Broken | None, arch: Arch = ARCH, *, rules: bool = False) -> None:
        self.harness, self.arch = Harness(), arch
        harness = self.harness
        self.block = block = Interlock(arch, operation_layouts(arch))
        self.inside = harness.block(block, broken=broken, rules=rules)
        self.issue, self.issued = block.i.payload, block.i.valid & block.i.ready
        self.issues = {name: self.issued & self.issue.unit[name] for name in unit_names(arch)}
        self._decoder()
        self._places: dict[str, Places] = {}
        self._queues: dict[str, Waiting] = {}

    def _decoder(self) -> None:
        harness, issue = self.harness, self.issue
        harness.assume(one_hot(issue.unit), "unit")
        harness.assume((issue.operand0.base <= issue.operand0.last) & (issue.operand1.base <= issue.operand1.last),
                       "ranges_in_order")
        simd = issue.unit.simd
        harness.assume(~(issue.accumulators0 & (~simd | issue.local0)), "operand_0_is_in_one_memory")
        harness.assume(~(simd & issue.local0), "simd_reads_no_tables")
        offered = Cat(*(getattr(self.block, name).valid for name in dram_units(self.arch))).any()
        windows = self.block.windows.as_value()
        harness.assume(~offered | (windows == harness.past(windows, "windows")), "windows_stand_still_until_idle")
        self.in_loop = Signal(name="in_loop")  # between a loop body's instructions
        with harness.m.If(self.issued):
            harness.m.d.sync += self.in_loop.eq(issue.in_loop & ~issue.loop_last)
        harness.assume(simd | ~(issue.in_loop | self.in_loop), "loops_are_simd")
        harness.assume(~self.in_loop | issue.in_loop, "loops_are_whole")

    def places(self, name: str) -> Places:
        """Return the places of a unit's tracker. Only what is there ends."""
        if name not in self._places:
            self._places[name] = places = Places(self.harness, self.inside, f"{name}_tracker.ring", DEPTHS[name])
            ends = getattr(self.block, f"{name}_done")
            self.harness.assume(~ends | places.used.any(), f"{name}_ends_only_if_there")
        return self._places[name]

    def queue(self, name: str) -> Waiting:
        if name not in self._queues:
            rings = {other: DEPTHS[other] for other in watched_by(self.arch, name)}
            self._queues[name] = Waiting(self.harness, self.inside, f"{name}_queue",
                                         depths(self.arch, name).queue, rings)
        return self._queues[name]

    def running(self, name: str) -> Signal:
        """Return how many of a unit's operations were taken and are not done: it ends only those."""
        port, done = getattr(self.block, name), getattr(self.block, f"{name}_done")
        running = self.harness.count(port.valid & port.ready, done, DEPTHS[name], f"{name}_running")
        self.harness.assume(~done | (running != 0), f"{name}_done_only_if_taken")
        self.harness.always(self.places(name).count == running + self.queue(name).reserved, f"{name}_counted")
        return running


def streams(broken: Broken | None = None) -> Harness:
    """Prove the stream rules of the units' streams, and that idle is when nothing is outstanding."""
    machine = Machine(broken, rules=True)
    for name in unit_names(ARCH):
        machine.queue(name)
    return machine.harness


# -- order -------------------------------------------------------------------------------------------------------------
class Elder:
    """Any operation of ``unit``, issued earlier: ``alive`` until it is done.

    ``touched``: for each of ``accesses``, whether it touches the address. ``place``: its place in the tracker; for a
    loop the place of its newest instruction, since a loop is done with its last one. ``loop``: that one is still to
    come."""

    def __init__(self, machine: Machine, unit: str, accesses: list[Touch], ranges: Any, address: Value) -> None:
        harness, m, issue = machine.harness, machine.harness.m, machine.issue
        self.places = places = machine.places(unit)
        self.used, self.alive, loop = (Signal(name=f"{unit}_elder_{name}") for name in ("used", "alive", "loop"))
        self.loop: Value = loop if unit == "simd" else Const(0, 1)
        self.place = Signal(range(places.depth), name=f"{unit}_elder_place")
        self.touched = Signal(len(accesses), name=f"{unit}_elder_touched")
        pick = Signal(name=f"{unit}_elder_pick")
        harness.free(pick, f"{unit}_elder_free")
        enters = machine.issues[unit]
        ends = places.leaving.bit_select(self.place, 1) & ~self.loop
        with m.If(enters & pick & ~self.used):
            m.d.sync += [self.used.eq(1), self.alive.eq(1), self.place.eq(places.newest),
                         loop.eq(issue.in_loop & ~issue.loop_last),
                         self.touched.eq(Cat(*(touches(access, ranges, address) for access in accesses)))]
        with m.Elif(self.alive & self.loop & enters):
            m.d.sync += [self.place.eq(places.newest), loop.eq(~issue.loop_last)]
        with m.Elif(ends):
            m.d.sync += self.alive.eq(0)
        outstanding = self.loop | (places.used.bit_select(self.place, 1) & (self.place < places.depth))
        harness.always(~self.alive | (self.used & outstanding), f"{unit}_elder_outstanding")
        harness.always(~(self.alive & self.loop) | machine.in_loop, f"{unit}_elder_in_loop")
        layout = range_layout(issue_layout(machine.arch))
        entries = [data.View(layout, machine.inside(f"{unit}_tracker.entry{index}")) for index in range(places.depth)]
        kept: list[tuple[Any, Any]] = [((self.place == index) & ~self.loop, entry)
                                       for index, entry in enumerate(entries)]
        kept.append((self.loop, data.View(layout, machine.inside("loop_ranges"))))
        for number, access in enumerate(accesses):
            for index, (here, entry) in enumerate(kept):
                covered = touches(access, entry, address) | ~self.touched[number]
                harness.always(~(self.alive & here) | covered, f"{unit}_elder_access{number}_kept{index}")


class Younger:
    """Any operation of ``unit``: ``coming`` in the cycle after it was issued, then ``queued`` until taken.

    ``place``: its place in the queue. ``noted``: ``note`` when it was issued."""

    def __init__(self, machine: Machine, unit: str, note: Value) -> None:
        harness, m = machine.harness, machine.harness.m
        self.queue = queue = machine.queue(unit)
        self.used, self.coming, self.queued, self.now = (
            Signal(name=f"younger_{name}") for name in ("used", "coming", "queued", "now"))
        self.place = Signal(range(queue.depth), name="younger_place")
        self.noted = Signal(len(note), name="younger_noted")
        pick = Signal(name="pick_younger")
        harness.free(pick, "pick_younger_free")
        m.d.comb += self.now.eq(machine.issues[unit] & pick & ~self.used)
        m.d.sync += self.coming.eq(self.now)
        with m.If(self.now):
            m.d.sync += [self.used.eq(1), self.noted.eq(note)]
        with m.If(self.coming):
            m.d.sync += [self.queued.eq(1), self.place.eq(queue.tail)]
        with m.Elif(queue.taken & (queue.head == self.place)):
            m.d.sync += self.queued.eq(0)
        harness.always(~(self.coming | self.queued) | self.used, "younger_used")
        harness.always(~self.coming | (queue.push & ~self.queued), "younger_coming")
        harness.always(~self.queued | queue.holds(self.place), "younger_queued")
        harness.always(~self.queued | (self.place < queue.depth), "younger_place")
        self.offered = self.queued & queue.valid & (queue.head == self.place)


def view_of_ranges(machine: Machine) -> Any:
    ranges = Signal(range_layout(issue_layout(machine.arch)), name="issued_ranges")
    machine.harness.m.d.comb += [ranges[name].eq(value) for name, value in range_of(machine.issue).items()]
    return ranges


def order(unit: str, arch: Arch) -> Any:
    """Return a function that makes the proof that an operation of this unit is not offered too early.

    It waits until each earlier operation of another unit with which it shares an address is done."""
    def build(broken: Broken | None = None) -> Harness:
        machine = Machine(broken, arch)
        harness, ranges = machine.harness, view_of_ranges(machine)
        address = harness.constant(8, "address")
        elders, notes = {}, []
        for left in waits_for(unit, tables=False, shared=machine.arch.shared_dram, signals=arch.sync_counters > 0):
            pairs = conflicts(left, unit, tables=False)
            accesses = list(dict.fromkeys(ours for ours, _ in pairs))
            elders[left] = elder = Elder(machine, left, accesses, ranges, address)
            conflict: Value = Const(0, 1)
            for ours, theirs in pairs:
                conflict = conflict | (elder.touched[accesses.index(ours)] & touches(theirs, ranges, address))
            notes.append(elder.alive & conflict)
        younger = Younger(machine, unit, Cat(*notes))
        for index, (left, elder) in enumerate(elders.items()):
            waits, must = younger.queue.waits(younger.place, left), younger.noted[index] & elder.alive
            places, there = elder.places, younger.coming | younger.queued
            harness.always(~younger.noted[index] | elder.used, f"{left}_came_first")
            harness.always(~(there & must) | ~elder.loop, f"{left}_loop_is_over")
            harness.always(~(younger.coming & must) | places.hit.bit_select(elder.place, 1), f"{left}_compared")
            noted = waits.needed & (places.ahead(waits.place) >= places.ahead(elder.place))
            harness.always(~(younger.queued & must) | (noted & (waits.place < places.depth)), f"{left}_noted")
            harness.always(~(younger.offered & must), f"{left}_waited_for")
        return harness
    return build


# -- progress ----------------------------------------------------------------------------------------------------------
def progress(unit: str) -> Any:
    """Return a function that makes the proof that an operation of this unit goes on.

    When everything issued before it is done, it is offered, or it is just being stored, or it is to be fetched next."""
    def build(broken: Broken | None = None) -> Harness:
        machine = Machine(broken, machine_of(unit))
        harness, m = machine.harness, machine.harness.m
        younger = Younger(machine, unit, Const(0, 1))
        before = {name: Signal(DEPTHS[name], name=f"before_{name}") for name in watched_by(machine.arch, unit)}
        queue, there = younger.queue, younger.coming | younger.queued
        for name, bits in before.items():
            places, waits = machine.places(name), queue.waits(younger.place, name)
            m.d.sync += bits.eq(Mux(younger.now, places.used, bits) & ~places.leaving)
            harness.always((bits & ~places.used) == 0, f"before_{name}_outstanding")
            harness.always(~younger.coming | ((places.hit & ~bits) == 0), f"compares_with_older_{name}")
            older = bits.bit_select(waits.place, 1)
            harness.always(~(younger.queued & waits.needed) | older, f"waits_for_older_{name}")
        own, place = machine.places(unit), Signal(range(DEPTHS[unit]), name="own_place")
        with m.If(younger.now):
            m.d.sync += place.eq(own.newest)
        ahead = Mux(younger.coming, queue.level, queue.ahead(younger.place))
        harness.always(~there | (own.used.bit_select(place, 1) & ~machine.block.idle), "is_outstanding")
        harness.always(~there | (own.ahead(place) == machine.running(unit) + ahead), "ahead_are_older")
        oldest = ~Cat(*before.values()).any() & (own.ahead(place) == 0)
        next_fetched = queue.stored.bit_select(younger.place, 1) & (queue.next == younger.place) & queue.wanted
        harness.always(~(there & oldest) | younger.coming | next_fetched | younger.offered, "the_oldest_goes_on")
        return harness
    return build


# -- operations --------------------------------------------------------------------------------------------------------
def operations(unit: str, arch: Arch) -> Any:
    """Return a function that makes the proof that an operation comes to its unit in its turn and as it was issued."""
    def build(broken: Broken | None = None) -> Harness:
        machine = Machine(broken, arch)
        harness, m, port, queue = machine.harness, machine.harness.m, getattr(machine.block, unit), machine.queue(unit)
        names = ("simd",) if unit == "simd" else queued_together(machine.arch)
        layout = queued_layout(machine.arch, names)
        issued, kept = Signal(layout, name="issued"), Signal(layout, name="kept")
        m.d.comb += fill_queued(issued, machine.issue)
        mark = Mark(harness, queue.push, queue.taken, harness.past(issued, "issued"), queue.level)
        expected, row = Signal(port.payload.shape(), name="expected"), Signal(8, name="row")
        m.d.comb += [
            kept.as_value().eq(mark.value), *fill_operation(arch, unit, expected, kept),
            *([expected.window.eq(window_of(unit, expected, machine.block.windows))]
              if unit.startswith("dram") else []),
            row.eq(sum(depths(ARCH, name).queue for name in names[:names.index(unit)]) + queue.at(mark.ahead)),
        ]
        stored = machine.inside.watch(harness, f"{memory_of(unit)}.rows", row)
        shown = queue.there & (mark.ahead == 0)
        same = Mux(shown, port.payload.as_value() == expected.as_value(), stored == mark.value)
        harness.always(~mark.inside | ((mark.ahead < queue.level) & same), "kept")
        harness.always(port.valid == queue.valid, "valid")
        return harness
    return build


def memory_of(unit: str) -> str:
    return "simd_operations" if unit == "simd" else "operations"


def head_of(unit: str) -> str:
    """Return the path of the register that holds the unit's next operation."""
    return f"{memory_of(unit)}.head{0 if unit == 'simd' else queued_together(machine_of(unit)).index(unit)}"


# -- blame -------------------------------------------------------------------------------------------------------------
def blame(unit: str) -> Any:
    """Return a function that makes the proof that a faulting operation's own program counter answers.

    It does so from the second cycle after its issue on, before which its unit cannot have an error."""
    def build(broken: Broken | None = None) -> Harness:
        machine = Machine(broken, machine_of(unit))
        harness, block, index = machine.harness, machine.block, dram_units(machine.arch).index(unit)
        places, first = machine.places(unit), index * faulting_depth(machine.arch)
        shared = machine.arch.shared_dram
        told = Cat(machine.issue.program_counter, *([machine.issue.dram1] if shared else []))
        mark = Mark(harness, machine.issues[unit], getattr(block, f"{unit}_done"), told, places.count)
        place = Signal(range(places.depth), name="mark_place")
        harness.m.d.comb += place.eq(places.at(mark.ahead))
        stored = machine.inside.watch(harness, "program_counters", first + place)
        harness.always(~mark.inside | (mark.ahead < places.count), "ahead")
        writes, row, value = (machine.inside(f"$signature__{name}") for name in ("en", "addr", "data"))
        fresh = harness.past(mark.now, "fresh")  # it is on its way into the memory
        here = writes & (row == first + place)
        kept = Mux(fresh, here & (value == mark.value), ~here & (stored == mark.value))
        harness.always(~mark.inside | kept, "stored")
        faulting = (block.faulting == 1 << index) & mark.inside & (mark.ahead == 0) & ~fresh
        answer = Cat(block.faulting_program_counter, *([block.faulting_dram1] if shared else []))
        harness.always(~faulting | (answer == mark.value), "answers")
        return harness
    return build


def wait_of_last_ring(unit: str) -> str:
    """Return the path of a signal to break: the answer of the last of the rings that this unit waits for."""
    return f"{watched_by(machine_of(unit), unit)[-1]}_tracker.ring.wait"


PROOFS = [
    Proof("stream_interlock", "stream rules: operations that leave the interlock for their units", streams,
          {"simd_queue.waits0": toggles}, 2, fast=False),
    *(Proof(f"order_{unit}", f"interlock: a {unit} operation runs after all before it that share an address with it",
            order(unit, machine_of(unit)), {wait_of_last_ring(unit): is_zero}, 1, fast=unit == "dram0_write")
      for unit in UNIT_NAMES),
    *(Proof(f"progress_{unit}", f"interlock: {unit} waits only for older operations, the oldest for nothing",
            progress(unit), {f"{watched_by(machine_of(unit), unit)[0]}_tracker.ring.wait": is_one}, 1, fast=False)
      for unit in UNIT_NAMES),
    *(Proof(f"operations_{unit}", f"interlock: {unit} operations come in order and as they were issued",
            operations(unit, machine_of(unit)), {head_of(unit): toggles}, 2, fast=unit in ("simd", "mat_mul"))
      for unit in UNIT_NAMES),
    *(Proof(f"blame_{unit}", f"interlock: the program counter of the oldest {unit} operation"
            + (", and its window" if unit in SHARED else ""), blame(unit),
            {f"{unit}_tracker.ring.event": is_zero}, 2, fast=unit == "dram0_write")
      for unit in UNIT_NAMES if unit.startswith("dram")),
    *(Proof(f"order_{unit}_bytes", f"interlock of an INT8 machine: as order_{unit}, {role}",
            order(unit, BYTES_ARCH), {wait_of_last_ring(unit): is_zero}, 1, fast=False)
      for unit, role in (("move_out", "a LoadScale too"), ("dram0_read", "after a LoadScale too"))),
    *(Proof(f"order_{unit}_signals", f"interlock of a machine with Signals: as order_{unit}, Signals too",
            order(unit, SIGNALS), {"sync_tracker.ring.wait": is_zero}, 1, fast=False) for unit in SHARED),
    Proof("operations_move_out_bytes", "interlock of an INT8 machine: as operations_move_out, a LoadScale too",
          operations("move_out", BYTES_ARCH), {head_of("move_out"): toggles}, 2, fast=False),
]
