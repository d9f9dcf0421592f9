# SPDX-License-Identifier: Apache-2.0
"""The last value that is allowed, and the first that is not, stated by hand: of options, shell files and memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.driver.needs import PAGE_BYTES, moved, needs_of_one, written
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.driver.targets import read_device
from weft.support.errors import WeftError
from weft.tb.unit.driver.test_device import SIZE, TINY, adder
from weft.tb.unit.driver.test_shell_file import SHELL

END = 1 << 32
"""The first byte that a bus with 32 bits of address does not have."""
ON_CHIP = {**SHELL, "dram": None, "memory": {"base": END - 0x10000, "bytes": 0x10000}}


# -- options of a device string ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("option", "least", "most"), [
    ("serial:x?timeout_cycles", 0, 0xFFFF), ("serial:x?sample_cycles", 0, 0xFFFF),
    ("sim:tiny?sample_cycles", 0, 0xFFFF), ("serial:x?tracepoint", 0, 0xFFFFFFFF),
    ("udp:x?dram0_cache", 0, 15), ("mmio:x?dram1_cache", 0, 15), ("udp:x?port", 1, 65535),
    ("serial:x?baud", 1200, 12_000_000), ("mmio:x?cores", 1, 16)])
def test_the_edges_of_an_option(option: str, least: int, most: int) -> None:
    """Registers of sixteen, 32 and four bits, ports of UDP: none is one number longer or shorter."""
    name = option.partition("?")[2]
    for good in (least, most):
        assert read_device(f"{option}={good}")[2][name] == good
    for bad in (least - 1, most + 1):
        with pytest.raises(WeftError, match=f"device option {name}: found '{bad}'"):
            read_device(f"{option}={bad}")


@pytest.mark.parametrize("option", ["serial:x?memory", "serial:x?registers", "udp:x?bytes", "mmio:x?address"])
def test_addresses_are_words(option: str) -> None:
    name = option.partition("?")[2]
    assert read_device(f"{option}=0x2000")[2][name] == 0x2000
    for bad in ("0x2001", "0x2002", "0x2003"):
        with pytest.raises(WeftError, match="a multiple of 4"):
            read_device(f"{option}={bad}")


def test_seconds_have_parts() -> None:
    assert read_device("serial:x?seconds=2.5")[2]["seconds"] == 2.5
    assert read_device("sim:tiny", {"seconds": 0.25})[2]["seconds"] == 0.25


# -- a shell file ------------------------------------------------------------------------------------------------------
def windows(*places: tuple[int, int]) -> dict[str, Any]:
    """A shell file whose on-chip memories lie at (bytes after the memory's begin, bytes)."""
    return {**ON_CHIP, "windows": {name: {"base": ON_CHIP["memory"]["base"] + at, "bytes": size}
                                   for name, (at, size) in zip(("dram0", "dram1", "program"), places, strict=True)}}


def test_on_chip_memories_may_touch_and_fill_the_memory_to_the_last_byte() -> None:
    found = ShellFile.of(windows((0, 0x8000), (0x8000, 0x4000), (0xC000, 0x4000)))
    assert [place.bytes for place in found.places] == [0x8000, 0x4000, 0x4000]


@pytest.mark.parametrize("places", [
    ((0, 0x8004), (0x8000, 0x4000), (0xC000, 0x4000)), ((0, 0x8000), (0x8000, 0x4000), (0xBFFC, 0x4000)),
    ((-4, 0x8000), (0x8000, 0x4000), (0xC000, 0x4000)), ((0, 0x8000), (0, 0x8000), (0xC000, 0x4000))])
def test_one_word_too_far(places: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="overlap, or lie outside memory"):
        ShellFile.of(windows(*places))


def test_on_chip_memories_end_within_the_memory() -> None:
    """Also where the bus goes on behind it."""
    content = windows((0, 0x8000), (0x8000, 0x4000), (0xC000, 0x4000))
    content["memory"] = {**ON_CHIP["memory"], "bytes": 0x10000 - 4}
    with pytest.raises(ValueError, match="overlap, or lie outside memory"):
        ShellFile.of(content)


def test_memory_ends_with_the_bus() -> None:
    assert ShellFile.of({**SHELL, "memory": {"base": 0x8000_0000, "bytes": 0x8000_0000}}).places[0].bytes == 1 << 31
    assert ShellFile.of({**SHELL, "memory": {"base": 0, "bytes": END}}).places[0].bytes == END
    for base, size in ((0x8000_0004, 0x8000_0000), (4, END), (END - 0x1000, 0x1004)):
        with pytest.raises(ValueError, match="memory beyond"):
            ShellFile.of({**SHELL, "memory": {"base": base, "bytes": size}})


@pytest.mark.parametrize("name", ["read_phase", "write_phase"])
def test_a_phase_is_one_of_those_that_there_are(name: str) -> None:
    phases = SHELL["dram"]["phases"]
    both = {**SHELL["dram"], "read_phase": 0, "write_phase": 0}
    assert ShellFile.of({**SHELL, "dram": {**both, name: phases - 1}}).dram
    with pytest.raises(ValueError, match="a phase for reads or writes beyond"):
        ShellFile.of({**SHELL, "dram": {**both, name: phases}})


@pytest.mark.parametrize("phase", [0, None])
def test_the_only_phase_may_be_named_or_not(phase: int | None) -> None:
    assert ShellFile.of({**SHELL, "dram": {**SHELL["dram"], "phases": 1, "read_phase": phase, "write_phase": phase}})


@pytest.mark.parametrize("name", ["ctrl_scratch", "sdram_dfii_control", "sdram_dfii_pi0_command",
                                  "sdram_dfii_pi0_command_issue", "sdram_dfii_pi0_address", "sdram_dfii_pi0_baddress",
                                  "sdram_dfii_pi0_wrdata", "sdram_dfii_pi0_rddata"])
def test_each_register_that_the_start_uses_is_asked_for(name: str) -> None:
    without = {key: place for key, place in SHELL["registers"].items() if key != name}
    with pytest.raises(ValueError, match=f"no register {name}"):
        ShellFile.of({**SHELL, "registers": without})


# -- the memory that a program needs -----------------------------------------------------------------------------------
def test_written_ranges_that_touch_or_overlap_are_one() -> None:
    isa = Isa(TINY)

    def stores(*ranges: tuple[int, int]) -> list[tuple[str, int, int]]:
        moves = [isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, at, size) for at, size in ranges]
        return written(isa.assemble(moves), TINY)

    assert stores((8, 4), (12, 2)) == [("dram0", 8, 14)]
    assert stores((12, 2), (8, 4)) == [("dram0", 8, 14)]
    assert stores((8, 8), (10, 2)) == [("dram0", 8, 16)]
    assert stores((8, 4), (13, 2)) == [("dram0", 8, 12), ("dram0", 13, 15)]
    assert written(isa.assemble([isa.data_move(DataFlow.LOCAL_TO_DRAM1, 0, 3, 1)]), TINY) == [("dram1", 3, 4)]
    assert written(isa.assemble([isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 3, 1)]), TINY) == []


