"""The scheduler: layers -> one list of LIR, each layer with the tiling that was chosen for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.compiler import lir
from weft.compiler.memory.layout import Layout
from weft.compiler.quantize.points import Points
from weft.compiler.scheduler.emit import LayerEmitter
from weft.compiler.scheduler.shape import LayerShape
from weft.compiler.scheduler.tiling import Plan


@dataclass(frozen=True)
class Schedule:
    """``operations`` in program order; ``starts[n]`` is the index of layer n's first."""

    operations: tuple[lir.Operation, ...]
    starts: tuple[int, ...]


def schedule(shapes: Sequence[LayerShape], plans: Sequence[Plan], points: Points, layout: Layout) -> Schedule:
    """Layer after layer."""
    operations: list[lir.Operation] = []
    starts: list[int] = []
    for shape, plan, numbers in zip(shapes, plans, points.layers, strict=True):
        starts.append(len(operations))
        operations += LayerEmitter(shape, plan, numbers, layout.variables, layout.residents).operations()
    return Schedule(tuple(operations), tuple(starts))
