# SPDX-License-Identifier: Apache-2.0
"""A golden machine that runs one program of a network instruction by instruction, up to any place in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from weft.golden.machine import Machine
from weft.hw.contract.instructions import OPERATIONS, Instruction, Opcode
from weft.runtime.devices import Golden
from weft.runtime.session import Loaded, Session

NO_LAYER = -1


class Stepper:
    """A program on the golden machine, stopped before the instruction ``at``; at ``count`` the program has ended.

    ``layers`` [count]: the number of each instruction's layer, NO_LAYER for none; ``names``: of layers. ``starts``:
    the first instruction of each layer that has one, by the layer's number."""

    def __init__(self, session: Session, program: int, inputs: Mapping[str, np.ndarray]) -> None:
        """Run all that comes before ``program``, for the first image. Raise WeftError for inputs that do not fit."""
        self.loaded: Loaded = session.machines[program]
        self.isa, model = self.loaded.isa, self.loaded.model
        self._inputs = self.loaded.packed(session.values_before(self.loaded, inputs))
        self._rows = self.isa.split(model.program)
        self.count = self._rows.shape[1]
        self.names = [row["name"] for row in model.layers]
        self.layers = np.full(self.count, NO_LAYER)
        if model.instruction_layers is not None:
            known = model.instruction_layers[:self.count]
            self.layers[:len(known)] = known
        numbers, firsts = np.unique(self.layers, return_index=True)
        self.starts = {int(layer): int(first) for layer, first in zip(numbers, firsts, strict=True)
                       if layer != NO_LAYER}
        self.restart()

    def restart(self) -> None:
        """Place constants and inputs in empty memories, run the preload, and stop before the first instruction."""
        memory = Golden(self.loaded.arch)
        self.loaded.place(memory, [self._inputs])
        self.machine = Machine(self.loaded.arch, memory.drams["dram0"], memory.drams["dram1"])
        self.machine.run(self.loaded.preload)
        self.machine.soft_reset()
        self.machine.saturated.clear()
        self.at = 0

    def instruction(self, number: int) -> Instruction:
        """Return instruction ``number`` of the program, which counts from 0 with Repeats expanded."""
        return Instruction(*self._rows[:, number].tolist())

    def name(self, number: int) -> str | None:
        """Return the name of an instruction's layer, None if it belongs to none or the file does not say."""
        layer = int(self.layers[number])
        return None if layer == NO_LAYER or layer >= len(self.names) else self.names[layer]

    def of_opcode(self, opcode: Opcode) -> list[int]:
        """Return the numbers of all instructions with an opcode."""
        return np.flatnonzero(self._rows[0] == opcode).tolist()

    def opcodes(self) -> dict[str, Opcode]:
        """Return the opcodes that the program has, by name in lower case."""
        return {OPERATIONS[Opcode(number)].name.lower(): Opcode(number) for number in np.unique(self._rows[0]).tolist()}

    def run_to(self, number: int) -> None:
        """Run from instruction ``at`` until just before instruction ``number``, which counts from 0 to ``count``.

        Repeats are expanded. Nothing runs if the program is there or beyond already. Raise MachineStop at an illegal
        instruction, and stay before it."""
        while self.at < number:
            self.machine.step(self.instruction(self.at))
            self.at += 1
