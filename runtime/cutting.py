# SPDX-License-Identifier: Apache-2.0
"""Estimate how many cycles it costs to cut a program into pieces, of a long program near the borders alone."""

from __future__ import annotations

import numpy as np

from weft.hw.contract.instructions import Opcode
from weft.runtime.pieces import Estimate, Pieces

SHORT = 100_000
"""The most instructions, Configures left out, of a program that is estimated as a whole, which is exact."""
NEAR = 5000
"""The instructions on either side of a border that are estimated in a longer program.

What the machine does behind them hardly depends on how it began. With 3000, 43 of 49 cuts of programs were estimated to
the cycle, and the worst was 387 of 699 000 cycles off."""


def cutting_cycles(pieces: Pieces, before: bytes, behind: bytes, estimate: Estimate, short: int = SHORT,
                   near: int = NEAR) -> int:
    """Return how many cycles all pieces take more than the program that they were cut from.

    ``before``, ``behind``: the programs around each piece. The result is exact for a program of at most ``short``
    instructions and an exact ``estimate``. In a longer one the pieces before a border and the piece behind it are
    estimated apart and together, ``near`` instructions on either side, and the program's begin and end with and
    without what is around them."""
    def framed(own: np.ndarray) -> int:
        return estimate(before + pieces.of(own).program + behind)

    stage, end = pieces.stage, len(pieces.works)
    if end <= short:
        return (sum(framed(np.flatnonzero(stage == number)) for number in range(pieces.count))
                - estimate(pieces.program))
    ends = np.union1d(_near(pieces, 0, 0, near), _near(pieces, end, end, near))
    cycles = framed(ends) - estimate(pieces.of(ends).program)
    for border in range(1, pieces.count):
        mixed = np.flatnonzero(stage >= border)[0], np.flatnonzero(stage < border)[-1] + 1
        own = _near(pieces, *mixed, near)
        cycles += (framed(own[stage[own] < border]) + framed(own[stage[own] == border])
                   - framed(own[stage[own] <= border]))
    return cycles


def _near(pieces: Pieces, first: int, end: int, near: int) -> np.ndarray:
    """Return the instructions from ``first`` to before ``end`` and about ``near`` on either side; no loop is cut."""
    cuts = np.union1d(np.flatnonzero(pieces.works != Opcode.SIMD), [0, len(pieces.works)])
    low = cuts[np.searchsorted(cuts, max(first - near, 0), "right") - 1]
    high = cuts[np.searchsorted(cuts, min(end + near, len(pieces.works)))]
    return np.arange(low, high)
