# SPDX-License-Identifier: Apache-2.0
"""Attention with masks as exporters write them: the lowest float, minus infinity, -1e4, constant or computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from weft.compiler.frontend.reader import read_model
from weft.compiler.passes.fit_masks import fit_masks
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import ModelMaker, run_float, signal_to_noise
from weft.tb.compile.test_functions import TABLES
from weft.tmodel.network import Network

RNG = np.random.default_rng(11)
ROWS, LANES = 8, 16
LOWEST = float(np.finfo(np.float32).min)
KEPT = np.array([[8], [5], [3]]) > np.arange(ROWS)
"""The rows that count, [samples, rows]."""


def scores(made: ModelMaker) -> str:
    weights = (RNG.standard_normal((2, LANES, LANES)) * 0.4).astype(np.float32)
    query, key = (made.node("MatMul", "x", made.constant(matrix)) for matrix in weights)
    return made.node("MatMul", query, made.node("Transpose", key, perm=[0, 2, 1]))


def attention(path: Path, low: float, form: str) -> Path:
    """One head over eight rows, with a mask in one of the forms that exporters write."""
    made = ModelMaker((1, ROWS, LANES), opset=17)
    number, found = made.constant(np.float32(low)), scores(made)
    causal = np.triu(np.full((ROWS, ROWS), low, np.float32), 1)[None]
    if form == "added":
        masked = made.node("Add", found, made.constant(causal))
    elif form == "reshaped":
        masked = made.node("Add", made.node("Unsqueeze", found, made.constant(np.array([1]))),
                           made.constant(causal[None]))
        masked = made.node("Squeeze", masked, made.constant(np.array([1])))
    elif form == "chosen":
        masked = made.node("Where", made.constant(causal == 0), found, number)
    else:
        made.beside["kept"] = (1, ROWS)
        real = made.node("Cast", made.node("Unsqueeze", "kept", made.constant(np.array([1]))), to=TensorProto.FLOAT)
        left_out = made.node("Sub", made.constant(np.float32(1)), real)
        masked = made.node("Add", found, made.node("Mul", left_out, number)) if form == "computed" else made.node(
            "Where", made.node("Cast", real, to=TensorProto.BOOL), found, number)
    made.node("MatMul", made.node("Softmax", masked, axis=-1), "x")
    model = made.model()
    for value in model.graph.input[1:]:
        value.type.tensor_type.elem_type = TensorProto.INT64
    del model.graph.value_info[:]
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def samples(path: Path) -> dict[str, np.ndarray]:
    rows = RNG.standard_normal((3, ROWS, LANES)).astype(np.float32)
    given: dict[str, np.ndarray] = {"x": rows, "kept": KEPT.astype(np.int64)}
    return {port.name: given[port.name] for port in read_model(path).inputs}


@pytest.mark.parametrize(("form", "low"), [
    ("added", -1e4), ("added", LOWEST), ("added", -np.inf), ("reshaped", LOWEST), ("chosen", -1e9), ("chosen", -np.inf),
    ("computed", -1e4), ("computed", LOWEST), ("computed and chosen", -np.inf)])
def test_scores_keep_their_bits_beside_a_mask(form: str, low: float, tmp_path: Path) -> None:
    path = attention(tmp_path / "masked.onnx", low, form)
    given = samples(path)
    report = compile_model(path, TABLES, tmp_path, calibration=given, host_fallback="computed" in form)
    for number in range(3):
        one = {name: value[number] for name, value in given.items()}
        (expected,) = run_float(path, {name: value[None] for name, value in one.items()}).values()
        (found,) = Session(Network.load(report.model_path)).run(one).outputs.values()
        assert signal_to_noise(expected, found.reshape(expected.shape)) > 50


@pytest.mark.parametrize("seen", ["all rows", "random"])
def test_a_mask_may_leave_rows_out_that_calibration_kept(seen: str, tmp_path: Path) -> None:
    """Recorded samples without padding are the usual ones; sums with the mask have room for it all the same."""
    path = attention(tmp_path / "masked.onnx", LOWEST, "computed")
    given = samples(path)
    whole = {**given, "kept": np.ones_like(given["kept"])}
    report = compile_model(path, TABLES, tmp_path, calibration=whole if seen == "all rows" else None,
                           host_fallback=True)
    one = {name: value[2] for name, value in given.items()}
    (expected,) = run_float(path, {name: value[None] for name, value in one.items()}).values()
    (found,) = Session(Network.load(report.model_path)).run(one).outputs.values()
    assert signal_to_noise(expected, found.reshape(expected.shape)) > 50


def test_a_row_that_sees_nothing_stays_finite(tmp_path: Path) -> None:
    made = ModelMaker((1, ROWS, LANES), opset=17)
    mask = np.zeros((1, ROWS, ROWS), np.float32)
    mask[0, 2] = -np.inf
    made.node("Softmax", made.node("Add", scores(made), made.constant(mask)), axis=-1)
    report = compile_model(made.save(tmp_path / "row.onnx"), TABLES, tmp_path, host_fallback=False)
    sample = RNG.standard_normal((ROWS, LANES)).astype(np.float32)
    (found,) = Session(Network.load(report.model_path)).run({"x": sample}).outputs.values()
    assert np.allclose(found.sum(-1), 1, atol=0.02)


@pytest.mark.parametrize("form", ["read by another", "an output", "another axis", "scores of integers"])
def test_numbers_that_are_no_masks_stay(form: str, tmp_path: Path) -> None:
    """Scores that a second reader sees, another axis and a product of a table keep their numbers."""
    made = ModelMaker((1, ROWS, LANES), opset=17)
    found = scores(made)
    other = made.constant(np.triu(np.full((ROWS, ROWS), -1e4, np.float32), 1)[None])
    if form == "scores of integers":
        made.beside["kept"] = (1, ROWS)
        whole = made.node("Cast", made.node("Unsqueeze", "kept", made.constant(np.array([1]))), to=TensorProto.INT64)
        other = made.node("MatMul", made.node("Cast", whole, to=TensorProto.FLOAT),
                          made.constant(np.full((ROWS, ROWS), -1e3, np.float32)))
    masked = made.node("Add", found, other)
    made.node("Softmax", masked, axis=1 if form == "another axis" else -1)
    ends = {"read by another": [made.node("Relu", masked)], "an output": [masked]}.get(form, [])
    graph = read_model(made.save(tmp_path / "none.onnx", *ends, *(
        name for node in made.nodes if node.op_type == "Softmax" for name in node.output)))
    kept = fit_masks(graph, lambda names: dict.fromkeys(names, (-1.0, 1.0)))
    assert [node.inputs for node in kept.nodes] == [node.inputs for node in graph.nodes]
