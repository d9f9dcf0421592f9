# SPDX-License-Identifier: Apache-2.0
"""What a board's memory takes: its record is LiteDRAM's own, and the estimator's model of it does what that implies.
That the model is LiteDRAM to the cycle: ``tb/system/test_board_dram.py``."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import pytest
from litedram import init

from weft.boards import BOARDS
from weft.boards.board import Memory
from weft.boards.processor_memory import BURSTS, behind_ports
from weft.boards.shell.generate import DFI_BITS, command_bits
from weft.cycles.replay import estimate
from weft.cycles.system import estimate_system
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram, LiteDram
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Instruction, Isa
from weft.simulate.build import DRAM_SOURCES
from weft.tb.bench.asked_litedram import asked

CHIPS = [name for name, board in BOARDS.items() if board.shell and isinstance(board.shell.memory, Memory)]


def dram_of(board: str) -> LiteDram:
    dram = BOARDS[board].dram
    assert isinstance(dram, LiteDram)
    return dram


@pytest.mark.parametrize("board", CHIPS)
def test_the_record_is_what_litedram_says(board: str) -> None:
    """Of the board's own PHY on its own pins, at the clock of its shell."""
    found = subprocess.run([sys.executable, "-m", "weft.boards.shell.controller", board], check=True,
                           capture_output=True, text=True).stdout
    assert found.strip() == repr(dram_of(board))


def test_the_simulated_memory_takes_as_many_bursts_as_is_expected() -> None:
    slots = re.search(r"localparam SLOTS = (\d+);", DRAM_SOURCES[0].read_text())
    assert slots and EXPECTED.bursts == int(slots[1])


def test_boards_without_a_known_controller_have_what_is_expected_anywhere() -> None:
    assert BOARDS["tang_nano_20k"].dram == EXPECTED


@pytest.mark.parametrize("board", ["pynq_z1", "pynq_z2", "ultra96_v2", "zcu104"])
def test_processors_memory_is_a_spread(board: str) -> None:
    """Of cases each slower than the one before, in cycles of the machine's clock; estimates take the typical one."""
    spread = BOARDS[board].spread
    assert spread and spread.typical == BOARDS[board].dram
    cases = [*spread.cases.values()]
    for faster, slower in pairwise(cases):
        assert faster.read_latency < slower.read_latency and faster.bus_bytes > slower.bus_bytes


def test_the_numbers_of_a_spread() -> None:
    """16 bits at 1 050 million transfers a second are 21 bytes in a cycle of 100 MHz."""
    found = behind_ports(16, 1.05e9, 100e6)
    assert found.typical == IdealDram(25, 25, BURSTS, 21 * 0.79)
    assert behind_ports(32, 1.05e9, 50e6).typical == IdealDram(13, 13, BURSTS, 84 * 0.79)


def test_all_ports_share_what_the_bus_moves() -> None:
    """Loads from both windows at once: as long as their bytes take on the bus, or on their ports if it is faster."""
    arch = Arch.load("pynq").replace(local_depth=4096)
    isa, vectors = Isa(arch), 2000
    flows = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM1_TO_LOCAL)
    program = isa.assemble(isa.data_move(flow, place * 2048, 0, vectors) for place, flow in enumerate(flows))
    beats = -(-vectors * arch.vector_bytes // (arch.axi_data_width // 8))
    beat_bytes = arch.axi_data_width // 8

    def cycles(bus_bytes: float) -> int:
        return estimate(program, arch, IdealDram(bus_bytes=bus_bytes)).cycles

    assert cycles(0) == cycles(4 * beat_bytes) < beats + 100
    for share in (0.25, 0.5, 1.0):
        expected = 2 * beats / share
        assert expected - 100 < cycles(share * beat_bytes) < expected + 100, share


def test_the_program_takes_its_share_of_the_bus() -> None:
    """Instructions that are read while a load runs: the load takes longer by their bytes, and no more."""
    arch = Arch.load("pynq").replace(local_depth=4096)
    isa, vectors, others = Isa(arch), 4000, 1500
    load = isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, vectors)
    share = arch.axi_data_width // 8

    def cycles(*instructions: Instruction) -> int:
        return estimate(isa.assemble(instructions), arch, IdealDram(bus_bytes=share)).cycles

    expected = cycles(load) + others * isa.instruction_bytes / share
    assert expected - 100 < cycles(load, *[isa.no_op()] * others) < expected + 100


def test_cores_share_what_the_bus_moves() -> None:
    """Loads and saves of three cores at three ports: as long as all their bytes take on the bus."""
    arch = Arch.load("pynq_3x8")
    isa, vectors = Isa(arch), 1000
    beat_bytes = arch.axi_data_width // 8
    beats = vectors * arch.vector_bytes // beat_bytes

    def cycles(flow: DataFlow, bus_bytes: float) -> int:
        program = isa.assemble([isa.data_move(flow, 0, 0, vectors)])
        return estimate_system([program] * arch.cores, arch, IdealDram(bus_bytes=bus_bytes)).cycles

    for flow in (DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0):
        assert cycles(flow, 0) == cycles(flow, 8 * beat_bytes) < beats + 100
        for share in (0.5, 1.0):
            expected = arch.cores * beats / share
            assert expected - 100 < cycles(flow, share * beat_bytes) < expected + 100, (flow, share)


