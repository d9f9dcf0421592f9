# SPDX-License-Identifier: Apache-2.0
"""A program in pieces leaves what the whole program leaves, and what a piece leaves elsewhere is seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import weft.simulate.rtl
from weft.cli.in_pieces import in_pieces, piece_count, processors
from weft.compiler.pipeline import compile_model
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime import piecewise
from weft.runtime.devices import Simulation, machine
from weft.runtime.pieces import Frame, _loads, stages_of
from weft.runtime.session import RTL, Session
from weft.support.errors import Mismatch, WeftError
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.unit.runtime.models import echo
from weft.tmodel.manifest import TModel

TABLES = {"lut_count": 2, "lut_depth": 64, "simd_registers_depth": 3}
ARCHS = {
    "tables": BASE.replace(array_size=3, local_depth=700, accumulator_depth=90, **TABLES),
    "bytes": BASE.replace(data_type="INT8", accumulator_width=None, activation_tables=2, local_depth=2048),
    "repeats": BASE.replace(repeat_depth=64),
    "taps": BASE.replace(depthwise_taps=9, array_size=9),
    "shared": BASE.replace(dram_ports="shared", array_size=4),
}


def compiled(folder: Path, arch: Arch) -> tuple[TModel, np.ndarray]:
    """A network with residuals, a depthwise layer, a pool and functions; and samples for it."""
    maker = ModelMaker((1, 12, 9, 8))
    name = maker.node("Relu", maker.conv("x", 12, 12, (3, 3), pads=(1, 1, 1, 1)))
    name = maker.node("Add", maker.conv(name, 12, 12, (3, 3), pads=(1, 1, 1, 1), group=12), name)
    name = maker.node("Sigmoid" if arch.lut_count or arch.activation_tables else "Relu", name)
    name = maker.node("MaxPool", maker.conv(name, 12, 20, (1, 1)), kernel_shape=(3, 3), strides=(2, 2))
    maker.node("Sigmoid" if arch.lut_count or arch.activation_tables else "Relu", maker.conv(name, 20, 7, (2, 2)))
    samples = maker.random.standard_normal((3, 12, 9, 8)).astype(np.float32)
    report = compile_model(maker.save(folder / "model.onnx"), arch, folder, calibration={"x": samples})
    return TModel.load(report.model_path), samples


class Golden:
    """Stands in for the simulation: the golden machine from reset, which may spoil what it leaves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.spoil = lambda machine: None
        self.cause, self.runs, self.cycles = Cause.NONE, 0, 1000
        monkeypatch.setattr(weft.simulate.rtl, "build_rtl", lambda *_, **__: None)
        monkeypatch.setattr(weft.simulate.rtl, "run_on_rtl", self.run)

    def run(self, arch: Arch, program: bytes, dram0: Dram, dram1: Dram, **_: Any) -> SimpleNamespace:
        machine, self.runs = Machine(arch, dram0, dram1), self.runs + 1
        size = machine.isa.instruction_bytes
        last = len(program) - size * 2  # before local memory is saved for the first time
        machine.run(program[:last])
        self.spoil(machine)
        machine.run(program[last:])
        return SimpleNamespace(error_cause=self.cause, cycles=self.cycles, seconds=0.0)


def alike(program: bytes, parts: np.ndarray) -> np.ndarray:
    return np.full(int(parts.max()) + 1, 1000.0)


def run(model: TModel, samples: np.ndarray, pieces: int, processes: int = 2) -> Any:
    return Session(model).run({"x": samples}, on=RTL, pieces=pieces, processes=processes, estimate=lambda _: 1000,
                              share=alike)


