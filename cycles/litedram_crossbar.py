# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's crossbar from masters to banks.

A master has one bank at a time, and gets another one when the first is idle."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.litedram_banks import step_bank
from weft.cycles.litedram_ports import step_port
from weft.cycles.litedram_state import COMMANDS


@kernel
def route(dram, controller, refreshing, now):
    """Connect masters and banks in this cycle, then step them."""
    locked = 0  # bit 8 * master + bank: the master holds that bank, which has commands
    for number in range(controller.banks):
        bank = dram.bank[number]
        if bank.level or bank.there:
            locked |= 1 << (8 * bank.grant + number)
        line = bank.ready and (bank.is_read or bank.is_write)
        if line and bank.is_write:
            dram.ports[bank.grant].wdata_line |= 1 << controller.write_latency
        elif line:
            dram.ports[bank.grant].rdata_line |= 1 << controller.read_latency
    for master in range(1, controller.masters):
        dram.ports[master].to_ready = 0
    for number in range(controller.banks):
        step_bank_port(dram, dram.bank[number], number, controller, locked, refreshing, now)
    for master in range(1, controller.masters):
        step_port(dram.ports[master], controller)


@kernel
def step_bank_port(dram, bank, number, controller, locked, refreshing, now):
    """Step the arbiter in front of a bank, and the bank."""
    asked = 0
    for master in range(1, controller.masters):
        port = dram.ports[master]
        elsewhere = locked >> 8 * master & 255 & ~(1 << number)
        asked |= (port.to_valid and port.to_bank == number and elsewhere == 0) << master
    grant = bank.grant
    offered = asked >> grant & 1
    port = dram.ports[grant]
    if offered and bank.level < COMMANDS:
        port.to_ready = 1
    if not offered and not (bank.level or bank.there):
        bank.grant = turn(asked, grant, controller.masters)
    step_bank(bank, controller, refreshing, offered, port.to_row, port.to_writes, now)


@kernel
def turn(asked, grant, count):
    """Return the master that is served next, round robin: the next after ``grant`` that asks, or ``grant`` itself."""
    for behind in range(1, count):
        number = (grant + behind) % count
        if asked >> number & 1:
            return number
    return grant
