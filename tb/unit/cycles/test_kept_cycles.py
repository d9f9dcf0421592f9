# SPDX-License-Identifier: Apache-2.0
"""Cycles that short programs took on the simulated hardware, which the estimator's kernels give as plain Python.

Each program asks for one room: what is walked, asked and sent ahead, and who waits for whom. A rule that changes is a
rule of the hardware too: then ``tb/system/test_estimator.py`` says what RTL takes now."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft.cycles import replay, system
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import Register
from weft.tb.bench.plain_kernels import Fields, plain
from weft.tb.random.lockstep_archs import lockstep_archs

IN, OUT, OTHER = DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0, DataFlow.DRAM1_TO_LOCAL
LEAVE, ENTER = DataFlow.ACCUMULATOR_TO_LOCAL, DataFlow.LOCAL_TO_ACCUMULATOR
Program = list[Instruction]


def fielded(given: Any) -> Any:
    """The same records, whose fields are attributes; anything else as it is."""
    kind = given.dtype if isinstance(given, np.ndarray | np.void) else None
    return given.view(np.dtype((Fields, kind))) if kind is not None and kind.names else given


@pytest.fixture(autouse=True)
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entries that Python calls, as plain functions of records with fields."""
    for module in (replay, system):
        for name in ("new_state", "machine_record"):
            made = getattr(module, name)
            monkeypatch.setattr(module, name, lambda *given, made=made: fielded(np.array(made(*given)).reshape(1))[0])
    monkeypatch.setattr(system, "new_ports", lambda *given, made=system.new_ports: fielded(made(*given)))
    monkeypatch.setattr(system, "STATE", np.dtype((Fields, system.STATE)))
    for module, name in ((replay, "start"), (replay, "replay"), (system, "replay_system"), (system, "begin")):
        own = plain(getattr(module, name))
        monkeypatch.setattr(module, name, lambda *given, own=own: own(*map(fielded, given)))


def writes(isa: Isa) -> Program:
    """Short and long ones, with strides on either side and in rows; the last one behind a read of its vectors."""
    return [isa.data_move(OUT, 0, 1, 1), isa.data_move(OUT, 1, 9, 1), isa.data_move(OUT, 2, 17, 1),
            isa.data_move(OUT, 3, 25, 1), isa.data_move(OUT, 4, 33, 1), isa.data_move(OUT, 5, 2, 7),
            isa.data_move(OUT, 0, 40, 4, far_stride=2), isa.configure(Register.MOVE_ROWS, 2),
            isa.configure(Register.MOVE_FAR_PITCH, 9), isa.data_move(OUT, 0, 60, 3),
            isa.configure(Register.MOVE_ROWS, 0), isa.data_move(OUT, 3, 3, 45), isa.data_move(IN, 44, 3, 4),
            isa.data_move(OUT, 44, 5, 2)]


def loads(isa: Isa) -> Program:
    """The whole column again and again, parts of it, zeros, and MatMuls between them in the way of their banks."""
    lanes = isa.arch.array_size
    return [isa.data_move(IN, 0, 0, 24), isa.load_weight(0, lanes + 1), isa.load_weight(3, lanes, zero_bias=True),
            isa.mat_mul(1, 0, 2), isa.load_weight(1, lanes + 1, local_stride=2), isa.mat_mul(2, 4, 12),
            isa.load_weight(5, 2), isa.load_weight(7, 1, zero_bias=True), isa.mat_mul(0, 0, 3, local_stride=2),
            isa.load_weight(0, lanes + 1, zeroes=True), isa.load_weight(2, lanes + 1), isa.load_weight(9, lanes + 1),
            isa.mat_mul(8, 8, 9, accumulate=True), isa.load_weight(0, lanes), isa.mat_mul(8, 8, 1)]


