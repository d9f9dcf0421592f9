# SPDX-License-Identifier: Apache-2.0
"""The units as the interlock sees them: they take operations, run for a random time, and pulse ``done`` in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import FETCH_LATENCY, ISSUE_LATENCY, SIMD_ISSUE_LATENCY
from weft.hw.contract.units import UNIT_NAMES, depths, dram_units
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import window_width
from weft.tb.bench.block_models import Model, Source
from weft.tb.bench.block_ports import Ports, from_bits, to_bits
from weft.tb.bench.hazards import ACCUMULATORS, CONFLICTS, Touch, touches_of


def operation_layouts(arch: Arch) -> dict[str, data.StructLayout]:
    """Return unit -> layout of its operation, as the core takes them from the units themselves."""
    on_chip = ("load_weight", "mat_mul", "simd", "move_out", "move_in")
    signals = ("sync",) if arch.sync_counters else ()
    return {unit: operation_layout(arch, unit) for unit in (*on_chip, *dram_units(arch), *signals)}


WINDOWS = 0x5678, 0xDEF0
"""The places of DRAM0's window and of DRAM1's."""
Range = tuple[int, int]
"""The first and the last address."""
FREE_LATENCY = {name: SIMD_ISSUE_LATENCY if name == "simd" else ISSUE_LATENCY for name in UNIT_NAMES}
"""Unit -> cycles from an operation issued to its stream valid, if nothing conflicts and no other queue fetches."""
FETCH_CYCLES = {name: 1 if name == "simd" else 1 + FETCH_LATENCY for name in UNIT_NAMES}
"""Unit -> cycles from one operation taken to the next one there."""


@dataclass(eq=False)
class Issued:
    """One decoded instruction and the cycles of its life. ``range0`` is of local memory or of the accumulators."""

    unit: str
    fields: dict[str, Any]
    range0: Range | None = None
    accumulators0: bool = False
    range1: Range | None = None
    loop: int | None = None
    """The number of the SIMD loop whose body it belongs to."""
    ends: Issued | None = field(default=None, repr=False)
    """The last operation of its loop, or itself. When that is done, this one is done for all others."""
    must: list[Issued] = field(default_factory=list, repr=False)
    """Earlier operations that must have been done in an earlier cycle."""
    may: list[Issued] = field(default_factory=list, repr=False)
    """Earlier operations that it may wait for: as ``must``, with the ranges of a loop taken together."""
    before: Issued | None = field(default=None, repr=False)
    """The operation issued to the same unit before this one."""
    issued: int | None = None
    offered: int | None = None
    started: int | None = None
    done: int | None = None

    def accesses(self) -> list[tuple[Touch, Range]]:
        """Return the accesses by the table of ``hazards.py``, with their ranges."""
        found = []
        for touch in touches_of(self.unit):
            window = "01"[self.fields["dram1"]] if "dram1" in self.fields else touch.memory
            if touch.operand == 1 and self.range1 and window == touch.memory:
                found.append((touch, self.range1))
            if touch.operand == 0 and self.range0 and (touch.memory == ACCUMULATORS) == self.accumulators0:
                found.append((touch, self.range0))
        return found


def overlap(left: list[tuple[Touch, Range]], right: list[tuple[Touch, Range]]) -> bool:
    return any((a, b) in CONFLICTS and first[0] <= second[1] and second[0] <= first[1]
               for a, first in left for b, second in right)


def hull(operations: list[Issued]) -> list[tuple[Touch, Range]]:
    """Return all accesses of a loop's body, each with the range from its first to its last address."""
    ranges: dict[Touch, Range] = {}
    for operation in operations:
        for access, (first, last) in operation.accesses():
            low, high = ranges.get(access, (first, last))
            ranges[access] = min(low, first), max(high, last)
    return list(ranges.items())


def find_waits(program: list[Issued]) -> None:
    """Fill in ``must``, ``may``, ``before`` and ``ends``."""
    loops: dict[int, list[Issued]] = {}
    for operation in program:
        if operation.loop is not None:
            loops.setdefault(operation.loop, []).append(operation)
    hulls = {number: hull(body) for number, body in loops.items()}
    newest: dict[str, Issued] = {}
    for index, operation in enumerate(program):
        operation.ends = operation if operation.loop is None else loops[operation.loop][-1]
        operation.before, newest[operation.unit] = newest.get(operation.unit), operation
        ours = operation.accesses()
        for earlier in program[max(0, index - 200):index]:
            if earlier.unit == operation.unit:
                continue
            if overlap(ours, earlier.accesses()):
                operation.must.append(earlier.ends or earlier)
            if overlap(ours, earlier.accesses() if earlier.loop is None else hulls[earlier.loop]):
                operation.may.append(earlier.ends or earlier)


