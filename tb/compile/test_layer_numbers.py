# SPDX-License-Identifier: Apache-2.0
"""Numbers that plans of layers are made of, each by its definition: tiles, rows of taps, windows, costs, and ends."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from weft.compiler.layers.stages import MaxPool
from weft.compiler.layers.taps import Pass, lines
from weft.compiler.layers.var import Part, Var
from weft.compiler.memory.allocation import Allocation
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.tiling.cuts import _Lengths
from weft.tmodel.window import Window


@pytest.mark.parametrize(("first", "channels"), [*itertools.product(range(4), (1, 4, 5, 9, 16))])
def test_odd_tiles_are_those_with_an_odd_number_in_the_root(first: int, channels: int) -> None:
    var = Var("part", channels, 3, 5, Part("root", first, 0, 5, 1, 15))
    tiles = -(-channels // 4)
    assert var.tiles(4) == tiles
    assert var.odd_tiles(4) == sum(tile % 2 for tile in range(first, first + tiles))
    assert var.vectors(4) == tiles * 15
    if first == 0:
        assert Var("whole", channels, 3, 5).odd_tiles(4) == tiles // 2


@pytest.mark.parametrize(("stride", "pad", "dilation", "tap", "height"), [
    (1, 1, 1, 0, 6), (2, 1, 1, 0, 7), (1, 2, 2, 0, 6), (2, 3, 2, 1, 9), (1, 4, 3, 0, 5), (3, 0, 1, 2, 8)])
def test_rows_of_a_pass_add_where_they_fall_into_the_image(stride: int, pad: int, dilation: int, tap: int,
                                                           height: int) -> None:
    window = Window((5, 3), (stride, stride), (pad, pad), (dilation, dilation))
    part, found = Pass((tap, 0), 3, 3), {}
    for each in lines(window, part, (0, 6), height):
        assert each.mask == sum(1 << row for row in each.rows)
        for result in range(each.low, each.high):
            assert result not in found
            found[result] = each.rows
    expected = {result: tuple(row for row in range(3)
                              if 0 <= result * stride - pad + (tap + row) * dilation < height) for result in range(6)}
    assert found == {result: rows for result, rows in expected.items() if rows}


@pytest.mark.parametrize(("kernel", "stride"), [*itertools.product(
    itertools.product((1, 2, 3, 5), repeat=2), (1, 2, 3))])
def test_a_maximum_is_split_where_that_takes_no_more_operations(kernel: tuple[int, int], stride: int) -> None:
    """A column's maximum for each of the columns that one result goes on by, and then along the row."""
    pool = MaxPool(Window(kernel, (1, stride)), (4, 4))
    whole, split = kernel[0] * kernel[1], kernel[0] * stride + kernel[1]
    assert pool.operations == min(whole, split)
    assert pool.separates == (split <= whole)
    assert pool.longest == (max(kernel) if split <= whole else whole)


@pytest.mark.parametrize("alike", [1, 2, 3])
def test_a_load_is_shared_by_tiles_that_are_alike(alike: int) -> None:
    """Boxes of 2 or 3 rows and 4 columns: each takes its pixels, or the load, and 2 cycles more."""
    boxes = _Lengths(Counter({2: 3, 3: 1}), Counter({4: 2}))
    expected = sum(max(rows * 4 * alike, 10) + 2 for rows in (2, 2, 2, 3) for _ in range(2)) / alike
    assert boxes.cycles(10, 2, alike) == expected
    assert (boxes.regions, boxes.largest, boxes.total) == (8, 12, 72)


def test_the_end_of_dram0_is_behind_variables_and_copy() -> None:
    plan = MemoryPlan({"x": Allocation("x", 3, 5, 0, 1), "y": Allocation("y", 0, 2, 1, 2)}, {}, {}, (), ())
    assert plan.dram0_end == 8
    assert MemoryPlan({}, {}, {}, (), (), Allocation("%copy", 0, 4, 0, 1)).dram0_end == 4
    assert MemoryPlan(plan.dram0, {}, {}, (), (), Allocation("%copy", 8, 4, 0, 1)).dram0_end == 12
    assert MemoryPlan({}, {}, {}, (), ()).dram0_end == 1
