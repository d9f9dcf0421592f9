"""The decoder: what it gives is legal, whatever it was given."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Mux, Signal, Value

from weft.hw.contract.instructions import Opcode
from weft.hw.contract.units import UNITS, Memory, unit_names
from weft.hw.control.checks import InstructionView
from weft.hw.control.decoder import Decoder
from weft.hw.parts.operations import SimdKind
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, is_zero, one_hot
from weft.tb.formal.prove import BOUNDED, Proof

DEPTHS = {Memory.LOCAL: SMALL.local_depth, Memory.ACCUMULATORS: SMALL.accumulator_depth,
          Memory.DRAM0: SMALL.dram0_depth, Memory.DRAM1: SMALL.dram1_depth}
WIDE = 40


def around(broken: Broken | None) -> tuple[Harness, Decoder]:
    harness, block = Harness(), Decoder(SMALL)
    harness.block(block, rules=False, broken=broken)
    harness.assume(block.halt | ~harness.past(block.halt, "halt"), "halted_until_a_reset")
    return harness, block


def reach(harness: Harness, block: Decoder, index: int) -> Signal:
    """The last address of operand ``index`` as its unit will walk it, in more bits than it can need."""
    issue = block.o.payload
    operand, last = issue[f"operand{index}"], Signal(WIDE, name=f"reach{index}")
    simd = issue.unit.simd
    plain = simd & (issue.simd_kind == SimdKind.INSTRUCTION) & ~issue.in_loop
    held = (issue.flags[3] & issue.in_loop) if index else 0
    along = Mux(plain | (simd & held), 0, issue.size_m1 << operand.stride_log2)
    harness.m.d.comb += last.eq(operand.base + along + Mux(simd, 0, issue.rows_m1 * operand.pitch))
    return last


def ranges(broken: Broken | None = None) -> Harness:
    """Of every operation issued, each operand that is a range ends inside its memory."""
    harness, block = around(broken)
    issue = block.o.payload
    reaches = [reach(harness, block, index) for index in (0, 1)]
    for name in unit_names(SMALL):
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


def form(broken: Broken | None = None) -> Harness:
    """The n-th instruction, if it leaves, has an opcode, flags and zero bits as the instruction table allows."""
    harness, block = around(broken)
    isa, m = block.isa, harness.m
    number, taken = harness.constant(3, "number"), Signal(4)
    raw = Signal.like(block.i.payload, name="marked")
    with m.If(block.accepted):
        m.d.sync += taken.eq(taken + 1)
        with m.If(taken == number):
            m.d.sync += raw.eq(block.i.payload)
    view = InstructionView(isa, block.i.payload)
    moves_counter = (view.opcode == Opcode.CONFIGURE) & (view.operands[0] == 0x0A)
    harness.assume(~(block.i.valid & moves_counter), "the_program_counter_counts")
    marked = InstructionView(isa, raw)
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
    mine = block.o.valid & (block.o.payload.program_counter == number)
    harness.always(~mine | ((taken > number) & allowed), "form")
    # What waits when a fault comes is older than it: the illegal instruction and those behind it never leave.
    older = block.o.payload.program_counter < block.fault_program_counter
    harness.always(~(block.fault & block.o.valid) | older, "only_older_ones_after_a_fault")
    harness.always(~(block.fault & block.accepted), "none_taken_after_a_fault")
    simd = mine & (marked.opcode == Opcode.SIMD)
    harness.always(~mine | ~block.o.payload.in_loop | (marked.opcode == Opcode.SIMD), "loops_hold_only_simd")
    harness.always(~simd | (marked.simd["destination"] <= SMALL.simd_registers_depth), "destination")
    return harness


PROOFS = [
    Proof("decoder_ranges", "decoder: every operand of an issued operation ends inside its memory", ranges,
          {"check_cause": is_zero}, 8, BOUNDED),
    Proof("decoder_form", "decoder: an instruction of illegal form never leaves", form,
          {"check_cause": is_zero}, 8, BOUNDED),
]
