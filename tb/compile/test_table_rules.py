# SPDX-License-Identifier: Apache-2.0
"""Lookup and activation tables, drawn: where keys lie, which piece an argument takes, and which table gives way."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.layers import builder
from weft.compiler.layers.builder import FEW_WEIGHT_TILES, pools_alone
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Load, Lookup, MaxPool, Save, Slopes, SteepSlopes
from weft.compiler.layers.var import Var
from weft.compiler.quantize import scales
from weft.compiler.quantize.alike import in_common, with_same_weights
from weft.compiler.quantize.consts import _on_the_way
from weft.compiler.quantize.numbers import LayerIntegers
from weft.compiler.quantize.ranges import Calibration, Range
from weft.compiler.quantize.scales import LayerAffineParams, weight_parts, with_activation_tables
from weft.compiler.quantize.slopes import LOOSE, TRIED, slope_factors
from weft.compiler.quantize.tables import Pieces, _covering, _evaluated, _first_keys, encode_table
from weft.compiler.scheduler.length import _weight_tiles
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import KEY_ENTRIES
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4, lut_depth=8, lut_count=2, simd_registers_depth=3)


# -- keys --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(40))
def test_keys_cover_all_arguments_as_densely_as_they_can(seed: int) -> None:
    """The least power of two with which keys from the lowest argument on reach the highest."""
    draw = np.random.default_rng(seed)
    depth, unit = int(draw.choice([4, 8, 16])), 2.0 ** -int(draw.integers(4, 9))
    low, high = sorted(draw.uniform(-9, 9, 2).tolist())
    if seed % 4 == 0:  # ends that are keys themselves
        low, high = math.floor(low), math.floor(low) + (depth - 1) * unit * 2.0 ** int(draw.integers(1, 4))

    def reaches(spacing: int) -> bool:
        first = math.floor(low / unit / 2 ** spacing) * 2 ** spacing
        return first + (depth - 1) * 2 ** spacing >= high / unit

    widest = _covering(low, high, unit, depth)
    assert widest == next(spacing for spacing in range(1, 40) if reaches(spacing))
    lowest = math.floor(low / unit / 2 ** widest) * 2 ** widest
    assert _first_keys(low, high, unit, widest, widest, depth) == [lowest, lowest + 2 ** (widest - 1)]
    for spacing in range(1, widest):
        found, step = _first_keys(low, high, unit, spacing, widest, depth), 2 ** spacing
        least, most = math.floor(low / unit / step) * step, math.floor(high / unit) - (depth - 1) * step
        assert found == sorted(set(found)) and {first % step for first in found} == {0, step // 2}
        assert {first - step // 2 for first in found if first % step} == {first for first in found if not first % step}
        assert all(min(least, most) - step < first <= max(most, least) + step for first in found)
        around = [first for first in found if first <= 0 <= first + (depth - 1) * step]
        assert not low < 0 < high or around or most < least


@pytest.mark.parametrize("seed", range(20))
def test_an_argument_takes_the_nearest_key(seed: int) -> None:
    """The higher one of two counts; beyond the first and the last these go on as lines."""
    draw = np.random.default_rng(seed)
    first, spacing, point = int(draw.integers(-50, 50)), int(draw.integers(1, 4)), int(draw.integers(0, 6))
    pieces = Pieces(first, spacing, draw.standard_normal(8), draw.standard_normal(8), 0.0)
    keys = (first + np.arange(8) * 2 ** spacing) * 2.0 ** -point
    arguments = np.concatenate([keys, (keys[1:] + keys[:-1]) / 2, draw.uniform(keys[0] - 3, keys[-1] + 3, 40)])
    for argument, value in zip(arguments, _evaluated(pieces, arguments, point), strict=True):
        near = max(range(8), key=lambda number: (-abs(argument - keys[number]), number))
        assert value == pytest.approx(pieces.values[near] + pieces.slopes[near] * (argument - keys[near]))


@pytest.mark.parametrize("seed", range(20))
def test_a_table_holds_keys_values_and_slopes_at_their_points(seed: int) -> None:
    """Values within a step, and four neighbours' together within half of one."""
    draw = np.random.default_rng(seed)
    pieces = Pieces(int(draw.integers(-90, 90)), 3, draw.uniform(-2, 2, 8), draw.uniform(-2, 2, 8), 0.0)
    point, made = 7, 9
    keys, values, slopes = encode_table(pieces, point, made, ARCH)
    assert keys == tuple(pieces.first + 8 * number for number in range(8))
    errors = np.array(values) - pieces.values * 2.0 ** made
    assert np.abs(errors).max() < 1 and np.abs(errors.reshape(2, 4).sum(1)).max() <= 0.5 + 1e-9
    assert slopes == tuple(np.rint(pieces.slopes * 2.0 ** (made - point + ARCH.number.point)).astype(int))


