# SPDX-License-Identifier: Apache-2.0
"""Rules of calibration and of binary points, each by itself with numbers by hand."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.layers.stages import Convolution, LeakyRelu, Load, Product
from weft.compiler.quantize import calibrate as calibration
from weft.compiler.quantize.alike import _union
from weft.compiler.quantize.calibrate import _is_magnitude, _looked_at_together, _need_below, _of_copies, calibrate
from weft.compiler.quantize.choose_points import _bits_of_the_first, _Chooser
from weft.compiler.quantize.ranges import LARGEST, Range
from weft.compiler.quantize.samples import Samples
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import largest_point

ARCH = Arch.load("tiny")
POINT = ARCH.number.point


# -- ranges ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("least", "given", "room"), [
    (1.0, {}, 4.0), (1.125, {}, 6.0), (1.0, {"peaks": (4.0,)}, 4.0), (1.125, {"peaks": (4.0,)}, 6.0),
    (1.125, {"peaks": (4.0, 4.0)}, 4.5), (1.0, {"peaks": (4.0, 4.0)}, 4.0), (1.125, {"peaks": (2.0, 4.0)}, 8.0),
    (1.125, {"unclipped": 40.0}, 10.0), (1.125, {"peaks": (4.0, 4.0), "unclipped": 16.0}, 4.5),
    (1.125, {"bounded": True, "unclipped": 40.0, "peaks": (2.0, 4.0)}, 4.0)])
def test_room_is_between_what_was_seen_and_twice_that(least: float, given: dict[str, Any], room: float) -> None:
    """A single sample of what is computed gets half as much again. What a ReLU cut counts by a quarter, and a bound
    is exact."""
    assert Range(-4.0, 1.0, (), **given).expected(least) == room


@pytest.mark.parametrize("count", [3, 11, 12, 20])
def test_room_by_the_spread_of_peaks(count: int) -> None:
    """Student's t of one degree of freedom less than there are peaks."""
    peaks = tuple(100.0 + number % 2 for number in range(count))
    student = {2: 22.3, 10: 4.14, 11: 3.09 + 10 / 11, 19: 3.09 + 10 / 19}[count - 1]
    wanted = np.mean(peaks) + np.std(peaks, ddof=1) * math.sqrt(1 + 1 / count) * student
    assert Range(0.0, 101.0, (), peaks=peaks).expected(1.0) == pytest.approx(wanted)


def test_tensors_of_alike_layers_have_one_range() -> None:
    one = Range(-1.0, 2.0, (3, 1), 4, 9.0, (1.0, 2.0), 5.0, True)
    other = Range(-3.0, 1.0, (2, 2), 6, 1.0, (3.0, 1.0), 4.0, False)
    assert _union([one, other]) == Range(-3.0, 2.0, (5, 3), 10, 10.0, (3.0, 2.0), 5.0, False)
    assert _union([one, one]).bounded


# -- calibration -------------------------------------------------------------------------------------------------------
def network(*nodes: Node, shapes: dict[str, int], **constants: np.ndarray) -> Graph:
    """A network of x: pixels of one channel, so many by tensor."""
    ports = [GraphPort(name, (1, 1, 1, shapes[name]), name) for name in ("x", nodes[-1].output)]
    return Graph("net", nodes, (ports[0],), (ports[1],), {name: (1, 1, 1, size) for name, size in shapes.items()},
                 constants, 20)


