# SPDX-License-Identifier: Apache-2.0
"""SIMD loops, against results by hand and against the same body written out as plain SIMD instructions."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden import simd as golden_simd
from weft.golden.machine import Machine
from weft.hw.contract.instructions import Instruction, SimdOpcode, SimdSub
from weft.hw.contract.registers import Register
from weft.tb.unit.golden.machines import make_arch, run, to_accumulators

S = SimdOpcode
ARCH = make_arch(accumulators=64, registers=3)


@pytest.fixture
def machine() -> Machine:
    """Accumulator k holds [k, -k]; register 1 holds [5, 5]; the shifts are 0."""
    machine = Machine(ARCH)
    run(machine, machine.isa.configure(Register.INPUT_SHIFT, 0), machine.isa.configure(Register.OUTPUT_SHIFT, 0))
    to_accumulators(machine, [[k, -k] for k in range(64)])
    machine.simd_registers[0] = 5
    return machine


def test_addresses_advance_by_their_own_strides(machine: Machine) -> None:
    run(machine, machine.isa.simd_loop(3, 1),
        machine.isa.simd(SimdSub(S.ADD, left=0, right=1), read=10, write=40, read_stride=2, write_stride=4))
    assert machine.accumulators[40:49, 0].tolist() == [15, 41, 42, 43, 17, 45, 46, 47, 19]


def test_hold_keeps_the_read_address(machine: Machine) -> None:
    run(machine, machine.isa.simd_loop(3, 1), machine.isa.simd(SimdSub(S.NO_OP), read=7, write=40, hold=True))
    assert machine.accumulators[39:44, 0].tolist() == [39, 7, 7, 7, 43]


def test_registers_belong_to_their_iteration_and_return(machine: Machine) -> None:
    """Each iteration adds its input to a register that starts at 5; the register is 5 again behind the loop."""
    run(machine, machine.isa.simd_loop(3, 2),
        machine.isa.simd(SimdSub(S.ADD, left=0, right=1, destination=1), read=10),
        machine.isa.simd(SimdSub(S.ADD, left=1, right=1), write=40))
    assert machine.accumulators[40:43, 0].tolist() == [30, 32, 34]
    assert machine.simd_registers[0].tolist() == [5, 5]


def test_an_iteration_reads_what_the_one_before_wrote(machine: Machine) -> None:
    """A running sum: accumulator k+1 = accumulator k + 5."""
    run(machine, machine.isa.simd_loop(4, 1), machine.isa.simd(SimdSub(S.ADD, left=0, right=1), read=0, write=1))
    assert machine.accumulators[:6, 0].tolist() == [0, 5, 10, 15, 20, 5]


def test_nothing_of_a_loop_runs_before_its_body_is_complete(machine: Machine) -> None:
    body = [machine.isa.simd(SimdSub(S.ZERO), write=40), machine.isa.simd(SimdSub(S.ZERO), write=50)]
    run(machine, machine.isa.simd_loop(2, 2), body[0])
    assert machine.accumulators[40, 0] == 40
    assert machine.program_counter == 4
    run(machine, body[1])
    assert machine.accumulators[[40, 41, 50, 51], 0].tolist() == [0, 0, 0, 0]


def random_body(rng: np.random.Generator) -> list[dict]:
    """Sequences that are disjoint, identical, overlapping or held."""
    def one() -> dict:
        base = int(rng.choice([0, 1, 20, 21, 40]))
        other = base if rng.random() < 0.4 else int(rng.choice([0, 2, 20, 22, 44]))
        strides = [int(stride) for stride in rng.choice([1, 1, 2, 4], 2)]
        return {"sub": SimdSub(S(int(rng.integers(0, 16))), *map(int, rng.integers(0, 4, 3))),
                "read": base if rng.random() < 0.9 else None, "write": other if rng.random() < 0.8 else None,
                "accumulate": bool(rng.random() < 0.3), "hold": bool(rng.random() < 0.2), "read_stride": strides[0],
                "write_stride": strides[0] if rng.random() < 0.5 else strides[1]}
    return [one() for _ in range(rng.integers(1, 6))]


@pytest.mark.parametrize("seed", range(60))
def test_a_loop_means_its_body_written_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    iterations, body = int(rng.integers(1, 5)), random_body(rng)
    content = rng.integers(-40000, 40000, (64, 2))
    registers = rng.integers(-300, 300, (3, 2))
    looped, plain = Machine(ARCH), Machine(ARCH)
    for machine in (looped, plain):
        machine.accumulators[...] = content
        machine.simd_registers[...] = registers
    run(looped, looped.isa.simd_loop(iterations, len(body)), [looped.isa.simd(**each) for each in body])
    for k in range(iterations):
        plain.simd_registers[...] = registers
        run(plain, [plain.isa.simd(**advanced(each, k)) for each in body])
    assert looped.accumulators.tolist() == plain.accumulators.tolist()
    assert looped.simd_registers.tolist() == registers.tolist()


def advanced(simd: dict, k: int) -> dict:
    """A plain SIMD with the addresses of iteration k."""
    found = {**simd, "hold": False}
    for access in ("read", "write"):
        if found[access] is not None and not (access == "read" and simd["hold"]):
            found[access] += k * found[f"{access}_stride"]
    return found


def test_disjoint_and_identical_sequences_run_together_and_others_one_by_one(machine: Machine) -> None:
    decode = machine._checker.decoder.simd
    isa, no_op = machine.isa, SimdSub(S.NO_OP)

    def together(*instructions: Instruction) -> bool:
        return golden_simd.iterations_are_independent(4, [decode(each) for each in instructions])

    assert together(isa.simd(no_op, read=3, write=3))
    assert together(isa.simd(no_op, read=0, write=4))
    assert together(isa.simd(no_op, read=0, write=1, read_stride=2, write_stride=2))
    assert not together(isa.simd(no_op, read=0, write=3))
    assert not together(isa.simd(no_op, read=3, write=0))
    assert not together(isa.simd(no_op, read=3, write=3, read_stride=2))
    assert not together(isa.simd(no_op, read=3, write=3, hold=True))
    assert together(isa.simd(no_op, read=3, write=4, hold=True))
    assert not together(isa.simd(no_op, write=0), isa.simd(no_op, write=2))
