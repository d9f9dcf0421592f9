# SPDX-License-Identifier: Apache-2.0
"""Channel tiles with the same weights: one copy in DRAM1, loaded once and kept in the array from tile to tile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from weft.compiler import lir
from weft.compiler.quantize import weights
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model

SMALL = BASE.replace(local_depth=40, accumulator_depth=12)
LANES = BASE.array_size


def scaled(tmp_path: Path, factors: np.ndarray, offsets: np.ndarray, size: tuple[int, int] = (1, 5),
           ) -> tuple[Path, np.ndarray]:
    """A sum of an image and its channels times factors plus offsets, which nothing else can take in."""
    channels = len(factors)
    maker = ModelMaker((1, channels, *size), seed=11)
    inner = maker.node("Relu", "x")
    times = maker.node("Mul", inner, maker.constant(factors.reshape(1, -1, 1, 1).astype(np.float32)))
    plus = maker.node("Add", times, maker.constant(offsets.reshape(1, -1, 1, 1).astype(np.float32)))
    maker.node("Add", maker.node("Relu", plus), inner)
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, channels, *size))


def loads(path: Path, samples: np.ndarray, arch: Arch = BASE) -> tuple[int, list[tuple[int, ...]]]:
    """The LoadWeights of the whole program, and the places of the weights of each layer with several tiles."""
    state = after_all_steps(path, arch, samples)
    count = sum(isinstance(operation, lir.LoadWeight) for operation in state[Schedule].operations)
    return count, [tuple(block.bias for block in layer.blocks) for layer in state[Consts].layers if layer.blocks]


@pytest.mark.parametrize("channels", [4 * LANES, 4 * LANES + 3])
def test_equal_tiles_are_stored_and_loaded_once(channels: int, tmp_path: Path) -> None:
    """The last tile may have fewer channels: its inputs beyond them are zero."""
    path, samples = scaled(tmp_path, np.full(channels, 0.7), np.zeros(channels))
    count, places = loads(path, samples)
    assert places and all(len(set(layer)) == 1 for layer in places)
    assert count == len(places)
    check_model(path, BASE, samples, 60)
    check_every_step(path, BASE, samples)


def test_tiles_that_differ_are_kept_apart(tmp_path: Path) -> None:
    """In a weight, or in a bias alone; each run of equal ones is stored once."""
    factors, offsets = np.full(5 * LANES, 0.75), np.zeros(5 * LANES)
    factors[2 * LANES + 1] = 0.5
    offsets[4 * LANES] = 0.2
    path, samples = scaled(tmp_path, factors, offsets)
    count, places = loads(path, samples)
    (layer,) = places
    assert layer[0] == layer[1] and len(set(layer)) == 4
    assert count == 4
    check_model(path, BASE, samples, 60)


def test_a_last_tile_with_a_bias_of_its_own(tmp_path: Path) -> None:
    """Lanes beyond the last channel stay zero, so a bias for all lanes is not shared with them."""
    channels = 2 * LANES + 3
    path, samples = scaled(tmp_path, np.full(channels, 0.7), np.full(channels, 0.5))
    _, ((first, second, last),) = loads(path, samples)
    assert first == second != last
    check_model(path, BASE, samples, 60)
    check_every_step(path, BASE, samples)


def test_a_bias_alone_takes_the_place_of_weights(tmp_path: Path) -> None:
    """A channel tile without weights loads its bias, so the tile before it loads its weights again in the next step."""
    maker = ModelMaker((1, LANES, 6, 7), seed=13)
    weights = np.zeros((2 * LANES, LANES, 1, 1), np.float32)
    weights[:LANES, :, 0, 0] = maker.random.standard_normal((LANES, LANES)) / 2
    bias = maker.random.standard_normal(2 * LANES).astype(np.float32)
    maker.node("Conv", "x", maker.constant(weights), maker.constant(bias))
    path = maker.save(tmp_path / "net.onnx")
    check_every_step(path, SMALL, maker.random.standard_normal((2, LANES, 6, 7)))


@pytest.mark.parametrize("arch", [BASE, SMALL])
def test_tiles_of_several_taps_and_cut_layers(arch: Arch, tmp_path: Path) -> None:
    """An average of 3 x 3 pixels with padding, whose corners not every tap reaches, on two sizes of memories."""
    channels = 3 * LANES
    maker = ModelMaker((1, channels, 7, 9), seed=12)
    kernel = np.full((channels, 1, 3, 3), 1 / 9, np.float32)
    kernel[:, :, 1, 1] = 0.3
    maker.nodes.append(helper.make_node("Conv", ["x", maker.constant(kernel)], ["y"], group=channels,
                                        kernel_shape=(3, 3), pads=(1, 1, 1, 1)))
    path, samples = maker.save(tmp_path / "net.onnx", "y"), maker.random.standard_normal((2, channels, 7, 9))
    _, places = loads(path, samples, arch)
    assert places == [(0, 0, 0)]
    check_model(path, arch, samples, 60)
    check_every_step(path, arch, samples)


def test_bytes(tmp_path: Path) -> None:
    """Scales of each tile stay apart where weights are shared."""
    channels = 3 * LANES
    factors = np.full(channels, 0.7)
    path, samples = scaled(tmp_path, factors, np.linspace(0, 0.3, channels))
    arch = Arch.load("ultra96_int8").replace(array_size=8)
    check_every_step(path, arch, samples)


@pytest.mark.parametrize("kernel, channels, group", [
    (1, (3 * LANES, 2 * LANES), 1), (1, (2 * LANES + 1, LANES + 3), 1), (3, (2 * LANES, LANES + 1), 1),
    (3, (3 * LANES, 3 * LANES), 3 * LANES), (3, (2 * LANES + 3, 2 * LANES + 3), 2 * LANES + 3),
    (2, (2 * LANES, 2 * LANES), LANES)], ids=str)
def test_tiles_that_are_all_stored_are_laid_out_at_once(kernel: int, channels: tuple[int, int], group: int,
                                                        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the vectors and blocks of the way that looks at each output tile."""
    outputs, inputs = channels
    maker = ModelMaker((1, inputs, 5, 6), seed=3)
    maker.conv("x", inputs, outputs, (kernel, kernel), group=group)
    path, samples = maker.save(tmp_path / "net.onnx"), np.ones((1, inputs, 5, 6))
    at_once = weights._encode_all
    found: list[bool] = []

    def noted(*given: Any) -> Any:
        found.append(True)
        return at_once(*given)

    monkeypatch.setattr(weights, "_encode_all", noted)
    one = after_all_steps(path, BASE, samples)[Consts]
    assert found or group not in (1, outputs)
    monkeypatch.setattr(weights, "_all_stored", lambda *given: False)
    other = after_all_steps(path, BASE, samples)[Consts]
    assert one.layers == other.layers
    np.testing.assert_array_equal(one.vectors, other.vectors)