def moves(isa: Isa) -> Program:
    """Into the accumulators and out again, beside reads of both windows that end within beats."""
    return [isa.data_move(IN, 0, 1, 9), isa.data_move(OTHER, 20, 3, 5), isa.data_move(ENTER, 0, 0, 9),
            isa.data_move(ENTER, 20, 4, 5), isa.data_move(LEAVE, 30, 0, 9), isa.data_move(IN, 45, 7, 2, far_stride=2),
            isa.data_move(LEAVE, 45, 1, 4), isa.data_move(OTHER, 0, 5, 6, far_stride=2), isa.data_move(OUT, 30, 2, 9)]


PROGRAMS: dict[str, Callable[[Isa], Program]] = {"writes": writes, "loads": loads, "moves": moves}
ARCHS = lockstep_archs()
SLOW, QUICK = IdealDram(9, 34), IdealDram(5, 5)
CORES = ARCHS["lanes2"].replace(dram_ports=SHARED, cores=3, memory_ports=1)
JOINING = CORES.replace(cores=2, join_cycles=12)


def together(arch: Arch) -> list[bytes]:
    """A program for each core: reads of the same constants, writes of a few bursts, and one core that begins later."""
    isa = Isa(arch)
    joins = [isa.configure(Register.DRAM1_CACHE, 2)] * bool(arch.join_cycles)
    return [isa.assemble([*joins, *[isa.no_op()] * (3 * core), isa.data_move(OTHER, 0, 0, 20),
                          isa.data_move(OUT, 0, 100 * core, 12 + core, far_stride=1 + core % 2),
                          isa.data_move(OTHER, 30, 20, 9), isa.data_move(IN, 50, 100 * core, 5),
                          isa.data_move(OUT, 30, 100 * core + 50, 40)]) for core in range(arch.cores)]


@pytest.mark.parametrize(("name", "program", "dram", "cycles", "ends"), [
    ("lanes2", "writes", SLOW, 364, [53, 56, 102, 105, 151, 160, 203, 217, 296, 317, 363]),
    ("lanes4_int8", "writes", QUICK, 206, [26, 30, 49, 53, 72, 82, 98, 113, 165, 184, 204]),
    ("lanes3_every_step", "writes", SLOW, 266, [54, 57, 60, 63, 104, 112, 118, 128, 197, 218, 265]),
    ("lanes3_every_step", "loads", QUICK, 95, [45, 50, 53, 63, 57, 77, 60, 63, 80, 72, 74, 76, 93, 80, 94]),
    ("lanes4_int8", "loads", SLOW, 119, [50, 58, 62, 73, 70, 91, 74, 81, 94, 86, 93, 98, 116, 107, 117]),
    ("lanes4_slices", "moves", SLOW, 140, [34, 39, 54, 59, 83, 41, 87, 79, 138]),
    ("lanes12", "moves", SLOW, 166, [52, 41, 69, 74, 94, 58, 98, 104, 165])])
def test_a_program_takes_the_cycles_that_it_took(name: str, program: str, dram: IdealDram, cycles: int,
                                                 ends: list[int]) -> None:
    """When each operation ends, and when the machine rests."""
    isa = Isa(ARCHS[name])
    found = replay.estimate(isa.assemble(PROGRAMS[program](isa)), isa.arch, dram)
    assert (found.operations["finish_cycle"].tolist(), found.cycles) == (ends, cycles)


@pytest.mark.parametrize(("arch", "ends", "cycles", "beats"), [
    (CORES, [[46, 103, 55, 126, 211], [69, 128, 78, 151, 244], [90, 149, 99, 172, 276]], [212, 245, 277], (73, 86)),
    (JOINING, [[55, 112, 64, 135, 226], [50, 120, 59, 143, 248]], [227, 249], (33, 59))])
def test_cores_on_one_port_take_the_cycles_that_they_took(arch: Arch, ends: list[list[int]], cycles: list[int],
                                                          beats: tuple[int, int]) -> None:
    """With programs on the same port; reads of the same constants are one where they may be."""
    found = system.estimate_system(together(arch), arch, SLOW)
    assert [own.operations["finish_cycle"].tolist() for own in found.cores] == ends
    assert [own.cycles for own in found.cores] == cycles
    port, = found.ports
    assert (port.read_beats, port.write_beats) == beats
