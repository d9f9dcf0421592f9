# SPDX-License-Identifier: Apache-2.0
"""The boxes that a core's share of a layer reads and writes."""

from __future__ import annotations

from typing import NamedTuple

from weft.compiler.layers.stages import Product
from weft.compiler.layers.var import Var
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import Box
from weft.hw.contract.schemes import SCALE_VECTORS

Piece = tuple[Var, Box]


class Touched(NamedTuple):
    """The boxes of Vars that a core reads and writes in a layer."""

    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]


NOTHING = Touched((), ())


def touched(shape: LayerShape) -> Touched:
    """Return the boxes of Vars that the share of a layer reads and writes."""
    layer, share = shape.layer, shape.box
    core = shape.core_region(share)
    reads = [(layer.core.input, shape.input_region(core, _inputs(shape), (0, shape.most_taps)))]
    if isinstance(layer.core, Product):
        reads.append((layer.core.weights, Box(share.tiles, (0, layer.core.weights.height), (0, 1))))
    reads += [(add.input, core) for add in layer.adds]
    if layer.factors is not None:
        reads.append((layer.factors, Box(share.tiles, (0, 1), (0, SCALE_VECTORS))))
    return Touched(tuple(reads), tuple((save.var, core if save.before_pool else share) for save in layer.saves))


def _inputs(shape: LayerShape) -> tuple[int, int]:
    """Return the range of input channel tiles that a share reads."""
    if shape.loads:
        return shape.box.tiles
    linked = [number for block in shape.blocks for number, tiles in enumerate(block.tiles) if tiles]
    return min(linked, default=0), max(linked, default=0) + 1
