# SPDX-License-Identifier: Apache-2.0
"""Rules of samples, of narrower ranges, of bounds and of what is compared, each by itself with numbers by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.check.checker import Checker, Verdict, compare
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph, GraphPort, Limited, Node, Within
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.partition import Part
from weft.compiler.quantize import narrow
from weft.compiler.quantize.bounds import RULES, _within, with_bounds
from weft.compiler.quantize.narrow import BINS, Histogram, by_percentile
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.ranges import Calibration, Range
from weft.compiler.quantize.samples import (
    FEWEST_WHOLE,
    MASKED_SAMPLES,
    Samples,
    _by_samples,
    _random,
    choose_samples,
    whole_points,
    with_masked_rows,
)
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.tmodel.scales import TensorScale

TINY, BYTES = Arch.load("tiny"), Arch.load("arty_int8")


# -- samples -----------------------------------------------------------------------------------------------------------
def graph(*shape: int, **more: Any) -> Graph:
    port = GraphPort("x", shape, "x", **more)
    types: Any = {"x": more["type"]} if more else {}
    return Graph("net", (), (port,), (), {"x": shape}, {}, 20, types=types)


@pytest.mark.parametrize(("port", "given", "found"), [
    ((1, 3), (3,), (1, 3)), ((1, 3), (1, 3), (1, 3)), ((1, 3), (5, 3), (5, 3)), ((1, 3), (5, 1, 3), (5, 3)),
    ((2, 3), (2, 3), (1, 2, 3)), ((2, 3), (5, 2, 3), (5, 2, 3)), ((2, 3), (6, 3), (3, 2, 3)), ((2, 3), (5, 3), None),
    ((1, 3), (5, 4), None), ((1, 3), (0, 3), None), ((), (), (1,)), ((), (4,), (4,))])
def test_samples_of_an_input(port: tuple[int, ...], given: tuple[int, ...], found: tuple[int, ...] | None) -> None:
    """One or many, with or without a batch of 1; of a larger batch whole batches."""
    own: Any = SimpleNamespace(name="x", shape=port)
    if found is None:
        with pytest.raises(CompileError, match="calibration array 'x'"):
            _by_samples(np.zeros(given), own)
        return
    assert _by_samples(np.zeros(given), own).shape == found


@pytest.mark.parametrize(("count", "numbers"), [(1, [0]), (3, [0, 1, 2]), (32, [*range(32)]), (63, [*range(0, 63, 2)])])
def test_samples_are_evenly_chosen_from_the_first_to_the_last(count: int, numbers: list[int]) -> None:
    found = choose_samples(graph(1, 2), {"x": np.arange(2 * count).reshape(count, 2)})
    assert list(found.numbers) == numbers and not found.random
    assert found.arrays["x"][:, 0].tolist() == [2 * number for number in numbers]


@pytest.mark.parametrize(("values", "point"), [
    (np.arange(256), 0), (np.arange(256) / 4, 2), (np.arange(255) / 4, None), (np.arange(256) / 3, None),
    (np.arange(256) * 200.0, None), (np.where(np.arange(256) == 9, np.inf, 1.0), None), (np.arange(256) / 128, 7)])
def test_whole_numbers_at_the_least_point(values: np.ndarray, point: int | None) -> None:
    """Of 16 bits; of fewer numbers that means nothing, and random ones tell nothing."""
    assert FEWEST_WHOLE == 256
    arrays = {"x": values.reshape(1, -1).astype(np.float32)}
    found = whole_points(graph(1, len(values)), Samples(arrays, (0,), False), 16)
    assert found == ({} if point is None else {"x": point})
    assert whole_points(graph(1, len(values)), Samples(arrays, (0,), True), 16) == {}


def test_some_samples_come_again_with_half_of_each_mask_left_out() -> None:
    arrays = {"m": np.full((3, 5), 7), "x": np.arange(6.0).reshape(3, 2)}
    found = with_masked_rows(Samples(arrays, (4, 5, 6), False), ["m"])
    assert MASKED_SAMPLES == 2 and found.numbers == (4, 5, 6, 4, 5)
    assert found.arrays["m"].tolist() == [[7] * 5] * 3 + [[7, 7, 0, 0, 0]] * 2
    assert found.arrays["x"].tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3]] and arrays["m"].min() == 7
    drawn = with_masked_rows(Samples(arrays, (4, 5, 6), True), ["m"])
    assert drawn.arrays["m"].tolist() == [[1] * 5] * 3 + [[1, 1, 0, 0, 0]] * 2
    assert with_masked_rows(found, []) is found


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_random_bytes_are_all_that_there_are(kind: str) -> None:
    port = GraphPort("x", (1, 4000), "x", type=kind, quantized=TensorScale(1.0, 0))
    found = _random(graph(1, 4000), port, 2, np.random.default_rng(0))
    info = np.iinfo(kind)
    assert (found.min(), found.max(), found.shape, found.dtype) == (info.min, info.max, (2, 4000), np.dtype(kind))


# -- narrower ranges ---------------------------------------------------------------------------------------------------
def test_a_percentile_cuts_as_many_at_both_ends() -> None:
    """The bins in which the shares are reached stay: of 30,000 numbers one at each end goes, and the next one stays."""
    counts = np.zeros(BINS)
    counts[[0, 1, 100, 2046, 2047]] = 1, 1, 29996, 1, 1
    edges = np.linspace(-1.0, 1.0, BINS + 1)
    assert by_percentile(Histogram(-1.0, 1.0, counts)) == (edges[1], edges[2047])
    assert by_percentile(Histogram(-1.0, 1.0, np.zeros(BINS))) == (-1, 1)


def test_histograms_are_of_what_is_not_bounded_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "to_onnx", lambda graph, names: names)
    monkeypatch.setattr(narrow, "runner", lambda names: lambda given: dict.fromkeys(names, given["x"] * 2))
    ranges = {"x": Range(-1.0, 1.0, ()), "y": Range(-2.0, 2.0, ()), "b": Range(-2.0, 2.0, (), bounded=True),
              "one": Range(3.0, 3.0, ())}
    samples = Samples({"x": np.array([[-1.0, 0.0, 1.0], [0.0, 0.5, 0.5]], np.float32)}, (0, 1), False)
    found = narrow._histograms(graph(1, 3), samples, Calibration(ranges, {}, 2, False))
    assert found.keys() == {"x", "y"}
    for histogram in found.values():
        assert histogram.counts.sum() == 4 and histogram.counts[[0, -1]].tolist() == [1, 1]
        assert histogram.counts[BINS * 3 // 4] == 2


# -- bounds ------------------------------------------------------------------------------------------------------------
FREE = (-math.inf, math.inf)


def conv(weights: list[list[float]], bias: list[float], pad: int) -> tuple[Any, Any]:
    node = Node("y", "Conv", ("x", "w", "b"), ("y",), {"pads": (pad,) * 4})
    return SimpleNamespace(constants={"w": np.array(weights)[..., None, None], "b": np.array(bias)}), node


@pytest.mark.parametrize(("op", "read", "bound"), [
    ("Abs", [(-3, 2)], (0, 3)), ("Abs", [(1, 2)], (1, 2)), ("Abs", [(-3, -1)], (1, 3)), ("Relu", [(-3, 2)], (0, 2)),
    ("Relu", [(-3, -1)], (0, 0)), ("Mul", [(-3, 2), (-1, 4)], (-12, 8)), ("Mul", [(-3, 2), FREE], FREE),
    ("Assemble", [(1, 2), (3, 4)], (0, 4)), ("Assemble", [(-2, -1)], (-2, 0)), ("MaxPool", [(1, 2)], (1, 2)),
    ("View", [(1, 2)], (1, 2)), ("ScaleChannels", [(1, 2), (-1, 1)], (-2, 2))])
def test_a_result_lies_within_its_bound(op: str, read: Any, bound: tuple[float, float]) -> None:
    assert RULES[op](None, None, read) == bound  # type: ignore[arg-type]


@pytest.mark.parametrize(("weights", "bias", "pad", "bound"), [
    ([[2.0]], [1.0], 0, (3, 5)), ([[2.0]], [1.0], 1, (1, 5)), ([[2.0, 0.0], [0.0, -1.0]], [1.0, 0.0], 0, (-2, 5)),
    ([[2.0, 1.0]], [1.0], 0, FREE), ([[0.0, 0.0]], [1.0], 0, (1, 1))])
def test_a_convolution_that_scales_has_a_bound(weights: Any, bias: Any, pad: int, bound: tuple[float, float]) -> None:
    """Of 1 to 2, and of 0 where there is padding; a sum of several has none."""
    assert RULES["Conv"](*conv(weights, bias, pad), [(1.0, 2.0)]) == bound
    assert RULES["Conv"](*conv(weights, bias, pad), [FREE]) == FREE


@pytest.mark.parametrize(("bound", "interval"), [
    (Within("x", factor=2.0), (-2, 6)), (Within("x", factor=-2.0), (-6, 2)), (Within("x", True), (-4, 4)),
    (Within("x", False, 0.5, 2.0), (-2.5, 6)), (Within("z"), (-9, 9))])
def test_what_chooses_elements_lies_where_they_do(bound: Within, interval: tuple[float, float]) -> None:
    """A margin is below alone. What has no bound has the room that it gets."""
    assert _within(bound, {"x": (-1.0, 3.0), "z": FREE}, lambda name: (-9.0, 9.0)) == interval


@pytest.mark.parametrize(("seen", "kept"), [(1.0, 5.0), (7.0, 7.0)])
def test_sums_have_room_for_bounds_and_for_what_was_seen(seen: float, kept: float) -> None:
    node = Node("y", "Conv", ("x", "w", "b"), ("y",), {"pads": (0,) * 4})
    constants = {"w": np.array([[[[2.0]]]]), "b": np.array([1.0])}
    own = Graph("net", (node,), (), (), {"x": (1, 1, 1, 1), "y": (1, 1, 1, 1)}, constants, 20,
                bounds={"y": Limited(3.0, 5.0)})
    ranges = {name: Range(0.0, 0.5, (), 1, 9.0, (0.5,)) for name in "xy"}
    found = with_bounds(own, Calibration(ranges, {"x x w": seen}, 1, False), True)
    assert (found.ranges["y"].low, found.ranges["y"].high, found.ranges["y"].bounded) == (3, 5, True)
    assert found.sums == {"x x w": kept}


# -- what is compared --------------------------------------------------------------------------------------------------
def test_the_worst_of_all_outputs_is_compared() -> None:
    """Whichever comes first; what is missing on one side counts for nothing, unless nothing is left."""
    before = {name: np.full(4, 8.0) for name in "abc"}
    near, far = np.full(4, 8.0), np.full(4, 8.0)
    near[0], far[0] = 8.001, 4.0
    for found in ({"a": near, "b": far}, {"a": far, "b": near}, {"c": before["c"], "b": near, "a": far}):
        decibels, problem = compare(before, found, 80.0)
        assert decibels is not None and round(decibels, 1) == 12.0 and "differs in 1 of 4 values" in problem
        assert compare(before, found, decibels) == (decibels, "")
        assert compare(before, found, None)[1] and compare(before, found, decibels + 1e-9)[1]
    assert compare(before, {"c": before["c"]}, None) == (None, "")
    assert compare(before, {"d": near}, 0.0) == (-math.inf, "no output is left")
    assert compare(before, {"a": np.zeros(3)}, -math.inf)[1] == "output 'a' has shape (3,), not (4,)"


def test_a_subgraph_is_compared_with_its_own_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the subgraph before it left is forgotten, rounded results too."""
    checker = Checker()
    checker.verdicts, checker._kind = [Verdict("s", "r", None, None)], Numbers
    checker._rounded, checker._rounding = {"y": np.ones(1)}, checker.verdicts[0]
    runner: Any = SimpleNamespace(run=lambda products, sample: {"y": sample["x"] * 2})
    monkeypatch.setattr("weft.compiler.check.checker.RUNNERS", {Graph: runner})
    part: Any = SimpleNamespace(graph=graph(1, 2), count=2, number=1)

    class Given(dict[Any, Any]):
        def plus(self, more: Any) -> Any:
            return self

    products: Any = Given({Part: part, Samples: Samples({"x": np.array([[3.0, 4.0]])}, (0,), False)})
    step: Any = SimpleNamespace(name="s")
    assert checker._begin(step, products) == "s of part 1"
    assert checker._before["y"].tolist() == [[6, 8]] and checker._kind is Graph and checker._product is None
    assert checker._rounded is None and checker._rounding is None


@pytest.mark.parametrize(("arch", "plain", "lookup", "least"), [
    (TINY, False, False, 32), (TINY, False, True, 20), (TINY, True, False, -math.inf), (BYTES, False, False, 10)])
def test_rounding_may_lose_what_the_scheme_does(arch: Arch, plain: bool, lookup: bool, least: float) -> None:
    """Once: the next product must be equal, but for sums that saturate in another order."""
    products: Any = {Arch: arch, Layers: [SimpleNamespace(lookup=lookup)], Request: SimpleNamespace(plain=plain)}
    checker = Checker()
    checker._kind = Layers
    assert checker._least(Numbers, products) == least
    checker._kind = Numbers
    assert checker._least(MemoryPlan, products) is None
    checker._kind = MemoryPlan
    assert (checker._least(Schedule, products) is None) or arch.scheme.order_matters
