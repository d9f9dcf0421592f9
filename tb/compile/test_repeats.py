# SPDX-License-Identifier: Apache-2.0
"""Compiled programs as Repeats: the same instructions, in a few percent of the bytes, whatever ran before."""

import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.backend.repeats import _steps, shortened
from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.runtime.session import Session
from weft.tb.random.random_program import random_program
from weft.tb.shared import shared
from weft.tb.unit.golden.machines import MACHINES
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "models" / "digits"


def table_of(isa: Isa, program: list[Instruction]) -> np.ndarray:
    return isa.words(isa.assemble(program))


@pytest.mark.parametrize("depth", [1, 4, 64])
@pytest.mark.parametrize("name", [name for name, arch in MACHINES.items() if not arch.repeat_depth])
def test_a_shortened_program_stands_for_the_same_instructions(name: str, depth: int) -> None:
    """Random programs several times over, with the same pieces elsewhere in memory."""
    plain = Isa(MACHINES[name])
    isa = Isa(plain.arch.replace(repeat_depth=depth))
    for seed in range(3):
        piece = table_of(plain, random_program(plain.arch, seed, 40))
        moved = piece.copy()
        moved[2, moved[0] == Opcode.MAT_MUL] ^= np.uint64(seed)
        table = np.concatenate([piece, piece, moved, piece], axis=1)
        words = shortened(table, isa)
        assert np.array_equal(isa.split(isa.assemble_words(words)), table)
        assert depth < 64 or words.shape[1] < 0.6 * table.shape[1]


def test_the_longest_repetition_is_taken_as_far_as_its_fields_reach() -> None:
    """256 of an instruction of 1 byte's count, on a machine whose depth is more than the distance's field holds."""
    arch = Arch.load("tiny").replace(repeat_depth=4096)
    isa = Isa(arch)
    assert isa.operand_widths[:2] == (8, 16)
    program = [isa.load_weight(number % 16, 1 + number % 2) for number in range(70_000)]
    table = table_of(isa, program)
    words = shortened(table, isa)
    assert np.array_equal(isa.split(isa.assemble_words(words)), table)
    assert words.shape[1] < 40
    assert words[3][words[0] == Opcode.REPEAT].max() == (1 << 16) - 1


def test_the_first_step_of_a_kind_is_never_repeated() -> None:
    """So a program means the same behind any other one: its Repeats depend on nothing before it."""
    isa = Isa(Arch.load("arty").replace(repeat_depth=64))
    table = table_of(isa, [isa.mat_mul(4 * k, 4 * k, 4) for k in range(1, 9)])  # the first as if from 0
    piece = isa.assemble_words(shortened(np.concatenate([table, table], axis=1), isa))
    history = isa.history()
    before = [isa.load_weight(7, 1), isa.mat_mul(99, 1, 4), isa.mat_mul(3, 2, 4)]
    rows = [row for word in [*before, *isa.disassemble(piece)] for row in history.expand(word)]
    assert np.array_equal(np.array(rows[3:], np.uint64).T, isa.split(piece))


@cache
def digits(folder: Path, depth: int) -> TModel:
    calibration = {"image": np.load(DIGITS / "held_out.npz")["calibration"]}
    compile_model(DIGITS / "digits.onnx", Arch.load("ecpix5_4").replace(repeat_depth=depth), folder / str(depth),
                  calibration=calibration)
    return TModel.load(folder / str(depth) / "digits.tmodel")


def test_a_network_is_the_same_in_fewer_bytes(tmp_path: Path) -> None:
    """Instructions, layers of instructions, results of two images, and cycles."""
    plain, short = digits(tmp_path, 0), digits(tmp_path, 512)
    assert np.array_equal(Isa(plain.arch).split(plain.program), Isa(short.arch).split(short.program))
    assert plain.instruction_layers is not None and short.instruction_layers is not None
    assert np.array_equal(plain.instruction_layers, short.instruction_layers)
    assert len(short.program) < 0.3 * len(plain.program)
    image = np.load(DIGITS / "held_out.npz")["image"][:2]
    one, other = (Session(model).run({model.inputs[0].name: image}) for model in (plain, short))
    assert np.array_equal(one.outputs[plain.outputs[0].name], other.outputs[short.outputs[0].name])
    assert abs(estimate(plain.program, plain.arch).cycles - estimate(short.program, short.arch).cycles) < 10


@pytest.mark.parametrize("machine", ["ecpix5_4", "arty"])
def test_resnet20_takes_at_most_60_kilobytes(tmp_path: Path, machine: str) -> None:
    arch = Arch.load(machine).replace(repeat_depth=512)
    report = compile_model(shared("models/resnet20_cifar10.onnx"), arch, tmp_path)
    assert report.program_path.stat().st_size <= 35_000


def test_a_million_instructions_take_some_seconds_at_most() -> None:
    isa = Isa(Arch.load("arty").replace(repeat_depth=512))
    piece = table_of(isa, random_program(isa.arch.replace(repeat_depth=0), 1, 1000))
    table = np.concatenate([piece] * 1000, axis=1)
    shortened(piece, isa)  # compiles what numba compiles
    began = time.process_time()
    shortened(table, isa)
    seconds = time.process_time() - began
    print(f"\n{seconds:.2f} s for {table.shape[1]} instructions")
    assert seconds < 10


@pytest.mark.parametrize("depth", [4, 8, 16])
def test_the_longest_repetition_within_reach_is_taken(depth: int) -> None:
    """Against one that tries every distance: of equally long ones the nearest, and none that is no longer than a
    word."""
    isa = Isa(Arch.load("tiny").replace(repeat_depth=depth))
    random = np.random.default_rng(depth)
    drawn = [isa.load_weight(int(base), 1 + int(size)) for base, size in random.integers(0, 3, (200, 2))]
    program = [*drawn[:40], *drawn[60:60 + depth] * 3, *drawn[40:90], *drawn[90:91 + depth] * 3, *drawn[100:150],
               *drawn[150:153] * 6, *drawn[150:]]
    table = table_of(isa, program)
    one, other = _steps(table, isa)
    steps = [*zip(one.tolist(), other.tolist(), strict=True)]
    place, wanted = 0, []
    while place < len(steps):
        best, distance = 1, 0
        for back in range(1, min(depth, place) + 1):
            length = 0
            while place + length < len(steps) and steps[place + length - back] == steps[place + length]:
                length += 1
            if length > max(best, 1):
                best, distance = length, back
        wanted.append((distance, best))
        place += best
    words = shortened(table, isa)
    found = [(int(back) + 1, int(count) + 1) if code == Opcode.REPEAT else (0, 1)
             for code, _, back, count, _ in words.T.tolist()]
    assert found == wanted and any(distance == depth for distance, _ in found)


@pytest.mark.parametrize("period", [255, 256, 257, 300])
def test_a_repetition_is_no_farther_back_than_its_field_says(period: int) -> None:
    """256 instructions on a machine that remembers 4096."""
    isa = Isa(Arch.load("tiny").replace(repeat_depth=4096))
    piece = [isa.load_weight(int(base), 1 + int(size))
             for base, size in np.random.default_rng(0).integers(0, 16, (period, 2))]
    table = table_of(isa, [*piece, *piece, *piece])
    words = shortened(table, isa)
    assert np.array_equal(isa.split(isa.assemble_words(words)), table)
    longest = words[3][words[0] == Opcode.REPEAT].max(initial=0)
    assert (longest > period) == (period <= 256)
