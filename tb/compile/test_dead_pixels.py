# SPDX-License-Identifier: Apache-2.0
"""Pixels that nobody reads are not computed: what remains is the same network, and no larger than it has to be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.indices.index import feed
from weft.compiler.passes.dead_pixels import EvenPixels, drop_unread_pixels, union
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.order import in_order
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tmodel.onnx_engine import run_model

Network = Callable[[ModelMaker], None]


def residual(maker: ModelMaker) -> None:
    """The end of a stage: an add that only 1x1 convolutions with stride 2 read, through a normalisation."""
    before = maker.node("Relu", maker.conv("x", 6, 8, (1, 1)))
    inner = maker.conv(maker.node("Relu", maker.conv(before, 8, 5, (3, 3), pads=(1, 1, 1, 1))), 5, 8, (1, 1))
    added = maker.node("Add", before, inner)
    scaled = maker.node("Relu", maker.node("Mul", added, maker.normal(8, 1, 1)))
    left, right = (maker.conv(name, 8, 9, (1, 1), strides=(2, 2)) for name in (added, scaled))
    maker.node("Add", left, maker.conv(right, 9, 9, (3, 3), pads=(1, 1, 1, 1)))


def crop(maker: ModelMaker) -> None:
    """A slice of odd rows and of the middle columns."""
    made = maker.conv("x", 6, 5, (3, 3), pads=(1, 1, 1, 1))
    cut = maker.node("Slice", made, *(maker.constant(np.array(value)) for value in ([1, 2], [9, 7], [2, 3], [2, 1])))
    maker.conv(cut, 5, 4, (2, 2))


def no_kernel_but_pads(maker: ModelMaker) -> None:
    """A stride with padding: the image counts from its second pixel on."""
    maker.conv(maker.node("LeakyRelu", maker.conv("x", 6, 5, (3, 3))), 5, 4, (1, 1), strides=(2, 3), pads=(1, 2, 1, 2))


def dilated(maker: ModelMaker) -> None:
    """Stride and dilation have a divisor in common."""
    maker.conv(maker.conv("x", 6, 5, (1, 1)), 5, 4, (2, 2), strides=(2, 4), dilations=(4, 2), pads=(2, 1, 2, 0))


def pooled(maker: ModelMaker) -> None:
    """A pool that leaves a row and a column, and one of which every other pixel is read."""
    made = maker.node("Relu", maker.conv("x", 6, 5, (3, 3), pads=(1, 1, 1, 1)))
    small = maker.node("MaxPool", made, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    maker.conv(maker.node("MaxPool", small, kernel_shape=(2, 2), strides=(3, 3)), 5, 4, (1, 1), strides=(2, 2))


def different_readers(maker: ModelMaker) -> None:
    """One reader wants every fourth pixel, one every sixth: every second is kept."""
    made = maker.node("Relu", maker.conv("x", 6, 8, (3, 3), pads=(1, 1, 1, 1)))
    few = maker.conv(made, 8, 4, (1, 1), strides=(6, 6))
    many = maker.conv(made, 8, 4, (1, 1), strides=(4, 4))
    flat = [maker.node("Flatten", name) for name in (few, many)]
    maker.node("Concat", *flat, axis=1)


def pool_behind_a_crop(maker: ModelMaker) -> None:
    """Its first window begins inside the image, its last one ends in the padding, one pixel behind what it reads."""
    made = maker.node("MaxPool", maker.conv("x", 6, 8, (1, 1)), kernel_shape=(3, 2), dilations=(2, 2),
                      strides=(1, 1), pads=(0, 0, 0, 1))
    cut = maker.node("Slice", made, *(maker.constant(np.array(value)) for value in ([1], [4], [2])))
    maker.conv(cut, 8, 4, (1, 1), strides=(1, 9))


def taps_in_the_padding(maker: ModelMaker) -> None:
    """Of one reader's two taps, a row apart, one is always in the padding; every other row is read."""
    made = maker.conv("x", 6, 5, (1, 1))
    few = maker.conv(made, 5, 4, (2, 1), strides=(20, 2), pads=(1, 0, 0, 0))
    many = maker.conv(made, 5, 4, (1, 1), strides=(2, 2))
    maker.node("Add", few, many)


