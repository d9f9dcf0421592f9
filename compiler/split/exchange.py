# SPDX-License-Identifier: Apache-2.0
"""The exchange between cores: which parts of a tensor each core reads, writes, and takes from others through DRAM0."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.lib.stride_tricks import as_strided

from weft.compiler.layers.var import Var
from weft.compiler.memory.allocation import Kept
from weft.compiler.scheduler.emit import Exchange
from weft.compiler.split.touched import Piece, Touched
from weft.compiler.tiling.spans import Box

Masks = dict[str, np.ndarray]
"""By the name of a root, bool [channel tiles, pixels]."""


# -- masks of roots ----------------------------------------------------------------------------------------------------
class Tensors:
    """An instance makes and fills masks of roots; ``sizes`` has (channel tiles, pixels) of each root by name."""

    def __init__(self, roots: Sequence[Var], lanes: int) -> None:
        self.sizes = {root.name: (root.tiles(lanes), root.height * root.width) for root in roots}

    def empty(self) -> Masks:
        """Return a mask for each root in which all is False."""
        return {name: np.zeros(size, bool) for name, size in self.sizes.items()}

    def within(self, masks: Masks, var: Var) -> np.ndarray:
        """Return the part of a mask that a Var takes, as a view [channel tiles, height, width]."""
        mask = masks[var.root]
        tiles, pixels = mask.shape
        offset, pitch, step = (var.part.offset, var.part.pitch, var.part.step) if var.part else (0, var.width, 1)
        return as_strided(mask.ravel()[var.first_tile * pixels + offset:],
                          (tiles - var.first_tile, var.height, var.width), (pixels, pitch, step))

    def mark(self, masks: Masks, pieces: Sequence[Piece]) -> None:
        """Set ``masks`` to True in the boxes of all ``pieces``."""
        for var, box in pieces:
            self.within(masks, var)[box_slices(box)] = True


def box_slices(box: Box) -> tuple[slice, slice, slice]:
    """Return the slices of a box, channel tiles first."""
    return slice(*box.tiles), slice(*box.rows), slice(*box.columns)


def boxes_of(mask: np.ndarray) -> Iterator[Box]:
    """Yield boxes that together are a mask [channel tiles, height, width], without overlap."""
    for tiles, plane in _alike(mask):
        for rows, line in _alike(plane):
            ends = np.flatnonzero(np.diff(line, prepend=False, append=False))
            for low, high in ends.reshape(-1, 2).tolist():
                yield Box(tiles, rows, (low, high))


def _alike(mask: np.ndarray) -> Iterator[tuple[tuple[int, int], np.ndarray]]:
    """Yield half-open ranges of the first axis whose entries are alike, each with its first entry."""
    begin = 0
    for _, group in itertools.groupby(range(len(mask)), lambda number: mask[number].tobytes()):
        end = begin + sum(1 for _ in group)
        yield (begin, end), mask[begin]
        begin = end


# -- what goes from core to core ---------------------------------------------------------------------------------------
class Flows:
    """An instance knows what each core reads and writes: ``cores`` [cores][layers] has the boxes of each layer.

    ``read`` and ``written`` [cores] have masks of all layers together."""

    def __init__(self, cores: Sequence[Sequence[Touched]], roots: Sequence[Var], lanes: int) -> None:
        self.cores, self.tensors = cores, Tensors(roots, lanes)
        self.read, self.written = [self.tensors.empty() for _ in cores], [self.tensors.empty() for _ in cores]
        for core, layers in enumerate(cores):
            for layer in layers:
                self.tensors.mark(self.read[core], layer.reads)
                self.tensors.mark(self.written[core], layer.writes)

    def kept(self, core: int) -> dict[str, Kept]:
        """Return the part of each root that core number ``core`` reads or writes, by the root's name.

        A root is a Var with memory of its own. The part has a range of channel tiles, and one range of pixels for all
        of them, as small as possible. Roots that the core does not touch are left out."""
        found = {}
        for name in self.tensors.sizes:
            tiles, pixels = np.nonzero(self.read[core][name] | self.written[core][name])
            if len(tiles):
                first_tile, first_pixel = int(tiles.min()), int(pixels.min())
                found[name] = Kept(first_tile, int(tiles.max()) + 1 - first_tile, first_pixel,
                                   int(pixels.max()) + 1 - first_pixel)
        return found

    def exchanges(self, core: int, resident: Sequence[str]) -> list[Exchange]:
        """Return for each layer the boxes that ``core`` takes over from other cores and leaves for other cores.

        Only boxes of the roots named in ``resident`` are listed. All other roots are saved whole, and loaded where they
        are read."""
        others = {name: np.logical_or.reduce([self.read[other][name] for other in range(len(self.cores))
                                              if other != core], axis=0) for name in resident}
        there, found = {name: np.zeros(self.tensors.sizes[name], bool) for name in resident}, []
        for layer in self.cores[core]:
            imports, exports = [], {}
            for var, box in (piece for piece in layer.reads if piece[0].root in there):
                lacking = np.zeros((box.tiles[1], var.height, var.width), bool)
                lacking[box_slices(box)] = ~self.tensors.within(there, var)[box_slices(box)]
                imports += [(var, part) for part in boxes_of(lacking)]
                self.tensors.mark(there, [(var, box)])
            for var, box in (piece for piece in layer.writes if piece[0].root in there):
                wanted = np.zeros((box.tiles[1], var.height, var.width), bool)
                wanted[box_slices(box)] = self.tensors.within(others, var)[box_slices(box)]
                exports[var.name] = tuple(boxes_of(wanted))
                self.tensors.mark(there, [(var, box)])
            found.append(Exchange(tuple(self._in_order(imports, core)), exports))
        return found

    def _in_order(self, imports: Sequence[Piece], core: int) -> list[Piece]:
        """Return imports channel tile by channel tile, in the order in which the other cores make these."""
        ranks: dict[str, dict[int, int]] = {}
        for name in {var.root for var, _ in imports}:
            made = [np.flatnonzero(masks[name].any(axis=1)) for other, masks in enumerate(self.written)
                    if other != core]
            ranks[name] = {int(tile): rank for tiles in made for rank, tile in enumerate(tiles)}
        single = [(var, box.of((tile, tile + 1))) for var, box in imports for tile in range(*box.tiles)]
        return sorted(single, key=lambda piece: ranks[piece[0].root].get(piece[0].first_tile + piece[1].tiles[0], 0))
