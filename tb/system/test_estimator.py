# SPDX-License-Identifier: Apache-2.0
"""The estimator and the simulated hardware agree on every operation's cycles, and on where the cycles went."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.cli.cycle_table import cycles_object, waits_of
from weft.compiler.pipeline import compile_model
from weft.cycles.program import read_program
from weft.cycles.replay import estimate
from weft.cycles.waits import CAUSES, analyse
from weft.golden.dram import Dram
from weft.golden.legality import first_stop
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.units import OPERATION
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import RtlResult, run_many_on_rtl
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_program import random_program
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).parents[2]
ARCHS = lockstep_archs()
PROGRAMS, LENGTH = 10, 60


def run(arch: Arch, programs: list[bytes], latency: int) -> list[RtlResult]:
    settings = MemorySettings(read_latency=latency, write_latency=latency)
    return run_many_on_rtl(arch, programs, Dram(arch), Dram(arch), memories=[settings] * len(programs),
                           trace_operations=True)


@pytest.mark.wide_cases("lanes12*", "lanes4_slices*", "lanes3_every_step*", "lanes2_int8*")
@pytest.mark.parametrize(("name", "latency"), [("lanes2", 20), ("lanes4_lut", 30), ("lanes4_slices", 20),
                                               ("lanes12", 20), ("lanes3_every_step", 20), ("lanes2_int8", 20),
                                               ("lanes4_int8", 30)])
def test_random_programs_take_the_same_cycles(name: str, latency: int) -> None:
    """To the cycle: a latency or a rule of the hardware that changes is seen here, and belongs into
    ``hw/contract/timing.py`` or the estimator."""
    arch = ARCHS[name]
    agree(arch, [Isa(arch).assemble(random_program(arch, seed, LENGTH)) for seed in range(PROGRAMS)], latency)


@pytest.mark.wide_cases("lanes4_slices", "lanes8_int8")
@pytest.mark.parametrize("name", ["lanes2", "lanes4_int8", "lanes4_slices", "lanes8_int8"])
def test_strided_moves_behind_each_other_take_the_same_cycles(name: str) -> None:
    """Longer than a random program's, each vector a segment: the way to the bursts fills and stands still. With
    register slices it goes on a cycle later."""
    arch = ARCHS[name]
    isa = Isa(arch)

    def moves(seed: int) -> bytes:
        random = np.random.default_rng(seed)
        flows = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0, DataFlow.DRAM1_TO_LOCAL)
        return isa.assemble([isa.data_move(flows[random.integers(len(flows))], random.integers(5).item(),
                                           random.integers(100).item(), random.integers(1, 50).item(),
                                           far_stride=random.choice([1, 1, 2, 4]).item()) for _ in range(10)])

    agree(arch, [moves(seed) for seed in range(PROGRAMS)], 30)


@pytest.mark.wide_cases("lanes4_slices")
@pytest.mark.parametrize("name", ["lanes2", "lanes4_slices"])
def test_a_window_that_is_moved_first_takes_the_same_cycles(name: str) -> None:
    """At the beginning of a program nothing is under way, and the Configure waits where it is read."""
    arch = ARCHS[name]
    isa = Isa(arch)
    first, second = (isa.configure(register, 1) for register in (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET))
    begins = [[], [first], [first, second], [isa.no_op(), first, second], [first, isa.no_op(), second]]
    agree(arch, [isa.assemble([*begin, isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 5), isa.mat_mul(0, 0, 2)])
                 for begin in begins], 20)


@pytest.mark.wide_cases("lanes3_every_step")
@pytest.mark.parametrize("name", ["lanes3_every_step", "lanes4_int8"])
def test_two_rows_of_weights_a_cycle_take_the_same_cycles(name: str) -> None:
    """Loads of the whole column, and of a part of it, beside MatMuls that keep banks of local memory busy."""
    arch = ARCHS[name]
    assert arch.weight_load_rows == 2
    isa, lanes = Isa(arch), arch.array_size

    def loads(seed: int) -> bytes:
        random = np.random.default_rng(seed)
        program: list[Instruction] = []
        for _ in range(25):
            zero_bias, stride = random.integers(2).item(), random.choice([1, 1, 2, 4]).item()
            size = lanes + 1 - zero_bias if random.random() < 0.7 else random.integers(1, lanes + 2).item()
            program += [isa.load_weight(random.integers(30).item(), size, zero_bias=bool(zero_bias),
                                        zeroes=random.random() < 0.1, local_stride=stride)]
            if random.random() < 0.8:
                program += [isa.mat_mul(random.integers(20).item(), 0, random.integers(1, 3 * lanes).item(),
                                        local_stride=random.choice([1, 1, 2]).item())]
            if random.random() < 0.3:
                program += [isa.data_move(DataFlow.LOCAL_TO_DRAM0, random.integers(20).item(), 0, 20)]
        return isa.assemble(program)

    agree(arch, [loads(seed) for seed in range(2 * PROGRAMS)], 30)


def test_two_rows_of_weights_a_cycle_beside_a_mat_mul() -> None:
    """12 lanes, whose MatMuls of 8 vectors each have new weights: 13 rows and a cycle, or 7, which are read ahead where
    MatMul's banks are in the way."""
    arch = ARCHS["lanes12_int8"]
    isa = Isa(arch)
    program = isa.assemble([each for number in range(40) for each in (
        isa.load_weight(number, 12, zero_bias=True), isa.mat_mul(50 + number % 4, 0, 8))])
    one, two = (estimate(program, arch.replace(weight_load_rows=rows)).cycles for rows in (1, 2))
    assert 40 * 14 <= one <= 40 * 14 + 50
    assert 40 * 8 <= two <= 40 * 8 + 50


