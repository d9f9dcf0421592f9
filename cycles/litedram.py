# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's controller, cycle by cycle: multiplexer and refresher, and the order of a cycle.

Each function is one of LiteDRAM's state machines. Signals of a cycle are set first, from the state after the last one;
then all state machines step. So they may step in any order, as long as each reads only signals of the others."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.litedram_banks import REFRESH as BANK_REFRESH
from weft.cycles.litedram_banks import REGULAR, ask_bank
from weft.cycles.litedram_crossbar import route, turn
from weft.cycles.litedram_ports import ask_port
from weft.cycles.litedram_state import (
    DATA,
    IDLE,
    OF_PROGRAM,
    OF_REFRESH,
    READ_TIME,
    ROWS,
    TURNAROUND,
    WRITE_TIME,
)

READ, WRITE, REFRESH, WRITE_TO_READ, READ_TO_WRITE = range(5)
RESTS, WAIT, EXECUTE = range(3)
"""The states of the refresher."""


@kernel
def step_dram(dram, controller, now):
    """Step the whole controller by a cycle.

    The ports' inputs say what the masters offer, their outputs what is taken."""
    executed = dram.refresh_state == EXECUTE and dram.refresh_done
    refreshing = dram.refresh_state == WAIT or (dram.refresh_state == EXECUTE and not dram.refresh_done)
    granted = True
    for number in range(controller.banks):
        bank = dram.bank[number]
        bank.ready = 0
        ask_bank(bank, refreshing, now)
        granted = granted and bank.state == BANK_REFRESH and now >= bank.precharge_from
    choose(dram, controller, now)
    for number in range(1, controller.masters):
        ask_port(dram.ports[number], controller)
    route(dram, controller, refreshing, now)
    count_use(dram, controller, refreshing or executed, now)
    step_refresher(dram, controller)
    step_multiplexer(dram, controller, granted, executed, now)


@kernel
def count_use(dram, controller, refreshing, now):
    """Count what this cycle of the chip's bus was used for."""
    if refreshing:
        use = OF_REFRESH
    elif now < dram.column_from:
        use = dram.serves
    elif dram.state != READ and dram.state != WRITE:
        use = TURNAROUND
    else:
        use = IDLE
        for number in range(controller.banks):
            if dram.bank[number].there and dram.bank[number].state != REGULAR:
                use = ROWS
    dram.use[use] += 1


# -- the multiplexer ---------------------------------------------------------------------------------------------------
@kernel
def choose(dram, controller, now):
    """Take the commands of this cycle from the banks: one with one phase, with more phases also one for a row."""
    serves = dram.state == READ or dram.state == WRITE
    activates = now >= dram.activate_from and dram.window_open
    one = controller.phases == 1
    reads, writes = dram.state == READ, dram.state == WRITE
    asked = 0
    for number in range(controller.banks):
        bank = dram.bank[number]
        command = one and not (bank.is_read or bank.is_write) and (activates or not bank.activates)
        fits = bank.is_read == reads and bank.is_write == writes
        asked |= (bank.valid and (command or fits)) << number
    grant = dram.request_grant
    valid = asked >> grant & 1
    chosen = dram.bank[grant]
    ready = serves and now >= dram.column_from and (not (one and valid and chosen.activates) or activates)
    if valid and ready:
        accept(dram, controller, grant, now)
    if ready or not valid:
        dram.request_grant = turn(asked, grant, controller.banks)
    if not one:
        choose_row(dram, controller, serves, activates, now)


@kernel
def choose_row(dram, controller, serves, activates, now):
    """Take a command that opens or closes a row, if the PHY takes several commands in a cycle."""
    asked = 0
    for number in range(controller.banks):
        bank = dram.bank[number]
        asked |= (bank.valid and not (bank.is_read or bank.is_write)) << number
    grant = dram.command_grant
    valid = asked >> grant & 1
    ready = serves and (not (valid and dram.bank[grant].activates) or activates)
    if valid and ready:
        accept(dram, controller, grant, now)
    if ready or not valid:
        dram.command_grant = turn(asked, grant, controller.banks)


@kernel
def accept(dram, controller, number, now):
    """Send the command of a bank to the chip."""
    bank = dram.bank[number]
    bank.ready = 1
    if bank.activates:
        dram.activate_from = now + controller.t_rrd
        for place in range(3):
            dram.activations[place] = dram.activations[place + 1]
        dram.activations[3] = now
    if bank.is_read or bank.is_write:
        dram.column_from = now + controller.t_ccd
        dram.serves = OF_PROGRAM if bank.grant == controller.masters - 1 else DATA
    if bank.is_write:
        dram.read_from = now + controller.turn_latency


@kernel
def step_multiplexer(dram, controller, granted, executed, now):
    """Step the multiplexer: the bus's direction, and refresh."""
    reads = writes = False
    for number in range(controller.banks):
        bank = dram.bank[number]
        reads = reads or bank.is_read != 0
        writes = writes or bank.is_write != 0
    state = dram.state
    no_read_time, no_write_time = dram.read_time == 0, dram.write_time == 0
    dram.read_time = max(dram.read_time - 1, 0) if state == READ else READ_TIME - 1
    dram.write_time = max(dram.write_time - 1, 0) if state == WRITE else WRITE_TIME - 1
    if state == READ:
        if granted:
            dram.state = REFRESH
        elif writes and (not reads or no_read_time):
            dram.left = controller.read_latency - 2
            dram.state = READ_TO_WRITE if dram.left > 0 else WRITE
    elif state == WRITE:
        if granted:
            dram.state = REFRESH
        elif reads and (not writes or no_write_time):
            dram.state = WRITE_TO_READ
    elif state == REFRESH:
        if executed:
            dram.state = READ
    elif state == WRITE_TO_READ:
        if now >= dram.read_from:
            dram.state = READ
    else:
        dram.left -= 1
        if dram.left == 0:
            dram.state = WRITE
    step_window(dram, controller, now)


@kernel
def step_window(dram, controller, now):
    """Step the timer tFAW: four rows may be opened in so many cycles."""
    if not controller.t_faw:
        return
    count = 0
    for place in range(4):
        at = dram.activations[place]
        count += now - controller.t_faw <= at and at < now
    if count < 4:
        dram.window_open = 0 if count == 3 and dram.activations[3] == now else 1


# -- the refresher -----------------------------------------------------------------------------------------------------
@kernel
def step_refresher(dram, controller):
    """Step the refresher: every tREFI cycles all banks are closed and refreshed."""
    wanted = dram.refresh_wanted
    done = dram.refresh_done
    dram.refresh_wanted = dram.refresh_count == 0
    dram.refresh_count = controller.t_refi - 1 if dram.refresh_count == 0 else dram.refresh_count - 1
    last = controller.t_rp + controller.t_rfc
    starts = dram.refresh_state == WAIT and dram.state == REFRESH
    dram.refresh_done = dram.refresh_step == last
    if dram.refresh_step == last:
        dram.refresh_step = 0
    elif dram.refresh_step or starts:
        dram.refresh_step += 1
    if dram.refresh_state == RESTS:
        if wanted:
            dram.refresh_state = WAIT
    elif dram.refresh_state == WAIT:
        if starts:
            dram.refresh_state = EXECUTE
    elif done:
        dram.refresh_state = RESTS
