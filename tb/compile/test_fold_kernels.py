# SPDX-License-Identifier: Apache-2.0
"""Fourier transforms by convolution: kernels that repeat themselves meet sums of their input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_reader import to_graph
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.fold_kernels import _surely_whole, classes, fold_kernels
from weft.compiler.passes.normalise import normalise
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import ModelMaker, check_every_step, check_model

ARCH = Arch.load("ultra96")
LANES = ARCH.array_size
HOP = 32


def transform(window: int) -> np.ndarray:
    """Cosines and sines under a Hann window [window + 2, window]; the first and last sine are zero."""
    angles = 2 * np.pi * np.arange(window // 2 + 1)[:, None] * np.arange(window) / window
    filters = np.concatenate([np.cos(angles), -np.sin(angles)]) * np.hanning(window + 1)[:-1]
    return np.where(np.abs(filters) < 1e-12, 0, filters).astype(np.float32)


def parts(window: int) -> list[tuple[int, int]]:
    return [(0, window // 2 + 1), (window // 2 + 1, window + 2)]


@pytest.mark.parametrize(("window", "sizes"), [(256, [64, 66, 128]), (128, [64, 66]), (80, [82])])
def test_frequencies_fall_into_classes_while_that_pays(window: int, sizes: list[int]) -> None:
    """Odd ones, even ones, of long windows every second of these; each row is the same product as before."""
    kernels = transform(window)
    found = classes(kernels.astype(np.float64), parts(window), LANES)
    assert sorted(len(entry.rows) for entry in found) == sizes
    assert sorted(np.concatenate([entry.rows for entry in found])) == [*range(len(kernels))]
    for entry in found:
        made = entry.weights if entry.sums is None else entry.weights @ entry.sums
        np.testing.assert_allclose(made, kernels[entry.rows], atol=1e-6)


@pytest.mark.parametrize("row", [0, 200])
def test_a_kernel_that_does_not_repeat_keeps_all_as_they_are(row: int) -> None:
    kernels = transform(256).astype(np.float64)
    kernels[row] += np.random.default_rng(0).standard_normal(256) * 1e-4
    entry, = classes(kernels, parts(256), LANES)
    assert entry.sums is None and np.array_equal(entry.weights, kernels)


def spectrum(maker: ModelMaker, window: int, form: str) -> list[str]:
    """Real and imaginary parts, as slices, as two parts of a Split or of two convolutions."""
    kernels, count = transform(window)[:, None], window // 2 + 1
    if form == "two convolutions":
        return [maker.node("Conv", "x", maker.constant(own), maker.normal(count), strides=[HOP], pads=[40, 40])
                for own in (kernels[:count], kernels[count:])]
    whole = maker.node("Identity", maker.node("Conv", "x", maker.constant(kernels), strides=[HOP], pads=[40, 40]))
    return [maker.node("Slice", whole, *(maker.constant(np.array([value])) for value in (begin, begin + count, 1)))
            for begin in (0, count)]


def detector(maker: ModelMaker, window: int = 256, form: str = "slices", *, logarithm: bool = False) -> None:
    """A convolution over magnitudes of a spectrum."""
    power = maker.node("Add", *(maker.node("Mul", part, part) for part in spectrum(maker, window, form)))
    length = maker.node("Log" if logarithm else "Sqrt", power)
    maker.node("Conv", length, maker.normal(8, window // 2 + 1, 3), pads=[1, 1])


def graph_of(maker: ModelMaker) -> Graph:
    return to_graph(onnx.shape_inference.infer_shapes(maker.model()), "made")


def sounds(count: int, seed: int = 0) -> np.ndarray:
    return (0.2 * np.random.default_rng(seed).standard_normal((count, 1, 320))).astype(np.float32)


@pytest.mark.parametrize(("window", "form"), [(256, "slices"), (192, "slices"), (256, "two convolutions")])
def test_a_spectrum_of_sums_is_the_same(window: int, form: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 1, 320))
    detector(maker, window, form)
    graph = graph_of(maker)
    folded = fold_kernels(graph, LANES)
    convs = [node for node in folded.nodes if node.op == "Conv"]
    sums = [node for node in convs if "/sums" in node.output]
    assert 2 <= len(sums) <= 3 and all(node.input(0) == "x" and node.macs == 0 for node in sums)
    assert sum(node.macs or 0 for node in convs) == sum(
        np.prod(graph.shapes[node.output]) * window for node in graph.nodes if node.op == "Conv" and "x" in node.inputs)
    check_every_step(maker.save(tmp_path / "model.onnx"), ARCH, sounds(2))
    check_model(tmp_path / "model.onnx", ARCH, sounds(3, 1), 50)


def test_a_spectrum_that_logarithms_read_stays() -> None:
    """Each sum is rounded to 16 bits, of which quiet frequencies would have none."""
    maker = ModelMaker((1, 1, 320))
    detector(maker, logarithm=True)
    graph = graph_of(maker)
    assert fold_kernels(graph, LANES) is graph


def test_parts_that_are_read_whole_keep_their_order(tmp_path: Path) -> None:
    """Real and imaginary parts go on as channels, and are an output too."""
    maker = ModelMaker((1, 1, 320))
    whole = maker.node("Conv", "x", maker.constant(transform(256)[:, None]), strides=[HOP])
    read = maker.node("Conv", maker.node("Relu", whole), maker.normal(8, 258, 1))
    assert any("/sums" in node.output for node in fold_kernels(graph_of(maker), LANES).nodes)
    check_model(maker.save(tmp_path / "model.onnx", whole, read), ARCH, sounds(3), 50)


@pytest.mark.parametrize("other", [False, True], ids=["convolutions", "an addition too"])
def test_one_factor_goes_into_the_convolutions_that_read_it(other: bool, tmp_path: Path) -> None:
    maker = ModelMaker((1, 4, 8, 8))
    total = maker.node("Add", maker.conv("x", 4, 6, (1, 1)), maker.conv("x", 4, 6, (1, 1)))
    scaled = maker.node("Mul", total, maker.constant(np.float32(0.3)))
    again = maker.node("Mul", maker.conv(scaled, 6, 6, (3, 3), pads=(1,) * 4), maker.constant(np.float32(2)))
    beside = maker.node("Relu", scaled) if other else maker.conv(scaled, 6, 6, (1, 1))
    maker.node("Add", again, beside)
    graph = fold_channelwise(normalise(graph_of(maker), LANES))
    assert sum(node.op == "Conv" for node in graph.nodes) == 3 + 1
    check_model(maker.save(tmp_path / "model.onnx"), ARCH, np.random.default_rng(0).standard_normal(
        (2, 4, 8, 8)).astype(np.float32), 50)


def test_three_kernels_tell_that_none_repeat() -> None:
    """Then no other is looked at; of kernels that repeat, or of one sign alone, they tell nothing."""
    random = np.random.default_rng(5)
    assert _surely_whole([random.standard_normal((64, 32)).astype(np.float32)])
    assert _surely_whole([np.ones((64, 27), np.float32)])
    assert not any(_surely_whole([transform(window)]) for window in (256, 80))
    assert not _surely_whole([random.standard_normal((1, 32)).astype(np.float32)])