@pytest.mark.wide_cases("lanes3_every_step", "lanes4_slices", "lanes18_taps9")
@pytest.mark.parametrize("name", ["lanes3_every_step", "lanes4_slices", "lanes10_taps9", "lanes18_taps9"])
def test_depthwise_mat_muls_take_the_same_cycles(name: str) -> None:
    """Behind each other and between others, with results that lag, follow and are dropped, rows shorter than the taps,
    new weights, and moves that want the same banks. Several rows of taps, any pitch apart: they want them too."""
    arch = ARCHS[name]
    isa, lanes = Isa(arch), arch.array_size

    def passes(seed: int) -> bytes:
        random = np.random.default_rng(seed)
        program: list[Instruction] = []
        for _ in range(30):
            size, rows = random.integers(1, 6).item(), random.integers(1, 4).item()
            values = {Register.TAP_ORIGIN: random.choice([0, 1, 2, 3]).item(), Register.MAT_MUL_ROWS: rows - 1,
                      Register.TAP_DROPPED: random.integers(4).item(), Register.MAT_MUL_LOCAL_PITCH: 6,
                      Register.MAT_MUL_ACCUMULATOR_PITCH: random.integers(5).item()}
            if arch.kernel_rows > 1:
                values |= {Register.TAP_ROWS: random.choice([7, 7, 7, 6, 3, 5, 2, 1, 0]).item(),
                           Register.TAP_PITCH: random.integers(9).item()}
            program += [isa.configure(register, value) for register, value in values.items()
                        if random.random() < 0.5 or register is Register.MAT_MUL_ROWS]
            if random.random() < 0.5:
                program += [isa.load_weight(random.integers(20).item(), min(lanes, 4))]
            program += [isa.mat_mul(random.integers(20).item(), 0, size, accumulate=random.random() < 0.5,
                                    zeroes=random.random() < 0.1,
                                    local_stride=random.choice([1, 1, 1, 2, 4]).item() if arch.kernel_rows > 1 else 1)]
            if random.random() < 0.4:
                flow = random.choice([DataFlow.ACCUMULATOR_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0]).item()
                program += [isa.data_move(DataFlow(flow), random.integers(20).item(), 0, 10)]
        return isa.assemble(program)

    agree(arch, [passes(seed) for seed in range(2 * PROGRAMS)], 30)


@pytest.mark.wide_cases("lanes4_slices")
@pytest.mark.parametrize("name", ["lanes4_lut", "lanes4_slices"])
def test_repeats_take_the_same_cycles(name: str) -> None:
    """Short and long ones behind each other, of instructions that take no longer than the decoder, and of some that
    fill it: the repeater goes on and stands still."""
    arch = ARCHS[name]
    isa = Isa(arch)

    def repeats(seed: int) -> bytes:
        random = np.random.default_rng(seed)
        made = [isa.no_op(), isa.mat_mul(0, 0, 1), isa.load_weight(3, 2), isa.mat_mul(0, 0, 9),
                isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, 0, 1), isa.configure(Register.INPUT_SHIFT, 1)]
        program = [isa.mat_mul(0, 0, 1), isa.load_weight(3, 2), isa.no_op()]
        for _ in range(40):
            if random.random() < 0.5:
                program.append(isa.repeat(random.integers(1, 4).item(), random.choice([1, 1, 2, 3, 9]).item()))
            else:
                program.append(made[random.integers(len(made))])
        return isa.assemble(program)

    programs = [repeats(seed) for seed in range(2 * PROGRAMS)]
    agree(arch, [program for program in programs if first_stop(program, arch) is None], 20)


