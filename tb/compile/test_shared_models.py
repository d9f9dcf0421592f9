# SPDX-License-Identifier: Apache-2.0
"""Every trained float model of ../shared/models on the golden machine: 45 dB on every image, top-1 that of float.

A Softmax is judged by what it makes of the machine's own logits, and these by float. Of two classes of probabilities p
and q an error d of the difference of their logits moves each by p q d: by d / 4 at a tie, by next to nothing where the
answer is sure. Logits of 71 dB, off by up to 0.004, leave 48 dB at a tie, however exact the Softmax is.

``make test`` runs an image or two of each, ``make test-all`` all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import run_golden, signal_to_noise
from weft.tb.shared import shared
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session

LEAST_DECIBELS = 45


@dataclass(frozen=True)
class Network:
    """``classes``: top-1 counts. ``decibels`` that it reaches on every image; ``macs`` as published. ``logits``: what
    the Softmax at its end reads."""

    macs: int
    decibels: float
    images: int
    quick: int = 2
    classes: bool = True
    input: str = "input"
    samples: str = "input"
    logits: str = ""


NETWORKS = {
    "mnist_cntk_cnn": Network(786_560, 60, 100, 10),
    "mlperf_tiny_resnet8": Network(12_501_632, 60, 10, logits="model/dense/MatMul_Gemm__7:0"),
    "mlperf_tiny_vww_mobilenetv1_025": Network(7_489_664, 45, 15),
    "resnet20_cifar10": Network(40_813_184, 62, 10),
    "fsrcnn_x2": Network(33_390_592, 67, 4, 1, classes=False),
    "fsrcnn_x2_deconv": Network(33_390_592, 67, 4, 1, classes=False),
    "yolo_fastest_1_1_coco_320": Network(125_437_600, 48, 3, 1, classes=False),
    "mobilenetv2_1.0_224": Network(300_775_552, 45, 12, 1, samples="input_u8"),
    "squeezenet_v1_0_dc": Network(861_339_936, 50, 12, 1),
    "resnet20v2_cifar": Network(66_200_000, 65, 10, input="input_1", samples="inputs"),
}


def images_of(path: Path, network: Network) -> np.ndarray:
    values = np.load(path.with_suffix(".npz"))[network.samples].astype(np.float32)
    return (values - 128) / 128 if network.samples == "input_u8" else values


@cache
def compiled(name: str, folder: Path) -> TModel:
    path, network = shared(f"models/{name}.onnx"), NETWORKS[name]
    ends = (network.logits, *(output.name for output in onnx.load(path).graph.output)) if network.logits else ()
    report = compile_model(path, Arch.load("zcu104"), folder, calibration={network.input: images_of(path, network)},
                           host_fallback=True, outputs=ends)
    assert not report.warnings
    assert report.macs == pytest.approx(network.macs, rel=0.002)
    return TModel.load(report.model_path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


def float_outputs(path: Path, machine: tuple[str, ...], feed: Mapping[str, np.ndarray],
                  ) -> tuple[dict[str, np.ndarray], list[str]]:
    """Tensors that the machine makes and outputs of the network, and the names of the latter."""
    model = onnx.load(path)
    finals = [output.name for output in model.graph.output]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in machine if name not in finals)
    names = list(dict.fromkeys((*finals, *machine)))
    return dict(zip(names, session(onnx.shape_inference.infer_shapes(model)).run(names, dict(feed)),
                    strict=True)), finals


RUNS = [pytest.param(name, image, marks=pytest.mark.slow if image < network.quick else pytest.mark.long,
                     id=f"{name}-{image}")
        for name, network in NETWORKS.items() for image in range(network.images)]


@pytest.mark.wide_cases("mobilenetv2*", "squeezenet*", "yolo*")
@pytest.mark.parametrize(("name", "image"), RUNS)
def test_answers_like_float(name: str, image: int, folder: Path) -> None:
    path, network = shared(f"models/{name}.onnx"), NETWORKS[name]
    model = compiled(name, folder)
    sample = images_of(path, network)[image:image + 1]
    made = run_golden(model, {network.input: sample})
    expected, finals = float_outputs(path, tuple(made), {network.input: sample})
    nearest = dict(expected)
    if network.logits:
        powers = np.exp(made[network.logits] - made[network.logits].max())
        nearest |= dict.fromkeys(finals, powers / powers.sum())
    for key, value in made.items():
        assert signal_to_noise(nearest[key], value) >= max(network.decibels, LEAST_DECIBELS), key
    final = model.run_host(made)
    if network.classes:
        assert all(final[key].argmax() == expected[key].argmax() for key in finals)
