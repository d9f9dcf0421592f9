# SPDX-License-Identifier: Apache-2.0
"""Normalisations of sums that others read too go into weights and biases, or stay where that cannot be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.passes.fold import fold_channelwise, is_channelwise
from weft.compiler.passes.fold_forward import fold, fold_forward
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.order import in_order
from weft.compiler.quantize.calibrate import channel_ranges
from weft.compiler.quantize.ranges import HEADROOM
from weft.compiler.quantize.samples import choose_samples
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step, check_model
from weft.tmodel.onnx_engine import run_model


class Blocks(ModelMaker):
    """Pre-activation residual blocks."""

    def batch_norm(self, source: str, scale: np.ndarray, shift: np.ndarray) -> str:
        mean, variance = np.zeros_like(scale), np.ones_like(scale)
        numbers = [self.constant(value.astype(np.float32)) for value in (scale, shift, mean, variance)]
        return self.node("BatchNormalization", source, *numbers, epsilon=0.0)

    def block(self, source: str, scale: np.ndarray, shift: np.ndarray, pad: int = 0) -> str:
        """source + two convolutions of relu(scale * source + shift)."""
        normal = self.node("Relu", self.batch_norm(source, scale, shift))
        inner = self.conv(normal, 8, 6, (1 + 2 * pad,) * 2, pads=(pad,) * 4)
        return self.node("Add", source, self.conv(self.node("Relu", inner), 6, 8, (1, 1)))


def network(scales: list[np.ndarray], shifts: list[np.ndarray], tmp_path: Path, pad: int = 0,
            ) -> tuple[Path, np.ndarray]:
    """A block for each scale and shift, then a pooled and a strided reader of a last normalisation."""
    maker = Blocks((1, 5, 6, 6), seed=5)
    carried = maker.node("Add", maker.conv("x", 5, 8, (1, 1)), maker.conv("x", 5, 8, (3, 3), pads=(1, 1, 1, 1)))
    for scale, shift in zip(scales, shifts, strict=True):
        carried = maker.block(carried, scale, shift, pad)
    last = maker.node("Relu", maker.batch_norm(carried, scales[0], shifts[0]))
    pooled = maker.node("Flatten", maker.node("GlobalAveragePool", last))
    answer = maker.node("Gemm", pooled, maker.normal(8, 3))
    strided = maker.conv(last, 8, 3, (1, 1), strides=(2, 2))
    return maker.save(tmp_path / "net.onnx", answer, strided), maker.random.standard_normal((3, 5, 6, 6))


def folded(path: Path, samples: np.ndarray) -> tuple[Graph, Graph]:
    before = in_order(fold_channelwise(normalise(read_model(path), 8)))
    given = choose_samples(before, {"x": samples})
    return before, fold_forward(before, lambda names: channel_ranges(before, given, names), HEADROOM)


def channelwise(graph: Graph) -> int:
    return sum(is_channelwise(graph, node) for node in graph.nodes)


def numbers(seed: int, count: int = 3) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(seed)
    return [random.uniform(0.2, 3, 8) for _ in range(count)], [random.standard_normal(8) for _ in range(count)]


def same(before: Graph, after: Graph, samples: np.ndarray) -> None:
    for sample in samples.astype(np.float32):
        wanted, found = (run_model(to_onnx(graph), {"x": sample[None]}) for graph in (before, after))
        for name, value in wanted.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5 * np.abs(value).max())


@pytest.mark.parametrize("pad", [0, 1])
def test_positive_scales_cost_nothing(pad: int, tmp_path: Path) -> None:
    path, samples = network(*numbers(1), tmp_path, pad)
    before, after = folded(path, samples)
    assert (channelwise(before), channelwise(after)) == (4, 0)
    same(before, after, samples)


def test_odd_channels(tmp_path: Path) -> None:
    """AffineParams of nearly nothing, nothing, and shifts that the sum never reaches: constants, and no large
    offset."""
    scales, shifts = numbers(2)
    scales[0][:3], shifts[0][:3] = (0.001, 0, 0), (0.7, 0.9, -0.9)
    shifts[0][3:5] = 500, -500
    path, samples = network(scales, shifts, tmp_path)
    before, after = folded(path, samples)
    assert channelwise(after) == 0
    same(before, after, samples)
    name = before.nodes[2].output
    low, high = channel_ranges(before, choose_samples(before, {"x": samples}), [name])[name]
    made = fold(scales[0], shifts[0], low, high, HEADROOM, padded=False)
    assert made is not None and np.abs(made.offset).max() <= 1.2 * np.maximum(np.abs(low), np.abs(high)).max()


@pytest.mark.parametrize("change", ["negative", "constant beside padding", "far"])
def test_what_cannot_be_folded_stays(change: str, tmp_path: Path) -> None:
    scales, shifts = numbers(3)
    if change == "negative":
        scales[0][3] = -0.5
    elif change == "far":
        scales[0][3], shifts[0][3] = 0.001, 5
    else:
        scales[0][3], shifts[0][3] = 0, 5
    path, samples = network(scales, shifts, tmp_path, pad=1)
    before, after = folded(path, samples)
    # The last normalisation has the same numbers; what reads it has no padding, so only a sign keeps it.
    assert channelwise(after) == (2 if change == "negative" else 1)
    same(before, after, samples)


def test_other_readers_keep_it(tmp_path: Path) -> None:
    """A sum that a ReLU or a padded convolution reads, or that is an output, cannot have an offset."""
    for reader in ("relu", "padded", "output"):
        maker = Blocks((1, 5, 6, 6), seed=6)
        carried = maker.block(maker.conv("x", 5, 8, (1, 1)), np.ones(8), np.ones(8))
        ends = [maker.conv(maker.node("Relu", maker.batch_norm(carried, np.full(8, 2.0), np.ones(8))), 8, 3, (1, 1))]
        if reader == "output":
            ends.append(carried)
        else:
            ends.append(maker.node("Relu", carried) if reader == "relu"
                        else maker.conv(carried, 8, 3, (3, 3), pads=(1, 1, 1, 1)))
        path = maker.save(tmp_path / "net.onnx", *ends)
        before, after = folded(path, np.ones((1, 5, 6, 6)))
        assert (channelwise(before), channelwise(after)) == (2, 1), reader


@pytest.mark.parametrize("pad", [0, 1])
def test_on_the_machine(pad: int, tmp_path: Path) -> None:
    path, samples = network(*numbers(4), tmp_path, pad)
    model = check_model(path, BASE, samples, 55)
    assert sum("save+relu" in row["kind"] for row in model.layers) >= 3
    assert not any(row["kind"].startswith("load") for row in model.layers)
    check_every_step(path, BASE, samples)
