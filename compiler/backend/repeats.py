# SPDX-License-Identifier: Apache-2.0
"""Find repetitions that a Repeat can stand for (``hw/contract/repeats.py``): a program shrinks to a few percent.

A Repeat takes as much space as an instruction, so the longest repetition from each place on is always the best one."""

from __future__ import annotations

import numpy as np

from weft.cycles.native import kernel, native
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.repeats import KINDS, kind_of

_BUCKETS = 1 << 16
"""The number of buckets for pairs of steps, by a hash of both."""


def shortened(table: np.ndarray, isa: Isa) -> np.ndarray:
    """Return the words of a program, uint64 [5, words], with Repeats where these take fewer words.

    ``table`` has the instructions [5, instructions]: opcode, flags, operands 0, 1, 2. The machine must have Repeats. It
    processes some million instructions a second."""
    distance_width, count_width = isa.operand_widths[:2]
    reach, most = min(isa.arch.repeat_depth, 1 << distance_width), 1 << min(count_width, 32)
    size = table.shape[1]
    places, distances, counts = np.zeros((3, size), np.int64)
    words = _longest_repetitions(*_steps(table, isa), reach, most, np.full(_BUCKETS, -1), np.full(size, -1),
                                 places, distances, counts)
    places, distances, counts = places[:words], distances[:words], counts[:words]
    repeats = np.zeros((len(table), len(places)), np.uint64)
    repeats[0], repeats[2], repeats[3] = Opcode.REPEAT, distances - 1, counts - 1
    return np.where(distances > 0, repeats, table[:, places])


def _steps(table: np.ndarray, isa: Isa) -> tuple[np.ndarray, np.ndarray]:
    """Return two arrays, uint64 [instructions], that identify each instruction's step.

    Both are equal for two instructions that differ in the same way from the latest one of their kind. The step of the
    first of a kind depends on the program before, and equals no other."""
    opcode, flags, *operands = table.copy()
    kinds = np.array([[kind_of(code, flag) for flag in range(16)] for code in range(16)])[opcode, flags]
    first: np.ndarray = np.zeros(len(opcode), bool)
    for kind in set(range(KINDS)) - {kind_of(Opcode.CONFIGURE, 0)}:
        own = np.flatnonzero(kinds == kind)
        first[own[:1]] = True
        for operand in (0, 1):
            mask = np.uint64((1 << isa.operand_widths[operand]) - 1)
            operands[operand][own[1:]] = np.diff(operands[operand][own]) & mask
    one = operands[0] | operands[1] << np.uint64(isa.operand_widths[0])
    other = (operands[2] << np.uint64(4) | opcode) << np.uint64(4) | flags
    return one, np.where(first, ~np.arange(len(opcode), dtype=np.uint64), other)


@kernel
def _bucket(one, other, place):  # type: ignore
    """Return the hash bucket of the pair of steps at ``place``."""
    mixed = one[place] + (other[place] << np.uint64(7))
    mixed += (one[place + 1] + (other[place + 1] << np.uint64(7))) * np.uint64(0x9E37_79B9_7F4A_7C15)
    return np.int64(mixed * np.uint64(0xD6E8_FEB8_6659_FD93) >> np.uint64(48))


@kernel
def _equal_steps(one, other, found, place, most):  # type: ignore
    """Return how many steps from ``found`` on equal those from ``place`` on, at most ``most``.

    A step is equal if both of its parts are: ``one`` and ``other`` [words]."""
    length = 0
    while (place + length < len(one) and length < most and one[found + length] == one[place + length]
           and other[found + length] == other[place + length]):
        length += 1
    return length


@native
def _longest_repetitions(one, other, reach, most, newest, before, places, distances, counts):  # type: ignore
    """Return the number of words with which the program is written with Repeats.

    Each word begins at one of ``places`` in the program. It repeats as many instructions as ``counts`` says (at
    most ``most``) from ``distances`` back (at most ``reach``), or is the instruction itself for a distance of 0.
    ``newest`` [buckets], the latest place of each bucket, and ``before`` [instructions], the one before it of the same
    bucket, are -1 at first."""
    size, place, words = len(one), 0, 0
    while place < size:
        best, distance = 1, 0
        found = newest[_bucket(one, other, place)] if place + 1 < size else -1
        while found >= 0 and place - found <= reach:
            length = _equal_steps(one, other, found, place, most)
            if length > best:
                best, distance = length, place - found
            found = before[found]
        places[words], distances[words], counts[words] = place, distance, best
        words += 1
        for passed in range(place, min(place + best, size - 1)):
            bucket = _bucket(one, other, passed)
            before[passed] = newest[bucket]
            newest[bucket] = passed
        place += best
    return words
