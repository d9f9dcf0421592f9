# SPDX-License-Identifier: Apache-2.0
"""Layers in stripes: the steps of layers that read each other take turns, and mean the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.checker import Checker
from weft.compiler.choices import FORMULA
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers import builder
from weft.compiler.layers.hir import Layers
from weft.compiler.memory import stripes
from weft.compiler.memory.allocation import Allocation
from weft.compiler.memory.plan import MemoryPlan, parse, plan_memory, with_tilings
from weft.compiler.memory.stripes import Stripes
from weft.compiler.memory.variables import live_ranges, place_variables
from weft.compiler.pipeline import Step, compile_model
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.search import Search
from weft.cycles.replay import estimate
from weft.runtime.session import RTL, Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tmodel.manifest import TModel

TABLES = BASE.replace(array_size=4, local_depth=4096, accumulator_depth=1024, lut_count=2, lut_depth=256,
                      simd_registers_depth=3)
MACHINES = {
    "tables": TABLES,
    "tight": TABLES.replace(local_depth=700, accumulator_depth=128, stride1_depth=2),
    "taps": TABLES.replace(array_size=10, depthwise_taps=9),
    "shared_port": TABLES.replace(dram_ports="shared"),
}


@pytest.fixture(autouse=True)
def short_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks of tests are small."""
    monkeypatch.setattr(stripes, "LEAST", 1)


