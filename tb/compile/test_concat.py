# SPDX-License-Identifier: Apache-2.0
"""Concatenations over channels: of tensors that are assembled themselves, and of parts that leave lanes unused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.backend.limit import array_vectors
from weft.compiler.layers.hir import Layers
from weft.compiler.lowering import move as lower_move
from weft.compiler.products import Products
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model

SHAPE = (1, 5, 6, 7)


def conv(maker: ModelMaker, source: str, channels: tuple[int, int], kernel: int = 3) -> str:
    return maker.node("Relu", maker.conv(source, *channels, (kernel, kernel), pads=(kernel // 2,) * 4))


def two_tails(maker: ModelMaker) -> None:
    """At 8 lanes two tiles of four channels, of which a convolution would read twice nine taps."""
    joined = maker.node("Concat", conv(maker, "x", (5, 12)), conv(maker, "x", (5, 20)), axis=1)
    conv(maker, joined, (32, 16))


def many_tails(maker: ModelMaker) -> None:
    """Five parts, one without a tail; the result is an output and cut in two as well."""
    parts = [conv(maker, "x", (5, channels)) for channels in (3, 8, 11, 1, 5)]
    joined = maker.node("Concat", *parts, axis=1)
    cut = maker.node("Slice", joined, *(maker.constant(np.array([value])) for value in (2, 25, 1)))
    maker.node("Concat", conv(maker, joined, (28, 40)), conv(maker, cut, (23, 3)), joined, axis=1)


def nested(maker: ModelMaker) -> None:
    """Read as a whole, in parts, and as images of other shapes, before and after it becomes a part itself."""
    first, second = conv(maker, "x", (5, 8)), conv(maker, "x", (5, 16))
    inner = maker.node("Concat", first, second, axis=1)
    wide, long = (maker.node("Reshape", inner, maker.constant(np.array((1, 24, *size)))) for size in ((3, 14), (21, 2)))
    before = conv(maker, wide, (24, 4))
    outer = maker.node("Concat", conv(maker, inner, (24, 8)), inner, first, axis=1)
    ends = (maker.node("Reshape", name, maker.constant(np.array((1, 4, 42, 1))))
            for name in (before, conv(maker, outer, (40, 4)), conv(maker, long, (24, 4))))
    maker.node("Concat", *ends, axis=1)


def resized(maker: ModelMaker) -> None:
    """The neck of YOLO: an enlarged image beside another one."""
    small = maker.node("MaxPool", conv(maker, "x", (5, 9)), kernel_shape=(2, 1), strides=(2, 1))
    large = maker.node("Resize", small, "", maker.constant(np.array((1, 1, 2, 1), np.float32)), mode="nearest",
                       coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    conv(maker, maker.node("Concat", large, conv(maker, "x", (5, 7)), axis=1), (16, 24))


def pooled(maker: ModelMaker) -> None:
    """The maximum over windows of a concatenation within one, of which the inner one is read besides."""
    inner = maker.node("Concat", conv(maker, "x", (5, 8)), conv(maker, "x", (5, 4)), axis=1)
    outer = maker.node("Concat", conv(maker, inner, (12, 4)), inner, axis=1)
    conv(maker, maker.node("MaxPool", outer, kernel_shape=(2, 2), strides=(2, 2)), (16, 8))


NETWORKS: list[Callable[[ModelMaker], None]] = [two_tails, many_tails, nested, resized, pooled]
ARCHS = {"8 lanes": BASE, "12 lanes": BASE.replace(array_size=12),
         "3 lanes": BASE.replace(array_size=3, local_depth=32, accumulator_depth=10)}


def network(make: Callable[[ModelMaker], None], tmp_path: Path) -> tuple[Path, np.ndarray]:
    maker = ModelMaker(SHAPE, seed=7)
    make(maker)
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, *SHAPE[1:]))


def made(make: Callable[[ModelMaker], None], tmp_path: Path, arch: Arch = BASE) -> Products:
    return after_all_steps(network(make, tmp_path)[0], arch, network(make, tmp_path)[1])


@pytest.mark.wide_cases("many_tails-3 lanes", "nested-3 lanes", "two_tails-3 lanes", "resized-3 lanes",
                        "pooled-3 lanes", "pooled-12 lanes")
@pytest.mark.parametrize("arch", ARCHS.values(), ids=ARCHS)
@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_right(make: Callable[[ModelMaker], None], arch: Arch, tmp_path: Path) -> None:
    path, samples = network(make, tmp_path)
    check_model(path, arch, samples, 50)
    check_every_step(path, arch, samples)


def test_tails_are_joined_where_that_saves_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = made(two_tails, tmp_path)
    saved = [layer.output.name for layer in joined[Layers]]
    assert saved == ["relu1", "relu3", "concat4/tails", "relu6"]
    monkeypatch.setattr(lower_move, "TAIL_VECTORS", 1000)
    apart = made(two_tails, tmp_path)
    assert len(apart[Layers]) == 3
    assert array_vectors(joined[Schedule].table)[1].sum() < array_vectors(apart[Schedule].table)[1].sum()


def test_tails_of_little_use_stay(tmp_path: Path) -> None:
    def little_read(maker: ModelMaker) -> None:
        conv(maker, maker.node("Concat", conv(maker, "x", (5, 12)), conv(maker, "x", (5, 20)), axis=1), (32, 16), 1)

    def nothing_saved(maker: ModelMaker) -> None:
        conv(maker, maker.node("Concat", conv(maker, "x", (5, 13)), conv(maker, "x", (5, 12)), axis=1), (25, 16))

    for make in (little_read, nothing_saved):
        assert len(made(make, tmp_path)[Layers]) == 3


def test_what_is_assembled_lies_in_what_is_assembled_of_it(tmp_path: Path) -> None:
    """Only what lies in it twice is copied."""
    state = made(nested, tmp_path)
    outputs = [layer.output for layer in state[Layers] if layer.output.root == "concat11"]
    tiles = {var.name: var.part and var.part.tile for var in outputs}
    assert tiles == {"relu1": 1, "relu3": 2, "relu10": 0, "concat11/copy": 4}
    read = [layer.core.input for layer in state[Layers]]
    assert any(var.root == "concat11" and var.size == (3, 14) for var in read)
    assert not [layer for layer in made(resized, tmp_path)[Layers] if "copy" in layer.output.name]
