# SPDX-License-Identifier: Apache-2.0
"""The simulated machine on the memory controller of a board, LiteDRAM's own Verilog, and the estimate of the same."""

from __future__ import annotations

import numpy as np

from weft.boards import BOARDS
from weft.boards.shell.paced import controller_of
from weft.cycles.origin import Origin
from weft.cycles.replay import Estimate, estimate
from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.hw.contract.units import OPERATION
from weft.simulate.rtl import RtlResult, run_on_rtl


def bases_of(arch: Arch) -> dict[str, int]:
    """Return the byte addresses of windows and program, one behind another."""
    sizes = [arch.dram0_depth * arch.vector_bytes, arch.dram1_depth * arch.vector_bytes]
    return {"dram0": 0, "dram1": sizes[0], "program": sum(sizes)}


def run_paced(board: str, arch: Arch, program: bytes, dram0: Dram | None = None,
              dram1: Dram | None = None) -> tuple[RtlResult, Estimate]:
    """Return what the machine did just after reset, and what it is estimated to do."""
    dram, bases = BOARDS[board].dram, bases_of(arch)
    assert isinstance(dram, LiteDram)
    done = run_on_rtl(arch, program, dram0 or Dram(arch), dram1 or Dram(arch),
                      controller=controller_of(BOARDS[board], arch), bases=bases, trace_operations=True)
    asked = done.job.memories["program"]["first_cycle"]
    origin = Origin(bases["program"], (bases["dram0"], bases["dram1"]), refresh=dram.t_refi - 1 - asked % dram.t_refi)
    return done, estimate(program, arch, dram, origin=origin)


def first_difference(done: RtlResult, found: Estimate) -> str:
    """Return the first operation and column in which both differ, in words; nothing if they agree."""
    assert done.operations is not None
    for column in OPERATION.fields or ():
        differs = np.flatnonzero(found.operations[column] != done.operations[column])
        if len(differs):
            place = differs[0]
            return (f"{column} of operation {place} (unit {done.operations['unit'][place]}): "
                    f"{found.operations[column][place]}, RTL {done.operations[column][place]}")
    return "" if found.cycles == done.cycles else f"cycles: {found.cycles}, RTL {done.cycles}"
