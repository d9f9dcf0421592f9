# SPDX-License-Identifier: Apache-2.0
"""weft debug: the golden machine stopped at any place shows what the same instructions leave when they run at once."""

from __future__ import annotations

import builtins
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.cli.debugger import COMMANDS, Debugger
from weft.cli.main import exit_code
from weft.cycles.replay import estimate
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.units import UNIT_NAMES
from weft.runtime.devices import Golden
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import ModelMaker
from weft.tmodel.network import Network

SHAPE = (1, 3, 8, 8)
NOT_ON_TINY = {"scales", "activation_tables", "luts", "simd_registers"}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A network of two programs, between which the host computes; and inputs for it."""
    folder = tmp_path_factory.mktemp("debug")
    maker = ModelMaker(SHAPE)
    first = maker.node("Relu", maker.conv("x", 3, 4, (3, 3)))
    maker.conv(maker.node("Cos", maker.conv(first, 4, 4, (3, 3))), 4, 2, (3, 3))
    samples = maker.random.standard_normal((2, *SHAPE[1:])).astype(np.float32)
    np.savez(folder / "x.npz", x=samples)
    return weft.compile(maker.save(folder / "net.onnx"), "tiny", folder, calibrate={"x": samples}).model_path, \
        folder / "x.npz"


@pytest.fixture
def debugger(compiled: tuple[Path, Path]) -> Debugger:
    return opened(compiled, 0)


def opened(compiled: tuple[Path, Path], program: int) -> Debugger:
    """The debugger before a program of the network."""
    model, inputs = compiled
    return Debugger(Session(Network.load(model)), program, dict(np.load(inputs)), EXPECTED)


def data(debugger: Debugger, *lines: str) -> dict[str, Any]:
    """Run commands; the data of the last one's answer, as JSON has them."""
    for line in lines:
        found = debugger.answer(line)
    return dict(json.loads(json.dumps(found.data)))


def at_once(compiled: tuple[Path, Path], instructions: int) -> Machine:
    """The machine after so many instructions of the first program, run as one program from the runtime's memories."""
    model, inputs = compiled
    session = Session(Network.load(model))
    loaded, memory = session.machines[0], Golden(session.arch)
    image = np.load(inputs)["x"][:1]
    port, = loaded.model.inputs
    loaded.place(memory, [{port.name: loaded.model.pack_input(port.name, image[0] if port.shape == SHAPE[1:] else
                                                              image)}])
    machine = Machine(session.arch, memory.drams["dram0"], memory.drams["dram1"])
    words = loaded.isa.split(loaded.model.program)[:, :instructions].T.tolist()
    machine.run(loaded.preload)
    machine.soft_reset()
    machine.run(loaded.isa.assemble(Instruction(*row) for row in words))
    return machine


@pytest.mark.parametrize("share", [0.1, 0.5, 1])
def test_every_memory_is_that_of_the_same_instructions(share: float, debugger: Debugger,
                                                       compiled: tuple[Path, Path]) -> None:
    count = int(debugger.stepper.count * share)
    assert data(debugger, f"step {count}")["instruction"] == count
    machine, depth = at_once(compiled, count), debugger.stepper.machine.arch.local_depth
    for name, whole in (("local", machine.local), ("accumulators", machine.accumulators),
                        ("weights", machine.weights)):
        assert np.any(whole) and data(debugger, f"{name} 0 {len(whole)}")["values"] == whole.tolist()
    for name in ("dram0", "dram1"):
        assert data(debugger, f"{name} 2 100")["values"] == machine.drams[name].read(2, 100).tolist()
    assert data(debugger, "registers")["registers"] == {
        register.name.lower(): value for register, value in machine.registers.items()}
    last = data(debugger, f"local {depth - 1}")
    assert last["address"] == depth - 1 and len(last["values"]) == 1


