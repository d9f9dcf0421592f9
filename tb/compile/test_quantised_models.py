# SPDX-License-Identifier: Apache-2.0
"""Quantised networks on an INT8 machine: every layer gives the bytes that onnxruntime gives of the same inputs, and
the whole answers as it does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.tb.compile.layer_bytes import Checked, insist
from weft.tb.compile.quantised_twin import KINDS, prepared, quantised_twin, small_twin
from weft.tb.compile.run_model import BASE, run_float
from weft.tb.shared import shared
from weft.tmodel.network import Network

ROOT = Path(__file__).resolve().parents[2]
BYTES = {"data_type": "INT8", "accumulator_width": None, "lut_count": 1, "lut_depth": 256, "simd_registers_depth": 2}
ARCH, SMALL = Arch.load("pynq").replace(**BYTES), BASE.replace(**BYTES)


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_network(kind: str, tmp_path: Path) -> None:
    path, samples = small_twin(tmp_path, kind)
    watch = Checked()
    report = compile_model(path, SMALL, tmp_path / "out", watch=watch.after)
    watch.checker.insist()
    assert not report.warnings  # ranges that nobody measures are not missed
    session = Session(Network.load(report.model_path))
    for sample in samples:
        insist([watch.differences({"x": sample})])
        wanted, = run_float(path, {"x": sample[None]}).values()
        found, = session.run({"x": sample}).outputs.values()
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        assert np.abs(found - wanted).max() <= 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize(("name", "images"), [
    ("mlperf_tiny_resnet8_tflite_int8_qdq", 3), ("resnet20_cifar10_folded_int8", 1)])
def test_a_published_network(name: str, images: int, tmp_path: Path) -> None:
    path = shared(f"models/{name}.onnx")
    samples = np.load(shared(f"models/{name}.npz"))["input"]
    watch = Checked()
    report = compile_model(path, ARCH, tmp_path, watch=watch.after, host_fallback=True)
    watch.checker.insist()
    session = Session(Network.load(report.model_path))
    assert [part.passes for part in report.partition.hosts] in ([], [()])  # Softmax alone
    differences = []
    for sample in samples[:images]:
        differences.append(watch.differences({"input": sample}))
        wanted, = run_float(path, {"input": sample[None]}).values()
        found, = session.run({"input": sample}).outputs.values()
        assert found.argmax() == wanted.argmax() and found.dtype == wanted.dtype
    insist(differences)


def test_digits_in_bytes(tmp_path: Path) -> None:
    """The demo's float network, quantised by its calibration inputs: the same answers."""
    held = np.load(ROOT / "models" / "digits" / "held_out.npz")
    watch = Checked()
    report = compile_model(ROOT / "models" / "digits" / "digits.onnx", SMALL, tmp_path,
                           calibration={"image": held["calibration"]}, watch=watch.after)
    watch.checker.insist()
    found = Session(Network.load(report.model_path)).run({"image": held["image"][:40]}).outputs["logits"]
    np.testing.assert_array_equal(found.argmax(1), held["logits"][:40].argmax(1))


@pytest.mark.wide
@pytest.mark.parametrize(("name", "least"), [("mlperf_tiny_resnet8_tflite_int8_qdq", 1.0),
                                             ("resnet20_cifar10_folded_int8", 0.8)])
def test_wide_multipliers_make_whole_networks_equal(name: str, least: float, tmp_path: Path) -> None:
    """Each layer reads what the machine made before it. With 17 bits 94 and 45 % of the outputs are equal.

    The second one's convolutions are of single precision in onnxruntime, which rounds some of its bytes otherwise than
    exact sums: with its own fusion, of exact sums, it gives 94 % of its own outputs."""
    path = shared(f"models/{name}.onnx")
    samples = np.load(path.with_suffix(".npz"))["input"]
    report = compile_model(path, ARCH.replace(multiplier_width=24), tmp_path, host_fallback=True)
    found, = Session(Network.load(report.model_path)).run({"input": samples}).outputs.values()
    wanted = [next(iter(run_float(path, {"input": each[None]}).values())) for each in samples]
    assert np.isclose(found, np.concatenate(wanted), rtol=1e-6).mean() >= least


@pytest.mark.wide
def test_wide_multipliers_make_a_network_of_integer_operators_equal(tmp_path: Path) -> None:
    """QLinearConv, QLinearAdd, and normalizations that are not folded. With 17 bits 35 % of the outputs are equal."""
    source = shared("models/resnet20v2_cifar.onnx")
    samples = {"input_1": np.load(source.with_suffix(".npz"))["inputs"]}
    twin = quantised_twin(prepared(source, tmp_path), samples, "operators")
    report = compile_model(twin, ARCH.replace(multiplier_width=24), tmp_path / "out", host_fallback=True)
    found, = Session(Network.load(report.model_path)).run(samples).outputs.values()
    wanted = [next(iter(run_float(twin, {"input_1": each[None]}).values())) for each in samples["input_1"]]
    assert np.isclose(found, np.concatenate(wanted), rtol=1e-6).mean() >= 0.95
