# SPDX-License-Identifier: Apache-2.0
"""The simulated machine on the memory controller of a board, LiteDRAM's own Verilog, and the estimate of the same."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from weft.boards import BOARDS
from weft.boards.shell.paced import controller_of
from weft.cycles.origin import Origin
from weft.cycles.replay import Estimate, estimate
from weft.golden.dram import Dram, differences
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import OPERATION
from weft.simulate.rtl import RtlResult, run_on_rtl
from weft.tb.random.dump_program import dump_program
from weft.tb.random.lockstep import DRAM_VECTORS, DRAMS
from weft.tb.random.random_program import random_program, random_vectors

LENGTH = 1000
"""Instructions of a random program, about."""


def bases_of(arch: Arch) -> dict[str, int]:
    """Return the byte addresses of windows and program, one behind another."""
    sizes = [arch.dram0_depth * arch.vector_bytes, arch.dram1_depth * arch.vector_bytes]
    return {"dram0": 0, "dram1": sizes[0], "program": sum(sizes)}


@cache
def controller(board: str, arch: Arch) -> str:
    """Return the Verilog of the board's controller for the machine."""
    return controller_of(BOARDS[board], arch)


def run_paced(board: str, arch: Arch, program: bytes, dram0: Dram | None = None, dram1: Dram | None = None, *,
              start_cycles: int = 0) -> tuple[RtlResult, Estimate]:
    """Return what the machine did ``start_cycles`` after reset, and what it is estimated to do."""
    dram, bases = BOARDS[board].dram, bases_of(arch)
    assert isinstance(dram, LiteDram)
    done = run_on_rtl(arch, program, dram0 or Dram(arch), dram1 or Dram(arch),
                      controller=controller(board, arch), bases=bases, trace_operations=True,
                      start_cycles=start_cycles)
    asked = done.job.memories["program"]["first_cycle"]
    origin = Origin(bases["program"], (bases["dram0"], bases["dram1"]), rested=asked)
    return done, estimate(program, arch, dram, origin=origin)


def run_random(board: str, arch: Arch, seed: int, length: int = LENGTH) -> str:
    """Run a random program of a seed, which starts anywhere within the time between two refreshes.

    Return the first cycle or word of memory in which hardware, estimate and golden machine differ, nothing if they
    agree. The program ends with a dump of all that the machine holds."""
    program = Isa(arch).assemble([*random_program(arch, seed, length), *dump_program(arch)])
    dram = BOARDS[board].dram
    assert isinstance(dram, LiteDram)
    drams, machine = {name: Dram(arch) for name in DRAMS}, Machine(arch)
    for number, name in enumerate(DRAMS):
        content = random_vectors(arch, 2 * seed + number, DRAM_VECTORS).astype(arch.number.storage_dtype).tobytes()
        drams[name].load_bytes(0, content)
        machine.drams[name].load_bytes(0, content)
    machine.run(program)
    start = random.Random(f"start {seed}").randrange(dram.t_refi)
    done, found = run_paced(board, arch, program, *drams.values(), start_cycles=start)
    for name in DRAMS:
        if words := differences(machine.drams[name], drams[name], 5):
            return f"{name}: (byte address, golden, hardware) {words}"
    return first_difference(done, found)


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
