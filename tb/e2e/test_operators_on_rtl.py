# SPDX-License-Identifier: Apache-2.0
"""Operators whose instructions the other networks do not use, on the generated hardware: every word as golden."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products
from weft.cycles.replay import estimate
from weft.runtime.session import RTL, Session
from weft.tb.compile import test_blocks as blocks
from weft.tb.compile import test_both_drams as both_drams
from weft.tb.compile import test_channel_slopes as channel_slopes
from weft.tb.compile import test_movement as movement
from weft.tb.compile import test_products as products
from weft.tb.compile import test_recurrent as recurrent
from weft.tb.compile import test_rows as rows
from weft.tb.compile.run_model import ModelMaker, run_float, signal_to_noise
from weft.tb.random import network_rule
from weft.tmodel.manifest import TModel

ARCH = network_rule.ARCHS["lanes3"]
"""The random networks' tests build its simulator too."""


def tables(maker: ModelMaker) -> None:
    """Two lookup tables, one after the other, and a product."""
    name = maker.conv("x", 6, 9, (3, 3))
    maker.node("Mul", maker.node("Sigmoid", name), maker.node("Tanh", name))


def two_sizes(maker: ModelMaker) -> None:
    """YOLO's way: a layer that saves its result and a pool of it, an enlarged image beside another, joined tiles."""
    whole = maker.node("LeakyRelu", maker.conv("x", 6, 12, (3, 3), pads=(1, 1, 1, 1)), alpha=0.1)
    joined = maker.node("Concat", whole, maker.conv(whole, 12, 12, (1, 1)), axis=1)
    pooled = maker.node("MaxPool", joined, kernel_shape=(3, 2), strides=(3, 2))
    large = maker.node("Resize", pooled, "", maker.constant(np.array((1, 1, 3, 2), np.float32)), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    movement.conv(maker, maker.node("Concat", large, whole, axis=1), (36, 16))


NETWORKS = [tables, two_sizes, movement.concat_of_convolutions, movement.depth_to_space, movement.bilinear,
            movement.transposed_convolution, movement.slopes, movement.gates, channel_slopes.two]


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_network_on_rtl(network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=1, opset=14)
    network(maker)
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    report = compile_model(maker.save(tmp_path / "model.onnx"), ARCH, tmp_path, calibration={"x": samples})
    result = Session(TModel.load(report.model_path)).run({"x": samples}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()


@pytest.mark.slow
def test_tensors_in_both_drams_on_rtl(tmp_path: Path) -> None:
    """Two images, of which the second finds what the first one left in DRAM1."""
    path, samples = both_drams.network(tmp_path)
    states: list[Products] = []
    report = compile_model(path, ARCH, tmp_path, calibration={"x": samples},
                           watch=lambda _, state: states.append(state))
    assert states[-1][MemoryPlan].dram1
    result = Session(TModel.load(report.model_path)).run({"x": samples[:2]}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()


@pytest.mark.slow
@pytest.mark.parametrize("network", rows.NETWORKS, ids=lambda network: network.__name__)
def test_rows_on_rtl(network: Callable[[ModelMaker], rows.Outputs], tmp_path: Path) -> None:
    """One step of a stream at a time, its lookup tables by way of the table of keys; to the cycle as estimated."""
    _, model, samples = rows.compiled(network, ARCH, tmp_path)
    result = Session(model).run({name: values[:1] for name, values in samples.items()}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()
    assert result.cycles == estimate(model.program, ARCH).cycles


@pytest.mark.slow
@pytest.mark.parametrize("block", products.BLOCKS, ids=lambda block: block.__name__)
def test_attention_on_rtl(block: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, products.TOKENS, products.WIDTH), seed=1)
    block(maker)
    samples = maker.random.standard_normal((1, products.TOKENS, products.WIDTH)).astype(np.float32)
    report = compile_model(maker.save(tmp_path / "model.onnx"), ARCH, tmp_path, calibration={"x": samples})
    result = Session(TModel.load(report.model_path)).run({"x": samples}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()


@pytest.mark.wide_cases("swin", "gru")
@pytest.mark.slow
@pytest.mark.parametrize("block", [*blocks.BLOCKS, recurrent.lstm, recurrent.gru], ids=lambda block: block.__name__)
def test_block_of_today_on_rtl(block: Callable[[ModelMaker], tuple[str, ...] | None], tmp_path: Path) -> None:
    maker = ModelMaker((1,), seed=1, opset=17)
    outputs = block(maker) or ()
    sample = maker.random.standard_normal(maker.shape).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx", *outputs)
    report = compile_model(path, ARCH, tmp_path, calibration={"x": sample})
    result = Session(TModel.load(report.model_path)).run({"x": sample}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()


@pytest.mark.slow
def test_batch_on_rtl(tmp_path: Path) -> None:
    """A network for four images at once, and two such batches one after the other."""
    maker = ModelMaker((4, 6, 9, 8), seed=1)
    maker.node("MaxPool", movement.conv(maker, "x", (6, 5)), kernel_shape=(2, 2), strides=(2, 2))
    samples = maker.random.standard_normal((2, 4, 6, 9, 8)).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx")
    report = compile_model(path, ARCH, tmp_path, calibration={"x": samples})
    result = Session(TModel.load(report.model_path)).run({"x": samples}, on=RTL)
    assert result.comparison is not None and result.images == 2
    result.comparison.insist()
    expected = np.stack([next(iter(run_float(path, {"x": batch}).values())) for batch in samples])
    assert signal_to_noise(expected, next(iter(result.outputs.values()))) > 60
