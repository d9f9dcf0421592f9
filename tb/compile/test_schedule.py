# SPDX-License-Identifier: Apache-2.0
"""What the scheduler makes of a layer: few instructions where few will do, and tiles that keep the array busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.compiler import lir
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.products import Products
from weft.compiler.scheduler.interleave import start_cycles
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.spans import PairedWalk, repeated
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps


def walk(near: int, far: int = 7, size: int = 2, rows: int = 1) -> PairedWalk:
    pitches = (5, 5) if rows > 1 else (0, 0)
    return PairedWalk(near, far, size, 1, 1, rows, *pitches)


@pytest.mark.parametrize(("walks", "expected"), [
    ([walk(3), walk(5), walk(7), walk(9)], [(3, 4, 2)]),
    ([walk(3), walk(5), walk(8), walk(11)], [(3, 2, 2), (8, 2, 3)]),
    ([walk(3), walk(3)], [(3, 1, 0), (3, 1, 0)]),
    ([walk(3), walk(5, far=8)], [(3, 1, 0), (5, 1, 0)]),
    ([walk(3), walk(5, size=1)], [(3, 1, 0), (5, 1, 0)]),
    ([walk(3, rows=2), walk(9, rows=2)], [(3, 2, 5), (9, 2, 5)]),
    ([], [])])
def test_walks_to_the_same_accumulators_join(walks: list[PairedWalk], expected: list[tuple[int, int, int]]) -> None:
    assert [(span.near, span.rows, span.near_pitch) for span in repeated(walks)] == expected


def compiled(maker: ModelMaker, tmp_path: Path, arch: Arch) -> Products:
    return after_all_steps(maker.save(tmp_path / "model.onnx"), arch,
                           maker.random.standard_normal((1, *maker.shape[1:])))


def test_average_of_an_image_is_three_mat_muls_a_tile(tmp_path: Path) -> None:
    """The first with the bias; all other pixels on the same accumulators, with weights of two sizes a rounding step
    apart, such that together they are 1."""
    maker = ModelMaker((1, 8, 9, 8))
    maker.node("GlobalAveragePool", maker.conv("x", 8, 24, (1, 1)))
    state = compiled(maker, tmp_path, BASE)
    pool = [operation for operation, layer in zip(state[Schedule].operations, state[Schedule].layers, strict=True)
            if layer == 1 and isinstance(operation, lir.MatMul)]
    assert [operation.size * operation.rows for operation in pool] == [1, 15, 56] * 3


def test_tiles_outlast_the_load_of_the_next_weights(tmp_path: Path) -> None:
    """Whatever else moves: a MatMul shorter than the load of a weight tile leaves the array idle."""
    maker = ModelMaker((1, 128, 8, 8))
    maker.node("Relu", maker.conv("x", 128, 128, (3, 3), pads=(1, 1, 1, 1)))
    state = compiled(maker, tmp_path, Arch.load("zcu104"))
    assert all(plan.tiling.grain.rows * plan.tiling.grain.columns >= 32 + 2 for plan in state[MemoryPlan].plans)


def test_a_network_follows_the_array(tmp_path: Path) -> None:
    """Between the first MatMul's start and the last one's, the model of the forward pass sees the array idle for less
    than a twentieth."""
    maker = ModelMaker((1, 8, 32, 32))
    name = "x"
    for _ in range(3):
        name = maker.node("Relu", maker.conv(name, 8 if name == "x" else 32, 32, (3, 3), pads=(1, 1, 1, 1)))
    state = compiled(maker, tmp_path, BASE.replace(local_depth=8192, accumulator_depth=2048))
    operations = state[Schedule].operations
    starts = start_cycles(state[Schedule].table, state[Arch])
    mat_muls = [(start, entry) for start, entry in zip(starts, operations, strict=True)
                if isinstance(entry, lir.MatMul)]
    vectors = sum(entry.size * entry.rows for _, entry in mat_muls)
    assert (mat_muls[-1][0] - mat_muls[0][0]) < 1.05 * vectors
