# SPDX-License-Identifier: Apache-2.0
"""Multiply-accumulates: as drawn they are the same to everybody, and the array does no more of them than it can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.cli.estimate import estimated
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.report.collect import roof_point
from weft.runtime import Network, Session
from weft.runtime.devices import no_progress
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.random.network_rule import TABLES
from weft.tb.shared import shared

ARCH = BASE.replace(**TABLES)


def depthwise(maker: ModelMaker) -> str:
    weights = maker.normal(24, 1, 3, 3)
    return maker.node("Conv", "x", weights, group=24, pads=[1, 1, 1, 1])


def strided(maker: ModelMaker) -> str:
    """Three of four pixels of the first convolution are read by nobody."""
    first = maker.node("Relu", maker.node("Conv", "x", maker.normal(16, 24, 3, 3), pads=[1, 1, 1, 1]))
    return maker.node("Conv", first, maker.normal(20, 16, 1, 1), strides=[2, 2])


def one_row(maker: ModelMaker) -> str:
    flat = maker.node("Flatten", maker.node("GlobalAveragePool", "x"))
    return maker.node("Gemm", flat, maker.normal(24, 5))


def one_lane(maker: ModelMaker) -> str:
    """A function of one number, whose table gives all lanes."""
    flat = maker.node("Flatten", maker.node("GlobalAveragePool", "x"))
    return maker.node("Sigmoid", maker.node("Gemm", flat, maker.normal(24, 1)))


def one_position(maker: ModelMaker) -> str:
    """A product that reads one of many pixels: its kernel is zero elsewhere."""
    rows = maker.node("Transpose", maker.node("Reshape", "x", maker.constant(np.array([24, -1]))), perm=[1, 0])
    row = maker.node("Gather", rows, maker.constant(np.array(0)), axis=0)
    return maker.node("MatMul", maker.node("Reshape", row, maker.constant(np.array([1, 24]))), maker.normal(24, 7))


def dead_channels(maker: ModelMaker) -> str:
    """Weights of three of four channels are so small that they round to 0: their tiles are not there."""
    small = np.where(np.arange(32) < 8, 1.0, 1e-9).reshape(32, 1, 1, 1)
    weights = maker.random.standard_normal((32, 24, 3, 3)) * small
    return maker.node("Conv", "x", maker.constant(weights.astype(np.float32)), pads=[1, 1, 1, 1])


def transposed(maker: ModelMaker) -> str:
    return maker.node("ConvTranspose", "x", maker.normal(24, 6, 3, 3), strides=[2, 2])


DRAWN: dict[Callable[[ModelMaker], str], int] = {
    depthwise: 24 * 64 * 9, strided: 24 * 16 * 9 * 64 + 16 * 20 * 16, one_row: 24 * 5, one_lane: 24,
    one_position: 24 * 7, dead_channels: 24 * 32 * 9 * 64, transposed: 24 * 6 * 9 * 64}


def checked(path: Path, folder: Path, arch: Arch, calibration: dict[str, np.ndarray] | None = None) -> int:
    """Return what a network has as drawn, having checked every number that is told of it."""
    report = compile_model(path, arch, folder, host_fallback=True, calibration=calibration)
    network = Network.load(report.model_path)
    _, found = estimated(Session(network), IdealDram(), no_progress)
    assert found["macs"] == network.macs == sum(row["macs"] for row in found["layers"]) == sum(
        place.macs for place in report.partition.places if place.where == "machine")
    assert 0 < found["done_macs"] <= found["macs"] and found["utilization"] <= 1
    for model in network.machines:
        for row in model.layers:
            assert row["done_macs"] <= arch.array_size**2 * row["array_vectors"], row["name"]
    for row in found["layers"]:
        most = arch.array_size**2 * row["vectors"]
        assert row["done_macs"] <= min(row["macs"], most) and (row["utilization"] or 0) <= 1, row["name"]
        moved = max(row["dram0_bytes"], row["dram1_bytes"])
        point, bus = roof_point(row["done_macs"], row["cycles"], moved, arch), arch.axi_data_width // 8
        if point is not None:
            roof = min(arch.array_size**2, bus * point["macs_per_byte"])
            assert point["macs_per_cycle"] <= roof * (1 + 1e-9), row["name"]
    return network.macs


@pytest.mark.parametrize("draw", DRAWN)
@pytest.mark.parametrize("lanes", [4, 8])
def test_drawn_macs_are_one_number_and_the_array_does_no_more_than_it_can(
        draw: Callable[[ModelMaker], str], lanes: int, tmp_path: Path) -> None:
    maker = ModelMaker([1, 24, 8, 8])
    path = maker.save(tmp_path / "m.onnx", draw(maker))
    assert checked(path, tmp_path, ARCH.replace(array_size=lanes)) == DRAWN[draw]


def test_work_that_nobody_needs_is_not_done(tmp_path: Path) -> None:
    maker = ModelMaker([1, 24, 8, 8])
    report = compile_model(maker.save(tmp_path / "m.onnx", strided(maker)), ARCH, tmp_path)
    first, second = report.layers
    assert first["macs"] == 24 * 16 * 9 * 64 and first["done_macs"] < first["macs"] / 3.5
    assert second["macs"] == second["done_macs"] == 16 * 20 * 16


def test_weights_of_0_among_others_are_work(tmp_path: Path) -> None:
    """Half of a trained network's weights may be 0; the array multiplies by them."""
    maker = ModelMaker([1, 24, 8, 8])
    weights = maker.random.standard_normal((16, 24, 1, 1)) * maker.random.integers(0, 2, (16, 24, 1, 1))
    maker.node("Conv", "x", maker.constant(weights.astype(np.float32)))
    row, = compile_model(maker.save(tmp_path / "m.onnx"), ARCH, tmp_path).layers
    assert row["done_macs"] == row["macs"] == 16 * 24 * 64


@pytest.mark.wide_cases("exports/*")
@pytest.mark.parametrize("name", ["today/gpt_kv", "exports/vit_sim", "exports/gru"])
def test_drawn_macs_of_real_networks(name: str, tmp_path: Path) -> None:
    """A class token that one matrix reads, gates that see a state of zeros."""
    checked(shared(f"models/{name}.onnx"), tmp_path, Arch.load("ultra96"))