def test_breaks_stop_before_layers_instructions_and_counters(debugger: Debugger) -> None:
    stepper = debugger.stepper
    second = next(first for layer, first in stepper.starts.items() if "conv2" in stepper.names[layer].split("+"))
    assert data(debugger, "break layer conv2")["instructions"] == [second]
    assert data(debugger, "run")["instruction"] == second and stepper.machine.instruction_count == second
    assert data(debugger, "where")["layer"] == stepper.name(second)
    products = data(debugger, "restart", "break instruction matmul")["instructions"]
    stops = [data(debugger, "run")["instruction"] for _ in range(3)]
    assert stops == sorted({second, *products})[:3]
    listed = data(debugger, "restart", f"step {products[1]}", "list 1")["instructions"]
    assert listed[0]["instruction"] == products[1] and listed[0]["text"].startswith("MatMul ")
    assert data(debugger, "delete layer conv2")["breaks"] == {"instruction matmul": len(products)}
    assert data(debugger, "delete")["breaks"] == {}
    assert data(debugger, "restart", "break pc 7", "run")["program_counter"] == 7
    assert data(debugger, "run") == {"command": "run", "instruction": stepper.count, "ended": True}
    at_start = data(debugger, "delete", "restart", "break instruction 0", "run")
    assert at_start["instruction"] == 0, "a break at the very start"
    assert data(debugger, "run")["ended"]


def test_next_goes_to_each_change_of_layer(debugger: Debugger) -> None:
    changes = (np.flatnonzero(np.diff(debugger.stepper.layers)) + 1).tolist()
    for number in (*changes, debugger.stepper.count, debugger.stepper.count):
        assert data(debugger, "next")["instruction"] == number
    layers = data(debugger, "layers")["layers"]
    assert sum(row["instructions"] for row in layers) == int((debugger.stepper.layers >= 0).sum())
    assert [row["first"] for row in layers] == sorted(debugger.stepper.starts.values())


