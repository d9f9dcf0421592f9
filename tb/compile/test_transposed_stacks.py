# SPDX-License-Identifier: Apache-2.0
"""Stacks of matrices whose rows and columns change places, as a Fourier transform in two steps needs them: swapped
together, in as many layers as a single matrix takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.hir import Layers
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, run_float, signal_to_noise
from weft.tmodel.network import Network

DECIBELS = 60


def two_steps(path: Path, stack: int, rows: int, columns: int) -> ModelMaker:
    """A product over the rows of each matrix, then one over its columns."""
    maker = ModelMaker((stack, rows, columns))
    maker.node("MatMul", maker.node("MatMul", maker.normal(rows, rows), "x"), maker.normal(columns, columns))
    maker.save(path)
    return maker


@pytest.mark.parametrize("size", [(8, 8), (16, 8), (8, 16), (6, 8), (8, 5), (12, 3)], ids=str)
def test_a_stack_is_swapped_in_the_layers_of_one_matrix(size: tuple[int, int], tmp_path: Path) -> None:
    path, layers = tmp_path / "model.onnx", []
    for stack in (3, 7):
        maker = two_steps(path, stack, *size)
        samples = maker.random.standard_normal((2 * stack, *size)).astype(np.float32)
        layers.append(len(after_all_steps(path, BASE, samples)[Layers]))
    assert layers[0] == layers[1]
    network = Network.load(compile_model(path, BASE, tmp_path, calibration={"x": samples}).model_path)
    sample = samples[:stack]
    (wanted,), (found,) = (each.values() for each in (
        run_float(path, {"x": sample}), Session(network).run({"x": sample}).outputs))
    assert signal_to_noise(wanted, found) >= DECIBELS
