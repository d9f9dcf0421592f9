# SPDX-License-Identifier: Apache-2.0
"""A program that writes a machine's local memory, accumulators and weights (by their effect) to DRAM, without loss.

Golden machine and hardware run it after the program under test; a difference of any one bit then shows in DRAM.

An accumulator of W bits leaves as a scalar of w bits, rounded and saturated, so one look is not enough. The dump looks
at the highest w bits first (output shift W - w), subtracts what it saw (SIMD Subtract from a register that holds
zero, accumulating, with the same input shift), and looks at the rest w - 2 bits further down, until shift 0 shows the
last bits exactly. The two bits of overlap are room for the carry of rounding and for the one value whose negative
saturates. Every step can be undone by arithmetic on what was seen, so equal dumps mean equal accumulators. Without
SIMD registers nothing can be subtracted: then the same shifts are looked at, and low bits of large values stay unseen.
With ``every_step`` an accumulator is a scalar: one look shows it all.

Where numbers have scales, the first look is with the scales that the program left. Then a multiplier of 1 without bias
is loaded, made of zero points alone (shifted by 42 bits every product is zero), and 25 bits are looked at as above:
what a larger accumulator exceeds them by stays unseen. Moves cannot subtract, so what was seen is negated in the last
accumulators, whose own low bits stay unseen.

The weights show as the products of local memory's first vectors with them: fully, when these are of full rank and the
sums do not saturate. SIMD registers and lookup tables are not dumped (register 1 is lost).
"""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes.int8 import (
    SCALE_VECTORS,
    SCALED_WIDTH,
)
from weft.tb.random.program_maker import Program


def dump_shifts(arch: Arch) -> list[int]:
    """Return the output shifts at which accumulators are looked at."""
    width = arch.number.width
    if arch.scheme.fixed_shift is not None:
        return [arch.scheme.fixed_shift]
    bits = SCALED_WIDTH if arch.scheme.per_lane else arch.accumulator_bits
    return [*range(bits - width, 0, 2 - width), 0]


