# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions whose windows lie side by side: their pixels are channels up to the network's outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model
from weft.tb.compile.test_operators import DECIBELS, EACH_ARCH, samples


def twice(maker: ModelMaker) -> None:
    """As text detectors end."""
    name = maker.node("Relu", maker.node("ConvTranspose", maker.conv("x", 6, 10, (1, 1)), maker.normal(10, 5, 2, 2),
                                         maker.normal(5), strides=(2, 2)))
    maker.node("ConvTranspose", name, maker.normal(5, 1, 2, 2), strides=(2, 2))


def normalised(maker: ModelMaker) -> None:
    name = maker.node("ConvTranspose", "x", maker.normal(6, 5, 2, 3), strides=(2, 3))
    numbers = [maker.constant(np.abs(maker.random.standard_normal(5)).astype(np.float32) + 0.5) for _ in range(4)]
    maker.node("Add", maker.node("BatchNormalization", name, *numbers), maker.normal(5, 1, 1))


def grouped(maker: ModelMaker) -> None:
    maker.node("ConvTranspose", "x", maker.normal(6, 2, 2, 2), maker.normal(4), strides=(2, 2), group=2)


APART: dict[str, Callable[[ModelMaker], None]] = {
    function.__name__: function for function in (twice, normalised, grouped)}


def made(build: Callable[[ModelMaker], None]) -> ModelMaker:
    maker = ModelMaker((1, 6, 5, 7), seed=3, opset=14)
    build(maker)
    return maker


def operators(path: Path, maker: ModelMaker, arch: Arch = BASE) -> list[str]:
    return [node.op for node in after_all_steps(path, arch, samples(maker))[Graph].nodes]


@EACH_ARCH
@pytest.mark.parametrize("build", APART.values(), ids=APART)
def test_against_onnxruntime(tmp_path: Path, build: Callable[[ModelMaker], None], arch: Arch) -> None:
    maker = made(build)
    check_model(maker.save(tmp_path / "model.onnx"), arch, samples(maker), DECIBELS - 8)


@pytest.mark.parametrize("build", APART.values(), ids=APART)
def test_nothing_is_assembled(tmp_path: Path, build: Callable[[ModelMaker], None]) -> None:
    maker = made(build)
    path = maker.save(tmp_path / "model.onnx")
    assert {"Assemble", "View"}.isdisjoint(operators(path, maker))
    check_every_step(path, BASE, samples(maker))


def test_pixels_side_by_side_for_a_kernel_that_needs_them(tmp_path: Path) -> None:
    maker = made(twice)
    maker.conv(maker.nodes[-1].output[0], 1, 3, (3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "model.onnx")
    assert operators(path, maker).count("Assemble") == 2
    check_model(path, BASE, samples(maker), DECIBELS - 8)


def test_macs_are_those_of_the_network(tmp_path: Path) -> None:
    maker = made(grouped)
    model = check_model(maker.save(tmp_path / "model.onnx"), BASE, samples(maker), DECIBELS - 8)
    assert model.macs == 6 * 2 * 2 * 2 * 5 * 7
