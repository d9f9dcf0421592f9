# SPDX-License-Identifier: Apache-2.0
"""About how many cycles parts of a program take, counted and not stepped."""

from __future__ import annotations

import numpy as np

from weft.cycles.program import passed_vectors, read_program
from weft.hw.contract.arch import Arch
from weft.hw.contract.units import UNIT_NAMES


def busiest_cycles(program: bytes, parts: np.ndarray, arch: Arch) -> np.ndarray:
    """Return float64 [parts]: the cycles for which the busiest unit of each part of a legal program works.

    ``parts`` [instructions, Repeats expanded]: the number of the part that each belongs to, from 0 on. A unit takes a
    cycle for each vector, at a DRAM port one for each beat. Waits are left out. Raise IsaError and EstimateError as
    :func:`~weft.cycles.program.read_program` does."""
    work = read_program(program, arch).work
    vector_cycles = np.array([max(8 * arch.vector_bytes / arch.axi_data_width, 1.0) if name.startswith("dram") else 1.0
                              for name in UNIT_NAMES])
    vectors = np.where(work["loop"] == 1, 0, passed_vectors(work))  # what a loop's header passes counts for its body
    count, units = int(parts.max(initial=-1)) + 1, len(UNIT_NAMES)
    found = np.bincount(parts[work["instruction"]] * units + work["unit"], vectors * vector_cycles[work["unit"]],
                        count * units)
    return np.asarray(found.reshape(-1, units).max(axis=1))
