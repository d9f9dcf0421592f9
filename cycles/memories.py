# SPDX-License-Identifier: Apache-2.0
"""The banks of local memory and accumulators: the bank of an address, and who is served in a cycle."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.state import CLIENT_COUNT, FURTHER_ROWS, MOVE_IN, NONE, SIMD

LOCAL_READS, LOCAL_WRITES, ACCUMULATOR_READS, ACCUMULATOR_WRITES = range(4)
"""The four kinds of ports. Clients have their unit's number; LOWER_WEIGHTS is a second one of LoadWeight, those from
FURTHER_ROWS on are further ones of MatMul."""


@kernel
def local_bank(machine, address):
    """Return the bank of local memory that has an address."""
    return address & machine.local_banks - 1


@kernel
def accumulator_bank(machine, address):
    """Return the bank of the accumulators that has an address."""
    return address & machine.accumulator_banks - 1


@kernel
def grant_local(ports, banks, favourite):
    """Grant one client for each bank of local memory, round robin.

    ``favourite`` (NONE: nobody) is served whenever it asks, as are further rows of taps, which never ask for a bank of
    each other's or of MatMul's."""
    for bank in range(banks):
        ports.winner[bank] = NONE
    for client in range(CLIENT_COUNT):
        ports.grant[client] = 0
        bank = ports.bank[client]
        if bank == NONE:
            continue
        best, last = ports.winner[bank], ports.last[bank]
        if best == NONE or (best <= last < client):
            ports.winner[bank] = client
    if favourite != NONE and ports.bank[favourite] != NONE:
        ports.winner[ports.bank[favourite]] = favourite
    for client in range(FURTHER_ROWS, CLIENT_COUNT):
        if ports.bank[client] != NONE:
            ports.winner[ports.bank[client]] = client
    for bank in range(banks):
        winner = ports.winner[bank]
        if winner != NONE:
            ports.grant[winner] = 1
            ports.last[bank] = winner


@kernel
def shares_bank(ports, bank, but):
    """Tell whether a client other than ``but`` asks for this bank."""
    others = 0
    for client in range(CLIENT_COUNT):
        others += client != but and ports.bank[client] == bank
    return others > 0


@kernel
def chosen(ports, bank, adds_too):
    """Return the client whose turn it is among those that ask for a bank of the accumulators; NONE if nobody does.

    ``adds_too``: clients that accumulate count too."""
    best = NONE
    for client in range(SIMD, MOVE_IN + 1):
        if ports.bank[client] == bank and (adds_too or not ports.accumulates[client]) and (
                best == NONE or best <= ports.last[bank] < client):
            best = client
    return best


@kernel
def grant_accumulators(reads, writes, banks, sum_bank, sum_accumulates):
    """Grant reads and writes of the accumulators; MatMul's sum goes first.

    An accumulate needs its bank's read port too; a writer that accumulates and a reader alternate there."""
    for client in range(SIMD, MOVE_IN + 1):
        reads.grant[client] = writes.grant[client] = 0
    for bank in range(banks):
        reader = chosen(reads, bank, True)
        adds = sum_accumulates
        if bank != sum_bank:
            writer = chosen(writes, bank, not (reads.held[bank] and reader != NONE))
            adds = writer != NONE and writes.accumulates[writer]
            if writer != NONE:
                writes.grant[writer] = 1
                writes.last[bank] = writer
        reads.held[bank] = adds and reader != NONE
        if reader != NONE and not adds:
            reads.grant[reader] = 1
            reads.last[bank] = reader
