# SPDX-License-Identifier: Apache-2.0
"""How good the numbers of ../shared/models are beside those of others: float, and the original hardware's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import run_golden
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session

IMAGES = 3


def compiled(name: str, folder: Path, calibration: dict[str, np.ndarray]) -> TModel:
    report = compile_model(shared(f"models/{name}.onnx"), Arch.load("zcu104"), folder, calibration=calibration)
    return TModel.load(report.model_path)


@pytest.mark.slow
def test_logits_are_nearer_to_float_than_the_original_hardwares(tmp_path: Path) -> None:
    """Mean absolute difference; the published ones are 16-bit numbers with 8 bits behind the point."""
    data = np.load(shared("models/resnet20v2_cifar.npz"))
    model = compiled("resnet20v2_cifar", tmp_path, {"input_1": data["inputs"]})
    exact = data["float_logits"][:IMAGES]
    ours = np.concatenate([run_golden(model, {"input_1": image[None]})["dense"] for image in data["inputs"][:IMAGES]])
    theirs = data["tensil_logits"][:IMAGES] / 256
    assert np.abs(ours - exact).mean() < np.abs(theirs - exact).mean() / 10


def signal_to_peak(truth: np.ndarray, image: np.ndarray) -> float:
    """PSNR in decibels, of images whose white is 1."""
    return float(-10 * np.log10(np.square(truth - image).mean()))


@pytest.mark.slow
def test_super_resolution_is_as_good_as_in_float(tmp_path: Path) -> None:
    """Four photographs side by side, halved, come back within 0.1 dB of what the network makes of them in float."""
    images = np.load(shared("models/fsrcnn_x2.npz"))["input"]
    truth = np.block([[images[0, 0], images[1, 0]], [images[2, 0], images[3, 0]]])
    small = truth.reshape(64, 2, 64, 2).mean((1, 3)).astype(np.float32)[None, None]
    model = compiled("fsrcnn_x2", tmp_path, {"input": images})
    (name, ours), = run_golden(model, {"input": small}).items()
    exact, = session(shared("models/fsrcnn_x2.onnx").read_bytes()).run([name], {"input": small})
    found = [signal_to_peak(truth, each[0, 0]) for each in (exact, ours)]
    assert found[0] > 20
    assert abs(found[0] - found[1]) < 0.1
