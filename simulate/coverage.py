# SPDX-License-Identifier: Apache-2.0
"""Coverage of the Verilog, counted by Verilator: which lines and branches ran, and which bits toggled.

If the environment variable WEFT_COVERAGE names a folder, simulations are built with counters, and each run adds its
counts to files of that folder: ``DESIGN.dat`` has the points in Verilator's own format, ``DESIGN.npy`` the sums of
their counts. Without the variable nothing changes."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from weft.support.errors import WeftError, explain
from weft.support.locks import locked

VARIABLE = "WEFT_COVERAGE"
FLAGS = ("--coverage-line", "--coverage-toggle")
OF_A_RUN = "coverage.dat"
"""The file of Verilator's counts in the folder of a run."""
TOTAL = ".npy"
"""The suffix of the file with a design's counts, beside the file with its points."""
_COUNT = re.compile(rb"' (\d+)\n")
Counts = dict[str, int]
"""A point, as Verilator writes it between quotes, -> how often it was met."""


def folder() -> Path | None:
    """Return the folder that collects counts, made if need be; None if nothing is to be counted.

    Raise WeftError if it cannot be made."""
    if not os.environ.get(VARIABLE):
        return None
    collects = Path(os.environ[VARIABLE]).resolve()
    try:
        collects.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WeftError(explain(VARIABLE, f"{collects} ({error.strerror})", "a folder that can be made",
                                f"unset {VARIABLE}, or name another folder")) from None
    return collects


def read(points: Path) -> Counts:
    """Return the points of a design's file with the counts of all its runs."""
    lines = (line for line in points.read_text().splitlines() if line.startswith("C "))
    return dict(zip((line[3:line.rindex("'")] for line in lines), np.load(points.with_suffix(TOTAL)).tolist(),
                    strict=True))


def fields(point: str) -> Mapping[str, str]:
    """Return the fields of a point by Verilator's letters.

    Among them are ``f`` file, ``l`` line, ``h`` instance, ``o`` what of the line, ``page`` the kind and the module."""
    return dict(pair.split("\2", 1) for pair in point.split("\1")[1:])


def add(run: Path, design: str) -> None:
    """Move the counts of one run to those of its design. Other processes may do the same at the same time.

    All runs of a design have the same points in the same order, so only the first one's file stays."""
    collects = folder()
    if collects is None:
        return
    points = collects / f"{design}.dat"
    counts = np.array([int(count) for count in _COUNT.findall(run.read_bytes())])
    with locked(collects):
        if points.exists():
            counts += np.load(points.with_suffix(TOTAL))
        work = points.with_suffix(".work.npy")
        np.save(work, counts)
        work.replace(points.with_suffix(TOTAL))
        if not points.exists():
            shutil.move(run, points)
    run.unlink(missing_ok=True)
