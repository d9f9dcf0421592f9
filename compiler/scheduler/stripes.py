# SPDX-License-Identifier: Apache-2.0
"""Layers in stripes: the steps of layers that read each other's results take turns, as far as rows are there.

So the array works on later rows of one layer while the SIMD unit works on earlier rows of the next one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Product
from weft.compiler.layers.var import Var
from weft.compiler.scheduler.pool import Buffer
from weft.compiler.scheduler.stages import TileStep

AHEAD = 1
"""The steps by which a layer runs ahead of what its reader needs, so that this need not wait for the last rows."""


def turns(layers: Sequence[Layer], steps: Sequence[Sequence[TileStep]]) -> Iterator[tuple[int, int]]:
    """Yield (layer, step) of all ``steps`` [layers] in the order in which they are emitted.

    The last layer whose next step has its rows comes first."""
    needed = [_needed(layers, steps, number) for number in range(len(layers))]
    done = [0] * len(layers)
    while True:
        ready = (number for number in reversed(range(len(layers))) if done[number] < len(steps[number])
                 and all(done[maker] >= count for maker, count in needed[number][done[number]]))
        number = next(ready, None)
        if number is None:
            return
        yield number, done[number]
        done[number] += 1


def divided(needs: Sequence[int], size: int) -> list[Buffer]:
    """Return a memory of ``size`` vectors divided in proportion to ``needs``, which it has room for."""
    found, base = [], 0
    for need in needs:
        found.append(Buffer(base, need * size // max(sum(needs), 1)))
        base += found[-1].size
    return found


def _needed(layers: Sequence[Layer], steps: Sequence[Sequence[TileStep]], number: int) -> list[list[tuple[int, int]]]:
    """Return [steps of a layer]: each earlier layer that it reads, and how many of its steps must be done before."""
    found: list[list[tuple[int, int]]] = [[] for _ in steps[number]]
    for maker in range(number):
        for save, rows in zip(layers[maker].saves, _finished(layers[maker], steps[maker]), strict=True):
            for var in layers[number].inputs:
                if var.root != save.var.root:
                    continue
                for place, step in enumerate(steps[number]):
                    wanted = _wanted(layers[number], step, var) if var == save.var else var.height
                    count = min(bisect_left(rows, wanted) + 1 + AHEAD, len(rows)) if wanted else 0
                    found[place].append((maker, count if var == save.var else len(rows)))
    return found


def _wanted(layer: Layer, step: TileStep, var: Var) -> int:
    """Return how many rows of a Var a step needs; all of those that are weights or factors."""
    if var == layer.factors or isinstance(layer.core, Product) and var == layer.core.weights:
        return var.height
    own = step.input_tile.rows[1] if var == layer.core.input else 0
    return max(own, step.core.rows[1]) if any(add.input == var for add in layer.adds) else own


def _finished(layer: Layer, steps: Sequence[TileStep]) -> list[list[int]]:
    """Return [saves] of [steps]: how many rows of the Var are whole after each step, in all channel tiles."""
    found: list[list[int]] = []
    for save in layer.saves:
        rows = dict.fromkeys((step.region.tiles for step in steps), 0)
        found.append([])
        for step in steps:
            box = step.core if save.before_pool else step.region
            if step.complete and (step.last or save.before_pool) and box.columns[1] == save.var.width:
                rows[step.region.tiles] = box.rows[1]
            found[-1].append(min(rows.values()))
    return found
