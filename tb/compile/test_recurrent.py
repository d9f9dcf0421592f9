# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN, written out step by step, against onnxruntime."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.consts import Consts
from weft.compiler.steps import canonical
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import (
    BASE,
    ModelMaker,
    after_all_steps,
    check_every_step,
    run_float,
    signal_to_noise,
)
from weft.tmodel.manifest import TModel

TABLES = {"lut_count": 2, "lut_depth": 256, "simd_registers_depth": 3}
ARCHS = {"8 lanes": BASE.replace(**TABLES),
         "3 lanes": BASE.replace(array_size=3, local_depth=700, accumulator_depth=90, **TABLES)}
DECIBELS = 45
STEPS, SIZE, HIDDEN = 5, 6, 7
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(maker: ModelMaker, op: str, *outputs: str, source: str = "x", directions: int = 1, batch: int = 1,
              initial: bool = False, **attributes: Any) -> None:
    """A layer of ``op`` with biases; ``outputs`` may be empty strings. ``initial``: states that are not 0."""
    def weights(*shape: int) -> str:
        return maker.constant((maker.random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32))

    rows = GATES[op] * HIDDEN
    inputs = [source, weights(directions, rows, SIZE), weights(directions, rows, HIDDEN), weights(directions, 2 * rows)]
    if initial:
        inputs += ["", *(weights(directions, batch, HIDDEN) for _ in range(2 if op == "LSTM" else 1))]
    maker.nodes.append(helper.make_node(op, inputs, list(outputs), name=f"{op}{len(maker.nodes)}", hidden_size=HIDDEN,
                                        **attributes))


def layer(op: str, outputs: tuple[str, ...], maker: ModelMaker, **options: Any) -> tuple[str, ...]:
    """The network of one layer; its outputs."""
    maker.shape = (STEPS, options.get("batch", 1), SIZE)
    recurrent(maker, op, *outputs, **options)
    return tuple(filter(None, outputs))


def two_layers(op: str, maker: ModelMaker) -> tuple[str, ...]:
    """As PyTorch exports a network with the batch first: transposed, one behind the other, the last step alone."""
    maker.shape = (1, STEPS, SIZE)
    recurrent(maker, op, "y", source=maker.node("Transpose", "x", perm=(1, 0, 2)))
    first = maker.node("Squeeze", "y", maker.constant(np.array([1], np.int64)))
    weights = maker.constant((maker.random.standard_normal((HIDDEN, SIZE)) / 3).astype(np.float32))
    recurrent(maker, op, "", "last", source=maker.node("MatMul", first, weights))
    last = maker.node("Squeeze", "last", maker.constant(np.array([0], np.int64)))
    return (maker.node("MatMul", last, maker.constant(maker.random.standard_normal((HIDDEN, 4)).astype(np.float32))),)


def lstm(maker: ModelMaker) -> tuple[str, ...]:
    return layer("LSTM", ("y", "h", "c"), maker, directions=2, direction="bidirectional", batch=2, initial=True)


def gru(maker: ModelMaker) -> tuple[str, ...]:
    return layer("GRU", ("y", "h"), maker, linear_before_reset=1, initial=True)


NETWORKS: dict[str, Callable[[ModelMaker], tuple[str, ...]]] = {
    "lstm": lstm, "gru": gru, "two GRUs": partial(two_layers, "GRU"), "two LSTMs": partial(two_layers, "LSTM"),
    "GRU backwards": partial(layer, "GRU", ("y", "h"), batch=2, direction="reverse"),
    "GRU of nothing before": partial(layer, "GRU", ("y", ""), linear_before_reset=1),
    "RNN": partial(layer, "RNN", ("y", "h"), directions=2, direction="bidirectional",
                   activations=["Relu", "Sigmoid"]),
    "LSTM, softer": partial(layer, "LSTM", ("", "h", "c"), activations=["Sigmoid", "Softsign", "Tanh"])}


@pytest.mark.wide_cases("8 lanes-*", "3 lanes-two*")
@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
def test_layer(arch: Arch, network: Callable[[ModelMaker], tuple[str, ...]], tmp_path: Path) -> None:
    maker = ModelMaker((1,), seed=5, opset=14)
    outputs = network(maker)
    samples = maker.random.standard_normal((3, *maker.shape)).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx", *outputs)
    if arch.array_size == 3:
        check_every_step(path, arch, samples)
    else:
        check(path, arch, samples)


def check(path: Path, arch: Arch, samples: np.ndarray) -> None:
    """Each sample on golden as in float."""
    report = compile_model(path, arch, path.parent, calibration={"x": samples})
    for sample in samples:
        found = Session(TModel.load(report.model_path)).run({"x": sample}).outputs
        for key, value in run_float(path, {"x": sample}).items():
            assert signal_to_noise(value, found[key]) >= DECIBELS, key