def network(path: Path, random: Random, width: int = 8, *, pool: int = 0) -> tuple[Path, np.ndarray]:
    """Convolutions, some of them depthwise, and behind each few a function by table, or a ``pool`` of so many rows."""
    maker = ModelMaker((1, 6, 18, width), random.randrange(1 << 30))
    source, outputs = "x", []
    for _ in range(random.randint(1, 2)):
        for _ in range(random.randint(1, 3)):
            kernel = random.choice([1, 3])
            group = random.choice([1, 6])
            source = maker.conv(source, 6, 6, (kernel, kernel), pads=(kernel // 2,) * 4, group=group)
        outputs.append(source)
        source = (maker.node("MaxPool", source, kernel_shape=(pool, 3), pads=(pool // 2, 1) * 2) if pool
                  else maker.node(random.choice(["Sigmoid", "Tanh"]), source))
    return (maker.save(path / "net.onnx", source, *(outputs if pool else ())),
            maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MACHINES)
def test_no_step_changes_what_a_network_means(name: str, seed: int, tmp_path: Path) -> None:
    path, samples = network(tmp_path, Random(f"{name} {seed}"))
    check_every_step(path, MACHINES[name], samples)
    assert after_all_steps(path, MACHINES[name], samples)[MemoryPlan].stripes or name == "tight"


@pytest.mark.parametrize("seed", range(4))
def test_bytes_in_stripes_mean_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales are loaded before moves of each layer. How exact bytes are (step scales) is asked elsewhere."""
    monkeypatch.setattr(stripes, "DEAREST", 10)
    arch = TABLES.replace(data_type="INT8", activation_tables=8)
    path, samples = network(tmp_path, Random(f"bytes {seed}"), pool=3)
    checker = Checker()
    compile_model(path, arch, tmp_path, calibration={"x": samples}, watch=checker.after)
    assert after_all_steps(path, arch, samples)[MemoryPlan].stripes
    assert not [verdict.step for verdict in checker.verdicts if verdict.problem and verdict.step != "scales"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lanes10_taps9", "lanes4_int8"])
def test_hardware_leaves_what_golden_leaves(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In as many cycles as estimated. On machines as small as these, stripes cost more than they gain."""
    monkeypatch.setattr(stripes, "DEAREST", 10)
    arch = lockstep_archs()[name]
    path, samples = network(tmp_path, Random("rtl 1"), width=3, pool=1)
    assert after_all_steps(path, arch, samples)[MemoryPlan].stripes
    model = TModel.load(compile_model(path, arch, tmp_path, calibration={"x": samples}).model_path)
    result = Session(model).run({"x": samples[:1]}, on=RTL)
    assert result.comparison is not None and result.cycles == estimate(model.program, arch).cycles
    result.comparison.insist()


@pytest.mark.parametrize("fewest", [0, 2, 4, 9])
def test_choices_say_how_many_stripes(fewest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a layer that has too little work by the formula, which runs alone; what it computes stays the same."""
    monkeypatch.setattr(stripes, "LEAST", 1 << 30)
    monkeypatch.setattr(stripes, "DEAREST", 10)
    maker = ModelMaker((1, 8, 36, 16))
    path = maker.save(tmp_path / "net.onnx", maker.node("Sigmoid", maker.conv("x", 8, 8, (1, 1))))
    sample = maker.random.standard_normal((1, 8, 36, 16)).astype(np.float32)
    assert not after_all_steps(path, TABLES, sample)[MemoryPlan].stripes
    found: list[MemoryPlan] = []
    checker = Checker()

    def watch(step: Step, products: Products) -> None:
        checker.after(step, products)
        found.extend([products[MemoryPlan]] if step.name == "memory" else [])

    compile_model(path, TABLES, tmp_path, calibration={"x": sample}, choices=[replace(FORMULA, stripes={1: fewest})],
                  watch=watch)
    heights = [plan.tiling.grain.rows for plan in found[0].plans]
    assert found[0].stripes == ({1: 0} if fewest else {})
    assert not fewest or max(heights) <= 36 // fewest
    assert not [verdict.step for verdict in checker.verdicts if verdict.problem]


def test_the_array_works_while_the_table_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ModelMaker((1, 8, 64, 16))
    made = maker.conv(maker.conv("x", 8, 8, (1, 1)), 8, 8, (1, 1))
    path = maker.save(tmp_path / "net.onnx", maker.node("Sigmoid", made))

    def compiled() -> Products:
        return after_all_steps(path, TABLES, np.ones((1, 8, 64, 16), np.float32))

    products = compiled()
    layout, graph, layers = products[MemoryPlan], products[Graph], products[Layers]
    assert layout.stripes == {1: 0, 2: 0} == parse(layout.text()).stripes
    assert (products[Schedule].layers[:-1] > products[Schedule].layers[1:]).any()
    told = plan_memory(live_ranges(graph, layers, TABLES), layers, products[Consts], TABLES,
                       replace(FORMULA, tilings={2: layout.plans[2].tiling}))
    assert not told.stripes
    monkeypatch.setattr(Stripes, "choose", lambda *_: None)
    cycles, alone = (estimate(made[MachineCode].content, TABLES).cycles for made in (products, compiled()))
    assert cycles < 0.8 * alone


def test_a_chosen_tiling_is_put_on_the_plan_that_a_search_tried_it_on(tmp_path: Path) -> None:
    """Else a program takes other cycles than the search told: layers in stripes were kept apart for the tiling."""
    maker = ModelMaker((1, 8, 64, 16))
    made = maker.conv(maker.conv("x", 8, 8, (1, 1)), 8, 8, (1, 1))
    path = maker.save(tmp_path / "net.onnx", maker.node("Sigmoid", made))
    products = after_all_steps(path, TABLES, np.ones((1, 8, 64, 16), np.float32))
    layout, graph, layers = products[MemoryPlan], products[Graph], products[Layers]
    lives, consts = live_ranges(graph, layers, TABLES), products[Consts]
    for number in range(3):
        choices = replace(FORMULA, tilings={number: layout.plans[number].tiling})
        tried = with_tilings(plan_memory(lives, layers, consts, TABLES), choices, Search())
        assert tried == plan_memory(lives, layers, consts, TABLES, choices)


@pytest.mark.parametrize(("scheme", "channels", "alone"), [("FP16BP8", 8, True), ("FP16BP8", 4, False),
                                                           ("INT8", 4, True)])
def test_a_long_pool_runs_in_stripes_with_its_convolution(scheme: str, channels: int, alone: bool, tmp_path: Path,
                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a layer of its own where windows share pixels; at fixed point beside 18 weight tiles, not beside 8."""
    monkeypatch.setattr(builder, "LEAST", 1)
    arch = TABLES.replace(data_type=scheme)
    maker = ModelMaker((1, channels, 33, 17))
    made = maker.conv("x", channels, 8, (3, 3) if channels > 4 else (2, 4), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", maker.node("MaxPool", made, kernel_shape=(3, 3), strides=(2, 2)))
    samples = maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)
    products = after_all_steps(path, arch, samples)
    assert len(products[Layers]) == 1 + alone and bool(products[MemoryPlan].stripes) == alone
    checker = Checker()
    compile_model(path, arch, tmp_path, calibration={"x": samples}, watch=checker.after)
    assert not [verdict.step for verdict in checker.verdicts if verdict.problem and verdict.step != "scales"]


def test_a_long_pool_runs_within_its_convolution_where_dram0_lacks_room(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone it would need the convolution's result in DRAM0, of 8 x 33 x 17 numbers."""
    monkeypatch.setattr(builder, "LEAST", 1)
    maker = ModelMaker((1, 8, 33, 17))
    made = maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", maker.node("MaxPool", made, kernel_shape=(3, 3), strides=(2, 2)))
    sample = maker.random.standard_normal((1, *maker.shape[1:])).astype(np.float32)
    roomy = after_all_steps(path, TABLES, sample)
    places = place_variables(live_ranges(roomy[Graph], roomy[Layers], TABLES), (), (), TABLES)
    alone = max(place.base + place.size for place in places.values())
    for depth, layers in ((alone, 2), (alone - 1, 1)):
        assert len(after_all_steps(path, TABLES.replace(dram0_depth=depth), sample)[Layers]) == layers


def test_vars_of_layers_in_stripes_lie_apart(tmp_path: Path) -> None:
    """A result that would lie where an input of the same stripes does moves; where it cannot, layers run alone."""
    maker = ModelMaker((1, 4, 32, 16))
    path = maker.save(tmp_path / "net.onnx", maker.node("Sigmoid", maker.conv("x", 4, 4, (3, 3), pads=(1, 1, 1, 1))))
    layout = after_all_steps(path, TABLES, np.ones((1, 4, 32, 16), np.float32))[MemoryPlan]
    for depth, moved in ((1024, {"x": 512, "y": 0}), (900, None)):
        places = {"x": Allocation("x", 0, 512, -1, 0), "y": Allocation("y", 0, 512, 1, 2)}
        shapes = [replace(shape, arch=shape.arch.replace(dram1_depth=depth)) for shape in layout.shapes]
        found = Stripes(shapes, [*layout.plans], [plan.need.local_total for plan in layout.plans], {}, places, [],
                        Search())
        found.choose((), {})
        assert found.firsts == ({1: 0} if moved else {})
        if moved:
            assert not found.dram1["x"].overlaps(found.dram1["y"])
