# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's bank machines: commands of one bank in their order, rows opened and closed between them."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.litedram_state import COMMANDS

REGULAR, PRECHARGE, AUTOPRECHARGE, ACTIVATE, REFRESH, ROW_CLOSES, ROW_OPENS = range(7)


@kernel
def ask_bank(bank, refreshing, now):
    """Set the bank's signals of this cycle: the command that it has for the multiplexer."""
    bank.valid = bank.is_read = bank.is_write = bank.activates = 0
    if bank.state == REGULAR:
        if not refreshing and bank.there and bank.open and bank.row == bank.there_row:
            bank.valid = 1
            bank.is_write = bank.there_writes
            bank.is_read = 1 - bank.there_writes
    elif bank.state == PRECHARGE:
        bank.valid = now >= bank.precharge_from and now >= bank.close_from
    elif bank.state == ACTIVATE:
        bank.valid = bank.activates = now >= bank.activate_from


@kernel
def step_bank(bank, controller, refreshing, offered, row, writes, now):
    """Step a bank machine by a cycle.

    ``bank.ready``: the multiplexer took the command. ``offered``: the crossbar has a command of ``row`` for the bank,
    which takes it while its FIFO has room."""
    moves = bank.ready and bank.state == REGULAR
    following = bank.rows[bank.first]
    closes = bank.level > 0 and bank.there and following != bank.there_row
    step_row(bank, controller, refreshing, moves and closes, now)
    takes = offered and bank.level < COMMANDS
    if moves or not bank.there:
        bank.there = bank.level > 0
        if bank.there:
            bank.there_row = following
            bank.there_writes = bank.writes[bank.first]
            bank.first = (bank.first + 1) % COMMANDS
            bank.level -= 1
    if takes:
        place = (bank.first + bank.level) % COMMANDS
        bank.rows[place] = row
        bank.writes[place] = writes
        bank.level += 1


@kernel
def step_row(bank, controller, refreshing, auto_precharge, now):
    """Step the state machine of a bank, with the row that it tracks."""
    if bank.ready and bank.is_write:
        bank.precharge_from = now + controller.precharge_latency
    if bank.state == REGULAR:
        if refreshing:
            bank.state = REFRESH
        elif bank.there:
            if not bank.open:
                bank.state = ACTIVATE
            elif bank.row != bank.there_row:
                bank.state = PRECHARGE
            elif auto_precharge:
                bank.state = AUTOPRECHARGE
    elif bank.state == PRECHARGE:
        bank.open = 0
        if bank.ready:
            delay(bank, ROW_CLOSES, ACTIVATE, controller.t_rp - 1)
    elif bank.state == AUTOPRECHARGE:
        bank.open = 0
        if now >= bank.precharge_from and now >= bank.close_from:
            delay(bank, ROW_CLOSES, ACTIVATE, controller.t_rp - 1)
    elif bank.state == ACTIVATE:
        if bank.valid:
            bank.open = 1
            bank.row = bank.there_row
            if bank.ready:
                bank.activate_from = now + controller.t_rc
                bank.close_from = now + controller.t_ras
                delay(bank, ROW_OPENS, REGULAR, controller.t_rcd - 1)
    elif bank.state == REFRESH:
        bank.open = 0
        if not refreshing:
            bank.state = REGULAR
    else:
        bank.left -= 1
        if bank.left == 0:
            bank.state = ACTIVATE if bank.state == ROW_CLOSES else REGULAR


@kernel
def delay(bank, state, then, cycles):
    """Wait for some cycles in ``state``, then go to ``then``; with no cycles at once."""
    bank.state, bank.left = (state, cycles) if cycles > 0 else (then, 0)
