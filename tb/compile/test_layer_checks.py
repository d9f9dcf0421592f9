# SPDX-License-Identifier: Apache-2.0
"""Rules of layers, subgraphs and reports are tested, each with what it allows and what it refuses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from weft.compiler import partition
from weft.compiler.backend.report import layers_before
from weft.compiler.backend.write import _parts_of_functions
from weft.compiler.errors import CompileError, Fault
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.states import KEY, State, declare_states, states_of
from weft.compiler.indices.index import as_order
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.outputs import saved_for_readers
from weft.compiler.layers.stages import Add, Load, MaxPool, Save
from weft.compiler.layers.var import Part, Var
from weft.compiler.layers.verifier import verify_layers
from weft.compiler.lowering.functions import may_be_infinite
from weft.compiler.lowering.quantize import _limited
from weft.compiler.split import touched as touching
from weft.compiler.tiling.spans import Box
from weft.compiler.tuning.network import search_digest
from weft.compiler.tuning.search import Budget
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


def var(name: str, channels: int = 4, height: int = 4, width: int = 4, part: Part | None = None) -> Var:
    return Var(name, channels, height, width, part)


# -- layers ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("window", "size", "fits"), [
    (Window((2, 2), (2, 2)), (2, 2), True), (Window((4, 1), (4, 1)), (1, 4), True),
    (Window((3, 3), (2, 2), (1, 1)), (2, 2), False), (Window((2, 2), (1, 1)), (3, 3), False),
    (Window((3, 3), (3, 3)), (1, 1), False), (Window((1, 1), (2, 2)), (2, 2), False)])
@pytest.mark.parametrize("adds", [0, 1])
def test_what_is_saved_before_a_pool_is_read_once_by_it(window: Window, size: tuple[int, int], fits: bool,
                                                        adds: int) -> None:
    """Without a save before it any windows will do."""
    own, pool = (Add(var("x")),) * adds, MaxPool(window, size)
    pooled = var("p", 4, *size)
    whole = Layer("l", Load(var("x")), (Save(var("w"), before_pool=True), Save(pooled)), adds=own, pool=pool)
    verify_layers([Layer("l", Load(var("x")), (Save(pooled),), adds=own, pool=pool)], ["x"])
    if fits:
        verify_layers([whole], ["x"])
    else:
        with pytest.raises(Fault, match="does not read each pixel once"):
            verify_layers([whole], ["x"])


PIECE_OF = Part("out", 0, 0, 4, 1, 16)


@pytest.mark.parametrize(("changes", "twice"), [
    ({}, True), ({"factors": var("f", 4, 1, 1)}, False), ({"pool": MaxPool(Window(), (4, 4))}, False),
    ({"saves": (Save(var("a", part=PIECE_OF)), Save(var("b", part=PIECE_OF)))}, False),
    ({"saves": (Save(var("b")),)}, False), ({"saves": (Save(var("b", 4, 400, 400, PIECE_OF)),)}, False),
    ({"adds": (Add(var("x")),)}, True)])
def test_a_small_piece_of_an_output_is_saved_again_for_its_readers(changes: dict[str, Any], twice: bool) -> None:
    """The layer makes nothing else."""
    layer = Layer("l", Load(var("x")), (Save(var("b", part=PIECE_OF)),))
    layer = Layer(**{**{name: getattr(layer, name) for name in layer.__dataclass_fields__}, **changes})
    reader = Layer("r", Load(layer.output), (Save(var("y")),))
    arch = ARCH.replace(local_depth=16 * 16)  # the piece is just small enough
    found = saved_for_readers([layer, reader], {"out", "y"}, arch)
    assert (len(found[0].saves) == len(layer.saves) + 1) == twice == (found[1].core.input.part is None and bool(
        layer.output.part))
    assert saved_for_readers([layer], {"out"}, arch)[0] == layer
    assert saved_for_readers([layer, reader], {"y"}, arch)[0] == layer
    assert saved_for_readers([layer, reader], {"out"}, ARCH.replace(local_depth=16 * 16 - 2))[0] == layer


def test_the_layers_before_are_those_that_made_what_is_read() -> None:
    """A whole tensor has all layers of its parts before it, a part its own maker and that of the whole."""
    layers: list[Any] = [SimpleNamespace(inputs=[var(name, part=part) for name, part in reads],
                                         outputs=[var(name, part=part) for name, part in writes])
                         for reads, writes in (
        ([("x", None)], [("p", PIECE_OF)]), ([("x", None)], [("q", PIECE_OF)]), ([("p", PIECE_OF)], [("a", None)]),
        ([("q", PIECE_OF), ("a", None)], [("b", None)]), ([("out", None)], [("c", None)]),
        ([("c", None)], [("out", None)]), ([("p", PIECE_OF)], [("d", None)]))]
    assert layers_before(layers) == [[], [], [0], [1, 2], [0, 1], [4], [0, 5]]


def test_a_functions_part_is_as_large_as_its_end_farther_from_0() -> None:
    rows = [{"name": name, "range": ends, "root_mean_square": size} for name, ends, size in (
        ("f", [-1.0, 2.0], 0.5), ("f", [-9.0, 1.0], 0.1), ("f", [-3.0, 4.0], 0.7), ("g", [0.0, 1.0], 0.2))]
    layers: Any = [SimpleNamespace(lookup=lookup) for lookup in ("l", "l", "l", None)]
    assert _parts_of_functions(rows, layers) == {"f": {"range": [-9.0, 1.0], "root_mean_square": 0.7}}


def test_only_the_order_of_a_whole_tensor_is_plain() -> None:
    assert as_order(np.arange(6).reshape(2, 3), 6) is None
    assert as_order(np.arange(6), 8).tolist() == [*range(6)]  # type: ignore[union-attr]
    assert as_order(np.array([1, 0]), 2).tolist() == [1, 0]  # type: ignore[union-attr]


# -- networks ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("output", "source", "known"), [
    ("y", "x", True), ("z", "x", False), ("y", "z", False), ("x", "y", False)])
def test_a_state_is_of_an_output_and_an_input(output: str, source: str, known: bool) -> None:
    value = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", value[:1],
                                                          value[1:]))
    assert states_of(model) == ()
    states = State("y", "x", zero=False), State(output, source)
    declare_states(model, states)
    assert states_of(model) == states[:1 + known]
    model.metadata_props[0].value = "[[1]]"
    assert model.metadata_props[0].key == KEY and states_of(model) == ()


def network(nodes: str, macs: str = "") -> Graph:
    """Nodes "name:inputs", a Concat where the name begins with c, else a Relu; ``macs``: names of those that work."""
    made = []
    for entry in nodes.split():
        name, inputs = entry.split(":")
        made.append(Node(name, "Concat" if name.startswith("c") else "Relu", tuple(inputs.split(",")), (name,),
                         {"axis": 1}, macs=5 if name in macs.split(",") else 0))
    names = {"x", *(node.output for node in made)}
    last = made[-1].output
    return Graph("g", tuple(made), (GraphPort("x", (1, 4), "x"),), (GraphPort(last, (1, 4), last),),
                 dict.fromkeys(names, (1, 4)), {}, 20)


@pytest.mark.parametrize(("nodes", "host", "moved"), [
    ("a:x b:x c:a,b h:c", "h", ["c"]), ("a:x b:x c:a,b d:c h:c e:d,h", "h,e", []),
    ("a:x b:x c:a,b h:c i:c j:h,i", "h,i,j", ["c"]), ("a:x b:x c:a,b d:c h:d", "h", [])])
def test_a_concatenation_goes_to_the_host_if_only_the_host_reads_it(nodes: str, host: str, moved: list[str]) -> None:
    graph, reasons = network(nodes, "a,b"), dict.fromkeys(host.split(","), "why")
    assert [node.name for node in partition._last_joins(graph, partition._phases(graph, reasons), reasons)] == moved


def test_a_subgraph_counts_as_tried_with_its_outputs() -> None:
    """One more output may be what the machine cannot make."""
    asked: list[int] = []

    def attempt(part: Graph, every: bool) -> list[CompileError]:
        asked.append(len(part.outputs))
        return [CompileError("no")] if len(part.outputs) > 1 else []

    part = network("a:x b:a")
    more = part.replace(outputs=(*part.outputs, GraphPort("a", (1, 4), "a")))
    accepted: set[frozenset[str]] = set()
    found = [len(partition._refused(each, attempt, accepted, False)) for each in (part, part, more, more, part)]
    assert found == [0, 0, 1, 1, 0] and asked == [1, 2, 2]


@pytest.mark.parametrize(("seen", "zero", "op"), [
    ((-1, 255 / 2), -128, "Relu"), ((0, 127), -128, "Relu"), ((0, 140), -128, "Clip"), ((-9, 140), -128, "Clip"),
    ((-60, 60), 0, "Identity"), ((-80, 60), 0, "Clip"), ((-60, 80), 0, "Clip"), ((-64.4, 63.9), 0, "Identity")])
def test_a_rounding_limits_where_its_bytes_end(seen: tuple[float, float], zero: int, op: str) -> None:
    """Steps of a half; beyond a step from its bytes' ends a number counts."""
    node = Node("q", "FakeQuantize", ("x",), ("q",), {"scale": 0.5, "zero": zero})
    assert _limited(node, seen, {}).op == op


