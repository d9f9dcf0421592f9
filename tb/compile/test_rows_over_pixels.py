# SPDX-License-Identifier: Apache-2.0
"""Rows times a constant matrix where a row's elements lie over several pixels: its windows, and nothing is moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, run_float, signal_to_noise
from weft.tmodel.network import Network

DECIBELS = 60


def flattened(maker: ModelMaker) -> None:
    """A batch of images, each a row."""
    maker.node("Gemm", maker.node("Flatten", maker.node("Relu", "x")), maker.normal(72, 7), maker.normal(7))


def part_of_a_row(maker: ModelMaker) -> None:
    """Frames of a sound, of which a matrix takes a part, in another order."""
    made = maker.node("Transpose", maker.node("Relu", "x"), perm=[0, 3, 2, 1])
    rows = maker.node("Reshape", made, maker.constant(np.array([2, 72])))
    ends = (maker.constant(np.array([number])) for number in (7, 41, 1))
    maker.node("MatMul", maker.node("Slice", rows, *ends), maker.normal(34, 9))


@pytest.mark.parametrize("make", [flattened, part_of_a_row])
def test_rows_are_windows(make: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((2, 6, 4, 3))
    make(maker)
    path, given = maker.save(tmp_path / "model.onnx"), maker.random.standard_normal((4, 6, 4, 3)).astype(np.float32)
    assert [node.op for node in after_all_steps(path, BASE, given)[Graph].nodes] == ["Relu", "View", "Conv"]
    network = Network.load(compile_model(path, BASE, tmp_path, calibration={"x": given}).model_path)
    (wanted,), (found,) = (each.values() for each in (
        run_float(path, {"x": given[:2]}), Session(network).run({"x": given[:2]}).outputs))
    assert signal_to_noise(wanted, found) >= DECIBELS
