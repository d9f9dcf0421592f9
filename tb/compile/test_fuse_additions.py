# SPDX-License-Identifier: Apache-2.0
"""Sums of two convolutions become one, over both inputs or with the weights of both."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.fuse_additions import fuse_additions
from weft.compiler.passes.normalise import normalise
from weft.compiler.passes.order import in_order
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.calibrate import channel_ranges
from weft.compiler.quantize.samples import choose_samples
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step, check_model
from weft.tmodel.onnx_engine import run_model

Network = Callable[[ModelMaker], None]


def shortcut(maker: ModelMaker) -> None:
    """Both inputs have readers of their own; neither has whole tiles."""
    left = maker.node("Relu", maker.conv("x", 6, 5, (1, 1)))
    inner = maker.conv(left, 5, 11, (3, 3), pads=(1, 1, 1, 1))
    right = maker.node("Relu", maker.node("Mul", inner, maker.constant(np.float32(0.2))))
    added = maker.node("Add", maker.conv(left, 5, 9, (1, 1)), maker.conv(right, 11, 9, (1, 1)))
    maker.conv(maker.node("Relu", added), 9, 4, (1, 1))


def other_kernels(maker: ModelMaker) -> None:
    """A smaller kernel gets zeros around it, also where it does not lie in the middle of the other's."""
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    maker.node("Add", maker.conv(left, 8, 5, (3, 2), pads=(2, 0, 0, 1), strides=(1, 2)),
               maker.conv(right, 8, 5, (1, 3), pads=(0, 1, 0, 1), strides=(1, 2)))


def same_input(maker: ModelMaker) -> None:
    """Two branches over one tensor: half the work."""
    source = maker.node("Relu", maker.conv("x", 6, 8, (1, 1)))
    maker.node("Add", maker.conv(source, 8, 5, (3, 3), pads=(1, 1, 1, 1)), maker.conv(source, 8, 5, (1, 1)))


def dilated(maker: ModelMaker) -> None:
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    maker.node("Add", *(maker.conv(name, 8, 5, (2, 2), dilations=(2, 3), pads=(1, 1, 1, 2)) for name in (left, right)))


JOINED = [shortcut, other_kernels, same_input, dilated]


def unlike_values(maker: ModelMaker) -> None:
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    large = maker.node("Mul", right, maker.constant(np.float32(9)))
    maker.node("Add", maker.conv(left, 8, 5, (1, 1)), maker.conv(maker.node("Relu", large), 8, 5, (1, 1)))


def unlike_weights(maker: ModelMaker) -> None:
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    large = maker.constant(maker.random.standard_normal((5, 8, 1, 1)).astype(np.float32) * 9)
    maker.node("Add", maker.conv(left, 8, 5, (1, 1)), maker.node("Conv", right, large))


def shared_sum(maker: ModelMaker) -> None:
    """The first convolution has another reader."""
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    first = maker.conv(left, 8, 5, (1, 1))
    added = maker.node("Add", first, maker.conv(right, 8, 5, (1, 1)))
    maker.node("Add", maker.node("Relu", first), added)


def graph_input(maker: ModelMaker) -> None:
    """An input of the network cannot lie in another tensor."""
    maker.node("Add", maker.conv("x", 6, 5, (1, 1)), maker.conv(maker.node("Relu", "x"), 6, 5, (1, 1)))


def second_input(maker: ModelMaker) -> None:
    """Nor can it where the second convolution reads it."""
    maker.node("Add", maker.conv(maker.node("Relu", "x"), 6, 5, (1, 1)), maker.conv("x", 6, 5, (1, 1)))


def dilated_apart(maker: ModelMaker) -> None:
    """Taps of a dilated kernel cannot lie between those of another one."""
    left, right = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(2))
    maker.node("Add", *(maker.conv(name, 8, 5, (2, 2), dilations=(2, 2), pads=pads) for name, pads in (
        (left, (1, 1, 1, 1)), (right, (0, 2, 2, 0)))))


APART = [unlike_values, unlike_weights, shared_sum, graph_input, second_input, dilated_apart]


def graphs(network: Network, tmp_path: Path) -> tuple[Graph, Graph, np.ndarray]:
    maker = ModelMaker((1, 6, 9, 8), seed=7)
    network(maker)
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    before = in_order(fold_channelwise(normalise(read_model(maker.save(tmp_path / "net.onnx")), 8)))
    given = choose_samples(before, {"x": samples})
    return before, fuse_additions(before, 8, lambda names: channel_ranges(before, given, names)), samples


@pytest.mark.parametrize("network", [*JOINED, *APART])
def test_same_results(network: Network, tmp_path: Path) -> None:
    before, after, samples = graphs(network, tmp_path)
    wanted, found = (run_model(to_onnx(graph), {"x": samples[:1]}) for graph in (before, after))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("network", [*JOINED, *APART])
def test_joined_or_apart(network: Network, tmp_path: Path) -> None:
    before, after, _ = graphs(network, tmp_path)
    convolutions = [sum(node.op == "Conv" for node in graph.nodes) for graph in (before, after)]
    assert convolutions[0] - convolutions[1] == (network in JOINED)
    assert (after.text() == before.text()) == (network in APART)


@pytest.mark.parametrize("network", JOINED)
def test_on_the_machine(network: Network, tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=7)
    network(maker)
    path, samples = maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, 6, 9, 8))
    model = check_model(path, BASE, samples, 55)
    assert not any("add" in row["kind"] for row in model.layers)
    check_every_step(path, BASE, samples)


def test_macs_are_those_of_the_network(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8), seed=7)
    shortcut(maker)
    report = compile_model(maker.save(tmp_path / "net.onnx"), BASE, tmp_path)
    assert report.macs == 72 * (6 * 5 + 5 * 11 * 9 + 5 * 9 + 11 * 9 + 9 * 4)


def test_macs_beside_padded_channels_are_those_of_the_network(tmp_path: Path) -> None:
    """The first term is made by a convolution of the compiler's own, which counts nothing."""
    maker = ModelMaker((1, 6, 9, 8), seed=7)
    left = maker.node("Relu", maker.conv("x", 6, 5, (1, 1)))
    padded = maker.node("Pad", left, maker.constant(np.array([0, 0, 0, 0, 0, 4, 0, 0])))
    right = maker.node("Relu", maker.conv(left, 5, 5, (1, 1)))
    maker.node("Add", padded, maker.conv(right, 5, 9, (1, 1)))
    report = compile_model(maker.save(tmp_path / "net.onnx"), BASE, tmp_path)
    assert report.macs == 72 * (6 * 5 + 5 * 5 + 5 * 9)


def test_a_tensor_becomes_part_of_one_other(tmp_path: Path) -> None:
    """The first of two sums that read it beside others is joined; one of its own readers alone always is."""
    def sums(maker: ModelMaker) -> None:
        left, right, third = (maker.node("Relu", maker.conv("x", 6, 8, (1, 1))) for _ in range(3))
        total = [maker.node("Add", maker.conv(one, 8, 5, (1, 1)), maker.conv(other, 8, 5, (1, 1)))
                 for one, other in ((left, right), (left, third), (left, left), (third, third))]
        maker.node("Sum", *total)

    before, after, samples = graphs(sums, tmp_path)
    assert [sum(node.op == "Conv" for node in graph.nodes) for graph in (before, after)] == [11, 8]
    assert sum(node.op == "Assemble" for node in after.nodes) == 1
    wanted, found = (run_model(to_onnx(graph), {"x": samples[:1]}) for graph in (before, after))
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-4)
