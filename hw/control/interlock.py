# SPDX-License-Identifier: Apache-2.0
"""The interlock keeps the sequential meaning: an operation starts when earlier ones that conflict with it are done.

For every unit a *tracker* remembers the address ranges of its operations that were issued and are not done. A new
operation is compared with all of them in one cycle. For each other unit it notes the newest operation that it
conflicts with. Then it waits in its own unit's queue until those are done, so that a conflict never holds the
decoder. Each unit runs its own operations in order. Weights have no address range: LoadWeight and MatMul take turns
among themselves (``turns`` of an operation, which the decoder counts)."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.units import UNIT_NAMES, depths, dram_units, faulting_depth, number_width, unit_names
from weft.hw.control.issue import fill_queued, issue_layout, queued_layout
from weft.hw.control.tracker import Tracker, range_layout, range_of, watched_by
from weft.hw.control.unit_queue import OperationMemory, UnitQueue
from weft.hw.parts.operation_table import fill_operation
from weft.hw.parts.operations import window_width


def queued_together(arch: Arch) -> tuple[str, ...]:
    """Return the units whose queued operations share one memory.

    SIMD has a memory of its own, since short SIMD instructions need one operation a cycle."""
    return tuple(name for name in unit_names(arch) if name != "simd")


def window_of(unit: str, operation, windows):
    """Return the place of the DRAM window that an operation of a DRAM unit moves to or from, in blocks of 64 KiB."""
    if "dram1" in operation.shape().members:
        return Mux(operation.dram1, windows[1], windows[0])
    return windows[int(unit.startswith("dram1"))]


class Interlock(wiring.Component):
    """``i``: decoded instructions in program order, one a cycle; out come, for each unit, operations that may start.

    Each unit's ``done`` pulses come back, in order. ``idle``: nothing is outstanding. ``windows``: the decoder's; every
    operation of a DRAM unit gets its one, as they do not change before ``idle``. ``issued`` and ``started``: bit k
    pulses when unit k of ``UNIT_NAMES`` is issued an operation, and when it takes one. ``faulting`` (of ``dram_units``,
    one-hot) selects a unit; ``faulting_program_counter`` is the number of the unit's oldest outstanding instruction,
    and ``faulting_dram1`` (on a shared port) says whether this one is in DRAM1.

    Latency: ISSUE_LATENCY (SIMD: SIMD_ISSUE_LATENCY) from ``i`` taken to the unit's stream valid, if nothing conflicts
    and no other queue fetches. From one operation of a unit taken to the next it is 1 + FETCH_LATENCY (SIMD: 1). With
    register slices it is one cycle more, except for SIMD."""

    def __init__(self, arch: Arch, layouts: dict[str, data.StructLayout]) -> None:
        self._arch, self._layouts = arch, layouts
        super().__init__({
            "i": In(stream.Signature(issue_layout(arch))), "windows": In(data.ArrayLayout(window_width(arch), 2)),
            "idle": Out(1), "issued": Out(number_width(arch)), "started": Out(number_width(arch)),
            **{name: Out(stream.Signature(layout)) for name, layout in layouts.items()},
            **{f"{name}_done": In(1) for name in unit_names(arch)},
            "faulting": In(len(dram_units(arch))), "faulting_program_counter": Out(32),
            **({"faulting_dram1": Out(1)} if arch.shared_dram else {}),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a tracker and a queue for each unit, the queues' memories, and the program counters."""
        m = Module()
        ranges = range_layout(self.i.payload.shape())
        names = unit_names(self._arch)
        trackers = {name: Tracker(self._arch, name, ranges) for name in names}
        for name, tracker in trackers.items():
            m.submodules[f"{name}_tracker"] = tracker
            m.d.comb += [tracker.done.eq(getattr(self, f"{name}_done")), tracker.new_unit.eq(self.i.payload.unit),
                         *(tracker.new[field].eq(value) for field, value in range_of(self.i.payload).items())]
        issued, started = ({UNIT_NAMES.index(name): bit for name, bit in bits.items()} for bits in (
            {name: tracker.push for name, tracker in trackers.items()},
            {name: getattr(self, name).valid & getattr(self, name).ready for name in names}))
        m.d.comb += [
            self.idle.eq(Cat(*(tracker.empty for tracker in trackers.values())).all()),
            *(self.issued[index].eq(bit) for index, bit in issued.items()),
            *(self.started[index].eq(bit) for index, bit in started.items()),
        ]
        self._track_ranges(m, trackers)
        queues = {name: self._queue(m, name, trackers) for name in names}
        self._accept(m, trackers, queues)
        for together in (queued_together(self._arch), ("simd",)):
            self._store(m, together, queues)
        for name in dram_units(self._arch):
            operation = getattr(self, name).payload
            m.d.comb += operation.window.eq(window_of(name, operation, self.windows))
        self._program_counters(m, trackers)
        return m

    def _accept(self, m: Module, trackers: dict, queues: dict) -> None:
        """Take an instruction when its unit's tracker and queue have room."""
        fits = {name: self.i.payload.unit[name] & queues[name].room & trackers[name].room for name in trackers}
        m.d.comb += self.i.ready.eq(Cat(*fits.values()).any())
        for name, fit in fits.items():
            taken = self.i.valid & fit
            m.d.comb += [queues[name].reserve.eq(taken), trackers[name].push.eq(taken)]

    def _track_ranges(self, m: Module, trackers: dict) -> None:
        """Give each tracker the ranges of its operation.

        In a SIMD loop the last instruction of the body carries the ranges of the whole body."""
        ranges, width = range_of(self.i.payload), self._arch.accumulator_address_width
        for name, tracker in trackers.items():
            if name != "simd" or not self._arch.simd_loop_depth:
                m.d.comb += [tracker.ranges[field].eq(value) for field, value in ranges.items()]
        if not self._arch.simd_loop_depth:
            return
        body = Signal(trackers["simd"].ranges.shape(), name="loop_ranges")  # of the body so far
        joined = Signal.like(body)
        for index, valid in ((0, "accumulators0"), (1, "range1")):
            first, last = ranges[f"first{index}"], ranges[f"last{index}"]
            before, now = body[valid], ranges[valid]
            lowest, highest = body[f"first{index}"][:width], body[f"last{index}"][:width]  # of the accumulators
            m.d.comb += [
                joined[valid].eq(before | now),
                joined[f"first{index}"].eq(Mux(before & (~now | (lowest < first[:width])), lowest, first)),
                joined[f"last{index}"].eq(Mux(before & (~now | (highest > last[:width])), highest, last)),
            ]
        m.d.comb += joined.local0.eq(ranges["local0"])
        in_loop, taken = self.i.payload.in_loop, trackers["simd"].push
        with m.If(taken):
            m.d.sync += body.eq(Mux(in_loop & ~self.i.payload.loop_last, joined.as_value(), 0))
        m.d.comb += trackers["simd"].ranges.eq(joined)
        with m.If(in_loop & ~self.i.payload.loop_last):
            m.d.comb += [trackers["simd"].ranges.accumulators0.eq(0), trackers["simd"].ranges.range1.eq(0)]

    def _queue(self, m: Module, name: str, trackers: dict) -> UnitQueue:
        """Return one unit's queue: trackers fill its waits, and what is done ends them."""
        watched = watched_by(self._arch, name)
        m.submodules[f"{name}_queue"] = queue = UnitQueue(
            depths(self._arch, name).queue, {other: trackers[other].depth for other in watched}, refill=name == "simd")
        m.d.sync += queue.push.eq(queue.reserve)
        port = getattr(self, name)
        m.d.comb += [
            *(queue.waits[other].eq(trackers[other].wait) for other in watched),
            *(queue.events[other].eq(trackers[other].event) for other in watched),
        ]
        if self._arch.register_slices and name != "simd":
            may_start = Signal(name=f"{name}_may_start")  # once nothing is waited for, that stays so
            m.d.sync += may_start.eq(queue.valid & ~(port.valid & port.ready))
            m.d.comb += [port.valid.eq(may_start), queue.ready.eq(port.ready & may_start)]
        else:
            m.d.comb += [port.valid.eq(queue.valid), queue.ready.eq(port.ready)]
        return queue

    def _store(self, m: Module, names: tuple[str, ...], queues: dict) -> None:
        """Make the memory that keeps the queued operations of these units."""
        layout = queued_layout(self._arch, names)
        memory = OperationMemory(layout, tuple(depths(self._arch, name).queue for name in names))
        m.submodules["simd_operations" if "simd" in names else "operations"] = memory
        m.d.comb += fill_queued(memory.operation, self.i.payload)
        for index, name in enumerate(names):
            queue = queues[name]
            m.d.comb += [
                memory.write[index].eq(queue.reserve), memory.place[index].eq(queue.place),
                memory.wanted[index].eq(queue.wanted), memory.next[index].eq(queue.next),
                queue.fetch.eq(memory.fetch[index]),
                *fill_operation(self._arch, name, getattr(self, name).payload, memory.heads[index]),
            ]

    def _program_counters(self, m: Module, trackers: dict) -> None:
        """Keep the program counters of the DRAM units' outstanding operations, on a shared port with their windows."""
        units = dram_units(self._arch)
        depth, place = faulting_depth(self._arch), self.i.payload.program_counter
        if self._arch.shared_dram:
            place = Cat(place, self.i.payload.dram1)
        m.submodules.program_counters = memory = Memory(shape=len(place), depth=len(units) * depth, init=[])
        write, read = memory.write_port(), memory.read_port(domain="comb")
        m.d.comb += self.faulting_program_counter.eq(read.data)
        if self._arch.shared_dram:
            m.d.comb += self.faulting_dram1.eq(read.data[-1])
        m.d.sync += [write.data.eq(place), write.en.eq(0)]
        for index, name in enumerate(units):
            tracker = trackers[name]
            with m.If(tracker.push):  # written a cycle later: nobody is to blame before its unit has it
                m.d.sync += [write.en.eq(1), write.addr.eq(index * depth + tracker.newest)]
            with m.If(self.faulting[index]):
                m.d.comb += read.addr.eq(index * depth + tracker.event.place)
