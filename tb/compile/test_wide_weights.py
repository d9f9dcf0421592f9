# SPDX-License-Identifier: Apache-2.0
"""Weights of quantised files in more steps than a weight of the machine has, or that are not exact on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.check.checker import Checker
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products, Step
from weft.compiler.quantize.scales import weight_parts
from weft.compiler.quantize.weight_scales import rounded_again, weight_scales
from weft.runtime.session import Session
from weft.tb.compile.layer_bytes import Watch, insist
from weft.tb.compile.run_model import BASE, run_float
from weft.tb.compile.test_quantised_files import SHAPE, Maker
from weft.tmodel.manifest import TModel

BYTES = BASE.replace(data_type="INT8")
WEIGHTS = np.arange(-54, 54).reshape(2, 6, 3, 3)
"""Of ``Maker``."""


def warnings_of(maker: Maker, folder: Path) -> tuple[str, ...]:
    """The compiler's. Whatever weights the file has, the layer gives onnxruntime's bytes, and so does the program."""
    samples = np.random.default_rng(0).standard_normal((2, *SHAPE[1:])).astype(np.float32)
    path, watch, checker = maker.save(folder / "model.onnx"), Watch(), Checker()

    def after(step: Step, products: Products) -> None:
        watch.after(step, products)
        checker.after(step, products)

    report = compile_model(path, BYTES, folder, calibration={"x": samples}, watch=after)
    checker.insist()
    for sample in samples:
        insist([watch.differences({"x": sample})])
        wanted, = run_float(path, {"x": sample[None]}).values()
        found, = Session(TModel.load(report.model_path)).run({"x": sample}).outputs.values()
        assert np.abs(found - wanted).max() < 1.01 * maker.values["scale"] and (found == wanted).mean() > 0.98
    return report.warnings


def test_weights_of_minus_128_are_exact(tmp_path: Path) -> None:
    """By a second weight of the same tap, and said so."""
    maker = Maker()
    maker.values["weight_scales"] = np.array([0.01013, 0.01979], np.float32)  # of which few results are halves
    assert warnings_of(maker, tmp_path) == ()
    weights = WEIGHTS.copy()
    weights[0, 0, 0, 0] = weights[0, 3, 1, 2] = -128
    maker.values["weights"] = weights.astype(np.int8)
    warning, = warnings_of(maker, tmp_path)
    assert "layer conv: 2 weights in 1 output channels have up to 128 steps" in warning
    assert "exact, by further passes" in warning and "reduce_range" in warning


@pytest.mark.parametrize(("zero", "most"), [(10, 245), (0, 255), (255, 255), (128, 128)])
def test_unsigned_weights_far_from_their_zero_point_are_exact(zero: int, most: int, tmp_path: Path) -> None:
    """255 steps are three weights of the machine."""
    maker = Maker()
    maker.values.update(weights=np.linspace(0, 255, 108).round().reshape(2, 6, 3, 3).astype(np.uint8),
                        weight_zeros=np.array([zero, zero], np.uint8),
                        weight_scales=np.array([0.001, 0.002], np.float32))
    warning, = warnings_of(maker, tmp_path)
    assert f"up to {most} steps" in warning


def test_parts_of_weights_are_the_machines_and_sum_up() -> None:
    steps = np.arange(-255, 256)
    parts = [*weight_parts(steps)]
    assert len(parts) == 3 and all(np.abs(part).max() <= 127 for part in parts)
    assert np.array_equal(sum(parts), steps) and len([*weight_parts(steps[128:-128])]) == 1


def test_weights_of_real_numbers_are_not_named() -> None:
    """A layer that the file did not quantise."""
    weights = np.random.default_rng(0).standard_normal((3, 20))
    scales = weight_scales(weights, np.zeros(3), 0.02, 0.05)
    assert rounded_again(weights, scales) is None


def test_biases_that_force_another_scale_are_named() -> None:
    weights = np.array([[0.01, 0.02, 0.03]])
    scales = weight_scales(weights, np.array([0.02 * 1e6]), 0.02, 5.0)
    found = rounded_again(weights, scales)
    assert found is not None and found.channels == 1 and found.inexact > 0
