# SPDX-License-Identifier: Apache-2.0
"""A program cut at borders of layers: each piece is a program that begins with the state at its border.

The scheduler mixes layers, but operations of different layers that it put in another order do not depend on each other.
So a piece has the instructions of its layers in their order, and all pieces one after another leave what the program
leaves. At a border accumulators and SIMD registers hold nothing that is still read; a run that does not agree with the
golden machine would show otherwise. The rest of the state comes from a block of DRAM0 beyond what the program uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.registers import Register
from weft.support.errors import WeftError, explain
from weft.tmodel.manifest import TModel

Estimate = Callable[[bytes], int]
"""A function that returns the cycles of a program after reset, with the simulation's memories."""
Share = Callable[[bytes, np.ndarray], np.ndarray]
"""A function that returns about how many cycles each part of a program takes.

It is given the program, and the number of the part of each instruction, from 0 on."""

LATER_PIECE = 0.85
"""The cycles of a piece per cycle of the one before it, for it begins when golden has run that one, a sixth of its
time later. So all end together."""

UNSEEN = {Register.TIMEOUT, Register.TRACEPOINT, Register.PROGRAM_COUNTER, Register.SAMPLE_INTERVAL}
"""Registers that say nothing of what a program computes; pieces leave them as they are."""


@dataclass(frozen=True)
class Piece:
    """Some instructions of a program as a program that begins with registers as after reset.

    ``origins`` [instructions]: the number of each one in the whole program; a Configure that was added has that of the
    instruction that needs it."""

    program: bytes
    origins: np.ndarray


class Pieces:
    """A program that can be cut: its instructions but the Configures, and what registers hold at each.

    ``stages`` [instructions, Repeats expanded]: the number of the piece of each instruction of the program, from 0 on;
    that of a Configure does not count. ``works`` [instructions]: the opcodes that are left, ``stage``: their pieces.
    ``program``: as it was given, with all of its Configures."""

    def __init__(self, program: bytes, stages: np.ndarray, arch: Arch) -> None:
        self.program, self._isa = program, Isa(arch)
        words = self._isa.split(program)
        self._places = np.flatnonzero(words[0] != Opcode.CONFIGURE)
        self._words = words[:, self._places]
        self._registers = [register for register in self._isa.registers if register not in UNSEEN]
        self._values = np.stack([_values(words, register, self._isa)[self._places] for register in self._registers])
        self.works, self.stage = self._words[0], stages[self._places]
        self.count = int(self.stage.max()) + 1

    def piece(self, number: int) -> Piece:
        """Return a piece of the program."""
        return self.of(np.flatnonzero(self.stage == number))

    def of(self, own: np.ndarray) -> Piece:
        """Return the piece of some instructions, by their numbers in ``works``."""
        reset = np.array([[self._isa.registers[register].reset] for register in self._registers], np.int64)
        values = self._values[:, own]
        which, before = np.nonzero(np.diff(values, axis=1, prepend=reset))
        configures = np.zeros((5, len(which)), np.uint64)
        configures[0], configures[2] = Opcode.CONFIGURE, np.array(self._registers, np.uint64)[which]
        configures[3] = values[which, before]
        order = np.argsort(np.concatenate([before, np.arange(len(own))]), kind="stable")
        together = np.concatenate([configures, self._words[:, own]], axis=1)[:, order]
        origins = self._places[np.concatenate([own[before], own])[order]]
        return Piece(self._isa.assemble_words(together), origins)


def _values(words: np.ndarray, register: Register, isa: Isa) -> np.ndarray:
    """Return the raw value of a register at each instruction."""
    sets = np.flatnonzero((words[0] == Opcode.CONFIGURE) & (words[2] == register))
    raw = np.concatenate([[isa.registers[register].reset], words[3, sets].astype(np.int64)])
    return np.asarray(raw[np.searchsorted(sets, np.arange(words.shape[1]))])


