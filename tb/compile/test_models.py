# SPDX-License-Identifier: Apache-2.0
"""Whole trained networks on the golden machine: the float network's answer on every image, 40 dB or more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import run_float, run_golden, signal_to_noise
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session

DIGITS = Path(__file__).resolve().parents[2] / "models" / "digits"
TWO_LANES = {"array_size": 2, "local_depth": 2048, "accumulator_depth": 512}


@dataclass(frozen=True)
class Network:
    """``samples`` names the array of inputs in the .npz; ``decibels`` of the logits against float."""

    input: str
    samples: str
    logits: str
    decibels: float


NETWORKS = {
    "mnist_cntk_cnn": Network("input", "input", "output", 65),
    "mlperf_tiny_resnet8": Network("input", "input", "model/dense/MatMul_Gemm__7:0", 58),
    "resnet20_cifar10": Network("input", "input", "logits", 60),
    "resnet20v2_cifar": Network("input_1", "inputs", "dense", 65),
}


def arch_of(name: str) -> Arch:
    return Arch.load("arty").replace(**TWO_LANES) if name == "2 lanes" else Arch.load(name)


def float_logits(path: Path, network: Network, samples: np.ndarray) -> np.ndarray:
    """The tensor before a final Softmax, which the machine computes last."""
    model = onnx.load(path)
    if network.logits not in {output.name for output in model.graph.output}:
        model.graph.output.append(onnx.ValueInfoProto(name=network.logits))
        model = onnx.shape_inference.infer_shapes(model)
    engine = session(model)
    return np.concatenate([engine.run([network.logits], {network.input: sample[None].astype(np.float32)})[0]
                           for sample in samples])


# Every image on the machines where the golden machine is quick, some on the others.
RUNS = [(name, arch, count) for name, counts in {
    "mnist_cntk_cnn": {"arty": 100, "pynq": 10, "ultra96": 10, "zcu104": 10, "2 lanes": 5},
    "mlperf_tiny_resnet8": {"arty": 2, "pynq": 2, "ultra96": 10, "zcu104": 2, "2 lanes": 1},
    "resnet20_cifar10": {"arty": 2, "pynq": 2, "ultra96": 10, "zcu104": 2},
    "resnet20v2_cifar": {"arty": 1, "pynq": 2, "ultra96": 10, "zcu104": 2},
}.items() for arch, count in counts.items()]


@pytest.mark.wide_cases("*-2 lanes-*", "*-pynq-*", "*v2*", "*-zcu104-*", "mnist_cntk_cnn-arty-*",
                        "resnet20_cifar10-arty-*", "mlperf_tiny_resnet8-ultra96-*")
@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch_name", "count"), RUNS, ids=lambda value: str(value))
def test_network_answers_like_float(name: str, arch_name: str, count: int, tmp_path: Path) -> None:
    network, path = NETWORKS[name], shared(f"models/{name}.onnx")
    samples = np.load(path.with_suffix(".npz"))[network.samples]
    arch = arch_of(arch_name)
    ends = (network.logits,) if arch.lut_count else ()  # a machine with lookup tables would go on to the Softmax
    report = compile_model(path, arch, tmp_path, calibration={network.input: samples}, host_fallback=True, outputs=ends)
    assert not report.warnings
    model = TModel.load(report.model_path)
    logits = float_logits(path, network, samples[:count])
    found = []
    for sample, wanted in zip(samples[:count], logits, strict=True):
        outputs = run_golden(model, {network.input: sample})
        found.append(outputs[network.logits].reshape(-1))
        final = model.run_host(outputs)
        expected = ({network.logits: wanted} if ends else
                    run_float(path, {network.input: sample[None].astype(np.float32)}))
        assert final.keys() == expected.keys()
        for key, value in expected.items():
            assert final[key].argmax() == value.argmax()
            assert np.abs(final[key].reshape(value.shape) - value).max() < 0.01 * max(np.abs(value).max(), 1)
    assert signal_to_noise(logits, np.array(found)) >= network.decibels


@pytest.mark.wide_cases("2 lanes*")
@pytest.mark.parametrize(("arch_name", "count"), [
    ("arty", 40), ("pynq", 40), ("ultra96", 40), ("zcu104", 40), ("2 lanes", 10)])
def test_digits(arch_name: str, count: int, tmp_path: Path) -> None:
    """The demo network: calibrated on training images, run on held-out ones (on all: ``test_digits.py``, pynq)."""
    data = np.load(DIGITS / "held_out.npz")
    report = compile_model(DIGITS / "digits.onnx", arch_of(arch_name), tmp_path,
                           calibration={"image": data["calibration"]})
    assert report.macs == 245_344
    model = TModel.load(report.model_path)
    found = np.array([run_golden(model, {"image": image})["logits"].reshape(-1) for image in data["image"][:count]])
    assert (found.argmax(1) == data["logits"][:count].argmax(1)).all()
    assert signal_to_noise(data["logits"][:count], found) >= 60


@pytest.mark.parametrize("name", NETWORKS)
def test_macs_are_those_of_the_network(name: str, tmp_path: Path) -> None:
    path = shared(f"models/{name}.onnx")
    network = NETWORKS[name]
    samples = np.load(path.with_suffix(".npz"))[network.samples][:1]
    report = compile_model(path, Arch.load("zcu104"), tmp_path, calibration={network.input: samples},
                           host_fallback=True)
    macs = {"mnist_cntk_cnn": 786_560, "mlperf_tiny_resnet8": 12_501_632, "resnet20_cifar10": 40_813_184,
            "resnet20v2_cifar": 66_200_000}[name]
    assert report.macs == pytest.approx(macs, rel=0 if name != "resnet20v2_cifar" else 0.002)
