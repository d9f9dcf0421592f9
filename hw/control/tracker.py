# SPDX-License-Identifier: Apache-2.0
"""The operations of one unit that were issued and are not done, and which of them a new operation has to wait for."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.units import Access, Memory, accesses, conflict, depths, unit_names
from weft.hw.control.issue import unit_choice


# -- ranges ------------------------------------------------------------------------------------------------------------
def range_layout(issue: data.Layout) -> data.StructLayout:
    """Return the layout of what a tracker keeps of an operation: its ranges."""
    widths = [issue[f"operand{index}"].shape["base"].width for index in (0, 1)]
    return data.StructLayout({
        "first0": widths[0], "last0": widths[0], "local0": 1, "accumulators0": 1,
        "first1": widths[1], "last1": widths[1], "range1": 1,
        **({"dram1": 1} if "dram1" in issue.members else {}),
    })


def range_of(issue) -> dict:
    """Return the fields of :func:`range_layout` from a decoded instruction: name -> value."""
    return {
        "first0": issue.operand0.base, "last0": issue.operand0.last,
        "local0": issue.local0, "accumulators0": issue.accumulators0,
        "first1": issue.operand1.base, "last1": issue.operand1.last, "range1": issue.range1,
        **({"dram1": issue.dram1} if "dram1" in issue.shape().members else {}),
    }


def operand_valid(ranges, operand: int, memory: Memory):
    """Return whether this operand is a range of ``memory``.

    The memory of operand 1 follows from the unit, or with a shared DRAM port from ``dram1``."""
    if operand == 1:
        windows = {Memory.DRAM0: 0, Memory.DRAM1: 1} if "dram1" in ranges.shape().members else {}
        return ranges.range1 & (ranges.dram1 == windows[memory]) if memory in windows else ranges.range1
    return ranges.local0 if memory is Memory.LOCAL else ranges.accumulators0


def overlap(left, left_operand: int, right, right_operand: int, width: int):
    """Return whether the ranges of two operands overlap, compared in the ``width`` bits of their memory's addresses."""
    def inside(first, last):
        return first[:width] <= last[:width]

    return (inside(left[f"first{left_operand}"], right[f"last{right_operand}"])
            & inside(right[f"first{right_operand}"], left[f"last{left_operand}"]))


def address_width(arch: Arch, memory: Memory) -> int:
    """Return the bits of a memory's addresses."""
    if arch.shared_dram and memory in (Memory.DRAM0, Memory.DRAM1):
        return arch.dram_address_width  # one comparison for both windows
    return {Memory.LOCAL: arch.local_address_width, Memory.ACCUMULATORS: arch.accumulator_address_width,
            Memory.DRAM0: bits_to_count(arch.dram0_depth), Memory.DRAM1: bits_to_count(arch.dram1_depth)}[memory]


def conflicts(arch: Arch, unit: str, other: str) -> list[tuple[Access, Access]]:
    """Return the pairs of accesses of two units that must keep their order."""
    return [(ours, theirs) for ours in accesses(arch, unit) for theirs in accesses(arch, other)
            if conflict(ours, theirs)]


def watched_by(arch: Arch, unit: str) -> tuple[str, ...]:
    """Return the other units with which an operation of ``unit`` can conflict over a memory."""
    return tuple(other for other in unit_names(arch) if other != unit and conflicts(arch, unit, other))


# -- trackers ----------------------------------------------------------------------------------------------------------
def after(pointer, depth: int):
    """Return the place behind ``pointer`` in a ring of ``depth`` places."""
    return Mux(pointer == depth - 1, 0, pointer + 1)


def done_layout(depth: int) -> data.StructLayout:
    """Return the layout of an event: it ``happens`` in this cycle, to the operation at ``place`` of a ring."""
    return data.StructLayout({"happens": 1, "place": range(depth)})


def wait_layout(depth: int) -> data.StructLayout:
    """Return the layout of a wait: whether it is ``needed``, until the operation at ``place`` of a ring is done."""
    return data.StructLayout({"needed": 1, "place": range(depth)})