@dataclass(frozen=True)
class Frame:
    """The programs around a piece: before it they load the state at its border, behind it they save local memory.

    ``block``: the first free block of 64 KiB of DRAM0."""

    arch: Arch
    block: int

    @property
    def isa(self) -> Isa:
        """The machine's instructions."""
        return Isa(self.arch)

    @property
    def _chunk(self) -> int:
        """The vectors of a block, as many as one DataMove takes."""
        return min(DRAM_OFFSET_BYTES // self.arch.vector_bytes, self.arch.local_depth, self.arch.dram0_depth)

    def _blocks(self, vectors: int) -> int:
        """Return the blocks for so many vectors."""
        return -(-vectors // self._chunk)

    def before(self, state: Machine) -> tuple[bytes, list[tuple[int, np.ndarray]]]:
        """Return a program that gives a machine the state of ``state``, and what it reads.

        The state is local memory, weights, scales and tables. What it reads are vectors [size, lanes], each with its
        block of DRAM0."""
        isa, block, program, read = self.isa, self.block, list[Instruction](), list[tuple[int, np.ndarray]]()
        for content, loads in (*_loads(state, isa), (state.local, [])):
            for low in range(0, len(content), self._chunk):
                read.append((block, content[low:low + self._chunk]))
                program += self._move(DataFlow.DRAM0_TO_LOCAL, low, len(read[-1][1]), block)
                block += 1
            program += loads
        return isa.assemble([*program, self._offset(0)]), read

    def behind(self) -> bytes:
        """Return a program that saves local memory, with registers as another program left them."""
        isa = self.isa
        program = [isa.configure(Register.MOVE_ROWS, 0)] if Register.MOVE_ROWS in isa.registers else []
        for number, low in enumerate(range(0, self.arch.local_depth, self._chunk)):
            size = min(self._chunk, self.arch.local_depth - low)
            program += self._move(DataFlow.LOCAL_TO_DRAM0, low, size, self.block + number)
        return isa.assemble(program)

    def saved(self) -> list[tuple[int, int, int]]:
        """Return where :meth:`behind` puts local memory: first vector, vectors, block of DRAM0."""
        return [(low, min(self._chunk, self.arch.local_depth - low), self.block + number)
                for number, low in enumerate(range(0, self.arch.local_depth, self._chunk))]

    def _move(self, flow: DataFlow, local: int, size: int, block: int) -> list[Instruction]:
        """Return the instructions that move vectors between local memory and the beginning of a block."""
        return [self._offset(block), self.isa.data_move(flow, local, 0, size)]

    def _offset(self, block: int) -> Instruction:
        """Return the Configure that lets DRAM0 begin at a block. Raise WeftError beyond the machine's addresses."""
        most = self.isa.registers[Register.DRAM0_OFFSET].maximum
        if block > most:
            raise WeftError(explain("--pieces", "no room in DRAM0 behind the images for the state at a "
                                    f"border: it needs block number {block}", f"a block of 64 KiB up to number {most}",
                                    "run fewer images, or leave --pieces out"))
        return self.isa.configure(Register.DRAM0_OFFSET, block)


def _loads(state: Machine, isa: Isa) -> list[tuple[np.ndarray, list[Instruction]]]:
    """Return vectors that are loaded to the beginning of local memory, and the instructions that take them there."""
    found = [(state.weights, [isa.load_weight(0, len(state.weights))])]
    opcodes = isa.opcodes()
    if Opcode.LOAD_LUT in opcodes:
        found += [(values, [isa.load_lut(0, table)]) for table, values in enumerate(state.luts)]
    if Opcode.LOAD_SCALE in opcodes:
        found.append((state.scales, [isa.load_scale(0)]))
    if Opcode.LOAD_ACTIVATION_TABLE in opcodes:
        found += [(values, [isa.load_activation_table(0, table)])
                  for table, values in enumerate(state.activation_tables, 1)]
    return found


def stages_of(program: bytes, model: TModel, pieces: int, arch: Arch, share: Share) -> np.ndarray:
    """Return the piece of each instruction of the program of one image or several: at most ``pieces``.

    Each piece takes ``LATER_PIECE`` of the cycles of the one before, by ``share`` of each layer. All are one piece
    where the model does not know the layers of its instructions, or if it is another program."""
    isa = Isa(arch)
    works, own_works = (isa.split(each)[0] != Opcode.CONFIGURE for each in (program, model.program))
    stages = np.zeros(len(works), np.int64)
    if model.instruction_layers is None:
        return stages
    there, layers = np.unique(model.instruction_layers[own_works], return_inverse=True)
    images, beyond = divmod(int(works.sum()), max(len(layers), 1))
    if beyond or not images:
        return stages
    parts = np.zeros(len(own_works), np.int64)
    parts[own_works] = layers
    cycles = np.tile(share(model.program, parts), images)
    middles = (np.cumsum(cycles) - cycles / 2) / cycles.sum()
    shares = np.cumsum(LATER_PIECE ** np.arange(pieces))
    piece = np.searchsorted(shares / shares[-1], middles)[(np.arange(images)[:, None] * len(there) + layers).ravel()]
    stages[works] = np.unique(piece, return_inverse=True)[1]
    return stages
