# SPDX-License-Identifier: Apache-2.0
"""A user's mistake gives one message (what, found, allowed, way out) on standard error, exit code 1, no traceback."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.presets import presets
from weft.support.files import reason

Weft = Callable[..., Any]
VECTORS = np.zeros((4, 2), np.int16)


@pytest.fixture
def fails(weft: Weft) -> Callable[..., str]:
    """Runs a command that must fail as a user's mistake; returns its message."""

    def call(*arguments: object) -> str:
        answer = weft(*arguments)
        assert answer.code == 1, answer
        assert answer.out == "" and "Traceback" not in answer.err
        assert answer.err.startswith(("weft: ", "Usage: ", "Error: ")) and answer.err.endswith("\n")
        return " ".join(answer.err.split())

    return call


Fails = Callable[..., str]


def test_trace_without_rtl(fails: Fails, tmp_path: Path) -> None:
    message = fails("run", "any.tmodel", "--input", "any.npz", "--trace", tmp_path / "trace.json")
    assert "--trace: found --on golden; allowed: --on rtl; way out: add --on rtl" in message


# -- architectures -----------------------------------------------------------------------------------------------------
def test_unknown_architecture(fails: Fails) -> None:
    message = fails("isa", "-a", "pink")
    assert f"architecture: found pink; allowed: a preset ({', '.join(sorted(presets()))}) or an existing" in message


@pytest.mark.parametrize(("command", "way_out"), [
    ("isa -a pnyq", "did you mean pynq?"), ("isa -a Ultra96", "did you mean ultra96?"),
    ("isa -a machines/pnyq", "did you mean pynq?"), ("isa -a q", "name one of them with -a"),
    ("board flash ULX3", "did you mean ulx3s?"), ("board flash q", "name one of them"),
    ("resources -a tiny --part xc7a3t", "did you mean XC7A35T?"),
    ("isa -a tiny --set Array_Sise=4", "did you mean array_size?"),
])
def test_a_name_that_is_near_another(command: str, way_out: str, fails: Fails) -> None:
    assert fails(*command.split()).endswith(f"way out: {way_out}")


@pytest.mark.parametrize(("setting", "text"), [
    ("array_size=1", "architecture key array_size: found 1; allowed: an integer, 2..256; way out: set array_size"),
    ("aray_size=8", "architecture key aray_size: found an unknown key; allowed: data_type"),
    ("local_banks=3", "architecture key local_banks: found 3; allowed: a power of two; way out: set local_banks"),
    ("mac_rounding=never", "architecture key mac_rounding: found never; allowed: once or every_step"),
    ("data_type=INT7", "architecture key data_type: found INT7; allowed: INT8 or FP<width>BP<point>"),
    ("local_depth", "--set: found local_depth; allowed: KEY=VALUE"),
    ("local_depth=many", "architecture key local_depth: found many; allowed: an integer"),
])
def test_impossible_architecture(fails: Fails, setting: str, text: str) -> None:
    assert text in fails("isa", "-a", "tiny", "--set", setting)


@pytest.mark.parametrize("content", ["{", "[]", "\x00\xff", '{"data_type": "FP16BP8"}'])
def test_broken_architecture_file(fails: Fails, tmp_path: Path, content: str) -> None:
    path = tmp_path / "my.tarch"
    path.write_text(content)
    assert "way out: " in fails("isa", "-a", path)


def test_architecture_that_is_a_directory(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "my.tarch").mkdir()
    assert "an existing .tarch file" in fails("isa", "-a", tmp_path / "my.tarch")


@pytest.mark.parametrize(("error", "text"), [
    (OSError(2, "No such file or directory"), "no such file or directory"), (KeyError(), "KeyError"),
    (ValueError("Cannot open /dev/ttyUSB7."), "cannot open /dev/ttyUSB7"), (EOFError("EOF: no end"), "EOF: no end"),
    (ValueError("two\nlines"), "two"),
])
def test_a_reason_is_no_sentence_but_keeps_its_names(error: Exception, text: str) -> None:
    assert reason(error) == text


