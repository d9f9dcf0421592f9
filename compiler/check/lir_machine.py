# SPDX-License-Identifier: Apache-2.0
"""Run LIR on the golden machine's memories, without instructions: the schedule's meaning before it is encoded."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.compiler import lir
from weft.compiler.backend.encode import FLOWS
from weft.golden import decode
from weft.golden.machine import EXECUTE, Machine
from weft.hw.contract.register_table import counted_rows
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.walk import Walk


def run_lir(operations: Iterable[lir.Operation], machine: Machine) -> None:
    """Run operations, one after another. Addresses must be inside their memories (the verifier ensures it)."""
    for operation in operations:
        machine.registers.update(getattr(operation, "settings", lir.NO_SETTINGS))
        golden = MEANING[type(operation)](operation)
        EXECUTE[type(golden)](machine, golden)


def _mat_mul(operation: lir.MatMul) -> decode.MatMul | decode.Depthwise:
    """Return a MatMul as the golden machine decodes it."""
    plain = decode.MatMul(operation.local_walk, operation.accumulator_walk, operation.accumulate)
    if not operation.tap_origin:
        return plain
    settings = dict(operation.settings)
    return decode.Depthwise(*plain, operation.tap_origin - 1, settings[Register.TAP_DROPPED],
                            counted_rows(settings.get(Register.TAP_ROWS, 1)), settings.get(Register.TAP_PITCH, 0))


def _load_weight(operation: lir.LoadWeight) -> decode.LoadWeight:
    """Return a LoadWeight as the golden machine decodes it."""
    return decode.LoadWeight(Walk(operation.local.offset, operation.size), operation.size, operation.zero_bias)


def _data_move(operation: lir.DataMove) -> decode.DataMove:
    """Return a DataMove as the golden machine decodes it."""
    flow = FLOWS[operation.far.memory, operation.to_local, operation.relu or operation.accumulate]
    return decode.DataMove(flow, operation.local_walk, operation.far_walk)


def _simd(operation: lir.Simd) -> decode.Simd:
    """Return a SIMD instruction as the golden machine decodes it."""
    return decode.Simd(operation.read.offset if operation.read else None,
                       operation.write.offset if operation.write else None, False,
                       0 if operation.hold else operation.read_stride, operation.write_stride, operation.opcode,
                       operation.left, operation.right, operation.destination)


def _simd_loop(operation: lir.SimdLoop) -> decode.SimdLoop:
    """Return a SIMD loop's header as the golden machine decodes it."""
    return decode.SimdLoop(operation.iterations, operation.body)


def _load_lut(operation: lir.LoadLut) -> decode.LoadLut:
    """Return a LoadLUT as the golden machine decodes it."""
    return decode.LoadLut(Walk(operation.local.offset, operation.size), operation.table)


def _load_scale(operation: lir.LoadScale) -> decode.LoadScale:
    """Return a LoadScale as the golden machine decodes it."""
    return decode.LoadScale(Walk(operation.local.offset, SCALE_VECTORS))


def _load_activation_table(operation: lir.LoadActivationTable) -> decode.LoadActivationTable:
    """Return a LoadActivationTable as the golden machine decodes it."""
    return decode.LoadActivationTable(Walk(operation.local.offset, TABLE_ENTRIES), operation.table)


MEANING: dict[type, Callable[..., decode.DecodedInstruction]] = {
    lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
    lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
    lir.LoadActivationTable: _load_activation_table,
}