@pytest.mark.parametrize("name", ARCHS)
def test_pieces_leave_what_the_program_leaves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every word, on machines that begin each piece with empty memories; all outputs as of the whole program."""
    simulated, (model, samples) = Golden(monkeypatch), compiled(tmp_path, ARCHS[name])
    expected = Session(model).run({"x": samples})
    for pieces in (1, 3, 100):
        simulated.runs = 0
        found = run(model, samples, pieces)
        assert np.array_equal(found.outputs[model.outputs[0].name], expected.outputs[model.outputs[0].name])
        assert found.comparison.equal == found.comparison.words and found.saturated == expected.saturated
        assert found.cycles == 1000 and found.instructions == expected.instructions
        assert simulated.runs == pieces if pieces < 100 else simulated.runs > 6


def test_cycles_are_those_of_pieces_without_what_cutting_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, (model, samples) = Golden(monkeypatch), compiled(tmp_path, ARCHS["taps"])
    simulated.cycles = 1007
    assert run(model, samples, 3).cycles == 1000 + 3 * 7


@pytest.mark.parametrize("memory", ["local", "dram0", "dram1"])
def test_a_word_that_is_not_goldens_is_found(memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, (model, samples) = Golden(monkeypatch), compiled(tmp_path, ARCHS["taps"])

    def spoil(machine: Machine) -> None:
        if simulated.runs == 2 and memory == "local":
            machine.local[-1, 0] += 1
        elif simulated.runs == 2:
            machine.drams[memory].bytes[5000] ^= 1

    simulated.spoil = spoil
    with pytest.raises(Mismatch, match="local memory, lane 0" if memory == "local" else memory.upper()):
        run(model, samples, 3, processes=1)


def test_a_stop_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, (model, samples) = Golden(monkeypatch), compiled(tmp_path, ARCHS["repeats"])
    simulated.cause = [*Cause][1]
    with pytest.raises(Mismatch, match="piece . of 3: the RTL stopped with cause"):
        run(model, samples, 3)


def test_a_model_without_layers_is_one_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated, (model, samples) = Golden(monkeypatch), compiled(tmp_path, ARCHS["tables"])
    assert run(replace(model, instruction_layers=None), samples, 5).cycles == 1000 and simulated.runs == 1


def test_earlier_pieces_take_more_cycles(tmp_path: Path) -> None:
    """Of layers that take the same, the three pieces take 6, 5 and 4 of 15, as near as layers allow."""
    maker, name = ModelMaker((1, 4, 4, 4)), "x"
    for _ in range(15):
        name = maker.node("Relu", maker.conv(name, 4, 4, (1, 1)))
    arch = BASE.replace(array_size=4)
    model = TModel.load(compile_model(maker.save(tmp_path / "model.onnx"), arch, tmp_path).model_path)
    assert model.instruction_layers is not None
    stages = stages_of(model.program, model, 3, arch, alike)
    works = Isa(arch).split(model.program)[0] != Opcode.CONFIGURE
    pairs = np.unique([stages[works], model.instruction_layers[works]], axis=1)
    assert np.bincount(pairs[0]).tolist() == [6, 5, 4]


def test_another_program_is_one_piece(tmp_path: Path) -> None:
    """It has an instruction more than the model's layers tell of."""
    model = replace(echo(tmp_path), instruction_layers=np.array([0, 1]))
    isa = Isa(model.arch)
    assert stages_of(model.program, model, 2, model.arch, alike).tolist() == [0, 1]
    assert stages_of(model.program + isa.assemble([isa.no_op()]), model, 2, model.arch, alike).tolist() == [0, 0, 0]


@pytest.mark.parametrize(("cycles", "images", "pieces", "stages"), [
    ((100, 1), 2, 2, [0, 0, 1, 1]), ((1, 100), 2, 2, [0, 0, 0, 1]), ((1000, 1), 1, 3, [0, 1]), ((1, 1), 1, 1, [0, 0])])
def test_images_take_what_each_layer_takes_and_no_piece_is_empty(cycles: tuple[int, int], images: int, pieces: int,
                                                                 stages: list[int], tmp_path: Path) -> None:
    model = replace(echo(tmp_path), instruction_layers=np.array([0, 1]))
    found = stages_of(model.program * images, model, pieces, model.arch, lambda *_: np.array(cycles))
    assert found.tolist() == stages


def test_rtl_runs_in_pieces_only_where_pieces_are_asked_for(tmp_path: Path) -> None:
    model = echo(tmp_path)
    assert type(machine(RTL, model.arch, {}, model)) is Simulation
    asked = {"pieces": 2, "processes": 1, "estimate": lambda _: 1000, "share": alike}
    assert type(machine(RTL, model.arch, asked, model)) is piecewise.Piecewise