# -- options -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("arguments", [
    ["isa"], ["isa", "-a"], ["nonsense"], ["isa", "-a", "tiny", "--colour"], ["run"], ["compile", "x.onnx"],
    ["run", "x.tmodel", "--input", "x.npy", "--images", "0"],
])
def test_wrong_options(fails: Fails, arguments: list[str]) -> None:
    message = fails(*arguments)
    assert message.startswith("weft: command weft") and message.endswith("--help")


@pytest.mark.parametrize(("arguments", "text"), [
    (["nonsense"], "No such command 'nonsense'; allowed: compile, inspect"),
    (["board", "nonsense"], "No such command 'nonsense'; allowed: list, build, flash"),
])
def test_an_unknown_command_names_those_that_there_are(fails: Fails, arguments: list[str], text: str) -> None:
    assert text in fails(*arguments)


@pytest.mark.parametrize(("arguments", "text"), [
    (["compile", "x.onnx", "-a", "tiny", "--report", "--html", "page.html"], "--report: found no value, but the option "
     "--html; allowed: --report FILE.json; way out: give it a value; one that looks like an option: --report=--html"),
    (["estimate", "x.tmodel", "--json=yes"], "--json: found the value yes; allowed: --json alone; way out: leave "
     "=yes out"),
    (["board", "build", "ecpix5", "-o", "--json"], "-o: found no value, but the option --json; allowed: -o DIR"),
])
def test_an_option_is_no_value_and_takes_what_it_takes(fails: Fails, arguments: list[str], text: str, tmp_path: Path,
                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert text in fails(*arguments)
    assert not list(tmp_path.iterdir())


WRONG: dict[str, tuple[object, ...]] = {
    "verilog": ("-a", "pink", "-o", "x"), "run": ("x.tmodel", "--input", "x.npz"), "debug": ("x.tmodel",),
    "estimate": ("x.tmodel",),
    "resources": ("-a", "tiny", "--part", "moon"), "isa": ("-a", "pink"), "disassemble": ("x.tprog", "-a", "tiny"),
    "compile": ("x.onnx", "-a", "pink"), "inspect": ("x.onnx",), "archs": ("--colour",),
    "report": ("x.tmodel", "-o", "x.html"), "explore": ("x.onnx", "--part", "moon"), "doctor": ("--extra", "moon"),
    "board list": ("--colour",), "demo": ("-a", "pink"),
    "board build": ("moon",), "board flash": ("moon",),
    "board standalone": ("x.tmodel", "--board", "moon", "--input", "x.npz", "-o", "x"),
    "board memory": ("serial:/dev/null", "--board", "moon"), "ir check": ("x.json",),
    "schedule": ("x.onnx", "-a", "pink", "-o", "x.json"),
}
"""Command -> a mistake in what it is given, and nothing else."""


def test_every_command_explains_a_mistake(fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four parts: what, found, allowed, way out; and nothing is left behind."""
    from weft.cli import board, ir
    from weft.cli.app import application

    monkeypatch.chdir(tmp_path)
    infos = [(prefix, info) for prefix, group in (("", application()), ("board ", board.app), ("ir ", ir.app))
             for info in group.registered_commands]
    names = {f"{prefix}{info.name or getattr(info.callback, '__name__', '')}" for prefix, info in infos}
    assert set(WRONG) == names
    for name, arguments in WRONG.items():
        message = fails(*name.split(), *arguments)
        assert re.fullmatch("weft: .+: found .+; allowed: .+; way out: .+", message), (name, message)
        assert not list(tmp_path.iterdir()), name


def test_every_command_explains_an_unknown_option(fails: Fails) -> None:
    for name in ("", "board", "ir", *WRONG):
        message = fails(*name.split(), "--moon")
        assert re.fullmatch(f"weft: command weft ?{name}: found .+; allowed: .+; way out: weft ?{name} --help",
                            message), (name, message)


def test_every_command_has_a_help_with_an_example(weft: Weft) -> None:
    for name in WRONG:
        assert f"weft {name}" in weft(*name.split(), "--help").out.split("Example:")[-1], name


def test_machine_that_nobody_knows(fails: Fails, echo: Path) -> None:
    message = fails("run", echo, "--on", "silicon", "--input", "x.npy")
    assert "device: found 'silicon'; allowed: golden[:PRESET], rtl (weft run), sim[:PRESET], serial:auto|" in message


# -- models to compile -------------------------------------------------------------------------------------------------
def onnx_file(path: Path, *nodes: onnx.NodeProto) -> Path:
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2, 4, 4]) for name in ("x", "y")]
    graph = helper.make_graph(list(nodes), "test", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_missing_model(fails: Fails, tmp_path: Path) -> None:
    message = fails("compile", tmp_path / "none.onnx", "-a", "tiny", "-o", tmp_path / "out")
    assert "none.onnx" in message and "way out: " in message


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x08\x07" * 100])
def test_broken_model(fails: Fails, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.onnx").write_bytes(content)
    message = fails("compile", tmp_path / "broken.onnx", "-a", "tiny", "-o", tmp_path / "out")
    assert "broken.onnx" in message and "way out: " in message


def test_model_that_is_a_directory(fails: Fails, tmp_path: Path) -> None:
    assert "way out: " in fails("compile", tmp_path, "-a", "tiny", "-o", tmp_path / "out")


def test_unsupported_operator_is_named(fails: Fails, tmp_path: Path) -> None:
    model = onnx_file(tmp_path / "m.onnx", helper.make_node("Erf", ["x"], ["y"], name="curve"))
    message = fails("compile", model, "-a", "tiny", "-o", tmp_path / "out")
    assert "curve" in message and "Erf" in message and "allowed: " in message and "way out: " in message


def test_output_that_cannot_be_a_folder(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    model = onnx_file(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"]))
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert f"output folder {folder}: found " in fails("compile", model, "-a", "tiny", "-o", folder)
        assert f"output folder {folder}: found " in fails("verilog", "-a", "tiny", "-o", folder)


@pytest.mark.parametrize(("content", "text"), [(None, "no such file or directory"), (b"junk", "something unreadable")])
def test_calibration_file(fails: Fails, tmp_path: Path, content: bytes | None, text: str) -> None:
    model, file = onnx_file(tmp_path / "m.onnx", helper.make_node("Relu", ["x"], ["y"])), tmp_path / "c.npz"
    if content is not None:
        file.write_bytes(content)
    message = fails("compile", model, "-a", "tiny", "-o", tmp_path / "out", "--calibrate", file)
    assert f"calibration file {file}: found {text}" in message


# -- models to run -----------------------------------------------------------------------------------------------------
@pytest.fixture
def x(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", VECTORS)
    return tmp_path / "x.npy"


def test_missing_compiled_model(fails: Fails, tmp_path: Path, x: Path) -> None:
    for path in (tmp_path / "none.tmodel", tmp_path):
        message = fails("run", path, "--input", x, "--raw")
        assert str(path) in message and "way out: " in message


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"name": 1}', "\x00"])
def test_broken_compiled_model(fails: Fails, echo: Path, x: Path, content: str) -> None:
    echo.write_text(content)
    message = fails("run", echo, "--input", x, "--raw")
    assert "echo.tmodel" in message and "way out: " in message


@pytest.mark.parametrize("key", ["prog", "consts", "inputs", "outputs", "arch"])
def test_compiled_model_without_a_key(fails: Fails, echo: Path, x: Path, key: str) -> None:
    model = json.loads(echo.read_text())
    del model[key]
    echo.write_text(json.dumps(model))
    message = fails("run", echo, "--input", x, "--raw")
    assert key in message and "way out: " in message


@pytest.mark.parametrize("cut", [1, 5, 7])
def test_truncated_program(fails: Fails, echo: Path, x: Path, cut: int) -> None:
    program = echo.with_suffix(".tprog")
    program.write_bytes(program.read_bytes()[:-cut])
    message = fails("run", echo, "--input", x, "--raw")
    assert "echo.tprog" in message and "bytes" in message and "way out: " in message


def test_missing_program_and_constants(fails: Fails, echo: Path, x: Path) -> None:
    echo.with_suffix(".tdata").unlink()
    assert "echo.tdata" in fails("run", echo, "--input", x, "--raw")
    echo.with_suffix(".tprog").unlink()
    assert "way out: " in fails("run", echo, "--input", x, "--raw")


def test_program_that_the_machine_refuses(fails: Fails, echo: Path, x: Path, arch: Arch) -> None:
    program = Isa(arch).assemble([Instruction(0), Instruction(9)])
    echo.with_suffix(".tprog").write_bytes(program)
    message = fails("run", echo, "--input", x, "--raw")
    assert "instruction 1" in message and "no such opcode on this machine" in message


def test_set_that_would_change_the_program_s_meaning(fails: Fails, echo: Path, x: Path) -> None:
    message = fails("run", echo, "--input", x, "--raw", "--set", "local_depth=128")
    assert "architecture key local_depth: found 128; allowed:" in message and "compile the model again" in message


# -- inputs ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("array", "text"), [
    (np.zeros((3, 2), np.int16), "input x:0: found shape [3, 2]; allowed: [4, 2] for one run, [N, 4, 2] for N runs"),
    (np.zeros((0, 4, 2), np.int16), "input x:0: found shape [0, 4, 2]"),
    (np.zeros((4, 2)), "raw input x:0: found values of type float64; allowed: integers"),
    (np.full((4, 2), 40000), "raw input x:0: found values 40000..40000; allowed: -32768..32767 (FP16BP8)"),
    (np.array([["a", "b"]] * 4), "input x:0: found values of type <U1; allowed: integers or floats"),
    (np.full((4, 2), np.nan), "input x:0: found values that are not finite"),
    (np.array([{}]), "something unreadable (pickled objects or no numpy file)"),
])
def test_wrong_values(fails: Fails, echo: Path, tmp_path: Path, array: np.ndarray, text: str) -> None:
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    assert text in fails("run", echo, "--input", tmp_path / "x.npy", "--raw")


def test_wrong_name(fails: Fails, echo: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=VECTORS, b=VECTORS)
    message = fails("run", echo, "--input", tmp_path / "x.npz", "--raw")
    assert "found arrays a, b; allowed: an array for each input: x:0; way out: write it with numpy.savez" in message


@pytest.mark.parametrize("cut", [0, 10, 200])
def test_broken_input_file(fails: Fails, echo: Path, tmp_path: Path, cut: int) -> None:
    np.savez(tmp_path / "x.npz", allow_pickle=False, **{"x:0": VECTORS})
    (tmp_path / "x.npz").write_bytes((tmp_path / "x.npz").read_bytes()[:cut])
    assert "x.npz: found something unreadable" in fails("run", echo, "--input", tmp_path / "x.npz", "--raw")


def test_input_that_is_not_there_or_a_directory(fails: Fails, echo: Path, tmp_path: Path) -> None:
    assert "found no such file or directory" in fails("run", echo, "--input", tmp_path / "no.npz", "--raw")
    assert "found is a directory" in fails("run", echo, "--input", tmp_path, "--raw")


def test_model_without_shapes_needs_raw(fails: Fails, echo: Path, x: Path) -> None:
    assert "no tensor shapes" in fails("run", echo, "--input", x)


def test_output_that_cannot_be_written(fails: Fails, echo: Path, x: Path, tmp_path: Path) -> None:
    assert "found a directory" in fails("run", echo, "--input", x, "--raw", "--output", tmp_path)
    (tmp_path / "file").write_text("")
    message = fails("run", echo, "--input", x, "--raw", "--output", tmp_path / "file" / "y.npz")
    assert "output file" in message and "a place that can be written" in message


# -- programs ----------------------------------------------------------------------------------------------------------
def test_disassembly_of_what_is_no_program(fails: Fails, tmp_path: Path) -> None:
    (tmp_path / "cut.tprog").write_bytes(bytes(7))
    message = fails("disassemble", tmp_path / "cut.tprog", "-a", "tiny")
    assert "found 7 bytes; allowed: a multiple of 5, the bytes of one instruction" in message
    assert "no such file" in fails("disassemble", tmp_path / "none.tprog", "-a", "tiny")
    (tmp_path / "net.tmodel").write_bytes(bytes(10))
    assert f"way out: weft disassemble {tmp_path / 'net.tprog'} -a tiny" in fails(
        "disassemble", tmp_path / "net.tmodel", "-a", "tiny")