# -- tables of bytes ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(20))
def test_the_activation_table_that_was_needed_longest_ago_gives_way(seed: int) -> None:
    draw, count = np.random.default_rng(seed), 1 + seed % 3
    contents = [int(draw.integers(-1, 5)) for _ in range(30)]
    layers: Any = [SimpleNamespace(translation=None if content < 0 else True, output=SimpleNamespace(name=str(number)))
                   for number, content in enumerate(contents)]
    tables = {str(number): (content,) for number, content in enumerate(contents)}
    plain = LayerAffineParams(0, np.ones(1), (), ())
    found = with_activation_tables(layers, [plain] * 30, tables, count)
    held: dict[int, int] = {}  # by table
    needed: dict[int, int] = {}
    for number, (content, own) in enumerate(zip(contents, found, strict=True)):
        assert own.activation_table is not None
        if content < 0:
            assert (own.activation_table, own.loads_table) == (0, False)
            continue
        there = [table for table, holds in held.items() if holds == content]
        assert own.loads_table == (not there)
        free = [table for table in range(1, count + 1) if table not in held]
        table = there[0] if there else free[0] if free else min(held, key=lambda each: needed[each])
        assert own.activation_table == table
        held[table], needed[table] = content, number


@pytest.mark.parametrize("most", [1, 127, 128, 254, 255])
def test_weights_are_as_few_parts_as_hold_them(most: int) -> None:
    """One behind another, each as large as it can be."""
    weights = np.array([most, -most, 0, 1])
    parts = [*weight_parts(weights)]
    assert len(parts) == -(-most // scales.MOST_WEIGHT) and np.array_equal(sum(parts), weights)
    assert all(np.abs(part).max() <= scales.MOST_WEIGHT for part in parts)
    assert parts[0].tolist() == np.clip(weights, -127, 127).tolist()


# -- work --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kernel", "taps", "rows", "outputs", "passes"), [
    ((3, 3), 3, 1, 8, 6), ((3, 3), 3, 1, 9, 9), ((3, 4), 3, 1, 4, 6), ((3, 3), 3, 3, 5, 2), ((4, 3), 3, 3, 4, 2),
    ((3, 3), 0, 1, 4, 9), ((1, 1), 3, 3, 3, 1)])
def test_passes_of_groups_are_at_least_so_many(kernel: tuple[int, int], taps: int, rows: int, outputs: int,
                                               passes: int) -> None:
    """As many as kernels in parts of the taps and rows that a pass takes, for each channel tile."""
    arch: Any = SimpleNamespace(array_size=4, row_taps=taps, kernel_rows=rows)
    assert _weight_tiles(np.ones((outputs, 1, *kernel)), outputs, arch) == passes


