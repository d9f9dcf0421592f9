# SPDX-License-Identifier: Apache-2.0
"""The trace of operations: every instruction that gives one appears once, in an order that the machine allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from amaranth.back import rtlil

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import product_latency
from weft.hw.contract.units import UNIT_OF_OPCODE, unit_of_flow
from weft.hw.system import with_ports
from weft.simulate.job import MemorySettings
from weft.simulate.rtl import RtlResult, run_many_on_rtl
from weft.simulate.trace import NEVER, UNIT_NAMES
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.random_program import random_program, random_vectors

ARCHS = lockstep_archs()
ISA = Isa(ARCHS["lanes2"])
STALLS = MemorySettings(read_latency=25, write_latency=9, jitter=20, stall_ar=60, stall_r=60, stall_w=60, stall_b=60)


def run(name: str, *programs: Sequence[Instruction], traced: bool = True) -> list[RtlResult]:
    """Programs one after another, with a soft reset between them."""
    arch = ARCHS[name]
    drams = Dram(arch), Dram(arch)
    for seed, dram in enumerate(drams):
        dram.write(0, random_vectors(arch, seed, 100))
    code = [Isa(arch).assemble(program) for program in programs]
    return run_many_on_rtl(arch, code, *drams, memories=[STALLS] * len(code), trace_operations=traced)


def expected(program: Sequence[Instruction], arch: Arch = ARCHS["lanes2"]) -> list[tuple[int, str]]:
    """Program counter and unit of each operation."""
    counter = 0
    operations: list[tuple[int, str]] = []
    for instruction in program:
        if instruction.opcode == Opcode.DATA_MOVE:
            operations.append((counter, unit_of_flow(arch)[DataFlow(instruction.flags)]))
        elif instruction.opcode in UNIT_OF_OPCODE:
            operations.append((counter, UNIT_OF_OPCODE[Opcode(instruction.opcode)]))
        register, value, _ = instruction.operands
        moved = instruction.opcode == Opcode.CONFIGURE and register == Register.PROGRAM_COUNTER
        counter = value if moved else counter + 1
    return operations


def traced(result: RtlResult) -> np.ndarray:
    assert result.operations is not None
    return result.operations


def listed(table: np.ndarray) -> list[tuple[int, str]]:
    return [(int(row["program_counter"]), UNIT_NAMES[row["unit"]]) for row in table]


def assert_possible(table: np.ndarray, cycles: int) -> None:
    """Issued one a cycle in program order; each issued, started, finished in this order; units work in order."""
    assert (np.diff(table["issue_cycle"]) > 0).all()
    assert (table["issue_cycle"] <= table["start_cycle"]).all()
    assert (table["start_cycle"] <= table["finish_cycle"]).all()
    assert table["issue_cycle"].min() > 0
    assert table["finish_cycle"].max() < cycles
    for unit in range(len(UNIT_NAMES)):
        for column in ("start_cycle", "finish_cycle"):
            assert (np.diff(table[column][table["unit"] == unit]) > 0).all()


CHAIN = [
    ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 8),
    ISA.configure(Register.TIMEOUT, 0),
    ISA.load_weight(0, 2),
    ISA.no_op(),
    ISA.mat_mul(2, 0, 4),
    ISA.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 10, 0, 4),
    ISA.data_move(DataFlow.LOCAL_TO_DRAM0, 10, 50, 4),
    ISA.data_move(DataFlow.DRAM1_TO_LOCAL, 10, 0, 4),
]
"""Each operation needs what the one before it leaves, or overwrites what it reads."""


def test_dependent_operations_follow_one_another() -> None:
    result, = run("lanes2", CHAIN)
    table = traced(result)
    assert listed(table) == expected(CHAIN) == [
        (0, "dram0_read"), (2, "load_weight"), (4, "mat_mul"), (5, "move_out"), (6, "dram0_write"), (7, "dram1_read")]
    assert_possible(table, result.cycles)
    behind = table["start_cycle"][1:] > table["finish_cycle"][:-1]
    assert behind.tolist() == [True, False, True, True, True], "a MatMul is taken and waits for weights"
    vectors = 4
    assert table["finish_cycle"][2] == table["finish_cycle"][1] + vectors + product_latency(ARCHS["lanes2"])
    assert table["issue_cycle"][-1] < table["finish_cycle"][0], "a conflict never holds the decoder"


def test_independent_operations_overlap() -> None:
    program = [ISA.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, 8), ISA.data_move(DataFlow.DRAM1_TO_LOCAL, 8, 0, 8)]
    first, second = traced(run("lanes2", program)[0])
    assert second["start_cycle"] < first["finish_cycle"]


def test_loop_is_traced_as_its_header_and_its_body() -> None:
    """The work ends with the last body instruction's finish; the next plain instruction finishes after it."""
    isa = Isa(ARCHS["lanes4_lut"])
    move, iterations = SimdSub(SimdOpcode.MOVE, 0, 0, 0), 20
    step = isa.simd(move, read=0, write=20, read_stride=1, write_stride=1)
    program = [isa.simd_loop(iterations, 3), step, step, step, isa.simd(move, read=1, write=2)]
    result, = run("lanes4_lut", program)
    table = traced(result)
    assert listed(table) == expected(program) == [(index, "simd") for index in range(5)]
    assert_possible(table, result.cycles)
    assert table["finish_cycle"][2] < table["finish_cycle"][3] - iterations
    assert table["finish_cycle"][4] > table["finish_cycle"][3]


