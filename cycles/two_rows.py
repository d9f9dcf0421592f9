# SPDX-License-Identifier: Apache-2.0
"""LoadWeight on a machine that loads two rows of weights a cycle, one for each part of the column.

Rows are ``walked`` for both parts, ``asked`` of local memory by each, and ``shifted`` by both at once."""

from __future__ import annotations

from weft.cycles.interlock import finish, offered, take
from weft.cycles.jit import kernel
from weft.cycles.memories import LOCAL_READS, local_bank
from weft.cycles.state import LOAD_WEIGHT, LOWER_WEIGHTS, NONE, SLOTS
from weft.hw.contract.timing import ROWS_AHEAD

UPPER, LOWER = range(2)


@kernel
def ask_for_two_rows(state, machine):
    """Set the memory requests of both parts for this cycle."""
    ports = state.ports[LOCAL_READS]
    ports.bank[LOAD_WEIGHT], ports.bank[LOWER_WEIGHTS] = bank_of(state, machine, UPPER), bank_of(state, machine, LOWER)


@kernel
def bank_of(state, machine, part):
    """Return the bank of local memory that a part asks for, NONE for none."""
    asked = state.asked[part]
    if asked.count == state.walked or is_zero(state, machine, part):
        return NONE
    operation, row = operation_of(state, asked), asked.row
    if is_whole(machine, operation):  # base0 is the address of the last place, from which both count backwards
        row += machine.places - machine.upper_places * (1 if part == UPPER else 2)
    return local_bank(machine, operation.base0 + row * operation.stride0)


@kernel
def operation_of(state, rows):
    """Return the operation of the next row of ``rows``."""
    return state.queued[LOAD_WEIGHT, rows.operation % SLOTS]


@kernel
def is_whole(machine, operation):
    """Tell whether a load replaces the whole column, so that each part takes its own rows.

    Otherwise all rows go through the upper part, and the lower one takes what falls out of it."""
    return operation.size + operation.zero_bias == machine.places


@kernel
def row_count(machine, operation):
    """Return the rows of an operation that each part takes."""
    return machine.upper_places if is_whole(machine, operation) else operation.size + operation.zero_bias


@kernel
def is_zero(state, machine, part):
    """Tell whether a part's next row is not read from memory.

    It is a row of zeros, or the lower part takes what falls out of the upper one, or it is a filler row of the shorter
    part."""
    asked = state.asked[part]
    operation = operation_of(state, asked)
    if operation.zeroes:
        return True
    if part == LOWER:
        shorter = machine.places < 2 * machine.upper_places
        return not is_whole(machine, operation) or (shorter and asked.row == 0)
    return operation.zero_bias and asked.row == row_count(machine, operation) - 1


@kernel
def step_two_rows(state, machine, now):
    """Step both parts by a cycle: rows out of the walker, into and out of local memory, into the column."""
    unit, shifted = state.units[LOAD_WEIGHT], state.shifted
    shifts = min(state.asked[UPPER].count, state.asked[LOWER].count) > shifted.count and (
        state.control.swapped >= operation_of(state, shifted).turn)
    walks = unit.left > 0 and state.walked - shifted.count < ROWS_AHEAD
    take_row(state, machine, UPPER, LOAD_WEIGHT)
    take_row(state, machine, LOWER, LOWER_WEIGHTS)
    if shifts:
        count_row(state, machine, shifted)
        if shifted.row == 0:
            finish(state, LOAD_WEIGHT)
    state.walked += walks
    unit.left -= walks
    if unit.left == 0 and offered(state, machine, LOAD_WEIGHT, now):
        unit.left = row_count(machine, state.queued[LOAD_WEIGHT, take(state, LOAD_WEIGHT)])


@kernel
def take_row(state, machine, part, client):
    """Take a part's row if local memory grants it or it is not read from memory."""
    asked = state.asked[part]
    if asked.count < state.walked and (
            is_zero(state, machine, part) or state.ports[LOCAL_READS].grant[client] == 1):
        count_row(state, machine, asked)


@kernel
def count_row(state, machine, rows):
    """Count the next row of ``rows`` as done."""
    rows.count += 1
    rows.row += 1
    if rows.row == row_count(machine, operation_of(state, rows)):
        rows.row = 0
        rows.operation += 1
