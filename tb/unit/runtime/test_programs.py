# SPDX-License-Identifier: Apache-2.0
"""Programs of several images: each finds the registers as after reset, whatever the program sets."""

from __future__ import annotations

import pytest

from weft.golden.dram import MOST_ADDRESS_BITS
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
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


@pytest.mark.parametrize("cores", [1, 2, 3])
def test_each_instruction_has_its_image_and_its_place_in_the_program(cores: int) -> None:
    """Of five images, on each core; what goes before an image's program has numbers below 0.

    Registers are set back between two images of one program, and nowhere else."""
    arch = TINY.replace(cores=cores, dram_ports="shared", sync_counters=cores) if cores > 1 else TINY
    isa, size = Isa(arch), 5
    own = next(number for number in isa.registers if number >= Register.MAT_MUL_ROWS)
    program = isa.assemble([isa.configure(own, 1), *[isa.no_op()] * 2])
    batch, bytes_ = Batch(isa, program, 1 << 16), isa.instruction_bytes
    groups, images = batch.groups(size), []
    for group, programs in enumerate(groups):
        for core, content in enumerate(programs):
            places = [batch.place(group, core, at) for at in range(len(content) // bytes_)]
            for at, (image, number) in enumerate(places):
                code = content[at * bytes_:(at + 1) * bytes_]
                assert code == program[number * bytes_:(number + 1) * bytes_] if number >= 0 else number >= -2, image
            assert [number for _, number in places if number >= 0] == [0, 1, 2] * len({image for image, _ in places})
            images += list(dict.fromkeys(image for image, _ in places))
            resets = configures(isa, content).count((own, isa.registers[own].reset))
            assert resets == len({image for image, _ in places}) - 1
    assert images == [*range(size)] and [len(programs) for programs in groups] == {
        1: [1], 2: [2, 2, 1], 3: [3, 2]}[cores]


@pytest.mark.parametrize(("cores", "windows", "images"), [(1, 5, 5), (2, 5, 4), (2, 4, 4), (3, 2, 3)])
def test_cores_take_whole_groups_of_the_windows_that_there_are(cores: int, windows: int, images: int) -> None:
    """And one image each at least."""
    arch = TINY.replace(cores=cores, dram_ports="shared", sync_counters=cores) if cores > 1 else TINY
    isa = Isa(arch)
    reach = min(isa.registers[Register.DRAM0_OFFSET].maximum, (1 << MOST_ADDRESS_BITS) // DRAM_OFFSET_BYTES)
    window = reach // windows * DRAM_OFFSET_BYTES
    assert Batch(isa, isa.assemble([isa.no_op()]), window).most_images == images
