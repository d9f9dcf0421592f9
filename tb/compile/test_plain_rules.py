# SPDX-License-Identifier: Apache-2.0
"""Rules of the compiler that whole networks hide, each against numbers by hand or a plain definition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.choices import Choices
from weft.compiler.errors import CompileError
from weft.compiler.frontend.check_quantizers import check_quantizers
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.quantizers import with_fake_quantizers
from weft.compiler.layers.stages import Convolution
from weft.compiler.layers.var import Var
from weft.compiler.quantize.poles import poles
from weft.compiler.quantize.weight_scales import weight_scales
from weft.compiler.quantize.weight_sizes import WeightSizes
from weft.compiler.quantize.work import done_macs
from weft.compiler.scheduler import schedule as scheduling
from weft.compiler.scheduler.schedule import FEW_PACE, Schedule, interleaved
from weft.compiler.scheduler.stages import _has_work
from weft.compiler.tiling.candidates import candidates
from weft.compiler.tiling.cuts import Cut
from weft.compiler.tiling.weight_tiles import WeightTiles
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


# -- graphs ------------------------------------------------------------------------------------------------------------
def test_a_graph_knows_what_has_one_reader_and_which_names_are_free() -> None:
    """One node reads x twice, two read a, one reads b, an output too, one reads c, and none y, an output."""
    nodes = (Node("a", "Add", ("x", "x"), ("a",)), Node("b", "Relu", ("a",), ("b",)),
             Node("c", "Add", ("a", "k"), ("c",)), Node("y", "Add", ("c", "b"), ("y",)))
    outputs = tuple(GraphPort(name, (1, 2), name) for name in "yb")
    graph = Graph("g", nodes, (GraphPort("x", (1, 2), "x"),), outputs,
                  dict.fromkeys((*"xabcy", "c'"), (1, 2)), {"k": np.zeros(2), "k'": np.zeros(2)}, 13)
    assert [name for name in "xabcyk" if graph.has_one_reader(name)] == ["c", "k"]
    assert [graph.free_name(wish) for wish in ("new", "a", "c", "k")] == ["new", "a'", "c''", "k''"]


# -- readers of operators ----------------------------------------------------------------------------------------------
CONSTANTS = {"s": np.float32(0.5), "z": np.int8(3), "s2": np.float32(0.25), "z2": np.int8(0)}


@pytest.mark.parametrize(("scale", "zero", "fits"), [("s", "z", True), ("s2", "z", False), ("s", "z2", False)])
def test_bytes_that_are_joined_have_one_scale_and_one_zero_point(scale: str, zero: str, fits: bool) -> None:
    nodes = (Node("a", "QuantizeLinear", ("x", "s", "z"), ("a",)),
             Node("b", "QuantizeLinear", ("x", scale, zero), ("b",)),
             Node("c", "Concat", ("a", "b"), ("c",), {"axis": 1}),
             Node("y", "DequantizeLinear", ("c", "s", "z"), ("y",)))
    graph = Graph("g", nodes, (GraphPort("x", (1, 2), "x"),), (GraphPort("y", (1, 4), "y"),),
                  {"x": (1, 2), "a": (1, 2), "b": (1, 2), "c": (1, 4), "y": (1, 4)},
                  {name: np.asarray(value) for name, value in CONSTANTS.items()}, 13,
                  types=dict.fromkeys("abc", "int8"))
    if fits:
        assert [node.op for node in with_fake_quantizers(graph).nodes] == ["FakeQuantize", "FakeQuantize", "Concat",
                                                                           "Identity"]
    else:
        with pytest.raises(CompileError, match="one scale and zero point"):
            with_fake_quantizers(graph)


@pytest.mark.parametrize(("op", "rank", "attributes", "axes"), [
    ("Conv", 4, {}, {0, -4}), ("Conv", 3, {}, {0, -3}), ("ConvTranspose", 4, {}, {1, -3}), ("MatMul", 2, {}, {1, -1}),
    ("Gemm", 2, {}, {1, -1}), ("Gemm", 2, {"transB": 0}, {1, -1}), ("Gemm", 2, {"transB": 1}, {0, -2})])
def test_scales_of_weights_lie_on_their_output_channels(op: str, rank: int, attributes: dict[str, Any],
                                                        axes: set[int]) -> None:
    """Counted from the first axis or from the last one."""
    for axis in range(-rank, rank):
        nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=axis),
                 helper.make_node(op, ["x", "r"], ["y"], **attributes)]
        model = helper.make_model(helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4] * rank)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.ones((4,) * rank, np.int8), "w"),
             numpy_helper.from_array(np.ones(4, np.float32), "s")]))
        if axis in axes:
            check_quantizers(model)
        else:
            with pytest.raises(CompileError, match="attribute axis"):
                check_quantizers(model)


@pytest.mark.parametrize("readers", [
    "D", "TD", "TMD", "T,D", "T,TM,D", "TM,TMD", "D,T", "T,TM", "T"])
def test_bytes_of_an_input_have_the_scale_of_the_first_that_dequantises_them(readers: str) -> None:
    """Behind operators that move them too, whatever others read. Each letter is an operator behind the one before."""
    kinds = {"D": "DequantizeLinear", "T": "Transpose", "M": "MaxPool"}
    nodes, ends = [], []
    for number, chain in enumerate(readers.split(",")):
        name = "x"
        for place, kind in enumerate(chain):
            made = f"t{number}.{place}"
            nodes.append(Node(made, kinds[kind], (name, "s", "z") if kind == "D" else (name,), (made,)))
            name = made
        ends.append(GraphPort(name, (1, 2), name))
    names = ["x", *(node.output for node in nodes)]
    graph = Graph("g", (*nodes, Node("q", "QuantizeLinear", ("r", "s", "z"), ("q",))),
                  (GraphPort("x", (1, 2), "x", type="int8"), GraphPort("r", (1, 2), "r")), tuple(ends),
                  dict.fromkeys([*names, "q", "r"], (1, 2)),
                  {name: np.asarray(value) for name, value in CONSTANTS.items()}, 13,
                  types=dict.fromkeys(names, "int8"))
    found = with_fake_quantizers(graph).inputs[0].quantized
    assert (found is not None and tuple(found) == (0.5, 3)) == ("D" in readers) and (found is None) == (
        "D" not in readers)


# -- quantize ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("low", "high", "refused"), [
    (-1, 1, True), (0, 2, True), (-2, 0, True), (0, 0, True), (0.01, 2, False), (-2, -0.01, False)])
@pytest.mark.parametrize("op", ["Div", "Reciprocal"])
def test_a_divisor_does_not_reach_0(op: str, low: float, high: float, refused: bool) -> None:
    """Not even at an end of its range."""
    inputs = ("one", "d") if op == "Div" else ("d",)
    graph = Graph("g", (Node("n", op, inputs, ("y",)),), (), (), {"d": (1,), "one": (1,)}, {}, 20)
    assert bool(poles(graph, lambda names: dict.fromkeys(names, (low, high)))) == refused


@pytest.mark.parametrize(("op", "measured"), [
    ("Exp", False), ("Sigmoid", False), ("Softplus", False), ("Sqrt", False), ("Relu", True), ("Abs", True),
    ("Tanh", True), ("HardSigmoid", True), ("Clip", True)])
def test_only_what_is_always_above_0_is_not_measured(op: str, measured: bool) -> None:
    graph = Graph("g", (Node("d", op, ("x",), ("d",)), Node("n", "Div", ("x", "d"), ("y",))), (), (),
                  {"d": (1,), "x": (1,)}, {}, 20)
    assert bool(poles(graph, lambda names: dict.fromkeys(names, (0.0, 1.0)))) == measured


def test_copies_of_weights_are_no_work_of_the_network() -> None:
    core = Convolution(Var("x", 4, 3, 3), "w", "b", 1, Window((1, 1)), (3, 3), 9 * 4)
    assert done_macs(SimpleNamespace(core=core), np.ones((4, 4, 1, 1), int), 4) == 9 * 4  # type: ignore[arg-type]
    core = Convolution(Var("x", 4, 3, 3), "w", "b", 1, Window((1, 1)), (3, 3), 9 * 16)
    assert done_macs(SimpleNamespace(core=core), np.ones((4, 4, 1, 1), int), 4) == 9 * 16  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(4))
def test_sizes_of_weights_are_of_both_signs(seed: int) -> None:
    weights = np.random.default_rng(seed).standard_normal((5, 3, 2, 2)).astype(np.float32)
    weights[::2] = 0
    sizes, kept = WeightSizes(weights), weights[weights != 0].astype(np.float64)
    assert sizes.largest == np.abs(weights).max()
    assert sizes.root_mean_square == pytest.approx(np.sqrt((weights.astype(np.float64) ** 2).mean()))
    assert sizes.of_others == pytest.approx(np.sqrt((kept ** 2).mean()))
    np.testing.assert_allclose(sizes.sums, np.abs(weights).sum((1, 2, 3)), rtol=1e-6)
    assert WeightSizes(np.zeros((2, 1))).of_others == 0


@pytest.mark.parametrize("count", [3, 24, 25, 60])
def test_all_weights_of_a_channel_are_multiples_of_its_scale(count: int) -> None:
    """The one that tells comes last, behind those that are multiples of twice the scale."""
    steps = 2 * np.random.default_rng(count).integers(-20, 20, (6, count))
    steps[:, 0], steps[:, -1] = 40, 7
    weights = steps * 0.01
    scales = weight_scales(weights, np.zeros(6), 0.02, 0.05)
    whole = weights / scales[:, None]
    np.testing.assert_allclose(whole, np.rint(whole), atol=1e-3)


# -- scheduler ---------------------------------------------------------------------------------------------------------
def test_a_chosen_pace_comes_before_that_of_layers_of_few_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr(scheduling, "interleave", lambda table, arch, paces: found.append(paces))
    monkeypatch.setattr(Schedule, "ordered", lambda self, order: self)
    plain = Schedule(None, np.array([0, 1, 2, 3]), frozenset({1, 2}))  # type: ignore[arg-type]
    for choices in (Choices(), Choices(fetch_paces={0: 5, 1: 7}), Choices(fetch_pace=4, fetch_paces={2: 9}),
                    Choices(paces={3: 6})):
        interleaved(plain, ARCH, choices)
    few = FEW_PACE
    assert [each.fetch.tolist() for each in found] == [[2, few, few, 2], [5, 7, few, 2], [4, 4, 9, 4],
                                                       [2, few, few, 2]]
    assert [each.simd is None for each in found] == [True, True, True, False] and found[3].simd[3] == 6


@pytest.mark.parametrize(("starts", "chosen", "works"), [
    (False, [], False), (True, [], True), (False, [1], True), (True, [1], True)])
def test_a_step_of_the_bias_alone_is_a_step(starts: bool, chosen: list[int], works: bool) -> None:
    block = SimpleNamespace(starts=lambda *_: starts, chosen=lambda *_: chosen)
    none = SimpleNamespace(starts=lambda *_: False, chosen=lambda *_: [])
    shape: Any = SimpleNamespace(consts=SimpleNamespace(blocks=[none, block, none]))
    region: Any = SimpleNamespace(tiles=(0, 2))
    assert _has_work(shape, region, (0, 1), (0, 1)) == works
    region.tiles = (2, 3)
    assert not _has_work(shape, region, (0, 1), (0, 1))


# -- tiling ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("size", "tiles"), [((4, 3), 3), ((1, 1), 3), ((4, 3), 1)])
def test_channel_tiles_are_also_the_outer_loop_where_both_loops_turn(size: tuple[int, int], tiles: int) -> None:
    """There are several parts of the pixels and several groups of output channel tiles."""
    shape: Any = SimpleNamespace(
        output_size=size, loads=False, input_tiles=2, output_tiles=tiles, most_taps=1, links=lambda *_: (2, 1),
        weight_vectors=lambda *_: 1,
        cuts=lambda grains, groups: np.zeros((len(grains) * len(groups), len(Cut._fields))))
    found = candidates(shape, 0)
    every = [found.tiling(row) for row in range(len(found.grain))]
    plain = {repr({**each.to_json(), "outputs_outer": True}) for each in every if not each.outputs_outer}
    turned = {repr(each.to_json()) for each in every if each.outputs_outer}
    both = {repr({**each.to_json(), "outputs_outer": True}) for each in every
            if each.grain.size != size and each.outputs < tiles}
    assert turned == both & plain == both and bool(turned) == (size != (1, 1) and tiles > 1)


@pytest.mark.parametrize(("change", "alike"), [
    ({}, True), ({"bias": 7}, True), ({"biased": False}, False), ({"carries_bias": True}, False)])
def test_output_channel_tiles_are_alike_with_the_same_bias(change: dict[str, Any], alike: bool) -> None:
    """Its place does not count: offsets are from there."""
    def block(bias: int, **more: Any) -> Any:
        tile = SimpleNamespace(tap=(0, 0), offset=bias + 1, kernel_rows=1, taps=0, rows=4)
        return SimpleNamespace(**{"bias": bias, "tiles": [[tile]], "most_taps": 1, "carries_bias": False,
                                  "biased": True, "owner": 0, **more})

    changed = dict(change)
    second = block(changed.pop("bias", 0), **changed)
    (first, *_), (other, *_) = WeightTiles((block(0), second), Window((1, 1))).alike_blocks
    assert (first == other) == alike
