# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files that people download, compiled as they come and run on the golden machine, against LiteRT."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import Session
from weft.runtime.streaming import stream
from weft.tb.compile.run_model import signal_to_noise
from weft.tb.compile.tflite_files import LiteRt, with_transpose_conv
from weft.tb.shared import shared
from weft.tmodel.network import Network

LEAST_DECIBELS = 45
LEAST_PIXELS = 0.995
"""Of a mask, that are on the same side."""

LEAST_BYTES = 0.99
STEPS = 24


def images(size: int) -> np.ndarray:
    """Photographs [images, size, size, 3] between 0 and 1, by taking the nearest pixels."""
    found = []
    for name in ("ultraface_slim_320", "mobilenetv2_1.0_224"):
        given = np.load(shared(f"models/{name}.npz"))["input_u8"].transpose(0, 2, 3, 1)
        rows, columns = (np.arange(size) * length // size for length in given.shape[1:3])
        found.append(given[:, rows][:, :, columns] / 255)
    return np.concatenate(found).astype(np.float32)


def compiled(path: Path, arch: str, folder: Path, **more: np.ndarray) -> Session:
    report = compile_model(path, Arch.load(arch), folder, calibration=more or None)
    return Session(Network.load(report.model_path))


KEPT = {"stream": "model/stream/strided_slice2", "stream_1": "model/stream_1/strided_slice1",
        "stream_3": "model/stream_3/strided_slice1", "stream_5": "model/stream_5/strided_slice3"}
"""A variable of the file -> the tensor that is assigned to it."""


@pytest.mark.slow
def test_a_wake_word_gives_the_bytes_of_the_file(tmp_path: Path) -> None:
    """Step by step, with states kept on both sides; what is kept is compared too."""
    path = shared("models/today/microwakeword_hey_jarvis.tflite")
    oracle, states = LiteRt(path, everything=True), read_model(path).states
    assert len(states) == 6 and all(state.zero for state in states)
    random = np.random.default_rng(0)
    loud = random.standard_normal((STEPS, 1, 3, 40)) * 40 + 20 * np.sin(np.arange(STEPS))[:, None, None, None] - 60
    steps = loud.clip(-128, 127).astype(np.int8)
    found = stream(compiled(path, "arty_int8", tmp_path), {"serving_default_input_audio": steps},
                   {state.output: state.input for state in states}).outputs
    equal = []
    for number, step in enumerate(steps):
        outputs = oracle.run({"serving_default_input_audio": step})
        equal.append(outputs["StatefulPartitionedCall"] == found["StatefulPartitionedCall"][number])
        for name, last in KEPT.items():
            equal.append(oracle.tensor(last) == found[f"{name}/states/next"][number])
    assert np.concatenate([np.ravel(each) for each in equal]).mean() > LEAST_BYTES


@pytest.mark.slow
def test_a_segmentation_gives_the_mask_of_the_file(tmp_path: Path) -> None:
    path, photographs = shared("models/today/selfie_segmentation.tflite"), images(256)
    session = compiled(path, "ultra96", tmp_path, input_1=photographs)
    oracle = LiteRt(with_transpose_conv(path, tmp_path))
    for image in photographs[:1]:
        (output, wanted), = oracle.run({"input_1": image[None]}).items()
        found = session.run({"input_1": image[None]}).outputs[output]
        assert 0.1 < (wanted > 0.5).mean() < 0.9
        assert ((wanted > 0.5) == (found > 0.5)).mean() > LEAST_PIXELS


@pytest.mark.long
def test_sparse_weights_find_the_faces_of_the_file(tmp_path: Path) -> None:
    path, photographs = shared("models/today/face_detection_full_range_sparse.tflite"), images(192) * 2 - 1
    session = compiled(path, "ultra96", tmp_path, input_1=photographs)
    oracle = LiteRt(path)
    for image in photographs[:2]:
        found = session.run({"input_1": image[None]}).outputs
        for output, wanted in oracle.run({"input_1": image[None]}).items():
            assert signal_to_noise(wanted, found[output]) > LEAST_DECIBELS