def test_tensors_are_looked_at_together_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a convolution the sums of magnitudes count too. A node that is larger is alone."""
    nodes = [Node("a", "Relu", ("x",), ("a",)), Node("b", "Conv", ("a", "w", "v"), ("b",)),
             Node("c", "Relu", ("b",), ("c",)), Node("d", "Relu", ("c",), ("d",))]
    graph = network(*nodes, shapes={"x": 1, "a": 4, "b": 3, "c": 1, "d": 20})

    def groups(most: int) -> list[str]:
        monkeypatch.setattr(calibration, "MOST_HELD", most)
        return ["".join(node.output for node in group) for group in _looked_at_together(graph)]

    assert groups(31) == ["abcd"] and groups(30) == ["abc", "d"] and groups(11) == ["abc", "d"]
    assert groups(10) == ["ab", "c", "d"] and groups(9) == ["a", "bc", "d"] and groups(1) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("most", [1, 1 << 20])
def test_a_tensor_is_counted_once_however_often_the_graph_runs(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "MOST_HELD", most)
    graph = network(Node("a", "Relu", ("x",), ("a",)), Node("b", "Abs", ("x",), ("b",)), Node("c", "Add", ("a", "b"),
                    ("c",)), shapes=dict.fromkeys("xabc", 2))
    given = np.array([[[[-3.0, 1.0]]], [[[2.0, -1.0]]]], np.float32)
    found = calibrate(graph, Samples({"x": given.reshape(2, 1, 1, 2)}, (0, 1), False))
    assert {name: (entry.count, len(entry.peaks)) for name, entry in found.ranges.items()} == dict.fromkeys(
        "xabc", (4, 2))
    assert found.ranges["a"].unclipped == 3 and found.ranges["x"].peaks == (3, 2) and found.ranges["x"].squares == 15


@pytest.mark.parametrize(("op", "low", "magnitude"), [
    ("Relu", None, True), ("Abs", None, True), ("Clip", 0.0, True), ("Clip", 0.5, True), ("Clip", -0.5, False),
    ("Clip", "computed", False), ("Add", None, False), (None, None, False)])
def test_what_is_never_negative_is_its_magnitude(op: str | None, low: float | str | None, magnitude: bool) -> None:
    inputs = ("x",) if low is None else ("x", "low", "high")
    constants = {} if low == "computed" else {"low": np.array([low or 0.0]), "high": np.ones(1)}
    makers = {} if op is None else {"y": Node("y", op, inputs, ("y",))}
    graph: Any = SimpleNamespace(constants=constants, is_constant=constants.__contains__)
    assert _is_magnitude(graph, "y", makers) == magnitude


def test_the_largest_number_is_too_large() -> None:
    _need_below("x", float(np.nextafter(LARGEST, 0)))
    for value in (LARGEST, math.inf, math.nan):
        with pytest.raises(CompileError, match="x: found a value of"):
            _need_below("x", value)


def test_channels_of_a_copy_have_the_means_of_their_source() -> None:
    """What lies beside it is 0."""
    graph: Any = SimpleNamespace(copies={"c": SimpleNamespace(source="x", channels=(1, 0, -1, 2, -1))})
    assert _of_copies(graph, {"x": np.array([5.0, 6.0, 7.0])})["c"].tolist() == [6, 5, 0, 7, 0]


# -- binary points -----------------------------------------------------------------------------------------------------
def chooser(points: dict[str, int], *layers: Any) -> _Chooser:
    found = _Chooser.__new__(_Chooser)
    found.arch, found.points, found.layers = ARCH, points, layers
    found.width, found.accumulator_width = ARCH.number.width, ARCH.accumulator_bits
    return found


def var(name: str) -> Any:
    return SimpleNamespace(root=name, name=name)


def made_of(kind: Any, **values: object) -> Any:
    """An instance with these attributes alone."""
    made = kind.__new__(kind)
    made.__dict__.update(values)
    return made


@pytest.mark.parametrize(("excess", "points", "sizes", "bits"), [
    (0, (8, 8), (1.0, 1.0), 0), (4, (8, 8), (1.0, 1.0), 2), (4, (10, 8), (1.0, 1.0), 3), (4, (12, 8), (1.0, 1.0), 4),
    (4, (8, 8), (4.0, 1.0), 3), (4, (8, 8), (1.0, 4.0), 1), (4, (8, 12), (1.0, 1.0), 0)])
def test_the_factor_that_has_more_bits_loses_more(excess: int, points: tuple[int, int], sizes: tuple[float, float],
                                                  bits: int) -> None:
    assert _bits_of_the_first(excess, *points, sizes) == bits


@pytest.mark.parametrize(("point", "accumulators", "found"), [(3, 8, 3), (9, 8, 8), (8, 8, 8), (-200, 8, None)])
def test_scalars_are_shifted_left_by_less_than_the_accumulators_width(point: int, accumulators: int,
                                                                      found: int | None) -> None:
    least = accumulators - ARCH.accumulator_bits + 1
    assert chooser({})._within(point, accumulators) == (least if found is None else found)


@pytest.mark.parametrize(("kind", "points", "made"), [
    ("add", (3, 9), 9), ("add", (9, 3), 9), ("add", (14, 13), 12), ("multiply", (10, 9), 19 - POINT),
    ("multiply", (3, 2), 5 - POINT), ("none", (3, 2), 12)])
def test_a_sum_is_no_finer_than_its_terms_and_a_product_than_both_factors(kind: str, points: tuple[int, int],
                                                                          made: int) -> None:
    """The range of the result asks for 12."""
    load = made_of(Load, input=var("x"))
    adds = [] if kind == "none" else [SimpleNamespace(input=var("z"))]
    layer = SimpleNamespace(adds=adds, core=load, multiplies=kind == "multiply", outputs=[var("y")])
    assert chooser({"x": points[0], "z": points[1], "y": 12}, layer)._made()["y"] == min(made, 12)


@pytest.mark.parametrize(("lost", "fine"), [(0, True), (ARCH.number.width, True), (ARCH.number.width + 1, False)])
def test_a_tensor_keeps_a_bit(lost: int, fine: bool) -> None:
    own = chooser({"x": 9 - lost, "y": -100})
    if fine:
        own._insist_on_bits({"x": 9})
        return
    with pytest.raises(CompileError, match="binary point of tensor 'x'"):
        own._insist_on_bits({"x": 9})


def test_layers_of_the_same_weights_have_their_smallest_point() -> None:
    own = chooser({"x": 9, "z": 7, "y": 12}, *(SimpleNamespace(core=SimpleNamespace(input=var(name)))
                                              for name in ("y", "x", "z")))
    own.sharing, own.most = {"w": [1, 2]}, {}
    numbers: Any = [SimpleNamespace(weights=point) for point in (3, 11, 10)]
    own._agree(numbers)
    assert own.points == {"x": 7, "z": 7, "y": 12} and own.most == {"w": 10}


def test_a_tensor_saturates_only_beyond_what_all_of_its_readers_tell_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: Any = [SimpleNamespace(inputs=[var(reads)], outputs=[var(made)], told=told) for reads, made, told in (
        ("x", "a", math.inf), ("a", "b", 3.0), ("a", "c", 5.0), ("x", "d", math.inf), ("d", "e", 2.0),
        ("d", "f", math.inf), ("x", "g", 1.0), ("g", "h", 4.0))]
    own = chooser({}, *layers)
    own.outputs = frozenset("g")
    monkeypatch.setattr(_Chooser, "_told_apart", lambda self, layer, needed: layer.told)
    assert own._needed() == {"a": 5.0}


@pytest.mark.parametrize("lows", [(-8.0, -1.0), (-1.0, -8.0), (-8.0, 0.0)])
def test_numbers_before_a_slope_have_room_in_all_layers_that_make_a_tensor(lows: tuple[float, float],
                                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """The SIMD unit sees them at the tensor's point: of 8 behind a slope of a half 16, and an eighth more."""
    made = [SimpleNamespace(root="y", name=name) for name in "ab"]
    layers: Any = [SimpleNamespace(elementwise=LeakyRelu(0.5), inputs=[], outputs=[each]) for each in made]
    own = chooser({}, *layers)
    own.outputs, own.whole, own.most, own.sharing = frozenset("y"), {}, {}, {}
    seen: Any = SimpleNamespace(ranges={name: Range(low, 8.0, (), peaks=(8.0,) * 3) for name, low in zip(
        "aby", (*lows, -8.0), strict=True)})
    own.calibration = seen
    monkeypatch.setattr(_Chooser, "_layer", lambda self, layer: None)
    monkeypatch.setattr(_Chooser, "_made", lambda self: dict(self.points))
    found = own.run({"y": None})
    assert found.vars == {"y": largest_point(18.0, ARCH.number.width)} != {"y": largest_point(9.0, ARCH.number.width)}