@pytest.mark.parametrize(("step", "infinite"), [
    (("Pow", (0, 0.5), ()), True), (("Pow", (0, 2.0), ()), False), (("Pow", (0, -1.0), ()), True),
    (("Pow", (0, 3.0), ()), False), (("Pow", (0, 1.5), ()), True), (("Pow", (2.0, 0), ()), True),
    (("Log", (0,), ()), True), (("Sqrt", (0,), ()), True), (("Exp", (0,), ()), False),
    (("Div", (1.0, 0), ()), True), (("Div", (0, 2.0), ()), False), (("Reciprocal", (0,), ()), True)])
def test_roots_logarithms_and_quotients_may_be_infinite(step: Any, infinite: bool) -> None:
    assert may_be_infinite(step) == infinite


# -- shares of cores and tuning ----------------------------------------------------------------------------------------
def test_a_share_reads_what_it_adds_where_the_core_computes() -> None:
    """In front of a pool these are other pixels than the share's."""
    share, core, read = Box((0, 1), (0, 2), (0, 2)), Box((0, 1), (0, 4), (0, 4)), Box((0, 2), (0, 5), (0, 5))
    layer = Layer("l", Load(var("x")), (Save(var("w"), before_pool=True), Save(var("p", 4, 2, 2))),
                  adds=(Add(var("a")),), pool=MaxPool(Window((2, 2), (2, 2)), (2, 2)))
    shape: Any = SimpleNamespace(layer=layer, box=share, core_region=lambda _: core, input_region=lambda *_: read,
                                 loads=True, most_taps=1)
    found = touching.touched(shape)
    assert [(each.name, box) for each, box in found.reads] == [("x", read), ("a", core)]
    assert [(each.name, box) for each, box in found.writes] == [("w", core), ("p", share)]


def test_what_a_search_found_is_for_its_budget() -> None:
    budgets = [Budget(steps=4), Budget(steps=5), Budget(seconds=4), Budget(steps=4, seed=1)]
    assert len({search_digest([], budget) for budget in budgets}) == 4
    assert search_digest([], budgets[0]) == search_digest([], Budget(steps=4))
