# SPDX-License-Identifier: Apache-2.0
"""States that a network keeps from step to step, and numbers that saturate on the way."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from weft.cli.api import compile as compile_network
from weft.cli.main import exit_code
from weft.runtime.compare import Comparison
from weft.runtime.saturations import Saturated
from weft.runtime.session import RunResult, Session
from weft.runtime.streaming import checked, stream, together
from weft.support.errors import WeftError
from weft.tb.compile import test_recurrent as recurrent
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tb.compile.tflite_files import FileMaker
from weft.tb.compile.tflite_streams import stream as tflite_stream
from weft.tmodel.network import Network
from weft.tmodel.tensors import Tensor

ARCH = BASE.replace(lut_count=2, lut_depth=256, simd_registers_depth=3)
STEPS = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step of a GRU, its state an input and an output: model.onnx, model.tmodel, x.npz."""
    place = tmp_path_factory.mktemp("gru")
    maker = ModelMaker((1, 1, recurrent.SIZE), seed=2, opset=14)
    recurrent.recurrent(maker, "GRU", "", "after", linear_before_reset=1)
    maker.nodes[0].input.extend(["", "before"])
    model = maker.model("after")
    shape = (1, 1, recurrent.HIDDEN)
    model.graph.input.append(onnx.helper.make_tensor_value_info("before", onnx.TensorProto.FLOAT, shape))
    onnx.save(model, place / "model.onnx")
    steps = maker.random.standard_normal((STEPS, *maker.shape)).astype(np.float32)
    np.savez(place / "x.npz", x=steps)
    states = maker.random.uniform(-1, 1, (STEPS, *shape)).astype(np.float32)
    compile_network(place / "model.onnx", ARCH, place, calibrate={"x": steps, "before": states})
    return place


def in_float(folder: Path, first: np.ndarray) -> list[np.ndarray]:
    states = [first]
    for step in np.load(folder / "x.npz")["x"]:
        states.append(run_float(folder / "model.onnx", {"x": step, "before": states[-1]})["after"])
    return states[1:]


@pytest.mark.parametrize("first", [0.0, 0.5])
def test_a_state_goes_from_step_to_step(first: float, folder: Path) -> None:
    session = Session(Network.load(folder / "model.tmodel"))
    begin = np.full((1, 1, recurrent.HIDDEN), first, np.float32)
    inputs = {"x": np.load(folder / "x.npz")["x"], **({"before": begin} if first else {})}
    result = stream(session, inputs, {"after": "before"})
    assert result.images == STEPS and result.saturated == Saturated()
    assert signal_to_noise(np.concatenate(in_float(folder, begin)), result.outputs["after"]) > 45


def test_a_state_of_bytes_begins_at_the_real_0(tmp_path: Path) -> None:
    """Bytes go in and out as they are in the file; the real 0 is its zero point."""
    file = FileMaker()
    tflite_stream(file)
    arch = ARCH.replace(data_type="INT8")
    report = compile_network(file.save(tmp_path / "model.tflite"), arch, tmp_path)
    steps = np.random.default_rng(0).integers(-128, 128, (STEPS, 1, 2, 1, 4)).astype(np.int8)
    result = stream(Session(Network.load(report.model_path)), {"x": steps}, {"kept/next": "kept"})
    rows = np.concatenate([np.full((3, 1, 4), -100), *steps[:, 0]])
    wanted = np.stack([rows[2 * step + 2:2 * step + 5] for step in range(STEPS)])
    assert result.outputs["kept/next"].dtype == np.int8 and (result.outputs["kept/next"] == wanted).all()


