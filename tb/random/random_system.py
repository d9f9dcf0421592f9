# SPDX-License-Identifier: Apache-2.0
"""Seeded random programs for several cores, each in windows of its own, which end with a dump of the core."""

from __future__ import annotations

import numpy as np

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.tb.random.dump_program import default_offset_blocks, dump_program
from weft.tb.random.random_program import random_program, random_vectors

WINDOW_BLOCKS = 4
"""Of 64 KiB, of each core in each DRAM: a window begins at one of them."""
OFFSETS = (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET)


def random_programs(arch: Arch, seed: int, length: int) -> list[bytes]:
    """Return a legal program for each core: no byte that one writes is another's.

    What a core holds at the end is in DRAM."""
    return [Isa(arch).assemble(_program(arch, core, seed * arch.cores + core, length)) for core in range(arch.cores)]


def _program(arch: Arch, core: int, seed: int, length: int) -> list[Instruction]:
    isa, first = Isa(arch), WINDOW_BLOCKS * core
    begins = [isa.configure(register, first) for register in OFFSETS]
    body = [_moved(each, first) for each in random_program(arch, seed, length, core)]
    return [*begins, *body, *dump_program(arch, offset_blocks=default_offset_blocks(arch) + first)]


def _moved(instruction: Instruction, first: int) -> Instruction:
    """Return a Configure of a window's offset, moved into the core's own blocks; other instructions stay."""
    operands = (instruction.operand0, instruction.operand1)
    if instruction.opcode != Opcode.CONFIGURE or operands[0] not in OFFSETS:
        return instruction
    return instruction._replace(operand1=first + min(operands[1], WINDOW_BLOCKS - 1))


def fill(arch: Arch, dram: Dram, seed: int) -> None:
    """Write random vectors into every block of every core's windows."""
    for block in range(WINDOW_BLOCKS * arch.cores):
        vectors: np.ndarray = random_vectors(arch, seed * 1000 + block, min(max(arch.dram0_depth, arch.dram1_depth),
                                                                          (1 << 16) // arch.vector_bytes))
        dram.write(0, vectors, block)
