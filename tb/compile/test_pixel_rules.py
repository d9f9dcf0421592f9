# SPDX-License-Identifier: Apache-2.0
"""Small rules of passes and of lowering: evenly spaced pixels, factors that are folded, sizes of inputs, constants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend import constants
from weft.compiler.frontend.constants import Folder
from weft.compiler.frontend.graph import Graph, GraphPort, Node, Within
from weft.compiler.frontend.inputs import fix_shapes, settle_inputs
from weft.compiler.frontend.known import _drop_empty
from weft.compiler.lowering import gather
from weft.compiler.lowering.pool import _averages, lines, reduced_axes
from weft.compiler.lowering.rewrite import TensorView
from weft.compiler.passes.dead_pixels import EvenPixels, _attributes, _viewed, drop_unread_pixels, union
from weft.compiler.passes.fold import fold_channelwise
from weft.compiler.passes.normalise import _output
from weft.compiler.passes.order import _copies_first
from weft.support.errors import WeftError
from weft.tmodel.window import Window


def pixels(line: EvenPixels) -> set[int]:
    return {line.start + line.step * number for number in range(line.length)}


# -- evenly spaced pixels ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(40))
def test_a_union_is_the_fewest_even_pixels_that_hold_all(seed: int) -> None:
    random = np.random.default_rng(seed)
    given = [EvenPixels(*(int(random.integers(low, 7)) for low in (0, 1, 1))) for _ in range(random.integers(1, 4))]
    found = union(given)
    every = set().union(*map(pixels, given))
    steps = [step for step in range(1, 40) if all((pixel - min(every)) % step == 0 for pixel in every)]
    assert pixels(found) == {*range(min(every), max(every) + 1, max(steps))}
    for line in given:
        assert pixels(line.within(found)) == {(pixel - found.start) // found.step for pixel in pixels(line)}


@pytest.mark.parametrize(("offset", "pitch", "step", "size", "grid"), [
    (0, 6, 1, (2, 6), ((0, 1, 2), (0, 1, 6))), (8, 12, 2, (2, 2), ((1, 2, 2), (2, 2, 2))), (3, 6, 3, (2, 1), ((0, 1, 2),
                                                                                               (3, 1, 1))),
    (3, 6, 2, (2, 2), ((0, 1, 2), (3, 2, 2))), (4, 6, 2, (2, 2), None), (0, 7, 1, (2, 2), None),
    (3, 7, 1, (1, 3), ((0, 1, 1), (3, 1, 3))), (4, 6, 1, (1, 3), None)])
def test_a_view_reads_rows_and_columns_or_a_mix(offset: int, pitch: int, step: int, size: tuple[int, int],
                                                grid: Any) -> None:
    """Of an image six pixels wide; None for pixels that go on in the next row."""
    node = Node("v", "View", ("x",), ("v",), {"offset": offset, "pitch": pitch, "step": step})
    whole = EvenPixels(0, 1, size[0]), EvenPixels(0, 1, size[1])
    assert _viewed(node, 6, whole) == (None if grid is None else tuple(EvenPixels(*line) for line in grid))


def test_a_window_over_fewer_pixels_reads_the_same_ones() -> None:
    """As many outputs as are asked for and no more, each with the pixels that it had, wherever that is possible."""
    random, one, made_of = np.random.default_rng(0), EvenPixels(0, 1, 1), 0
    for _ in range(2000):
        kernel, stride, dilation, pad = (int(random.integers(*ends)) for ends in ((1, 4), (1, 4), (1, 4), (0, 3)))
        line, have = (EvenPixels(*(int(random.integers(*ends)) for ends in ((0, 4), (1, 4), (1, 5)))) for _ in range(2))
        before, there = Window((kernel, 1), (stride, 1), (pad, 0), (dilation, 1)), pixels(have)
        wanted = [before.reads(0, output, (have.start, have.last + 1)) for output in sorted(pixels(line))]
        if not any(wanted) or not there.issuperset(pixel for reads in wanted for pixel in reads):
            continue
        node = Node("c", "MaxPool", ("x",), ("c",), {
            "kernel_shape": (kernel, 1), "strides": (stride, 1), "dilations": (dilation, 1), "pads": (pad, 0, 9, 0),
            "ceil_mode": 1})
        made = _attributes(node, (line, one), (have, one))
        if made is None:
            continue
        window = Window((kernel, 1), (made["strides"][0], 1), (made["pads"][0], 0), (made["dilations"][0], 1))
        found = [tuple(have.start + have.step * pixel for pixel in window.reads(0, place, (0, have.length)))
                 for place in range(line.length)]
        padded = have.length + made["pads"][0] + made["pads"][2]
        outputs = (padded - (kernel - 1) * made["dilations"][0] - 1) // made["strides"][0] + 1
        assert (found, outputs, made["ceil_mode"]) == (wanted, line.length, 0) and min(made["pads"]) >= 0
        made_of += 1
    assert made_of > 250


def test_an_output_has_all_of_its_pixels() -> None:
    """Though its only other reader takes every second one."""
    attributes = {"pads": (0,) * 4, "dilations": (1, 1), "group": 1, "kernel_shape": (1, 1)}
    nodes = (Node("a", "Conv", ("x", "w", "b"), ("a",), {**attributes, "strides": (1, 1)}),
             Node("y", "Conv", ("a", "w", "b"), ("y",), {**attributes, "strides": (2, 2)}))
    shapes = {"x": (1, 1, 5, 5), "a": (1, 1, 5, 5), "y": (1, 1, 3, 3)}
    values = {"w": np.ones((1, 1, 1, 1), np.float32), "b": np.zeros(1, np.float32)}
    for outputs, size in (("ay", 5), ("y", 3)):
        ports = [GraphPort(name, shapes[name], name) for name in ("x", *outputs)]
        found = drop_unread_pixels(Graph("net", nodes, (ports[0],), tuple(ports[1:]), shapes, values, 20))
        assert found.shapes["a"] == (1, 1, size, size) and found.shapes["y"] == (1, 1, 3, 3)


def test_copies_go_up_to_the_first_reader_and_never_down() -> None:
    """Of two copies of inputs into an output the one that is there already stays."""
    nodes = [Node("v", "View", ("c",), ("v",)), Node("k", "Conv", ("v", "w1"), ("k",)),
             Node("r", "Relu", ("x",), ("r",)), Node("n", "Conv", ("r", "w2"), ("n",)),
             Node("l", "Conv", ("e", "w3"), ("l",)), Node("y", "Assemble", ("k", "n", "l"), ("y",))]
    shapes = dict.fromkeys("cexvkrnly", (1, 1, 1, 1))
    ports = [GraphPort(name, shapes[name], name) for name in "cexy"]
    graph = Graph("net", tuple(nodes), tuple(ports[:3]), (ports[3],), shapes, {}, 20)
    assert "".join(node.output for node in _copies_first(graph, nodes)) == "vkrlny", "not behind what it is in front of"


# -- where elements lie ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("pixels_", "view"), [
    ([[0, 1], [6, 7]], ((2, 2), 0, 6, 1)), ([[8, 10], [20, 22]], ((2, 2), 8, 12, 2)), ([[1, 0], [7, 6]], None),
    ([[6, 7], [0, 1]], None), ([[0, 1], [6, 8]], None), ([[3, 3], [9, 9]], ((2, 1), 3, 6, 1)),
    ([[3, 4], [3, 4]], ((1, 2), 3, 2, 1)), ([[3]], ((1, 1), 3, 6, 1))])
def test_an_image_is_a_view_where_its_pixels_go_up_evenly(pixels_: Any, view: Any) -> None:
    """Of an image six pixels wide; of rows or columns that are the same one. Flipped ones are none."""
    state: Any = SimpleNamespace(shapes={"x": (1, 4, 6, 6)}, view=lambda node, tensor, size, *walk: (size, *walk))
    found: Any = gather._as_view(state, None, "x", np.array(pixels_))  # type: ignore[arg-type]
    if view is None:
        assert found is None
        return
    size, offset, pitch, step = found
    assert (size, offset, step) == (view[0], view[1], view[3]) and pitch == view[2]


@pytest.mark.parametrize(("count", "channels", "stays"), [(8, [0, 2, 4, 5, 7], True), (8, [0, 2, 4, 6], False),
                                                          (9, [0, 2, 4, 6, 8], False), (4, [3], True)])
def test_other_channels_stay_between_where_that_takes_no_further_tile(count: int, channels: list[int], stays: bool,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    """On four lanes."""
    monkeypatch.setattr(gather, "image", lambda *_: ("x", np.array(channels)))
    monkeypatch.setattr(gather, "exact", lambda *_: "copy")
    state: Any = SimpleNamespace(shapes={"x": (1, count, 1, 1)}, lanes=4)
    tensor, found = gather.lying(state, None, "x")  # type: ignore[arg-type]
    assert (tensor, found.tolist()) == (("x", channels) if stays else ("copy", [*range(len(channels))]))


@pytest.mark.parametrize(("op", "part", "copied"), [("Conv", False, False), ("Conv", True, True), ("View", False, True),
                                                    (None, False, True)])
def test_an_output_lies_in_a_tensor_of_its_own(op: str | None, part: bool, copied: bool) -> None:
    """Inputs, views and parts of other tensors are copied."""
    held = TensorView("t", None)
    state: Any = SimpleNamespace(
        held={"y": held}, shapes={"t": (1, 2, 1, 1), "copy": (1, 2, 1, 1)}, parts={"t"} if part else set(), fixed=set(),
        maker=lambda tensor: None if op is None else SimpleNamespace(op=op), copied=lambda node, tensor: "copy",
        index=lambda name: np.arange(2))
    found = _output(state, GraphPort("y", (1, 2), "y"))
    assert found.tensor == ("copy" if copied else "t") and state.fixed == {found.tensor}


# -- factors -----------------------------------------------------------------------------------------------------------
def folded(*nodes: Node, bounds: dict[str, Any] | None = None, **values: Any) -> Graph:
    arrays = {name: np.array(value, np.float32) for name, value in values.items()}
    shapes = {name: (1, 2, 1, 1) for node in nodes for name in (*node.inputs, *node.outputs) if name not in arrays}
    ends = GraphPort("x", (1, 2, 1, 1), "x"), GraphPort(nodes[-1].output, (1, 2, 1, 1), nodes[-1].output)
    return fold_channelwise(Graph("net", nodes, ends[:1], ends[1:], shapes, arrays, 20, bounds=bounds or {}))


def conv(source: str, made: str, weights: str, bias: str, group: int = 1) -> Node:
    return Node(made, "Conv", (source, weights, bias), (made,), {
        "pads": (0,) * 4, "strides": (1, 1), "dilations": (1, 1), "group": group, "kernel_shape": (1, 1)})


FULL = [[[[1.0]], [[2.0]]], [[[3.0]], [[4.0]]]]


def each(first: float, second: float) -> list[Any]:
    return [[[[first]]], [[[second]]]]


def test_factors_and_offsets_go_into_the_convolution_before() -> None:
    made = folded(conv("x", "a", "w", "b"), conv("a", "y", "s", "o", 2), w=FULL, b=[1, -1], s=each(2, 3), o=[10, 20])
    node, = made.nodes
    weights, bias = (made.constants[name] for name in node.inputs[1:])
    assert weights.ravel().tolist() == [2, 4, 9, 12] and bias.tolist() == [12, 17]


@pytest.mark.parametrize(("factors", "offset", "applies"), [((3, 3), 0, True), ((3, 2), 0, False), ((3, 3), 1, False)])
def test_one_factor_goes_into_all_of_its_readers(factors: tuple[float, float], offset: float, applies: bool) -> None:
    """And bounds by what it made are bounds by what it was made of."""
    made = folded(Node("a", "Relu", ("x",), ("a",)), conv("a", "s", "f", "o", 2), conv("s", "p", "w", "z"),
                  conv("s", "q", "w", "z"), Node("y", "Add", ("p", "q"), ("y",)),
                  bounds={"p": Within("s", factor=2.0)}, w=FULL, z=[0, 0], f=each(*factors), o=[offset] * 2)
    assert ("s" not in {node.output for node in made.nodes}) == applies
    if applies:
        readers = [node for node in made.nodes if node.op == "Conv"]
        assert [node.input(0) for node in readers] == ["a", "a"]
        assert all(made.constants[node.input(1)].ravel().tolist() == [3, 6, 9, 12] for node in readers)
        assert made.bounds["p"] == Within("a", factor=6.0)


@pytest.mark.parametrize(("factors", "square", "applies"), [
    ((0.5, 0.5), False, True), ((-0.5, -0.5), False, False), ((0.0, 0.0), False, False), ((0.5, 1.0), False, False),
    ((0.5, 0.5), True, False)])
def test_a_factor_goes_into_the_limits_of_a_gate(factors: tuple[float, float], square: bool, applies: bool) -> None:
    """A negative one would turn them round, and a square would have it twice."""
    made = folded(conv("x", "g", "w", "b"), Node("c", "Clip", ("g", "low", "high"), ("c",)),
                  Node("m", "Mul", ("c" if square else "x", "c"), ("m",)), conv("m", "y", "f", "o", 2),
                  w=FULL, b=[3, 3], low=0, high=6, f=each(*factors), o=[0, 0])
    assert ([node.op for node in made.nodes] == ["Conv", "Clip", "Mul"]) == applies
    if applies:
        clip = next(node for node in made.nodes if node.op == "Clip")
        assert [float(made.constants[name]) for name in clip.inputs[1:]] == [0, 3]


# -- pools -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "pads", "dilation", "size", "outputs"), [
    (3, 1, (1, 1), 1, 4, 4), (3, 2, (1, 1), 1, 5, 3), (3, 2, (0, 0), 1, 6, 3), (2, 3, (1, 2), 2, 5, 2),
    (3, 3, (2, 0), 1, 4, 2)])
def test_an_average_is_of_the_pixels_that_count(kernel: int, stride: int, pads: tuple[int, int], dilation: int,
                                                size: int, outputs: int, counted: bool) -> None:
    """Those of the image, or with ``counted`` those of the padding too, but not what a last window has beyond it."""
    attributes = {"pads": (pads[0], 0, pads[1], 0), "strides": (stride, 1), "dilations": (dilation, 1)}
    matrix = _averages(0, (kernel, 1), (size, 1), (outputs, 1), counted, attributes)
    for output in range(outputs):
        taps = [output * stride - pads[0] + dilation * tap for tap in range(kernel)]
        inside = [tap for tap in taps if 0 <= tap < size]
        count = len([tap for tap in taps if -pads[0] <= tap < size + pads[1]]) if counted else len(inside)
        wanted = np.zeros(size)
        wanted[inside] = 1 / count
        assert np.allclose(matrix[output], wanted)


@pytest.mark.parametrize("seed", range(20))
def test_lines_are_the_rows_of_a_matrix(seed: int) -> None:
    random = np.random.default_rng(seed)
    matrix = random.choice([0.0, 0.5, 1.0], (6, 5), p=[0.6, 0.2, 0.2])
    matrix[3:] = np.roll(matrix[:3], 1, axis=1)
    found = np.zeros(matrix.shape)
    for line in lines(matrix):
        for number in range(line.walk.length):
            first = line.first + number * line.stride
            found[line.walk.first + number * line.walk.stride, first:first + len(line.weights)] += line.weights
    assert np.allclose(found, matrix)


@pytest.mark.parametrize(("given", "noop", "axes"), [
    ((-1, 0), 0, [0, 3]), ((2, -2), 0, [2]), ((), 0, [0, 1, 2, 3]), ((), 1, []), (None, 0, [0, 1, 2, 3])])
def test_axes_count_from_either_end(given: tuple[int, ...] | None, noop: int, axes: list[int]) -> None:
    state: Any = type("State", (), {"graph": type("Shapes", (), {"shapes": {"x": (1, 2, 3, 4)}})})
    own = {} if given is None else {"axes": given}
    assert reduced_axes(state, Node("y", "ReduceSum", ("x",), ("y",), {**own, "noop_with_empty_axes": noop})) == axes


# -- sizes of inputs ---------------------------------------------------------------------------------------------------
def inputs(**shapes: tuple[int | str | None, ...]) -> onnx.GraphProto:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    return helper.make_graph([], "net", values, [])


def sizes(graph: onnx.GraphProto) -> dict[str, list[int]]:
    return {value.name: [entry.dim_value for entry in value.type.tensor_type.shape.dim] for value in graph.input}


def test_sizes_of_one_name_are_one_wherever_they_stand() -> None:
    graph = inputs(x=("n", 3, "w"), y=("w", 2), z=("?", 4))
    fix_shapes(graph, {"x": (2, 3, 7)})
    assert sizes(graph) == {"x": [2, 3, 7], "y": [7, 2], "z": [1, 4]}
    wrong: list[Any] = [{"x": (1, 3, 7), "y": (6, 2)}, {"x": (1, 3, 7), "y": (8, 2)}, {"w": 7, "y": (8, 2)}]
    for given in wrong:
        with pytest.raises(CompileError, match="for w; allowed: one size for one name"):
            fix_shapes(inputs(x=("n", 3, "w"), y=("w", 2)), given)


def test_open_sizes_that_are_written_alike_are_not_the_same() -> None:
    """Some exporters write "?" for each."""
    graph = inputs(x=("?", "?", 4), y=("?", "?"))
    fix_shapes(graph, {"x": (1, 3, 4), "y": (2, 5)})
    assert sizes(graph) == {"x": [1, 3, 4], "y": [2, 5]}
    with pytest.raises(CompileError, match="input 'x', dimension 1"):
        fix_shapes(inputs(x=(1, "?", 4)), {})


@pytest.mark.parametrize(("shape", "value", "found"), [
    ((2, 3), np.arange(6), [[0, 1, 2], [3, 4, 5]]), ((2, 3), 7, [[7] * 3] * 2), ((2, 3), [[7]], [[7] * 3] * 2),
    ((2, 3), np.arange(6).reshape(1, 2, 3), None), ((2, 3), np.arange(6).reshape(3, 2), None),
    ((2, 3), np.arange(5), None), (("n", "m"), [[1, 2]], [[1, 2]]),
    (("n", 2), [[5]], [[5, 5]])])
def test_a_value_is_one_number_or_has_the_shape_of_its_input(shape: tuple[int | str, ...], value: Any,
                                                             found: Any) -> None:
    """Or is a list of all of its numbers. It tells sizes that are open, but one number does not."""
    graph = inputs(x=shape)
    if found is None:
        with pytest.raises(CompileError, match="--(fix|shape) x"):
            settle_inputs(graph, {}, {"x": value})
        return
    settle_inputs(graph, {}, {"x": value})
    assert not graph.input and onnx.numpy_helper.to_array(graph.initializer[0]).tolist() == found


# -- constants ---------------------------------------------------------------------------------------------------------
def folder(*nodes: onnx.NodeProto, shapes: dict[str, Any] | None = None, **values: Any) -> list[Any]:
    model = helper.make_model(helper.make_graph(list(nodes), "net", [], []),
                              opset_imports=[helper.make_opsetid("", 15)])
    own = Folder(model, {name: np.asarray(value) for name, value in values.items()}, shapes or {})
    found = [own.fold(node) for node in nodes]
    return [None if made is None else [value.tolist() for value in made.values()] for made in found]


@pytest.mark.parametrize(("span", "shape"), [({}, [2, 3, 4, 5]), ({"start": 1}, [3, 4, 5]), ({"end": 2}, [2, 3]),
                                             ({"start": 1, "end": -1}, [3, 4]), ({"start": -1}, [5])])
def test_a_part_of_a_shape(span: dict[str, Any], shape: list[int]) -> None:
    assert folder(helper.make_node("Shape", ["x"], ["y"], **span), shapes={"x": (2, 3, 4, 5)}) == [[shape]]
    assert folder(helper.make_node("Size", ["x"], ["y"]), shapes={"x": (2, 3)}) == [[6]]


def test_what_is_drawn_at_random_is_no_constant() -> None:
    assert folder(helper.make_node("RandomNormalLike", ["x"], ["y"]), x=np.zeros(2, np.float32)) == [None]
    assert folder(helper.make_node("Neg", ["x"], ["y"]), x=np.ones(2, np.float32)) == [[[-1, -1]]]


@pytest.mark.parametrize(("most", "fits"), [(4, True), (3, False)])
def test_all_constants_together_are_counted(most: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MOST_FOLDED", most)
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in "ab"]
    if fits:
        assert folder(*nodes, x=np.ones(2, np.float32))[1] == [[-1, -1]]
        return
    with pytest.raises(CompileError, match="found 4 elements that are computed; allowed: at most 3"):
        folder(*nodes, x=np.ones(2, np.float32))


@pytest.mark.parametrize(("most", "fits"), [(4 * 5 * 6, True), (4 * 5 * 6 - 1, False)])
def test_the_steps_of_a_product_are_counted(most: int, fits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows times columns times what they have in common."""
    monkeypatch.setattr(constants, "MOST_WORK", most)
    given: dict[str, Any] = {"a": np.ones((4, 5), np.float32), "b": np.ones((5, 6), np.float32)}
    node = helper.make_node("MatMul", ["a", "b"], ["y"])
    if fits:
        assert folder(node, **given) == [[[[5.0] * 6] * 4]]
        return
    with pytest.raises(WeftError, match="steps to evaluate them"):
        folder(node, **given)


@pytest.mark.parametrize(("sizes_", "left", "op"), [((2, 3), "ab", "Concat"), ((0, 3), "b", "Identity"),
                                                    ((0, 0), "ab", "Concat")])
def test_what_is_empty_is_not_joined(sizes_: tuple[int, int], left: str, op: str) -> None:
    """Unless all is."""
    graph = helper.make_graph([helper.make_node("Concat", ["a", "b"], ["y"], axis=0)], "net", [], [])
    _drop_empty(graph, {"a": (sizes_[0], 2), "b": (sizes_[1], 2)})
    assert ("".join(graph.node[0].input), graph.node[0].op_type) == (left, op)
    assert bool(graph.node[0].attribute) == (op == "Concat")
