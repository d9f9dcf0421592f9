# SPDX-License-Identifier: Apache-2.0
"""Small rules of the compiler, each by itself, with numbers by hand: whole networks meet them only together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.frontend.check_quantizers import known_constants
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.layers import beside
from weft.compiler.layers.stages import Convolution
from weft.compiler.lowering.rules import ValueTable, filled
from weft.compiler.memory import sharing
from weft.compiler.passes.fit_masks import Mask
from weft.compiler.passes.fuse_functions import _bends
from weft.compiler.passes.scale_channels import _is_positive
from weft.compiler.passes.split_functions import _are_squares, split_functions
from weft.compiler.quantize.tables import _pieces
from weft.compiler.quantize.var_scales import _Groups
from weft.compiler.quantize.work import _products
from weft.compiler.scheduler import length
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError
from weft.tmodel.onnx_bounds import _check_outside
from weft.tmodel.scales import TensorScale


@pytest.mark.parametrize(("magnitude", "limit"), [(1.0, 1), (1.5, 2), (2.0, 2), (3.0, 4), (0.3, 0.5)])
def test_what_saturates_is_just_below_a_power_of_two(magnitude: float, limit: float) -> None:
    assert filled(magnitude) == limit - limit / 32768


@pytest.mark.parametrize(("zero", "exponent"), [(0, 8), (-128, 8), (127, 8), (-127, 8)])
def test_a_scale_saturates_from_the_power_of_two_that_it_cannot_hold(zero: int, exponent: int) -> None:
    assert TensorScale(1.0, zero).exponent == exponent
    assert TensorScale(0.25, zero).exponent == exponent - 2


@pytest.mark.parametrize("computed", [False, True])
def test_a_mask_goes_as_far_below_as_scores_spread(computed: bool) -> None:
    """Half as much again as they spread where calibration saw them, so 6 for 4 more."""
    mask = Mask(Node("y", "Add", ("x", "mask"), ("y",)), 1, "x", computed)
    value = np.array([0, -1e9], np.float32)
    narrow, wide = (mask.fitted(value, (-span, 0.0)) for span in (4.0, 8.0))
    assert (narrow - wide)[1] == 6 and (narrow[0] == 0 or computed)


@pytest.mark.parametrize(("nodes", "bends"), [
    (["Relu"], False), (["Relu", "Neg"], False), (["Exp"], True), (["Relu", "Exp"], True), (["Exp", "Relu"], True)])
def test_one_node_that_bends_needs_a_table(nodes: list[str], bends: bool) -> None:
    graph: Any = SimpleNamespace(is_constant=lambda _: False)
    entries: Any = [SimpleNamespace(op=op, inputs=("x",)) for op in nodes]
    assert _bends(graph, entries, "x", rounded=frozenset()) == bends


@pytest.mark.parametrize(("op", "arguments", "positive"), [
    ("Add", (1, 0.5), True), ("Mul", (1, 1), True), ("Min", (1, 2.0), True), ("Add", (1, -0.5), False),
    ("Add", (1, 0), False), ("Sub", (1, 0.5), False), ("Max", (0, 0.0), True), ("Max", (0, -1.0), False)])
def test_a_sum_of_what_is_never_negative_is_not_either(op: str, arguments: tuple[int | float, ...],
                                                       positive: bool) -> None:
    assert _is_positive((("Sigmoid", (0,), ()), (op, arguments, ())), 2) == positive


@pytest.mark.parametrize(("op", "inputs", "steps", "squares"), [
    ("Mul", ("x", "x"), None, True), ("Mul", ("x", "y"), None, False), ("Add", ("x", "x"), None, False),
    ("Table", ("x",), (("Mul", (0, 0), ()),), True), ("Table", ("x",), (("Mul", (0, 2.0), ()),), False)])
def test_squares_are_products_of_a_tensor_with_itself(op: str, inputs: tuple[str, ...], steps: Any,
                                                      squares: bool) -> None:
    node: Any = SimpleNamespace(op=op, inputs=inputs, attributes={} if steps is None else {"steps": steps})
    assert _are_squares(node) == squares


@pytest.mark.parametrize("highest", [np.nan, np.inf])
def test_a_steep_function_of_no_number_is_refused(highest: float) -> None:
    """An exponent or weight that is infinite makes such an argument."""
    root = Graph("root", (Node("y", "Sqrt", ("x",), ("y",)),), (), (), {"x": (1, 2, 1, 1), "y": (1, 2, 1, 1)}, {}, 20)
    with pytest.raises(CompileError, match="tensor 'x' on the calibration inputs: found NaN or infinity"):
        split_functions(root, lambda _, names: dict.fromkeys(names, (np.zeros(2), np.array([1.0, highest]))))


@pytest.mark.parametrize(("adds", "simd", "cycles"), [(0, 5, 10), (2, 5, 30), (2, 31, 31)])
def test_a_layer_is_busy_with_each_tensor_that_it_loads(adds: int, simd: int, cycles: int,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beside, "simd_cycles", lambda *_: simd)
    layer: Any = SimpleNamespace(adds=[None] * adds, output=SimpleNamespace(vectors=lambda lanes: 40 // lanes))
    assert beside._busy_cycles(layer, 4) == cycles


def test_roots_are_joined_once_and_never_under_two_scales_of_the_file() -> None:
    held = [SimpleNamespace(root=name, name=name) for name in "abcd"]
    layer: Any = SimpleNamespace(vars=held, output=held[0], elementwise=None)
    groups = _Groups([layer], {}, {"a": TensorScale(1.0, 0), "d": TensorScale(2.0, 0)})
    for _ in range(2):
        groups.join("b", "c")
        assert groups._members == {"a": ["a"], "b": ["b", "c"], "d": ["d"]}
    groups.join("a", "d")
    assert len(groups._members) == 3
    groups.join("c", "a")
    assert groups._members == {"b": ["b", "c", "a"], "d": ["d"]} and groups._given["b"].scale == 1


def test_the_outer_lines_of_a_function_reach_the_ends_of_its_range() -> None:
    """Squares at keys -1, 0 and 1: lines of the middles between keys, but from -4 and to 3."""
    made = _pieces(np.square, (-4.0, 3.0), ValueTable(), 4, 3, -16, 4)
    assert made.slopes.tolist() == [-4.5, 0.0, 3.5]


def test_data_outside_a_file_lie_beside_it(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    for place in ("net/own", "others"):
        (tmp_path / place).write_bytes(bytes(8))
    (tmp_path / "net" / "folder").mkdir()
    for location, allowed in (("own", True), ("./own", True), ("none", False), ("folder", False),
                              ("../others", False), (str(tmp_path / "others"), False)):
        tensor = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=[2])
        tensor.external_data.add(key="location", value=location)
        if allowed:
            _check_outside(tensor, tmp_path / "net")
        else:
            with pytest.raises(WeftError, match="found the file"):
                _check_outside(tensor, tmp_path / "net")


@pytest.mark.parametrize(("room", "taken", "fit"), [(10, 4, True), (9, 4, False), (10, 5, False)])
def test_shares_stay_where_all_layers_beside_one_still_fit(room: int, taken: int, fit: bool,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers 1 and 2 share four vectors beside layer 0, which needs six itself; layer 3 has nothing beside it."""
    monkeypatch.setattr(sharing, "together", lambda layers, arch: {0: [1, 2], 3: [4]})
    arch = Arch.load("tiny").replace(accumulator_depth=16)
    shape: Any = SimpleNamespace(layer=None, arch=arch, scratch=room)
    needs = [SimpleNamespace(local_total=local, accumulator_total=1) for local in (6, 4, taken, 6, 4)]
    plans: Any = [SimpleNamespace(need=need) for need in needs]
    share = sharing.Share(4, 1)
    assert sharing.still_fitting([shape] * 5, plans, {1: share, 2: share}) == ({1: share, 2: share} if fit else {})


