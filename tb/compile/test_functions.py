# SPDX-License-Identifier: Apache-2.0
"""Functions are written out: a model's own, and attention that today's exporters write as one node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tmodel.network import Network

TABLES = BASE.replace(simd_registers_depth=4, lut_count=2, lut_depth=256)
RNG = np.random.default_rng(3)
KEPT = np.tril(np.ones((6, 6), bool))
"""A mask: each row sees itself and the rows before it."""


def attention(path: Path, mask: np.ndarray | None = None, opset: int = 23, groups: int = 4, rotates: bool = False,
              **attributes: Any) -> Path:
    """Four heads of eight lanes over six rows; ``groups``: as many heads of keys and values."""
    made = ModelMaker((1, 6, 32), opset=opset)
    query, key, value = (made.node("MatMul", "x", made.constant((RNG.standard_normal((32, heads * 8)) * 0.2).astype(
        np.float32))) for heads in (4, groups, groups))
    if rotates:
        angles = np.outer(np.arange(6), 0.3 ** np.arange(4)).astype(np.float32)[None]
        query = made.node("RotaryEmbedding", query, made.constant(np.cos(angles)), made.constant(np.sin(angles)),
                          num_heads=4)
    inputs = [query, key, value, *([] if mask is None else [made.constant(mask)])]
    last = made.node("Attention", *inputs, q_num_heads=4, kv_num_heads=groups, **attributes)
    made.node("MatMul", last, made.normal(32, 8))
    return made.save(path)


CASES: Mapping[str, Mapping[str, Any]] = {
    "plain": {}, "causal": {"is_causal": 1}, "grouped": {"groups": 2}, "scaled": {"scale": 0.25},
    "capped": {"softcap": 2.0}, "rotated": {"rotates": True}, "masked": {"mask": KEPT},
    "biased": {"mask": RNG.standard_normal((1, 4, 6, 6)).astype(np.float32)},
    "of a later opset": {"opset": 24, "is_causal": 1}}


@pytest.mark.parametrize("case", CASES)
def test_attention_runs_on_the_machine(case: str, tmp_path: Path) -> None:
    path = attention(tmp_path / "attention.onnx", **CASES[case])
    samples = RNG.standard_normal((2, 6, 32)).astype(np.float32)
    report = compile_model(path, TABLES, tmp_path, calibration={"x": samples}, host_fallback=False)
    for sample in samples:
        (expected,) = run_float(path, {"x": sample[None]}).values()
        (found,) = Session(Network.load(report.model_path)).run({"x": sample}).outputs.values()
        assert signal_to_noise(expected, found.reshape(expected.shape)) > 40


def own(*bodies: tuple[str, str, int], calls: str = "F0") -> onnx.ModelProto:
    """A model that calls one of its functions; each body is a name, what it calls, and how often in a row."""
    model = ModelMaker((1, 4)).model("x")
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4]))
    weights = numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")
    model.graph.initializer.append(weights)
    model.graph.node.extend([helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
                             helper.make_node(calls, ["m"], ["y"], name="call", domain="own")])
    model.opset_import.append(helper.make_opsetid("own", 1))
    for name, called, count in bodies:
        tensors = ["p", *(f"t{number}" for number in range(count - 1)), "q"]
        domain = "own" if called.startswith("F") else ""
        nodes = [helper.make_node(called, [one], [other], domain=domain)
                 for one, other in zip(tensors, tensors[1:], strict=False)]
        model.functions.append(helper.make_function("own", name, ["p"], ["q"], nodes, [
            helper.make_opsetid("", 13), helper.make_opsetid("own", 1)]))
    return model


def test_a_call_of_an_own_function_becomes_its_nodes(tmp_path: Path) -> None:
    onnx.save(own(("F0", "F1", 2), ("F1", "Relu", 3)), tmp_path / "own.onnx")
    graph = read_model(tmp_path / "own.onnx")
    assert [node.op for node in graph.nodes] == ["MatMul", *["Relu"] * 6]
    assert graph.nodes[-1].outputs == ("y",)


def test_an_own_function_may_be_of_another_opset(tmp_path: Path) -> None:
    """Relu is another one since opset 14; onnxruntime runs both in one file."""
    model = own(("F0", "Relu", 1))
    model.opset_import[0].version = 17
    onnx.save(model, tmp_path / "own.onnx")
    assert [node.op for node in read_model(tmp_path / "own.onnx").nodes] == ["MatMul", "Relu"]


ENDLESS = {
    "itself": ([("F0", "F0", 1)], "a call of itself"), "circle": ([("F0", "F1", 1), ("F1", "F0", 1)], "of itself"),
    "128 times 129": ([("F0", "F1", 128), ("F1", "Relu", 129)], "more than 16384"),
    "too many": ([*((f"F{level}", f"F{level + 1}", 2) for level in range(40)), ("F40", "Relu", 1)], "more than 16384")}


@pytest.mark.parametrize(("bodies", "found"), ENDLESS.values(), ids=list(ENDLESS))
def test_functions_without_an_end_are_refused(bodies: list[tuple[str, str, int]], found: str, tmp_path: Path) -> None:
    onnx.save(own(*bodies), tmp_path / "own.onnx")
    with pytest.raises(CompileError, match=found):
        read_model(tmp_path / "own.onnx")


def test_a_constant_cast_like_a_tensor_is_a_constant(tmp_path: Path) -> None:
    """Functions of ONNX cast their constants to the type of what they compute with."""
    made = ModelMaker((1, 4), opset=17)
    product = made.node("MatMul", "x", made.normal(4, 4))
    made.node("Mul", product, made.node("CastLike", made.constant(np.float64(2)), product))
    graph = read_model(made.save(tmp_path / "like.onnx"))
    assert [node.op for node in graph.nodes] == ["MatMul", "Mul"]
    assert graph.constants[graph.nodes[1].inputs[1]].dtype == np.float32
