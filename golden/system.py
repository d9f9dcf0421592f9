# SPDX-License-Identifier: Apache-2.0
"""Several golden machines on one memory: programs of cores that run side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random

from weft.golden.check import MachineStop
from weft.golden.dram import Dram
from weft.golden.machine import PROGRESS_INSTRUCTIONS, Machine
from weft.golden.races import check_races
from weft.golden.sync import SyncCounters
from weft.hw.contract.arch import Arch

PIECE_INSTRUCTIONS = 1 << 16
"""The instructions that a core runs at once without a random order."""
SHORT_PIECE = 40
"""The most instructions that a core runs at once in a random order."""


class GoldenSystem:
    """The cores of ``arch``, on the same two DRAMs, with counters by which they wait for each other."""

    def __init__(self, arch: Arch, dram0: Dram | None = None, dram1: Dram | None = None) -> None:
        self.arch = arch
        self.drams = {"dram0": dram0 or Dram(arch), "dram1": dram1 or Dram(arch)}
        self.sync = SyncCounters(arch)
        self.cores = [Machine(arch, self.drams["dram0"], self.drams["dram1"], core, self.sync)
                      for core in range(arch.cores)]

    def run(self, programs: Sequence[bytes], progress: Callable[[int, int], None] | None = None,
            seed: int | None = None) -> None:
        """Run a program on each core, from core 0 on, alternating between cores; one that waits lets others run.

        The result does not depend on the order, of which ``seed`` chooses one. ``progress(done, total)`` counts
        instructions and is called now and then. Raise RaceError or SignalError, before anything runs, if the order
        would matter or a core would wait for ever; MachineStop at an illegal instruction, which names its core if there
        are several."""
        if self.arch.cores > 1:
            check_races(programs, self.arch)
        rng = Random(seed)
        total, done = sum(core.count(program) for core, program in zip(self.cores, programs, strict=False)), 0
        left = {number: core.steps(program)
                for number, (core, program) in enumerate(zip(self.cores, programs, strict=False))}
        turn = -1
        while left:
            later = [core for core in left if core > turn]
            turn = min(later or left) if seed is None else rng.choice(sorted(left))
            count = PIECE_INSTRUCTIONS if seed is None else rng.randint(1, SHORT_PIECE)
            for ran in self._piece(turn, left, count):
                if progress and done % PROGRESS_INSTRUCTIONS == 0:
                    progress(done, total)
                done += ran
        if progress:
            progress(total, total)

    def _piece(self, core: int, left: dict[int, Iterator[bool]], count: int) -> Iterator[bool]:
        """Yield the next ``count`` steps of a core, fewer if it waits or its program ends, which is not left then."""
        try:
            for _ in range(count):
                ran = next(left[core], None)
                if ran is None:
                    del left[core]
                    return
                yield ran
                if not ran:
                    return
        except MachineStop as stop:
            raise stop.of_core(core) if self.arch.cores > 1 else stop from None
