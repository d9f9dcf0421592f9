# SPDX-License-Identifier: Apache-2.0
"""How fast the driver is on links whose time is counted: each word goes once, and an end is noticed soon."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.tb.bench.timed_board import SPEEDS, UART, LinkSpeed, TimedBoard, timed
from weft.tb.unit.driver.test_device import TINY, inputs_for
from weft.tb.unit.runtime.models import model
from weft.tmodel.manifest import TModel

SECONDS = 0.03
"""How long the program takes."""
SHORT = 0.005
"""A program of some times an answer over USB."""
LATE = 1.02
"""The most by which an end may be noticed late, as a share of the program."""
MOST_EXCHANGES = 9
"""Answers that an image waits for: memory, reset, start, two looks at STATUS, counters, the output."""


def large(folder: Path, arch: Arch = TINY) -> TModel:
    """A model of 64 KiB of program, all of it to be sent."""
    isa = Isa(arch)
    steps = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, at % 50, at % 60, 1) for at in range(8000)]
    return model(folder, arch, steps, [np.zeros((1, arch.array_size), int)])


def board_of(made: TModel, seconds: float = SECONDS) -> TimedBoard:
    region = Region(bus=0x4000_0000, machine=0, size=1 << 20)
    return TimedBoard(made.arch, MemoryMap.shared(0x9000_0000, region), seconds)


@pytest.mark.parametrize("speed", SPEEDS, ids=[speed.kind for speed in SPEEDS])
def test_an_end_is_noticed_soon(speed: LinkSpeed, tmp_path: Path) -> None:
    """The first time too, when nobody knows how long the program takes; besides the time of an answer."""
    made = large(tmp_path)
    board = board_of(made)
    device, _, _ = timed(speed, board, witnessed=True)
    device.load(made)
    for _ in range(4):
        device.run(inputs_for(made), raw=True)
    answer = 2 * speed.turnaround + 60 * speed.byte_seconds
    assert len(board.late) == 4
    assert max(board.late) < LATE + 2 * answer / SECONDS, board.late


def test_looks_at_a_long_run_are_rarer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the time that is gone lies between two: 3 ms at the end, and at the start 0.1 ms."""
    made, pauses = large(tmp_path), []
    device, _, _ = timed(SPEEDS[1], board_of(made, seconds=0.3), witnessed=True)
    bridge = device.target.bridge  # type: ignore[attr-defined]
    pause = bridge.pause

    def listening(seconds: float) -> None:
        pauses.append(seconds)
        pause(seconds)

    monkeypatch.setattr(bridge, "pause", listening)
    device.load(made)
    device.run(inputs_for(made), raw=True)
    assert min(pauses) == 1e-4 and 0.0028 < max(pauses) < 0.0032


@pytest.mark.parametrize("speed", SPEEDS, ids=[speed.kind for speed in SPEEDS])
def test_an_end_that_is_expected_is_noticed_at_once(speed: LinkSpeed, tmp_path: Path) -> None:
    """However short the program is beside an answer: its cycles were counted when it ran before."""
    made = large(tmp_path)
    board = board_of(made, seconds=8 * SHORT)
    device, _, _ = timed(speed, board, witnessed=True)
    device.load(made)
    for _ in range(5):
        device.run(inputs_for(made), raw=True)
    assert len(board.late) == 5 and max(board.late[1:]) < LATE, board.late
    board.seconds, board.late = SHORT, []  # the next run is expected to last longer
    for _ in range(3):
        device.run(inputs_for(made), raw=True)
    assert max(board.late[1:]) < LATE + 60 * speed.byte_seconds / SHORT, board.late


def test_what_a_run_takes_besides_the_program_does_not_grow(tmp_path: Path) -> None:
    """Nobody knows the clock. A wait that began after the start's answer would be longer from run to run."""
    made = large(tmp_path)
    speed = SPEEDS[1]
    board = board_of(made, seconds=SHORT)
    device, _, _ = timed(speed, board, witnessed=True, clock_hz=None)
    device.load(made)
    for _ in range(12):
        device.run(inputs_for(made), raw=True)
    assert max(board.late) < LATE + speed.turnaround / SHORT, board.late


def test_a_load_goes_over_the_line_once(tmp_path: Path) -> None:
    made = large(tmp_path)
    device, wire, carried = timed(UART, board_of(made), witnessed=True)
    device.load(made)
    carried.clear()
    began = wire.now
    device.run(inputs_for(made), raw=True)
    line = 1.1 * len(made.program)
    assert sum(carried) < line and wire.now - began < line * UART.byte_seconds + SECONDS * LATE


def test_an_image_waits_for_few_answers(tmp_path: Path) -> None:
    made = large(tmp_path)
    speed = LinkSpeed("Etherbone", 0.0, 1e-3)
    device, wire, _ = timed(speed, board_of(made), witnessed=True)
    device.load(made)
    device.run(inputs_for(made), raw=True)
    began = wire.now
    device.run(inputs_for(made), raw=True)
    assert wire.now - began < SECONDS * LATE + MOST_EXCHANGES * speed.turnaround
