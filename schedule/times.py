# SPDX-License-Identifier: Apache-2.0
"""How long each core works on each layer, by the estimator."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.backend.encode import MachineCode
from weft.cycles.replay import Estimate, estimate
from weft.cycles.system import estimate_system
from weft.cycles.waits import analyse
from weft.hw.contract.arch import Arch


def layer_cycles(codes: Sequence[MachineCode], arch: Arch, layers: Sequence[Sequence[int]]) -> list[dict[int, int]]:
    """Return the cycles of each core's ``layers`` [cores]: those of its MatMuls with what they waited for.

    What is left of a core's cycles, such as the program's tail, counts to its last layer."""
    programs = [code.content for code in codes]
    found = (estimate(programs[0], arch),) if arch.cores == 1 else estimate_system(programs, arch).cores
    return [_of_core(each, code, arch, own) for each, code, own in zip(found, codes, layers, strict=True)]


def _of_core(found: Estimate, code: MachineCode, arch: Arch, layers: Sequence[int]) -> dict[int, int]:
    program, last = found.program, max(layers, default=0)
    known = np.full(program.instructions, last, np.int64)
    known[:len(code.layers)] = code.layers[:program.instructions]
    waits = analyse(program, found.operations, found.cycles, known[program.work["instruction"]], arch)
    cycles = waits.vectors + waits.waits.sum(axis=1)
    times = {layer: int(cycles[layer]) if layer < len(cycles) else 0 for layer in layers}
    if layers:
        times[last] += found.cycles - sum(times.values())
    return times
