# SPDX-License-Identifier: Apache-2.0
"""Seeded random programs, legal and illegal, for any machine.

Programs start from a machine after reset, with whatever the DRAMs hold (``random_vectors`` makes good content). The
same arguments give the same program. Every legal instruction is built by the constructors of ``isa.Isa``.
``dump_program`` makes the state that such a program leaves visible in DRAM.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.tb.random.program_maker import Program, ProgramMaker

PROGRAM_FAULTS = tuple(cause for cause in Cause if Cause.NONE < cause <= Cause.SIGNAL)
"""Causes that a program can bring about."""


def random_vectors(arch: Arch, seed: int, count: int) -> np.ndarray:
    """Return int64 [count, lanes] for a DRAM.

    The vectors are of all magnitudes, with zeros, Ones and the extremes among them."""
    rng = np.random.default_rng(seed)
    number, shape = arch.number, (count, arch.array_size)
    values = rng.integers(number.minimum, number.maximum, shape, endpoint=True)
    values >>= rng.integers(0, number.width, (count, 1))
    special = rng.choice([0, 1, -1, number.one, -number.one, number.one // 2, number.minimum, number.maximum], shape)
    return np.where(rng.random(shape) < 0.1, special, values)


def random_program(arch: Arch, seed: int, length: int, core: int = 0) -> Program:
    """Return a legal program of at least ``length`` instructions; the last loop's body may make it a little longer.

    With ``sync_counters`` it is for ``core`` of several; it posts to no other, and leaves its counters at 0."""
    maker = ProgramMaker(arch, seed, core)
    maker.preamble()
    maker.fill(length)
    maker.settle()
    return maker.program


# -- illegal programs ----------------------------------------------------------------------------------------------
def random_illegal(arch: Arch, seed: int, cause: Cause, length: int = 30) -> tuple[Program, int]:
    """Return a program with one illegal instruction at a random place, and the program counter that the error reports.

    Legal instructions follow it. ``cause`` must be one of ``possible_causes(arch)``."""
    maker = ProgramMaker(arch, seed)
    maker.preamble()
    maker.fill(len(maker.program) + maker.random.randrange(length))
    maker.emit(maker.isa.configure(Register.MOVE_ROWS, 0), maker.isa.configure(Register.MAT_MUL_ROWS, 0))
    illegal = maker.random.choice(_illegal_instructions(arch, maker.random)[cause])
    only_in_body = cause is Cause.LOOP_BODY and illegal.opcode != Opcode.SIMD_LOOP
    not_in_body = cause is Cause.FLAGS and illegal.opcode == Opcode.SIMD or cause > Cause.LOOP_BODY
    if only_in_body or arch.simd_loop_depth and not not_in_body and maker.chance(0.4):
        illegal = _begin_body(maker, cause, illegal)
    program_counter = maker.program_counter
    maker.program.append(illegal)
    maker.fill(len(maker.program) + maker.random.randrange(1, length))
    return maker.program, program_counter


def _begin_body(maker: ProgramMaker, cause: Cause, illegal: Instruction) -> Instruction:
    """Begin a loop of two or more iterations. An accumulator range may be left by the last iteration only."""
    iterations, body = maker.loop_head(least=2)
    for _ in range(maker.random.randrange(body)):
        maker.emit(maker.any_simd(iterations, True))
    if cause is Cause.ACCUMULATOR_RANGE and maker.chance(0.5):
        last = maker.arch.accumulator_depth - 1
        return maker.isa.simd(SimdSub(SimdOpcode.NO_OP), write=last)
    return illegal


def possible_causes(arch: Arch) -> list[Cause]:
    """Return the causes that some program can bring about on this machine."""
    illegal = _illegal_instructions(arch, random.Random(0))
    return [cause for cause in PROGRAM_FAULTS if illegal[cause]]


def _illegal_instructions(arch: Arch, rng: random.Random) -> dict[Cause, Program]:
    """Return cause -> instructions that are illegal for it, whatever the registers hold.

    They are illegal for this cause alone, or for higher ones too."""
    isa = Isa(arch)
    found: dict[Cause, Program] = {cause: maker(isa, rng) for cause, maker in ILLEGAL.items()}
    return {cause: [each for each in program if _encodable(isa, each)] for cause, program in found.items()}


def _encodable(isa: Isa, instruction: Instruction) -> bool:
    return all(0 <= raw < 1 << width for raw, width in zip(instruction.operands, isa.operand_widths, strict=True))


def _opcode(isa: Isa, rng: random.Random) -> Program:
    operands = [rng.randrange(1 << width) for width in isa.operand_widths]
    return [Instruction(opcode, rng.randrange(16), *operands) for opcode in range(16) if opcode not in isa.opcodes()]


def _flags(isa: Isa, rng: random.Random) -> Program:
    """``hold`` outside a loop is among them."""
    return [Instruction(opcode, flags) for opcode in isa.opcodes() for flags in range(16)
            if flags not in isa.legal_flags(opcode)]


def _reserved(isa: Isa, rng: random.Random) -> Program:
    found = []
    for opcode in isa.opcodes():
        unused = [bit for bit in range(isa.flags_offset) if not isa.used_mask(opcode) >> bit & 1]
        for bit in rng.sample(unused, min(4, len(unused))):
            raw = isa.decode(1 << bit)
            found.append(Instruction(opcode, 0, *raw.operands))
    return found


def _local_range(isa: Isa, rng: random.Random) -> Program:
    depth = isa.arch.local_depth
    found = [isa.mat_mul(depth - 1, 0, 2), isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, depth - 1, 0, 2),
             isa.data_move(DataFlow.DRAM0_TO_LOCAL, depth - 1, 0, 2), isa.load_weight(depth - 1, 2),
             isa.load_weight(depth - 1, 2, zero_bias=True)]
    found += [isa.load_scale(depth - 1)] if isa.arch.scheme.per_lane else []
    found += [isa.load_activation_table(depth - 1, 1)] if isa.arch.activation_tables else []
    return [*found, isa.load_lut(depth - 1, 0)] if isa.arch.lut_count else found


def _accumulator_range(isa: Isa, rng: random.Random) -> Program:
    """SIMD, which ignores sizes, can only miss a memory whose depth is below what its address field names."""
    depth = isa.arch.accumulator_depth
    found = [isa.mat_mul(0, depth - 1, 2, zeroes=True), isa.mat_mul(0, depth - 1, 2, zeroes=True, accumulate=True)]
    if depth < 1 << isa.address_widths[0]:
        found.append(isa.simd(SimdSub(SimdOpcode.NO_OP), write=depth))
    if depth < 1 << isa.address_widths[1]:
        found.append(isa.simd(SimdSub(SimdOpcode.NO_OP), read=depth))
    return found


def _dram_range(port: int) -> Callable[[Isa, random.Random], Program]:
    def make(isa: Isa, rng: random.Random) -> Program:
        depth = (isa.arch.dram0_depth, isa.arch.dram1_depth)[port]
        found = [isa.data_move(DataFlow(2 * port + direction), 0, depth - 1, 2) for direction in (0, 1)]
        if not isa.arch.sync_counters:
            return found
        return [*found, isa.post(0, (), depth - 1, 2, dram1=port == 1), isa.wait(0, 0, depth - 1, 2, dram1=port == 1)]
    return make


def _register(isa: Isa, rng: random.Random) -> Program:
    return [Instruction(Opcode.CONFIGURE, 0, number, rng.randrange(4))
            for number in range(256) if number not in isa.registers]


def _register_value(isa: Isa, rng: random.Random) -> Program:
    return [Instruction(Opcode.CONFIGURE, 0, register, spec.maximum + 1) for register, spec in isa.registers.items()]


def _simd_opcode(isa: Isa, rng: random.Random) -> Program:
    width = 3 * isa.simd_register_width
    return [Instruction(Opcode.SIMD, 0, 0, 0, opcode << width)
            for opcode in range(len(isa.simd_opcodes()), 1 << isa.simd_opcode_width)]


def _simd_register(isa: Isa, rng: random.Random) -> Program:
    """A source or the destination beyond the last register, or tables of a Lookup beyond it."""
    beyond = isa.arch.simd_registers_depth + 1
    subs = [SimdSub(SimdOpcode.ADD, beyond), SimdSub(SimdOpcode.ADD, 0, beyond), SimdSub(SimdOpcode.MOVE, beyond),
            SimdSub(SimdOpcode.ZERO, 0, 0, beyond)] if beyond < 1 << isa.simd_register_width else []
    if isa.arch.lut_count:
        subs.append(SimdSub(SimdOpcode.LOOKUP, 0, 0, beyond - isa.arch.lut_count))
    return [isa.simd(sub) for sub in subs]


def _lut_table(isa: Isa, rng: random.Random) -> Program:
    arch = isa.arch
    found = [isa.load_activation_table(0, table) for table in (0,
                                                               arch.activation_tables
                                                               + 1)] if arch.activation_tables else []
    if arch.lut_count > 0 and arch.lut_depth <= arch.local_depth:
        found.append(isa.load_lut(0, arch.lut_count + 1))
    return found


def _loop_body(isa: Isa, rng: random.Random) -> Program:
    """A body too long; or, inside a body, anything that is not SIMD."""
    depth = isa.arch.simd_loop_depth
    if not depth:
        return []
    return [isa.simd_loop(3, depth + 1), isa.no_op(), isa.load_weight(0, 1),
            isa.configure(Register.TIMEOUT, 0xFFFF)]


def _repeat(isa: Isa, rng: random.Random) -> Program:
    """One that reaches back too far, whatever stands before it."""
    depth = isa.arch.repeat_depth
    counts = [1, 2, depth, 1 << isa.operand_widths[1]]
    return [isa.repeat(depth + 1, rng.choice(counts))] if 0 < depth < 1 << isa.operand_widths[0] else []


def _signal(isa: Isa, rng: random.Random) -> Program:
    """A counter, a core or an amount that there is not."""
    arch = isa.arch
    if not arch.sync_counters:
        return []
    targets = [(1 << arch.cores << 4, 0), (256 << 4, 1)] + [(arch.sync_counters, flags) for flags in range(4)
                                                          if arch.sync_counters < 16]
    return [Instruction(Opcode.SIGNAL, flags, target) for target, flags in targets if target < 1 << 20]


ILLEGAL: dict[Cause, Callable[[Isa, random.Random], Program]] = {
    Cause.OPCODE: _opcode, Cause.FLAGS: _flags, Cause.RESERVED_BITS: _reserved, Cause.LOCAL_RANGE: _local_range,
    Cause.ACCUMULATOR_RANGE: _accumulator_range, Cause.DRAM0_RANGE: _dram_range(0), Cause.DRAM1_RANGE: _dram_range(1),
    Cause.REGISTER: _register, Cause.REGISTER_VALUE: _register_value, Cause.SIMD_OPCODE: _simd_opcode,
    Cause.SIMD_REGISTER: _simd_register, Cause.LUT_TABLE: _lut_table, Cause.LOOP_BODY: _loop_body,
    Cause.REPEAT: _repeat, Cause.SIGNAL: _signal}
