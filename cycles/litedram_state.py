# SPDX-License-Identifier: Apache-2.0
"""The state of LiteDRAM from cycle to cycle, and the parameters of one controller, as numpy records.

Names are LiteDRAM's own (litedram/core, litedram/frontend), so that each field can be looked up in its source."""

from __future__ import annotations

import numpy as np

from weft.hw.contract.dram import LiteDram

(PORTS, HOST) = (4, 0)
"""The most masters of the crossbar; the host's bus comes first, then the machine's in order of their names."""
BANKS = 8
COMMANDS = 8
"""The places of a bank machine's FIFO of commands, ``cmd_buffer_depth``."""
BEATS = 16
"""The places of the buffers between AXI and a native port, each way."""
LASTS = 2 * BEATS
READ_TIME, WRITE_TIME = 32, 16
"""The cycles for which one direction may keep the other waiting."""
LONG_AGO = -(1 << 30)
USES = ("data", "program", "refresh", "turnaround", "rows", "idle")
DATA, OF_PROGRAM, OF_REFRESH, TURNAROUND, ROWS, IDLE = range(len(USES))
"""The uses of a cycle of the chip's bus.

Data of tensors; data of the program; refresh; turning the bus between reads and writes; waiting for a row to open or
close; nothing, as nothing is asked for."""

CONTROLLER = np.dtype([(name, "i8") for name in (
    "masters", "banks", "bank_mask", "row_mask", "word_shift", "bank_shift", "row_shift", "phases",
    "read_latency", "write_latency", "precharge_latency", "turn_latency",
    "t_rp", "t_rcd", "t_ras", "t_rc", "t_rfc", "t_refi", "t_rrd", "t_ccd", "t_faw")])
"""``word_shift``: log2 of the bytes of one command; ``bank_shift``, ``row_shift``: where bank and row lie in an
address of such words. ``precharge_latency``: cycles from a write to a precharge, ``turn_latency``: to a read."""

CHANNEL = np.dtype([(name, "i8") for name in (
    "valid", "address", "beats", "taken", "spare", "spare_address", "spare_beats", "held", "at", "left")])
"""An address channel of a port. The master offers ``valid``, ``address`` and ``beats``; ``taken`` is the answer.

``spare``: the register in front of LiteDRAM holds a burst. ``held``: LiteDRAM works on one; its next beat is at ``at``,
and ``left`` beats are to come."""

PORT = np.dtype([
    ("shift", "i8"), ("down", "i8"),
    # what the master offers in this cycle, and what became of it
    ("ar", CHANNEL), ("ar_joins", "i8"), ("aw", CHANNEL),
    ("w_valid", "i8"), ("w_last", "i8"), ("w_taken", "i8"),
    ("r_ready", "i8"), ("r_taken", "i8"), ("b_ready", "i8"), ("b_taken", "i8"),
    # AXI to native
    ("r_reserved", "i8"), ("r_level", "i8"), ("r_valid", "i8"),
    ("w_reserved", "i8"), ("w_level", "i8"), ("w_readable", "i8"), ("w_lasts", "i8", LASTS), ("w_in", "i8"),
    ("w_out", "i8"), ("b_level", "i8"), ("reads", "i8"),
    # the width converter
    ("state", "i8"), ("command_word", "i8"), ("command_writes", "i8"), ("count", "i8"),
    ("r_part", "i8"), ("r_whole", "i8"), ("w_part", "i8"),
    # the crossbar
    ("to_valid", "i8"), ("to_writes", "i8"), ("to_bank", "i8"), ("to_row", "i8"), ("to_ready", "i8"),
    ("wdata_line", "i8"), ("rdata_line", "i8"),
])
"""A master of the crossbar. ``shift``: log2 of its beat's bytes; ``down``: words that a beat is cut into.
``r_reserved``, ``w_reserved``: beats in the buffers that commands stand for; ``reads``: 1 where it is the reads' turn.
``wdata_line``, ``rdata_line``: delay lines, a bit a cycle."""

BANK = np.dtype([
    ("state", "i8"), ("left", "i8"), ("open", "i8"), ("row", "i8"), ("grant", "i8"), ("at", "i8"),
    ("level", "i8"), ("rows", "i8", COMMANDS), ("writes", "i8", COMMANDS), ("first", "i8"),
    ("there", "i8"), ("there_row", "i8"), ("there_writes", "i8"),
    ("precharge_from", "i8"), ("activate_from", "i8"), ("close_from", "i8"),
    ("valid", "i8"), ("is_read", "i8"), ("is_write", "i8"), ("activates", "i8"), ("ready", "i8"),
])
"""A bank machine. ``left``: cycles of a delayed state; ``open``, ``row``: the row tracked; ``there``: the command in
the buffer behind the FIFO. ``precharge_from``, ``activate_from``, ``close_from``: when tWTP, tRC and tRAS are over.
The last five are signals of one cycle."""

DRAM = np.dtype([
    ("ports", PORT, PORTS), ("bank", BANK, BANKS),
    ("state", "i8"), ("left", "i8"), ("read_time", "i8"), ("write_time", "i8"), ("request_grant", "i8"),
    ("command_grant", "i8"), ("activate_from", "i8"), ("column_from", "i8"), ("read_from", "i8"),
    ("activations", "i8", 4), ("window_open", "i8"),
    ("refresh_state", "i8"), ("refresh_count", "i8"), ("refresh_wanted", "i8"), ("refresh_step", "i8"),
    ("refresh_done", "i8"),
    ("serves", "i8"), ("use", "i8", len(USES)),
])
"""The whole controller: multiplexer, refresher, banks, ports. ``serves``: of USES, whose data was last on the bus;
``use``: cycles of each."""


def controller_record(dram: LiteDram, masters: int) -> np.void:
    """Return the record of CONTROLLER of a DRAM with so many masters, the host's included."""
    record = np.zeros(1, CONTROLLER)
    for name, value in {
        "masters": masters, "banks": dram.banks, "bank_mask": dram.banks - 1, "row_mask": dram.rows - 1,
        "word_shift": (dram.word_bytes - 1).bit_length(), "bank_shift": dram.bank_shift,
        "row_shift": dram.bank_shift + (dram.banks - 1).bit_length(), "phases": dram.phases,
        "read_latency": dram.read_latency + 1, "write_latency": dram.write_latency + 1,
        "precharge_latency": dram.column_write_latency + dram.t_wr + dram.t_ccd,
        "turn_latency": dram.column_write_latency + dram.t_wtr + dram.t_ccd,
        "t_rp": dram.t_rp, "t_rcd": dram.t_rcd, "t_ras": dram.t_ras, "t_rc": dram.t_rc, "t_rfc": dram.t_rfc,
        "t_refi": dram.t_refi, "t_rrd": dram.t_rrd, "t_ccd": dram.t_ccd, "t_faw": dram.t_faw or 0,
    }.items():
        record[name] = value
    return record[0]


def new_dram(dram: LiteDram, widths: list[int]) -> np.void:
    """Return a controller just after reset, timers run out; ``widths``: bytes of a beat of each master's port."""
    found = np.zeros(1, DRAM)[0]
    for port, width in zip(found["ports"], widths, strict=False):
        port["shift"] = (width - 1).bit_length()
        port["down"] = max(width // dram.word_bytes, 1)
    for name in ("precharge_from", "activate_from", "close_from"):
        found["bank"][name] = LONG_AGO
    for name in ("activate_from", "column_from", "read_from", "activations"):
        found[name] = LONG_AGO
    found["window_open"] = 1
    found["refresh_count"] = dram.t_refi - 1
    return found
