"""The scheduler: layers become one list of LIR operations, each layer with the tiling that was chosen for it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from weft.compiler import lir
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.progress import each
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.emit import LayerEmitter, Pools
from weft.compiler.scheduler.interleave import interleave
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
    operations: list[lir.Operation] = []
    counts: list[int] = []
    pools = Pools(Pool(arch.local_depth), Pool(arch.accumulator_depth))
    copy = layout.copy.base if layout.copy is not None else None
    layers = each([shape.layer for shape in layout.shapes])
    for number, (_, shape, plan) in enumerate(zip(layers, layout.shapes, layout.plans, strict=True)):
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
    return Schedule(tuple(operations), np.repeat(np.arange(len(counts)), counts))


def interleaved(plain: Schedule, arch: Arch) -> Schedule:
    """Return the same operations in the order in which they start; see ``interleave.py``."""
    order = interleave(plain.operations, arch)
    return Schedule(tuple(plain.operations[index] for index in order), plain.layers[order])