@pytest.mark.parametrize(("board", "first", "each"), [("ulx3s", 18, 4), ("colorlight_i9", 16, 2), ("ecpix5", 24, 2)])
def test_a_read_opens_its_row_and_then_waits_for_the_chips_width(board: str, first: int, each: int) -> None:
    """Beats of 64 bits: 16 bits a cycle, 32, and a word of DDR3 each, which two cycles are for."""
    taken = asked(dram_of(board), [(0, "read", 0, 3)])["r"]
    assert taken == [first, first + each, first + 2 * each]


@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
def test_an_open_row_is_there_sooner_than_another_one(board: str) -> None:
    dram = dram_of(board)
    rows = dram.banks * dram.row_bytes
    same, other = (asked(dram, [(0, "read", 0, 1), (60, "read", address, 1)])["r"][1] - 60 for address in (8, rows))
    closed = asked(dram, [(60, "read", 0, 1)])["r"][0] - 60
    assert closed - same == 3 + dram.t_rcd, "the bank's turn for the master, the bus's for the bank, activate, tRCD"
    assert other - same >= 1 + dram.t_rp + dram.t_rcd, "precharge, activate"


def test_a_fifth_row_is_opened_after_the_window_of_four() -> None:
    """tFAW: of reads in five banks, one every ten cycles, the last waits until the first is long enough ago."""
    dram, window = dram_of("ecpix5"), 90
    reads = [(10 * bank, "read", bank * dram.row_bytes, 1) for bank in range(5)]
    free, kept, longer = (asked(each, reads)["r"] for each in (
        dram, replace(dram, t_faw=window), replace(dram, t_faw=window + 7)))
    assert kept[:4] == longer[:4] == free[:4]
    assert kept[4] - kept[0] >= window and longer[4] - kept[4] == 7


@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
@pytest.mark.parametrize("cycles", [60, 67])
def test_rows_are_opened_and_closed_as_long_after_another_as_the_chip_asks(board: str, cycles: int) -> None:
    """Times far longer than any chip's. Of one bank's rows: from opening to closing (tRAS, then tRP), and from opening
    to opening (tRC). Of two banks' rows: from opening to opening (tRRD), a cycle more behind the bus's turn."""
    dram = dram_of(board)
    same, other = dram.banks * dram.row_bytes, dram.row_bytes
    for name, address, wanted in (("t_ras", same, cycles + dram.t_rp), ("t_rc", same, cycles),
                                  ("t_rrd", other, cycles + 1)):
        first, second = asked(replace(dram, **{name: cycles}), [(0, "read", 0, 1), (1, "read", address, 1)])["r"]
        assert second - first == wanted, name


@pytest.mark.parametrize("board", ["ulx3s", "ecpix5"])
def test_a_row_is_closed_though_another_bank_has_just_opened_one(board: str) -> None:
    """tRRD holds back what opens a row alone: here it runs while tRP of the other bank does."""
    dram = replace(dram_of(board), t_rp=60, t_rrd=60)
    reads = [(0, "read", dram.row_bytes, 1), (90, "read", 0, 1), (91, "read", (dram.banks + 1) * dram.row_bytes, 1)]
    _, opened, behind = asked(dram, reads, 400)["r"]
    assert 60 <= behind - opened < 75


def test_a_write_then_a_read_turns_the_bus() -> None:
    dram = dram_of("ulx3s")
    alone = asked(dram, [(1, "read", 0, 4)])["r"]
    behind = asked(dram, [(0, "write", 0, 4), (1, "read", 0, 4)])
    assert behind["b"] and behind["r"][0] > behind["b"][0], "the write was first"
    assert behind["r"][0] - alone[0] >= 16 + dram.column_write_latency + dram.t_wtr, "16 commands, and the turn"


@pytest.mark.parametrize("board", ["ulx3s", "ecpix5"])
def test_refresh_keeps_a_read_waiting_and_closes_its_row(board: str) -> None:
    dram = dram_of(board)
    at = dram.t_refi - 3
    free, kept = (asked(dram, [(cycle, "read", 0, 1)], 2 * dram.t_refi)["r"][0] - cycle for cycle in (at // 2, at))
    assert kept - free >= dram.t_rfc + dram.t_rp


def test_half_a_word_each_is_written_and_answered() -> None:
    """Two beats of a DDR3 word. With LiteDRAM's own converter no command ever followed."""
    assert len(asked(dram_of("ecpix5"), [(0, "write", 0, 16), (60, "write", 4096, 1)], 400)["b"]) == 2


def test_bits_of_the_controllers_registers_are_those_of_litedrams_header() -> None:
    """The host starts DRAM with them; the header that LiteDRAM writes for firmware states the same."""
    defined = {name: int(bits, 16) for name, bits in re.findall(
        r'define\("(DFII_\w+)", +"(0x\w+)"\)', inspect.getsource(init))}
    assert {name: command_bits(name) for name in DFI_BITS} == {name: defined[name] for name in DFI_BITS}
    assert command_bits("DFII_COMMAND_RAS|DFII_COMMAND_CS") == 9
