# SPDX-License-Identifier: Apache-2.0
"""Networks whose tensors have one row, as streams have: a row times matrices, states carried on, attention of one token
to those before it. Against onnxruntime, and in few layers: nothing is moved element by element."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

TABLES = {"lut_count": 2, "lut_depth": 256, "simd_registers_depth": 3}
ARCHS = {"8 lanes": BASE.replace(**TABLES),
         "3 lanes": BASE.replace(array_size=3, local_depth=700, accumulator_depth=90, **TABLES)}
DECIBELS = 45
SAMPLES = 2
WIDTH, HEADS, TOKENS = 20, 2, 7
STATE = 13

Outputs = tuple[str, ...]


def weights(maker: ModelMaker, *shape: int) -> str:
    """[..., inputs, outputs], of which numbers near 1 make numbers near 1."""
    return maker.constant((maker.random.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32))


def ints(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


# -- networks, with the most layers that they may become ---------------------------------------------------------------
def row_times_matrices(maker: ModelMaker) -> Outputs:
    """A block of a transformer without attention: the row is read twice."""
    maker.shape = (1, 1, WIDTH)
    normal = maker.node("LayerNormalization", "x", maker.normal(WIDTH), maker.normal(WIDTH), axis=-1)
    wide = maker.node("Relu", maker.node("MatMul", normal, weights(maker, WIDTH, 30)))
    return (maker.node("Add", "x", maker.node("MatMul", wide, weights(maker, 30, WIDTH))),)


def flattened_row(maker: ModelMaker) -> Outputs:
    """An image that one product reads as a row."""
    maker.shape = (1, 1, 4, 9)
    return (maker.node("Gemm", maker.node("Flatten", "x"), weights(maker, 36, 5), maker.normal(5)),)


def attention_with_cache(maker: ModelMaker) -> Outputs:
    """One token and keys and values of those before it, which are inputs, and with its own outputs."""
    maker.shape = (1, 1, WIDTH)
    size = WIDTH // HEADS
    heads = maker.node("MatMul", "x", weights(maker, WIDTH, 3 * WIDTH))
    parts = [f"part{number}" for number in range(3)]
    maker.nodes.append(helper.make_node("Split", [heads, ints(maker, WIDTH, WIDTH, WIDTH)], parts, axis=2))
    query, key, value = (
        maker.node("Transpose", maker.node("Reshape", part, ints(maker, 1, 1, HEADS, size)), perm=(0, 2, 1, 3))
        for part in parts)
    keys = maker.node("Concat", maker.input("keys", 1, HEADS, TOKENS, size), key, axis=2)
    values = maker.node("Concat", maker.input("values", 1, HEADS, TOKENS, size), value, axis=2)
    scores = maker.node("MatMul", query, maker.node("Transpose", keys, perm=(0, 1, 3, 2)))
    taken = maker.node("MatMul", maker.node("Softmax", scores, axis=-1), values)
    row = maker.node("Reshape", maker.node("Transpose", taken, perm=(0, 2, 1, 3)), ints(maker, 1, 1, WIDTH))
    return maker.node("Add", "x", maker.node("MatMul", row, weights(maker, WIDTH, WIDTH))), keys, values


def state_of(maker: ModelMaker, states: str, number: int) -> str:
    return maker.node("Slice", states, ints(maker, number), ints(maker, number + 1), ints(maker, 0))


def recurrent(maker: ModelMaker, op: str, gates: int, source: str, size: int, states: list[str]) -> list[str]:
    """A step of ``op`` with biases. Returns all that it makes: its output, then its states."""
    made = [f"{op}{len(maker.nodes)}.{number}" for number in range(1 + len(states))]
    parts = [maker.constant((maker.random.standard_normal((1, gates * STATE, columns)) / 4).astype(np.float32))
             for columns in (size, STATE)]
    bias = maker.normal(1, 2 * gates * STATE)
    attributes: dict[str, Any] = {"linear_before_reset": 1} if op == "GRU" else {}
    maker.nodes.append(helper.make_node(op, [source, *parts, bias, "", *states], made, name=made[0], hidden_size=STATE,
                                        **attributes))
    return made


def step_of_two_grus(maker: ModelMaker) -> Outputs:
    """Both states are slices of one input, and are joined again."""
    maker.shape, states = (1, 1, WIDTH), maker.input("h", 2, 1, STATE)
    first, one = recurrent(maker, "GRU", 3, "x", WIDTH, [state_of(maker, states, 0)])
    row = maker.node("Squeeze", first, ints(maker, 1))
    second, other = recurrent(maker, "GRU", 3, row, STATE, [state_of(maker, states, 1)])
    return maker.node("Squeeze", second, ints(maker, 1)), maker.node("Concat", one, other, axis=0)


def step_of_an_lstm(maker: ModelMaker) -> Outputs:
    """Behind a convolution over one axis, as a detector of voices: its states are the two halves of one input."""
    maker.shape, states = (1, 5, 4), maker.input("state", 2, 1, STATE)
    made = maker.node("Relu", maker.node("Conv", "x", maker.normal(WIDTH, 5, 4)))
    row = maker.node("Unsqueeze", maker.node("Squeeze", made, ints(maker, 2)), ints(maker, 0))
    _, h, c = recurrent(maker, "LSTM", 4, row, WIDTH, [state_of(maker, states, number) for number in range(2)])
    score = maker.node("MatMul", maker.node("Relu", maker.node("Squeeze", h, ints(maker, 0))), weights(maker, STATE, 1))
    return maker.node("Sigmoid", score), maker.node("Concat", h, c, axis=0)


NETWORKS: dict[Callable[[ModelMaker], Outputs], int] = {
    row_times_matrices: 9, flattened_row: 1, attention_with_cache: 40, step_of_two_grus: 30, step_of_an_lstm: 25}

"""Network -> the most layers that it may become."""

DRAWN: dict[Callable[[ModelMaker], Outputs], int] = {
    row_times_matrices: 2 * WIDTH * 30, flattened_row: 36 * 5,
    attention_with_cache: 4 * WIDTH * WIDTH + 2 * WIDTH * (TOKENS + 1),
    step_of_two_grus: 3 * STATE * (WIDTH + STATE + 2 * STATE),
    step_of_an_lstm: 5 * 4 * WIDTH + 4 * STATE * (WIDTH + STATE) + STATE}
"""Network -> its multiply-accumulates as drawn."""


# -- tests -------------------------------------------------------------------------------------------------------------
def compiled(network: Callable[[ModelMaker], Outputs], arch: Arch,
             folder: Path) -> tuple[Path, TModel, dict[str, np.ndarray]]:
    """The model's file, the compiled model and samples of each input [samples, ...], on which it was calibrated."""
    maker = ModelMaker((1,), seed=1, opset=17)
    path = maker.save(folder / "model.onnx", *network(maker))
    samples = {name: maker.random.uniform(-1, 1, (SAMPLES, *shape)).astype(np.float32)
               for name, shape in {"x": maker.shape, **maker.beside}.items()}
    report = compile_model(path, arch, folder, calibration=samples)
    return path, TModel.load(report.model_path), samples


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
def test_network_of_rows(network: Callable[[ModelMaker], Outputs], arch: Arch, tmp_path: Path) -> None:
    path, model, samples = compiled(network, arch, tmp_path)
    found = Session(model).run(samples).outputs
    expected = [run_float(path, {name: values[number] for name, values in samples.items()})
                for number in range(SAMPLES)]
    for name in expected[0]:
        values = np.stack([outputs[name] for outputs in expected])
        assert signal_to_noise(values, found[name].reshape(values.shape)) >= DECIBELS, name
    assert len(model.layers) <= NETWORKS[network]
    assert sum(row["macs"] for row in model.layers) == model.macs == DRAWN[network]