@pytest.mark.parametrize("empty, tiles", [((), 4), ((0,), 4), (range(8), 3)], ids=["none", "a row", "a tile"])
def test_tiles_with_a_weight_are_counted_by_more_than_their_first_row(empty: Sequence[int], tiles: int) -> None:
    """Only a tile of zeros counts not."""
    weights = np.ones((16, 16, 1, 1), np.int64)
    weights[list(empty), :8] = 0
    assert _products(weights, 1, 8).tolist() == [[64 * tiles]]


def test_constants_of_a_file_are_read_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network without quantizers is spared copies of its weights; what cannot be read is not there."""
    asked: list[str] = []
    read = onnx.numpy_helper.to_array

    def noted(tensor: onnx.TensorProto) -> np.ndarray:
        asked.append(tensor.name)
        return read(tensor)

    monkeypatch.setattr("weft.compiler.frontend.check_quantizers.numpy_helper.to_array", noted)
    graph = onnx.GraphProto(initializer=[onnx.numpy_helper.from_array(np.arange(3), "a"),
                                         onnx.TensorProto(name="b", data_type=1, dims=[7])])
    known = known_constants(graph)
    assert not asked and known["a"].tolist() == [0, 1, 2] and "b" not in known and "c" not in known
    assert [*known] == ["a"] and known.get("b") is None and asked == ["a", "b"]


def test_a_short_program_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """If all of its weight tiles together are few enough, no weight is looked at."""
    core = Convolution.__new__(Convolution)
    core.__dict__.update(weights="w", group=1)
    layers: Any = [SimpleNamespace(core=core, pool=None)]
    weights, arch = {"w": np.zeros((8, 8, 3, 3))}, Arch.load("tiny")
    monkeypatch.setattr(length, "_weight_tiles", lambda *given: (_ for _ in ()).throw(AssertionError))
    length.check_layers(layers, weights, arch)
    monkeypatch.setattr(length, "MOST_PROGRAM_BYTES", 4)
    with pytest.raises(AssertionError):
        length.check_layers(layers, weights, arch)
