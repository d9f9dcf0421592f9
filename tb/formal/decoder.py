# SPDX-License-Identifier: Apache-2.0
"""Proofs of the decoder: what it gives is legal, whatever it was given."""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Mux, Signal, Value

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.schemes import SCALE_VECTORS
from weft.hw.contract.units import UNITS, Memory, unit_names
from weft.hw.control.checks import InstructionView
from weft.hw.control.decoder import Decoder
from weft.hw.parts.operations import SimdKind
from weft.tb.formal.archs import BYTES, SMALL
from weft.tb.formal.harness import Broken, Harness, is_zero, one_hot
from weft.tb.formal.prove import BOUNDED, Proof

DEPTHS = {Memory.LOCAL: SMALL.local_depth, Memory.ACCUMULATORS: SMALL.accumulator_depth,
          Memory.DRAM0: SMALL.dram0_depth, Memory.DRAM1: SMALL.dram1_depth}
"""Memory -> its depth, on both machines."""
WIDE = 40


def around(arch: Arch, broken: Broken | None) -> tuple[Harness, Decoder]:
    harness, block = Harness(), Decoder(arch)
    harness.block(block, rules=False, broken=broken)
    harness.assume(block.halt | ~harness.past(block.halt, "halt"), "halted_until_a_reset")
    return harness, block


def reach(harness: Harness, block: Decoder, index: int) -> Signal:
    """Return the last address of operand ``index`` as its unit will walk it, in more bits than it can need."""
    issue = block.o.payload
    operand, last = issue[f"operand{index}"], Signal(WIDE, name=f"reach{index}")
    simd = issue.unit.simd
    plain = simd & (issue.simd_kind == SimdKind.INSTRUCTION) & ~issue.in_loop
    held = (issue.flags[3] & issue.in_loop) if index else 0
    along = Mux(plain | (simd & held), 0, issue.size_m1 << operand.stride_log2)
    harness.m.d.comb += last.eq(operand.base + along + Mux(simd, 0, issue.rows_m1 * operand.pitch))
    return last


def ranges(arch: Arch, broken: Broken | None = None) -> Harness:
    """Prove that each operand of an issued operation that is a range ends inside its memory."""
    harness, block = around(arch, broken)
    issue = block.o.payload
    reaches = [reach(harness, block, index) for index in (0, 1)]
    for name in unit_names(arch):
        unit = UNITS[name]
        mine = block.o.valid & issue.unit[name]
        for access in unit.accesses:
            valid: Value = issue.range1
            if access.operand == 0:
                valid = issue.local0 if access.memory is Memory.LOCAL else issue.accumulators0
            label = f"{name}_{access.memory.value}_{access.operand}"
            harness.always(~(mine & valid) | (reaches[access.operand] < DEPTHS[access.memory]), f"{label}_inside")
            harness.always(~(mine & valid) | (issue[f"operand{access.operand}"].last == reaches[access.operand]),
                           f"{label}_last")
        harness.always(~mine | ~(issue.local0 & issue.accumulators0), f"{name}_one_memory")
    harness.always(~block.o.valid | one_hot(issue.unit), "unit")
    waits = harness.past(block.o.valid & ~block.o.ready, "waits")  # as it was: see stream_decoder
    harness.always(~(block.fault & block.o.valid) | waits, "nothing_new_after_a_fault")
    return harness


class Marked:
    """The n-th instruction as it came, for any n: ``raw`` once ``taken``; ``leaves``: it is what leaves now."""

    def __init__(self, harness: Harness, block: Decoder) -> None:
        number, taken, m = harness.constant(3, "number"), Signal(4), harness.m
        self.raw = raw = Signal.like(block.i.payload, name="marked")
        with m.If(block.accepted):
            m.d.sync += taken.eq(taken + 1)
            with m.If(taken == number):
                m.d.sync += raw.eq(block.i.payload)
        view = InstructionView(block.isa, block.i.payload)
        moves_counter = (view.opcode == Opcode.CONFIGURE) & (view.operands[0] == 0x0A)
        harness.assume(~(block.i.valid & moves_counter), "the_program_counter_counts")
        self.view, self.taken = InstructionView(block.isa, raw), taken > number
        self.leaves = block.o.valid & (block.o.payload.program_counter == number)


