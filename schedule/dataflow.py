# SPDX-License-Identifier: Apache-2.0
"""The layers of a compiled network as workloads, and what goes from one to another: boxes of tensors.

A Var lies in the memory of its root, whole or as a part. What a layer reads of a root comes from the workloads that
write it: the range that both have in common, told in the coordinates of either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.var import Var
from weft.compiler.split.touched import touched
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box as TileBox
from weft.schedule.boxes import Box, hull


def elements(box: TileBox, channels: int, lanes: int) -> Box:
    """Return channel tiles and pixels as elements, both ends included."""
    return Box((0, box.tiles[0] * lanes, box.rows[0], box.columns[0]),
               (0, min(box.tiles[1] * lanes, channels) - 1, box.rows[1] - 1, box.columns[1] - 1))


def place_in_root(var: Var, box: Box, lanes: int) -> Box:
    """Return a box of a Var within its root. Raises CompileError for a Var whose pixels have others between them."""
    part = var.part
    if part is None:
        return box
    row, column = divmod(part.offset, part.pitch)
    if part.step != 1 or column + var.width > part.pitch:
        raise refuse(f"tensor {var.name!r}", f"pixels of {part.root!r} with others between them",
                     "tensors that are boxes of the tensor that holds them",
                     "schedule the network up to there (--end), or without its last transposed convolution")
    return moved(box, (0, part.tile * lanes, row, column), 1)


def moved(box: Box, origin: Sequence[int], sign: int) -> Box:
    """Return a box in coordinates that begin (sign -1), or began (sign 1), at ``origin``."""
    lower, upper = (tuple(at + sign * zero for at, zero in zip(corner, origin, strict=True))
                    for corner in (box.lower, box.upper))
    return Box(lower, upper)


@dataclass(frozen=True)
class Work:
    """A workload: the ``box`` of what layer ``layer`` saves as ``output``, made by a core as its workload ``number``.

    A layer that saves twice is two of them; ``is_last``: the one that takes the layer's time. ``reads``: boxes of Vars,
    each Var once."""

    core: int
    number: int
    layer: int
    output: Var
    box: Box
    is_last: bool
    reads: tuple[tuple[Var, Box], ...]


def works_of(cores: Sequence[Mapping[int, LayerShape]], layers: Sequence[Layer], lanes: int) -> list[list[Work]]:
    """Return the workloads [cores], in order; ``cores``: the shapes of the layers of which each computes something.

    Where other parts follow, a part of a tensor has the lanes that fill its last channel tile too. For the machine
    writes whole vectors, and the tensor counts them as channels."""
    roots = {var.name: var for layer in layers for var in layer.vars if var.part is None}
    found: list[list[Work]] = []
    for core, shapes in enumerate(cores):
        works: list[Work] = []
        for number, shape in shapes.items():
            reads = tuple(_joined(touched(shape).reads, lanes).items())
            writes = {var.name: (_filled(var, roots.get(var.root), lanes), box) for var, box in touched(shape).writes}
            for var, box in writes.values():
                works.append(Work(core, len(works), number, var, elements(box, var.channels, lanes),
                                  var.name == shape.layer.output.name, reads))
        found.append(works)
    return found


def _joined(pieces: Sequence[tuple[Var, TileBox]], lanes: int) -> dict[Var, Box]:
    """Return the boxes of pieces by Var, of several of one Var the box around them."""
    found: dict[Var, Box] = {}
    for var, box in pieces:
        if box.vectors:
            own = elements(box, var.channels, lanes)
            found[var] = hull([found[var], own]) if var in found else own
    return found


def _filled(var: Var, root: Var | None, lanes: int) -> Var:
    if var.part is None or root is None:
        return var
    return replace(var, channels=min(var.tiles(lanes) * lanes, root.channels - var.part.tile * lanes))


@dataclass(frozen=True)
class Arrival:
    """A part of what a workload reads.

    ``sent`` in the coordinates of what ``producer`` makes, ``place`` in those of the tensor that is read."""

    producer: Work
    sent: Box
    place: Box


class Makers:
    """An index of the works, by the root Var of which each writes a part."""

    def __init__(self, works: Sequence[Sequence[Work]], lanes: int) -> None:
        self.lanes = lanes
        self.of: dict[str, list[Work]] = {}
        for work in sorted((work for core in works for work in core), key=lambda work: (work.layer, work.core)):
            self.of.setdefault(work.output.root, []).append(work)

    def arrivals(self, layer: int, var: Var, box: Box) -> Iterator[Arrival]:
        """Yield what earlier layers send of a box of a Var to ``layer``."""
        wanted = place_in_root(var, box, self.lanes)
        zero = moved(wanted, box.lower, -1).lower
        for work in (work for work in self.of.get(var.root, ()) if work.layer < layer):
            made = place_in_root(work.output, work.box, self.lanes)
            both = made.common(wanted)
            if both is not None:
                origin = moved(made, work.box.lower, -1).lower
                yield Arrival(work, moved(both, origin, -1), moved(both, zero, -1))
