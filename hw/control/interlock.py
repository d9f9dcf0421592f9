"""Keeps the sequential meaning: an operation starts when everything before it that it conflicts with is done.

For every unit a *tracker* remembers the address ranges of its operations that were issued and are not done, oldest
first. A new operation is compared with all of them at once; per other unit it notes how many ``done`` pulses it must
still see, then waits in its own unit's queue, so that a conflict never holds the decoder. Operations of one unit run in
order, which the units themselves keep. Weights are handed over by name instead of by range: a MatMul waits for all
loads before it, a load for all swaps before it.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.arch import Arch, bits_to_count
from weft.hw.control.issue import UNIT_NAMES, fill_operation, issue_layout
from weft.hw.units import UNITS, Access, Memory, conflict

SWAP = "swap"
"""The pseudo-unit that tracks MatMuls which have not yet taken over their weights."""


def range_layout(issue: data.Layout) -> data.StructLayout:
    """What a tracker keeps of an operation."""
    widths = [issue[f"operand{index}"].shape["base"].width for index in (0, 1)]
    return data.StructLayout({
        "first0": widths[0], "last0": widths[0], "local0": 1, "accumulators0": 1,
        "first1": widths[1], "last1": widths[1], "range1": 1,
    })


def range_of(issue) -> dict:
    """The fields of :func:`range_layout` from a decoded instruction."""
    return {
        "first0": issue.operand0.base, "last0": issue.operand0.last,
        "local0": issue.local0, "accumulators0": issue.accumulators0,
        "first1": issue.operand1.base, "last1": issue.operand1.last, "range1": issue.range1,
    }


def operand_valid(ranges, operand: int, memory: Memory):
    """Whether this operand is a range of ``memory`` (operand 1's memory follows from the unit)."""
    if operand == 1:
        return ranges.range1
    return ranges.local0 if memory is Memory.LOCAL else ranges.accumulators0


def overlap(left, left_operand: int, right, right_operand: int, width: int):
    """Compared in the bits of a memory's address: ranges lie inside their memory."""
    def inside(first, last):
        return first[:width] <= last[:width]

    return (inside(left[f"first{left_operand}"], right[f"last{right_operand}"])
            & inside(right[f"first{right_operand}"], left[f"last{left_operand}"]))


class Tracker(wiring.Component):
    """The outstanding operations of one unit, oldest first.

    ``push`` with ``ranges`` adds one (only while ``room``), ``done`` takes the oldest away. ``wait``: how many ``done``
    pulses from now on, this cycle's included, make the newest operation of this unit done that conflicts with ``new``,
    an operation of unit ``new_unit``; 0 for no conflict. ``count``: operations outstanding.
    """

    def __init__(self, arch: Arch, unit: str, ranges: data.StructLayout) -> None:
        self._arch, self._unit, self._ranges, self.depth = arch, unit, ranges, UNITS[unit].outstanding
        width = bits_to_count(self.depth + 1)
        super().__init__({
            "push": In(1), "ranges": In(ranges), "done": In(1), "new": In(ranges), "new_unit": In(range(len(UNITS))),
            "room": Out(1), "count": Out(width), "wait": Out(width),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        entries = [Signal(self._ranges, name=f"entry{k}", reset_less=True) for k in range(self.depth)]
        oldest, newest = (Signal(range(self.depth), name=name) for name in ("oldest", "newest"))
        m.d.comb += self.room.eq(self.count != self.depth)
        with m.If(self.push):
            m.d.sync += newest.eq(Mux(newest == self.depth - 1, 0, newest + 1))
            with m.Switch(newest):
                for index, entry in enumerate(entries):
                    with m.Case(index):
                        m.d.sync += entry.eq(self.ranges)
        with m.If(self.done):
            m.d.sync += oldest.eq(Mux(oldest == self.depth - 1, 0, oldest + 1))
        m.d.sync += self.count.eq(self.count + self.push - self.done)
        asked = self._asked()
        hits = Cat(*(self._conflict(entry, asked) for entry in entries))
        m.d.comb += self.wait.eq(self._newest_hit(m, hits, oldest))
        return m

    def _asked(self) -> dict[tuple[Access, int], object]:
        """(our access, their operand) -> whether ``new`` touches the same memory there in a way that conflicts."""
        asked: dict[tuple[Access, int], object] = {}
        for number, name in enumerate(UNIT_NAMES):
            if name == self._unit:
                continue
            for ours, theirs in conflicts(self._arch, self._unit, name):
                here = (self.new_unit == number) & operand_valid(self.new, theirs.operand, theirs.memory)
                asked[ours, theirs.operand] = asked.get((ours, theirs.operand), Const(0, 1)) | here
        return asked

    def _conflict(self, entry, asked: dict):
        """Whether the new operation conflicts with this entry."""
        result = Const(0, 1)
        for (ours, theirs), wanted in asked.items():
            width = address_width(self._arch, ours.memory)
            result = result | (wanted & operand_valid(entry, ours.operand, ours.memory)
                               & overlap(entry, ours.operand, self.new, theirs, width))
        return result

    def _newest_hit(self, m: Module, hits, oldest):
        """Age order position + 1 of the newest entry that hits and is outstanding."""
        by_age = Signal(self.depth)
        doubled = Cat(hits, hits)
        with m.Switch(oldest):
            for index in range(self.depth):
                with m.Case(index):
                    m.d.comb += by_age.eq(doubled[index:index + self.depth])
        result = Const(0, len(self.count))
        for age in range(self.depth):
            result = Mux(by_age[age] & (self.count > age), age + 1, result)
        return result


class UnitQueue(wiring.Component):
    """Operations waiting for their unit, each with counters of the events it must still see.

    i: ``operation`` and, for each name in ``events``, ``waits``: pulses still to come after this cycle. o: the oldest
    operation, valid when all its counters are zero. ``pulses``: this cycle's events.
    """

    def __init__(self, operation: data.StructLayout, events: dict[str, int], depth: int) -> None:
        self._depth, self._waits = depth, data.StructLayout(events)
        super().__init__({
            "i": In(stream.Signature(data.StructLayout({"operation": operation, "waits": self._waits}))),
            "o": Out(stream.Signature(operation)),
            "pulses": In(len(events)),
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = self.o.payload.shape()
        m.submodules.operations = operations = fifo.SyncFIFOBuffered(width=layout.size, depth=self._depth)
        slots = [Signal(self._waits, name=f"waits{k}") for k in range(self._depth)]  # a ring
        head, tail = (Signal(range(self._depth), name=name) for name in ("head", "tail"))
        count = Signal(range(self._depth + 1))
        push, pop = self.i.valid & self.i.ready, self.o.valid & self.o.ready
        clear = Cat(slot.as_value() == 0 for slot in slots)
        m.d.comb += [
            self.i.ready.eq(count != self._depth),
            operations.w_en.eq(push), operations.w_data.eq(self.i.payload.operation),
            operations.r_en.eq(pop), self.o.payload.as_value().eq(operations.r_data),
            self.o.valid.eq(operations.r_rdy & clear.bit_select(head, 1)),
        ]
        m.d.sync += count.eq(count + push - pop)
        for pointer, moves in ((head, pop), (tail, push)):
            with m.If(moves):
                m.d.sync += pointer.eq(Mux(pointer == self._depth - 1, 0, pointer + 1))
        for index, slot in enumerate(slots):
            with m.If(self.pulses.any()):  # says nothing new, but a simulator skips what follows
                for bit, name in enumerate(self._waits.members):
                    m.d.sync += slot[name].eq(slot[name] - (self.pulses[bit] & (slot[name] != 0)))
            with m.If(push & (tail == index)):
                m.d.sync += slot.eq(self.i.payload.waits)
        return m


def address_width(arch: Arch, memory: Memory) -> int:
    """Bits that tell the vectors of a memory apart."""
    return {Memory.LOCAL: arch.local_address_width, Memory.ACCUMULATORS: arch.accumulator_address_width,
            Memory.DRAM0: bits_to_count(arch.dram0_depth), Memory.DRAM1: bits_to_count(arch.dram1_depth)}[memory]


def conflicts(arch: Arch, unit: str, other: str) -> list[tuple[Access, Access]]:
    """Pairs of accesses of two units that must keep their order. Only LoadLUT takes the SIMD unit to local memory."""
    def accesses(name: str) -> list[Access]:
        return [access for access in UNITS[name].accesses
                if arch.lut_count or name != "simd" or access.memory is not Memory.LOCAL]

    return [(ours, theirs) for ours in accesses(unit) for theirs in accesses(other) if conflict(ours, theirs)]


def watched_by(arch: Arch, unit: str) -> tuple[str, ...]:
    """The other units with which an operation of ``unit`` can conflict over a memory."""
    return tuple(other for other in UNIT_NAMES if other != unit and conflicts(arch, unit, other))


class Interlock(wiring.Component):
    """i: decoded instructions in program order, one a cycle. Per unit: a stream of operations that may start, and
    ``done`` pulses back, in order; ``swapped`` pulses from the MatMul unit. ``idle``: nothing outstanding.

    ``{name}_program_counter`` of a DRAM unit: that of its oldest outstanding operation, for bus errors. ``issued``,
    ``started``: bit k pulses as unit k of ``UNIT_NAMES`` is given an operation to wait for, and as it takes one.
    Latency: 2 cycles from i taken to the unit's stream valid when nothing conflicts.
    """

    DRAM_UNITS = tuple(name for name in UNIT_NAMES if name.startswith("dram"))

    def __init__(self, arch: Arch, layouts: dict[str, data.StructLayout]) -> None:
        self._arch, self._layouts = arch, layouts
        super().__init__({
            "i": In(stream.Signature(issue_layout(arch))),
            "swapped": In(1), "idle": Out(1), "issued": Out(len(UNIT_NAMES)), "started": Out(len(UNIT_NAMES)),
            **{name: Out(stream.Signature(layout)) for name, layout in layouts.items()},
            **{f"{name}_done": In(1) for name in UNIT_NAMES},
            **{f"{name}_program_counter": Out(32) for name in self.DRAM_UNITS},
        })

    def elaborate(self, platform) -> Module:
        m = Module()
        layout = range_layout(self.i.payload.shape())
        trackers = {name: Tracker(self._arch, name, layout) for name in UNIT_NAMES}
        for name, tracker in trackers.items():
            m.submodules[f"{name}_tracker"] = tracker
            m.d.comb += [tracker.done.eq(getattr(self, f"{name}_done")), tracker.new_unit.eq(self.i.payload.unit),
                         *(tracker.new[field].eq(value) for field, value in range_of(self.i.payload).items())]
        swaps = self._track_swaps(m)
        m.d.comb += [self.idle.eq(Cat(*(tracker.count == 0 for tracker in trackers.values())).all()),
                     self.issued.eq(Cat(*(tracker.push for tracker in trackers.values()))),
                     self.started.eq(Cat(*((port.valid & port.ready) for port in
                                           (getattr(self, name) for name in UNIT_NAMES))))]
        self._track_ranges(m, trackers)
        queues = {name: self._queue(m, name, trackers, swaps) for name in UNIT_NAMES}
        with m.Switch(self.i.payload.unit):
            for index, name in enumerate(UNIT_NAMES):
                with m.Case(index):
                    ready = queues[name].i.ready & trackers[name].room
                    m.d.comb += [self.i.ready.eq(ready), queues[name].i.valid.eq(self.i.valid & trackers[name].room),
                                 trackers[name].push.eq(self.i.valid & ready)]
        for name in self.DRAM_UNITS:
            self._program_counters(m, name, trackers[name])
        return m

    def _track_swaps(self, m: Module):
        """MatMuls issued that have still to take over their weights. Every one is outstanding in its unit too."""
        pending = Signal(range(UNITS["mat_mul"].outstanding + 1))
        issued = self.i.valid & self.i.ready & self.i.payload.swap & (
            self.i.payload.unit == UNIT_NAMES.index("mat_mul"))
        m.d.sync += pending.eq(pending + issued - self.swapped)
        return pending

    def _track_ranges(self, m: Module, trackers: dict) -> None:
        """A tracker keeps an operation's own ranges; of a SIMD loop the last body operation stands for the whole
        body."""
        ranges = range_of(self.i.payload)
        for name, tracker in trackers.items():
            if name != "simd":
                m.d.comb += [tracker.ranges[field].eq(value) for field, value in ranges.items()]
        body = Signal(trackers["simd"].ranges.shape(), name="loop_ranges")  # of the body so far
        joined = Signal.like(body)
        for index, valid in ((0, "accumulators0"), (1, "range1")):
            first, last = ranges[f"first{index}"], ranges[f"last{index}"]
            before, now = body[valid], ranges[valid]
            m.d.comb += [
                joined[valid].eq(before | now),
                joined[f"first{index}"].eq(Mux(before & (~now | (body[f"first{index}"] < first)),
                                               body[f"first{index}"], first)),
                joined[f"last{index}"].eq(Mux(before & (~now | (body[f"last{index}"] > last)),
                                              body[f"last{index}"], last)),
            ]
        m.d.comb += joined.local0.eq(ranges["local0"])
        in_loop, taken = self.i.payload.in_loop, trackers["simd"].push
        with m.If(taken):
            m.d.sync += body.eq(Mux(in_loop & ~self.i.payload.loop_last, joined.as_value(), 0))
        m.d.comb += trackers["simd"].ranges.eq(joined)
        with m.If(in_loop & ~self.i.payload.loop_last):
            m.d.comb += [trackers["simd"].ranges.accumulators0.eq(0), trackers["simd"].ranges.range1.eq(0)]

    def _queue(self, m: Module, name: str, trackers: dict, swaps) -> UnitQueue:
        """One unit's queue, its counters filled from the trackers and counted down by the pulses."""
        waits, pulses, widths = {}, [], {}
        for other in watched_by(self._arch, name):
            waits[other], widths[other] = trackers[other].wait, len(trackers[other].count)
            pulses.append(getattr(self, f"{other}_done"))
        if name == "mat_mul":
            waits["load_weight"], widths["load_weight"] = (trackers["load_weight"].count,
                                                           len(trackers["load_weight"].count))
            pulses.append(self.load_weight_done)
        if name == "load_weight":
            waits[SWAP], widths[SWAP] = swaps, len(swaps)
            pulses.append(self.swapped)
        m.submodules[f"{name}_queue"] = queue = UnitQueue(self._layouts[name], widths, UNITS[name].queue)
        m.d.comb += [*fill_operation(name, queue.i.payload.operation, self.i.payload), queue.pulses.eq(Cat(*pulses))]
        for (other, wait), pulse in zip(waits.items(), pulses, strict=True):
            m.d.comb += queue.i.payload.waits[other].eq(wait - (pulse & (wait != 0)))
        wiring.connect(m, queue.o, wiring.flipped(getattr(self, name)))
        return queue

    def _program_counters(self, m: Module, name: str, tracker: Tracker) -> None:
        m.submodules[f"{name}_pcs"] = pcs = fifo.SyncFIFOBuffered(width=32, depth=tracker.depth)
        m.d.comb += [pcs.w_en.eq(tracker.push), pcs.w_data.eq(self.i.payload.program_counter),
                     pcs.r_en.eq(tracker.done), getattr(self, f"{name}_program_counter").eq(pcs.r_data)]
