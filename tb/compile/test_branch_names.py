# SPDX-License-Identifier: Apache-2.0
"""Branches that are inlined keep their tensors apart, also where Ifs and the tensors in them have the same names."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.branches import inline_choices


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
