"""LoadWeight on a machine of two rows of weights a cycle: one of each part of the column. Rows are ``walked`` for both
parts, ``asked`` of local memory by each, and ``shifted`` by both at once."""

from __future__ import annotations

from weft.cycles.interlock import finish, offered, take
from weft.cycles.jit import kernel
from weft.cycles.memories import LOCAL_READS, local_bank
from weft.cycles.state import LOAD_WEIGHT, LOWER_WEIGHTS, NONE, SLOTS

from weft.hw.contract.timing import ROWS_AHEAD

UPPER, LOWER = range(2)


@kernel
def ask_for_two_rows(state, machine):
    """Requests of both parts in this cycle."""
    ports = state.ports[LOCAL_READS]
    ports.bank[LOAD_WEIGHT], ports.bank[LOWER_WEIGHTS] = bank_of(state, machine, UPPER), bank_of(state, machine, LOWER)


@kernel
def bank_of(state, machine, part):
    """Which bank a part asks for."""
    asked = state.asked[part]
    if asked.count == state.walked or is_zero(state, machine, part):
        return NONE
    operation, row = operation_of(state, asked), asked.row
    if is_whole(machine, operation):  # base0 is the address of the last place, from which both count backwards
        row += machine.places - machine.upper_places * (1 if part == UPPER else 2)
    return local_bank(machine, operation.base0 + row * operation.stride0)


@kernel
def operation_of(state, rows):
    """The operation of the next of some ``rows``."""
    return state.queued[LOAD_WEIGHT, rows.operation % SLOTS]


@kernel
def is_whole(machine, operation):
    """Whether a load replaces the whole column: then each part takes its own rows, else all go through the upper one
    and the lower one takes what falls out of it."""
    return operation.size + operation.zero_bias == machine.places


@kernel
def row_count(machine, operation):
    """Rows of an operation, as many for each part."""
    return machine.upper_places if is_whole(machine, operation) else operation.size + operation.zero_bias


@kernel
def is_zero(state, machine, part):
    """Whether a part's next row is read from nowhere: of zeros, or the lower part's where what falls out of the upper
    one enters it, or its first one where it is the shorter part, which falls out again."""
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
    """Rows out of the walker, into and out of local memory, and into the column, both parts at once."""
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
    """A part's row is taken, if local memory grants it or it is read from nowhere."""
    asked = state.asked[part]
    if asked.count < state.walked and (
            is_zero(state, machine, part) or state.ports[LOCAL_READS].grant[client] == 1):
        count_row(state, machine, asked)


@kernel
def count_row(state, machine, rows):
    """The next of some ``rows`` is dealt with."""
    rows.count += 1
    rows.row += 1
    if rows.row == row_count(machine, operation_of(state, rows)):
        rows.row = 0
        rows.operation += 1