def scratch_vectors(arch: Arch) -> int:
    """Return the number of accumulators in which what was seen is negated, as moves cannot subtract."""
    return max(1, min(arch.accumulator_depth // 8, arch.local_depth)) if arch.scheme.per_lane else 0


def probe_vectors(arch: Arch) -> int:
    """Return how many of local memory's vectors are multiplied to show the weights."""
    return min(arch.local_depth, arch.accumulator_depth)


def dump_vectors(arch: Arch) -> int:
    """Return the vectors that the dump writes.

    They are local memory, the accumulators at each shift, and the products at each shift."""
    shown_first = arch.accumulator_depth if arch.scheme.per_lane else 0
    return arch.local_depth + shown_first + len(dump_shifts(arch)) * (arch.accumulator_depth + probe_vectors(arch))


def default_offset_blocks(arch: Arch) -> int:
    """Return half way up the address space: away from the windows that random programs use."""
    return min(Isa(arch).registers[Register.DRAM1_OFFSET].maximum, (1 << 24) - 1) // 2


def dump_program(arch: Arch, dram: int = 1, base: int = 0, offset_blocks: int | None = None) -> Program:
    """Return the program that dumps to vectors ``base``.. of the window of port ``dram`` at ``offset_blocks``.

    Raise ValueError if the window is too small."""
    depth = (arch.dram0_depth, arch.dram1_depth)[dram]
    if base + dump_vectors(arch) > depth:
        raise ValueError(f"the dump takes {dump_vectors(arch)} vectors from {base}; dram{dram}_depth is {depth}")
    return _Dump(arch, dram, default_offset_blocks(arch) if offset_blocks is None else offset_blocks).run(base)


class _Dump:
    def __init__(self, arch: Arch, dram: int, offset_blocks: int) -> None:
        self.arch, self.isa = arch, Isa(arch)
        self.to_dram = (DataFlow.LOCAL_TO_DRAM0, DataFlow.LOCAL_TO_DRAM1)[dram]
        self.from_dram = (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM1_TO_LOCAL)[dram]
        offset = (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET)[dram]
        self.program: Program = [
            self.isa.configure(register, value) for register, value in
            ((Register.MAT_MUL_ROWS, 0), (Register.MOVE_ROWS, 0), (offset, offset_blocks))]

    def run(self, base: int) -> Program:
        local, accumulators, probe = self.arch.local_depth, self.arch.accumulator_depth, probe_vectors(self.arch)
        self.program.append(self.isa.data_move(self.to_dram, 0, base, local))
        start = base + local
        if self.arch.scheme.per_lane:
            start = self.as_scaled(start, accumulators)
            self.plain_scale()
        end = self.accumulators(start, accumulators)
        self.program.append(self.isa.data_move(self.from_dram, 0, base, local))
        self.shifts(dump_shifts(self.arch)[-1])
        self.program.append(self.isa.mat_mul(0, 0, probe))
        self.accumulators(end, probe)
        return self.program

    def accumulators(self, base: int, count: int) -> int:
        """Dump the first ``count`` accumulators to DRAM from ``base`` on, once for each shift.

        Return where the next thing goes."""
        for shift in dump_shifts(self.arch):
            self.shifts(shift)
            self.look(base, count)
            if shift and self.arch.scheme.fixed_shift is None and self.arch.simd_registers_depth:
                (self.subtract_scaled if self.arch.scheme.per_lane else self.subtract_seen)(count, shift)
            base += count
        return base

    def look(self, base: int, count: int) -> None:
        for start in range(0, count, self.arch.local_depth):
            size = min(self.arch.local_depth, count - start)
            self.program += [self.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, start, size),
                             self.isa.data_move(self.to_dram, 0, base + start, size)]

    def shifts(self, shift: int) -> None:
        if self.arch.scheme.per_lane:
            self.program.append(self.isa.configure(Register.OUTPUT_SHIFT, shift))
            return
        self.program += [self.isa.configure(Register.INPUT_SHIFT, shift),
                         self.isa.configure(Register.OUTPUT_SHIFT, shift)]

    def subtract_seen(self, count: int, shift: int) -> None:
        """Add (0 - requantized accumulator) << shift to each accumulator."""
        self.negate(0, count, accumulate=True)

    def negate(self, first: int, count: int, *, accumulate: bool) -> None:
        """Make each accumulator 0 - its requantized value, or add that to it."""
        self.program.append(self.isa.simd(SimdSub(SimdOpcode.ZERO, destination=1)))
        subtract = SimdSub(SimdOpcode.SUBTRACT, left=1)
        if self.arch.simd_loop_depth:
            self.program += [self.isa.simd_loop(count, 1),
                             self.isa.simd(subtract, read=first, write=first, accumulate=accumulate)]
            return
        self.program += [self.isa.simd(subtract, read=k, write=k, accumulate=accumulate)
                         for k in range(first, first + count)]

    # -- where numbers have scales ---------------------------------------------------------------------------------
    def as_scaled(self, base: int, count: int) -> int:
        """Dump accumulators with the program's scales; return where the next thing goes."""
        self.program += [self.isa.configure(register, 0) for register in (
            Register.ACTIVATION_ZERO_POINT, Register.INPUT_ZERO_POINT, Register.OUTPUT_ZERO_POINT)]
        self.shifts(self.arch.multiplier_width - 1)
        self.look(base, count)
        return base + count

    def plain_scale(self) -> None:
        """Load a multiplier of 1 without bias."""
        self.shifts(self.isa.registers[Register.OUTPUT_SHIFT].maximum)
        for vector in reversed(range(SCALE_VECTORS)):
            self.program += [self.isa.configure(Register.OUTPUT_ZERO_POINT, int(vector == 0)),
                             self.isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, vector, 0, 1)]
        self.program += [self.isa.configure(Register.OUTPUT_ZERO_POINT, 0), self.isa.load_scale(0)]

    def subtract_scaled(self, count: int, shift: int) -> None:
        """Add (0 - requantized accumulator) << shift to all but the scratch accumulators, as many at a time."""
        isa, scratch = self.isa, scratch_vectors(self.arch)
        place = self.arch.accumulator_depth - scratch
        for start in range(0, min(count, place), scratch):
            size = min(scratch, min(count, place) - start)
            self.shifts(shift)
            self.program += [isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, start, size),
                             isa.configure(Register.INPUT_MULTIPLIER, 1),
                             isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR, 0, place, size)]
            self.negate(place, size, accumulate=False)
            self.shifts(0)
            self.program += [isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, place, size),
                             isa.configure(Register.INPUT_MULTIPLIER, 1 << shift - 1)]
            self.program += 2 * [isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, start, size)]
