# SPDX-License-Identifier: Apache-2.0
"""A network whose outputs lost their signal is no fit: `compile` and `run` say so, and the cure works."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.cli.main import exit_code
from weft.tb.compile.run_model import ModelMaker


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A tensor of which one channel is 400 times as large as the other, which alone is the result."""
    maker = ModelMaker([1, 2, 8, 8])
    both = maker.node("Conv", "x", maker.constant(np.diag([400, 1]).astype(np.float32).reshape(2, 2, 1, 1)))
    maker.node("Conv", maker.node("Relu", both), maker.constant(np.array([0, 1], np.float32).reshape(1, 2, 1, 1)))
    samples = tmp_path / "x.npz"
    np.savez(samples, x=maker.random.standard_normal((3, 2, 8, 8)).astype(np.float32))
    return maker.save(tmp_path / "m.onnx"), samples


def compiled(files: tuple[Path, Path], arch: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    model, samples = files
    assert exit_code(["compile", str(model), "-a", arch, "-o", str(folder), "--calibrate", str(samples), "--json"]) == 0
    warnings: list[str] = json.loads(capsys.readouterr().out)["warnings"]
    return [line for line in warnings if line.startswith("poor numbers")]


def test_lost_signals_are_named_and_the_cure_works(files: tuple[Path, Path], tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    said, = compiled(files, "arty_int8", tmp_path / "bytes", capsys)
    assert "below 20 dB it has lost its signal" in said and "data_type FP16BP8" in said
    assert exit_code(["run", str(tmp_path / "bytes" / "m.tmodel"), "--input", str(files[1])]) == 0
    assert f"warning: {said}" in capsys.readouterr().out
    assert not compiled(files, "arty", tmp_path / "words", capsys)
    assert exit_code(["run", str(tmp_path / "words" / "m.tmodel"), "--input", str(files[1])]) == 0
    assert "poor numbers" not in capsys.readouterr().out


def test_python_is_told_what_the_command_line_is(files: tuple[Path, Path], tmp_path: Path,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    """Both record it in the file, and a caller's own ``watch`` still sees every step."""
    said, steps = compiled(files, "arty_int8", tmp_path / "command", capsys), list[str]()
    report = weft.compile(files[0], "arty_int8", tmp_path / "python", calibrate=dict(np.load(files[1])),
                          watch=lambda step, _: steps.append(step.name))
    assert said == [line for line in report.warnings if line.startswith("poor numbers")]
    assert report.model_path.read_text() == (tmp_path / "command" / "m.tmodel").read_text()
    assert steps[0] == "frontend" and steps[-1] == "split"


@pytest.mark.parametrize("operator", ["ArgMax", "Sign"])
def test_jumps_of_the_host_behind_the_machine_count(operator: str, tmp_path: Path,
                                                    capsys: pytest.CaptureFixture[str]) -> None:
    """The machine's own results have 30 dB or more; among numbers that are nearly equal the host takes another."""
    maker = ModelMaker([1, 4, 8, 8])
    alike = np.ones((4, 4, 1, 1), np.float32) + maker.random.standard_normal((4, 4, 1, 1)).astype(np.float32) / 64
    weights = alike if operator == "ArgMax" else alike - 1
    made = maker.node("Conv", "x", maker.constant(weights))
    if operator == "Sign":
        made = maker.node("Add", made, maker.constant(np.array([2, 0, 0, 0], np.float32).reshape(1, 4, 1, 1)))
        made = maker.node("Concat", made, made, axis=1)
    maker.node(operator, made, **({"axis": 1} if operator == "ArgMax" else {}))
    samples = tmp_path / "x.npz"
    np.savez(samples, x=maker.random.standard_normal((8, 4, 8, 8)).astype(np.float32))
    files = maker.save(tmp_path / "m.onnx"), samples
    said, = compiled(files, "arty_int8", tmp_path / "bytes", capsys)
    assert "data_type FP16BP8" in said
    assert not compiled(files, "arty", tmp_path / "words", capsys)


def test_numbers_without_end_are_warned_of_in_a_file_that_is_read_again(tmp_path: Path,
                                                                       recwarn: pytest.WarningsRecorder) -> None:
    """The host divides by 0, so that neither signal nor noise is finite; JSON has no infinity."""
    maker = ModelMaker([1, 2, 4, 4])
    made = maker.conv("x", 2, 3, (1, 1))
    place = maker.node("Cast", maker.node("ArgMin", maker.node("Concat", "x", "x", axis=3), axis=0), to=1)
    path = maker.save(tmp_path / "m.onnx", made, maker.node("Reciprocal", place))
    samples = maker.random.standard_normal((3, 2, 4, 4)).astype(np.float32)
    report = weft.compile(path, "arty", tmp_path, calibrate={"x": samples})
    assert [line for line in report.warnings if line.startswith("poor numbers: no signal, or noise without end")]
    assert not recwarn.list
    with pytest.warns(UserWarning, match="poor numbers: no signal"):
        weft.Session(report.model_path)


def test_a_small_network_is_measured_on_more_samples_than_two(tmp_path: Path) -> None:
    """The third one alone comes near the pole of a reciprocal, where a step of a byte is more than its value."""
    maker = ModelMaker([1, 2, 4, 4])
    maker.node("Reciprocal", "x")
    samples = np.full((3, 2, 4, 4), 0.5, np.float32)
    samples[:, 0, 0, 0], samples[2, 1] = 2.55, -0.004
    report = weft.compile(maker.save(tmp_path / "m.onnx"), "pynq_int8", tmp_path, calibrate={"x": samples})
    assert [line for line in report.warnings if line.startswith("poor numbers")]
