# SPDX-License-Identifier: Apache-2.0
"""The scheduler: layers become one list of LIR operations, each layer with the tiling that was chosen for it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from weft.compiler import lir
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.lir_table import LirTable
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.progress import each
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.emit import LayerEmitter, Pools
from weft.compiler.scheduler.interleave import SIMD_CYCLES, Paces, interleave
from weft.compiler.scheduler.length import check_length, most_instructions
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class Schedule:
    """LIR ``operations`` in program order; ``layers`` [operations] has the number of each one's layer."""

    operations: tuple[lir.Operation, ...]
    layers: np.ndarray

    @cached_property
    def table(self) -> LirTable:
        """The operations as arrays."""
        return LirTable.of(self.operations)

    def ordered(self, order: np.ndarray) -> Schedule:
        """Return the same operations in another ``order``, indices of operations."""
        changed = Schedule(tuple([self.operations[index] for index in order.tolist()]), self.layers[order])
        changed.__dict__["table"] = self.table.ordered(order)  # what would be made of the operations again
        return changed

    def text(self) -> str:
        """Return the operations as text, one a line."""
        return lir.program_text(self.operations)


def schedule(numbers: Numbers, layout: MemoryPlan, arch: Arch) -> Schedule:
    """Return the operations of all layers, layer after layer, before interleaving."""
    return schedule_layers(numbers, layout, arch, 0, len(layout.shapes))


def schedule_layers(numbers: Numbers, layout: MemoryPlan, arch: Arch, first: int, end: int) -> Schedule:
    """Return the operations of the layers ``first`` to before ``end``, as if the program began there."""
    operations: list[lir.Operation] = []
    counts: list[int] = []
    pools = Pools(Pool(arch.local_depth), Pool(arch.accumulator_depth))
    copy = layout.copy.base if layout.copy is not None else None
    for place in layout.local.values():
        if place.first < first <= place.last:
            pools.local.hold(Buffer(place.base, place.size))
    shapes, plans = layout.shapes[first:end], layout.plans[first:end]
    layers = each([shape.layer for shape in shapes])
    for number, (_, shape, plan) in enumerate(zip(layers, shapes, plans, strict=True), first):
        for place in layout.local.values():
            if place.first == number:
                pools.local.hold(Buffer(place.base, place.size))
        before = len(operations)
        emitter = LayerEmitter(shape, plan, numbers.ways(number), layout.homes, layout.residents, pools, copy)
        operations += itertools.islice(emitter.operations(), most_instructions(arch) + 1 - before)
        counts.append(len(operations) - before)
        check_length(len(operations), arch)
        for place in layout.local.values():
            if place.last == number:
                pools.local.release(Buffer(place.base, place.size))
    return Schedule(tuple(operations), np.repeat(np.arange(first, end), counts))


def interleaved(plain: Schedule, arch: Arch, choices: Choices = FORMULA) -> Schedule:
    """Return the same operations in the order in which they start; see ``interleave.py``."""
    fetch = None if choices.fetch_pace is None and not choices.fetch_paces else _paces(
        plain.layers, choices.fetch_paces, choices.fetch_pace or 2)
    simd = _paces(plain.layers, choices.paces, 2 * SIMD_CYCLES) if choices.paces else None
    return plain.ordered(interleave(plain.table, arch, Paces(simd, fetch)))


def _paces(layers: np.ndarray, chosen: Mapping[int, int], usual: int) -> np.ndarray:
    """Return the pace of each operation, by its layer."""
    of_layers = np.full(int(layers.max(initial=0)) + 1, usual)
    for number, pace in chosen.items():
        if number < len(of_layers):
            of_layers[number] = pace
    return np.asarray(of_layers[layers])
