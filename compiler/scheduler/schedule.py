"""The scheduler: layers -> one list of LIR, each layer with the tiling that was chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler import lir
from weft.compiler.memory.layout import Layout
from weft.compiler.quantize.points import Points
from weft.compiler.scheduler.emit import LayerEmitter
from weft.compiler.scheduler.interleave import interleave
from weft.compiler.scheduler.shape import LayerShape
from weft.compiler.scheduler.tiling import Plan
from weft.hw.arch import Arch


@dataclass(frozen=True)
class Schedule:
    """``operations`` in program order; ``layers`` [operations]: the number of each one's layer."""

    operations: tuple[lir.Operation, ...]
    layers: np.ndarray


def schedule(shapes: Sequence[LayerShape], plans: Sequence[Plan], points: Points, layout: Layout) -> Schedule:
    """Layer after layer."""
    operations: list[lir.Operation] = []
    counts: list[int] = []
    for shape, plan, numbers in zip(shapes, plans, points.layers, strict=True):
        before = len(operations)
        operations += LayerEmitter(shape, plan, numbers, layout.variables, layout.residents).operations()
        counts.append(len(operations) - before)
    return Schedule(tuple(operations), np.repeat(np.arange(len(counts)), counts))


def interleaved(plain: Schedule, arch: Arch) -> Schedule:
    """The same operations in the order in which they start; see interleave.py."""
    order = interleave(plain.operations, arch)
    return Schedule(tuple(plain.operations[index] for index in order), plain.layers[order])