@pytest.mark.parametrize(("group", "channels", "taps", "long", "words", "octets"), [
    (1, 4, FEW_WEIGHT_TILES, True, False, True), (1, 4, FEW_WEIGHT_TILES + 1, True, True, True),
    (1, 4, FEW_WEIGHT_TILES + 1, False, False, True), (1, 4, FEW_WEIGHT_TILES, False, False, False),
    (1, 8, FEW_WEIGHT_TILES // 2, True, False, True), (1, 8, FEW_WEIGHT_TILES // 2 + 1, True, True, True),
    (8, 8, FEW_WEIGHT_TILES, True, False, True), (8, 8, FEW_WEIGHT_TILES, False, False, False),
    (8, 8, FEW_WEIGHT_TILES + 1, False, False, True)])
def test_pools_are_alone_behind_many_weight_tiles_or_where_they_are_long(
        group: int, channels: int, taps: int, long: bool, words: bool, octets: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """On INT8 machines either is enough, on others both must be so. A depthwise output tile reads one tile."""
    core = Convolution(Var("x", channels, 9, 9), "w", "b", group, Window((1, taps)), (9, 9), 0)
    var, pool = Var("y", 8, 9, 9), MaxPool(Window((3, 3), (2, 2), (1, 1)), (5, 5))
    monkeypatch.setattr(builder, "LEAST", pool.operations * 25 * 2 + (not long))
    for per_lane, alone in ((False, words), (True, octets)):
        state: Any = SimpleNamespace(
            made={"y": SimpleNamespace(core=core)}, var=lambda name: var, pools_alone=True,
            arch=SimpleNamespace(array_size=4, scheme=SimpleNamespace(per_lane=per_lane)))
        assert pools_alone(state, "y", pool) == alone
        assert not pools_alone(state, "y", MaxPool(Window((3, 3), (3, 3)), (3, 3)))
        state.pools_alone = False
        assert not pools_alone(state, "y", pool)


# -- constants ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steep", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_two_factors_make_a_slope_as_nearly_as_any_two(seed: int, steep: bool) -> None:
    """The first is 1 or less, the largest of equally good ones; the second of a positive slope is no more than 1."""
    draw, number = np.random.default_rng(seed), ARCH.number
    values = np.concatenate([draw.uniform(-2, 2, 12), [0.0, 1.0, -1.0, 0.5, 0.999, 1 / 3]])
    values = values if steep else np.minimum(values, 1.0)
    kind = SteepSlopes if steep else Slopes
    first, second = slope_factors(kind("x", "s"), {"s": values + steep}, number)
    for value, one, other in zip(values, first.tolist(), second.tolist(), strict=True):
        limit = number.one if value > 0 and not steep else number.one * max(1.0, LOOSE * abs(value))
        best: tuple[float, int, int] | None = None
        for tried in range(number.one, max(number.one // 2, number.one - TRIED), -1):
            factor = round(value * number.one ** 2 / tried)
            error = abs(tried * factor - value * number.one ** 2)
            if abs(factor) <= limit and (best is None or error < best[0]):
                best = error, tried, factor
        assert best is not None and (one, other) == best[1:]


@pytest.mark.parametrize(("tables", "depth", "local", "vectors"), [
    (3, 8, KEY_ENTRIES + 16, KEY_ENTRIES + 16), (3, 8, KEY_ENTRIES + 15, 8), (2, 8, KEY_ENTRIES + 8, KEY_ENTRIES + 8),
    (2, 8, KEY_ENTRIES + 7, 8)])
def test_tables_are_on_their_way_together_where_all_have_room(tables: int, depth: int, local: int,
                                                              vectors: int) -> None:
    arch: Any = SimpleNamespace(lut_depth=depth, local_depth=local)
    own = LayerIntegers(None, None, tables=((0,),) * tables, operands=(1, 2, 3))
    layer: Any = SimpleNamespace(lookup="f")
    assert _on_the_way(own, 5, layer, arch) == vectors
    layer.lookup = None
    assert _on_the_way(own, 5, layer, arch) == 1  # a table of bytes
    assert _on_the_way(LayerIntegers(None, None, operands=(1, 2, 3)), 5, layer, arch) == 3
    assert _on_the_way(LayerIntegers(None, None, slopes=np.zeros((2, 9))), 5, layer, arch) == 2 * 5


def test_lookups_of_one_node_whose_layers_share_weights_have_one_range() -> None:
    """Of one function each. Those of other nodes keep their own, and so do layers that share nothing."""
    def convolution(name: str, source: str, weights: str) -> Layer:
        return Layer(name, Convolution(Var(source, 4, 1, 1), weights, "b", 1, Window(), (1, 1), 0),
                     (Save(Var(f"{source}c", 4, 1, 1)),))

    def lookup(name: str, source: str, function: str = "Tanh") -> Layer:
        return Layer(name, Load(Var(source, 4, 1, 1)), (Save(Var(f"{source}t", 4, 1, 1)),),
                     lookup=Lookup(function, (), source))

    layers = [convolution("n", "a", "w"), convolution("n", "b", "w"), convolution("o", "c", "v"),
              convolution("m", "d", "u"), convolution("m", "e", "u"), lookup("n", "p"), lookup("n", "q"),
              lookup("n", "r", "Exp"), lookup("o", "s"), lookup("o", "t"), lookup("m", "u"), lookup("m", "x")]
    ranges = {name: Range(-float(number), float(number), (), peaks=()) for number, name in enumerate("pqrstux", 1)}
    means = {name: np.full(4, float(number)) for number, name in enumerate("abcde", 1)}
    assert with_same_weights(layers) == {"w": [0, 1], "u": [3, 4]}
    found = in_common(layers, Calibration(ranges, {}, 1, False, means))
    assert {name: own.high for name, own in found.ranges.items()} == {
        "p": 2, "q": 2, "r": 3, "s": 4, "t": 5, "u": 7, "x": 7}
    assert {name: own.tolist() for name, own in found.means.items()} == {
        "a": [1.5] * 4, "b": [1.5] * 4, "c": [3.0] * 4, "d": [4.5] * 4, "e": [4.5] * 4}
