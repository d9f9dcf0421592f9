# SPDX-License-Identifier: Apache-2.0
"""The scheduler: layers become one list of LIR operations, each layer with the tiling that was chosen for it."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.compiler import lir
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.lir_table import LirTable
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.progress import each
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.emit import Exchange, LayerEmitter, Pools
from weft.compiler.scheduler.interleave import SIMD_CYCLES, Paces, interleave
from weft.compiler.scheduler.length import check_length, most_instructions
from weft.compiler.scheduler.load import WeightSource
from weft.compiler.scheduler.mat_muls import Drafts
from weft.compiler.scheduler.merge import merged
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.compiler.scheduler.rows import Emission, Emitted, MatMuls, table_of, within
from weft.compiler.scheduler.stripes import divided, turns
from weft.hw.contract.arch import Arch

FEW_PACE = 2.4
"""The half cycles that a beat of a load counts in layers of few pixels.

Their loads stand in the queues of both ports all the time. An earlier place in the program would have them wait in the
decoder, in front of the array's instructions."""


@dataclass(frozen=True)
class Schedule:
    """LIR operations in program order, as a ``table``; ``layers`` [operations] has the number of each one's layer.

    ``few``: the numbers of layers of few pixels, for which nearly all cycles are loads."""

    table: LirTable
    layers: np.ndarray
    few: frozenset[int] = frozenset()

    @staticmethod
    def of(operations: Sequence[lir.Operation], layers: np.ndarray) -> Schedule:
        """Return the schedule of operations in program order; ``layers`` [operations]: each one's layer."""
        return Schedule(LirTable.of(operations), layers)

    @property
    def count(self) -> int:
        """The number of operations."""
        return self.table.count

    @cached_property
    def operations(self) -> tuple[lir.Operation, ...]:
        """The operations as objects; they are made when asked for, which takes some microseconds for each."""
        return tuple(self.table.operations())

    def ordered(self, order: np.ndarray) -> Schedule:
        """Return the same operations in another ``order``, indices of operations."""
        return Schedule(self.table.ordered(order), self.layers[order])

    def text(self) -> str:
        """Return the operations as text, one a line."""
        return lir.program_text(self.operations)


def schedule(numbers: Numbers, layout: MemoryPlan, arch: Arch) -> Schedule:
    """Return the operations of all layers, layer after layer, before interleaving."""
    return schedule_layers(numbers, layout, arch, 0, len(layout.shapes))


def schedule_layers(numbers: Numbers, layout: MemoryPlan, arch: Arch, first: int, end: int,
                    resting: Collection[int] = (), exchanges: Sequence[Exchange] = (),
                    drafts: Mapping[int, Drafts] | None = None) -> Schedule:
    """Return the operations of the layers ``first`` to before ``end``, as if the program began there.

    Layers that run together are merged, if both are among them. Of layers in which the core is ``resting`` only the
    tables are loaded. ``exchanges`` [layers]: what goes from core to core, none if empty. ``drafts``: those of layers
    by number, which grow; other layouts of the same layers may go on with them."""
    found: list[Alone | Schedule] = []
    behind = 0
    free = Free(numbers, layout, arch, first, resting, exchanges, drafts)
    shapes = each([shape.layer for shape in layout.shapes[first:end]])
    for group in _groups(layout, first, end):
        for _ in group:
            next(shapes)  # tells progress
        if len(group) == 1:
            found.append(free.alone(group[0], behind))
        else:
            together = free.in_stripes if group[1] in layout.stripes else free.beside
            found.append(together(*group, behind=behind))
        behind += found[-1].count
        check_length(behind, arch)
    parts = [*_tabled(found)]
    layers = np.concatenate([np.zeros(0, np.int64), *(part.layers for part in parts)])
    return Schedule(LirTable.joined([part.table for part in parts]), layers, frozenset(free.few))


