# SPDX-License-Identifier: Apache-2.0
"""Expansion of Repeat, which stands for instructions that go on as earlier ones did.

See docs/decisions/small-programs.md. Every instruction is a *step* from the latest one of its kind: opcode, flags and
operand 2 as they are, operands 0 and 1 as increments, modulo their widths. ``Repeat distance count`` takes ``count``
steps in a row, from that of the instruction ``distance`` before it on. Its own steps are among them if ``count`` is
more than ``distance``. The kind is the opcode, of a DataMove its flow too. Configure has no increments. Distances count
from the last reset on; the first instruction of a kind steps from operands of 0."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from weft.hw.contract.instructions import Instruction, Opcode
from weft.support.errors import IsaError, explain

MOST_INSTRUCTIONS = 1 << 23
"""Instructions that tools let a program stand for at most; each takes them some hundred bytes.

ResNet-50 on 4 lanes has 6.5 million."""

KINDS = 32
_NO_KIND = -1

_Step = tuple[int, int, int, int, int, int]
"""A step: kind, _NO_KIND for a Configure, then opcode, flags, increments or operands 0 and 1, operand 2."""


def kind_of(opcode: int, flags: int) -> int:
    """Return the number of an instruction's kind, below KINDS."""
    return 16 | flags if opcode == Opcode.DATA_MOVE else opcode


class History:
    """The instructions since reset, as many as a Repeat can reach.

    ``depth``: the key ``repeat_depth``; with 0 every word stands for itself. ``widths``: bits of operands 0 and 1."""

    def __init__(self, depth: int, widths: tuple[int, int]) -> None:
        self._depth, self._ended = depth, depth == 0
        self._masks = (1 << widths[0]) - 1, (1 << widths[1]) - 1
        self._steps: list[_Step] = []
        self._latest = [(0, 0)] * KINDS

    def counts(self, words: np.ndarray) -> np.ndarray:
        """Return int64 [words]: how many instructions each of the next words [5, words] stands for."""
        return counts(words, self._depth, len(self._steps))

    def expand(self, word: Instruction) -> Iterator[Instruction]:
        """Yield the instructions that a word of a program stands for: itself, or those that it repeats.

        An illegal Repeat stands for itself, so that the machine refuses it, and so does every word behind it."""
        self._ended = self._ended or word.opcode == Opcode.REPEAT and not self._is_legal(word)
        if self._ended:
            yield word
        elif word.opcode == Opcode.REPEAT:
            yield from self._again(word.raw("distance") + 1, word.raw("count") + 1)
        else:
            self._record(word)
            yield word
        if len(self._steps) > 2 * self._depth:  # now and then: a list gives up its front slowly
            del self._steps[:-self._depth]

    def _is_legal(self, word: Instruction) -> bool:
        """Tell whether the Repeat ``word`` is legal: no bits without a meaning, and not too far back."""
        reach = min(self._depth, len(self._steps))
        return not word.flags and not word.operand2 and word.raw("distance") < reach

    def _record(self, instruction: Instruction) -> None:
        """Record an instruction as the step that a later Repeat may take."""
        opcode, flags, operand0, operand1, operand2 = instruction
        kind = _NO_KIND
        if opcode != Opcode.CONFIGURE:
            kind = kind_of(opcode, flags)
            before0, before1 = self._latest[kind]
            self._latest[kind] = operand0, operand1
            operand0, operand1 = operand0 - before0 & self._masks[0], operand1 - before1 & self._masks[1]
        self._steps.append((kind, opcode, flags, operand0, operand1, operand2))

    def _again(self, distance: int, count: int) -> Iterator[Instruction]:
        """Yield the ``count`` instructions whose steps begin ``distance`` back, and record them."""
        steps, latest, (mask0, mask1) = self._steps, self._latest, self._masks  # local, for speed
        for _ in range(count):
            step = steps[-distance]
            steps.append(step)
            kind, opcode, flags, operand0, operand1, operand2 = step
            if kind != _NO_KIND:
                before0, before1 = latest[kind]
                operand0, operand1 = before0 + operand0 & mask0, before1 + operand1 & mask1
                latest[kind] = operand0, operand1
            yield Instruction(opcode, flags, operand0, operand1, operand2)


def counts(words: np.ndarray, depth: int, earlier: int = 0) -> np.ndarray:
    """Return int64 [words]: how many instructions each of the words [5, words] of a program stands for.

    ``earlier``: instructions since reset before these. From an illegal Repeat on, at which the machine stops, each word
    stands for itself. Raise IsaError for more than MOST_INSTRUCTIONS."""
    repeats = words[0] == Opcode.REPEAT
    plain = repeats & (words[1] == 0) & (words[4] == 0)
    found = np.where(plain, words[3].astype(np.int64) + 1, 1)
    before = earlier + np.cumsum(found) - found
    illegal = np.flatnonzero(repeats & ~(plain & (words[2].astype(np.int64) < np.minimum(before, depth))))
    if len(illegal):
        found[illegal[0]:] = 1
    total = int(found.sum())
    if total > MOST_INSTRUCTIONS:
        raise IsaError(explain("program", f"Repeats that make {total} instructions of {words.shape[1]}",
                               f"at most {MOST_INSTRUCTIONS}", "run a part of it"))
    return found


def expand(words: np.ndarray, depth: int, widths: tuple[int, int]) -> np.ndarray:
    """Return uint64 [5, instructions]: what the words [5, words] of a program stand for after a reset.

    ``depth`` and ``widths`` are as in :class:`History`. It takes a few us an instruction. Raise IsaError for more than
    MOST_INSTRUCTIONS."""
    total, history = int(counts(words, depth).sum()), History(depth, widths)
    rows = chain.from_iterable(history.expand(Instruction(*row)) for row in words.T.tolist())
    fields = np.fromiter(chain.from_iterable(rows), np.uint64, total * len(words))
    return np.ascontiguousarray(fields.reshape(-1, len(words)).T)
