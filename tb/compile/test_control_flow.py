# SPDX-License-Identifier: Apache-2.0
"""Choices and loops of a network: made by the compiler where it knows them, run by the host where it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.cli.main import exit_code
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, signal_to_noise
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import run_model

RNG = np.random.default_rng(0)
SAMPLES = RNG.standard_normal((2, 3, 6, 6)).astype(np.float32)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def branch(nodes: list[onnx.NodeProto], output: str, **weights: np.ndarray) -> onnx.GraphProto:
    return helper.make_graph(nodes, output, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
                             [numpy_helper.from_array(value, name) for name, value in weights.items()])


def conv(source: str, weights: str, made: str) -> onnx.NodeProto:
    return helper.make_node("Conv", [source, weights], [made], name=f"node_{made}")


def saved(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]], outputs: dict[str, int],
          opset: int = 17, **weights: np.ndarray) -> Path:
    graph = helper.make_graph(
        nodes, "made", [helper.make_tensor_value_info(name, *entry) for name, entry in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [f"{name}{axis}" for axis in range(rank)])
         for name, rank in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def rates(path: Path) -> Path:
    """Two networks by the rate of the samples, as Silero's file has it: both call their tensors the same, capture
    tensors of the graph around them, and one has a choice within the choice."""
    within = helper.make_node("If", ["always"], ["deep"], name="within",
                              then_branch=branch([conv("x", "shared", "a")], "a"),
                              else_branch=branch([helper.make_node("Neg", ["stem"], ["a"])], "a"))
    fast = branch([within, helper.make_node("Add", ["deep", "bias"], ["t"], name="add")], "t", bias=normal(4, 1, 1))
    slow = branch([conv("x", "w", "t")], "t", w=normal(4, 3, 1, 1))
    pick = helper.make_node("If", ["is_fast"], ["picked"], name="pick", then_branch=fast, else_branch=slow)
    last = helper.make_node("If", ["is_fast"], ["y"], name="last",
                            then_branch=branch([helper.make_node("Relu", ["picked"], ["t"], name="add")], "t"),
                            else_branch=branch([helper.make_node("Identity", ["stem"], ["t"])], "t"))
    nodes = [helper.make_node("Equal", ["sr", "rate"], ["is_fast"]), conv("x", "shared", "stem"), pick, last]
    return saved(path, nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6]), "sr": (TensorProto.INT64, [])}, {"y": 4},
                 rate=np.array(16000), always=np.array([True]), shared=normal(4, 3, 1, 1))


def check(path: Path, samples: dict[str, np.ndarray], host: set[str], fixed: dict[str, Any],
          least: float = 50) -> Graph:
    """Every output on the machine and the host, against onnxruntime; ``host``: operators there."""
    report = compile_model(path, BASE, path.parent, calibration=samples, host_fallback=True, fixed=fixed)
    assert {place.operator for place in report.partition.places if place.where == "host"} == host
    found = Session(Network.load(report.model_path)).run(samples).outputs
    kinds = {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
             for value in onnx.load(path).graph.input}
    for number in range(len(next(iter(samples.values())))):
        given = {name: value[number:number + 1] for name, value in samples.items()}
        wanted = run_model(onnx.load(path), {**given, **{name: np.array(value, kinds[name])
                                                         for name, value in fixed.items()}})
        for name, value in wanted.items():
            assert signal_to_noise(value, found[name][number:number + 1]) >= least, name
    return read_model(path, fixed=fixed)


@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_choice_by_a_fixed_input_is_made_when_compiling(rate: int, tmp_path: Path) -> None:
    graph = check(rates(tmp_path / "rates.onnx"), {"x": SAMPLES}, set(), {"sr": rate})
    assert "If" not in {node.op for node in graph.nodes} and [port.name for port in graph.inputs] == ["x"]
    names = [node.name for node in graph.nodes]
    assert len(set(names)) == len(names)


def test_a_choice_by_a_shape_is_made_when_compiling(tmp_path: Path) -> None:
    """What the exporter of PyTorch writes of squeeze(1); the branch that is not taken would not even have a shape."""
    choice = helper.make_node("If", ["one"], ["y"], then_branch=branch(
        [helper.make_node("Squeeze", ["c", "axis"], ["t"])], "t"), else_branch=branch(
        [helper.make_node("Identity", ["c"], ["e"])], "e"))
    nodes = [conv("x", "w", "c"), helper.make_node("Shape", ["c"], ["shape"]),
             helper.make_node("Gather", ["shape", "axis"], ["size"]), helper.make_node("Equal", ["size", "axis"],
                                                                                      ["one"]), choice]
    for channels in (1, 2):
        path = saved(tmp_path / f"squeeze{channels}.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6])},
                     {"y": 4 - (channels == 1)}, w=normal(channels, 3, 1, 1), axis=np.array([1]))
        graph = check(path, {"x": SAMPLES}, set(), {})
        assert graph.outputs[0].shape == ((1, 6, 6) if channels == 1 else (1, 2, 6, 6))


def test_a_choice_at_run_time_is_the_hosts_with_all_that_it_reads(tmp_path: Path) -> None:
    """What its branches read of the graph around them crosses to the host; the machine has the rest."""
    choice = helper.make_node("If", ["positive"], ["z"], name="choice", then_branch=branch(
        [helper.make_node("Mul", ["c", "factor"], ["t"])], "t"), else_branch=branch(
        [helper.make_node("Neg", ["d"], ["e"])], "e"))
    nodes = [conv("x", "w", "c"), conv("x", "v", "d"), helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
             helper.make_node("Greater", ["sum", "zero"], ["positive"]), choice, conv("z", "u", "y")]
    path = saved(tmp_path / "choice.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6])}, {"y": 4},
                 w=normal(4, 3, 1, 1), v=normal(4, 3, 1, 1), u=normal(2, 4, 1, 1), zero=np.array(0, np.float32),
                 factor=np.array(0.5, np.float32))
    graph = check(path, {"x": np.concatenate([abs(SAMPLES), -abs(SAMPLES)])}, {"If", "Greater"}, {})
    assert "If" in {node.op for node in graph.nodes}


def loop(turns: str, begin: str, body: list[onnx.NodeProto]) -> onnx.NodeProto:
    """Carries ``c`` to ``next``; ``go`` says whether another turn follows."""
    graph = helper.make_graph(
        body, "body", [helper.make_tensor_value_info("turn", TensorProto.INT64, []),
                       helper.make_tensor_value_info("on", TensorProto.BOOL, []),
                       helper.make_tensor_value_info("state", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("next", TensorProto.FLOAT, None)])
    return helper.make_node("Loop", [turns, begin, "c"], ["z"], name="loop", body=graph)


def looping(path: Path, turns: str, go: list[onnx.NodeProto]) -> Path:
    halved = helper.make_node("Mul", ["state", "factor"], ["next"])
    nodes = [conv("x", "w", "c"), loop(turns, "", [halved, *go]), conv("z", "u", "y")]
    return saved(path, nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6])}, {"y": 4}, w=normal(4, 3, 1, 1),
                 u=normal(2, 4, 1, 1), factor=np.array(0.5, np.float32), three=np.array(3),
                 least=np.array(0.1, np.float32))


@pytest.mark.parametrize("turns", ["three", ""])
def test_a_loop_is_the_hosts(turns: str, tmp_path: Path) -> None:
    """So many turns, or until the values are small."""
    go = [helper.make_node("ReduceMax", ["next"], ["largest"], keepdims=0),
          helper.make_node("Greater", ["largest", "least"], ["go"])]
    path = looping(tmp_path / "loop.onnx", turns, go)
    check(path, {"x": SAMPLES}, {"Loop"}, {})


def test_a_loop_without_an_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.tmodel.onnx_engine.MOST_SECONDS", 0.5)
    path = looping(tmp_path / "loop.onnx", "", [helper.make_node("Equal", ["factor", "factor"], ["go"])])
    with pytest.raises(WeftError, match="a loop that still runs"):
        Session(Network.load(compile_model(path, BASE, tmp_path, host_fallback=True).model_path)).run({"x": SAMPLES})


def test_a_scan_is_the_hosts(tmp_path: Path) -> None:
    """A running sum over rows."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["more"]), helper.make_node("Identity", ["more"], ["kept"])], "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("sum", "row")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("more", "kept")])
    nodes = [conv("x", "w", "c"),
             helper.make_node("Scan", ["start", "c"], ["last", "z"], name="scan", body=body, num_scan_inputs=1,
                              scan_input_axes=[2], scan_output_axes=[2]), conv("z", "u", "y")]
    path = saved(tmp_path / "scan.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6])}, {"y": 4},
                 w=normal(4, 3, 1, 1), u=normal(2, 4, 1, 1), start=np.zeros((1, 4, 6), np.float32))
    check(path, {"x": SAMPLES}, {"Scan"}, {})