@pytest.mark.wide_cases("lanes4_slices", "lanes2")
@pytest.mark.parametrize("name", ["lanes2", "lanes4_lut", "lanes4_slices"])
def test_random_programs_are_traced_completely_and_at_no_cost(name: str) -> None:
    """Every accepted instruction but NoOp and Configure; the same cycles as without."""
    programs = [random_program(ARCHS[name], seed, 50) for seed in range(6)]
    results, untraced = run(name, *programs), run(name, *programs, traced=False)
    for program, result, plain in zip(programs, results, untraced, strict=True):
        isa = Isa(ARCHS[name])
        expanded = [Instruction(*row) for row in isa.split(isa.assemble(program)).T.tolist()]
        assert listed(traced(result)) == expected(expanded, ARCHS[name])
        assert_possible(traced(result), result.cycles)
        assert plain.operations is None
        assert plain.cycles == result.cycles


def test_illegal_instruction_ends_the_trace() -> None:
    """What was issued before drains and is complete; the next program is traced from its own beginning."""
    illegal = ISA.mat_mul(ARCHS["lanes2"].local_depth - 1, 0, 4)
    stopped, after = run("lanes2", [CHAIN[0], illegal, CHAIN[2]], CHAIN[:1])
    assert stopped.error_program_counter == 1
    assert listed(traced(stopped)) == listed(traced(after)) == [(0, "dram0_read")]
    assert (traced(stopped)["finish_cycle"] != NEVER).all()


def cells(arch: Arch, trace: bool) -> tuple[Counter[str], set[str]]:
    """Cells of the machine's netlist by kind, and its ports."""
    module, ports = with_ports(arch, trace=trace)
    text = rtlil.convert(module, name="weft_top", ports=ports, emit_src=False)
    kinds = (line.split()[1] for line in text.splitlines() if line.lstrip().startswith("cell $"))
    return Counter(kinds), set(ports)


@pytest.mark.wide
def test_product_has_no_trace() -> None:
    """The simulated machine is the product and nine and-gates for valid and ready that its ports need."""
    product, product_ports = cells(ARCHS["lanes2"], False)
    simulated, simulated_ports = cells(ARCHS["lanes2"], True)
    assert simulated_ports - product_ports == {f"trace_{name}" for name in (
        "begin", "cycle", "issued", "program_counter", "started", "finished")}
    assert product_ports < simulated_ports
    extra = simulated - product
    assert extra <= Counter({"$and": len(UNIT_NAMES)})
    assert not product - simulated
