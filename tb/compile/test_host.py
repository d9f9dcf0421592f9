# SPDX-License-Identifier: Apache-2.0
"""--host-fallback: what the machine refuses runs on the host, wherever it stands; the table says where and why."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.check.checker import Checker
from weft.compiler.errors import CompileError
from weft.compiler.partition import HOST
from weft.compiler.pipeline import compile_model
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network


def sine(maker: ModelMaker) -> None:
    maker.node("Relu", maker.node("Sin", maker.conv("x", 6, 5, (3, 3))))


def table_that_is_not_there(maker: ModelMaker) -> None:
    maker.node("Mul", maker.node("Sigmoid", maker.conv("x", 6, 5, (3, 3))), maker.normal(1))


def side_branch(maker: ModelMaker) -> None:
    """The host's part reads a tensor of the machine and the input."""
    name = maker.conv("x", 6, 6, (1, 1))
    maker.node("Add", maker.node("Div", maker.node("Relu", name), maker.node("Exp", name)), "x")


def behind_cosine(maker: ModelMaker) -> None:
    """Nothing that would be worth a part of the machine's own."""
    maker.node("Relu", maker.node("Cos", maker.conv("x", 6, 5, (3, 3))))


def front(maker: ModelMaker) -> None:
    maker.conv(maker.node("Cos", maker.node("Relu", "x")), 6, 5, (3, 3))


def middle(maker: ModelMaker) -> None:
    maker.conv(maker.node("Cos", maker.conv("x", 6, 5, (3, 3))), 5, 4, (2, 2))


def around(maker: ModelMaker) -> None:
    """The second of the machine's parts reads what the first one made too, and the host's last what both made."""
    first = maker.conv(maker.node("Sin", "x"), 6, 6, (3, 3), pads=(1, 1, 1, 1))
    second = maker.conv(maker.node("Add", maker.node("Cos", first), first), 6, 6, (1, 1))
    maker.node("Sub", maker.node("Sin", second), first)


CASES: dict[Callable[[ModelMaker], None], tuple[str, tuple[str, ...]]] = {
    sine: ("mh", ("Sin", "Relu")), table_that_is_not_there: ("mh", ("Sigmoid", "Mul")),
    side_branch: ("mh", ("Exp", "Div", "Add")), behind_cosine: ("mh", ("Cos", "Relu")),
    front: ("hm", ("Relu", "Cos")), middle: ("mhm", ("Cos",)), around: ("hmhmh", ("Sin", "Cos", "Sin", "Sub"))}
"""Network -> its parts in order, and what runs on the host."""


@pytest.fixture(params=CASES, ids=lambda network: network.__name__)
def network(request: pytest.FixtureRequest) -> Callable[[ModelMaker], None]:
    return request.param


