# SPDX-License-Identifier: Apache-2.0
"""The layers of a compiled network as workloads, and what goes from one to another: boxes of tensors.

A Var lies in the memory of its root, whole or as a part. What a layer reads of a root comes from the layers that write
it: the range that both have in common, told in the coordinates of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.compiler.errors import refuse
from weft.compiler.layers.hir import Layer, Var
from weft.schedule.boxes import Box


def box_of(var: Var) -> Box:
    """Return the elements of a Var: [1, channels, height, width]."""
    return Box((0, 0, 0, 0), (0, var.channels - 1, var.height - 1, var.width - 1))


def place_in_root(var: Var, lanes: int) -> Box:
    """Return a Var's elements within its root. Raises CompileError for one whose pixels have others between them."""
    part = var.part
    if part is None:
        return box_of(var)
    row, column = divmod(part.offset, part.pitch)
    if part.step != 1 or column + var.width > part.pitch:
        raise refuse(f"tensor {var.name!r}", f"pixels of {part.root!r} with others between them",
                     "tensors that are boxes of the tensor that holds them",
                     "schedule the network up to there (--end), or without its last transposed convolution")
    corner = (0, part.tile * lanes, row, column)
    return Box(corner, tuple(low + size - 1 for low, size in zip(corner, box_of(var).sizes, strict=True)))


def moved(box: Box, origin: Sequence[int], sign: int) -> Box:
    """Return a box in coordinates that begin (sign -1), or began (sign 1), at ``origin``."""
    lower, upper = (tuple(at + sign * zero for at, zero in zip(corner, origin, strict=True))
                    for corner in (box.lower, box.upper))
    return Box(lower, upper)


@dataclass(frozen=True)
class Arrival:
    """A part of what a workload reads.

    ``sent`` in the coordinates of what ``producer`` makes, ``place`` in those of the tensor that is read."""

    producer: int
    sent: Box
    place: Box


@dataclass(frozen=True)
class Work:
    """A workload: what layer ``layer`` saves as ``output``.

    A layer that saves twice is two of them; ``is_last``: the one that takes the layer's time."""

    number: int
    layer: int
    output: Var
    is_last: bool
    inputs: tuple[Var, ...]


def works_of(layers: Sequence[Layer], lanes: int) -> list[Work]:
    """Return the workloads of all layers, in order.

    A part of a tensor has the lanes that fill its last channel tile too, where other parts follow: the machine
    writes whole vectors, and the tensor counts them as channels."""
    roots = {var.name: var for layer in layers for var in layer.vars if var.part is None}
    works: list[Work] = []
    for number, layer in enumerate(layers):
        inputs = tuple({var.name: var for var in layer.inputs}.values())
        outputs = {var.name: _filled(var, roots.get(var.root), lanes) for var in layer.outputs}
        works += [Work(len(works) + index, number, var, var.name == layer.output.name, inputs)
                  for index, var in enumerate(outputs.values())]
    return works


def _filled(var: Var, root: Var | None, lanes: int) -> Var:
    if var.part is None or root is None:
        return var
    return replace(var, channels=min(var.tiles(lanes) * lanes, root.channels - var.part.tile * lanes))


def arrivals(works: Sequence[Work], reader: Work, var: Var, lanes: int) -> list[Arrival]:
    """Return the boxes of a Var that earlier workloads send to the workload that reads it."""
    wanted, found = place_in_root(var, lanes), []
    for work in works[:reader.number]:
        if work.output.root == var.root and work.layer < reader.layer:
            made = place_in_root(work.output, lanes)
            both = made.common(wanted)
            if both is not None:
                found.append(Arrival(work.number, moved(both, made.lower, -1), moved(both, wanted.lower, -1)))
    return found