class IssueSource(Source):
    """A model that gives the program to the interlock.

    ``ready`` must say exactly whether queue and tracker have room."""

    def __init__(self, program: list[Issued], layout: Any, units: Units, rng: Random, rate: float) -> None:
        super().__init__("i", [to_bits(layout, operation.fields) for operation in program], rng, rate)
        self.program, self.units = program, units

    def watch(self, ports: Ports) -> None:
        if self.offered is not None:
            unit = self.program[len(self.taken)].unit
            queued, outstanding = self.units.queued[unit], self.units.outstanding[unit]
            most = depths(self.units.arch, unit)
            room = queued < most.queue and outstanding < most.outstanding
            assert ports["i.ready"] == room, f"{unit}, cycle {ports.cycle}: a hazard must not hold the decoder"
        super().watch(ports)

    def on_taken(self, ports: Ports, item: int) -> None:
        operation = self.program[len(self.taken) - 1]
        operation.issued = ports.cycle
        self.units.coming[operation.unit].append(operation)
        self.units.changes.append((operation.unit, 1, 1))


def known(cycle: int | None) -> int:
    """Return the cycle of an event that has happened."""
    assert cycle is not None, "it has not happened"
    return cycle


class Units(Model):
    """All units of a machine, by their ``layouts``.

    ``busy_cycles``: the longest time of an operation; ``rate``: how readily they take one."""

    def __init__(self, arch: Arch, program: list[Issued], layouts: dict[str, Any], expected: Any, rng: Random,
                 busy_cycles: int, rate: float) -> None:
        self.arch = arch
        self.program, self.layouts, self.expected, self.rng = program, layouts, expected, rng
        self.busy_cycles, self.rate = busy_cycles, rate
        self.coming: dict[str, deque[Issued]] = {name: deque() for name in layouts}
        self.running: dict[str, deque[tuple[Issued, int]]] = {name: deque() for name in layouts}
        self.queued = dict.fromkeys(layouts, 0)
        self.outstanding = dict.fromkeys(layouts, 0)
        self.behind_dram = [name for name in layouts if name.startswith("dram")]
        self.changes: list[tuple[str, int, int]] = []
        """(Unit, change of queued, change of outstanding) at the end of the cycle."""
        self.faulting: int | None = None
        """Which of the units behind a DRAM port is asked for its program counter."""

    @property
    def finished(self) -> bool:
        return all(operation.done is not None for operation in self.program)

    def drive(self, ports: Ports) -> None:
        for unit, queued, outstanding in self.changes:
            self.queued[unit] += queued
            self.outstanding[unit] += outstanding
        self.changes.clear()
        for name in self.layouts:
            ports[f"{name}.ready"] = self.rng.random() < self.rate
            running = self.running[name]
            ends = bool(running) and running[0][1] <= ports.cycle
            ports[f"{name}_done"] = ends
            if ends:
                running.popleft()[0].done = ports.cycle
                self.changes.append((name, 0, -1))
        self.faulting = next((index for index, name in enumerate(self.behind_dram) if ports[f"{name}_done"]), None)
        ports["windows"] = WINDOWS[0] | WINDOWS[1] << window_width(self.arch)
        ports["faulting"] = 0 if self.faulting is None else 1 << self.faulting

    def watch(self, ports: Ports) -> None:
        assert ports["idle"] == (not any(self.outstanding.values()))
        if self.faulting is not None:
            self._program_counter(ports, self.behind_dram[self.faulting])
        for name in self.layouts:
            if not ports[f"{name}.valid"]:
                continue
            assert self.coming[name], f"{name} is offered an operation that was never issued"
            operation = self.coming[name][0]
            if operation.offered is None:
                self._offered(ports, name, operation)
            if ports[f"{name}.ready"]:
                self._start(ports, name, self.coming[name].popleft())

    def _offered(self, ports: Ports, name: str, operation: Issued) -> None:
        now = operation.offered = ports.cycle
        for earlier in operation.must:
            when = earlier.done
            assert when is not None and when < now, (
                f"{name} starts at {now}, but {earlier.unit} is done at {when}: {operation.fields} {earlier.fields}")
        seen = [earlier.done for earlier in operation.may]
        there = [known(operation.issued) + FREE_LATENCY[name],
                 *([known(operation.before.started) + FETCH_CYCLES[name]] if operation.before else [])]
        free = [max(there) + self.turns(name), *(when + 1 for when in seen if when is not None)]
        assert now <= max(free), f"{name} could have started at {max(free)}, not {now}"
        found = from_bits(self.layouts[name], ports[f"{name}.payload"])
        wrong = {key: (found[key], value) for key, value in self.expected(operation).items() if found[key] != value}
        assert not wrong, f"{name}: (found, right) {wrong}"

    def turns(self, name: str) -> int:
        """Return how many other queues may fetch from the same memory first."""
        return 0 if name == "simd" else len(self.layouts) - 2

    def _start(self, ports: Ports, name: str, operation: Issued) -> None:
        now = operation.started = ports.cycle
        self.changes.append((name, -1, 0))
        earliest = self.running[name][-1][1] if self.running[name] else now
        self.running[name].append((operation, max(earliest, now) + 1 + self.rng.randrange(self.busy_cycles)))

    def _program_counter(self, ports: Ports, name: str) -> None:
        done = next(each for each in self.program if each.unit == name and each.done == ports.cycle)
        assert ports["faulting_program_counter"] == done.fields["program_counter"]
        if "dram1" in done.fields:
            assert ports["faulting_dram1"] == done.fields["dram1"]