def test_needs_hold_all_that_a_program_reaches(tmp_path: Path) -> None:
    """The adder's input and output, the vectors from 2 on that it loads; and room before each of its two programs."""
    made = adder(tmp_path)
    needs = needs_of_one(made)
    assert needs["dram0"] == max(port.base + port.size for port in (*made.inputs, *made.outputs)) * TINY.vector_bytes
    assert needs["dram1"] == (2 + SIZE) * TINY.vector_bytes
    assert needs["program"] == len(made.program) + 4 * PAGE_BYTES


def test_windows_at_zero_leave_a_program_as_it_is() -> None:
    class Places:
        """Windows that begin at these blocks."""

        def __init__(self, **blocks: int) -> None:
            self._blocks = blocks

        def blocks(self, memory: str) -> int:
            return self._blocks.get(memory, 0)

    isa = Isa(TINY)
    program = isa.assemble([isa.no_op()])
    assert moved(isa, program, Places()) == (program, 0)  # type: ignore[arg-type]
    for places, count in ((Places(dram0=1), 2), (Places(dram1=5), 2), (Places(dram0=1, dram1=2), 3)):
        found, before = moved(isa, program, places)  # type: ignore[arg-type]
        assert before == count and len(found) == (count + 1) * isa.instruction_bytes and found.endswith(program)
