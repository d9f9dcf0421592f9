# SPDX-License-Identifier: Apache-2.0
"""Several golden machines on one memory: programs of cores that run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.golden.races import check_races
from weft.hw.contract.arch import Arch

PIECE_INSTRUCTIONS = 1 << 16
"""The instructions that a core runs at once without a random order; each takes some hundred bytes."""
SHORT_PIECE = 40
"""The most instructions that a core runs at once in a random order."""


class GoldenSystem:
    """The cores of ``arch``, on the same two DRAMs."""

    def __init__(self, arch: Arch, dram0: Dram | None = None, dram1: Dram | None = None) -> None:
        self.arch = arch
        self.drams = {"dram0": dram0 or Dram(arch), "dram1": dram1 or Dram(arch)}
        self.cores = [Machine(arch, self.drams["dram0"], self.drams["dram1"]) for _ in range(arch.cores)]

    def run(self, programs: Sequence[bytes], progress: Callable[[int, int], None] | None = None,
            seed: int | None = None) -> None:
        """Run a program on each core, from core 0 on, alternating between cores.

        The result does not depend on the order, of which ``seed`` chooses one. ``progress(done, total)`` counts
        instructions and is called now and then. Raise RaceError, before anything runs, if the order would matter;
        MachineStop at an illegal instruction, which names its core if there are several."""
        if len(programs) > 1:
            check_races(programs, self.arch)
        rng, size = Random(seed), self.cores[0].isa.instruction_bytes
        total, done = sum(int(self.cores[0].isa.counts(program).sum()) for program in programs), 0
        left = {core: program for core, program in enumerate(programs) if program}
        while left:
            core = min(left) if seed is None else rng.choice(sorted(left))
            count = PIECE_INSTRUCTIONS if seed is None else rng.randint(1, SHORT_PIECE)
            before = self.cores[core].counters["instructions"]
            piece, left[core] = left[core][:count * size], left[core][count * size:]
            self._run_piece(core, piece, partial(_told, progress, done, total) if progress else None)
            done += self.cores[core].counters["instructions"] - before
            if not left[core]:
                del left[core]

    def _run_piece(self, core: int, program: bytes, progress: Callable[[int, int], None] | None) -> None:
        try:
            self.cores[core].run(program, progress)
        except MachineStop as stop:
            raise stop.of_core(core) if self.arch.cores > 1 else stop from None


def _told(progress: Callable[[int, int], None], before: int, total: int, ran: int, _: int) -> None:
    """Report how many instructions all cores have run: ``before`` this core's part, and ``ran`` in it."""
    progress(before + ran, total)
