# SPDX-License-Identifier: Apache-2.0
"""Variances that span a wide range, and those written as a difference of means of squares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.onnx_reader import to_graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.passes.canonicalise_variances import canonicalise_variances
from weft.compiler.pipeline import compile_model
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tb.random.network_rule import TABLES
from weft.tmodel.onnx_engine import run_model

ARCH = BASE.replace(**{**TABLES, "lut_depth": 256})
PIXELS, CHANNELS, SPAN = 24, 64, 1000.0
"""Variances of the pixels are up to SPAN times as large as the smallest one."""


def wide_samples(mean: float, channels: int = CHANNELS) -> np.ndarray:
    """[2, PIXELS, channels], pixels of a ``mean`` in deviations of their own."""
    random = np.random.default_rng(5)
    deviations = np.geomspace(SPAN ** -0.5, 1, PIXELS)
    values = random.standard_normal((2, PIXELS, channels)) + mean * random.choice([-1, 1], (2, PIXELS, 1))
    return (values * deviations[:, None]).astype(np.float32)


def means(maker: ModelMaker, source: str) -> str:
    return maker.node("ReduceMean", source, axes=[-1], keepdims=1)


def sums(maker: ModelMaker, source: str) -> str:
    return maker.node("Mul", maker.node("ReduceSum", source, maker.constant(np.array([2])), keepdims=1),
                      maker.constant(np.float32(1 / CHANNELS)))


def of_difference(maker: ModelMaker, mean: Callable[[ModelMaker, str], str]) -> None:
    """As flax writes it."""
    middle = mean(maker, "x")
    variance = maker.node("Sub", mean(maker, maker.node("Mul", "x", "x")), maker.node("Mul", middle, middle))
    variance = maker.node("Max", variance, maker.constant(np.float32(0)))
    deviation = maker.node("Sqrt", maker.node("Add", variance, maker.constant(np.float32(1e-6))))
    maker.node("Mul", maker.node("Sub", "x", middle), maker.node("Reciprocal", deviation))


@pytest.mark.parametrize("mean", [means, sums])
def test_a_variance_by_a_difference_keeps_its_bits(mean: Callable[[ModelMaker, str], str], tmp_path: Path) -> None:
    """As it is written 1 / deviation has next to none where the deviation is small."""
    maker = ModelMaker((1, PIXELS, CHANNELS))
    of_difference(maker, mean)
    check_model(maker.save(tmp_path / "model.onnx"), ARCH, wide_samples(4.0), 44)


def test_small_squares_keep_their_bits_in_large_groups(tmp_path: Path) -> None:
    """No square is nearly as large as all of its group: a limit for one that is would cost small ones 7 dB."""
    channels = 512
    maker = ModelMaker((1, PIXELS, channels), opset=17)
    ones, zeros = (maker.constant(np.full(channels, value, np.float32)) for value in (1, 0))
    maker.node("LayerNormalization", "x", ones, zeros, axis=-1)
    check_model(maker.save(tmp_path / "model.onnx"), ARCH, wide_samples(0.0, channels), 46)


@pytest.mark.parametrize(("least", "coarse"), [(1e-5, True), (0.5, False)])
def test_a_coarse_variance_is_named(least: float, coarse: bool, tmp_path: Path) -> None:
    """1 / sqrt of an input whose smallest numbers are less than half a step of it."""
    maker = ModelMaker((1, 8, 4, 4))
    shifted = maker.node("Add", "x", maker.constant(np.float32(least)))
    maker.node("Reciprocal", maker.node("Sqrt", shifted))
    given = np.geomspace(1e-6, 1, 256).reshape(2, 8, 4, 4).astype(np.float32)
    report = compile_model(maker.save(tmp_path / "model.onnx"), ARCH, tmp_path, calibration={"x": given})
    assert [text for text in report.warnings if "half a step of its argument" in text and "epsilon" in text] == (
        [text for text in report.warnings if text.startswith("layer")] if coarse else [])
    assert coarse == bool(report.warnings)


def centred(maker: ModelMaker, *outputs: str) -> tuple[Graph, Graph]:
    graph = to_graph(onnx.shape_inference.infer_shapes(maker.model(*outputs)), "made")
    return graph, canonicalise_variances(graph)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def test_what_has_no_mean_is_made_once() -> None:
    maker = ModelMaker((1, PIXELS, CHANNELS))
    of_difference(maker, means)
    _, graph = centred(maker)
    assert ops(graph) == ["ReduceMean", "Sub", "ReduceSumSquare", "Mul", "Add", "Sqrt", "Reciprocal", "Mul"]


def test_a_variance_that_is_an_output_stays_one() -> None:
    maker = ModelMaker((1, PIXELS, CHANNELS))
    middle = means(maker, "x")
    variance = maker.node("Sub", means(maker, maker.node("Mul", "x", "x")), maker.node("Mul", middle, middle))
    largest = maker.node("Max", variance, maker.constant(np.float32(0)))
    _, graph = centred(maker, variance, largest)
    assert ops(graph) == ["ReduceMean", "Sub", "ReduceSumSquare", "Mul", "Max"]
    assert graph.nodes[3].output == variance


@pytest.mark.parametrize("other", ["axes", "factor", "source", "sides"])
def test_another_difference_stays(other: str) -> None:
    """Means over other axes, no means, squares of something else, the difference the other way round."""
    maker = ModelMaker((1, CHANNELS, CHANNELS))
    source = maker.node("Relu", "x") if other == "source" else "x"
    middle = means(maker, "x")
    squares = maker.node("Mul", source, source)
    if other == "factor":
        found = maker.node("ReduceSum", squares, maker.constant(np.array([2])), keepdims=1)
    else:
        found = maker.node("ReduceMean", squares, axes=[1 if other == "axes" else 2], keepdims=1)
    sides = [found, maker.node("Mul", middle, middle)]
    maker.node("Sub", *(sides[::-1] if other == "sides" else sides))
    before, after = centred(maker)
    assert after is before


def test_the_nodes_are_those_of_a_graph() -> None:
    """Every tensor is made before it is read."""
    maker = ModelMaker((1, PIXELS, CHANNELS))
    of_difference(maker, sums)
    _, graph = centred(maker)
    made = {"x", *graph.constants}
    for node in graph.nodes:
        assert isinstance(node, Node) and made.issuperset(filter(None, node.inputs))
        made.add(node.output)


def drawn(seed: int) -> tuple[ModelMaker, list[str]]:
    """A difference of two means, or of what nearly is one, with readers and outputs in any place."""
    draw, maker = np.random.default_rng(seed), ModelMaker((1, 4, 4), seed)
    axes = [[-1], [-2], [1, 2]][int(draw.integers(3))]
    keeps = int(draw.integers(2))
    count = np.float32(16 if len(axes) > 1 else 4)

    def mean(source: str) -> str:
        kind = int(draw.integers(6))
        if kind < 3:
            return maker.node("ReduceMean", source, axes=axes, keepdims=keeps)
        total = maker.node("ReduceSum", source, maker.constant(np.array(axes)), keepdims=keeps)
        if kind == 3:
            return maker.node("Mul", total, maker.constant(1 / count))
        return maker.node("Div", *((total, maker.constant(count)) if kind == 4 else (maker.constant(count), total)))

    middle = mean("x")
    square = maker.node("Mul", middle, middle)
    variance = maker.node("Sub", mean(maker.node("Mul", "x", "x")), square)
    limited = maker.node("Max", variance, maker.constant(np.float32(draw.choice([0, 0.5]))))
    centre = maker.node("Sub", "x", middle)
    ends = [name for name in (middle, variance, limited, centre) if draw.integers(2)]
    return maker, [*ends, maker.node("Neg", limited)]


def test_variances_stay_what_they_are() -> None:
    """In numbers, whatever else the network computes of the mean."""
    changed = 0
    for seed in range(60):
        maker, outputs = drawn(seed)
        before, after = centred(maker, *outputs)
        given = {"x": np.random.default_rng(seed).standard_normal((1, 4, 4)).astype(np.float32) + 1}
        wanted, found = (run_model(to_onnx(graph), given) for graph in (before, after))
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=1e-4, err_msg=str(seed))
        changed += "ReduceSumSquare" in ops(after)
    assert 15 < changed < 45
