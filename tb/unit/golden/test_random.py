# SPDX-License-Identifier: Apache-2.0
"""The golden machine against the second reading of the design in ``slow_machine.py``, on random programs."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.schemes import Int8
from weft.tb.random.random_program import possible_causes, random_illegal, random_program, random_vectors
from weft.tb.unit.golden.machines import MACHINES
from weft.tb.unit.golden.slow_machine import Refused, SlowMachine

CONTENT_VECTORS = 400


def both(arch: Arch, seed: int) -> tuple[Machine, SlowMachine]:
    """Two machines with the same random DRAM content."""
    fast, slow = Machine(arch), SlowMachine(arch)
    for port, dram in enumerate((fast.dram0, fast.dram1)):
        dram.write(0, random_vectors(arch, 2 * seed + port, CONTENT_VECTORS))
        slow.dram[port] = stored_bytes(dram)
    return fast, slow


def stored_bytes(dram: Dram) -> dict[int, int]:
    found: dict[int, int] = {}
    for start, end in dram.extents():
        where = np.flatnonzero(dram.bytes[start:end])
        found.update(zip((where + start).tolist(), dram.bytes[start:end][where].tolist(), strict=True))
    return found


def assert_same_state(fast: Machine, slow: SlowMachine) -> None:
    assert fast.local.tolist() == slow.local
    assert fast.accumulators.tolist() == slow.acc
    assert fast.weights.tolist() == slow.weights
    assert fast.simd_registers.tolist() == slow.simd_registers
    assert fast.luts.tolist() == slow.luts
    if isinstance(fast.arch.scheme, Int8):
        multipliers, biases = fast.arch.scheme.scales(fast.scales)
        assert list(zip(multipliers.tolist(), biases.tolist(), strict=True)) == slow.scale
    assert fast.program_counter == slow.pc
    for port, dram in enumerate((fast.dram0, fast.dram1)):
        assert stored_bytes(dram) == {address: byte for address, byte in slow.dram[port].items() if byte}


@pytest.mark.wide_cases("*-3", "*-4", "*-5")
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", MACHINES)
def test_random_programs_leave_the_state_of_the_slow_machine(name: str, seed: int) -> None:
    arch = MACHINES[name]
    fast, slow = both(arch, seed)
    program = Isa(arch).assemble(random_program(arch, seed, 120))
    fast.run(program)
    slow.run(program)
    assert_same_state(fast, slow)


@pytest.mark.parametrize("name", MACHINES)
def test_every_refusal_has_the_cause_and_place_of_the_slow_machine_and_no_effect(name: str) -> None:
    arch = MACHINES[name]
    for cause in possible_causes(arch):
        for seed in range(3):
            fast, slow = both(arch, seed)
            instructions, expected = random_illegal(arch, seed, cause)
            program = Isa(arch).assemble(instructions)
            with pytest.raises(MachineStop) as stop:
                fast.run(program)
            with pytest.raises(Refused) as refused:
                slow.run(program)
            assert (stop.value.cause, stop.value.program_counter) == (cause, expected), (cause, seed)
            assert (refused.value.cause, refused.value.program_counter) == (cause, expected), (cause, seed)
            assert_same_state(fast, slow)


@pytest.mark.parametrize("name", MACHINES)
def test_random_bits_are_judged_like_the_slow_machine(name: str) -> None:
    """Instructions of random bits, each on a new machine, inside and outside of a loop body."""
    arch = MACHINES[name]
    isa, rng = Isa(arch), np.random.default_rng(1)
    fast, slow = Machine(arch), SlowMachine(arch)
    judged = set()
    for _ in range(1500):
        instruction = isa.decode(int.from_bytes(rng.bytes(isa.instruction_bytes), "little"))
        masks = [(1 << int(bits)) - 1 for bits in rng.integers(0, 17, 3)]
        instruction = Instruction(instruction.opcode, instruction.flags, *(
            raw & mask for raw, mask in zip(instruction.operands, masks, strict=True)))
        iterations = int(rng.integers(1, 5)) if arch.simd_loop_depth and rng.random() < 0.3 else None
        slow.loop = None if iterations is None else (iterations, 1, [])
        found = fast._checker.check(instruction, iterations)
        cause = found if isinstance(found, Cause) else Cause.NONE
        assert cause == min(slow.causes(instruction), default=Cause.NONE), instruction_text(isa, instruction)
        judged.add(cause)
    assert {Cause.NONE, Cause.OPCODE, Cause.FLAGS, Cause.RESERVED_BITS} <= judged


def test_random_programs_use_every_instruction_and_repeat_for_a_seed() -> None:
    for name in ("eight_lanes_lut", "int8_lut_narrow_accumulators"):
        arch = MACHINES[name]
        program = random_program(arch, 5, 400)
        assert {instruction.opcode for instruction in program} == set(Isa(arch).opcodes())
        assert program == random_program(arch, 5, 400)
    both_kinds = {opcode for arch in MACHINES.values() for opcode in Isa(arch).opcodes()}
    assert both_kinds == set(Opcode)
    assert program != random_program(arch, 6, 400)


def test_every_program_fault_can_be_made_on_a_machine_with_tables_and_loops() -> None:
    causes = possible_causes(MACHINES["eight_lanes_lut"])
    assert causes == [cause for cause in Cause if 0 < cause <= Cause.LOOP_BODY]
    assert possible_causes(MACHINES["repeats"]) == [*causes, Cause.REPEAT]