def form(arch: Arch, broken: Broken | None = None) -> Harness:
    """Prove that the n-th instruction, if it leaves, has a form that the instruction table allows.

    The form is its opcode, its flags and the bits that must be zero."""
    harness, block = around(arch, broken)
    isa, mark = block.isa, Marked(harness, block)
    marked, mine, raw = mark.view, mark.leaves, mark.raw
    allowed: Any = 0
    everything = (1 << len(raw)) - 1
    for opcode in isa.opcodes():
        if opcode in (Opcode.NO_OP, Opcode.CONFIGURE):
            continue  # they end in the decoder
        flags: Any = 0
        for legal in isa.legal_flags(opcode):
            flags = flags | (marked.flags == legal)
        if opcode is Opcode.SIMD:
            flags = flags | block.o.payload.in_loop
        unnamed = everything & ~isa.used_mask(opcode)
        allowed = allowed | ((marked.opcode == opcode) & flags & ((raw & unnamed) == 0))
    harness.always(~mine | (mark.taken & allowed), "form")
    # What waits when a fault comes is older than it: the illegal instruction and those behind it never leave.
    older = block.o.payload.program_counter < block.fault_program_counter
    harness.always(~(block.fault & block.o.valid) | older, "only_older_ones_after_a_fault")
    harness.always(~(block.fault & block.accepted), "none_taken_after_a_fault")
    simd = mine & (marked.opcode == Opcode.SIMD)
    harness.always(~mine | ~block.o.payload.in_loop | (marked.opcode == Opcode.SIMD), "loops_hold_only_simd")
    harness.always(~simd | (marked.simd["destination"] <= arch.simd_registers_depth), "destination")
    return harness


def load_scale(broken: Broken | None = None) -> Harness:
    """Prove that a LoadScale, and nothing else, goes to the move-out unit as one, with its vectors as a range."""
    arch = BYTES.replace(local_depth=20)  # there is room for strides
    harness, block = around(arch, broken)
    mark, issue = Marked(harness, block), block.o.payload
    operand, is_load = issue.operand0, mark.view.opcode == Opcode.LOAD_SCALE
    last = Signal(WIDE, name="last_scale")
    harness.m.d.comb += last.eq(mark.view.address(0) + ((SCALE_VECTORS - 1) << mark.view.stride_log2(0)))
    mine = mark.leaves & is_load
    harness.always(~mark.leaves | (issue.load_scale == is_load), "told")
    harness.always(~mine | issue.unit.move_out, "unit")
    harness.always(~mine | (issue.local0 & ~issue.accumulators0 & ~issue.range1), "memory")
    harness.always(~mine | ((issue.size_m1 == SCALE_VECTORS - 1) & (issue.rows_m1 == 0)), "size")
    harness.always(~mine | (operand.base == mark.view.address(0)), "first")
    harness.always(~mine | (operand.stride_log2 == mark.view.stride_log2(0)), "stride")
    harness.always(~mine | ((operand.last == last) & (last < arch.local_depth)), "last")
    return harness


MACHINES = (("", "decoder", SMALL), ("_bytes", "decoder of an INT8 machine", BYTES))
ILLEGAL: Broken = {"check_cause": is_zero}

PROOFS = [
    *(Proof(f"decoder_ranges{suffix}", f"{of}: every operand of an issued operation ends inside its memory",
            partial(ranges, arch), ILLEGAL, 8, BOUNDED, fast=arch is SMALL) for suffix, of, arch in MACHINES),
    *(Proof(f"decoder_form{suffix}", f"{of}: an instruction of illegal form never leaves",
            partial(form, arch), ILLEGAL, 8, BOUNDED, fast=arch is SMALL) for suffix, of, arch in MACHINES),
    Proof("decoder_load_scale", "decoder: a LoadScale, and nothing else, leaves as one, its range that of its scales",
          load_scale, ILLEGAL, 8, BOUNDED, fast=False),
]
