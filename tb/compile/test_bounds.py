# SPDX-License-Identifier: Apache-2.0
"""What mathematics bounds has room for its bound, whatever calibration saw (``compiler/quantize/bounds.py``)."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.graph import Graph
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.quantize.bounds import bounds
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import run_golden
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session

ARCH = Arch.load("tiny").replace(array_size=4, dram0_depth=1 << 16, dram1_depth=1 << 16, local_depth=2048,
                                 accumulator_depth=512, lut_count=2, lut_depth=256, simd_registers_depth=3)


def model(path: Path, *nodes: onnx.NodeProto, inputs: int = 4, outputs: int = 2) -> Path:
    """A network of x [1, inputs] and y [1, outputs]; ``w`` passes inputs on, the first of each output."""
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, count])
             for name, count in (("x", inputs), ("y", outputs))]
    weights = [numpy_helper.from_array(np.eye(inputs, outputs, dtype=np.float32), "w"),
               numpy_helper.from_array(np.array(6, np.float32), "six"),
               numpy_helper.from_array(np.array(0, np.float32), "zero"),
               numpy_helper.from_array(np.ones(outputs, np.float32), "ones")]
    read = {name for node in nodes for name in node.input}
    graph = helper.make_graph(nodes, "bounded", value[:1], value[1:], [each for each in weights if each.name in read])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


def gemm(*then: onnx.NodeProto) -> tuple[onnx.NodeProto, ...]:
    return helper.make_node("Gemm", ["x", "w"], ["logits"]), *then


def outputs(path: Path, folder: Path, seen: np.ndarray, given: np.ndarray, arch: Arch = ARCH,
            **options: object) -> tuple[np.ndarray, np.ndarray]:
    """Return what the golden machine makes of ``given`` when calibrated with ``seen``, and what onnxruntime makes."""
    report = compile_model(path, arch, folder, calibration={"x": seen}, **options)  # type: ignore[arg-type]
    compiled, engine = TModel.load(report.model_path), session(path.read_bytes())
    ours = [run_golden(compiled, {"x": each[None]})["y"] for each in given]
    return np.concatenate(ours), np.concatenate([engine.run(None, {"x": each[None]})[0] for each in given])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("count", [2, 7])
def test_softmax_is_right_where_logits_differ_more_than_in_calibration(op: str, count: int, tmp_path: Path) -> None:
    """Every logit was seen as large, but never one beside others that are small."""
    path = model(tmp_path / "m.onnx", *gemm(helper.make_node(op, ["logits"], ["y"])), inputs=count, outputs=count)
    generator = np.random.default_rng(1)
    seen = np.linspace(-3, 3, 32)[:, None] + generator.uniform(-0.05, 0.05, (32, count))
    given = np.where(np.arange(count) == 0, np.linspace(-3, 3, 13)[:, None], -np.linspace(-3, 3, 13)[:, None] / 2)
    ours, wanted = outputs(path, tmp_path, seen.astype(np.float32), given.astype(np.float32))
    assert np.abs(ours - wanted).max() < (2e-3 if op == "Softmax" else 6e-3)


def test_softmax_of_saturated_logits_is_still_a_distribution(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", *gemm(helper.make_node("Softmax", ["logits"], ["y"])), inputs=5, outputs=5)
    generator = np.random.default_rng(2)
    seen, given = generator.normal(0, 0.1, (32, 5)), generator.normal(0, 3, (16, 5))
    ours, _ = outputs(path, tmp_path, seen.astype(np.float32), given.astype(np.float32))
    assert np.abs(ours.sum(1) - 1).max() < 2e-3


def test_the_sum_of_many_exponentials_has_room_for_all(tmp_path: Path) -> None:
    """Calibration saw one class that is sure; then all of 200 are alike."""
    path = model(tmp_path / "m.onnx", helper.make_node("Softmax", ["x"], ["y"]), inputs=200, outputs=200)
    seen = np.where(np.arange(200) == np.arange(32)[:, None], 8.0, -8.0).astype(np.float32)
    given = np.zeros((1, 200), np.float32)
    ours, wanted = outputs(path, tmp_path, seen, given)
    assert np.abs(ours / wanted - 1).max() < 0.02


BOUNDED = {"Sigmoid": (helper.make_node("Sigmoid", ["x"], ["y"]),),
           "Tanh": (helper.make_node("Tanh", ["x"], ["y"]),),
           "Erf": (helper.make_node("Erf", ["x"], ["y"]),),
           "Softsign": (helper.make_node("Softsign", ["x"], ["y"]),),
           "HardSigmoid": (helper.make_node("HardSigmoid", ["x"], ["y"]),),
           "Clip": (helper.make_node("Clip", ["x", "zero", "six"], ["y"]),)}
INT8 = ARCH.replace(data_type="INT8", accumulator_width=None)


@pytest.mark.parametrize("data_type", ["FP16BP8", "INT8"])
@pytest.mark.parametrize("op", BOUNDED)
def test_functions_with_ends_reach_them(op: str, data_type: str, tmp_path: Path) -> None:
    """Calibration saw arguments near 0 alone."""
    path = model(tmp_path / "m.onnx", *BOUNDED[op], inputs=4, outputs=4)
    seen = np.linspace(-0.3, 0.3, 32 * 4).reshape(32, 4).astype(np.float32)
    arch = INT8 if data_type == "INT8" else ARCH
    products = run_steps(Request(path, {"x": seen}), arch)
    held = products[Numbers].tensor("y", arch)
    low, high = bounds(products[Graph])["y"]
    assert held.low <= low + 2 * held.step and held.high >= high - 2 * held.step
    assert high == pytest.approx(6 if op == "Clip" else 1, rel=1e-3)


def test_normalised_values_reach_as_many_deviations_as_there_are(tmp_path: Path) -> None:
    """One value of 64 that is large beside all others is sqrt(63) deviations away."""
    path = model(tmp_path / "m.onnx", helper.make_node("LayerNormalization", ["x", "ones"], ["y"]), inputs=64,
                 outputs=64)
    seen = np.where(np.arange(64) % 2, 1.0, -1.0) * np.linspace(1, 10, 32)[:, None]
    given = np.where(np.arange(64) == 5, 9.0, 0.0)[None]
    ours, wanted = outputs(path, tmp_path, seen.astype(np.float32), given.astype(np.float32))
    assert wanted.max() == pytest.approx(math.sqrt(63), rel=1e-3)
    assert np.abs(ours - wanted).max() < 0.05


@pytest.mark.parametrize("factors", [0, 1], ids=["alone", "of_a_product"])
def test_minimum_is_right_where_inputs_differ_more_than_in_calibration(factors: int, tmp_path: Path) -> None:
    """The factors before the maximum, by which it is a minimum too, are in the weights of what takes it."""
    product = [helper.make_node("Mul", ["x", "six"], ["product"])] * factors
    path = model(tmp_path / "m.onnx", *product, helper.make_node("ReduceMin", ["product" if factors else "x"], ["y"]),
                 inputs=7, outputs=1)
    seen = np.linspace(-2, 2, 32)[:, None].repeat(7, 1)
    given = np.where(np.eye(7, dtype=bool), -2.0, 2.0)
    ours, wanted = outputs(path, tmp_path, seen.astype(np.float32), given.astype(np.float32))
    assert np.abs(ours - wanted).max() < 0.02
