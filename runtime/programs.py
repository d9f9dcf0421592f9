# SPDX-License-Identifier: Apache-2.0
"""The programs that a driver runs: one for loading the model, then the model's program for each image in turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from weft.golden.dram import MOST_ADDRESS_BITS
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.registers import Register
from weft.tmodel.manifest import TModel

PROGRAM_LIMIT_BYTES = 8 << 20
"""The most bytes of several images' programs as one."""


def preload(model: TModel, isa: Isa) -> bytes:
    """Return the program that a driver runs once when it loads the model, or no bytes.

    If the model says ``load_consts_to_local``, it copies constants from DRAM1 to the same addresses of local memory.
    One DataMove serves each entry: an instruction's size field counts as far as the smaller of the two memories
    goes."""
    if not model.consts_to_local:
        return b""
    return isa.assemble(isa.data_move(DataFlow.DRAM1_TO_LOCAL, base, base, len(vectors))
                        for base, vectors in model.consts if len(vectors))


class Batch:
    """The programs of several images.

    Each image has a window of its own in DRAM0, ``window_bytes`` long (None: as long as DRAM0), which the Configure
    register DRAM0_OFFSET moves. At most ``most_images`` have room at once. All images share DRAM1.

    One core runs all images one after another, as one program. Several cores run groups: image i is on core i modulo
    the number of cores, and the last group may leave cores without one. Cores with programs of their own for one image
    (``others``, of the cores behind core 0) run a group for each image, one at once."""

    def __init__(self, isa: Isa, program: bytes, window_bytes: int | None = None,
                 others: Sequence[bytes] = ()) -> None:
        self.isa, self.program, self.others = isa, program, others
        self.window_bytes = window_bytes or isa.arch.dram0_window_bytes
        self.window_blocks = self.window_bytes // DRAM_OFFSET_BYTES
        reach = min(isa.registers[Register.DRAM0_OFFSET].maximum, (1 << MOST_ADDRESS_BITS) // DRAM_OFFSET_BYTES)
        by_program = PROGRAM_LIMIT_BYTES // max(len(program), 1)
        groups = max(min(reach // self.window_blocks, by_program) // isa.arch.cores, 1)
        self.most_images = 1 if others else groups * isa.arch.cores

    def groups(self, images: int) -> list[list[bytes]]:
        """Return the programs of so many images: of each group one a core, from core 0 on."""
        cores = self.isa.arch.cores
        if self.others:
            return [[self.program, *self.others]] * images
        if cores == 1:
            return [[self._of(range(images))]]
        return [[self._of(range(image, image + 1)) for image in range(first, min(first + cores, images))]
                for first in range(0, images, cores)]

    def place(self, group: int, core: int, instruction: int) -> tuple[int, int]:
        """Return the image of an instruction of :meth:`groups`, and its number in the program of one image.

        The number is negative for instructions before that program."""
        if self.others:
            return group, instruction
        first, between = group * self.isa.arch.cores + core, 1 + len(self._rewind)
        lead = between - len(self._window(first))
        image, number = divmod(instruction + lead, len(self.program) // self.isa.instruction_bytes + between)
        return first + image, number - between

    def _of(self, images: range) -> bytes:
        """Return the program of images one after another: each finds the registers as after reset."""
        resets = [self.isa.configure(register, self.isa.registers[register].reset) for register in self._rewind]
        return b"".join(self.isa.assemble([*self._window(image), *(resets if image > images.start else [])])
                        + self.program for image in images)

    def _window(self, image: int) -> list[Instruction]:
        """Return the instructions that move the window to an image's; none for the first."""
        return [self.isa.configure(Register.DRAM0_OFFSET, image * self.window_blocks)] if image else []

    @cached_property
    def _rewind(self) -> list[Register]:
        """Return the registers, among those new in weft, that the program sets.

        One that the machine does not have is left out: the machine stops there."""
        opcode, _, register, *_ = self.isa.words(self.program)
        used = {int(number) for number in register[opcode == Opcode.CONFIGURE]}
        return [known for known in self.isa.registers if known in used and known >= Register.MAT_MUL_ROWS]


def image_a_core(program: bytes, arch: Arch) -> list[bytes]:
    """Return the programs of a full group, as :meth:`Batch.groups` makes them, in windows as long as DRAM0."""
    group, = Batch(Isa(arch), program).groups(arch.cores)
    return group
