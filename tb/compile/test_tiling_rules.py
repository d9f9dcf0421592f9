# SPDX-License-Identifier: Apache-2.0
"""Rules of tiling, each by itself with numbers by hand: cuts of axes, the order of candidates, needs, walks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.tiling import search
from weft.compiler.tiling.candidates import LONG_PART, MOST_PARTS, _divisions, _halvings
from weft.compiler.tiling.costs import Need, _at_once, needs
from weft.compiler.tiling.search import ACCUMULATOR_TOTAL, LOCAL_TOTAL, Ranked, Search, too_small
from weft.compiler.tiling.shape import LayerShape
from weft.compiler.tiling.spans import PairedWalk, repeated
from weft.compiler.tiling.weight_tiles import Links, WeightTiles
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(local_depth=64, accumulator_depth=32)


# -- cuts of an axis ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("count", "parts"), [(1, [1]), (5, [5, 3, 2, 1]), (12, [12, 6, 4, 3, 2, 1]),
                                              (100, [100, 50, 34, 25, 17, 13, 9, 7, 5, 4, 2, 1])])
def test_an_axis_is_cut_into_equal_parts(count: int, parts: list[int]) -> None:
    assert _divisions(count) == parts


@pytest.mark.parametrize("count", [MOST_PARTS, MOST_PARTS + 1, 1 << 20, 1 << 24])
def test_a_long_axis_is_cut_until_its_parts_are_short(count: int) -> None:
    """But into single pixels only where a program could be so long."""
    found = _divisions(count)
    assert (1 in found) == (count <= MOST_PARTS) and found[0] == count
    assert min(set(found) - {1}) == -(-count // (count // LONG_PART if count <= 1 << 20 else MOST_PARTS))


@pytest.mark.parametrize(("count", "halves"), [(1, [1]), (2, [2, 1]), (7, [7, 4, 2, 1])])
def test_halves_go_down_to_one(count: int, halves: list[int]) -> None:
    assert _halvings(count) == halves


# -- the order of candidates -------------------------------------------------------------------------------------------
def ranked(monkeypatch: pytest.MonkeyPatch, *levels: list[tuple[float, int, int]]) -> Search:
    """A search whose candidates of each level have a cost, and take so many vectors of both memories."""
    tables = []
    for level, rows in enumerate(levels):
        need = np.zeros((len(Need.__annotations__), len(rows)), np.int64)
        for place, (_, local, accumulators) in enumerate(rows):
            need[[LOCAL_TOTAL, ACCUMULATOR_TOTAL], place] = local, accumulators
        tilings: Any = SimpleNamespace(tiling=lambda row, level=level: f"{level}.{row}")
        tables.append(Ranked(tilings, np.arange(len(rows)), np.array([cost for cost, _, _ in rows]), need))
    monkeypatch.setattr(search, "GRAINS", [None] * len(levels))
    found = Search()
    found._rank = lambda shape, level: tables[level]  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize(("scratch", "tiling", "cost", "runner_up"), [
    (9, "0.0", 10, 12.0), (8, "0.1", 12, 15.0), (4, "0.2", 15, None), (3, "1.0", 20, 21.0), (2, "1.1", 21, None)])
def test_the_cheapest_that_fits_is_planned(scratch: int, tiling: str, cost: float, runner_up: float | None,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the coarsest cut of which any fits, with what the next one costs."""
    own = ranked(monkeypatch, [(10, 9, 1), (12, 8, 2), (15, 4, 3)], [(20, 3, 4), (21, 2, 5)])
    shape: Any = SimpleNamespace(scratch=scratch)
    plan = own.plan(shape)
    assert plan is not None and (plan.tiling, plan.cost, plan.runner_up) == (tiling, cost, runner_up)
    assert plan.need.local_total <= scratch and own.plan(SimpleNamespace(scratch=1)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("scratch", "most", "dearest", "tilings"), [
    (9, 9, 1.0, ["0.0", "0.1"]), (9, 9, 1.2, ["0.0", "0.1", "0.2"]), (9, 2, 1.2, ["0.0", "0.1"]),
    (9, 9, 9, ["0.0", "0.1", "0.2", "0.3"]), (7, 9, 1.0, ["0.2"]), (2, 9, 9, ["1.0"]), (1, 9, 9, [])])
