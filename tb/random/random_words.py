# SPDX-License-Identifier: Apache-2.0
"""Random raw instructions, legal and illegal by all the rules at once: corners of every field."""

from __future__ import annotations

from random import Random

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import OPERATIONS, Field, Instruction, Kind, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register

PITCHES = (Register.MAT_MUL_LOCAL_PITCH, Register.MAT_MUL_ACCUMULATOR_PITCH, Register.MOVE_LOCAL_PITCH,
           Register.MOVE_FAR_PITCH)
ROWS = (Register.MAT_MUL_ROWS, Register.MOVE_ROWS)


class RandomWords:
    """A source of raw instructions for the machine: ``word`` gives one; about half of them are legal."""

    def __init__(self, arch: Arch, rng: Random) -> None:
        self.arch, self.isa, self.rng = arch, Isa(arch), rng
        self.depths = [arch.local_depth, arch.accumulator_depth, arch.dram0_depth, arch.dram1_depth]

    def word(self, in_loop: bool = False) -> int:
        """Return a raw instruction. ``in_loop``: a body instruction is due, so SIMD is likelier."""
        rng, isa = self.rng, self.isa
        if rng.random() < 0.04:
            return rng.getrandbits(8 * isa.instruction_bytes)
        opcode = Opcode.SIMD if in_loop and rng.random() < 0.9 else rng.choice(isa.opcodes())
        if opcode is Opcode.DATA_MOVE and rng.random() < 0.3:
            return self.beside_the_end_of_dram()
        flags = rng.choice(sorted(isa.legal_flags(opcode)))
        if rng.random() < (0.3 if in_loop else 0.03):
            flags = rng.randrange(16)
        operands = [0, 0, 0]
        if opcode is Opcode.CONFIGURE:
            operands[:2] = self.configure()
        else:
            for field in OPERATIONS[opcode].fields:
                operands[field.operand] = self.field(field)
        widths = isa.operand_widths
        raw = isa.encode(Instruction(opcode, flags, *(value % (1 << width)
                                                      for value, width in zip(operands, widths, strict=True))))
        if rng.random() < 0.04:
            raw ^= 1 << rng.randrange(8 * isa.instruction_bytes)
        return raw

    def beside_the_end_of_dram(self) -> int:
        """Return a move that is legal but, perhaps, for its DRAM addresses."""
        rng, flow = self.rng, self.rng.randrange(4)
        depth = self.depths[2 + flow // 2]
        far = depth - rng.choice([0, 1, 1, 2, 3, 4, 5])
        stride = rng.randrange(3) % (1 << self.isa.stride_widths[1])
        width = self.isa.address_widths[1]
        return self.isa.encode(Instruction(Opcode.DATA_MOVE, flow, 0, far % (1 << width) | stride << width,
                                           rng.choice([0, 0, 1])))

    def field(self, field: Field) -> int:
        isa, rng = self.isa, self.rng
        if field.kind is Kind.SUB:
            return self.sub()
        if field.kind is Kind.SIZE:
            return self.body() if field.name == "body" else self.size()
        if field.kind is Kind.TARGET:
            counters = max(self.arch.sync_counters, 1)
            return rng.choice([rng.randrange(counters), rng.randrange(counters), rng.randrange(16)]) | rng.choice(
                [0, 1, rng.randrange(1 << self.arch.cores), 1 << self.arch.cores, 255, 256]) << 4
        if field.kind is Kind.NUMBER:
            most = self.arch.lut_count
            return rng.choice([0, 1, most, most, most + 1, rng.getrandbits(8)])
        width, strides = isa.address_widths[field.operand], isa.stride_widths[field.operand]
        stride = rng.choice([0, 0, 0, 1, 2, rng.getrandbits(4)]) % (1 << strides)
        return self.address() % (1 << width) | stride << width

    def address(self) -> int:
        depth = self.rng.choice(self.depths)
        if self.rng.random() < 0.5:
            return self.rng.randrange(min(self.depths))
        return self.rng.choice([0, 0, 1, depth // 2, depth - 1, depth, depth - self.rng.randrange(depth) // 4,
                                self.rng.randrange(depth), -1])

    def size(self) -> int:
        """Return a size minus one."""
        depth = self.rng.choice(self.depths[:2])
        if self.rng.random() < 0.5:
            return self.rng.randrange(4)
        return self.rng.choice([0, 0, 1, self.arch.array_size - 1, self.arch.array_size, self.arch.array_size + 1,
                                depth - 1, depth, self.rng.randrange(depth), self.rng.getrandbits(6),
                                (1 << 16) + self.rng.randrange(4), 1 << 17, -1])

    def body(self) -> int:
        depth = self.arch.simd_loop_depth
        return self.rng.choice([0, 1, 2, 3, depth - 1, depth, self.rng.getrandbits(5)])

    def sub(self) -> int:
        isa, rng = self.isa, self.rng
        width = isa.simd_register_width
        value = rng.randrange(1 << isa.simd_opcode_width)
        if value > 16 and rng.random() < 0.8:
            value = 16
        for _ in range(3):
            register = rng.choice([0, 0, 1, self.arch.simd_registers_depth, rng.getrandbits(5)])
            value = value << width | register % (1 << width)
        return value

    def configure(self) -> tuple[int, int]:
        """Return a register and a value. Rows and pitches stay small, else nothing after them is legal."""
        rng = self.rng
        register = rng.choice(list(Register)) if rng.random() < 0.95 else rng.getrandbits(8)
        if register not in self.isa.registers:
            return register, rng.getrandbits(4)
        most = self.isa.registers[Register(register)].maximum
        if register in (*ROWS, *PITCHES):
            return register, rng.choice([2, rng.getrandbits(3), most, most + 1] if rng.random() < 0.2 else [0, 0, 1])
        return register, rng.choice([0, 1, self.arch.number.point, most, rng.randint(0, most), most - 1,
                                     most + 1 if rng.random() < 0.6 else 0])
