"""--host-fallback: what is refused, and all behind it, runs on the host; the cut is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.runtime.manifest import TModel
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, run_golden, signal_to_noise


def sine(maker: ModelMaker) -> None:
    maker.node("Relu", maker.node("Sin", maker.conv("x", 6, 5, (3, 3))))


def table_that_is_not_there(maker: ModelMaker) -> None:
    maker.node("Mul", maker.node("Sigmoid", maker.conv("x", 6, 5, (3, 3))), maker.normal(1))


def side_branch(maker: ModelMaker) -> None:
    """The host's part reads two tensors of the machine, one of them the input."""
    name = maker.conv("x", 6, 6, (1, 1))
    maker.node("Add", maker.node("Div", maker.node("Relu", name), maker.node("Exp", name)), "x")


def behind_softmax(maker: ModelMaker) -> None:
    maker.node("Relu", maker.node("Softmax", maker.conv("x", 6, 5, (3, 3)), axis=1))


CASES: dict[Callable[[ModelMaker], None], tuple[str, ...]] = {
    sine: ("Sin", "Relu"), table_that_is_not_there: ("Sigmoid", "Mul"), side_branch: ("Div", "Add"),
    behind_softmax: ("Softmax", "Relu")}


@pytest.mark.parametrize("network", CASES, ids=lambda network: network.__name__)
def test_the_end_runs_on_the_host(network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    network(maker)
    path = maker.save(tmp_path / "model.onnx")
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    with pytest.raises(CompileError, match="--host-fallback"):
        compile_model(path, BASE, tmp_path, calibration={"x": samples})
    report = compile_model(path, BASE, tmp_path, calibration={"x": samples}, host_fallback=True)
    assert report.host is not None and set(CASES[network]) <= set(report.host.operators)
    model = TModel.load(report.model_path)
    expected, = run_float(path, {"x": samples[:1]}).values()
    found, = model.run_host(run_golden(model, {"x": samples[0]})).values()
    assert signal_to_noise(expected, found) >= 50


def test_nothing_left_for_the_machine(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("Sin", "x")
    with pytest.raises(CompileError, match="nothing left for the machine"):
        compile_model(maker.save(tmp_path / "model.onnx"), BASE, tmp_path, host_fallback=True)


def test_without_need_nothing_changes(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("Relu", maker.conv("x", 6, 5, (3, 3)))
    path = maker.save(tmp_path / "model.onnx")
    programs = [compile_model(path, BASE, tmp_path / str(fallback), host_fallback=fallback).program_path.read_bytes()
                for fallback in (False, True)]
    assert programs[0] == programs[1]


def classifier(tmp_path: Path) -> Path:
    maker = ModelMaker((1, 6, 9, 8))
    logits = maker.node("Flatten", maker.conv("x", 6, 5, (9, 8)))
    maker.node("ArgMax", maker.node("Softmax", logits, axis=1), axis=1)
    return maker.save(tmp_path / "model.onnx")


def test_softmax_too_only_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The refusal and the cut name the same nodes; ending the network before them is another way out."""
    command = ["compile", str(classifier(tmp_path)), "-a", "arty", "-o", str(tmp_path)]
    assert exit_code(command) == 1
    refused = capsys.readouterr().err
    assert "'argmax3' (ArgMax)" in refused
    assert "--host-fallback" in refused and "--output" in refused
    assert exit_code([*command, "--host-fallback"]) == 0
    assert "'softmax2' (Softmax), 'argmax3' (ArgMax); reads 'flatten1'" in " ".join(capsys.readouterr().out.split())
    assert exit_code([*command, "--output", "flatten1"]) == 0
    assert "on the host" not in capsys.readouterr().out