def test_the_command_line_keeps_it_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["run", str(folder / "model.tmodel"), "--input", str(folder / "x.npz"), "--json"]
    assert exit_code([*command, "--state", "after:before"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = in_float(folder, np.zeros((1, 1, recurrent.HIDDEN), np.float32))
    assert signal_to_noise(np.concatenate(wanted), np.array(found["outputs"]["after"])) > 45
    assert exit_code(command) == 1 and "before" in capsys.readouterr().err
    assert exit_code([*command, "--state", "after"]) == 1 and "OUTPUT:INPUT" in capsys.readouterr().err


@pytest.mark.parametrize(("states", "said"), [
    ({"behind": "before"}, "found no output 'behind'; allowed: outputs 'after'"),
    ({"after": "y"}, "found no input 'y'; allowed: inputs 'x', 'before'"),
    ({"after": "x"}, "as the input is")])
def test_states_that_do_not_fit_are_refused(states: dict[str, str], said: str, folder: Path) -> None:
    session = Session(Network.load(folder / "model.tmodel"))
    with pytest.raises(WeftError, match=said):
        stream(session, {"x": np.load(folder / "x.npz")["x"]}, states)


@pytest.mark.parametrize(("made", "read", "said"), [
    (("int8", (1, 2)), ("int8", (1, 2)), ""), (("uint8", (1, 2)), ("int8", (1, 2)), "found an output of uint8"),
    (("int8", (2, 1)), ("int8", (1, 2)), "found an output of int8")])
def test_a_state_has_the_type_and_the_shape_of_the_input(made: Any, read: Any, said: str) -> None:
    signature = SimpleNamespace(inputs=[Tensor("x", "int8", (4,)), Tensor("before", *read)],
                                outputs=[Tensor("after", *made)])
    network: Any = SimpleNamespace(signature=signature)
    if not said:
        assert checked(network, {"after": "before"}) == {"before": signature.inputs[1]}
        return
    with pytest.raises(WeftError, match=said):
        checked(network, {"after": "before"})


def test_an_input_is_left_that_says_how_many_steps_there_are() -> None:
    """Each state has an input of its own."""
    states = [Tensor(name, "int8", (1,)) for name in "ab"]
    outputs = [Tensor(name, "int8", (1,)) for name in "cd"]
    network: Any = SimpleNamespace(signature=SimpleNamespace(inputs=states, outputs=outputs))
    with pytest.raises(WeftError, match="states: found every input of the network"):
        checked(network, {"c": "a", "d": "b"})
    with pytest.raises(WeftError, match="found input 'a' twice"):
        checked(network, {"c": "a", "d": "a"})


def test_steps_add_up() -> None:
    """Counts and what saturated are added, images are numbered on, and lists and outputs follow each other."""
    def step(number: int, *images: int) -> RunResult:
        return RunResult(outputs={"y": np.full((1, 2), number)}, images=1, instructions=10 + number, cycles=None,
                         macs=3, done_macs=2, seconds=0.5, array_size=4, comparison=Comparison(8, number, None),
                         samples=[np.array([number])], saturated=Saturated(number, 1, images),
                         saturated_inputs={"x": number, "z" * number: 1})

    found = together([step(1), step(2, 0), step(3, 0)])
    assert found.outputs["y"].tolist() == [[1, 1], [2, 2], [3, 3]]
    assert (found.images, found.instructions, found.cycles, found.macs, found.done_macs) == (3, 36, None, 9, 6)
    assert found.seconds == 1.5 and found.comparison == Comparison(24, 6, None) and len(found.samples) == 3
    assert found.saturated == Saturated(6, 3, (1, 2))
    assert found.saturated_inputs == {"x": 6, "z": 1, "zz": 1, "zzz": 1}


def test_saturations_are_counted_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Inputs ten times as large as those of the calibration, which has a channel at a time: neither they nor their sums
    have room."""
    maker = ModelMaker((1, 3, 6, 6))
    maker.conv("x", 3, 4, (3, 3), pads=(1, 1, 1, 1))
    samples = maker.random.uniform(-1, 1, (4, 3, 6, 6)).astype(np.float32)
    channels = samples * np.eye(3, dtype=np.float32)[[0, 1, 2, 0], :, None, None]
    report = compile_network(maker.save(tmp_path / "model.onnx"), BASE, tmp_path, calibrate={"x": channels})
    session = Session(Network.load(report.model_path))
    fine, much = (session.run({"x": given}) for given in (channels, samples * 10))
    assert fine.saturated == Saturated() and not fine.saturated_inputs
    room = 2.0 ** (15 - (session.machines[0].model.input("x").point or 0))
    assert much.saturated and much.saturated.beyond
    assert much.saturated_inputs["x"] == int((np.abs(samples * 10) >= room).sum()) > 0
    np.savez(tmp_path / "x.npz", x=samples * 10)
    assert exit_code(["run", str(report.model_path), "--input", str(tmp_path / "x.npz")]) == 0
    said = capsys.readouterr().out
    assert f"{much.saturated.beyond:,} numbers are beyond what calibration saw and saturated on the machine" in said
    assert "warning: input x: " in said
