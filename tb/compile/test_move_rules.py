# SPDX-License-Identifier: Apache-2.0
"""Copies of drawn boxes, vector by vector, against where a plain count of tiles and pixels says that these lie."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np
import pytest

from weft.compiler.layers.var import Part, Var
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, DataMove, Settings
from weft.compiler.memory.allocation import DramAddress, Kept, Resident
from weft.compiler.scheduler.moves import _lines, enlarge, move, transfer, whole
from weft.compiler.tiling.spans import Axis, Box, View
from weft.tb.compile.run_model import BASE

ARCH = BASE.replace(array_size=4, stride0_depth=2, stride1_depth=2)
Place = tuple[str, int]


def moved(moves: Iterable[DataMove]) -> list[tuple[Place, Place]]:
    """Both places of each vector."""
    return [((each.local.memory, near), (each.far.memory, far)) for each in moves for near, far in zip(
        each.local_walk.addresses().ravel().tolist(), each.far_walk.addresses().ravel().tolist(), strict=True)]


def vectors(box: Box) -> Iterator[tuple[int, int, int]]:
    yield from itertools.product(range(*box.tiles), range(*box.rows), range(*box.columns))


def interval(draw: np.random.Generator, size: int) -> tuple[int, int]:
    low, high = sorted(draw.choice(size + 1, 2, replace=False).tolist())
    return low, high


def drawn_var(draw: np.random.Generator) -> Var:
    """Alone, or every second pixel or a corner of a larger one, behind some of its channels."""
    channels, height, width = (int(draw.integers(1, end)) for end in (13, 5, 5))
    if draw.integers(2):
        return Var("x", channels, height, width)
    step, extra, offset, tile = (int(draw.integers(1, 3)), int(draw.integers(3)), int(draw.integers(3)),
                                 int(draw.integers(3)))
    pitch = width * step + extra
    return Var("x", channels, height, width, Part("root", tile, offset, pitch, step, offset + height * pitch))


def within(var: Var, tile: int, row: int, column: int) -> tuple[int, int]:
    """Channel tile and pixel of a vector in what holds the Var."""
    part = var.part
    return (tile, row * var.width + column) if part is None else (
        part.tile + tile, part.offset + row * part.pitch + column * part.step)


def drawn_box(draw: np.random.Generator, var: Var) -> Box:
    return Box(interval(draw, var.tiles(4)), interval(draw, var.height), interval(draw, var.width))


@pytest.mark.parametrize("seed", range(80))
def test_a_box_goes_to_and_from_where_its_tensor_lies(seed: int) -> None:
    """Dense in a buffer, and at its place in DRAM0, in DRAM1, or with every second channel tile in each."""
    draw = np.random.default_rng(seed)
    var = drawn_var(draw)
    box, size = drawn_box(draw, var), var.tile_pixels
    home = [DramAddress(30), DramAddress(None, 50), DramAddress(30, 50)][seed % 3]
    to_local = bool(draw.integers(2))
    moves = [*transfer(to_local, box, View(7, box), var, home, ARCH)]
    assert {each.to_local for each in moves} == {to_local}
    wanted = []
    for number, (tile, row, column) in enumerate(vectors(box)):
        own, pixel = within(var, tile, row, column)
        memory, first = [(DRAM0, 30), (DRAM1, 50)][[0, 1, own % 2][seed % 3]]
        wanted.append(((LOCAL, 7 + number), (memory, first + (own // 2 if seed % 3 == 2 else own) * size + pixel)))
    assert moved(moves) == wanted


@pytest.mark.parametrize("seed", range(40))
def test_a_pinned_tensor_lies_behind_what_is_not_kept_of_it(seed: int) -> None:
    draw = np.random.default_rng(seed)
    var = drawn_var(draw)
    box, size = drawn_box(draw, var), var.tile_pixels
    places = [within(var, *each) for each in vectors(box)]
    tiles, pixels = ({place[axis] for place in places} for axis in (0, 1))
    kept = Kept(min(tiles), max(tiles) - min(tiles) + 1, min(pixels), max(pixels) - min(pixels) + 1)
    part, all_of_it = whole(var, Resident(9, kept), ARCH), whole(var, Resident(9), ARCH)
    for each, (tile, pixel) in zip(vectors(box), places, strict=True):
        assert part.address(*each) == 9 + (tile - kept.first_tile) * kept.pixels + pixel - kept.first_pixel
        assert 9 <= part.address(*each) < 9 + kept.vectors
        assert all_of_it.address(*each) == 9 + tile * size + pixel
    inside = moved(move(False, box, part, View(3, box), ACCUMULATORS, ARCH, Settings.of(input_shift=1)))
    assert inside == [((LOCAL, part.address(*each)), (ACCUMULATORS, 3 + number))
                      for number, each in enumerate(vectors(box))]


@pytest.mark.parametrize(("factor", "low"), [*itertools.product((1, 2, 3), range(7))])
def test_an_axis_takes_as_few_walks_as_pixels_are_repeated(factor: int, low: int) -> None:
    """One, where all results are of one pixel, else one for each place within a pixel."""
    for high in range(low + 1, low + 9):
        found, walks = {}, _lines((low, high), factor, 5, 3)
        for first, axis in walks:
            assert isinstance(axis, Axis)
            for step in range(axis.steps):
                assert first + step * axis.far // 3 not in found
                found[first + step * axis.far // 3] = first // factor + step * axis.near // 5
        assert found == {result: result // factor for result in range(low, high)}
        pixels = {result // factor for result in range(low, high)}
        assert len(walks) == (1 if len(pixels) == 1 else min(factor, high - low))


@pytest.mark.parametrize("seed", range(40))
def test_each_result_is_the_pixel_that_is_repeated_there(seed: int) -> None:
    draw = np.random.default_rng(seed)
    var, factors = drawn_var(draw), (int(draw.integers(1, 4)), int(draw.integers(1, 4)))
    local = whole(var, Resident(9), ARCH)
    box = Box(interval(draw, var.tiles(4)), interval(draw, var.height * factors[0]),
              interval(draw, var.width * factors[1]))
    settings = Settings.of(input_shift=2)
    moves = [*enlarge(box, factors, local, View(5, box), ARCH, settings)]
    assert {(each.settings, each.to_local, each.accumulate) for each in moves} == {(settings, False, False)}
    wanted = {(ACCUMULATORS, 5 + number): (LOCAL, local.address(tile, row // factors[0], column // factors[1]))
              for number, (tile, row, column) in enumerate(vectors(box))}
    found = moved(moves)
    assert len(found) == len(wanted) and {far: near for near, far in found} == wanted
