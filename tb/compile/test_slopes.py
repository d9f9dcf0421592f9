# SPDX-License-Identifier: Apache-2.0
"""Leaky ReLUs that files write with other operators become one PRelu, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import to_graph
from weft.compiler.layers.hir import Layers
from weft.compiler.passes.canonicalise_slopes import canonicalise_slopes
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model
from weft.tmodel.onnx_engine import session

CHANNELS = 6
SHAPE = (1, CHANNELS, 5, 4)
SLOPES = np.linspace(-0.5, 1.5, CHANNELS, dtype=np.float32).reshape(1, CHANNELS, 1, 1)
SAMPLES = np.random.default_rng(0).standard_normal((2, *SHAPE[1:])).astype(np.float32)


def number(maker: ModelMaker, value: float) -> str:
    return maker.constant(np.float32(value))


def of_magnitude(maker: ModelMaker, x: str) -> str:
    """As many networks for TensorFlow 1 have it."""
    below = maker.node("Mul", maker.node("Sub", x, maker.node("Abs", x)), maker.constant(SLOPES / 2))
    return maker.node("Add", maker.node("Relu", x), below)


def of_halves(maker: ModelMaker, x: str) -> str:
    """The same with another product, and the sum the other way round."""
    halved = maker.node("Mul", maker.node("Sub", x, maker.node("Abs", x)), number(maker, 0.5))
    return maker.node("Add", maker.node("Mul", maker.constant(SLOPES), halved), maker.node("Relu", x))


def of_two_relus(maker: ModelMaker, x: str) -> str:
    """Keras' PReLU."""
    return maker.node("Add", maker.node("Relu", x),
                      maker.node("Mul", maker.constant(-SLOPES), maker.node("Relu", maker.node("Neg", x))))


def of_difference(maker: ModelMaker, x: str) -> str:
    below = maker.node("Div", maker.node("Relu", maker.node("Neg", x)), maker.constant(1 / SLOPES))
    return maker.node("Sub", maker.node("Relu", x), below)


def of_limits(maker: ModelMaker, x: str) -> str:
    zero = number(maker, 0)
    return maker.node("Add", maker.node("Max", x, zero),
                      maker.node("Mul", maker.constant(SLOPES), maker.node("Min", zero, x)))


def of_a_multiple(maker: ModelMaker, x: str) -> str:
    """Of three times the tensor."""
    return of_two_relus(maker, maker.node("Mul", x, number(maker, 3)))


def of_a_negative(maker: ModelMaker, x: str) -> str:
    """Of the tensor's negative, whose slope below is found above zero."""
    return of_magnitude(maker, maker.node("Neg", x))


WRITTEN: dict[str, Callable[[ModelMaker, str], str]] = {
    form.__name__: form for form in (of_magnitude, of_halves, of_two_relus, of_difference, of_limits, of_a_multiple,
                                     of_a_negative)}


def canonical(maker: ModelMaker, *outputs: str) -> tuple[Graph, Graph]:
    graph = to_graph(onnx.shape_inference.infer_shapes(maker.model(*outputs)), "made")
    return graph, canonicalise_slopes(graph)


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes]


def same(*graphs: Graph) -> bool:
    """Tell whether onnxruntime finds the same in both."""
    first, second = (session(to_onnx(graph).SerializeToString()).run(None, {"x": SAMPLES[:1]})[0] for graph in graphs)
    return bool(np.allclose(first, second, rtol=1e-6, atol=1e-6))


@pytest.mark.parametrize("form", WRITTEN)
def test_a_function_with_two_slopes_is_one_operator(form: str) -> None:
    maker = ModelMaker(SHAPE)
    WRITTEN[form](maker, "x")
    before, after = canonical(maker)
    inner = {"of_a_multiple": ["Mul"], "of_a_negative": ["Neg"]}.get(form, [])
    assert ops(after) in ([*inner, "PRelu"], ["PRelu"]) and same(before, after)


@pytest.mark.parametrize(("slope", "op"), [(0.2, "LeakyRelu"), (-0.5, "PRelu"), (0.0, "Relu"), (-1.0, "Abs")])
def test_a_slope_for_all_may_have_an_operator_of_its_own(slope: float, op: str) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("Max", "x", maker.node("Mul", number(maker, slope), "x"))
    before, after = canonical(maker)
    assert ops(after) == [op] and same(before, after)


