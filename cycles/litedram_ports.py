# SPDX-License-Identifier: Apache-2.0
"""LiteDRAM's parts between an AXI4 master and its crossbar: AXI to native, and the converter of widths.

A word is what one command of the controller moves. A beat of the master is cut into several, or is a command."""

from __future__ import annotations

from weft.cycles.jit import kernel
from weft.cycles.litedram_state import BEATS, LASTS

NEW, COMMAND = range(2)
"""The states of the width converter, IDLE and CONVERT."""


@kernel
def ask_port(port, controller):
    """Set the command that the port asks of the crossbar in this cycle."""
    port.to_valid = port.to_writes = word = 0
    if port.down > 1:
        if port.state == COMMAND:
            port.to_valid = 1
            port.to_writes = port.command_writes
            word = port.command_word + port.count
    elif asks(port):
        port.to_valid = 1
        port.to_writes = 1 - port.reads
        word = (port.ar.at if port.reads else port.aw.at) >> controller.word_shift
    port.to_bank = word >> controller.bank_shift & controller.bank_mask
    port.to_row = word >> controller.row_shift & controller.row_mask


@kernel
def asks(port):
    """Tell whether the AXI side has a command in the direction whose turn it is."""
    return may_read(port) if port.reads else may_write(port)


@kernel
def may_read(port):
    """Tell whether the port has a read command and room for its data."""
    return port.ar.held and port.r_reserved != BEATS


@kernel
def may_write(port):
    """Tell whether the port has a write command and its data."""
    return port.aw.held and port.w_level + port.w_readable > port.w_reserved


@kernel
def step_port(port, controller):
    """Step a port by a cycle. ``to_ready``: the crossbar takes the command."""
    asked, reads = asks(port), port.reads
    last = asked and (port.ar.left if reads else port.aw.left) == 1
    readable = port.w_readable
    arrives = port.rdata_line & 1
    leaves = port.wdata_line & 1
    port.rdata_line >>= 1
    port.wdata_line >>= 1
    if port.down > 1:
        taken = step_cut(port, asked, (port.ar.at if reads else port.aw.at) >> port.shift, reads)
        beat_in, beat_out = cut_data(port, arrives, leaves)
    else:
        taken, beat_in, beat_out = asked and port.to_ready, arrives, leaves
    step_axi(port, asked, taken, reads, last)
    step_reads(port, taken and reads, beat_in)
    step_writes(port, taken and not reads, beat_out and readable)


# -- AXI to native -----------------------------------------------------------------------------------------------------
@kernel
def step_axi(port, asked, taken, reads, last):
    """Step the AXI side: bursts become commands, one for each beat.

    The other direction's turn comes after a burst, or while nothing is asked."""
    wants_read, wants_write = may_read(port), may_write(port)
    if taken and reads:
        begin_beat(port.ar, port.shift)
    elif taken:
        begin_beat(port.aw, port.shift)
    take_burst(port.ar)
    take_burst(port.aw)
    if not asked or (taken and last):
        if reads and wants_write:
            port.reads = 0
        elif not reads and wants_read:
            port.reads = 1


@kernel
def begin_beat(channel, shift):
    """Count a command of the burst that is held. ``shift``: log2 of a beat's bytes."""
    channel.left -= 1
    channel.at += 1 << shift
    channel.held = channel.left > 0


@kernel
def take_burst(channel):
    """Take a burst: the spare one first, then the master's, which becomes the spare one if there is no room.

    The master's is taken as long as there was no spare one."""
    room = not channel.held
    channel.taken = channel.valid and not channel.spare
    if room and channel.spare:
        channel.held, channel.at, channel.left = 1, channel.spare_address, channel.spare_beats
        channel.spare = 0
    elif room and channel.taken:
        channel.held, channel.at, channel.left = 1, channel.address, channel.beats
    elif channel.taken:
        channel.spare, channel.spare_address, channel.spare_beats = 1, channel.address, channel.beats


@kernel
def step_reads(port, commanded, beat_in):
    """Step the buffer of beats read, a FIFO and a register behind it. A place is reserved with each command."""
    port.r_taken = port.r_valid and port.r_ready
    moves = port.r_level > 0 and (not port.r_valid or port.r_ready)
    port.r_valid = moves or (port.r_valid and not port.r_ready)
    port.r_level += (beat_in != 0) - moves
    port.r_reserved += commanded - port.r_taken


@kernel
def step_writes(port, commanded, beat_out):
    """Step the buffer of beats to write, and the responses: one for each burst whose last beat has left it."""
    port.b_taken = port.b_level > 0 and port.b_ready
    last = False
    if beat_out:
        last = port.w_lasts[port.w_out % LASTS] != 0
        port.w_out += 1
    port.b_level += last - port.b_taken
    port.w_taken = port.w_valid and port.w_level < BEATS
    moves = port.w_level > 0 and (not port.w_readable or beat_out)
    port.w_readable = moves or (port.w_readable and not beat_out)
    port.w_level += port.w_taken - moves
    if port.w_taken:
        port.w_lasts[port.w_in % LASTS] = port.w_last
        port.w_in += 1
    port.w_reserved = (port.w_reserved + commanded - (beat_out != 0)) & 31


# -- a beat is several words -------------------------------------------------------------------------------------------
@kernel
def step_cut(port, asked, at, reads):
    """Step the converter of commands, in which one of the master becomes ``down``; tell whether it is taken."""
    if port.state == NEW:
        if asked:
            port.count = 0
            port.command_word = at * port.down
            port.command_writes = 1 - reads
            port.state = COMMAND
        return asked
    if port.to_ready:
        port.count += 1
        if port.count == port.down:
            port.state = NEW
    return False


@kernel
def cut_data(port, arrives, leaves):
    """Step the converter of data; tell whether a beat comes in, and whether one goes out.

    Words become a beat a cycle after the last one; a beat leaves with its last word."""
    beat_in, beat_out = port.r_whole, False
    port.r_whole = 0
    if arrives:
        port.r_part += 1
        if port.r_part == port.down:
            port.r_part = 0
            port.r_whole = 1
    if leaves and port.w_readable:
        port.w_part += 1
        if port.w_part == port.down:
            port.w_part = 0
            beat_out = True
    return beat_in, beat_out
