# SPDX-License-Identifier: Apache-2.0
"""Blocks of today's networks, whole on the machine: attention with softmax, normalisations, activations as tools write
them out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step, check_model, run_float
from weft.tmodel.network import Network

ARCH = BASE.replace(lut_count=2, lut_depth=256, simd_registers_depth=3, local_depth=4096)
DECIBELS = 45
TOKENS, WIDTH, HEADS, SIDE = 6, 8, 2, 4


def matrix(maker: ModelMaker, source: str, rows: int, columns: int) -> str:
    """A MatMul with random weights that keeps the size of numbers, and a bias."""
    weights = (maker.random.standard_normal((rows, columns)) / np.sqrt(rows)).astype(np.float32)
    return maker.node("Add", maker.node("MatMul", source, maker.constant(weights)), maker.normal(columns))


def numbers(maker: ModelMaker, *values: int) -> str:
    return maker.constant(np.array(values, np.int64))


def layer_norm(maker: ModelMaker, source: str) -> str:
    factors = maker.constant(maker.random.uniform(0.5, 1.5, WIDTH).astype(np.float32))
    return maker.node("LayerNormalization", source, factors, maker.normal(WIDTH), axis=-1, epsilon=1e-5)


def gelu(maker: ModelMaker, source: str) -> str:
    """As PyTorch writes it."""
    half, one, root = (maker.constant(np.float32(value)) for value in (0.5, 1, np.sqrt(2)))
    error = maker.node("Add", maker.node("Erf", maker.node("Div", source, root)), one)
    return maker.node("Mul", maker.node("Mul", source, error), half)


def heads(maker: ModelMaker, source: str, windows: int, tokens: int) -> str:
    """[windows, tokens, WIDTH] -> [windows, HEADS, tokens, WIDTH / HEADS]."""
    apart = maker.node("Reshape", source, numbers(maker, windows, tokens, HEADS, WIDTH // HEADS))
    return maker.node("Transpose", apart, perm=(0, 2, 1, 3))


def attention(maker: ModelMaker, source: str, windows: int, tokens: int, bias: bool = False) -> str:
    query, key, value = (heads(maker, matrix(maker, source, WIDTH, WIDTH), windows, tokens) for _ in range(3))
    scores = maker.node("MatMul", query, maker.node("Transpose", key, perm=(0, 1, 3, 2)))
    scores = maker.node("Mul", scores, maker.constant(np.float32((WIDTH / HEADS) ** -0.5)))
    if bias:
        scores = maker.node("Add", scores, maker.normal(1, HEADS, tokens, tokens))
    mixed = maker.node("MatMul", maker.node("Softmax", scores, axis=-1), value)
    together = maker.node("Transpose", mixed, perm=(0, 2, 1, 3))
    return matrix(maker, maker.node("Reshape", together, numbers(maker, windows, tokens, WIDTH)), WIDTH, WIDTH)


def perceptron(maker: ModelMaker, source: str) -> str:
    return matrix(maker, gelu(maker, matrix(maker, source, WIDTH, 2 * WIDTH)), 2 * WIDTH, WIDTH)


def vit(maker: ModelMaker) -> None:
    """A block of a vision transformer."""
    maker.shape = (1, TOKENS, WIDTH)
    first = maker.node("Add", "x", attention(maker, layer_norm(maker, "x"), 1, TOKENS))
    maker.node("Add", first, perceptron(maker, layer_norm(maker, first)))


def swin(maker: ModelMaker) -> None:
    """A block of a Swin transformer: attention in windows, with a bias of positions."""
    maker.shape = (1, SIDE, SIDE, WIDTH)
    half = SIDE // 2
    split = maker.node("Reshape", layer_norm(maker, "x"), numbers(maker, half, 2, half, 2, WIDTH))
    windows = maker.node("Reshape", maker.node("Transpose", split, perm=(0, 2, 1, 3, 4)),
                         numbers(maker, half * half, 4, WIDTH))
    mixed = attention(maker, windows, half * half, 4, bias=True)
    joined = maker.node("Transpose", maker.node("Reshape", mixed, numbers(maker, half, half, 2, 2, WIDTH)),
                        perm=(0, 2, 1, 3, 4))
    first = maker.node("Add", "x", maker.node("Reshape", joined, numbers(maker, 1, SIDE, SIDE, WIDTH)))
    maker.node("Add", first, perceptron(maker, layer_norm(maker, first)))


BLOCKS = [vit, swin]


def norms_of_images(maker: ModelMaker) -> None:
    """Instance and group normalisation, an activation as a product with its sigmoid."""
    name = maker.node("InstanceNormalization", maker.conv("x", 6, 8, (3, 3)), maker.normal(8), maker.normal(8))
    name = maker.node("Mul", name, maker.node("Sigmoid", name))
    grouped = maker.node("Reshape", name, numbers(maker, 1, 2, -1))
    normal = maker.node("InstanceNormalization", grouped, maker.normal(2), maker.normal(2))
    maker.node("Reshape", normal, numbers(maker, 1, 8, 7, 6))


def written_out(maker: ModelMaker) -> None:
    """A normalisation of channels, RMS and tanh-GELU in single operators."""
    mean = maker.node("ReduceMean", "x", axes=(1,), keepdims=1)
    centred = maker.node("Sub", "x", mean)
    two, small = maker.constant(np.float32(2)), maker.constant(np.float32(1e-5))
    variance = maker.node("ReduceMean", maker.node("Pow", centred, two), axes=(1,), keepdims=1)
    normal = maker.node("Div", centred, maker.node("Sqrt", maker.node("Add", variance, small)))
    cube = maker.node("Pow", normal, maker.constant(np.float32(3)))
    inner = maker.node("Add", normal, maker.node("Mul", cube, maker.constant(np.float32(0.044715))))
    bent = maker.node("Tanh", maker.node("Mul", inner, maker.constant(np.float32(np.sqrt(2 / np.pi)))))
    one, half = (maker.constant(np.float32(value)) for value in (1, 0.5))
    maker.node("Mul", maker.node("Mul", normal, maker.node("Add", bent, one)), half)


def softmax_of_channels(maker: ModelMaker) -> None:
    maker.node("LogSoftmax", maker.node("Softmax", maker.conv("x", 6, 11, (3, 3)), axis=1), axis=3)


def lengths(maker: ModelMaker) -> None:
    """Divided by its length, less its minimum; a constant mask, and a bound that binds nothing."""
    length = maker.node("ReduceL2", "x", axes=(1,), keepdims=1)
    name = maker.node("Div", "x", maker.node("Add", length, maker.constant(np.float32(0.1))))
    least = maker.node("ReduceMin", name, axes=(2, 3), keepdims=1)
    maker.node("Max", maker.node("Sub", name, least), maker.constant(np.float32(-np.inf)))


NETWORKS = [*BLOCKS, norms_of_images, written_out, softmax_of_channels, lengths]


@pytest.mark.wide_cases("swin")
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_block(network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=3, opset=17)
    network(maker)
    samples = maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx")
    check_every_step(path, ARCH, samples)
    check_model(path, ARCH, samples, DECIBELS)


def test_a_token_of_small_variance_keeps_its_bits(tmp_path: Path) -> None:
    """As the class token of a ViT: the sum of squares of a part has weights of 1."""
    maker = ModelMaker((1, 6, 48), seed=3, opset=17)
    maker.node("LayerNormalization", "x", maker.constant(np.ones(48, np.float32)), axis=-1, epsilon=1e-5)
    samples = maker.random.standard_normal((4, 6, 48)).astype(np.float32)
    samples[:, 0] *= 0.03
    check_model(maker.save(tmp_path / "model.onnx"), ARCH, samples, DECIBELS)


def test_activations_written_out_become_one_table(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), opset=17)
    gelu(maker, maker.conv("x", 6, 8, (3, 3)))
    report = compile_model(maker.save(tmp_path / "model.onnx"), ARCH, tmp_path)
    assert [row["kind"] for row in report.layers] == ["mat_mul", "load+lookup"]


MASKS = {"channels": (4, 1, 1), "pixels": (1, 5, 6), "elements": (4, 5, 6), "columns": (6,)}


@pytest.mark.parametrize("other", ["tensor", "number", "numbers"])
@pytest.mark.parametrize("mask", MASKS)
def test_a_choice_by_a_constant_mask(mask: str, other: str, tmp_path: Path) -> None:
    """What the mask does not take from a constant may be infinite."""
    maker = ModelMaker((1, 4, 5, 6), seed=3)
    chosen = maker.random.random((1,) * (3 - len(MASKS[mask])) + MASKS[mask]) < 0.5
    others = np.where(np.broadcast_to(chosen, (4, 5, 6)), np.inf, maker.random.standard_normal((4, 5, 6)))
    second = {"tensor": lambda: maker.conv("x", 4, 4, (1, 1)), "number": lambda: maker.constant(np.float32(-20)),
              "numbers": lambda: maker.constant(others.astype(np.float32))}[other]()
    maker.node("Where", maker.constant(chosen), "x", second)
    given = maker.random.standard_normal((2, 4, 5, 6)).astype(np.float32)
    check_model(maker.save(tmp_path / "model.onnx"), ARCH.replace(lut_count=0), given, DECIBELS)


EXPONENTS: dict[str, np.ndarray] = {
    "channels": np.full((4, 1, 1), 3, np.float32), "elements": np.full((1, 4, 5, 6), 2, np.float32),
    "whole": np.full(6, 2, np.int64)}


@pytest.mark.parametrize("name", EXPONENTS)
def test_a_power_by_an_array_of_equal_exponents(name: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 5, 6), opset=17)
    maker.node("Pow", "x", maker.constant(EXPONENTS[name]))
    given = maker.random.uniform(-2, 2, (2, 4, 5, 6)).astype(np.float32)
    check_model(maker.save(tmp_path / "model.onnx"), ARCH, given, DECIBELS)


@pytest.mark.parametrize(("exponents", "reason"), [
    (np.array([2, 3, 2, 0.5], np.float32).reshape(4, 1, 1), "3 different ones, 0.5 .. 3"),
    (np.full((1, 7, 4, 5, 6), 2, np.float32), "shape [1, 7, 4, 5, 6], to which the base is repeated")])
def test_the_host_computes_a_power_by_other_exponents(exponents: np.ndarray, reason: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 5, 6), opset=17)
    maker.node("Pow", maker.node("Relu", maker.conv("x", 4, 4, (1, 1))), maker.constant(exponents))
    path, given = maker.save(tmp_path / "model.onnx"), maker.random.standard_normal((2, 4, 5, 6)).astype(np.float32)
    report = compile_model(path, ARCH, tmp_path, calibration={"x": given}, host_fallback=True)
    place, = (place for place in report.partition.places if place.operator == "Pow")
    assert place.where == "host" and reason in place.why, place.why
    found, = Session(Network.load(report.model_path)).run({"x": given[:1]}).outputs.values()
    exact, = run_float(path, {"x": given[:1]}).values()
    assert found.reshape(exact.shape) == pytest.approx(exact, abs=1e-2)