def test_a_fixed_input_may_be_any(tmp_path: Path) -> None:
    """Real numbers in the shape of the input, all of them in a row, or one for all."""
    nodes = [conv("x", "w", "c"), helper.make_node("Mul", ["c", "gain"], ["y"])]
    path = saved(tmp_path / "gain.onnx", nodes, {"x": (TensorProto.FLOAT, ["n", 3, 6, 6]),
                                                 "gain": (TensorProto.FLOAT, [1, 4, 1, 1])}, {"y": 4},
                 w=normal(4, 3, 1, 1))
    for value in (0.5, [0.5, 1, 2, 0.25], np.array([1, 2, 0.5, 0.75]).reshape(1, 4, 1, 1)):
        report = compile_model(path, BASE, tmp_path, calibration={"x": SAMPLES}, fixed={"gain": value})
        found = Session(Network.load(report.model_path)).run({"x": SAMPLES[:1]}).outputs["y"]
        gain = np.broadcast_to(np.reshape(np.array(value, np.float32), (1, -1, 1, 1)), (1, 4, 1, 1))
        wanted = run_model(onnx.load(path), {"x": SAMPLES[:1], "gain": gain})["y"]
        assert signal_to_noise(wanted, found) > 50


def test_an_open_choice_of_all_of_the_network_says_how_to_fix_it(tmp_path: Path) -> None:
    """The way out works: with it the network compiles."""
    whole = helper.make_node("If", ["is_fast"], ["y"], then_branch=branch([conv("x", "w", "t")], "t"),
                             else_branch=branch([helper.make_node("Neg", ["x"], ["t"])], "t"))
    nodes = [helper.make_node("Equal", ["sr", "rate"], ["is_fast"]), whole]
    path = saved(tmp_path / "whole.onnx", nodes, {"x": (TensorProto.FLOAT, [1, 3, 6, 6]),
                                                  "sr": (TensorProto.INT64, [])}, {"y": 4},
                 w=normal(4, 3, 1, 1), rate=np.array(16000))
    with pytest.raises(CompileError, match="--fix sr=VALUE"):
        compile_model(path, BASE, tmp_path, host_fallback=True)
    check(path, {"x": SAMPLES}, set(), {"sr": 16000})


