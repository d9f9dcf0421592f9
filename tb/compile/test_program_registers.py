# SPDX-License-Identifier: Apache-2.0
"""Programs of drawn operations: each finds its registers, and no Configure is written that changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.backend.encode import ROWS, WALKS, encode, machine_code
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address, Settings
from weft.compiler.lir_table import LirTable
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import MODIFIABLE, Register
from weft.tb.compile.test_interleave import ARCH, LirMaker

JOINING = ARCH.replace(dram_ports=SHARED, cores=2, join_cycles=8)


class Varied(LirMaker):
    """Operations whose settings change often, also to the values after reset."""

    def program(self, length: int) -> list[lir.Operation]:
        found = super().program(length)
        loop: Settings | None = None
        for number, operation in enumerate(found):
            if isinstance(operation, lir.MatMul | lir.DataMove | lir.SimdLoop) and operation.settings:
                found[number] = operation._replace(settings=Settings(
                    (register, self.below(3)) for register, _ in operation.settings))
            if isinstance(operation, lir.Simd):  # in a loop those of its header
                found[number] = operation._replace(settings=loop or operation.settings)
            head = found[number]
            if not isinstance(head, lir.Simd):
                loop = head.settings if isinstance(head, lir.SimdLoop) else None
        return found


def needed(operation: Any) -> dict[int, int]:
    """The registers that an operation depends on, and their values."""
    found = {int(register): value for register, value in getattr(operation, "settings", ())}
    for register, name in WALKS.get(type(operation), {}).items():
        if name == ROWS or operation.rows > 1:
            found[int(register)] = getattr(operation, name) - (name == ROWS)
    return found


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_each_operation_finds_its_registers_and_no_more_are_written(seed: int, joins: bool) -> None:
    """At the end all have the values of after reset again."""
    arch = JOINING if joins else ARCH
    operations = Varied(seed).program(40 if seed else 0)
    instructions, starts = encode(LirTable.of(operations), arch, joins)
    reset = {int(register): spec.reset for register, spec in Isa(arch).registers.items()}
    values, place, written = dict(reset), 0, []
    rows = [Instruction(*row) for row in instructions.T.tolist()]

    def configure() -> list[tuple[int, int]]:
        nonlocal place
        found = []
        while place < len(rows) and rows[place].opcode == Opcode.CONFIGURE:
            found.append((int(rows[place].operand0), int(rows[place].operand1)))
            place += 1
        return found

    for number, operation in enumerate(operations):
        assert starts[number] == place
        wanted = needed(operation) | ({int(Register.DRAM1_CACHE): MODIFIABLE} if joins and not number else {})
        changes = {register: value for register, value in wanted.items() if values[register] != value}
        found = configure()
        assert len(found) == len(changes) and dict(found) == changes, operation
        values |= changes
        place += 1
        written += found
    assert dict(found := configure()) == {register: value for register, value in reset.items()
                                          if values[register] != value}
    assert place == len(rows) and len(found) == len(dict(found)) and (not seed or len(written) > 20)


@pytest.mark.parametrize("seed", range(6))
def test_words_stand_for_the_instructions_and_their_layers(seed: int) -> None:
    """With Repeats too: an operation's layer has its Configures, and the last one those at the end."""
    operations = Varied(seed).program(12) * 4
    layers = np.arange(len(operations)) // 7
    instructions, starts = encode(LirTable.of(operations), ARCH)
    counts = np.diff([*starts, instructions.shape[1]])
    for depth in (0, 64):
        arch = ARCH.replace(repeat_depth=depth)
        code = machine_code(LirTable.of(operations), layers, arch)
        assert np.array_equal(Isa(arch).split(code.content), instructions)
        assert code.layers.tolist() == [int(layer) for layer, count in zip(layers, counts, strict=True)
                                        for _ in range(count)]


FLOWS = {(DRAM0, True): DataFlow.DRAM0_TO_LOCAL, (DRAM0, False): DataFlow.LOCAL_TO_DRAM0,
         (DRAM1, True): DataFlow.DRAM1_TO_LOCAL, (DRAM1, False): DataFlow.LOCAL_TO_DRAM1,
         (ACCUMULATORS, True): DataFlow.ACCUMULATOR_TO_LOCAL, (ACCUMULATORS, False): DataFlow.LOCAL_TO_ACCUMULATOR}
ADDED = {DataFlow.ACCUMULATOR_TO_LOCAL: DataFlow.ACCUMULATOR_TO_LOCAL_RELU,
         DataFlow.LOCAL_TO_ACCUMULATOR: DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE}


@pytest.mark.parametrize("seed", range(8))
def test_an_instruction_is_what_the_isa_makes_of_the_operation(seed: int) -> None:
    """One by one, by the constructors of the instruction set."""
    isa, operations = Isa(ARCH), Varied(seed).program(60)
    operations += [lir.LoadLut(Address(LOCAL, 3), 1, 4)]

    def one(operation: Any) -> Instruction:
        match operation:
            case lir.MatMul():
                return isa.mat_mul(operation.local.offset if operation.local else 0, operation.accumulator.offset,
                                   operation.size, accumulate=operation.accumulate, zeroes=operation.local is None,
                                   local_stride=operation.local_stride,
                                   accumulator_stride=operation.accumulator_stride)
            case lir.LoadWeight():
                return isa.load_weight(operation.local.offset, operation.size, zero_bias=operation.zero_bias)
            case lir.DataMove():
                flow = FLOWS[operation.far.memory, operation.to_local]
                return isa.data_move(ADDED[flow] if operation.relu or operation.accumulate else flow,
                                     operation.local.offset, operation.far.offset, operation.size,
                                     local_stride=operation.local_stride, far_stride=operation.far_stride)
            case lir.Simd():
                places: dict[str, Any] = {name: address.offset for name, address in (("read", operation.read),
                                                                     ("write", operation.write)) if address}
                sub = SimdSub(SimdOpcode(operation.opcode), operation.left, operation.right, operation.destination)
                return isa.simd(sub, **places, read_stride=operation.read_stride,
                                write_stride=operation.write_stride, hold=operation.hold)
            case lir.SimdLoop():
                return isa.simd_loop(operation.iterations, operation.body)
        return isa.load_lut(operation.local.offset, operation.table)

    instructions, starts = encode(LirTable.of(operations), ARCH)
    for operation, start in zip(operations, starts.tolist(), strict=True):
        place = next(number for number in range(start, instructions.shape[1])
                     if instructions[0, number] != Opcode.CONFIGURE)
        assert tuple(instructions[:, place].tolist()) == tuple(int(value) for value in one(operation)), operation
