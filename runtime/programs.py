"""The programs that a driver runs: one for loading the model, then the model's program for each image in turn."""

from __future__ import annotations

from weft.golden.dram import MOST_ADDRESS_BITS
from weft.hw.contract.arch import DRAM_OFFSET_BYTES
from weft.hw.contract.instructions import DataFlow, Opcode
from weft.hw.contract.isa import Isa
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
    """The programs of several images as one.

    Each image has a window of its own in DRAM0, ``window_blocks`` of 64 KiB long, which the Configure register
    DRAM0_OFFSET moves. At most ``most_images`` have room at once."""

    def __init__(self, isa: Isa, program: bytes) -> None:
        self.isa, self.program = isa, program
        arch = isa.arch
        self.window_blocks = -(-arch.dram0_depth * arch.vector_bytes // DRAM_OFFSET_BYTES)
        reach = min(isa.registers[Register.DRAM0_OFFSET].maximum, (1 << MOST_ADDRESS_BITS) // DRAM_OFFSET_BYTES)
        by_program = PROGRAM_LIMIT_BYTES // max(len(program), 1)
        self.most_images = max(min(reach // self.window_blocks, by_program), 1)

    @property
    def window_bytes(self) -> int:
        """The bytes of one image's window."""
        return self.window_blocks * DRAM_OFFSET_BYTES

    def of(self, images: int) -> bytes:
        """Return the program of so many images."""
        rewind = self._rewind()
        return b"".join(self._prologue(image, rewind) + self.program for image in range(images))

    def place(self, instruction: int) -> tuple[int, int]:
        """Return the image of an instruction of :meth:`of`, and its number in the program of one image.

        The number is negative for instructions before that program."""
        before = 1 + len(self._rewind())
        image, number = divmod(instruction + before, len(self.program) // self.isa.instruction_bytes + before)
        return image, number - before

    def _rewind(self) -> list[Register]:
        """Return the registers, among those new in weft, that the program sets; every image needs them reset."""
        opcode, _, register, *_ = self.isa.words(self.program)
        used = {int(number) for number in register[opcode == Opcode.CONFIGURE]}
        return [known for known in Register if known in used and known >= Register.MAT_MUL_ROWS]

    def _prologue(self, image: int, rewind: list[Register]) -> bytes:
        """Return the instructions before an image's program; there are none before the first."""
        if image == 0:
            return b""
        window = self.isa.configure(Register.DRAM0_OFFSET, image * self.window_blocks)
        resets = [self.isa.configure(register, self.isa.registers[register].reset) for register in rewind]
        return self.isa.assemble([window, *resets])
