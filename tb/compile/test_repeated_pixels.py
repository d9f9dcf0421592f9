# SPDX-License-Identifier: Apache-2.0
"""Pixels that are repeated (Resize by whole factors, a gate for every channel) and products with a constant factor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.hir import Layers
from weft.compiler.pipeline import run_steps
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step, check_model

SPLIT = BASE.replace(local_depth=64, accumulator_depth=48)
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def resized(tmp_path: Path, factors: tuple[int, int]) -> tuple[Path, np.ndarray]:
    """Enlarged twice: written into a Concat, and added to what is that large already."""
    maker = ModelMaker((1, 9, 5, 3), seed=2)
    scales = maker.constant(np.array([1, 1, *factors], np.float32))
    small = maker.conv("x", 9, 9, (1, 1))
    large = maker.node("Resize", small, "", scales, **NEAREST)
    beside = maker.node("Resize", maker.node("Relu", small), "", scales, **NEAREST)
    last = maker.conv(maker.node("Concat", maker.conv(large, 9, 8, (1, 1)), maker.node("Add", large, beside), axis=1),
                      17, 4, (3, 3), pads=(1, 1, 1, 1))
    return maker.save(tmp_path / "net.onnx", last), maker.random.standard_normal((2, 9, 5, 3))


@pytest.mark.wide_cases("factors0-arch1")
@pytest.mark.parametrize("arch", [BASE, SPLIT])
@pytest.mark.parametrize("factors", [(8, 8), (2, 3), (1, 4)])
def test_every_pixel_is_there(tmp_path: Path, arch: Arch, factors: tuple[int, int]) -> None:
    path, samples = resized(tmp_path, factors)
    check_model(path, arch, samples, 60)
    check_every_step(path, arch, samples)


def test_whole_factors_are_one_layer(tmp_path: Path) -> None:
    path, samples = resized(tmp_path, (8, 8))
    kinds = [layer.kind for layer in run_steps(Request(path, {"x": samples}, copies=False), BASE)[Layers]]
    assert len(kinds) == 5 and sum(kind.startswith("load") for kind in kinds) == 2


def gated(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Squeeze and excite behind a hard swish, as tools write both."""
    maker = ModelMaker((1, 8, 6, 5), seed=5)
    three, six, zero = (maker.constant(np.float32(value)) for value in (3, 6, 0))
    x = maker.conv("x", 8, 12, (1, 1))
    swish = maker.node("Div", maker.node("Mul", x, maker.node("Clip", maker.node("Add", x, three), zero, six)), six)
    squeezed = maker.node("Relu", maker.conv(maker.node("GlobalAveragePool", swish), 12, 4, (1, 1)))
    gate = maker.node("HardSigmoid", maker.conv(squeezed, 4, 12, (1, 1)))
    return maker.save(tmp_path / "net.onnx", maker.node("Mul", swish, gate)), maker.random.standard_normal((2, 8, 6, 5))


@pytest.mark.parametrize("arch", [BASE, SPLIT])
def test_gates_are_right(tmp_path: Path, arch: Arch) -> None:
    path, samples = gated(tmp_path)
    check_model(path, arch, samples, 40)
    check_every_step(path, arch, samples)


def test_no_layer_divides_or_repeats(tmp_path: Path) -> None:
    """The hard swish is in the convolution; average, two convolutions; product with the second gate."""
    path, samples = gated(tmp_path)
    kinds = [layer.kind for layer in after_all_steps(path, BASE, samples)[Layers]]
    assert kinds == ["mat_mul+gate", "mat_mul", "mat_mul+relu", "mat_mul+minimum+relu", "load+multiply"]