@pytest.mark.parametrize(("fixed", "message"), [
    ({"rate": 1}, "no such input"), ({"sr": 0.5}, "numbers of int64"), ({"sr": [1, 2]}, "one number"),
    ({"x": np.nan}, "finite numbers"), ({"sr": "fast"}, "numbers of int64")])
def test_a_value_that_does_not_fit_is_refused(fixed: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        read_model(rates(tmp_path / "rates.onnx"), fixed=fixed)


def test_values_and_sizes_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = rates(tmp_path / "rates.onnx")
    assert exit_code(["inspect", str(path), "--fix", "sr=16000"]) == 0
    assert "on the host" not in capsys.readouterr().out
    for text in ("sr", "=1", "sr=fast"):
        assert exit_code(["inspect", str(path), "--fix", text]) == 1
        assert "--fix sr=16000" in capsys.readouterr().err


def test_a_size_is_given_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Add", ["x", "y"], ["s"]), conv("s", "w", "z")]
    path = saved(tmp_path / "sizes.onnx", nodes, {"x": (TensorProto.FLOAT, ["batch", 3, "side", "side"]),
                                                  "y": (TensorProto.FLOAT, ["batch", 3, "side", 1])}, {"z": 4},
                 w=normal(4, 3, 1, 1))
    assert read_model(path, shapes={"side": 6}).inputs[1].shape == (1, 3, 6, 1)
    assert read_model(path, shapes={"side": 6, "batch": 2}).outputs[0].shape == (2, 4, 6, 6)
    assert exit_code(["inspect", str(path), "--shape", "batch=1", "--shape", "side=6"]) == 0
    capsys.readouterr()
    for text in ("width=6", "side=0", "x=5"):
        assert exit_code(["inspect", str(path), "--shape", text]) == 1
        assert "batch" in capsys.readouterr().err


def test_a_question_mark_is_no_name_of_a_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some exporters write it for every open size."""
    path = saved(tmp_path / "sizes.onnx", [conv("x", "w", "z")], {"x": (TensorProto.FLOAT, ["?", 3, "?", "?"])},
                 {"z": 4}, w=normal(4, 3, 1, 1))
    assert read_model(path, shapes={"x": (1, 3, 6, 8)}).outputs[0].shape == (1, 4, 6, 8)
    assert exit_code(["inspect", str(path), "--shape", "?=6"]) == 1
    assert "x" in capsys.readouterr().err