def test_tilings_that_fit_cost_little_more_than_the_cheapest(scratch: int, most: int, dearest: float,
                                                             tilings: list[str],
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    own = ranked(monkeypatch, [(10, 9, 1), (10, 8, 1), (12, 7, 1), (15, 4, 1)], [(20, 2, 1)])
    assert own.fitting(SimpleNamespace(scratch=scratch), most, dearest) == tilings  # type: ignore[arg-type]


@pytest.mark.parametrize(("needs_", "said"), [
    ([(65, 4), (70, 5)], "local_depth for layer 'l1': found 64; allowed: local_depth of at least 70 vectors"),
    ([(64, 33), (9, 5)], "accumulator_depth for layer 'l0': found 32; allowed: accumulator_depth of at least 33"),
    ([(70, 4), (65, 33)], "local_depth for layer 'l0' and accumulator_depth for layer 'l1': found 64 and 32; allowed: "
     "local_depth of at least 70 vectors, its smallest tile and accumulator_depth of at least 33 vectors")])
def test_the_memory_that_is_too_small_is_named_with_its_least_size(needs_: list[tuple[int, int]], said: str,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the layer that needs most."""
    shapes: Any = [SimpleNamespace(layer=SimpleNamespace(name=f"l{number}"), own=own)
                   for number, own in enumerate(needs_)]
    monkeypatch.setattr(search, "need", lambda shape, _: SimpleNamespace(local_total=shape.own[0],
                                                                         accumulator_total=shape.own[1]))
    assert str(too_small(shapes, ARCH)).startswith(said)


# -- needs and costs ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("rounds", "pixels", "outputs", "rounded"), [
    (True, 10, 3, 30), (True, 10, 7, 70), (True, 10, 9, 70), (True, 64, 3, 64), (True, 100, 3, 100), (False, 10, 3, 0)])
def test_results_are_rounded_a_few_channel_tiles_at_a_time(rounds: bool, pixels: int, outputs: int,
                                                           rounded: int) -> None:
    """As many as have 64 vectors, and no more than there are. Two of each buffer, three of weights."""
    one = np.ones(1, np.int64)
    tilings: Any = SimpleNamespace(core_largest=one * pixels, output_pixels=one * pixels, input_tile_largest=one * 20,
                                   inputs=one * 2, weights=one * 30, outputs=one * outputs, buffers=one * 2,
                                   weight_slots=one * 3)
    layer = SimpleNamespace(rounding="r" if rounds else None, pool=None, multiplies=False)
    shape: Any = SimpleNamespace(layer=layer, input_is_resident=False, weights_are_resident=False, output_tiles=9,
                                 written=lambda core, output: core, streamed_adds=["a"], overhang=0,
                                 scale_vectors=np.arange(10) * 7,
                                 consts=SimpleNamespace(local_vectors=5, operands=6))
    found = Need(*(int(np.asarray(column).ravel()[0]) for column in needs(shape, tilings)))
    assert (found.input_tile, found.weights, found.output_buffer, found.residual, found.scales) == (
        40, 30, pixels * outputs, pixels * outputs, 7 * outputs)
    assert found.local_total == 2 * (40 + 2 * pixels * outputs + 7 * outputs) + 3 * 30 + rounded
    assert found.accumulator_total == 2 * pixels * outputs + 6


@pytest.mark.parametrize(("tiles", "odd", "at_once"), [(1, 1, 1), (4, 2, 2), (5, 2, 3), (5, 0, 5)])
def test_a_dram_moves_the_larger_half_of_striped_tiles(tiles: int, odd: int, at_once: int) -> None:
    shape: Any = SimpleNamespace(odd_tiles=lambda var: odd)
    assert _at_once(shape, None, np.array([tiles])).tolist() == [at_once]  # type: ignore[arg-type]


@pytest.mark.parametrize(("taps", "depthwise", "overhang", "lag"), [(3, True, 2, 1), (9, True, 8, 4), (9, False, 0, 0)])
def test_results_of_taps_lie_half_of_them_behind(taps: int, depthwise: bool, overhang: int, lag: int) -> None:
    shape = LayerShape.__new__(LayerShape)
    shape.__dict__.update(arch=SimpleNamespace(row_taps=taps), box=SimpleNamespace(tiles=(0, 1)),
                          _tiles={(0, 1): SimpleNamespace(depthwise=depthwise)})
    assert (shape.overhang, shape.lag) == (overhang, lag)


def test_a_channel_tile_of_a_bias_alone_is_work() -> None:
    """It is loaded with the input channel tile that owns it."""
    blocks: Any = tuple(SimpleNamespace(tiles=((), ()), owner=owner, most_taps=0) for owner in (0, 1, 1))
    found = WeightTiles(blocks, Window())
    assert found.count == 0 and found.links(1, 1) == Links(3, 1) == found.links(1, 2)
    assert found.links(3, 1) == Links(2, 2)


# -- walks -------------------------------------------------------------------------------------------------------------
def test_walks_are_rows_of_one_where_they_go_on_upwards() -> None:
    """At equal distances, to the same far vectors."""
    walk = PairedWalk(10, 5, 4, 2, 1, 1, 0, 0)

    def joined(*nears: int) -> list[tuple[int, int, int]]:
        walks = repeated(walk._replace(near=near) for near in nears)
        return [(each.near, each.rows, each.near_pitch) for each in walks]

    assert joined(10, 13, 16) == [(10, 3, 3)] and joined(10, 13, 17) == [(10, 2, 3), (17, 1, 0)]
    assert joined(16, 13, 10) == [(16, 1, 0), (13, 1, 0), (10, 1, 0)] and joined(10, 10) == [(10, 1, 0)] * 2
    for other in (walk._replace(near=13, far=6), walk._replace(near=13, size=3)):
        assert repeated([walk, other]) == [walk, other]
