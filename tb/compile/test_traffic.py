# SPDX-License-Identifier: Apache-2.0
"""What the model of costs says that a tiling moves is what the layer moves when it is emitted with that tiling."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.layers.beside import simd_instructions
from weft.compiler.lir import DRAM0, DRAM1
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.products import Products
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.scheduler.emit import LayerEmitter, Pools
from weft.compiler.scheduler.load import WeightSource
from weft.compiler.scheduler.pool import Pool
from weft.compiler.tiling.candidates import Tiling, candidates
from weft.compiler.tiling.costs import cost, need, traffic
from weft.compiler.tiling.search import Plan
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps

ARCH = BASE.replace(array_size=3, local_depth=1400, accumulator_depth=300)
LAYER = 1


def network(tmp_path: Path, group: int) -> Products:
    """A convolution of 12 channels and ``group`` groups, behind one that makes them; nothing stays in local memory."""
    maker = ModelMaker((1, 3, 20, 20))
    made = maker.node("Relu", maker.conv("x", 3, 12, (1, 1)))
    maker.conv(made, 12, 12, (3, 3), group=group, pads=(1, 1, 1, 1), strides=(2, 2))
    return after_all_steps(maker.save(tmp_path / f"{group}.onnx"), ARCH.replace(dram_ports="shared"),
                           np.ones((1, 3, 20, 20)))


def moved(state: Products, tiling: Tiling) -> Counter[str]:
    """Vectors that the layer reads of either DRAM, emitted with this tiling into an empty machine."""
    layout = state[MemoryPlan]
    shape = layout.shapes[LAYER]
    emitter = LayerEmitter(shape, Plan(tiling, need(shape, tiling), 0.0, None), state[Numbers].registers(LAYER),
                           layout.homes, {}, Pools(Pool(ARCH.local_depth), Pool(ARCH.accumulator_depth)),
                           WeightSource(None))
    found: Counter[str] = Counter()
    for operation in emitter.operations():
        if isinstance(operation, lir.DataMove) and operation.to_local and operation.far.memory in (
                DRAM0, DRAM1):
            found["read" if operation.far.memory == DRAM0 else "consts"] += operation.size * operation.rows
    return found


@pytest.mark.parametrize("group", (1, 2, 4, 12))
def test_candidates_move_what_the_model_says(group: int, tmp_path: Path) -> None:
    """Dense, in groups as wide as tiles and wider, depthwise. A depthwise convolution cut by its channels reads nothing
    twice but rows that regions share."""
    state = network(tmp_path, group)
    shape = state[MemoryPlan].shapes[LAYER]
    assert not state[MemoryPlan].local
    found = candidates(shape, 0)
    tilings = [found.tiling(row) for row in range(len(found.outputs))]
    # what takes most of the memory may find it in pieces, and then gives up what it keeps
    fitting = [tiling for tiling in tilings if 3 * need(shape, tiling).local_total < ARCH.local_depth
               and need(shape, tiling).accumulator_total <= ARCH.accumulator_depth]
    assert len(fitting) > 20
    said = [(entry.dram0_read, entry.consts) for entry in (traffic(shape, tiling) for tiling in fitting)]
    done = [(entry["read"], entry["consts"]) for entry in (moved(state, tiling) for tiling in fitting)]
    assert said == done


@pytest.mark.parametrize("elementwise", (False, True), ids=("pool", "pool and LeakyRelu"))
def test_a_max_pool_behind_a_convolution_counts(tmp_path: Path, elementwise: bool) -> None:
    """The layer takes as long as its SIMD unit, which runs as many vectors as the model says, whatever the tiling."""
    maker = ModelMaker((1, 3, 20, 20))
    found = maker.conv("x", 3, 7, (1, 1))
    if elementwise:
        found = maker.node("LeakyRelu", found, alpha=0.2)
    maker.node("MaxPool", found, kernel_shape=(3, 3), strides=(1, 1))
    layout = after_all_steps(maker.save(tmp_path / "pool.onnx"), ARCH, np.ones((1, 3, 20, 20)))[MemoryPlan]
    shape, = layout.shapes
    cycles = (6 + 3 * elementwise) * 3 * 18 * 18
    assert simd_instructions(shape.layer) * shape.output_tiles * shape.output_pixels == cycles
    assert cost(shape, candidates(shape, 0)).min() >= cycles
