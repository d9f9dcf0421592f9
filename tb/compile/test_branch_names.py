# SPDX-License-Identifier: Apache-2.0
"""Branches that are inlined keep their tensors apart, also where Ifs and the tensors in them have the same names."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from numpy.random import Generator
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.branches import conditions_of, inline_choices
from weft.compiler.frontend.graph import Node
from weft.tmodel.onnx_engine import run_model


def test_ifs_of_one_name_make_tensors_of_different_names() -> None:
    def branch(op: str) -> object:
        return helper.make_graph([helper.make_node("Abs", ["x"], ["t"], name="inner"),
                                  helper.make_node(op, ["t"], ["made"], name="last")], op, [],
                                 [helper.make_tensor_value_info("made", TensorProto.FLOAT, [2])])

    nodes = [helper.make_node("If", ["yes"], [f"y{number}"], name="choice", then_branch=branch("Neg"),
                              else_branch=branch("Exp")) for number in range(4)]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", "y0", "y1", "y2", "y3")]
    model = helper.make_model(helper.make_graph(nodes, "graph", value[:1], value[1:],
                                                [numpy_helper.from_array(np.array(True), "yes")]),
                              opset_imports=[helper.make_opsetid("", 17)])
    inline_choices(model)
    made = [name for node in model.graph.node for name in node.output]
    assert [node.op_type for node in model.graph.node] == ["Abs", "Neg"] * 4
    assert len(set(made)) == len(made) and {f"y{number}" for number in range(4)} <= set(made)
    assert len({node.name for node in model.graph.node}) == len(made)
    for first, second in zip(model.graph.node[::2], model.graph.node[1::2], strict=True):
        assert second.input[0] == first.output[0]


def test_what_depends_on_an_unknown_choice_is_unknown() -> None:
    def branch(value: bool) -> object:
        return helper.make_graph([helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(
            np.array(value)))], "branch", [], [helper.make_tensor_value_info("k", TensorProto.BOOL, [])])

    nodes = [helper.make_node("If", ["c"], ["d"], then_branch=branch(True), else_branch=branch(False)),
             helper.make_node("Not", ["d"], ["e"]),
             helper.make_node("If", ["e"], ["y"], then_branch=branch(True), else_branch=branch(False)),
             helper.make_node("If", ["yes"], ["z"], then_branch=branch(True), else_branch=branch(False))]
    value = [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in "cyz"]
    model = helper.make_model(helper.make_graph(nodes, "graph", value[:1], value[1:],
                                                [numpy_helper.from_array(np.array(True), "yes")]),
                              opset_imports=[helper.make_opsetid("", 17)])
    inline_choices(model)
    assert [node.op_type for node in model.graph.node] == ["If", "Not", "If", "Constant"]


def drawn(draw: Generator, depth: int) -> onnx.GraphProto:
    """A branch whose names are those of every other branch of its depth: constants, sums, and perhaps an If."""
    constants = [numpy_helper.from_array(draw.standard_normal(2).astype(np.float32), f"k{depth}{part}")
                 for part in range(2)]
    last = f"t{depth}" if depth == 0 else f"t{depth - 1}"
    nodes = [helper.make_node("Add", ["x", f"k{depth}0"], [f"t{depth}"], name="first"),
             helper.make_node("Mul", [f"t{depth}", f"k{depth}1"], [f"u{depth}"], name="second")]
    if depth < 2 and draw.integers(2):
        nodes.append(helper.make_node("If", [["yes", "c"][int(draw.integers(2))]], [f"w{depth}"], name="inner",
                                      then_branch=drawn(draw, depth + 1), else_branch=drawn(draw, depth + 1)))
        last = f"w{depth}"
    nodes.append(helper.make_node("Sub", [f"u{depth}", last], [f"made{depth}"], name="last"))
    return helper.make_graph(nodes, "branch", [], [helper.make_tensor_value_info(
        f"made{depth}", TensorProto.FLOAT, [2])], constants)


@pytest.mark.parametrize("seed", range(12))
def test_branches_that_are_inlined_compute_what_they_did(seed: int) -> None:
    """Three Ifs whose constants, tensors and nodes have the same names, within them Ifs that stay or go too."""
    draw = np.random.default_rng(seed)
    nodes = [helper.make_node("If", [["yes", "c"][int(draw.integers(5) == 0)]], [f"y{number}"], name="choice",
                              then_branch=drawn(draw, 0), else_branch=drawn(draw, 0)) for number in range(3)]
    outputs = [helper.make_tensor_value_info(f"y{number}", TensorProto.FLOAT, [2]) for number in range(3)]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
              helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    model = helper.make_model(helper.make_graph(nodes, "graph", inputs, outputs, [
        numpy_helper.from_array(np.array(bool(seed % 2)), "yes")]), opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8)
    given = [{"x": np.array([0.5, -2], np.float32), "c": np.array(value)} for value in (True, False)]
    wanted = [run_model(model, sample) for sample in given]
    inline_choices(model)
    assert all(node.input[0] == "c" for node in model.graph.node if node.op_type == "If")
    for sample, values in zip(given, wanted, strict=True):
        found = run_model(model, sample)
        for name, value in values.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_the_inputs_that_a_condition_depends_on_can_be_fixed() -> None:
    """Through all nodes before it; of others only an If is a choice."""
    nodes = [Node("a", "Not", ("p",), ("a",)), Node("b", "And", ("a", "q"), ("b",)), Node("r", "Not", ("s",), ("r",)),
             Node("y", "If", ("b",), ("y",)), Node("z", "If", ("k",), ("z",))]
    names = ["s", "q", "p", "x"]
    assert conditions_of(nodes, nodes[3], names) == "--fix q=VALUE --fix p=VALUE"
    assert conditions_of(nodes, nodes[4], names) == conditions_of(nodes, nodes[1], names) == ""
