# SPDX-License-Identifier: Apache-2.0
"""The estimator's model of LiteDRAM with one master that asks for little: it tells when what is taken."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.cycles.jit import entry
from weft.cycles.litedram import step_dram
from weft.cycles.litedram_state import controller_record, new_dram
from weft.hw.contract.dram import LiteDram

COLUMNS = ("ar_valid", "ar_address", "ar_beats", "ar_taken", "aw_valid", "aw_address", "aw_beats", "aw_taken",
           "w_valid", "w_last", "w_taken", "r_ready", "r_taken", "b_taken")
OUTPUTS = [number for number, name in enumerate(COLUMNS) if name.endswith("_taken")]
Request = tuple[int, str, int, int]


def asked(dram: LiteDram, requests: Sequence[Request], cycles: int = 200, width: int = 64) -> dict[str, list[int]]:
    """Return channel -> the cycles in which it moves.

    ``requests``: (cycle, "read" or "write", address, beats) of bursts, none of which waits for its address to be
    taken."""
    wires = np.zeros((cycles, 1, len(COLUMNS)), np.int64)
    wires[:, :, COLUMNS.index("r_ready")] = 1
    for cycle, kind, address, beats in requests:
        channel = COLUMNS.index("ar_valid" if kind == "read" else "aw_valid")
        wires[cycle, 0, channel:channel + 3] = 1, address, beats
        if kind == "write":
            wires[cycle:cycle + beats, 0, COLUMNS.index("w_valid")] = 1
            wires[cycle + beats - 1, 0, COLUMNS.index("w_last")] = 1
    found = modelled(wires, dram, (width,))
    assert (found[:, 0, 0] <= found[:, 0, 3]).all() and (found[:, 0, 4] <= found[:, 0, 7]).all(), "taken at once"
    return {COLUMNS[column].removesuffix("_taken"): np.flatnonzero(found[:, 0, column]).tolist() for column in OUTPUTS}


def modelled(wires: np.ndarray, dram: LiteDram, widths: Sequence[int]) -> np.ndarray:
    """Return the wires [cycles, masters, COLUMNS]: what is taken as the model says, the rest as in ``wires``."""
    found = wires.copy()
    found[:, :, OUTPUTS] = 0
    replay_ports(new_dram(dram, [1, *(width // 8 for width in widths)]), controller_record(dram, 1 + len(widths)),
                 found)
    return found


@entry
def replay_ports(dram, controller, wires):
    """Let the masters ask for what ``wires`` say, and write there what is taken."""
    for now in range(len(wires)):
        for number in range(wires.shape[1]):
            port, row = dram.ports[number + 1], wires[now, number]
            port.ar.valid, port.ar.address, port.ar.beats = row[0], row[1], row[2]
            port.aw.valid, port.aw.address, port.aw.beats = row[4], row[5], row[6]
            port.w_valid, port.w_last, port.r_ready, port.b_ready = row[8], row[9], row[11], 1
        step_dram(dram, controller, now)
        for number in range(wires.shape[1]):
            port, row = dram.ports[number + 1], wires[now, number]
            row[3], row[7], row[10] = port.ar.taken, port.aw.taken, port.w_taken
            row[12], row[13] = port.r_taken, port.b_taken
