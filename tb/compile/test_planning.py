# SPDX-License-Identifier: Apache-2.0
"""Planning of memory: its work grows with the layers, and what it leaves out changes no plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.plan import MemoryPlan, Planner, planned
from weft.compiler.memory.variables import live_ranges
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.tiling.search import Search
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps


def chain(tmp_path: Path, count: int, arch: Arch = BASE) -> Products:
    """Equal layers, and a sum over every fourth of them; the first tensor is read again by the last layer."""
    maker = ModelMaker((1, 8, 12, 12))

    def conv(source: str) -> str:
        weights = maker.constant((maker.random.standard_normal((8, 8, 3, 3)) / 12).astype(np.float32))
        return maker.node("Conv", source, weights, kernel_shape=(3, 3), pads=(1, 1, 1, 1))

    first = skipped = x = conv("x")
    for number in range(count):
        x = maker.node("Relu", conv(x))
        if number % 4 == 3:
            x = skipped = maker.node("Add", x, skipped)
    maker.node("Add", conv(x), first)
    return after_all_steps(maker.save(tmp_path / f"chain{count}.onnx"), arch, np.zeros((1, 8, 12, 12)))


def planner_of(state: Products) -> Planner:
    layers = state[Layers]
    return planned(live_ranges(state[Graph], layers, state[Arch]), layers, state[Consts], state[Arch])


def test_plans_grow_with_the_layers(tmp_path: Path) -> None:
    """Equal layers are costed once; a tensor asks for plans of the layers that it touches, not of all beside it."""
    few, many = (planner_of(chain(tmp_path, count)) for count in (8, 32))
    ratio = len(many.plans) / len(few.plans)
    assert many.search.costed <= few.search.costed + 2
    assert many.search.asked <= 1.1 * ratio * few.search.asked


@pytest.mark.parametrize("depth", [BASE.local_depth, 700, 400])
def test_every_plan_is_the_cheapest_beside_the_residents(tmp_path: Path, depth: int) -> None:
    """A layer that was not planned again would get the same plan, whatever lies beside it."""
    layout = chain(tmp_path, 8, BASE.replace(local_depth=depth))[MemoryPlan]
    assert layout.residents
    for number, (shape, plan) in enumerate(zip(layout.shapes, layout.plans, strict=True)):
        beside = [place.base for place in layout.local.values() if place.meets(number, number)]
        assert shape.scratch == min(beside, default=depth)
        assert Search().plan(shape) == plan
