# SPDX-License-Identifier: Apache-2.0
"""Programs of several images: each finds the registers as after reset, whatever the program sets."""

from __future__ import annotations

from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.programs import Batch
from weft.tb.unit.runtime.models import TINY


def configures(isa: Isa, program: bytes) -> list[tuple[int, int]]:
    """Register and value of each Configure."""
    opcode, _, register, value, _ = isa.words(program)
    return [(int(number), int(at)) for code, number, at in zip(opcode, register, value, strict=True)
            if code == Opcode.CONFIGURE]


def test_a_register_that_a_program_sets_is_as_after_reset_for_the_next_image() -> None:
    isa = Isa(TINY)
    own = next(number for number in isa.registers if number >= Register.MAT_MUL_ROWS)
    group, = Batch(isa, isa.assemble([isa.configure(own, isa.registers[own].maximum)])).groups(2)
    found = configures(isa, group[0])
    assert found.count((own, isa.registers[own].maximum)) == 2, "the program, once for each image"
    assert found[-2] == (own, isa.registers[own].reset), "and between them the reset"


def test_a_register_that_the_machine_lacks_is_left_to_the_machine() -> None:
    """Which stops there and names the instruction: a damaged file is no traceback."""
    isa = Isa(TINY)
    assert Register.TAP_PITCH not in isa.registers
    legal = isa.configure(Register.DRAM0_OFFSET, 0)
    lacking = isa.assemble([legal._replace(operand0=int(Register.TAP_PITCH))])
    group, = Batch(isa, lacking).groups(2)
    assert [number for number, _ in configures(isa, group[0])].count(Register.TAP_PITCH) == 2


def test_programs_of_images_have_eight_mebibytes_together() -> None:
    """One program takes as many images as it has room for; a longer program takes one."""
    isa, mebibyte = Isa(TINY), 1 << 20
    for length, images in ((mebibyte, 8), (mebibyte - 1, 8), (mebibyte + 1, 7), (8 * mebibyte, 1), (9 * mebibyte, 1)):
        assert Batch(isa, bytes(length), 1 << 16).most_images == images, length
