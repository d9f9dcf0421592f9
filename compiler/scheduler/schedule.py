# SPDX-License-Identifier: Apache-2.0
"""The scheduler: layers become one list of LIR operations, each layer with the tiling that was chosen for it."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler import lir
from weft.compiler.choices import FORMULA, Choices
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.progress import each
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.emit import Exchange, LayerEmitter, Pools
from weft.compiler.scheduler.interleave import SIMD_CYCLES, interleave
from weft.compiler.scheduler.length import check_length, most_instructions
from weft.compiler.scheduler.pool import Buffer, Pool
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class Schedule:
    """LIR ``operations`` in program order; ``layers`` [operations] has the number of each one's layer."""

    operations: tuple[lir.Operation, ...]
    layers: np.ndarray

    def text(self) -> str:
        """Return the operations as text, one a line."""
        return lir.program_text(self.operations)


def schedule(numbers: Numbers, layout: MemoryPlan, arch: Arch) -> Schedule:
    """Return the operations of all layers, layer after layer, before interleaving."""
    return schedule_layers(numbers, layout, arch, 0, len(layout.shapes))


def schedule_layers(numbers: Numbers, layout: MemoryPlan, arch: Arch, first: int, end: int,
                    resting: Collection[int] = (), exchanges: Sequence[Exchange] | None = None) -> Schedule:
    """Return the operations of the layers ``first`` to before ``end``, as if the program began there.

    Of layers in which the core is ``resting`` only the tables are loaded. ``exchanges`` [layers]: what goes from core
    to core."""
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
        emitter = LayerEmitter(shape, plan, numbers.ways(number), layout.homes, layout.residents, pools, copy,
                               exchanges[number] if exchanges else None)
        emitted = emitter.tables() if number in resting else emitter.operations()
        operations += itertools.islice(emitted, most_instructions(arch) + 1 - before)
        counts.append(len(operations) - before)
        check_length(len(operations), arch)
        for place in layout.local.values():
            if place.last == number:
                pools.local.release(Buffer(place.base, place.size))
    return Schedule(tuple(operations), np.repeat(np.arange(first, end), counts))


def interleaved(plain: Schedule, arch: Arch, choices: Choices = FORMULA) -> Schedule:
    """Return the same operations in the order in which they start; see ``interleave.py``."""
    paces = None
    if choices.paces:
        of_layers = np.full(int(plain.layers.max(initial=0)) + 1, 2 * SIMD_CYCLES)
        for number, pace in choices.paces.items():
            if number < len(of_layers):
                of_layers[number] = pace
        paces = of_layers[plain.layers]
    order = interleave(plain.operations, arch, paces)
    return Schedule(tuple(plain.operations[index] for index in order), plain.layers[order])
