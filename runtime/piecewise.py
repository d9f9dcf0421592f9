# SPDX-License-Identifier: Apache-2.0
"""The simulated hardware with a program in pieces side by side: golden runs ahead and knows memory at every border."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.registers import Register
from weft.runtime.compare import compare
from weft.runtime.cutting import cutting_cycles
from weft.runtime.devices import RTL, Done, Golden, Local, Progress, no_progress, simulated
from weft.runtime.pieces import Estimate, Frame, Piece, Pieces, Share, stages_of
from weft.support.errors import Mismatch
from weft.tmodel.manifest import TModel

if TYPE_CHECKING:
    from weft.simulate.rtl import RtlResult


@dataclass(frozen=True)
class _Border:
    """Golden's memories at a border: DRAMs by name, local memory [depth, lanes]."""

    drams: dict[str, Dram]
    local: np.ndarray


@dataclass(frozen=True)
class _Simulated:
    """A piece that was simulated: how it ended, and what it left in the DRAMs, as golden did."""

    result: RtlResult
    drams: dict[str, Dram]


class Piecewise(Local):
    """The Verilog under Verilator, a program of ``model`` in up to ``pieces`` pieces, ``processes`` side by side.

    Every word of DRAM and of local memory must be golden's at each border. ``share`` says how many cycles layers take.
    ``estimate`` joins cycles: those of the pieces, less what the estimator says of the instructions near each border
    that cutting costs (:mod:`~weft.runtime.cutting`)."""

    name = RTL

    def __init__(self, arch: Arch, model: TModel, pieces: int, processes: int, estimate: Estimate, share: Share,
                 **options: Any) -> None:
        super().__init__(arch)
        self.model, self.pieces, self.processes = model, pieces, processes
        self.estimate, self.share, self.options = estimate, share, options
        self.reference: Golden = Golden(arch)

    def run(self, groups: Sequence[Sequence[bytes]], progress: Progress = no_progress) -> list[list[Done]]:
        """Run programs one after another, each in pieces; return how each ended. Raise Mismatch at a border."""
        for name, dram in self.drams.items():
            _copy(dram, self.reference.drams[name])
        state = Machine(self.arch, self.reference.drams["dram0"], self.reference.drams["dram1"])
        return [[self._run(program, state, progress)] for program, in groups]

    def _run(self, program: bytes, state: Machine, progress: Progress) -> Done:
        """Run one program; ``state`` is golden's before it, and then behind it."""
        from weft.simulate.rtl import build_rtl

        simulated(lambda: build_rtl(self.arch, stage=lambda stage: progress(stage, 0, 0)))
        pieces = Pieces(program, stages_of(program, self.model, self.pieces, self.arch, self.share), self.arch)
        frame = Frame(self.arch, self._free_block(program))
        saturated: Counter[int] = Counter()
        with ThreadPoolExecutor(self.processes) as pool:
            jobs: list[Future[_Simulated]] = []
            ends: list[Future[_Border]] = []
            try:
                for number in range(pieces.count):
                    progress("simulating pieces", number + 1, pieces.count)
                    piece, (before, read) = pieces.piece(number), frame.before(state)
                    begin = {name: _twin(self.arch, dram) for name, dram in state.drams.items()}
                    for block, vectors in read:
                        begin["dram0"].write(0, vectors, block)
                    ends.append(Future())
                    jobs.append(pool.submit(self._simulate, before + piece.program + frame.behind(), begin, ends[-1],
                                            frame, f"{number + 1} of {pieces.count}"))
                    saturated += _on_golden(state, piece)
                    ends[-1].set_result(_Border({name: _twin(self.arch, dram) for name, dram in state.drams.items()},
                                                state.local.copy()))
                # while pieces are simulated, so that nothing is left to do behind the last one
                cutting = cutting_cycles(pieces, before, frame.behind(), self.estimate)
                found = [job.result() for job in jobs]
            except BaseException:
                for border in ends:
                    border.cancel()
                pool.shutdown(cancel_futures=True)
                raise
        for name, dram in found[-1].drams.items():
            _copy(dram, self.drams[name])
        return Done(instructions=Isa(self.arch).split(program).shape[1],
                    cycles=sum(each.result.cycles for each in found) - cutting,
                    seconds=sum(each.result.seconds for each in found), saturated=saturated)

    def _free_block(self, program: bytes) -> int:
        """Return the first block of 64 KiB of DRAM0 behind all windows of a program."""
        words = Isa(self.arch).split(program)
        moves = (words[0] == Opcode.CONFIGURE) & (words[2] == Register.DRAM0_OFFSET)
        return int(words[3, moves].max(initial=0)) + -(-self.arch.dram0_window_bytes // DRAM_OFFSET_BYTES)

    def _simulate(self, program: bytes, drams: dict[str, Dram], border: Future[_Border], frame: Frame,
                  which: str) -> _Simulated:
        """Run a piece with what is around it on ``drams``, and compare the ``border`` at its end, when golden has it.

        Raise Mismatch if it differs."""
        from weft.simulate.rtl import run_on_rtl

        result = simulated(lambda: run_on_rtl(self.arch, program, drams["dram0"], drams["dram1"], **self.options))
        if result.error_cause is not Cause.NONE:
            raise Mismatch(f"piece {which}: the RTL stopped with cause {result.error_cause.name}; golden went on")
        end = border.result()
        for low, size, block in frame.saved():
            differs = np.argwhere(drams["dram0"].read(0, size, block) != end.local[low:low + size])
            if len(differs):
                vector, lane = differs[0].tolist()
                raise Mismatch(f"piece {which}: vector {low + vector} of local memory, lane {lane}, is not golden's "
                               f"{end.local[low + vector, lane]} at its end")
        left = {name: _twin(self.arch, dram, frame.block * DRAM_OFFSET_BYTES if name == "dram0" else dram.size)
                for name, dram in drams.items()}
        for name, dram in left.items():
            compared = compare(self.arch, name, end.drams[name], dram, dram.size)
            if compared.first:
                raise Mismatch(f"piece {which}: {compared.first}")
        return _Simulated(result, left)


def _on_golden(state: Machine, piece: Piece) -> Counter[int]:
    """Run a piece on golden from reset; return the numbers that saturated, by instruction of the whole program."""
    state.soft_reset()
    state.saturated.clear()
    first = state.instruction_count
    state.run(piece.program)
    return Counter({int(piece.origins[place - first]): count for place, count in state.saturated.items()})


def _twin(arch: Arch, dram: Dram, end: int | None = None) -> Dram:
    """Return a copy of a memory, or of its bytes before ``end``."""
    twin = Dram(arch)
    _copy(dram, twin, dram.size if end is None else end)
    return twin


def _copy(source: Dram, target: Dram, most: int | None = None) -> None:
    """Copy everything that ``source`` holds, or its bytes before ``most``; the target holds nothing elsewhere."""
    for start, end in source.extents():
        end = end if most is None else max(start, min(end, most))
        target.bytes[start:end] = source.bytes[start:end]
