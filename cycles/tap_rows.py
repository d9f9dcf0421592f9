# SPDX-License-Identifier: Apache-2.0
"""MatMul's reads of several rows of the kernel: which of them are asked for, and when a vector has all of them."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.memories import LOCAL_READS, local_bank
from weft.cycles.state import FURTHER_ROWS, MAT_MUL, NONE
from weft.hw.contract.key_values import MOST_KERNEL_ROWS


@kernel
def client_of(row):
    """Return the client of local memory by which a row of taps is read."""
    return MAT_MUL if row == 0 else FURTHER_ROWS + row - 1


@kernel
def vector_of(unit, operation, row):
    """Return the vector of the operation that a row of taps reads in this step, NONE if it reads none."""
    vector = unit.row * operation.size + unit.vector + unit.extra - row
    counts = operation.tap_rows >> row & 1 and not unit.before >> row & 1
    return vector if counts and 0 <= vector < operation.size * operation.rows else NONE


@kernel
def ask_for_rows(state, machine, goes):
    """Ask for the reads of this cycle, if MatMul ``goes``: of rows that meet in a bank the first one asks."""
    unit, ports = state.units[MAT_MUL], state.ports[LOCAL_READS]
    operation = state.queued[MAT_MUL, unit.work]
    for row in range(1, MOST_KERNEL_ROWS):
        ports.bank[client_of(row)] = NONE
    if unit.work == NONE or not operation.tap_rows:
        return
    beyond = 0
    for row in range(MOST_KERNEL_ROWS):
        ports.bank[client_of(row)] = NONE
        vector = vector_of(unit, operation, row) if goes else NONE
        if vector != NONE:
            line = vector // operation.size
            bank = local_bank(machine, operation.base0 + line * operation.pitch0
                              + (vector - line * operation.size) * operation.stride0 + beyond)
            met = False
            for other in range(row):
                met = met or ports.bank[client_of(other)] == bank
            if not met:
                ports.bank[client_of(row)] = bank
        if operation.tap_rows & (1 << row + 1) - 1:  # the first row that counts lies at the walk's base
            beyond += operation.tap_pitch


@kernel
def rows_served(state, goes):
    """Return whether the step has all of its reads with those of this cycle, and note those that it has."""
    unit = state.units[MAT_MUL]
    operation = state.queued[MAT_MUL, unit.work]
    left, served = 0, 0
    for row in range(MOST_KERNEL_ROWS):
        if vector_of(unit, operation, row) != NONE:
            granted = state.ports[LOCAL_READS].grant[client_of(row)]
            served |= granted << row
            left += not granted
    whole = goes and left == 0
    unit.before = 0 if whole else unit.before | served
    return whole
