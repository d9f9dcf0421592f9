# SPDX-License-Identifier: Apache-2.0
"""The operations of a program as people read them: layer, instruction, addresses, and time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from weft.cycles.program import MEMORIES, NO_MEMORY, DecodedProgram, passed_vectors, read_program
from weft.cycles.state import LOAD_WEIGHT
from weft.cycles.waits import NO_LAYER
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.timing import product_latency
from weft.hw.contract.units import NEVER, UNIT_NAMES
from weft.report.texts import shown
from weft.tmodel.manifest import TModel


@dataclass(frozen=True)
class Ran:
    """A program of ``model`` that ran, or whose run was estimated.

    ``program``: its bytes, longer than the model's own for several images; ``operations``: a row of ``units.OPERATION``
    for each operation, in program order."""

    model: TModel
    program: bytes
    cycles: int
    operations: np.ndarray

    @cached_property
    def decoded(self) -> DecodedProgram:
        """The decoded program, as the estimator reads it."""
        return read_program(self.program, self.model.arch)

    @cached_property
    def work(self) -> np.ndarray:
        """The operations that ran, as records [operations] of ``weft.cycles.program.WORK``."""
        return self.decoded.work[:len(self.operations)]

    @cached_property
    def layers(self) -> np.ndarray:
        """[operations]: the number of each one's layer in the model, NO_LAYER if it is not known.

        Every image has the operations of the model's own program."""
        found, known = np.full(len(self.operations), NO_LAYER), self.model.instruction_layers
        if known is not None:
            once = read_program(self.model.program, self.model.arch).work["instruction"]
            number = once[np.arange(len(found)) % len(once)]
            found[number < len(known)] = known[number[number < len(known)]]
        return found

    @cached_property
    def spans(self) -> tuple[np.ndarray, np.ndarray]:
        """[operations]: the first cycle in which each keeps its unit busy, and the one after its last.

        Both are NEVER for operations that did not finish. A unit takes an operation while it works on the one before;
        that one counts. A LoadWeight that was taken waits for the MatMul that takes over the weights before it."""
        begins, ends = (np.full(len(self.operations), NEVER, np.int64) for _ in range(2))
        for unit in range(len(UNIT_NAMES)):
            of_unit = np.flatnonzero((self.operations["unit"] == unit) & (self.operations["finish_cycle"] != NEVER))
            behind = self.operations["finish_cycle"][of_unit] + 1
            free = np.concatenate([[0], behind[:-1]])[:len(behind)]
            begins[of_unit], ends[of_unit] = np.maximum(self.operations["start_cycle"][of_unit], free), behind
        loads = np.flatnonzero((self.work["unit"] == LOAD_WEIGHT) & (self.work["turn"] > 0) & (begins != NEVER))
        begins[loads] = np.maximum(begins[loads], self._swaps[self.work["turn"][loads] - 1])
        return begins, ends

    @cached_property
    def _swaps(self) -> np.ndarray:
        """[MatMuls that take over weights]: the cycle after that in which each asks for its first vector.

        It assumes that nothing held up its other vectors; 0 for those that did not finish."""
        of_swaps = self.work["swap"] != 0
        work, ended = self.work[of_swaps], self.operations["finish_cycle"][of_swaps]
        first = ended + 1 - product_latency(self.model.arch) - passed_vectors(work)
        return np.where(ended == NEVER, 0, first + 1)

    @cached_property
    def layer_names(self) -> list[str]:
        """The names of the model's layers, printable."""
        return [shown(row["name"]) for row in self.model.layers]

    @cached_property
    def texts(self) -> list[str]:
        """[operations]: the instruction as assembly.

        Equal instructions, of which there are many, are formatted once."""
        isa = Isa(self.model.arch)
        rows = isa.split(self.program)[:, self.work["instruction"]].T
        different, which = np.unique(rows, axis=0, return_inverse=True)
        texts = [instruction_text(isa, Instruction(*row)) for row in different.tolist()]
        return [texts[index] for index in which.ravel().tolist()]

    @cached_property
    def addresses(self) -> list[str]:
        """[operations]: the ranges that each reads and writes, inclusive.

        An example is ``reads local 3..51, writes accumulators 0..48``."""
        columns = [[self.work[f"{name}{operand}"].tolist() for name in ("memory", "writes", "first", "last")]
                   for operand in (0, 1)]
        return [", ".join(_range(*values) for values in pair if values[0] != NO_MEMORY)
                for pair in zip(*(zip(*column, strict=True) for column in columns), strict=True)]


def _range(memory: int, writes: int, first: int, last: int) -> str:
    """Return a range of addresses as text."""
    return f"{'writes' if writes else 'reads'} {MEMORIES[memory].value} {first}..{last}"


def operands(text: str) -> dict[str, Any]:
    """Return the words ``name=value`` of an instruction's text."""
    return dict(word.split("=", 1) for word in text.split(" ") if "=" in word)
