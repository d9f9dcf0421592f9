# SPDX-License-Identifier: Apache-2.0
"""The published schedules of a mesh of 2 x 2, executed: every tensor that a layer leaves has one core's words.

So it is on golden machines, and in RTL, which takes the estimate's cycles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import Cores
from weft.compiler.cores import SPLIT
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.request import Request
from weft.cycles.system import estimate_system
from weft.golden.dram import Dram, differences
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.schedule.assign import assigned_layers
from weft.schedule.read import read_schedule
from weft.simulate.rtl import run_groups_on_rtl
from weft.tb.bench.published_networks import PUBLISHED
from weft.tb.shared import shared

pytestmark = [pytest.mark.slow, pytest.mark.long]

MACHINE = Arch.load("zcu104_4x16").replace(sync_counters=4, dram0_depth=1 << 23, dram1_depth=1 << 23)
FEWER = {"resnet_b1_2x2_SET_IR.json": 7, "goog_b1_2x2_SET_IR.json": 56}
"""File -> boxes whose ends are moved, to a multiple of 16 channels or to pixels that are computed."""


def given(products: Products, plan: MemoryPlan, arch: Arch) -> tuple[Dram, Dram]:
    """Both DRAMs with the constants, and an image as the network's input."""
    var = next(var for layer in products[Layers] for var in layer.inputs if var.name == "input")
    drams = Dram(arch), Dram(arch)
    drams[0].write(plan.dram0["input"].base, image(var))
    drams[1].write(0, products[Consts].vectors)
    return drams


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
    programs = [code.content for code in cores.codes]
    plans = cores.plan.cores[0], products[MemoryPlan]
    alone = MACHINE.replace(cores=1, memory_ports=1, sync_counters=0)
    four, one, rtl = (given(products, plan, arch) for plan, arch in (
        (plans[0], MACHINE), (plans[1], alone), (plans[0], MACHINE)))
    GoldenSystem(MACHINE, *four).run(programs)
    GoldenSystem(alone, *one).run([products[MachineCode].content])
    roots = {var.root for layer in layers for var in layer.outputs}
    assert len(roots) > 40
    for root in roots:
        words, expected = (dram.read(plan.dram0[root].base, plan.dram0[root].size)
                           for dram, plan in zip((four[0], one[0]), plans, strict=True))
        assert np.array_equal(words, expected) and expected.any(), root
    (done,) = run_groups_on_rtl(MACHINE, [programs], *rtl)
    assert [differences(a, b, 3) for a, b in zip(four, rtl, strict=True)] == [[], []]
    assert [each.cycles for each in done] == [each.cycles for each in estimate_system(programs, MACHINE).cores]
