# SPDX-License-Identifier: Apache-2.0
"""The array's limit of a network as drawn, and the vectors that a program sends through it."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.compiler.backend.limit import layer_limits, limit_cycles
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel


def graph_of(maker: ModelMaker, tmp_path: Path) -> Graph:
    return read_model(maker.save(tmp_path / "net.onnx"))


def lanes_of(lanes: int) -> Arch:
    return BASE.replace(array_size=lanes)


@pytest.mark.parametrize(("lanes", "least"), [(8, 962_144), (12, 545_950), (16, 240_536), (32, 78_768)])
def test_resnet_as_counted_by_hand(lanes: int, least: int) -> None:
    """The sum over its layers, on paper, to the first digits of the schedule study's limits."""
    assert limit_cycles(read_model(shared("models/resnet20v2_cifar.onnx")), lanes_of(lanes)) == least


def test_padding_costs_nothing(tmp_path: Path) -> None:
    maker = ModelMaker((1, 10, 5, 7))
    maker.conv(maker.node("Relu", "x"), 10, 9, (3, 3), pads=(1, 1, 1, 1))
    assert limit_cycles(graph_of(maker, tmp_path), lanes_of(8)) == (4 + 5 + 4) * (6 + 7 + 6) * 2 * 2


def test_groups_join_only_their_tiles(tmp_path: Path) -> None:
    maker = ModelMaker((1, 24, 4, 4))
    maker.conv(maker.node("Relu", "x"), 24, 24, (1, 1), group=24)
    assert limit_cycles(graph_of(maker, tmp_path), lanes_of(8)) == 3 * 16


@pytest.mark.parametrize(("lanes", "least"), [(8, 4 * 16), (9, 10 * 4), (27, 16)])
def test_first_layer_is_packed(lanes: int, least: int, tmp_path: Path) -> None:
    """3 x 3 taps of 3 channels: all in ceil(27 / lanes) tiles, or columns in lanes and rows without padding."""
    maker = ModelMaker((1, 3, 4, 4))
    maker.conv("x", 3, 8, (3, 3), pads=(1, 1, 1, 1))
    assert limit_cycles(graph_of(maker, tmp_path), lanes_of(lanes)) == least


def test_transposed_convolutions_and_matrices(tmp_path: Path) -> None:
    maker = ModelMaker((1, 9, 3, 3))
    up = maker.node("ConvTranspose", "x", maker.normal(9, 4, 3, 3), strides=(2, 2), kernel_shape=(3, 3))
    maker.node("Gemm", maker.node("Flatten", up), maker.normal(4 * 49, 10))
    limits = layer_limits(graph_of(maker, tmp_path), BASE)
    assert list(limits.values()) == [9 * 9 * 2, -(-4 * 49 // 8) * 2]


def test_vectors_of_a_program(tmp_path: Path) -> None:
    """A layer without padding, of whole tiles, sends what the limit says."""
    maker = ModelMaker((1, 16, 6, 6))
    maker.conv(maker.conv("x", 16, 16, (3, 3)), 16, 8, (1, 1))
    path = maker.save(tmp_path / "net.onnx")
    model = TModel.load(compile_model(path, BASE, tmp_path).model_path)
    limits = layer_limits(read_model(path), BASE)
    assert [row["array_vectors"] for row in model.layers] == list(limits.values()) == [16 * 9 * 4, 16 * 2]


@pytest.mark.parametrize(("attributes", "least"), [
    ({"pads": [1, 1, 1, 1]}, (6 + 7 + 6) * 8),  # a row of 8 vectors for each row of the kernel that is inside
    ({"pads": [1, 1, 1, 1], "strides": [2, 2]}, (3 + 4 + 3) * (4 + 4))])  # odd columns, then even ones
def test_depthwise_layers_run_in_passes(attributes: dict[str, list[int]], least: int, tmp_path: Path) -> None:
    maker = ModelMaker((1, 16, 7, 8))
    maker.node("Conv", maker.node("Relu", "x"), maker.normal(16, 1, 3, 3), group=16, kernel_shape=(3, 3), **attributes)
    graph = graph_of(maker, tmp_path)
    assert limit_cycles(graph, BASE.replace(depthwise_taps=3)) == 2 * least
    assert limit_cycles(graph, BASE) > 2 * least