@dataclass(frozen=True)
class Alone:
    """The ``count`` operations that a layer emits which has both memories for itself."""

    number: int
    emission: Emission
    count: int


def _tabled(found: Iterable[Alone | Schedule]) -> Iterator[Schedule]:
    """Yield schedules in order; those of neighbours that run alone are one, which takes fewer calls of numpy."""
    for _, run in itertools.groupby(found, type):
        parts = [*run]
        if alone := [part for part in parts if isinstance(part, Alone)]:
            yield Schedule(table_of([part.emission for part in alone]),
                           np.repeat([part.number for part in alone], [part.count for part in alone]))
        yield from (part for part in parts if isinstance(part, Schedule))


def _groups(layout: MemoryPlan, first: int, end: int) -> list[list[int]]:
    """Return the layers ``first`` to before ``end``, those that run together in one list."""
    found: list[list[int]] = []
    for number in range(first, end):
        if found and (number in layout.beside or number in layout.stripes):
            found[-1].append(number)
        else:
            found.append([number])
    return found


class Free:
    """The free vectors of both memories from layer to layer, and who takes them.

    ``first``: the layer that the program begins with; the others: see :func:`schedule_layers`."""

    def __init__(self, numbers: Numbers, layout: MemoryPlan, arch: Arch, first: int, resting: Collection[int],
                 exchanges: Sequence[Exchange], drafts: Mapping[int, Drafts] | None = None) -> None:
        self.numbers, self.layout, self.arch, self.drafts = numbers, layout, arch, drafts
        self.resting, self.exchanges = resting, exchanges
        self.pools = Pools(Pool(arch.local_depth), Pool(arch.accumulator_depth))
        self.few: set[int] = set()
        self.source = WeightSource(None if layout.copy is None else layout.copy.base)
        self.begins: dict[int, list[Buffer]] = defaultdict(list)
        self.ends: dict[int, list[Buffer]] = defaultdict(list)
        for place in layout.local.values():
            buffer = Buffer(place.base, place.size)
            self.begins[place.first].append(buffer)
            self.ends[place.last].append(buffer)
            if place.first < first <= place.last:
                self.pools.local.hold(buffer)

    def alone(self, number: int, behind: int) -> Alone:
        """Return the operations of a layer that has both memories for itself, ``behind`` so many others."""
        self._hold(number)
        found = self._emitted(number, self.pools, behind)
        self._release(number)
        return Alone(number, found, sum(found.counts))

    def beside(self, leader: int, *others: int, behind: int) -> Schedule:
        """Return the operations of layers that share both memories, merged, ``behind`` so many operations before.

        ``others`` run one after another beside the layer ``leader``."""
        share, numbers = self.layout.beside[others[0]], (leader, *others)
        # The first accumulators are those of the leader's own operands.
        taken = Buffer(0, share.local), Buffer(self.arch.accumulator_depth - share.accumulators, share.accumulators)
        for number in numbers:
            self._hold(number)
        for pool, buffer in zip(self.pools, taken, strict=True):
            pool.hold(buffer)
        own = Pools(*(Pool(buffer.size, buffer.base) for buffer in taken))
        parts = [table_of([self._emitted(number, pools, behind)])
                 for number, pools in ((leader, self.pools), *((number, own) for number in others))]
        for pool, buffer in zip(self.pools, taken, strict=True):
            pool.release(buffer)
        for number in numbers:
            self._release(number)
        order = merged(parts[0], LirTable.joined(parts[1:]), self.arch)
        layers = np.repeat(numbers, [part.count for part in parts])
        return Schedule(LirTable.joined(parts).ordered(order), layers[order])

    def in_stripes(self, *numbers: int, behind: int) -> Schedule:
        """Return the operations of layers whose steps take turns, ``behind`` so many operations before.

        Each has a part of both memories, in which its buffers rotate."""
        for number in numbers:
            self._hold(number)
        plans = [self.layout.plans[number] for number in numbers]
        free = min(self.layout.shapes[number].scratch for number in numbers)
        parts = zip(divided([plan.need.local_total for plan in plans], free),
                    divided([plan.need.accumulator_total for plan in plans], self.arch.accumulator_depth), strict=True)
        emitters = [self._emitter(number, Pools(*(Pool(buffer.size, buffer.base) for buffer in part)))
                    for number, part in zip(numbers, parts, strict=True)]
        due = [np.zeros(len(emitter.steps), np.int64) for emitter in emitters]
        for turn, (place, step) in enumerate(turns([emitter.layer for emitter in emitters],
                                                   [emitter.steps for emitter in emitters])):
            due[place][step] = turn
        tables, times = [], []
        for emitter, own in zip(emitters, due, strict=True):
            emitter.mat_muls.alone = False
            steps: list[int] = []
            tables.append(table_of([emitter.mat_muls.emission(
                within(_noted(emitter, steps), most_instructions(self.arch) - behind))]))
            times.append(own[steps])
        for number in numbers:
            self._release(number)
        order = np.argsort(np.concatenate(times), kind="stable")
        layers = np.repeat(numbers, [table.count for table in tables])
        return Schedule(LirTable.joined(tables).ordered(order), layers[order])

    def _emitted(self, number: int, pools: Pools, behind: int) -> Emission:
        """Return the operations of a layer, as many as a program may have or a few more."""
        emitter = self._emitter(number, pools)
        emitted = emitter.tables() if number in self.resting else emitter.operations()
        return emitter.mat_muls.emission(within(emitted, most_instructions(self.arch) - behind))

    def _emitter(self, number: int, pools: Pools) -> LayerEmitter:
        """Return the emitter of a layer."""
        shape = self.layout.shapes[number]
        self.source = self.source.of_layer(math.prod(shape.layer.output.size), self.arch.array_size)
        if self.source.few:
            self.few.add(number)
        return LayerEmitter(shape, self.layout.plans[number], self.numbers.registers(number),
                            self.layout.homes, self.layout.residents, pools, self.source,
                            self.exchanges[number] if self.exchanges else None,
                            None if self.drafts is None else self.drafts[number])

    def _hold(self, number: int) -> None:
        """Take what tensors that are pinned from this layer on need."""
        for buffer in self.begins[number]:
            self.pools.local.hold(buffer)

    def _release(self, number: int) -> None:
        """Give back what tensors needed that were pinned up to this layer."""
        for buffer in self.ends[number]:
            self.pools.local.release(buffer)


