# SPDX-License-Identifier: Apache-2.0
"""First-fit allocation of objects that live for a range of layers, and DRAM addresses of a Var's channel tiles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from weft.compiler.lir import DRAM0, DRAM1, Address
from weft.compiler.tiling.spans import groups


@dataclass(frozen=True)
class Allocation:
    """An allocation of ``size`` vectors at ``base``, live from layer ``first`` to ``last``, both included."""

    name: str
    base: int
    size: int
    first: int
    last: int

    def meets(self, first: int, last: int) -> bool:
        """Tell whether the object is live at any layer of first..last."""
        return self.first <= last and first <= self.last

    def overlaps(self, other: Allocation) -> bool:
        """Tell whether both objects hold the same vector at the same time."""
        return (self.meets(other.first, other.last) and self.base < other.base + other.size
                and other.base < self.base + self.size)


class Kept(NamedTuple):
    """The part of a root Var that is in a core's local memory.

    ``tiles`` channel tiles from ``first_tile`` on, and of each ``pixels`` from ``first_pixel`` on."""

    first_tile: int
    tiles: int
    first_pixel: int
    pixels: int

    @property
    def vectors(self) -> int:
        """The number of vectors of local memory that the part takes."""
        return self.tiles * self.pixels


class Resident(NamedTuple):
    """A pinned Var: ``base`` in local memory, and what is ``kept`` of it, None for all."""

    base: int
    kept: Kept | None = None


@dataclass(frozen=True)
class DramAddress:
    """A Var's addresses in the DRAMs: its channel tiles one after the other in DRAM0, from ``dram0`` on.

    With ``dram1`` the Var is striped: the odd channel tiles are in DRAM1, from there on, and only the even ones in
    DRAM0. Without ``dram0`` all of them are in DRAM1."""

    dram0: int | None
    dram1: int | None = None

    @cached_property
    def stripes(self) -> tuple[Address, ...]:
        """The first addresses of the stripes, one or two, that take the channel tiles in turns."""
        return tuple(Address(memory, base) for memory, base in ((DRAM0, self.dram0), (DRAM1, self.dram1))
                     if base is not None)

    def runs(self, tiles: tuple[int, int]) -> list[tuple[int, int]]:
        """Return a range of channel tiles as ranges that lie contiguously: single tiles if the Var is striped."""
        return [tiles] if len(self.stripes) == 1 else groups(tiles[1], 1, tiles[0])

    def address(self, tile: int, pixels: int) -> Address:
        """Return the address of a channel tile; each has ``pixels`` vectors."""
        before, stripe = divmod(tile, len(self.stripes))
        memory, base = self.stripes[stripe]
        return Address(memory, base + before * pixels)


def first_fit(placed: Iterable[Allocation], size: int, first: int, last: int) -> int:
    """Return the lowest base at which ``size`` vectors are free for all of layers first..last."""
    base = 0
    for place in sorted((place for place in placed if place.meets(first, last)), key=lambda place: place.base):
        if base + size <= place.base:
            break
        base = max(base, place.base + place.size)
    return base