class Ring(wiring.Component):
    """Places of operations that begin and end in order; ``push`` fills place ``newest`` (only while ``room``).

    ``done`` empties the oldest place; ``event`` says which. ``hits``: the places that a new operation conflicts
    with; bits of empty places do not matter. ``wait``, a cycle later: whether one of those places is still used (it
    is not if that cycle's ``done`` empties it), and the newest of them."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        super().__init__({
            "push": In(1), "done": In(1), "hits": In(depth), "room": Out(1), "empty": Out(1),
            "newest": Out(range(depth)), "event": Out(done_layout(depth)), "wait": Out(wait_layout(depth)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: used places, pointers to the oldest and the newest, and the hits of the cycle before."""
        m = Module()
        used, hit = (Signal(self.depth, name=name) for name in ("used", "hit"))
        entering, leaving = (Signal(self.depth, name=name) for name in ("entering", "leaving"))
        oldest = Signal(range(self.depth))
        m.d.comb += [
            entering.eq(self.push << self.newest), leaving.eq(self.done << oldest),
            self.event.happens.eq(self.done), self.event.place.eq(oldest),
            self.wait.needed.eq((hit & ~leaving).any()), self.wait.place.eq(self._newest_hit(m, hit)),
        ]
        after_this = (used | entering) & ~leaving
        full, some = (Signal(name=name) for name in ("full", "some"))  # flags: nobody looks at every place
        m.d.comb += [self.room.eq(~full), self.empty.eq(~some)]
        m.d.sync += [used.eq(after_this), full.eq(after_this.all()), some.eq(after_this.any()),
                     hit.eq(self.hits & used & ~leaving)]
        for pointer, moves in ((oldest, self.done), (self.newest, self.push)):
            with m.If(moves):
                m.d.sync += pointer.eq(after(pointer, self.depth))
        return m

    def _newest_hit(self, m: Module, hit):
        """Return the newest place that was hit.

        Only one operation enters a cycle, the one that was compared then, so ``newest`` has not moved since the
        comparison."""
        place = Signal(range(self.depth))
        with m.Switch(self.newest):
            for newest in range(self.depth):
                with m.Case(newest):
                    found = Const(newest, len(place))
                    for index in (*range(newest, self.depth), *range(newest)):  # from the oldest to the newest
                        found = Mux(hit[index], index, found)
                    m.d.comb += place.eq(found)
        return place


class Tracker(wiring.Component):
    """The outstanding operations of one unit with their ranges.

    ``push`` with ``ranges`` adds one (only while ``room``) at place ``newest``; ``done`` takes the oldest away.
    ``wait``: what the operation ``new`` of unit ``new_unit``, offered in the cycle before, has to wait for here."""

    def __init__(self, arch: Arch, unit: str, ranges: data.StructLayout) -> None:
        self._arch, self._unit, self._ranges, self.depth = arch, unit, ranges, depths(arch, unit).outstanding
        super().__init__({
            "push": In(1), "ranges": In(ranges), "done": In(1), "new": In(ranges), "new_unit": In(unit_choice(arch)),
            "room": Out(1), "empty": Out(1), "newest": Out(range(self.depth)),
            "event": Out(done_layout(self.depth)), "wait": Out(wait_layout(self.depth)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a ring, the ranges of each place, and the comparisons with the new operation."""
        m = Module()
        m.submodules.ring = ring = Ring(self.depth)
        entries = [Signal(self._ranges, name=f"entry{k}", reset_less=True) for k in range(self.depth)]
        with m.If(self.push), m.Switch(ring.newest):
            for index, entry in enumerate(entries):
                with m.Case(index):
                    m.d.sync += entry.eq(self.ranges)
        asked = self._asked()
        m.d.comb += [
            ring.push.eq(self.push), ring.done.eq(self.done),
            ring.hits.eq(Cat(*(self._conflict(entry, asked) for entry in entries))),
            *(getattr(self, name).eq(getattr(ring, name)) for name in ("room", "empty", "newest", "event", "wait")),
        ]
        return m

    def _asked(self) -> dict[tuple[Access, int], object]:
        """Return (our access, their operand) -> whether ``new`` touches the same memory there in a conflicting way."""
        asked: dict[tuple[Access, int], object] = {}
        for name in unit_names(self._arch):
            if name == self._unit:
                continue
            for ours, theirs in conflicts(self._arch, self._unit, name):
                here = self.new_unit[name] & operand_valid(self.new, theirs.operand, theirs.memory)
                asked[ours, theirs.operand] = asked.get((ours, theirs.operand), Const(0, 1)) | here
        return asked

    def _conflict(self, entry, asked: dict):
        """Return whether the new operation conflicts with this entry."""
        result = Const(0, 1)
        for (ours, theirs), wanted in asked.items():
            width = address_width(self._arch, ours.memory)
            result = result | (wanted & operand_valid(entry, ours.operand, ours.memory)
                               & overlap(entry, ours.operand, self.new, theirs, width))
        return result