def _noted(emitter: LayerEmitter, steps: list[int]) -> Iterator[Emitted]:
    """Yield what an emitter yields; add the number of each operation's step to ``steps``."""
    for emitted in emitter.operations():
        steps += [emitter.step] * (len(emitted.rows) if isinstance(emitted, MatMuls) else 1)
        yield emitted


def interleaved(plain: Schedule, arch: Arch, choices: Choices = FORMULA) -> Schedule:
    """Return the schedule with its operations in the order in which they start; see ``interleave.py``."""
    chosen = {} if choices.fetch_pace is not None else dict.fromkeys(plain.few, FEW_PACE)
    chosen |= choices.fetch_paces
    fetch = _paces(plain.layers, chosen, choices.fetch_pace or 2) if chosen or choices.fetch_pace else None
    simd = _paces(plain.layers, choices.paces, 2 * SIMD_CYCLES) if choices.paces else None
    return plain.ordered(interleave(plain.table, arch, Paces(simd, fetch)))


def _paces(layers: np.ndarray, chosen: Mapping[int, float], usual: int) -> np.ndarray:
    """Return the pace of each operation, by its layer."""
    of_layers = np.full(int(layers.max(initial=0)) + 1, usual, np.float64)
    for number, pace in chosen.items():
        if number < len(of_layers):
            of_layers[number] = pace
    return np.asarray(of_layers[layers])
