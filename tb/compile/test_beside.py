# SPDX-License-Identifier: Apache-2.0
"""Layers of the SIMD unit beside independent layers on the array: the same meaning, at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.checker import Checker
from weft.compiler.choices import FORMULA
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.beside import arranged, beside
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Abs, Save
from weft.compiler.memory import sharing
from weft.compiler.memory.plan import MemoryPlan, plan_memory
from weft.compiler.memory.variables import live_ranges
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.tiling.costs import need
from weft.compiler.tiling.search import Search
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.runtime.session import RTL, Session
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps, check_every_step
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.network_rule import judge
from weft.tb.random.random_networks import Case
from weft.tmodel.manifest import TModel

ROOMY = BASE.replace(array_size=4, local_depth=2048, accumulator_depth=512)
MACHINES = {
    "roomy": ROOMY,
    "tight": ROOMY.replace(local_depth=160, accumulator_depth=40, stride1_depth=2),
    "every_step": ROOMY.replace(mac_rounding="every_step"),
    "shared_port": ROOMY.replace(dram_ports="shared"),
    "tables": ROOMY.replace(lut_count=2, lut_depth=256, simd_registers_depth=3),
}


def branch(maker: ModelMaker, random: Random, source: str) -> str:
    """A pool, a convolution, a pool behind one or before one, or an activation, of as many channels and pixels."""
    kind = random.choice(["pool", "pool", "conv", "conv+pool", "pool+conv", "conv+conv", "leaky", "clip"])
    for step in kind.split("+"):
        if step == "pool":
            source = maker.node("MaxPool", source, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
        elif step == "conv":
            source = maker.conv(source, 6, 6, (3, 3), pads=(1, 1, 1, 1))
        elif step == "leaky":
            source = maker.node("LeakyRelu", source, alpha=0.2)
        else:
            source = maker.node("Clip", source, maker.constant(np.float32(0)), maker.constant(np.float32(1)))
    return source


def network(path: Path, random: Random, width: int = 8) -> tuple[Path, np.ndarray]:
    """Blocks of branches that meet in a sum or side by side, and a convolution behind each."""
    maker = ModelMaker((1, 6, 9, width), random.randrange(1 << 30))
    source = "x"
    for _ in range(random.randint(1, 2)):
        branches = [branch(maker, random, source) for _ in range(random.randint(2, 4))]
        if random.random() < 0.5:
            made = maker.node("Concat", *branches, axis=1)
            source = maker.conv(made, 6 * len(branches), 6, (1, 1))
        else:
            for other in branches[1:]:
                branches[0] = maker.node("Add", branches[0], other)
            source = maker.conv(branches[0], 6, 6, (1, 1))
    return maker.save(path / "net.onnx"), maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", MACHINES)
def test_no_step_changes_what_a_network_means(name: str, seed: int, tmp_path: Path) -> None:
    path, samples = network(tmp_path, Random(f"{name} {seed}"))
    check_every_step(path, MACHINES[name], samples)


@pytest.mark.parametrize("seed", [0, 2, 4])
def test_bytes_side_by_side_mean_the_same(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scales are loaded before moves of both layers. How exact bytes are (step scales) is asked elsewhere."""
    monkeypatch.setattr(sharing, "GAIN", 10)
    arch = ROOMY.replace(data_type="INT8", activation_tables=8)
    path, samples = network(tmp_path, Random(f"bytes {seed}"))
    checker = Checker()
    compile_model(path, arch, tmp_path, calibration={"x": samples}, watch=checker.after)
    assert after_all_steps(path, arch, samples)[MemoryPlan].beside
    assert not [verdict.step for verdict in checker.verdicts if verdict.problem and verdict.step != "scales"]