@pytest.mark.parametrize("padded", [False, True], ids=["plain", "reflected"])
def test_short_time_spectrum(padded: bool, tmp_path: Path) -> None:
    """A strided convolution over one row is the machine's. To reflect its ends would be hundreds of pieces: the host
    does that, and not the convolution."""
    maker = ModelMaker((1, 560), seed=1)
    row = maker.node("Pad", "x", ints(maker, 0, 0, 0, 80), mode="reflect") if padded else "x"
    maker.node("Conv", maker.node("Unsqueeze", row, ints(maker, 1)), maker.normal(34, 1, 160), strides=(80,))
    path = maker.save(tmp_path / "model.onnx")
    samples = maker.random.uniform(-1, 1, (SAMPLES, 1, 560)).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": samples}, host_fallback=padded)
    assert report.partition.machine_share == 1
    assert [place.operator for place in report.partition.places if place.where == "host"] == (
        ["Pad", "Unsqueeze"] if padded else [])
    network = Network.load(report.model_path)
    assert sum(len(machine.layers) for machine in network.machines) == 1
    made, = Session(network).run({"x": samples}).outputs.values()
    for sample, value in zip(samples, made, strict=True):
        expected, = run_float(path, {"x": sample}).values()
        assert signal_to_noise(expected, value.reshape(expected.shape)) >= DECIBELS


def test_what_is_chosen_is_made_where_it_lies(tmp_path: Path) -> None:
    """Queries, keys and values are a product each, keys and values behind the copy of their cache."""
    _, model, _ = compiled(attention_with_cache, BASE.replace(array_size=4, **TABLES), tmp_path)
    drawn = [row["macs"] for row in model.layers]
    assert drawn.count(WIDTH * WIDTH) == 4 and 3 * WIDTH * WIDTH not in drawn
    assert drawn[:2] == [0, WIDTH * WIDTH], "the copy of a cache comes first"


def test_tables_that_are_held_are_not_loaded_again(tmp_path: Path) -> None:
    """Two sigmoids of the same numbers, then a table of its own."""
    maker = ModelMaker((1, 6, 9, 8), seed=1)
    turned = maker.constant(np.eye(6, dtype=np.float32)[::-1, :, None, None])
    first, second = maker.node("Sigmoid", "x"), maker.node("Sigmoid", maker.node("Conv", "x", turned))
    path = maker.save(tmp_path / "model.onnx", maker.node("Tanh", maker.node("Add", first, second)))
    samples = maker.random.uniform(-4, 4, (SAMPLES, *maker.shape[1:])).astype(np.float32)
    states: list[Products] = []
    report = compile_model(path, ARCHS["8 lanes"], tmp_path, calibration={"x": samples},
                           watch=lambda _, state: states.append(state))
    assert [layer.fresh for layer in states[-1][Consts].layers if layer.tables] == [(0, 1, 2), (), (0, 1, 2)]
    found, = Session(TModel.load(report.model_path)).run({"x": samples}).outputs.values()
    for sample, value in zip(samples, found, strict=True):
        expected, = run_float(path, {"x": sample[None]}).values()
        assert signal_to_noise(expected[0], value) >= DECIBELS