def agree(arch: Arch, programs: list[bytes], latency: int) -> None:
    for seed, (program, done) in enumerate(zip(programs, run(arch, programs, latency), strict=True)):
        found = estimate(program, arch, IdealDram(latency, latency))
        assert found.cycles == done.cycles, seed
        assert done.operations is not None
        for column in OPERATION.fields or ():
            assert np.array_equal(found.operations[column], done.operations[column]), (seed, column)


@pytest.mark.wide
def test_a_network_takes_the_same_cycles_and_the_same_ones_are_lost(tmp_path: Path) -> None:
    """The demo's network on 12 lanes: the table of layers from the estimator is that of the trace port."""
    arch = Arch.load("pynq")
    image = np.load(ROOT / "models" / "digits" / "held_out.npz")["image"][:1]
    compile_model(ROOT / "models" / "digits" / "digits.onnx", arch, tmp_path)
    model = TModel.load(tmp_path / "digits.tmodel")
    done = Session(model).run({model.inputs[0].name: image}, on=RTL, check=False, trace_operations=True)
    found = estimate(model.program, arch)
    assert found.cycles == done.cycles
    here, there = (cycles_object(model, waits_of(model, cycles, operations))
                   for cycles, operations in ((found.cycles, found.operations), done.operations[0]))
    assert here == there
    assert here["vectors"] + sum(here["waits"].values()) + here["tail"] == found.cycles
    assert sum(row["cycles"] for row in here["layers"]) + here["tail"] == found.cycles
    assert all(row["vectors"] > 0 for row in here["layers"] if row["kind"] == "mat_mul")


def waits_for(*instructions: Instruction) -> dict[str, int]:
    arch = ARCHS["lanes8"]
    program = Isa(arch).assemble(instructions)
    found = estimate(program, arch)
    read = read_program(program, arch)
    waits = analyse(read, found.operations, found.cycles, np.zeros(len(read.work), np.int64), arch)
    assert waits.vectors.sum() + waits.waits.sum() + waits.tail == found.cycles
    return dict(zip(CAUSES, waits.waits[0], strict=True))


def test_waits_name_what_the_array_waited_for() -> None:
    isa = Isa(ARCHS["lanes8"])
    load, use = isa.load_weight(0, 9), isa.mat_mul(100, 0, 50)
    fetch, store = (isa.data_move(flow, 100, 0, 400) for flow in (DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0))
    assert waits_for(fetch, load, use)["dram_read"] > 700  # 400 vectors of 16 bytes, 8 a cycle
    assert 9 <= waits_for(load, use)["weights"] <= 12  # a row a cycle, and the way from unit to unit
    assert waits_for(load, use, isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 100, 0, 50), use)["moves"] >= 50
    assert waits_for(load, use, store, isa.data_move(DataFlow.DRAM0_TO_LOCAL, 100, 500, 8), use)["dram_write"] > 700
    idle = [isa.configure(Register.TIMEOUT, 0)] * 300
    assert waits_for(load, use, *idle, use)["issue"] > 200


def test_moving_a_window_waits_for_all_before_it() -> None:
    """Configure DRAM0_OFFSET: nothing behind it is issued before everything is done."""
    arch = ARCHS["lanes2"]
    isa = Isa(arch)
    program = isa.assemble([isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 8), isa.configure(Register.DRAM0_OFFSET, 1),
                            isa.data_move(DataFlow.DRAM0_TO_LOCAL, 8, 0, 8), isa.configure(Register.DRAM0_OFFSET, 0)])
    found, (done,) = estimate(program, arch), run(arch, [program], IdealDram().read_latency)
    assert found.cycles == done.cycles
    assert done.operations is not None and np.array_equal(found.operations, done.operations)
