"""The interlock: no operation is offered to its unit before everything it conflicts with is done, and none is stuck."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Mux, Signal, Value

from weft.hw.control.interlock import Interlock
from weft.hw.control.tracker import Tracker, range_layout, watched_by
from weft.hw.control.issue import UNIT_NAMES, issue_layout
from weft.hw.operations import (
    dram_layout,
    load_weight_layout,
    mat_mul_layout,
    move_in_layout,
    move_out_layout,
    simd_layout,
)
from weft.hw.units import UNITS, Memory
from weft.tb.formal.archs import SMALL
from weft.tb.formal.fifos import Mark
from weft.tb.formal.harness import Broken, Harness, is_one, is_zero
from weft.tb.formal.prove import BOUNDED, Proof

ARCH = SMALL.replace(local_depth=4, accumulator_depth=4, dram0_depth=4, dram1_depth=4, simd_loop_depth=2)
LAYOUTS = {
    "load_weight": load_weight_layout(ARCH), "mat_mul": mat_mul_layout(ARCH), "simd": simd_layout(ARCH),
    "move_out": move_out_layout(ARCH), "move_in": move_in_layout(ARCH),
    **{name: dram_layout(ARCH) for name in UNIT_NAMES if name.startswith("dram")},
}


# -- one tracker -------------------------------------------------------------------------------------------------------
def touches(unit: str, ranges: Any, memory: Memory, address: Value, writes: bool | None = None) -> Value:
    """Whether an operation of ``unit`` reads or writes (``writes``: writes) this address."""
    result: Value = Const(0, 1)
    for access in UNITS[unit].accesses:
        if access.memory is memory and writes in (None, access.writes):
            valid = ranges.range1 if access.operand else (
                ranges.local0 if memory is Memory.LOCAL else ranges.accumulators0)
            first, last = ranges[f"first{access.operand}"], ranges[f"last{access.operand}"]
            result = result | (valid & (first <= address) & (address <= last))
    return result


def shares(left_unit: str, left: Any, right_unit: str, right: Any, address: Value) -> Value:
    """Whether two operations both touch the address in some memory and one of them writes it."""
    result: Value = Const(0, 1)
    for memory in Memory:
        both = touches(left_unit, left, memory, address) & touches(right_unit, right, memory, address)
        one = touches(left_unit, left, memory, address, True) | touches(right_unit, right, memory, address, True)
        result = result | (both & one)
    return result


def tracker(unit: str) -> Any:
    """An outstanding operation, any of them, is seen by every new operation that shares an address with it."""
    def build(broken: Broken | None = None) -> Harness:
        harness, depth = Harness(), UNITS[unit].outstanding
        layout = range_layout(issue_layout(ARCH))
        block = Tracker(ARCH, unit, layout)
        inside = harness.block(block, broken=broken)
        harness.assume(~block.push | block.room, "pushes_only_with_room")
        harness.assume(~block.done | (block.count != 0), "done_only_if_outstanding")
        simd = UNIT_NAMES.index("simd")  # without tables it does not read local memory
        harness.assume(~((block.new_unit == simd) & block.new.local0), "new_simd_reads_no_tables")
        if unit == "simd":
            harness.assume(~block.ranges.local0, "simd_reads_no_tables")
        mark = Mark(harness, block.push, block.done, block.ranges, block.count)
        kept, address = Signal(layout), harness.constant(8, "address")
        harness.m.d.comb += kept.as_value().eq(mark.value)
        oldest, newest = inside("oldest"), inside("newest")
        place = Signal(8)
        harness.m.d.comb += place.eq(oldest + mark.ahead)
        for index in range(depth):
            here = mark.inside & ((place == index) | (place == index + depth))
            harness.always(~here | (inside(f"entry{index}") == mark.value), f"entry{index}_kept")
        harness.always(block.count <= depth, "count")
        harness.always((oldest < depth) & (newest < depth), "places")
        harness.always((oldest + block.count == newest) | (oldest + block.count == newest + depth), "count_is_distance")
        harness.always(~mark.inside | (mark.ahead < block.count), "ahead")
        if unit == "simd":
            harness.always(~mark.inside | ~kept.local0, "kept_reads_no_tables")
        harness.always(block.wait <= block.count, "waits_for_no_more_than_there_is")
        for name in watched_by(ARCH, unit):
            asked = block.new_unit == UNIT_NAMES.index(name)
            conflict = asked & mark.inside & shares(unit, kept, name, block.new, address)
            harness.always(~conflict | (block.wait > mark.ahead), f"{name}_waits_for_it")
        return harness
    return build


# -- the whole ---------------------------------------------------------------------------------------------------------
class Machine:
    """An interlock, a decoder that keeps its promises, and units that take and finish operations when they like."""

    def __init__(self, broken: Broken | None) -> None:
        self.harness = harness = Harness()
        self.block = block = Interlock(ARCH, LAYOUTS)
        self.inside = harness.block(block, broken=broken)
        self.issued = block.i.valid & block.i.ready
        self.issue = issue = block.i.payload
        harness.assume(issue.unit < len(UNIT_NAMES), "unit")
        harness.assume((issue.operand0.base <= issue.operand0.last) & (issue.operand1.base <= issue.operand1.last),
                       "ranges_in_order")
        simd = issue.unit == UNIT_NAMES.index("simd")
        harness.assume(~(issue.accumulators0 & (~simd | issue.local0)), "operand_0_is_in_one_memory")
        harness.assume(~(simd & issue.local0), "simd_reads_no_tables")
        self.in_loop = Signal()  # between a loop body's instructions
        with harness.m.If(self.issued):
            harness.m.d.sync += self.in_loop.eq(issue.in_loop & ~issue.loop_last)
        harness.assume(simd | ~(issue.in_loop | self.in_loop), "loops_are_simd")
        harness.assume(~self.in_loop | issue.in_loop, "loops_are_whole")
        self.taken, self.done, self.outstanding, self.running = {}, {}, {}, {}
        for index, name in enumerate(UNIT_NAMES):
            port = getattr(block, name)
            self.taken[name], self.done[name] = port.valid & port.ready, getattr(block, f"{name}_done")
            pushed, most = self.issued & (issue.unit == index), UNITS[name].outstanding
            self.outstanding[name] = harness.count(pushed, self.done[name], most, f"{name}_outstanding")
            self.running[name] = harness.count(self.taken[name], self.done[name], most, f"{name}_running")
            harness.assume(~self.done[name] | (self.running[name] != 0), f"{name}_done_only_if_taken")
            harness.always(self.outstanding[name] <= most, f"{name}_no_more_than_fit")
            harness.always(self.inside(f"{name}_tracker.count") == self.outstanding[name], f"{name}_counted")
        swaps = self.taken["mat_mul"] & block.mat_mul.payload.swap
        self.unswapped = harness.count(swaps, block.swapped, 8, "unswapped")
        harness.assume(~block.swapped | (self.unswapped != 0), "swapped_only_if_taken")

    def only(self, units: tuple[str, ...]) -> None:
        """Look at programs for these units only."""
        self.harness.assume(Cat(*(self.issue.unit == UNIT_NAMES.index(name) for name in units)).any(), "units")


def pair(left: str, right: str) -> Any:
    """The order of two operations where only these two units are used: all of the interlock is there, but the solver
    need not think of nine queues."""
    return lambda broken=None: order(broken, (left, right))


def order(broken: Broken | None, units: tuple[str, ...]) -> Harness:
    """Any two operations of different units that share an address: the younger is not offered before the elder's
    done. Weights likewise: MatMuls after loads."""
    machine = Machine(broken)
    machine.only(units)
    harness, issue, m = machine.harness, machine.issue, machine.harness.m
    address = harness.constant(8, "address")
    layout, wide = range_layout(issue_layout(ARCH)), Signal(issue_layout(ARCH))
    new = Signal(layout)
    m.d.comb += [new.first0.eq(issue.operand0.base), new.last0.eq(issue.operand0.last), new.local0.eq(issue.local0),
                 new.accumulators0.eq(issue.accumulators0), new.first1.eq(issue.operand1.base),
                 new.last1.eq(issue.operand1.last), new.range1.eq(issue.range1), wide.eq(issue)]
    elder, elder_used, elder_left = Signal(layout), Signal(), Signal(8)
    elder_unit, elder_loop = Signal(4), Signal()
    younger_used, younger_left, younger_unit, conflict = Signal(), Signal(8), Signal(4), Signal()
    pick_elder, pick_younger = Signal(), Signal()
    harness.free(pick_elder, "pick_elder")
    harness.free(pick_younger, "pick_younger")
    done, taken, outstanding = (by_unit(table) for table in (machine.done, machine.taken, machine.outstanding))
    queued = by_unit({name: machine.outstanding[name] - machine.running[name] for name in UNIT_NAMES})
    more = machine.issued & elder_loop & issue.in_loop  # a loop is done with its last instruction
    with m.If(machine.issued & pick_elder & ~elder_used):
        m.d.sync += [elder_used.eq(1), elder.eq(new), elder_unit.eq(issue.unit),
                     elder_loop.eq(issue.in_loop & ~issue.loop_last),
                     elder_left.eq(outstanding(issue.unit) + 1 - done(issue.unit))]
    with m.Elif(elder_used):
        m.d.sync += elder_left.eq(Mux(more, outstanding(elder_unit) + 1, elder_left) - (
            done(elder_unit) & (elder_left != 0)))
        with m.If(more & issue.loop_last):
            m.d.sync += elder_loop.eq(0)
    pairs = [((elder_unit == UNIT_NAMES.index(left)) & (issue.unit == UNIT_NAMES.index(right))
              & ((left == "load_weight" and right == "mat_mul") | shares(left, elder, right, new, address)))
             for left in units for right in units if left != right]
    with m.If(machine.issued & pick_younger & elder_used & ~younger_used):
        m.d.sync += [younger_used.eq(1), younger_unit.eq(issue.unit), conflict.eq(Cat(*pairs).any()),
                     younger_left.eq(queued(issue.unit) - taken(issue.unit))]
    with m.Elif(younger_used & (younger_left != 0)):
        m.d.sync += younger_left.eq(younger_left - taken(younger_unit))
    over = Signal()  # the younger was taken
    with m.If(younger_used & (younger_left == 0) & taken(younger_unit)):
        m.d.sync += over.eq(1)
    valid = by_unit({name: getattr(machine.block, name).valid for name in UNIT_NAMES})
    offered = younger_used & ~over & (younger_left == 0) & valid(younger_unit)
    harness.always(~(offered & conflict & (elder_left != 0)), "younger_waits_for_elder")
    return harness


def by_unit(table: dict[str, Value]) -> Any:
    """unit number -> its entry."""
    def lookup(unit: Value) -> Value:
        result: Value = Const(0, 8)
        for index, name in enumerate(UNIT_NAMES):
            result = Mux(unit == index, table[name], result)
        return result
    return lookup


def progress(broken: Broken | None = None) -> Harness:
    """While something is outstanding, some operation is offered, or some unit has one to finish or weights to swap."""
    machine = Machine(broken)
    machine.only(("mat_mul", "move_out"))
    harness, block = machine.harness, machine.block
    harness.assume(~machine.done["mat_mul"] | (machine.unswapped == 0), "swaps_come_before_done")
    offered = Cat(*(getattr(block, name).valid for name in UNIT_NAMES)).any()
    running = Cat(*(machine.running[name] != 0 for name in UNIT_NAMES)).any()
    something = Cat(*(machine.outstanding[name] != 0 for name in UNIT_NAMES)).any()
    loading = harness.past(machine.issued, "issued")  # an operation is at its queue's door for a cycle
    loading = loading | harness.past(loading, "issued_before")
    harness.always(~something | offered | running | loading, "no_deadlock")
    harness.always(block.idle == ~something, "idle_is_nothing_outstanding")
    return harness


PROOFS = [
    *(Proof(f"trackerold_{unit}", "",
            tracker(unit), {"wait": is_zero}, 2,
            fast=unit in ("mat_mul", "simd", "dram0_read")) for unit in UNIT_NAMES),
    *(Proof(f"order_{left}_{right}", f"interlock: {left} and {right} that share an address run in program order",
            pair(left, right), {f"{left}_tracker.count": is_zero}, 7, BOUNDED, fast=False)
      for left, right in (("mat_mul", "move_out"), ("dram0_read", "mat_mul"))),
    Proof("order_load_weight_mat_mul", "interlock: a MatMul starts after every LoadWeight before it",
          pair("load_weight", "mat_mul"), {"load_weight_tracker.count": is_zero}, 7, BOUNDED, fast=False),
    Proof("interlock_progress", "interlock: no deadlock with units that finish what they take (mat_mul and "
          "move_out); counters", progress, {"mat_mul_tracker.wait": is_one}, 6, BOUNDED, fast=False),
]

