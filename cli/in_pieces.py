# SPDX-License-Identifier: Apache-2.0
"""The option ``--pieces`` of ``weft run --on rtl``."""

from __future__ import annotations

import os
from typing import Any

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

AUTO = "auto"
MOST = 1000
"""The most pieces."""


def piece_count(pieces: str | None, others: dict[str, bool]) -> int:
    """Return how many pieces ``--pieces`` asks for, 0 without it.

    Raise WeftError for anything but ``auto`` and a count, and beside options of which one is given."""
    if pieces is None:
        return 0
    for option in [name for name, given in others.items() if given]:
        raise WeftError(explain("--pieces", f"{option} beside it", "a whole program for it, or pieces without it",
                                "leave out one of both; pieces are always compared with golden"))
    if pieces == AUTO:
        return processors()
    if not pieces.isascii() or not pieces.isdigit() or not 1 <= int(pieces[:9]) <= MOST:
        raise WeftError(explain("--pieces", pieces, f"auto, or a number from 1 to {MOST}", "give --pieces auto"))
    return int(pieces)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def in_pieces(count: int, arch: Arch) -> dict[str, Any]:
    """Return options of a run whose programs are simulated in so many pieces. Raise WeftError for several cores."""
    from weft.cycles.shares import busiest_cycles

    def cycles(program: bytes) -> int:
        from weft.cycles.replay import estimate  # takes a third of a second: later, beside the first simulator

        return estimate(program, arch).cycles

    if arch.cores > 1:
        raise WeftError(explain("--pieces", f"a machine of {arch.cores} cores", "one of a single core",
                                "leave --pieces out"))
    return {"pieces": count, "processes": processors(), "estimate": cycles,
            "share": lambda program, parts: busiest_cycles(program, parts, arch)}
