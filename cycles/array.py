# SPDX-License-Identifier: Apache-2.0
"""The units LoadWeight and MatMul, cycle by cycle."""

from __future__ import annotations

from weft.cycles.interlock import address0, begin, finish, is_last, step
from weft.cycles.jit import kernel
from weft.cycles.memories import (
    ACCUMULATOR_READS,
    ACCUMULATOR_WRITES,
    LOCAL_READS,
    accumulator_bank,
    local_bank,
    shares_bank,
)
from weft.cycles.state import BANKS, CLIENT_COUNT, FURTHER_ROWS, LOAD_WEIGHT, MAT_MUL, MOST_PRODUCTS, NONE
from weft.cycles.tap_rows import ask_for_rows, rows_served
from weft.cycles.two_rows import ask_for_two_rows, step_two_rows
from weft.hw.contract.timing import STARVATION_LIMIT

LAST, ACCUMULATES, BANK_SHIFT = 1, 2, 2
"""The encoding of an entry in ``products``: bank << BANK_SHIFT, and these flags."""

NO_BANK = BANKS
"""The bank noted for a sum that is not written."""


@kernel
def ask(state, machine, now):
    """Set the memory requests of LoadWeight and MatMul for this cycle."""
    ports = state.ports[LOCAL_READS]
    for number in (LOAD_WEIGHT, MAT_MUL):
        unit = state.units[number]
        operation = state.queued[number, unit.work]
        reads = unit.work != NONE and not unit.extra and not operation.zeroes and in_turn(state, number, operation)
        ports.bank[number] = local_bank(machine, address0(unit, operation)) if reads else NONE
    if pauses(state, now):
        ports.bank[MAT_MUL] = NONE
    if machine.kernel_rows > 1:
        ask_for_rows(state, machine, may_go(state, now))
    if machine.weight_load_rows == 2:
        ask_for_two_rows(state, machine)


@kernel
def in_turn(state, number, operation):
    """Tell whether a unit need not wait for the other one.

    MatMul waits with a vector that takes over weights until they are loaded, LoadWeight until the weights before are
    taken."""
    if number == LOAD_WEIGHT:
        return state.control.swapped >= operation.turn
    return not (is_first(state.units[MAT_MUL]) and operation.swap) or (
        state.units[LOAD_WEIGHT].done >= operation.turn)


@kernel
def is_first(unit):
    """Tell whether MatMul's next vector is the first of its operation."""
    return unit.row == 0 and unit.vector == 0 and unit.extra == 0


@kernel
def pauses(state, now):
    """Tell whether MatMul inserts a bubble in this cycle: for starving clients, or until its bias may enter."""
    return state.control.starved == STARVATION_LIMIT or (now < state.control.enters_from and enters(state))


@kernel
def may_go(state, now):
    """Whether MatMul's next vector waits for nothing but local memory."""
    unit = state.units[MAT_MUL]
    return unit.work != NONE and not pauses(state, now) and in_turn(state, MAT_MUL, state.queued[MAT_MUL, unit.work])


@kernel
def enters(state):
    """Tell whether MatMul's next vector loads the bias anew."""
    unit = state.units[MAT_MUL]
    return unit.work != NONE and is_first(unit) and state.queued[MAT_MUL, unit.work].enters == 1


@kernel
def count_patience(state, leaving):
    """Update the number of cycles in a row in which MatMul kept others waiting.

    It does so by its request, or by its sum ``leaving`` that is written now."""
    control, reads = state.control, state.ports[LOCAL_READS]
    control.starved = control.starved + 1 if control.contended and control.starved != STARVATION_LIMIT else 0
    control.contended = reads.bank[MAT_MUL] != NONE and shares_bank(reads, reads.bank[MAT_MUL], MAT_MUL)
    for client in range(FURTHER_ROWS, CLIENT_COUNT):
        if reads.bank[client] != NONE and shares_bank(reads, reads.bank[client], client):
            control.contended = True
    if leaving != NONE and not control.contended:
        bank = leaving >> BANK_SHIFT
        control.contended = shares_bank(state.ports[ACCUMULATOR_WRITES], bank, NONE) or (
            leaving & ACCUMULATES != 0 and shares_bank(state.ports[ACCUMULATOR_READS], bank, NONE))


@kernel
def step_load_weight(state, machine, now):
    """Step LoadWeight by a cycle: a row is loaded, after the last one a row of zeros with ``zero_bias``."""
    if machine.weight_load_rows == 2:
        step_two_rows(state, machine, now)
        return
    unit = state.units[LOAD_WEIGHT]
    if unit.work != NONE:
        operation = state.queued[LOAD_WEIGHT, unit.work]
        zeroes = unit.extra or operation.zeroes
        if (zeroes and in_turn(state, LOAD_WEIGHT, operation)) or state.ports[LOCAL_READS].grant[LOAD_WEIGHT]:
            last = is_last(unit, operation)
            if last and operation.zero_bias and not unit.extra:
                unit.extra = 1
            else:
                unit.extra = 0
                step(unit, operation)
                if last:
                    finish(state, LOAD_WEIGHT)
    begin(state, machine, LOAD_WEIGHT, now)


@kernel
def leaving_sum(state, now):
    """Return the entry of ``products`` for the vector whose sum is written in this cycle."""
    return state.products[now % MOST_PRODUCTS]


@kernel
def result_bank(machine, unit, operation):
    """Return the bank of the accumulators for the result that goes through the array with the next vector.

    It is that of the vector ``lag`` before it; NO_BANK if it is not written."""
    result = unit.row * operation.size + unit.vector + unit.extra - operation.lag
    row = result // operation.size
    vector = result - row * operation.size
    if result < 0 or vector + operation.dropped >= operation.size:
        return NO_BANK
    return accumulator_bank(machine, operation.base1 + row * operation.pitch1 + vector * operation.stride1)


@kernel
def step_mat_mul(state, machine, now):
    """Step MatMul by a cycle, in which it takes at most one vector.

    The vector's sum is written ``product_latency`` cycles later, and the last one ends the operation."""
    unit = state.units[MAT_MUL]
    leaving = leaving_sum(state, now)
    if leaving != NONE and leaving & LAST:
        finish(state, MAT_MUL)
    entering = NONE
    if unit.work != NONE:
        operation = state.queued[MAT_MUL, unit.work]
        unread = operation.zeroes or unit.extra > 0
        if operation.tap_rows:
            goes = rows_served(state, may_go(state, now))
        else:
            goes = (unread and may_go(state, now)) or state.ports[LOCAL_READS].grant[MAT_MUL] == 1
        if goes:
            more = is_last(unit, operation) and unit.extra < operation.lag
            last = is_last(unit, operation) and not more
            bank = result_bank(machine, unit, operation)
            entering = bank << BANK_SHIFT | operation.accumulate * ACCUMULATES | last * LAST
            if enters(state):
                state.control.enters_from = now + machine.bias_interval
            if operation.swap and is_first(unit):
                state.control.swapped_now += 1
            if more:
                unit.extra += 1
            else:
                unit.extra = 0
                step(unit, operation)
    state.products[(now + machine.product_latency) % MOST_PRODUCTS] = entering
    count_patience(state, leaving)
    begin(state, machine, MAT_MUL, now)
