# SPDX-License-Identifier: Apache-2.0
"""Slices of a convolution's channels that begin at a lane 0 of their own, where that costs no tile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.reader import read_model
from weft.compiler.passes.align_slices import aligned_channels
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step, check_model

SHAPE = (1, 5, 6, 7)
LANES = BASE.array_size


def cut(maker: ModelMaker, source: str, begin: int, end: int) -> str:
    return maker.node("Slice", source, *(maker.constant(np.array([value])) for value in (begin, end, 1)))


def made(maker: ModelMaker, channels: int = 12) -> str:
    return maker.node("LeakyRelu", maker.conv("x", 5, channels, (3, 3), pads=(1,) * 4), alpha=0.1)


def half(maker: ModelMaker) -> None:
    """The stage of YOLOv4-tiny: half of a result goes on, beside the whole of it, pooled."""
    whole = made(maker)
    branch = maker.conv(cut(maker, whole, 6, 12), 6, 6, (3, 3), pads=(1,) * 4)
    pooled = [maker.node("MaxPool", name, kernel_shape=(2, 2), strides=(2, 2)) for name in (whole, branch)]
    maker.conv(maker.node("Concat", *pooled, axis=1), 18, 4, (1, 1))


def three(maker: ModelMaker) -> None:
    """Slices that overlap: of 20 channels 6..14 and 8..16; the bounds lie at tiles already or take one tile more."""
    whole = made(maker, 20)
    left, right = (cut(maker, whole, begin, begin + 8) for begin in (6, 8))
    maker.node("Add", maker.conv(left, 8, 4, (1, 1)), maker.conv(right, 8, 4, (1, 1)))


def one_tile(maker: ModelMaker) -> None:
    """The first four channels lie in one tile as they come."""
    whole = made(maker)
    maker.node("Add", maker.conv(cut(maker, whole, 0, 4), 4, 4, (1, 1)), maker.conv(whole, 12, 4, (1, 1)))


def depthwise(maker: ModelMaker) -> None:
    """Who reads each channel by itself would pay for a gap."""
    whole = made(maker)
    deep = maker.conv(whole, 12, 12, (3, 3), pads=(1,) * 4, group=12)
    maker.node("Add", maker.conv(deep, 12, 6, (1, 1)), cut(maker, whole, 6, 12))


def an_output(maker: ModelMaker) -> None:
    whole = made(maker)
    maker.node("Concat", whole, maker.conv(cut(maker, whole, 6, 12), 6, 6, (1, 1)), axis=1)


NETWORKS: dict[Callable[[ModelMaker], None], bool] = {
    half: True, three: False, one_tile: False, depthwise: False, an_output: True}
"""Whether channels move at 8 lanes."""


@pytest.mark.parametrize("make", NETWORKS, ids=lambda make: make.__name__)
def test_right(make: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE, seed=3)
    make(maker)
    path, samples = maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((2, *SHAPE[1:]))
    found = aligned_channels(read_model(path), LANES)
    assert [list(places) for places in found.values()] == ([[*range(6), *range(8, 14)]] if NETWORKS[make] else [])
    check_model(path, BASE, samples, 50)
    check_every_step(path, BASE, samples)


def places_by_hand(count: int, slices: list[tuple[int, int]], lanes: int) -> list[int] | None:
    """Channel by channel: each bound of a slice goes to the next lane 0. None where nothing gains or tiles are more."""
    places: list[int] = []
    for channel in range(count):
        place = places[-1] + 1 if places else 0
        if any(channel in bounds for bounds in slices):
            place = -(-place // lanes) * lanes
        places.append(place)
    gains = any(len({channel // lanes for channel in range(*bounds)}) > -(-(bounds[1] - bounds[0]) // lanes)
                for bounds in slices)
    return places if gains and places[-1] // lanes == (count - 1) // lanes else None


@pytest.mark.parametrize("lanes", [4, 8])
def test_places_are_those_by_hand(lanes: int, tmp_path: Path) -> None:
    """A seed draws convolutions with one to three slices each."""
    draw, maker, wanted = np.random.default_rng(lanes), ModelMaker(SHAPE), {}
    ends = []
    for _ in range(60):
        count = int(draw.integers(5, 4 * lanes))
        whole = maker.conv("x", 5, count, (1, 1))
        middle = int(draw.integers(1, count))
        slices = [[(middle, count), (0, middle), (0, count), (middle // 2, middle + 1)][number]
                  for number in draw.choice(4, int(draw.integers(1, 4)), p=[0.45, 0.25, 0.25, 0.05])]
        for begin, end in slices:
            ends.append(maker.conv(cut(maker, whole, begin, end), end - begin, 1, (1, 1)))
        wanted[whole] = places_by_hand(count, slices, lanes)
    found = aligned_channels(read_model(maker.save(tmp_path / "net.onnx", *ends)), lanes)
    assert {name: places.tolist() for name, places in found.items()} == {
        name: places for name, places in wanted.items() if places is not None}
    assert 8 < len(found) < 50


@pytest.mark.parametrize(("op", "attributes", "follows"), [
    ("Concat", {"axis": 1}, True), ("Concat", {"axis": 2}, False), ("Concat", {"axis": 3}, False), ("Relu", {}, True),
    ("MaxPool", {"kernel_shape": (2, 2)}, True), ("AveragePool", {"kernel_shape": (2, 2)}, False),
    ("Identity", {}, True), ("Transpose", {"perm": (0, 2, 1, 3)}, False), ("GlobalAveragePool", {}, False)])
def test_channels_move_only_where_every_reader_takes_them_from_anywhere(op: str, attributes: dict[str, object],
                                                                        follows: bool, tmp_path: Path) -> None:
    maker = ModelMaker(SHAPE)
    whole = maker.conv("x", 5, 12, (1, 1))
    ends = [maker.conv(cut(maker, whole, 6, 12), 6, 1, (1, 1))]
    beside = maker.node(op, *([whole, whole] if op == "Concat" else [whole]), **attributes)
    if op in ("Relu", "Identity"):
        beside = maker.conv(beside, 12, 1, (1, 1))
    found = aligned_channels(read_model(maker.save(tmp_path / "net.onnx", *ends, beside)), LANES)
    assert bool(found) == follows
