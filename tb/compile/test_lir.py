# SPDX-License-Identifier: Apache-2.0
"""LIR prints and parses; the verifier finds planted mistakes; what the backend writes is what the LIR says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.backend.encode import MachineCode, encode
from weft.compiler.errors import CompileError, Fault
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.compiler.lir_table import LirTable
from weft.compiler.lir_verifier import verify
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.instructions import Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps

Kind = TypeVar("Kind", bound=lir.Operation)
LOCAL, ACCUMULATORS, DRAM0 = LOCAL, ACCUMULATORS, DRAM0


ARCH = BASE.replace(lut_count=2, simd_registers_depth=3)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Products:
    """A small network with everything in it, after all steps."""
    maker = ModelMaker((1, 12, 9, 8))
    name = maker.node("Add", maker.conv("x", 12, 12, (3, 3), pads=(1, 1, 1, 1)), "x")
    name = maker.node("MaxPool", name, kernel_shape=(3, 3), strides=(2, 2))
    name = maker.node("Tanh", name)
    maker.node("Clip", maker.conv(name, 12, 4, (2, 2), strides=(2, 1)), maker.constant(np.float32(0)),
               maker.constant(np.float32(2)))
    path = maker.save(tmp_path_factory.mktemp("lir") / "model.onnx")
    return after_all_steps(path, ARCH, maker.random.standard_normal((2, 12, 9, 8)))


def check(state: Products, operations: list[lir.Operation]) -> None:
    verify(LirTable.of(operations), ARCH, [state[MemoryPlan].dram0["x"]], len(state[Consts].vectors))


def test_text_comes_back(state: Products) -> None:
    operations = list(state[Schedule].operations)
    of_bytes, of_cores = {lir.LoadScale, lir.LoadActivationTable}, {lir.Signal}
    assert {type(operation) for operation in operations} == {*lir.OPERATIONS.values()} - of_bytes - of_cores
    operations += [lir.Signal(True, 1, 2, Address(DRAM0, 3), 4), lir.Signal(False, 0, 6, Address(DRAM1, 0), 1)]
    assert lir.parse_program(lir.program_text(operations)) == operations


def test_operations_are_frozen() -> None:
    operation: Any = lir.LoadWeight(Address(LOCAL, 1), 2)
    with pytest.raises(AttributeError):
        operation.size = 3


@pytest.mark.parametrize("line", ["Nothing size=1", "LoadWeight local=local[0]",
                                  "LoadWeight local=local[0] size=1 color=3"])
def test_lines_that_are_no_lir(line: str) -> None:
    with pytest.raises(CompileError, match="line of LIR"):
        lir.parse(line)


def test_what_the_compiler_makes_passes(state: Products) -> None:
    check(state, list(state[Schedule].operations))


def index_of(operations: list[lir.Operation], kind: type[Kind], wanted: Callable[[Kind], bool]) -> int:
    return next(number for number, entry in enumerate(operations) if isinstance(entry, kind) and wanted(entry))


def replaced(kind: type[Kind], wanted: Callable[[Kind], bool], **values: Any) -> Callable[[list[lir.Operation]], None]:
    def plant(operations: list[lir.Operation]) -> None:
        number = index_of(operations, kind, wanted)
        operations[number] = operations[number]._replace(**values)
    return plant


def removed(kind: type[Kind], wanted: Callable[[Kind], bool]) -> Callable[[list[lir.Operation]], None]:
    return lambda operations: operations.__delitem__(index_of(operations, kind, wanted))


def anything(operation: lir.Operation) -> bool:
    return True


MISTAKES: dict[str, tuple[Callable[[list[lir.Operation]], None], str]] = {
    "input never loaded": (removed(lir.DataMove, lambda move: move.far.memory == DRAM0), "nothing wrote"),
    "weights never loaded": (removed(lir.DataMove, lambda move: move.far.memory == DRAM1), "nothing wrote"),
    "first MatMul lost": (removed(lir.MatMul, lambda mat_mul: not mat_mul.accumulate), "nothing wrote"),
    "first MatMul accumulates": (replaced(lir.MatMul, lambda mat_mul: not mat_mul.accumulate, accumulate=True),
                                 "nothing wrote"),
    "beyond local memory": (replaced(lir.LoadWeight, anything, local=Address(LOCAL, ARCH.local_depth - 1)), "beyond"),
    "beyond the accumulators": (
        replaced(lir.MatMul, anything, accumulator=Address(ACCUMULATORS, ARCH.accumulator_depth)), "beyond"),
    "beyond the constants": (
        replaced(lir.DataMove, lambda move: move.far.memory == DRAM1, far=Address(DRAM1, 10_000)),
        "nothing wrote"),
    "rows beyond local memory": (replaced(lir.MatMul, anything, rows=90, local_pitch=90), "beyond"),
    "no memory of the machine": (replaced(lir.LoadWeight, anything, local=Address("where", 0)), "must be in local"),
    "wrong memory": (replaced(lir.MatMul, anything, local=Address(DRAM0, 0)), "must be in local"),
    "settings missing": (replaced(lir.DataMove, lambda move: move.far.memory == ACCUMULATORS, settings=lir.NO_SETTINGS),
                         "sets nothing; what is moved (in|out) sets"),
    "settings too many": (replaced(lir.DataMove, lambda move: move.far.memory == DRAM0,
                                   settings=lir.Settings.of(output_shift=3)), "sets OUTPUT_SHIFT; .* sets nothing"),
    "relu on the way in": (replaced(lir.DataMove, lambda move: move.far.memory == DRAM0, relu=True), "relu goes"),
    "loop cut short": (removed(lir.Simd, lambda entry: entry.write is not None), "cut short"),
    "loop too long": (replaced(lir.SimdLoop, anything, body=ARCH.simd_loop_depth + 1), "a body of"),
    "register never written": (removed(lir.Simd, lambda entry: entry.opcode.name == "MOVE"), "nothing wrote"),
    "register beyond": (replaced(lir.Simd, anything, destination=4), "writes SIMD register 4"),
    "register not there": (replaced(lir.Simd, lambda entry: entry.opcode.name == "MAX", right=2), "nothing wrote"),
    "ends inside a loop": (lambda operations: operations.__delitem__(slice(index_of(
        operations, lir.SimdLoop, anything) + 2, None)), "ends inside a loop"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_verifier_finds(mistake: str, state: Products) -> None:
    plant, message = MISTAKES[mistake]
    operations = list(state[Schedule].operations)
    plant(operations)
    with pytest.raises(Fault, match=message):
        check(state, operations)


def test_assemble_is_the_isas(state: Products) -> None:
    instructions, starts = encode(LirTable.of(state[Schedule].operations), ARCH)
    isa = Isa(ARCH)
    program = isa.assemble(Instruction(*row) for row in instructions.T.tolist())
    assert isa.assemble_words(isa.words(program)) == program == state[MachineCode].content
    assert len(starts) == len(state[Schedule].operations)


def test_a_table_gives_its_operations_back(state: Products) -> None:
    operations = [*state[Schedule].operations, lir.Signal(True, 1, 2, Address(DRAM0, 3), 4),
                  lir.LoadScale(Address(LOCAL, 7)), lir.LoadActivationTable(Address(LOCAL, 8), 2)]
    found = LirTable.of(operations)
    assert found.operations() == operations == [found.operation(number) for number in range(len(operations))]
    assert lir.program_text(found.operations()) == lir.program_text(operations)  # flags stay flags
    cuts = [0, 3, 3, len(operations) // 2, len(operations)]
    parts = [LirTable.of(operations[first:end]) for first, end in itertools.pairwise(cuts)]
    assert LirTable.joined(parts).operations() == operations
    with pytest.raises(IndexError):
        found.operation(len(operations))


def test_a_table_in_another_order_is_the_table_of_that_order(state: Products) -> None:
    operations = state[Schedule].operations
    order = np.random.default_rng(1).permutation(len(operations))
    found, made = LirTable.of(operations).ordered(order), LirTable.of([operations[place] for place in order])
    for kind in lir.OPERATIONS.values():
        assert np.array_equal(found.numbers[kind], made.numbers[kind])
        for name, left, right in zip(kind._fields, found.fields[kind], made.fields[kind], strict=True):
            if name == "settings":
                assert [found.settings[place] for place in left] == [made.settings[place] for place in right]
            else:
                assert np.array_equal(left, right), name


def test_configure_only_where_a_value_changes(state: Products) -> None:
    values: dict[int, int] = {register: spec.reset for register, spec in Isa(ARCH).registers.items()}
    for instruction in Isa(ARCH).disassemble(state[MachineCode].content):
        if instruction.opcode == Opcode.CONFIGURE:
            assert values[instruction.operand0] != instruction.operand1
            values[instruction.operand0] = instruction.operand1
    assert values == {register: spec.reset for register, spec in Isa(ARCH).registers.items()}