@pytest.mark.parametrize(("made", "read", "offset", "limit"), [
    (1.0, 1.0, 0.5, 1.0), (1e-3, 1e-3, 0.0, 1e-3), (1.0, 1.0, 100.0, 1.0), (1.0, 1.0, -100.0, 1.0),
    (1.0, 1.0, 0.5, 100.0), (1.0, 100.0, 0.5, 1.0), (100.0, 1.0, 0.5, 1.0)])
def test_both_factors_of_a_gate_and_their_product_fit(made: float, read: float, offset: float, limit: float) -> None:
    """And with one bit more one of them does not, unless the accumulators have no more."""
    own = chooser({"y": 30})
    seen: Any = SimpleNamespace(ranges={name: SimpleNamespace(expected=lambda least, value=value: value)
                                        for name, value in (("x", read), ("y", made))})
    own.calibration = seen
    gate: Any = SimpleNamespace(source="x", offset=offset, limit=limit)
    layer: Any = SimpleNamespace(output=var("y"))
    shift, product = own._gate(layer, gate, 20)
    factors, largest = 20 - shift, ARCH.number.maximum

    def fits(bits: int) -> bool:
        loaded = 2 * bits - POINT
        return max(read, abs(offset), limit) * 2.0 ** bits <= largest and made * 2.0 ** loaded <= largest

    assert fits(factors) and (not fits(factors + 1) or factors == 20)
    assert product == 2 * factors - POINT and own.points["y"] == min(30, product)