@pytest.mark.parametrize(("options", "said"), [
    ({"clip": 3.0}, "attribute clip"),
    ({"activations": ["Affine", "Tanh", "Tanh"]}, "allowed: Relu, Sigmoid, Softplus, Softsign, Tanh")])
def test_refusals_name_the_attribute(options: dict[str, Any], said: str, tmp_path: Path) -> None:
    maker = ModelMaker((1,), opset=14)
    outputs = layer("LSTM", ("y", "", ""), maker, **options)
    with pytest.raises(CompileError, match=said):
        compile_model(maker.save(tmp_path / "model.onnx", *outputs), ARCHS["8 lanes"], tmp_path)


def test_lengths_must_be_those_of_the_input(tmp_path: Path) -> None:
    maker = ModelMaker((1,), opset=14)
    outputs = layer("RNN", ("y", ""), maker)
    maker.nodes[-1].input.append(maker.constant(np.array([STEPS - 1], np.int32)))
    with pytest.raises(CompileError, match=r"found \[4\]; allowed: 5, all steps"):
        compile_model(maker.save(tmp_path / "model.onnx", *outputs), ARCHS["8 lanes"], tmp_path)


def test_states_may_be_computed(tmp_path: Path) -> None:
    """Both states of an LSTM, from the input of the network."""
    maker = ModelMaker((STEPS, 1, SIZE), opset=14)
    outputs = layer("LSTM", ("y", "h", "c"), maker)
    weights = maker.constant(maker.random.standard_normal((SIZE, HIDDEN)).astype(np.float32) / 3)
    first = maker.node("Slice", "x", *(maker.constant(np.array([place], np.int64)) for place in (0, 1, 0)))
    state = maker.node("MatMul", first, weights)
    maker.nodes[0].input.extend(["", state, state])
    maker.nodes.append(maker.nodes.pop(0))
    samples = maker.random.standard_normal((1, *maker.shape)).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx", *outputs)
    onnx.checker.check_model(path)
    check(path, ARCHS["8 lanes"], samples)


def long_rnn(path: Path, steps: int, hidden: int) -> Path:
    maker = ModelMaker((steps, 1, SIZE))
    weights = [maker.constant(np.zeros(shape, np.float32) + 0.01) for shape in ((1, hidden, SIZE), (1, hidden, hidden))]
    maker.nodes.append(helper.make_node("RNN", ["x", *weights], ["y"], name="long", hidden_size=hidden))
    return maker.save(path, "y")


def test_a_state_may_vanish(tmp_path: Path) -> None:
    """A state of 1e-6 is a sum of terms near 1 and -1; later steps add numbers to it beside which it is nothing."""
    maker = ModelMaker((3, 1, 2), opset=14)
    weights = [maker.constant(np.full((1, 3 * 5, size), 2, np.float32)) for size in (2, 5)]
    maker.nodes.append(helper.make_node("GRU", ["x", *weights], ["y"], name="gru", hidden_size=5, direction="reverse"))
    given = np.arange(1, 7, dtype=np.float32).reshape(maker.shape)
    path = maker.save(tmp_path / "model.onnx", "y")
    report = compile_model(path, ARCHS["8 lanes"], tmp_path, calibration={"x": given[None]})
    found = Session(TModel.load(report.model_path)).run({"x": given}).outputs["y"]
    np.testing.assert_allclose(found, run_float(path, {"x": given})["y"], atol=2 ** -12)


def test_steps_share_the_weights_of_the_state(tmp_path: Path) -> None:
    graph = canonical(read_model(long_rnn(tmp_path / "model.onnx", 9, 16)), ARCHS["8 lanes"])
    assert [value.shape for value in graph.constants.values() if value.size == 16 * 16] == [(16, 16, 1, 1)]


@pytest.mark.parametrize("op", GATES)
def test_steps_have_their_weights_and_tables_once_in_dram(op: str, tmp_path: Path) -> None:
    """Twelve steps have few more constants than four, though their inputs and states have other ranges."""
    sizes = []
    for steps in (4, 12):
        maker = ModelMaker((1,), seed=8, opset=14)
        outputs = layer(op, ("y", ""), maker)
        maker.shape = (steps, 1, SIZE)
        samples = maker.random.standard_normal((2, *maker.shape)) * np.linspace(0.1, 4, steps)[:, None, None]
        path = maker.save(tmp_path / "model.onnx", *outputs)
        sizes.append(len(after_all_steps(path, ARCHS["8 lanes"], samples)[Consts].vectors))
    assert sizes[1] < 1.1 * sizes[0]


def test_weights_of_all_steps_are_counted(tmp_path: Path) -> None:
    """80 steps of 704 x 704 weights are stored once; 800 of 1024 x 1024 would take the compiler minutes."""
    canonical(read_model(long_rnn(tmp_path / "model.onnx", 80, 704)), ARCHS["8 lanes"])
    with pytest.raises(CompileError, match="RNN.* weights that it becomes"):
        canonical(read_model(long_rnn(tmp_path / "model.onnx", 800, 1024)), ARCHS["8 lanes"])
