# SPDX-License-Identifier: Apache-2.0
"""The published schedules of a mesh of 2 x 2, executed: every tensor that a layer leaves has one core's words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import Cores
from weft.compiler.cores import SPLIT
from weft.compiler.layers.hir import Layers, Var
from weft.compiler.memory.layout import MemoryPlan
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.request import Request
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.schedule.assign import assigned_layers
from weft.schedule.read import read_schedule
from weft.tb.bench.published_networks import PUBLISHED
from weft.tb.shared import shared

pytestmark = [pytest.mark.slow, pytest.mark.long]

MACHINE = Arch.load("zcu104_4x16").replace(sync_counters=4, dram0_depth=1 << 23, dram1_depth=1 << 23)
FEWER = {"resnet_b1_2x2_SET_IR.json": 7, "goog_b1_2x2_SET_IR.json": 64}
"""File -> boxes whose ends are moved, to a multiple of 16 channels or to pixels that are computed."""


def memory(products: Products, plan: MemoryPlan, programs: list[bytes], arch: Arch, given: np.ndarray) -> GoldenSystem:
    """The memory that programs leave, with ``given`` as the network's input."""
    system = GoldenSystem(arch)
    system.drams["dram1"].write(0, products[Consts].vectors)
    system.drams["dram0"].write(plan.dram0["input"].base, given)
    system.run(programs)
    return system


def image(var: Var) -> np.ndarray:
    """Random words [vectors, lanes] of a tensor; lanes behind the last channel are 0."""
    lanes = MACHINE.array_size
    words = np.random.default_rng(1).integers(-300, 300, (var.tiles(lanes), var.height * var.width, lanes))
    words[-1, :, var.channels - (var.tiles(lanes) - 1) * lanes:] = 0
    return words.reshape(-1, lanes).astype(np.int16)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_schedule_leaves_one_cores_words(name: str, tmp_path: Path) -> None:
    assigned = assigned_layers(read_schedule(shared(f"vectors/ir/{name}")), 4)
    request = Request(PUBLISHED[name](tmp_path), host_fallback=True, cores=SPLIT, assigned=assigned, keep_tensors=True)
    _, (products,) = run_parts(request, MACHINE)
    cores, layers = products[Cores], products[Layers]
    assert cores.plan is not None and cores.followed is not None
    assert set(cores.followed.shares) == set(range(len(layers))) and cores.followed.rounded == FEWER[name]
    given = image(next(var for layer in layers for var in layer.inputs if var.name == "input"))
    plans = cores.plan.cores[0], products[MemoryPlan]
    four, one = (memory(products, plan, programs, arch, given).drams["dram0"] for plan, programs, arch in (
        (plans[0], [code.content for code in cores.codes], MACHINE),
        (plans[1], [products[MachineCode].content], MACHINE.replace(cores=1, memory_ports=1, sync_counters=0))))
    roots = {var.root for layer in layers for var in layer.outputs}
    assert len(roots) > 40
    for root in roots:
        words, expected = (dram.read(plan.dram0[root].base, plan.dram0[root].size)
                           for dram, plan in zip((four, one), plans, strict=True))
        assert np.array_equal(words, expected) and expected.any(), root
