# SPDX-License-Identifier: Apache-2.0
"""Passes leave a network's numbers as they are, in each form that a seed or a table gives them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.onnx_reader import to_graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.lowering.rewrite import NO_WINDOW
from weft.compiler.passes import split_channels as split
from weft.compiler.passes.magnitudes import TURN, turn_magnitudes
from weft.compiler.passes.round_before_limits import round_before_limits
from weft.compiler.passes.split_channels import split_channels
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.random.network_rule import TABLES
from weft.tmodel.onnx_engine import run_model

BYTES = BASE.replace(data_type="INT8", **{**TABLES, "lut_depth": 256})


def number(maker: ModelMaker, value: float, rank: int) -> str:
    return maker.constant(np.full((1,) * rank, value, np.float32))


def drawn_magnitude(seed: int) -> tuple[ModelMaker, list[str]]:
    """A root or a logarithm of a sum of squares, and its outputs, of which the sum may be one."""
    draw, maker = np.random.default_rng(seed), ModelMaker((1, 3, 5), seed)
    sides = [maker.node("Conv", "x", maker.normal(4, 3, 1), maker.normal(4)) for _ in range(int(draw.integers(2, 4)))]
    total = maker.node("Mul", sides[0], sides[0])
    for side in sides[1:]:
        total = maker.node("Add", total, maker.node("Mul", side, side))
    ends, read = [], total
    if draw.integers(2):
        read = maker.node("Add", total, number(maker, 0.25, int(draw.integers(2, 5))))
    if draw.integers(3) == 0:
        ends.append(total)
    if draw.integers(4) == 0:
        read = maker.node("Transpose", maker.node("Reshape", read, maker.constant(np.array([1, 4, 5]))), perm=[0, 2, 1])
    last = maker.node(["Sqrt", "Sqrt", "Log"][int(draw.integers(3))], read)
    return maker, [*ends, last]


def test_turns_give_magnitudes_and_leave_outputs_alone() -> None:
    """To 0.06 %. A sum of squares that is an output is no square of a length."""
    turned = 0
    for seed in range(60):
        maker, outputs = drawn_magnitude(seed)
        before = to_graph(onnx.shape_inference.infer_shapes(maker.model(*outputs)), "made")
        given = {"x": np.random.default_rng(seed).standard_normal((1, 3, 5)).astype(np.float32)}

        def measure(names: Sequence[str]) -> dict[str, tuple[float, float]]:
            return {name: (float(value.min()), float(value.max()))
                    for name, value in run_model(to_onnx(before, names), given).items()}  # noqa: B023

        after = turn_magnitudes(before, measure)
        wanted, found = (run_model(to_onnx(graph), given) for graph in (before, after))
        for place, (name, value) in enumerate(wanted.items()):
            assert found[name].shape == value.shape, seed
            more, least = (1e-5, 0.0) if place < len(wanted) - 1 else (2e-3, 4e-3)
            np.testing.assert_allclose(found[name], value, rtol=more, atol=least, err_msg=str(seed))
        turned += any(TURN in node.output for node in after.nodes)
    assert 20 < turned < 60


def pointwise(name: str, source: str, weights: np.ndarray, bias: np.ndarray,
              constants: dict[str, np.ndarray]) -> Node:
    constants |= {f"{name}.w": weights.astype(np.float32)[..., None, None], f"{name}.b": bias.astype(np.float32)}
    return Node(name, "Conv", (source, f"{name}.w", f"{name}.b"), (name,), {**NO_WINDOW, "group": 1, "kernel_shape": (
        1, 1)}, "Conv", 48)


@pytest.mark.parametrize("seed", range(24))
def test_convolutions_whose_channels_others_choose_compute_the_same(seed: int) -> None:
    """No choice that adds a bias, scales, adds channels up or leaves lanes empty is taken for a plain one."""
    draw, constants = np.random.default_rng(seed), dict[str, np.ndarray]()
    source = pointwise("c", "x", draw.standard_normal((12, 4)), draw.standard_normal(12), constants)
    readers, plain = [], []
    for number_ in range(int(draw.integers(2, 4))):
        weights, bias = np.zeros((4, 12)), np.zeros(4)
        weights[range(4), draw.permutation(12)[:4]] = 1
        kind = draw.choice(["plain", "plain", "plain", "bias", "scale", "sum", "none"])
        if kind == "bias":
            bias[2] = 0.5
        elif kind == "scale":
            weights[1] *= 2
        elif kind == "sum":
            weights[1, :2] = 1
        elif kind == "none":
            weights[1] = 0
        plain.append(kind == "plain")
        readers.append(pointwise(f"r{number_}", "c", weights, bias, constants))
    shapes = {"x": (1, 4, 2, 3), "c": (1, 12, 2, 3), **{node.output: (1, 4, 2, 3) for node in readers}}
    graph = Graph("g", (source, *readers), (GraphPort("x", (1, 4, 2, 3), "x"),), tuple(
        GraphPort(node.output, (1, 4, 2, 3), node.output) for node in readers), shapes, constants, 20)
    after = split_channels(graph, 4)
    given = {"x": draw.standard_normal((1, 4, 2, 3)).astype(np.float32)}
    wanted, found = (run_model(to_onnx(each), given) for each in (graph, after))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
    assert ("c" not in {node.output for node in after.nodes}) == all(plain)


@pytest.mark.parametrize(("before", "low", "changes"), [
    ((), -1.0, True), (("Relu",), -1.0, True), (("Identity",), -1.0, True), ((FAKE_QUANTIZE,), -1.0, False),
    ((FAKE_QUANTIZE, "Identity"), -1.0, False), ((FAKE_QUANTIZE, "Identity", "Identity"), -1.0, False),
    ((FAKE_QUANTIZE, "Relu"), -1.0, True), ((), 0.0, False)])
def test_what_a_clip_limits_is_rounded_once(before: tuple[str, ...], low: float, changes: bool) -> None:
    """All stays where it is rounded already, or limited from 0."""
    name, nodes = "x", []
    rounding = {"scale": 0.5, "zero": 3}
    for place, op in enumerate(before):
        nodes.append(Node(f"n{place}", op, (name,), (f"n{place}",), rounding if op == FAKE_QUANTIZE else {}))
        name = f"n{place}"
    nodes += [Node("c", "Clip", (name, "low", "high"), ("c",)), Node("q", FAKE_QUANTIZE, ("c",), ("q",), rounding)]
    graph = Graph("g", tuple(nodes), (GraphPort("x", (1, 2), "x"),), (GraphPort("q", (1, 2), "q"),),
                  dict.fromkeys(["x", "q", "c", *(node.output for node in nodes)], (1, 2)),
                  {"low": np.float32(low) * np.ones(()), "high": np.ones(())}, 20)
    ops = [node.op for node in round_before_limits(graph, BYTES).nodes]
    assert ops == [*before, *[FAKE_QUANTIZE] * changes, "Clip", FAKE_QUANTIZE]


@pytest.mark.parametrize(("read", "made", "parts", "less"), [
    (8, 8, (4, 4), True), (9, 8, (4, 4), False), (8, 8, (4, 5), False), (5, 7, (3, 4), True), (4, 9, (4, 4, 1), True),
    (4, 8, (4, 4, 1), False), (4, 4, (4, 0), True)])
def test_channels_are_split_where_all_parts_have_as_few_tiles(read: int, made: int, parts: tuple[int, ...],
                                                              less: bool) -> None:
    """The machine has four lanes; the whole has at least as many as are read, for each part reads all of them."""
    shapes = {"x": (1, read, 1, 1), "y": (1, made, 1, 1)}
    graph = Graph("net", (), (), (), shapes, {}, 13)
    conv = Node("y", "Conv", ("x", "w", "b"), ("y",))
    assert split._no_more_work(graph, conv, [np.arange(count) for count in parts], 4) == less
