# SPDX-License-Identifier: Apache-2.0
"""HIR and memory map print and parse, and their verifiers find planted mistakes. (The LIR's are in ``test_lir.py``.)"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest

from weft.compiler.errors import Fault
from weft.compiler.layers.hir import Layer, Layers, parse
from weft.compiler.layers.stages import Add, Save
from weft.compiler.layers.var import Var
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.memory import plan
from weft.compiler.memory.allocation import Allocation
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.memory.verifier import verify_allocations, verify_live_ranges
from weft.compiler.products import Products
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE, ModelMaker, after_all_steps

ARCH = BASE.replace(lut_count=2, simd_registers_depth=3)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Products:
    """A network with every kind of operation, after all steps."""
    maker = ModelMaker((1, 12, 9, 8))
    name = maker.node("Add", maker.conv("x", 12, 12, (3, 3), pads=(1, 1, 1, 1)), "x")
    name = maker.node("MaxPool", name, kernel_shape=(3, 3), strides=(2, 2))
    gate = maker.node("Tanh", name)
    name = maker.node("Mul", maker.node("LeakyRelu", maker.conv(name, 12, 12, (1, 1)), alpha=0.3), gate)
    parts = [maker.node("Relu", maker.conv(name, 12, 5, (1, 1))), name]
    name = maker.node("Concat", *parts, axis=1)
    maker.node("Clip", maker.conv(name, 17, 4, (2, 2), strides=(2, 1)), maker.constant(np.float32(0)),
               maker.constant(np.float32(2)))
    path = maker.save(tmp_path_factory.mktemp("forms") / "model.onnx")
    return after_all_steps(path, ARCH, maker.random.standard_normal((2, 12, 9, 8)))


def test_layers_print_and_parse(state: Products) -> None:
    kinds = {kind for layer in state[Layers] for kind in layer.kind.split("+")}
    assert kinds >= {"mat_mul", "load", "add", "multiply", "max_pool", "lookup", "leaky_relu", "relu", "minimum"}
    assert parse(state[Layers].text()) == state[Layers]


def test_memory_map_prints_and_parses(state: Products) -> None:
    printed = plan.parse(state[MemoryPlan].text())
    assert printed.dram0 == state[MemoryPlan].dram0 and printed.local == state[MemoryPlan].local and printed.local
    assert printed.plans == tuple((shape.layer.name, shape.scratch, plan) for shape, plan in
                                  zip(state[MemoryPlan].shapes, state[MemoryPlan].plans, strict=True))
    both = {"a": Allocation("a", 7, 9, 0, 1)}
    copied = dataclasses.replace(state[MemoryPlan], dram1=both, copy=Allocation("%consts", 7, 9, -1, 3))
    assert plan.parse(copied.text()).copy == (7, 9) and plan.parse(copied.text()).dram1 == both


@pytest.mark.parametrize("content", ["layer a\n  Nonsense(1)", "layer a\n  core=Nonsense(value=1)", "layer a",
                                     "layer a\n  core=Minimum(value=__import__('os'))\n  saves=()",
                                     "layer a\n  core=Minimum(goal=1.0)\n  saves=()", "layer a\n  core=Minimum(value="])
def test_other_text_is_refused(content: str) -> None:
    with pytest.raises(WeftError, match="found .* allowed"):
        parse(content)


def test_other_maps_are_refused() -> None:
    with pytest.raises(WeftError, match="unknown form"):
        plan.parse("dram2 x: base=0 size=1 layers=0..1")


# -- mistakes ----------------------------------------------------------------------------------------------------------
def changed(layers: tuple[Layer, ...], **fields: object) -> tuple[Layer, ...]:
    """The layers whose first has these fields instead."""
    return (dataclasses.replace(layers[0], **fields), *layers[1:])  # type: ignore[arg-type]


def resaved(layer: Layer, **fields: int) -> tuple[Save, ...]:
    """The saves of a layer, the last of a Var with these fields instead."""
    var = dataclasses.replace(layer.output, **fields)  # type: ignore[arg-type]
    return (*layer.saves[:-1], dataclasses.replace(layer.saves[-1], var=var))


def whole(layer: Layer, *, before_pool: bool) -> Save:
    """A save of all pixels of a layer's core."""
    return Save(Var("whole", layer.output.channels, *layer.core.size), before_pool=before_pool)


MISTAKES: dict[str, tuple[Callable[[tuple[Layer, ...]], tuple[Layer, ...]], str]] = {
    "a layer too early": (lambda layers: layers[::-1], "which nothing wrote"),
    "no save": (lambda layers: changed(layers, saves=()), "saves nothing"),
    "saved twice": (lambda layers: (*layers, layers[-1]), "a second time"),
    "saved before a pool of shared pixels": (lambda layers: changed(
        layers, saves=(whole(layers[0], before_pool=True), *layers[0].saves)), "each pixel once"),
    "two saves behind a pool": (lambda layers: changed(
        layers, saves=(whole(layers[0], before_pool=False), *layers[0].saves)), "do not fit the max pool"),
    "no save behind the pool": (lambda layers: changed(layers, saves=(whole(layers[0], before_pool=True),)),
                                "do not fit the max pool"),
    "another size": (lambda layers: changed(layers, saves=resaved(layers[0], height=1)), "meets a result of"),
    "other channels": (lambda layers: changed(layers, saves=resaved(layers[0], channels=5)), "meets a result of"),
    "a sum of another size": (lambda layers: changed(layers, adds=(Add(layers[0].output),)), "meets a result of"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_verifier_of_layers_finds(mistake: str, state: Products) -> None:
    plant, message = MISTAKES[mistake]
    verify_layers(state[Layers], ["x"])
    with pytest.raises(Fault, match=message):
        verify_layers(plant(state[Layers]), ["x"])


def test_a_place_that_ends_too_early(state: Products) -> None:
    places = {**state[MemoryPlan].dram0, **state[MemoryPlan].local}
    verify_live_ranges(state[Layers], places)
    for name, place in places.items():
        if place.first < place.last < len(state[Layers]):
            with pytest.raises(Fault, match="has no place while it runs"):
                verify_live_ranges(state[Layers], {**places, name: dataclasses.replace(place, last=place.last - 1)})
    with pytest.raises(Fault, match="has no place"):
        verify_live_ranges(state[Layers], {})


def test_overlapping_places() -> None:
    first, second = Allocation("a", 0, 10, 0, 3), Allocation("b", 9, 5, 3, 4)
    with pytest.raises(Fault, match="overlaps"):
        verify_allocations([first, second], 100, "DRAM0")
    verify_allocations([first, dataclasses.replace(second, first=4)], 100, "DRAM0")
    with pytest.raises(Fault, match="outside"):
        verify_allocations([first], 9, "DRAM0")