@pytest.mark.slow
@pytest.mark.wide_cases("lanes4_int8*")
@pytest.mark.parametrize(("name", "seeds"), [("lanes10_taps9", range(3)), ("lanes4_int8", [1])])
def test_hardware_leaves_what_golden_leaves(name: str, seeds: Sequence[int], tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    """On machines as small as these, layers side by side cost more than they gain."""
    monkeypatch.setattr(sharing, "GAIN", 10)
    arch, seen = lockstep_archs()[name], 0
    for seed in seeds:
        path, samples = network(tmp_path, Random(f"rtl {seed}"), width=3)
        seen += len(after_all_steps(path, arch, samples)[MemoryPlan].beside)
        report = compile_model(path, arch, tmp_path, calibration={"x": samples})
        found = Session(TModel.load(report.model_path)).run({"x": samples[:1]}, on=RTL).comparison
        assert found is not None
        found.insist()
    assert seen


def compiled(arch: Arch, path: Path, *kinds: str) -> Products:
    """A convolution, a max pool, or both side by side."""
    maker = ModelMaker((1, 8, 24, 24))
    makers = {"conv": lambda: maker.conv("x", 8, 16, (3, 3), pads=(1, 1, 1, 1)),
              "pool": lambda: maker.node("MaxPool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1))}
    names = [makers[kind]() for kind in kinds]
    return after_all_steps(maker.save(path / "net.onnx", *names), arch, np.ones((1, 8, 24, 24), np.float32))


def test_a_pool_beside_a_convolution_costs_next_to_nothing(tmp_path: Path) -> None:
    cycles = {}
    for kinds in (("conv",), ("pool",), ("conv", "pool"), ("pool", "conv")):
        products = compiled(ROOMY, tmp_path, *kinds)
        cycles[kinds] = estimate(products[MachineCode].content, ROOMY).cycles
        assert (products[Schedule].layers[:-1] > products[Schedule].layers[1:]).any() == (len(kinds) > 1)
    for both in (("conv", "pool"), ("pool", "conv")):
        assert cycles[both] < 1.08 * max(cycles["conv",], cycles["pool",])
    assert cycles["pool",] > 0.2 * cycles["conv",]


def test_a_layer_goes_beside_the_one_with_most_work_for_the_array(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 12, 12))
    small = maker.conv("x", 8, 8, (1, 1))
    large = maker.conv(small, 8, 8, (5, 5), pads=(2, 2, 2, 2))
    pool = maker.node("MaxPool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    behind = maker.conv(pool, 8, 8, (3, 3), pads=(1, 1, 1, 1))
    last = maker.node("Add", large, behind)
    path = maker.save(tmp_path / "net.onnx", last)
    layers = after_all_steps(path, ROOMY, np.ones((1, 8, 12, 12), np.float32))[Layers]
    names = [layer.output.name for layer in layers]
    assert beside(layers, ROOMY) == {names.index(pool): names.index(large)}
    assert names.index(pool) == names.index(large) + 1 < names.index(last)
    assert arranged(layers, ROOMY) == layers
    of_bytes = Arch.load("tiny").replace(data_type="INT8")
    assert beside(layers, of_bytes) == beside(layers, ROOMY)
    followed = [replace(layer, elementwise=Abs()) if layer.pool else layer for layer in layers]
    assert beside(followed, ROOMY) == beside(layers, ROOMY) and not beside(followed, of_bytes)


@pytest.mark.parametrize("behind", [4, 16])
def test_a_layer_on_the_array_comes_earlier_for_a_long_product(behind: int, tmp_path: Path) -> None:
    """If it needs no more memory there: if it makes no more channels than it is the last to read."""
    maker = ModelMaker((1, 8, 24, 24))
    other, *factors = (maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1)) for _ in range(3))
    product = maker.node("Mul", *factors)
    reader = maker.conv(product, 8, 8, (1, 1))
    last = maker.conv(other, 8, behind, (3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", reader, last)
    made = {layer.output.name: layer
            for layer in after_all_steps(path, ROOMY, np.ones((1, 8, 24, 24), np.float32))[Layers]}
    found = arranged(Layers(made[name] for name in (other, *factors, product, reader, last)), ROOMY)
    names = [layer.output.name for layer in found]
    assert names == [other, *factors, *((last, product, reader) if behind < 8 else (product, reader, last))]
    assert beside(found, ROOMY) == ({names.index(product): names.index(last)} if behind < 8 else {})


def test_what_depends_on_each_other_is_not_beside(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 12, 12))
    made = maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1))
    first = maker.node("Relu", made)
    pool = maker.node("MaxPool", first, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", maker.conv(pool, 8, 8, (3, 3)), made, first)
    layers = after_all_steps(path, ROOMY, np.ones((1, 8, 12, 12), np.float32))[Layers]
    assert beside(layers, ROOMY) == {}


def test_a_pool_of_copies_runs_beside_a_convolution_too(tmp_path: Path) -> None:
    """The copy that puts the pool's input together comes before the convolution, whatever stood first."""
    maker = ModelMaker((1, 6, 12, 12))
    joined = maker.node("Concat", *(maker.conv("x", 6, 6, (1, 1)) for _ in range(2)), axis=1)
    large = maker.conv(joined, 12, 8, (5, 5), pads=(2, 2, 2, 2))
    pool = maker.node("MaxPool", joined, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", large, pool)
    first, second, copy, last, pooling, _ = after_all_steps(path, ROOMY, np.ones((1, 6, 12, 12), np.float32))[Layers]
    copied = replace(copy.output, name="copied", part=None)
    copy = replace(copy, saves=(Save(copied),))
    pooling = replace(pooling, core=replace(pooling.core, input=copied))
    assert not copy.macs and last.macs
    assert [*arranged(Layers([first, second, last, copy, pooling]), ROOMY)] == [first, second, copy, last, pooling]


def test_several_pools_run_beside_one_convolution(tmp_path: Path) -> None:
    maker = ModelMaker((1, 8, 24, 24))
    pools = [maker.node("MaxPool", "x", kernel_shape=(3, 3), pads=(1, 1, 1, 1)),
             maker.node("MaxPool", "x", kernel_shape=(5, 3), pads=(2, 1, 2, 1))]
    made = maker.conv("x", 8, 32, (3, 3), pads=(1, 1, 1, 1))
    path = maker.save(tmp_path / "net.onnx", *pools, made)
    samples = maker.random.standard_normal((1, 8, 24, 24)).astype(np.float32)
    products = after_all_steps(path, ROOMY, samples)
    assert len(products[MemoryPlan].beside) == 2
    check_every_step(path, ROOMY, samples)
    alone = compiled(ROOMY, tmp_path, "conv")  # of half as many channels
    assert estimate(products[MachineCode].content, ROOMY).cycles < 2.1 * estimate(
        alone[MachineCode].content, ROOMY).cycles


def test_a_chosen_tiling_may_take_the_room_beside_it(tmp_path: Path) -> None:
    """Then layers run one after the other; the tiling of a layer alone is one that leaves none."""
    products = compiled(ROOMY, tmp_path, "conv", "pool")
    layout, graph, layers = products[MemoryPlan], products[Graph], products[Layers]
    assert list(layout.beside) == [1]
    large = max(Search().fitting(layout.shapes[0], 40, 10.0),
                key=lambda tiling: need(layout.shapes[0], tiling).accumulator_total)
    found = plan_memory(live_ranges(graph, layers, ROOMY), layers, products[Consts], ROOMY,
                        replace(FORMULA, tilings={0: large}))
    assert not found.beside and found.plans[0].tiling == large


def test_rows_of_pixels_stay_whole(tmp_path: Path) -> None:
    """With what a convolution leaves of these accumulators a pool would have to be cut into columns."""
    layout = compiled(ROOMY.replace(accumulator_depth=160), tmp_path, "conv", "pool")[MemoryPlan]
    assert not layout.beside and all(plan.tiling.grain.columns == 24 for plan in layout.plans)


def test_operands_of_both_layers_lie_apart() -> None:
    """A gate runs beside a convolution with a slope; each has a vector of its own in the accumulators."""
    verdict = judge(Case("lanes8", 1))
    assert not verdict.problem, verdict