def test_what_is_under_way_is_the_estimators(debugger: Debugger) -> None:
    loaded = debugger.stepper.loaded
    found = estimate(loaded.model.program, loaded.arch)
    for cycle in (0, found.cycles // 3, found.cycles // 2, found.cycles):
        rows = data(debugger, f"cycle {cycle}")["operations"]
        wanted = [(UNIT_NAMES[row["unit"]], row["issue_cycle"], row["start_cycle"] > cycle)
                  for row in found.operations if row["issue_cycle"] <= cycle <= row["finish_cycle"]]
        assert [(row["unit"], row["issue_cycle"], row["state"] == "waits") for row in rows] == wanted
    number = int(found.program.work["instruction"][9])
    now = data(debugger, f"step {number}", "cycle")
    assert now["cycle"] == found.operations["issue_cycle"][9]
    assert number in [row["instruction"] for row in now["operations"]]
    assert data(debugger, "run", "cycle")["cycle"] == found.cycles


def test_the_second_program_begins_where_the_host_ended(compiled: tuple[Path, Path]) -> None:
    debugger = opened(compiled, 1)
    data(debugger, "run")
    loaded = debugger.stepper.loaded
    port, = loaded.model.outputs
    values = np.array(data(debugger, f"dram0 {port.base} {port.size}")["values"])
    model, inputs = compiled
    wanted, = weft.Session(model).run(None, {"x": np.load(inputs)["x"][:1]})
    assert np.array_equal(loaded.model.unpack_output(port.name, values).astype(np.float32).reshape(wanted.shape),
                          wanted)


@pytest.mark.parametrize(("line", "words"), [
    ("jump 3", "command: found 'jump'; allowed: run, step, next"), ("brek", "way out: did you mean break?"),
    ("re", "command: found 're'; allowed: restart, registers"),
    ("local 0 1 2", r"command local: found 'local 0 1 2'; allowed: local \[ADDRESS \[COUNT\]\]"),
    ("local -1", "address of local: found '-1'; allowed: 0.."),
    ("local 0 99999999", "vectors of local: found '99999999'; allowed: 1.."),
    ("local x", "address of local: found 'x'"),
    ("break conv1 2", "break: found 'conv1'; allowed: layer, instruction, pc"),
    ("break layer", "command break: found 'break layer'"),
    ("break layer nonsense", "layer: found 'nonsense'; allowed: "),
    ("break instruction 99999999", "instruction: found '99999999'; allowed: 0.."),
    ("break instruction jump", "instruction: found 'jump'"),
    pytest.param("break instruction " + "9" * 5000, "instruction: found '99999999", id="instruction of 5000 digits"),
    ("break pc 99999999", "program counter: found '99999999'"),
    ("break pc 99999999999999999999999", "program counter: found"),
    ("delete layer conv9", "delete: found 'layer conv9'; allowed: no breaks"),
    ("step 0", "instructions: found '0'; allowed: 1.."),
    ("cycle 999999999", "cycle: found '999999999'; allowed: 0.."),
])
def test_a_wrong_command_says_what_is_allowed(line: str, words: str, debugger: Debugger) -> None:
    with pytest.raises(WeftError, match=words):
        debugger.answer(line)
    assert data(debugger, "where")["instruction"] == 0


def test_every_memory_is_there_or_refused(debugger: Debugger) -> None:
    """All commands alone, some of which `tiny` has nothing for."""
    for name in COMMANDS:
        if name in NOT_ON_TINY:
            try:
                debugger.answer(name)
            except WeftError as error:
                assert f"memory {name}: found none on this machine" in str(error)
        elif COMMANDS[name].least == 0:
            debugger.answer(name)
    assert Arch.load("tiny").lut_count >= 0


def run(*arguments: object) -> int:
    return exit_code(["debug", *map(str, arguments)])


def test_commands_of_the_command_line(compiled: tuple[Path, Path], tmp_path: Path,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    model, inputs = compiled
    script = tmp_path / "steps"
    script.write_text("# to the second layer\nbreak layer conv2\n\nrun # and stop\n")
    assert run(model, "--input", inputs, "--script", script, "-x", "local 0 2", "-x", "quit", "-x", "nonsense",
               "--json") == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["command"] for answer in answers] == ["break", "run", "local", "quit"]
    assert run(model, "-x", "break layer conv2", "-x", "run", "-x", "local 0 2") == 0
    text = capsys.readouterr().out.splitlines()
    assert "[conv2" in text[1] and text[2].startswith("local 0: ") and text[3].startswith("local 1: ")
    assert run(model, "-x", "jump", "-x", "run") == 1
    told = capsys.readouterr()
    assert not told.out and told.err.startswith("weft: command: found 'jump'; allowed: run, step")
    assert run(model, "-x", " ") == 1
    assert "--command: found no command" in capsys.readouterr().err
    assert run(model, "--program", 2, "-x", "where") == 0
    assert run(model, "--program", 3, "-x", "where") == 1
    assert "--program: found 3; allowed: 1..2" in capsys.readouterr().err
    assert run(model, "--script", tmp_path / "none") == 1


def test_commands_are_typed_or_piped(compiled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = compiled
    monkeypatch.setattr(sys, "stdin", io.StringIO("step 3\njump\nwhere\n"))
    assert run(model) == 1
    assert capsys.readouterr().out.lstrip().startswith("3  ")

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    typed = iter(["step 3", "jump", "", "step 2"])

    def ask(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(builtins, "input", ask)
    assert run(model) == 0
    told = capsys.readouterr()
    assert "found 'jump'" in told.err
    assert [line.split()[0] for line in told.out.splitlines()[1:] if line] == ["3", "5"], "a wrong command ends nothing"


def test_a_closed_standard_input(compiled: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert run(compiled[0]) == 1
    assert "standard input: found it is closed; allowed: an open one, for commands; way" in capsys.readouterr().err
    assert run(compiled[0], "-x", "where") == 0, "commands are there without it"


def test_cycles_of_one_core_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Cores share ports, which the estimate of one program does not see; the way out works."""
    maker = ModelMaker(SHAPE)
    maker.conv("x", 3, 4, (3, 3))
    pair = Arch.load("tiny").replace(cores=2, dram_ports="shared")
    model = weft.compile(maker.save(tmp_path / "net.onnx"), pair, tmp_path).model_path
    assert run(model, "-x", "step 5", "-x", "where") == 0
    assert run(model, "-x", "cycle") == 1
    told = capsys.readouterr().err
    assert "cycle: found a machine of 2 cores" in told and "--set cores=1 --set memory_ports=1" in told
    assert run(model, "--set", "cores=1", "--set", "memory_ports=1", "-x", "cycle") == 0