def windows_in_the_padding(maker: ModelMaker) -> None:
    """The second of one reader's windows is in the padding, 11 rows behind the first; every fourth row is read."""
    made = maker.conv("x", 6, 5, (1, 1))
    few = maker.conv(made, 5, 4, (1, 1), strides=(11, 4), pads=(0, 0, 2, 0))
    maker.node("Concat", few, maker.conv(made, 5, 4, (1, 1), strides=(4, 4)), axis=2)


NETWORKS: dict[Network, dict[str, tuple[int, int]]] = {
    residual: {"add": (5, 6), "mul": (5, 6), "conv2": (5, 6)},
    crop: {"conv": (4, 5)},
    no_kernel_but_pads: {"conv": (4, 3)},
    dilated: {"conv": (5, 5)},
    pooled: {"conv": (9, 9), "maxpool": (8, 8)},
    pool_behind_a_crop: {"conv": (7, 11), "maxpool": (3, 2)},
    different_readers: {"conv": (5, 5)},
    taps_in_the_padding: {"conv": (5, 6)},
    windows_in_the_padding: {"conv": (3, 3)},
}
"""Each with tensors that become smaller, by the start of their name, and their rows and columns."""


def graphs(network: Network, tmp_path: Path) -> tuple[Graph, Graph]:
    """Before and after the pass; the input has 10 rows of 11 pixels."""
    maker = ModelMaker((1, 6, 10, 11))
    network(maker)
    before = in_order(fold_channelwise(normalise(read_model(maker.save(tmp_path / "net.onnx")), 8)))
    return before, drop_unread_pixels(before)


@pytest.mark.parametrize("network", NETWORKS)
def test_same_results(network: Network, tmp_path: Path) -> None:
    before, after = graphs(network, tmp_path)
    sample = {"x": np.random.default_rng(1).standard_normal((1, 6, 10, 11)).astype(np.float32)}
    results = [run_model(to_onnx(graph), feed(graph, sample)) for graph in (before, after)]
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_smaller(network: Network, tmp_path: Path) -> None:
    before, after = graphs(network, tmp_path)
    for start, size in NETWORKS[network].items():
        found = {after.shapes[node.output][2:] for node in after.nodes if node.name.startswith(start)}
        assert size in found, (start, found)
    computed = [sum(np.prod(graph.shapes[node.output]) for node in graph.nodes if node.op != "View")
                for graph in (before, after)]
    assert computed[1] < computed[0]


@pytest.mark.parametrize("network", NETWORKS)
def test_on_the_machine(network: Network, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 10, 11))
    network(maker)
    samples = maker.random.standard_normal((2, 6, 10, 11)).astype(np.float32)
    check_model(maker.save(tmp_path / "net.onnx"), BASE, samples, 50)


def test_nothing_to_do_changes_nothing(tmp_path: Path) -> None:
    def dense(maker: ModelMaker) -> None:
        maker.conv(maker.node("Relu", maker.conv("x", 6, 8, (3, 3))), 8, 3, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))

    before, after = graphs(dense, tmp_path)
    assert after.text() == before.text()


def test_union_has_the_pixels_of_all() -> None:
    generator = np.random.default_rng(2)
    for _ in range(200):
        lines = [EvenPixels(*(int(number) for number in generator.integers((0, 1, 1), (9, 6, 5)))) for _ in range(3)]
        joined = union(lines)
        pixels = [{line.start + line.step * number for number in range(line.length)} for line in (*lines, joined)]
        assert set().union(*pixels[:3]) <= pixels[3]
        assert {joined.start, joined.last} <= set().union(*pixels[:3])
