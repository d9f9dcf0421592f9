# SPDX-License-Identifier: Apache-2.0
"""Copies as walks: every vector once and in order, in as few instructions as the axes allow. So SIMD bodies too."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from weft.compiler.backend.encode import encode
from weft.compiler.lir import ACCUMULATORS, DRAM0, LOCAL, Address, DataMove, Settings, Simd, SimdLoop
from weft.compiler.lir_table import LirTable
from weft.compiler.scheduler.simd import _repeat
from weft.compiler.tiling.spans import Axis, PairedWalk, spans
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.walk import Walk, encodable
from weft.tb.compile.run_model import BASE

Pairs = list[tuple[int, int]]


def walked(found: list[PairedWalk]) -> Pairs:
    """Offsets on both sides, in the order in which the machine visits them."""
    pairs: Pairs = []
    for span in found:
        near = Walk(span.near, span.size, span.near_stride, span.rows, span.near_pitch).addresses().ravel()
        far = Walk(span.far, span.size, span.far_stride, span.rows, span.far_pitch).addresses().ravel()
        pairs += zip(near.tolist(), far.tolist(), strict=True)
    return pairs


def meant(axes: list[Axis]) -> Pairs:
    return [(sum(step * axis.near for step, axis in zip(steps, axes, strict=True)),
             sum(step * axis.far for step, axis in zip(steps, axes, strict=True)))
            for steps in product(*(range(axis.steps) for axis in axes))]


@pytest.mark.parametrize(("axes", "count"), [
    ([Axis(3, 20, 20), Axis(4, 5, 5), Axis(5, 1, 1)], 1),  # dense on both sides: one run
    ([Axis(3, 20, 60), Axis(4, 5, 5), Axis(5, 1, 1)], 1),  # rows of runs: near goes on, far does not
    ([Axis(3, 60, 20), Axis(4, 5, 5), Axis(5, 1, 1)], 1),  # and the other way round
    ([Axis(3, 20, 60), Axis(4, 5, 7), Axis(5, 1, 1)], 3),  # near goes on all the way, far never does
    ([Axis(3, 60, 20), Axis(4, 7, 5), Axis(5, 1, 1)], 3),
    ([Axis(2, 40, 40), Axis(5, 3, 1)], 2),  # a stride that has no code: rows of one vector
    ([Axis(4, 90, 90), Axis(2, 40, 40), Axis(5, 3, 1)], 8),
    ([Axis(1, 9, 9), Axis(6, 2, 4)], 1),
    ([Axis(1, 9, 9)], 1),
], ids=str)
def test_axes_become_so_many_walks(axes: list[Axis], count: int) -> None:
    found = list(spans(axes, BASE))
    assert walked(found) == meant(axes)
    assert len(found) == count


@pytest.mark.parametrize("seed", range(60))
def test_any_axes_are_walked_whole_and_in_order(seed: int) -> None:
    """Each side dense, or with gaps that the other one does not have."""
    random = np.random.default_rng(seed)
    steps = [int(count) for count in random.integers(1, 5, int(random.integers(1, 5)))]
    axes: list[Axis] = []
    near, far = (int(2 ** random.integers(0, 3)) for _ in range(2))
    for count in reversed(steps):
        axes.insert(0, Axis(count, near, far))
        near, far = (value * count + int(random.choice([0, 0, 3])) for value in (near, far))
    arch = BASE.replace(stride0_depth=2, stride1_depth=2)
    found = list(spans(axes, arch))
    assert walked(found) == meant(axes)
    assert all(encodable(span.near_stride, 2) and encodable(span.far_stride, 2) for span in found)


def moved(move: DataMove, arch: Arch) -> list[int]:
    """What stands in local memory behind a move out of DRAM0, whose vector number n holds n."""
    machine = Machine(arch)
    machine.dram0.write(0, np.repeat(np.arange(64)[:, None], arch.array_size, axis=1))
    instructions, _ = encode(LirTable.of([move]), arch)
    machine.run(machine.isa.assemble_words(instructions))
    return [int(row[0]) for row in machine.local]


def test_rows_of_a_move_have_a_pitch_on_each_side() -> None:
    """Three rows of two, from every seventh vector to every fifth."""
    found = moved(DataMove(True, Address(LOCAL, 2), Address(DRAM0, 10), 2, rows=3, local_pitch=5,
                           far_pitch=7), BASE.replace(local_depth=16))
    expected = [0] * 16
    expected[2:4], expected[7:9], expected[12:14] = [10, 11], [17, 18], [24, 25]
    assert found == expected


@pytest.mark.parametrize("depth", [0, 2, 3])
def test_a_body_written_out_reads_and_writes_what_its_loop_does(depth: int) -> None:
    """A held address stays, others go on by their stride."""
    def at(offset: int) -> Address:
        return Address(ACCUMULATORS, offset)

    way = Settings.of(input_shift=4, output_shift=4)
    body = [Simd(SimdOpcode.MOVE, 0, 0, 1, way, at(5), read_stride=2),
            Simd(SimdOpcode.ADD, 0, 1, 1, way, at(3), hold=True), Simd(SimdOpcode.MOVE, 1, 0, 0, way, write=at(9))]
    found = [*_repeat(body, 4, BASE.replace(simd_loop_depth=depth))]
    if depth >= len(body):
        assert found == [SimdLoop(4, len(body), way), *body]
        return
    written_out = [operation for operation in found if isinstance(operation, Simd)]
    assert len(written_out) == len(found) and not any(operation.hold for operation in written_out)
    assert [operation.read.offset for operation in written_out if operation.read] == [5, 3, 7, 3, 9, 3, 11, 3]
    assert [operation.write.offset for operation in written_out if operation.write] == [9, 10, 11, 12]
