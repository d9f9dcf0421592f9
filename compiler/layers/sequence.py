# SPDX-License-Identifier: Apache-2.0
"""The sequence of layers: which ones wait for which, and what sequence choices make of that of the formulas.

Layers have the numbers of the formulas' sequence, ``passes/order.py`` and ``beside.py``, wherever they run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.var import Var


def sequence(count: int, moved: Mapping[int, int]) -> tuple[int, ...]:
    """Return the numbers of ``count`` layers in the order in which they run.

    ``moved``: number -> place, of layers that do not keep the place of their number. Of several with one place the one
    that keeps it comes first, then the others by their numbers."""
    return tuple(sorted(range(count), key=lambda number: (moved.get(number, number), number in moved, number)))


def places(order: Sequence[int]) -> tuple[int, ...]:
    """Return the place of each layer in ``order``, by number."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def predecessors(layers: Sequence[Layer], lanes: int) -> tuple[frozenset[int], ...]:
    """Return, for each layer, the numbers of those before it that have to stay before it.

    One of both writes memory that the other one reads or writes. ``lanes``: the channels of a tile."""
    touching: dict[str, list[tuple[int, Var, bool]]] = defaultdict(list)
    found: list[frozenset[int]] = []
    for number, layer in enumerate(layers):
        own = [*((var, False) for var in layer.inputs), *((var, True) for var in layer.outputs)]
        found.append(frozenset(other for var, writes in own for other, touched, wrote in touching[var.root]
                               if (writes or wrote) and _overlap(var, touched, lanes)))
        for var, writes in own:
            touching[var.root].append((number, var, writes))
    return tuple(found)


def _overlap(first: Var, second: Var, lanes: int) -> bool:
    """Tell whether two Vars of one root may have memory in common: parts of other channel tiles have not."""
    if first.part is None or second.part is None:
        return True
    return (first.first_tile < second.first_tile + second.tiles(lanes)
            and second.first_tile < first.first_tile + first.tiles(lanes))


def first_broken(order: Sequence[int], before: Sequence[frozenset[int]]) -> tuple[int, int] | None:
    """Return the numbers of a layer and of one of its predecessors that comes later in ``order``; None for none."""
    where = places(order)
    return next(((number, other) for number in order for other in sorted(before[number])
                 if where[other] > where[number]), None)