def sized(sums: dict[str, float] | None = None, **sizes: float) -> Any:
    """A calibration of tensors with these root mean squares."""
    return SimpleNamespace(sums=sums, ranges={name: SimpleNamespace(root_mean_square=size)
                                              for name, size in sizes.items()})


@pytest.mark.parametrize(("excess", "right", "left", "lost"), [
    (-1, "z", 4.0, (0, 0)), (0, "z", 4.0, (0, 0)), (4, "z", 1.0, (2, 2)), (4, "z", 4.0, (3, 1)), (3, "x", 1.0, (2, 2)),
    (4, "x", 1.0, (2, 2)), (1, "x", 1.0, (1, 1))])
def test_factors_lose_the_bits_that_accumulators_have_no_room_for(excess: int, right: str, left: float,
                                                                  lost: tuple[int, int]) -> None:
    """A square loses as many of both."""
    own = chooser({"x": 12, "z": 12})
    limit = 24 - excess
    own.calibration = sized({"p": 2.0 ** (ARCH.accumulator_bits - 1 - limit) / 1.25 * 0.999}, x=left, z=1.0)
    core = made_of(Product, name="p", input=var("x"), weights=var(right))
    layer: Any = SimpleNamespace(core=core, adds=(), elementwise=None)
    weights, sums = own._product(layer)
    assert own.points["x"] == 12 - lost[0] and weights == own.points[right] == 12 - lost[1]
    assert sums == 24 - sum(lost) <= limit


@pytest.mark.parametrize(("values", "point"), [([1.0, -3.0], 0), ([0.5, 2.0], 1), ([1 / 32], 5),
                                               ([2.0 ** -40], math.inf),
                                               ([1.0] * 64 + [0.25], 2)])
def test_the_point_at_which_all_weights_are_whole(values: list[float], point: float) -> None:
    own = chooser({})
    own.constants, own.exact = {"w": np.array(values, np.float32)}, {}
    assert own._exact_point("w") == point == own._exact_point("w")


@pytest.mark.parametrize(("most", "limit", "exact", "whole", "bits"), [
    (10, 22, math.inf, math.inf, 0), (10, 18, math.inf, math.inf, 1), (10, 16, math.inf, math.inf, 2),
    (10, 16, 6, math.inf, 0), (10, 16, 7, math.inf, 1), (10, 12, math.inf, 8, 4), (10, 12, math.inf, 5, 5)])
def test_activations_give_up_bits_for_weights_that_need_them(most: int, limit: int, exact: float, whole: float,
                                                             bits: int) -> None:
    """Of ten each: weights that are whole numbers at their point have no error, nor have activations."""
    own = chooser({})
    own.exact, own.calibration, own.copies = {"w": exact}, sized(x=1.0), {}
    own.whole = {} if whole == math.inf else {"x": int(whole)}
    core = made_of(Convolution, input=var("x"), weights="w")
    sizes: Any = SimpleNamespace(root_mean_square=1.0, of_others=2.0 ** 6)
    assert own._concession(core, sizes, 10, most, limit) == bits
    own.copies = {"x": None}  # type: ignore[dict-item]
    if limit < 20 and exact == whole == math.inf:  # weights of lanes that are read are larger: they lose less
        assert own._concession(core, sizes, 10, most, limit) < bits or bits == 0
