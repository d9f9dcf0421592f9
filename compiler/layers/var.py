# SPDX-License-Identifier: Apache-2.0
"""A tensor between layers: what the compiler gives memory and quantization parameters."""

from __future__ import annotations

from dataclasses import dataclass

from weft.tmodel.window import Size


@dataclass(frozen=True)
class Part:
    """The place of a Var inside the Var ``root``, whose channel tiles have ``pixels`` pixels each.

    It begins at channel tile ``tile``. Its pixel (y, x) is pixel ``offset`` + y * ``pitch`` + x * ``step`` of a
    tile."""

    root: str
    tile: int
    offset: int
    pitch: int
    step: int
    pixels: int


PIECE = "%piece"
"""The end of the name of a Var whose tensor is saved a second time, by its own name."""


@dataclass(frozen=True)
class Var:
    """A tensor between layers, ``channels`` x ``height`` x ``width``.

    It has memory of its own, or is part of another Var."""

    name: str
    channels: int
    height: int
    width: int
    part: Part | None = None

    @property
    def root(self) -> str:
        """The name of the Var that has the memory: this one, or the one that it is part of."""
        return self.part.root if self.part else self.name

    @property
    def tensor(self) -> str:
        """The name of the tensor in the graph."""
        return self.name.removesuffix(PIECE)

    @property
    def size(self) -> Size:
        """Height and width in pixels."""
        return self.height, self.width

    @property
    def first_tile(self) -> int:
        """The channel tile of the root at which this Var begins."""
        return self.part.tile if self.part else 0

    @property
    def tile_pixels(self) -> int:
        """The pixels, one vector each, of one channel tile of the root."""
        return self.part.pixels if self.part else self.height * self.width

    def tiles(self, lanes: int) -> int:
        """Return the number of channel tiles on an array of ``lanes`` lanes."""
        return -(-self.channels // lanes)

    def odd_tiles(self, lanes: int) -> int:
        """Return how many of this Var's channel tiles have an odd number within the root."""
        return (self.first_tile + self.tiles(lanes)) // 2 - self.first_tile // 2

    def vectors(self, lanes: int) -> int:
        """Return the size of the Var on an array of ``lanes`` lanes, in vectors."""
        return self.tiles(lanes) * self.height * self.width
