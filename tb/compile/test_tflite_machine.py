# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files compiled and run on the golden machine, against LiteRT."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.tb.compile.layer_bytes import Watch, insist
from weft.tb.compile.run_model import BASE, signal_to_noise
from weft.tb.compile.tflite_bytes import BYTES, words
from weft.tb.compile.tflite_files import FileMaker, Graph, LiteRt
from weft.tb.compile.tflite_floats import FLOATS, Make
from weft.tb.compile.tflite_streams import stream
from weft.tmodel.network import Network

ARCH = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
LEAST_DECIBELS = 45


def made(make: Make, folder: Path) -> Path:
    file = FileMaker()
    make(file)
    return file.save(folder / "model.tflite")


@pytest.mark.parametrize("name", ["a network of int8", "a network of int8 between uint8", "real numbers around bytes",
                                  "TRANSPOSE_CONV of two images", "MEAN of a single number", "REDUCE_MIN of products"])
def test_a_machine_of_bytes_gives_the_bytes_of_the_file(name: str, tmp_path: Path) -> None:
    """Layer by layer those of the file's network on onnxruntime, in the end those of LiteRT, but for one step."""
    path, watch, random = made(BYTES[name], tmp_path), Watch(), np.random.default_rng(0)
    report = compile_model(path, ARCH, tmp_path, watch=watch.after)
    assert not report.warnings
    session, oracle = Session(Network.load(report.model_path)), LiteRt(path)
    source, = session.network.signature.inputs
    for _ in range(3):
        x = random.uniform(-2, 2, source.shape).astype(np.float32)
        if source.type != "float32":
            x = random.integers(0, 256, source.shape).astype(np.uint8).view(str(source.type))
        (output, wanted), = oracle.run({"x": x}).items()
        found = session.run({"x": x}).outputs[output]
        assert found.shape == wanted.shape and found.dtype == wanted.dtype
        step = 1 if wanted.dtype.kind in "iu" else 0.02
        assert np.abs(found.astype(np.float64) - wanted).max() <= 1.01 * step
    insist([watch.differences({"x": x})])


@pytest.mark.parametrize("name", [
    "TRANSPOSE_CONV, VALID, bias", "RESIZE_BILINEAR, 9 x 5, HalfPixelCenters", "sparse blocks", "DEPTHWISE_CONV_2D",
    "MEAN of pixels", "CUMSUM of axis 1"])
def test_a_machine_of_fixed_point_computes_the_network(name: str, tmp_path: Path) -> None:
    path = made(FLOATS[name], tmp_path)
    shape = next(tensor["shape"] for tensor in _main(FLOATS[name]).tensors if tensor["name"] == "x")
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": x})
    found = Session(Network.load(report.model_path)).run({"x": x}).outputs
    for output, wanted in LiteRt(path).run({"x": x}).items():
        assert signal_to_noise(wanted, found[output]) > LEAST_DECIBELS


def _main(make: Make) -> Graph:
    file = FileMaker()
    make(file)
    return file.main


def test_activations_of_sixteen_bits_on_the_machine(tmp_path: Path) -> None:
    path, random = made(words, tmp_path), np.random.default_rng(0)
    numbers = random.integers(-24000, 24000, (1, 6, 7, 4)).astype(np.int16)
    x = (numbers / 8192).astype(np.float32)
    report = compile_model(path, BASE, tmp_path, calibration={"x": x})
    (output, wanted), = LiteRt(path).run({"x": numbers}).items()
    found = Session(Network.load(report.model_path)).run({"x": x}).outputs[output]
    assert signal_to_noise(wanted / 512, found) > LEAST_DECIBELS


def test_the_command_line_takes_a_file_with_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What `inspect` says of states is what `run` takes; the bytes are those of LiteRT, which keeps its variable."""
    path = made(stream, tmp_path)
    assert exit_code(["inspect", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["states"]
    assert told == [{"output": "kept/next", "input": "kept", "zero": True}]
    assert exit_code(["inspect", str(path)]) == 0
    assert "--state kept/next:kept" in capsys.readouterr().out
    assert exit_code(["compile", str(path), "-a", "arty_int8", "-o", str(tmp_path)]) == 0
    steps = np.random.default_rng(0).integers(-128, 128, (5, 1, 2, 1, 4)).astype(np.int8)
    np.savez(tmp_path / "x.npz", x=steps)
    capsys.readouterr()
    assert exit_code(["run", str(tmp_path / "model.tmodel"), "--input", str(tmp_path / "x.npz"), "--state",
                      "kept/next:kept", "--json"]) == 0
    outputs, oracle = json.loads(capsys.readouterr().out)["outputs"], LiteRt(path)
    wanted: dict[str, list[np.ndarray]] = {name: [] for name in outputs if name != "kept/next"}
    for step in steps:
        for name, value in oracle.run({"x": step}).items():
            wanted[name].append(value)
    for name, values in wanted.items():
        assert (np.array(outputs[name]) == np.concatenate(values)).mean() > 0.99


def test_the_command_line_ends_a_network_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made(BYTES["a network of int8"], tmp_path)
    assert exit_code(["inspect", str(path), "--json", "--end", "max_pool_2d4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["outputs"] == [{"name": "max_pool_2d4", "type": "int8", "shape": [1, 3, 2, 8]}]
    assert exit_code(["inspect", str(path), "--end", "max_pool"]) == 1
    assert "--end: found 'max_pool'; allowed: a tensor of the network" in capsys.readouterr().err