def test_what_others_read_stays() -> None:
    maker = ModelMaker(SHAPE)
    relu = maker.node("Relu", "x")
    whole = maker.node("Add", relu, maker.node("Mul", maker.node("Sub", "x", maker.node("Abs", "x")),
                                              number(maker, 0.1)))
    before, after = canonical(maker, maker.node("Mul", relu, whole))
    assert ops(after) == ["Relu", "LeakyRelu", "Mul"] and same(before, after)


def test_two_of_them_behind_each_other_are_two_or_one() -> None:
    """The second one's slopes are of the first one, or of what that reads."""
    maker = ModelMaker(SHAPE)
    of_two_relus(maker, of_magnitude(maker, "x"))
    before, after = canonical(maker)
    assert {*ops(after)} == {"PRelu"} and same(before, after)


@pytest.mark.parametrize("other", ["above", "line", "tensors", "shape", "factor"])
def test_other_sums_stay(other: str) -> None:
    """Another slope above zero, no bend, two tensors, a constant with more elements, a factor that is computed."""
    maker = ModelMaker((1, 1, 5, 4) if other == "shape" else SHAPE)
    relu, slope = maker.node("Relu", "x"), number(maker, 0.1)
    below = maker.node("Sub", "x", maker.node("Abs", "x"))
    match other:
        case "above":
            maker.node("Add", relu, maker.node("Mul", maker.node("Add", "x", maker.node("Abs", "x")), slope))
        case "line":
            maker.node("Add", "x", maker.node("Mul", "x", slope))
        case "tensors":
            maker.node("Add", maker.node("Relu", maker.node("Sigmoid", "x")), maker.node("Mul", below, slope))
        case "shape":
            maker.node("Add", relu, maker.node("Mul", below, maker.constant(SLOPES)))
        case "factor":
            maker.node("Add", relu, maker.node("Mul", below, maker.node("Sigmoid", "x")))
    before, after = canonical(maker)
    assert ops(after) == ops(before)


def test_integers_stay() -> None:
    maker = ModelMaker(SHAPE)
    whole = maker.node("Cast", "x", to=onnx.TensorProto.INT32)
    maker.node("Cast", maker.node("Max", whole, maker.node("Mul", whole, maker.constant(np.int32(0)))),
               to=onnx.TensorProto.FLOAT)
    before, after = canonical(maker)
    assert ops(after) == ops(before)


def test_a_network_with_them_is_as_exact_and_has_fewer_layers(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    maker.conv(of_magnitude(maker, maker.conv("x", CHANNELS, CHANNELS, (3, 3))), CHANNELS, 4, (1, 1))
    path = maker.save(tmp_path / "model.onnx")
    check_every_step(path, BASE, SAMPLES)
    check_model(path, BASE, SAMPLES, 40)
    assert len(after_all_steps(path, BASE, SAMPLES)[Layers]) == 2


@pytest.mark.parametrize(("slopes", "op"), [([0.25], "LeakyRelu"), ([0.25] * CHANNELS, "LeakyRelu"), ([0], "Relu"),
                                            ([1.5], "PRelu"), ([0.25] * 5 + [0.5], "PRelu")])
def test_a_prelu_of_equal_slopes_is_a_leaky_relu(slopes: list[float], op: str) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("PRelu", "x", maker.constant(np.array(slopes, np.float32).reshape(-1, 1, 1)))
    before, after = canonical(maker)
    assert ops(after) == [op] and same(before, after)


@pytest.mark.parametrize("registers", [0, 1])
def test_equal_slopes_are_a_leaky_relu_of_the_convolutions_layer(registers: int, tmp_path: Path) -> None:
    """Where the SIMD unit has a register; else the array computes both sides, in layers of their own."""
    maker = ModelMaker(SHAPE)
    maker.node("PRelu", maker.conv("x", CHANNELS, CHANNELS, (3, 3)), maker.constant(np.full((1,), 0.25, np.float32)))
    path, arch = maker.save(tmp_path / "model.onnx"), BASE.replace(simd_registers_depth=registers)
    check_model(path, arch, SAMPLES, 45)
    assert (len(after_all_steps(path, arch, SAMPLES)[Layers]) == 1) == bool(registers)


def test_a_leaky_relu_needs_no_register(tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    maker.node("LeakyRelu", maker.conv("x", CHANNELS, CHANNELS, (3, 3)), alpha=0.1)
    check_model(maker.save(tmp_path / "model.onnx"), BASE.replace(simd_registers_depth=0), SAMPLES, 45)