def test_parts_run_in_order(network: Callable[[ModelMaker], None], tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    network(maker)
    path = maker.save(tmp_path / "model.onnx")
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    with pytest.raises(CompileError, match="--host-fallback"):
        compile_model(path, BASE, tmp_path, calibration={"x": samples})
    checker = Checker()
    report = compile_model(path, BASE, tmp_path, calibration={"x": samples}, host_fallback=True, watch=checker.after)
    checker.insist()
    order, operators = CASES[network]
    found = Network.load(report.model_path)
    assert "".join("h" if isinstance(part, HostPart) else "m" for part in found.parts) == order
    assert tuple(operator for part in found.hosts for operator in part.operators) == operators
    assert report.partition.machine_share == 1
    made, = Session(found).run({"x": samples}).outputs.values()
    assert made.dtype == np.float32
    for sample, value in zip(samples, made, strict=True):
        expected, = run_float(path, {"x": sample[None]}).values()
        assert signal_to_noise(expected[0], value) >= 50


def test_a_join_in_front_of_the_host_is_its_own(tmp_path: Path) -> None:
    """On the machine lines of two lanes' channels would be thousands of layers; a join that it reads stays there."""
    maker = ModelMaker((1, 6, 9, 8))
    both = maker.node("Concat", maker.conv("x", 6, 3, (1, 1)), maker.conv("x", 6, 2, (1, 1)), axis=1)
    made = maker.conv(both, 5, 4, (1, 1))
    boxes = maker.node("Concat", made, maker.conv(both, 5, 3, (1, 1)), axis=1)
    path = maker.save(tmp_path / "model.onnx", boxes, maker.node("Cos", made))
    places = compile_model(path, BASE, tmp_path, host_fallback=True).partition.places
    assert [place.where for place in places if place.operator == "Concat"] == ["machine", "host"]
    assert len({place.part for place in places}) == 2
    without = compile_model(path, BASE, tmp_path, host_fallback=True, outputs=(boxes,)).partition
    assert not without.hosts, "no part of its own for it"


def test_a_network_in_parts_is_one_set_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    middle(maker)
    path = maker.save(tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32))
    command = ["compile", path, "-a", "arty", "-o", tmp_path, "--host-fallback", "--calibrate", tmp_path / "x.npy"]
    assert exit_code([*map(str, command), "--check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [part["where"] for part in said["parts"]] == ["machine", "host", "machine"]
    assert said["machine_share"] == 1 and said["warnings"] == [] and said["schema"] == 1
    assert {Path(file).name for file in said["files"]} == {
        "model.tmodel", "model.1.tprog", "model.1.tdata", "model.2.tprog", "model.2.tdata"}
    compiled = tmp_path / "model.tmodel"
    assert exit_code(["estimate", str(compiled), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]) == 2
    assert exit_code(["run", str(compiled), "--input", str(tmp_path / "x.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 2
    assert exit_code(["run", str(compiled), "--input", str(tmp_path / "x.npy"), "--raw"]) == 1
    assert "way out: leave --raw out" in capsys.readouterr().err
    with pytest.raises(WeftError, match="Network.load"):
        TModel.load(compiled)
    data = tmp_path / "model.2.tdata"
    data.write_bytes(bytes(data.stat().st_size))
    with pytest.raises(WeftError, match="content of .*model.2.tdata"):
        Network.load(compiled)


BROKEN: dict[str, tuple[Callable[[dict], object], str]] = {
    "reads what comes later": (lambda values: values["parts"].reverse(), "reads .* which nothing before it makes"),
    "no program": (lambda values: values.update(parts=values["parts"][1:2]), "parts without a program"),
    "both": (lambda values: values["parts"][0].update(values["parts"][1]), "both or neither of program and host"),
    "made twice": (lambda values: values["parts"].append(values["parts"][1]), "which is there before"),
    "output of nobody": (lambda values: values["network"]["outputs"][0].update(name="z"), "which no part makes"),
    "unknown key": (lambda values: values["parts"][0]["program"].update(gpu=1), "known are prog, consts"),
    "unknown key of all": (lambda values: values.update(gpu=1), "known are name, arch, network"),
    "a file too many": (lambda values: values["files"].update(more=values["files"]["model.1.tprog"]), "checksums of"),
    "an unknown type": (lambda values: values["network"]["inputs"][0].update(type="text"), "Invalid enum value"),
}


def test_a_broken_file_of_parts_is_refused(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    middle(maker)
    path = compile_model(maker.save(tmp_path / "model.onnx"), BASE, tmp_path, host_fallback=True).model_path
    text = path.read_text()
    for name, (damage, message) in BROKEN.items():
        values = json.loads(text)
        damage(values)
        path.write_text(json.dumps(values))
        with pytest.raises(WeftError, match=message):
            Network.load(path)
            pytest.fail(name)
    path.write_text(text)
    Network.load(path)


def test_little_on_the_machine_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A three-dimensional convolution is the host's."""
    maker = ModelMaker((1, 6, 8, 8))
    deep = maker.node("Reshape", maker.conv("x", 6, 2, (1, 1)), maker.constant(np.array([1, 1, 2, 8, 8])))
    maker.node("Conv", deep, maker.normal(8, 1, 2, 3, 3))
    command = ["compile", str(maker.save(tmp_path / "model.onnx")), "-a", "arty", "-o", str(tmp_path)]
    assert exit_code([*command, "--host-fallback"]) == 0
    shown = capsys.readouterr()
    assert "% of the network's multiply-accumulates run on the machine; the first node on the host is 'conv2'" in (
        shown.err)
    assert "conv2" in shown.out and "operator" in shown.out
    assert exit_code([*command, "--end", "reshape1"]) == 0, "the other way out"


def test_nothing_with_work_left_for_the_machine(tmp_path: Path) -> None:
    maker = ModelMaker((1, 1, 2, 8, 8))
    maker.node("Relu", maker.node("Conv", "x", maker.normal(8, 1, 2, 3, 3)))
    with pytest.raises(CompileError, match="node 'conv0', operator Conv, with --host-fallback: found nothing left"):
        compile_model(maker.save(tmp_path / "model.onnx"), BASE, tmp_path, host_fallback=True)


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


def test_the_first_node_that_stops_it_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not those behind it. Both ways out work."""
    maker = ModelMaker((1, 6, 9, 8))
    logits = maker.node("Flatten", maker.conv("x", 6, 5, (9, 8)))
    maker.node("ArgMax", maker.node("Cos", logits), axis=1)
    command = ["compile", str(maker.save(tmp_path / "model.onnx")), "-a", "arty", "-o", str(tmp_path)]
    assert exit_code([*command, "--no-host-fallback"]) == 1
    refused = capsys.readouterr().err
    assert "node 'cos2', operator Cos: found not supported" in refused and "argmax3" not in refused
    assert "--host-fallback" in refused and "--end" in refused
    assert exit_code([*command, "--host-fallback"]) == 0
    assert "argmax3" in capsys.readouterr().out
    found = Session(Network.load(tmp_path / "model.tmodel")).run({"x": np.ones((1, 6, 9, 8), np.float32)})
    assert next(iter(found.outputs.values())).dtype == np.int64, "the network's own type"
    assert exit_code([*command, "--end", "flatten1"]) == 0
    assert "host" not in capsys.readouterr().out


def test_lists_of_several_heads_are_joined_on_the_host(tmp_path: Path) -> None:
    """As detectors end: each head's boxes as a list, the lists joined, scores made of them."""
    maker = ModelMaker((1, 6, 9, 8), opset=13)
    lists = []
    for kernel in ((3, 3), (2, 2)):
        head = maker.node("Transpose", maker.conv("x", 6, 4, kernel), perm=(0, 2, 3, 1))
        lists.append(maker.node("Reshape", head, maker.constant(np.array([1, -1, 2], np.int64))))
    maker.node("Softmax", maker.node("Concat", *lists, axis=1), axis=2)
    arch = BASE.replace(lut_count=2, lut_depth=256, simd_registers_depth=3)
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    path = maker.save(tmp_path / "model.onnx")
    report = compile_model(path, arch, tmp_path, calibration={"x": samples}, host_fallback=True)
    assert [place.operator for place in report.partition.places if place.where == "host"] == ["Concat", "Softmax"]
    assert report.partition.machine_share == 1


@pytest.mark.parametrize("divide", ["Reciprocal", "Div"])
def test_the_host_divides_by_what_passes_through_0(divide: str, tmp_path: Path) -> None:
    """A table of fixed point has no room for a pole; by what stays away from 0 the machine divides."""
    maker = ModelMaker((1, 6, 5, 4), seed=1)
    away = maker.node("Add", maker.node("Sigmoid", maker.conv("x", 6, 5, (3, 3))), maker.constant(np.float32(1)))
    through = maker.conv("x", 6, 5, (3, 3))
    made = [maker.node("Reciprocal", name) if divide == "Reciprocal" else maker.node(
        "Div", maker.conv("x", 6, 5, (3, 3)), name) for name in (through, away)]
    path = maker.save(tmp_path / "net.onnx", *made)
    samples = np.random.default_rng(0).standard_normal((3, *maker.shape[1:])).astype(np.float32)
    arch = BASE.replace(lut_count=2, lut_depth=256, simd_registers_depth=3)
    with pytest.raises(CompileError, match="range without 0.*--host-fallback"):
        compile_model(path, arch, tmp_path, calibration={"x": samples})
    report = compile_model(path, arch, tmp_path, calibration={"x": samples}, host_fallback=True)
    assert [place.node for place in report.partition.places if place.where == HOST] == [made[0]]
    found = Session(Network.load(report.model_path)).run({"x": samples[:1]}).outputs
    for name, wanted in run_float(path, {"x": samples[:1]}).items():
        assert signal_to_noise(wanted, found[name]) >= 30
