# SPDX-License-Identifier: Apache-2.0
"""Copies between local memory and the other memories, with the fewest DataMoves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from weft.compiler import lir
from weft.compiler.layers.var import Var
from weft.compiler.lir import ACCUMULATORS, LOCAL, NO_SETTINGS, Address, Settings
from weft.compiler.memory.allocation import DramAddress, Resident
from weft.compiler.tiling.spans import Axis, Box, View, between, spans
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Size


def whole(var: Var, place: Resident, arch: Arch) -> View:
    """Return the view of all of a pinned Var; what is not kept of it has addresses too, but must not be touched."""
    tiles, kept = (0, var.tiles(arch.array_size)), place.kept
    if kept is None:
        return _tiles_at(var, tiles, place.base + var.first_tile * var.tile_pixels)
    offset, pitch, step = (var.part.offset, var.part.pitch, var.part.step) if var.part else (0, var.width, 1)
    base = place.base + (var.first_tile - kept.first_tile) * kept.pixels + offset - kept.first_pixel
    return View(base, Box(tiles, (0, var.height), (0, var.width)), (kept.pixels, pitch, step))


def _tiles_at(var: Var, tiles: tuple[int, int], base: int) -> View:
    """Return the view of some channel tiles of a Var, the first of which lies at ``base`` within its root."""
    box, part = Box(tiles, (0, var.height), (0, var.width)), var.part
    return View(base, box) if part is None else View(base + part.offset, box, (part.pixels, part.pitch, part.step))


def transfer(to_local: bool, box: Box, local: View, var: Var, home: DramAddress, arch: Arch) -> Iterator[lir.DataMove]:
    """Yield the moves of ``box`` of a Var between local memory and the DRAMs, where its root lies at ``home``.

    A striped Var is moved channel tile by channel tile. A move's whole range of local memory counts as touched, so
    moves of every second tile would wait for each other."""
    for tiles in home.runs(box.tiles):
        far = home.address(var.first_tile + tiles[0], var.tile_pixels)
        yield from move(to_local, box.of(tiles), local, _tiles_at(var, tiles, far.offset), far.memory, arch)


def move(to_local: bool, box: Box, local: View, far: View, memory: str, arch: Arch, settings: Settings = NO_SETTINGS,
         *, accumulate: bool = False, relu: bool = False) -> Iterator[lir.DataMove]:
    """Yield the DataMoves that copy ``box`` to local memory from ``memory``, or the other way if not ``to_local``.

    ``local`` and ``far`` are the views of both places, and both contain the box. ``memory`` is a DRAM or the
    accumulators. ``settings`` are the Configure registers for loading the accumulators or requantizing. ``accumulate``
    adds to the accumulators, so it only applies on the way there. ``relu`` turns negative scalars to zero, and only
    applies on the way from there."""
    corner = box.tiles[0], box.rows[0], box.columns[0]
    near_base, far_base = local.address(*corner), far.address(*corner)
    for span in spans(between(box, local, far), arch):
        yield lir.DataMove(to_local, Address(LOCAL, near_base + span.near), Address(memory, far_base + span.far),
                           span.size, settings, accumulate, relu, span.near_stride, span.far_stride, span.rows,
                           span.near_pitch, span.far_pitch)


def enlarge(box: Box, factors: Size, local: View, result: View, arch: Arch,
            settings: Settings) -> Iterator[lir.DataMove]:
    """Yield the moves that repeat each pixel of local memory ``factors`` (height, width) times in the accumulators."""
    lines = (_lines(box.rows, factors[0], local.pitch, result.pitch),
             _lines(box.columns, factors[1], local.step, 1))
    for (row, rows), (column, columns) in itertools.product(*lines):
        near = local.address(box.tiles[0], row // factors[0], column // factors[1])
        far = result.address(box.tiles[0], row, column)
        tiles = Axis(box.tiles[1] - box.tiles[0], local.tile_pitch, result.tile_pitch)
        for span in spans([tiles, rows, columns], arch):
            yield lir.DataMove(False, Address(LOCAL, near + span.near),
                               Address(ACCUMULATORS, far + span.far), span.size, settings, False, False,
                               span.near_stride, span.far_stride, span.rows, span.near_pitch, span.far_pitch)


def _lines(outputs: tuple[int, int], factor: int, near: int, far: int) -> list[tuple[int, Axis]]:
    """Return the walks of one axis that make ``outputs`` (half open), each with its first output.

    A pixel makes ``factor`` outputs side by side. If all outputs come from one pixel there is one walk. Otherwise there
    is one for each position within a pixel, which goes from pixel to pixel. ``near``, ``far``: vectors from pixel to
    pixel and from output to output."""
    low, high = outputs
    if low // factor == (high - 1) // factor:
        return [(low, Axis(high - low, 0, far))]
    phases = (range(first, high, factor) for first in range(low, min(low + factor, high)))
    return [(phase[0], Axis(len(phase), near, factor * far)) for phase in phases]
