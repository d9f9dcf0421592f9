# SPDX-License-Identifier: Apache-2.0
"""Error responses as a matrix: code x master x operations under way before x beat x another error behind.

The first error counts, and stands for its own instruction; what came before is done, and nothing behind is."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import PAGE_BYTES, RtlResult, run_many_on_rtl
from weft.tb.random.lockstep_archs import lockstep_archs

ARCHS = lockstep_archs()
CODES = (1, 2, 3)
"""EXOKAY, SLVERR and DECERR."""
CAUSES = {DataFlow.DRAM0_TO_LOCAL: Cause.DRAM0_READ_RESPONSE, DataFlow.LOCAL_TO_DRAM0: Cause.DRAM0_WRITE_RESPONSE,
          DataFlow.DRAM1_TO_LOCAL: Cause.DRAM1_READ_RESPONSE, DataFlow.LOCAL_TO_DRAM1: Cause.DRAM1_WRITE_RESPONSE}
SIZE = 4
"""Vectors of each operation."""
FIRST, BAD, SECOND, NEVER, DONE = 100, 200, 300, 400, 500
"""DRAM addresses: of the operations under way, of the bad one, of one behind it that may be bad too, of a copy far
behind, and of vectors that the programs copy before everything, one each."""
FETCHED = 8
"""Whole instructions that may be fetched, and not decoded, when an error of the program comes."""
LATENCY = 70
"""Cycles of the memories: all operations are under way when the bad one is answered."""


@dataclass(frozen=True)
class Cell:
    """A case of the matrix.

    ``before``: operations under way; ``vector``: of the bad one; ``again``: whether the next one is bad too."""

    flow: DataFlow
    code: int
    before: int
    vector: int
    again: bool

    def program(self, isa: Isa, number: int) -> list[Instruction]:
        """Return the instructions of cell ``number``: the bad one has program counter 2 + ``before``."""
        def move(number: int, address: int) -> Instruction:
            return isa.data_move(self.flow, SIZE * number, address, SIZE)

        moves = [move(2 + number, FIRST + SIZE * number) for number in range(self.before)]
        behind = move(9, SECOND)
        never = [isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, NEVER, SIZE),
                 isa.data_move(DataFlow.LOCAL_TO_DRAM1, 0, NEVER, SIZE)]
        copy = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE),
                isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, DONE + number, 1)]
        return [*copy, *moves, move(8, BAD), behind, *[isa.no_op()] * 400, *never]

    def settings(self, arch: Arch) -> MemorySettings:
        """Return the memory that answers the bad vector, and all from ``SECOND`` on if ``again``, with the code."""
        low = (BAD + self.vector) * arch.vector_bytes
        high = (SECOND + SIZE) * arch.vector_bytes if self.again else low + 1
        return MemorySettings(error_lo=low, error_hi=high, error_response=self.code, read_latency=LATENCY,
                              write_latency=LATENCY)


def cells() -> list[Cell]:
    return [Cell(*cell) for cell in product(CAUSES, CODES, range(5), (0, 1, SIZE - 1), (False, True))]


def wrong(cell: Cell, result: RtlResult) -> str:
    """Return what a run did other than it must, or nothing."""
    found, expected = (result.error_cause, result.error_program_counter), (CAUSES[cell.flow], 2 + cell.before)
    return "" if found == expected else f"{cell}: stopped with {found}, not {expected}"


@pytest.mark.wide_cases("lanes3_every_step")
@pytest.mark.parametrize("name", ["lanes2", "lanes3_every_step"])
def test_the_first_error_of_data_counts_whatever_its_code(name: str) -> None:
    """All cells in one simulation, with a soft reset between: so each also shows that the one before left no trace."""
    arch, isa, all_cells = ARCHS[name], Isa(ARCHS[name]), cells()
    dram0, dram1 = Dram(arch), Dram(arch)
    rows = np.arange(SIZE * arch.array_size).reshape(SIZE, arch.array_size) + 1
    dram0.write(0, rows)
    settings = [{"dram0": cell.settings(arch), "dram1": cell.settings(arch)} for cell in all_cells]
    programs = [isa.assemble(cell.program(isa, number)) for number, cell in enumerate(all_cells)]
    results = run_many_on_rtl(arch, programs, dram0, dram1, memories=settings)
    found = [text for cell, result in zip(all_cells, results, strict=True) if (text := wrong(cell, result))]
    assert not found, "\n".join(found)
    assert (dram0.read(DONE, len(all_cells)) == rows[0]).all(), "what came before is done"
    assert not dram0.read(NEVER, SIZE).any() and not dram1.read(NEVER, SIZE).any(), "nothing behind is"


@pytest.mark.parametrize("name", ["lanes2", "lanes4_lut"])
def test_an_error_of_the_program_stops_before_its_first_bad_instruction(name: str) -> None:
    """Code x operations under way x byte that is bad: nothing of it or behind it runs."""
    arch, isa = ARCHS[name], Isa(ARCHS[name])
    all_cells = list(product(CODES, range(5), (300, 301, 339, 512, 700)))
    dram0, dram1 = Dram(arch), Dram(arch)
    dram0.write(0, np.ones((SIZE, arch.array_size), int))
    programs, settings, whole = [], [], []
    for number, (code, under_way, byte) in enumerate(all_cells):
        beat_bytes, address = arch.stream_width // 8, number * PAGE_BYTES + byte
        whole.append(byte // beat_bytes * beat_bytes // isa.instruction_bytes)
        moves = [isa.data_move(DataFlow.DRAM1_TO_LOCAL, SIZE * at, FIRST, SIZE) for at in range(under_way)]
        before = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 80, 0, 1),
                  isa.data_move(DataFlow.LOCAL_TO_DRAM0, 80, DONE + number, 1),
                  *[isa.no_op()] * (whole[-1] - 2 - under_way), *moves]
        programs.append(isa.assemble([*before, *[isa.data_move(DataFlow.LOCAL_TO_DRAM0, 80, NEVER, 1)] * 200]))
        settings.append({"program": MemorySettings(error_lo=address, error_hi=address + 1, error_response=code),
                         "dram1": MemorySettings(read_latency=LATENCY)})
    assert max(map(len, programs)) <= PAGE_BYTES, "programs lie a page apart"
    results = run_many_on_rtl(arch, programs, dram0, dram1, memories=settings)
    assert {result.error_cause for result in results} == {Cause.PROGRAM_READ_RESPONSE}
    lost = [count - result.error_program_counter for count, result in zip(whole, results, strict=True)]
    assert min(lost) >= 0 and max(lost) <= FETCHED, "the instruction that would have been decoded next is told"
    assert dram0.read(DONE, len(all_cells)).all(), "what came before is done"
    assert not dram0.read(NEVER, SIZE).any(), "nothing behind is"