def test_no_room_behind_the_images() -> None:
    arch = ARCHS["taps"]
    with pytest.raises(WeftError, match=r"--pieces: found no room in DRAM0 .* a block of 64 KiB up to number"):
        Frame(arch, 1 << 20).before(Machine(arch))


@pytest.mark.parametrize("keys", [{"dram0_depth": 100}, {"local_depth": 1024}, {"local_depth": 9000}])
def test_a_state_is_loaded_and_saved_in_moves_that_a_machine_may_make(keys: dict[str, int]) -> None:
    """As large as DRAM0, local memory and a block of 64 KiB allow, whatever registers were left behind."""
    arch = ARCHS["taps"].replace(**keys)
    state, frame = Machine(arch, Dram(arch), Dram(arch)), Frame(arch, 3)
    state.local[...] = np.random.default_rng(1).integers(-99, 99, state.local.shape)
    fresh, (program, read) = Machine(arch, Dram(arch), Dram(arch)), frame.before(state)
    for block, vectors in read:
        fresh.dram0.write(0, vectors, block)
    fresh.run(program)
    assert np.array_equal(fresh.local, state.local) and fresh.registers[Register.DRAM0_OFFSET] == 0
    left = {Register.MOVE_ROWS: 1, Register.MOVE_FAR_PITCH: 7, Register.MOVE_LOCAL_PITCH: 3}
    fresh.run(fresh.isa.assemble([fresh.isa.configure(*each) for each in left.items()]))
    fresh.run(frame.behind())
    saved = frame.saved()
    assert [low for low, _, _ in saved] == np.cumsum([0, *(size for _, size, _ in saved)])[:-1].tolist()
    assert np.array_equal(np.concatenate([fresh.dram0.read(0, size, block) for _, size, block in saved]), state.local)


def test_the_last_block_of_dram0_is_one_that_there_is() -> None:
    arch = ARCHS["taps"]
    most = Isa(arch).registers[Register.DRAM0_OFFSET].maximum
    assert Frame(arch, 0)._offset(most).operand1 == most
    with pytest.raises(WeftError, match=f"it needs block number {most + 1}"):
        Frame(arch, 0)._offset(most + 1)


@pytest.mark.parametrize("words, message", [
    (["--pieces", "0"], "auto, or a number from 1 to 1000"), (["--pieces", "many"], "auto, or a number"),
    (["--pieces", "auto", "--layers"], "--layers beside it"),
    (["--pieces", "2", "--no-check"], "--no-check beside it")])
def test_the_option_says_what_it_takes(words: list[str], message: str) -> None:
    beside = {word: word in words for word in ("--layers", "--no-check")}
    with pytest.raises(WeftError, match=message):
        piece_count(words[1], beside)


def test_from_one_to_a_thousand_pieces() -> None:
    assert [piece_count(words, {}) for words in ("1", "1000")] == [1, 1000]
    with pytest.raises(WeftError, match="found 1001; allowed: auto, or a number from 1 to 1000"):
        piece_count("1001", {})


def test_auto_is_some_pieces_for_each_processor() -> None:
    assert piece_count("auto", {}) % processors() == 0 < piece_count("auto", {})
    with pytest.raises(WeftError, match="a machine of 4 cores"):
        in_pieces(2, Arch.load("zcu104_4x16"))


def test_what_a_piece_finds_is_loaded_to_the_beginning_of_local_memory() -> None:
    """Vectors of DRAM are moved there, and every load takes them from there."""
    arch = Arch.load("tiny").replace(lut_count=2, lut_depth=16, simd_registers_depth=3)
    state = Machine(arch, Dram(arch), Dram(arch))
    loads = [load for _, found in _loads(state, Isa(arch)) for load in found]
    assert {load.opcode for load in loads} == {Opcode.LOAD_WEIGHT, Opcode.LOAD_LUT}
    assert [load.operand0 for load in loads] == [0] * len(loads)


@pytest.mark.parametrize("end", [None, 0, 5, 20, 100])
def test_a_twin_of_a_memory_ends_where_it_is_told_to(end: int | None) -> None:
    arch = Arch.load("tiny")
    dram = Dram(arch)
    dram.bytes[:40] = 7
    found = piecewise._twin(arch, dram, end).bytes[:64].tolist()
    assert found == [7] * min(40, 40 if end is None else end) + [0] * (64 - min(40, 40 if end is None else end))
