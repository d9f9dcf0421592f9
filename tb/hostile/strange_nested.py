# SPDX-License-Identifier: Apache-2.0
"""Networks of graphs within graphs: branches whose names hide others, loops and scans, functions with attributes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.tb.hostile.case import network
from weft.tb.hostile.odd_kinds import LARGE, const, named, node

Make = Callable[[], onnx.ModelProto]


# -- graphs in graphs --------------------------------------------------------------------------------------------------
def _branch(name: str, *nodes: onnx.NodeProto, output: str = "z", weights: Any = ()) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [onnx.ValueInfoProto(name=output)], list(weights))


def _choice(first: onnx.GraphProto, other: onnx.GraphProto, known: bool = True) -> onnx.ModelProto:
    choice = node("If", ["b"], ["y"], then_branch=first, else_branch=other)
    if known:
        return network(choice, weights=[const("b", True, bool)])
    return network(node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["b"], to=9), choice)


def _shadows(known: bool) -> onnx.ModelProto:
    """Return a choice whose branch makes a tensor that has the name of one outside."""
    inner = _branch("inner", node("Neg", ["x"], ["s"]), node("Relu", ["s"], ["z"]))
    model = _choice(inner, _branch("other", node("Abs", ["x"], ["z"])), known)
    model.graph.node.insert(0, node("Sigmoid", ["x"], ["s"]))
    model.graph.node.append(node("Add", ["y", "s"], ["y2"]))
    model.graph.output[0].name = "y2"
    return model


def _hidden_weights() -> onnx.ModelProto:
    """Return a choice whose branch has constants called like those outside."""
    inner = _branch("inner", node("Add", ["x", "b"], ["z"]), weights=[const("b", [1.0])])
    return _choice(inner, inner)


def _branch_of_itself() -> onnx.ModelProto:
    return _choice(_branch("a", node("Identity", ["y"], ["z"])), _branch("b", node("Identity", ["x"], ["z"])))


def _branch_with_input() -> onnx.ModelProto:
    graph = _branch("a", node("Identity", ["x"], ["z"]))
    graph.input.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 4]))
    return _choice(graph, graph)


def _loop_body(**changes: Any) -> onnx.ModelProto:
    """Return a loop over the input, whose body is changed."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Add", ["v", "v"], ["w"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, None)])
    for field, count in changes.items():
        del getattr(body, field)[count:]
    return network(node("Loop", ["n", "t", "x"], ["y"], body=body),
                   weights=[const("n", 3, np.int64), const("t", True, bool)])


def _scan(**attributes: Any) -> onnx.ModelProto:
    body = helper.make_graph(
        [node("Add", ["s", "v"], ["t"]), node("Identity", ["t"], ["w"])], "body",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("s", "v")],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("t", "w")])
    return network(node("Scan", ["a", "x"], ["last", "y"], body=body, **{"num_scan_inputs": 1, **attributes}),
                   weights=[const("a", np.zeros((2, 4, 4)))])


# -- functions ---------------------------------------------------------------------------------------------------------
def _function(nodes: list[onnx.NodeProto], *, inputs: tuple[str, ...] = ("a",), outputs: tuple[str, ...] = ("b",),
              attributes: tuple[str, ...] = (), given: dict[str, Any] | None = None, times: int = 1,
              reads: tuple[str, ...] = ("x",), version: int = 1) -> onnx.ModelProto:
    """Return a network of a call of a function of these nodes."""
    model = network(node("F", list(reads), ["y"], domain="own", name="call", **(given or {})))
    model.opset_import.append(helper.make_opsetid("own", 1))
    made = helper.make_function("own", "F", list(inputs), list(outputs), nodes,
                                [helper.make_opsetid("", 17), helper.make_opsetid("own", version)], list(attributes))
    model.functions.extend([made] * times)
    return model


def _reference(operator: str, attribute: str, refers: str, kind: int) -> onnx.NodeProto:
    made = node(operator, ["a"], ["b"])
    made.attribute.add(name=attribute, ref_attr_name=refers, type=kind)
    return made


def _standard_function() -> onnx.ModelProto:
    """Return a network with a function of its own called Relu in ONNX's own domain."""
    model = named(lambda model: None)
    model.functions.append(helper.make_function("", "Relu", ["a"], ["b"], [node("Neg", ["a"], ["b"])],
                                                [helper.make_opsetid("", 17)]))
    return model


def _deep_function() -> onnx.ModelProto:
    """Return a call of a function in a branch of a function in a branch, 300 deep."""
    model = network(node("F0", ["x"], ["y"], domain="own"))
    model.opset_import.append(helper.make_opsetid("own", 1))
    for level in range(300):
        call = node(f"F{level + 1}", ["a"], ["b"], domain="own") if level < 299 else node("Neg", ["a"], ["b"])
        model.functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], [call], [
            helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]))
    return model


def _reference_of_main() -> onnx.NodeProto:
    made = node("Elu", ["x"], ["y"])
    made.attribute.add(name="alpha", ref_attr_name="k", type=1)
    return made


NESTED: dict[str, Make] = {
    "a shadowed name, known": partial(_shadows, True), "a shadowed name": partial(_shadows, False),
    "hidden weights": _hidden_weights, "a branch of itself": _branch_of_itself,
    "a branch with an input": _branch_with_input,
    "branches of two shapes": lambda: _choice(_branch("a", node("Identity", ["x"], ["z"])), _branch(
        "b", node("ReduceMax", ["x"], ["z"])), False),
    "a branch without nodes": lambda: _choice(_branch("a"), _branch("b")),
    "a branch of an outer name": lambda: _choice(_branch("a", output="x"), _branch("b", output="x")),
    "a choice by floats": lambda: network(node("If", ["x"], ["y"], then_branch=_branch(
        "a", node("Identity", ["x"], ["z"])), else_branch=_branch("b", node("Neg", ["x"], ["z"])))),
    "a choice of one branch": lambda: network(node("If", ["b"], ["y"], then_branch=_branch(
        "a", node("Identity", ["x"], ["z"]))), weights=[const("b", False, bool)]),
    "a loop": _loop_body, "a loop of no condition": lambda: _loop_body(output=0),
    "a loop of two inputs": lambda: _loop_body(input=2), "a loop of no input": lambda: _loop_body(input=0),
    "a loop of no nodes": lambda: _loop_body(node=0), "a loop of one node": lambda: _loop_body(node=1),
    "a scan": _scan, "a scan of 0 inputs": lambda: _scan(num_scan_inputs=0),
    "a scan of 2**62 inputs": lambda: _scan(num_scan_inputs=LARGE), "a scan of -1 inputs": lambda: _scan(
        num_scan_inputs=-1),
    "a scan of axis 99": lambda: _scan(scan_input_axes=[99]), "a scan backwards": lambda: _scan(
        scan_input_directions=[7]),
    "a function": lambda: _function([node("Neg", ["a"], ["b"])]),
    "a function twice": lambda: _function([node("Neg", ["a"], ["b"])], times=2),
    "a function of no nodes": lambda: _function([]),
    "a function that gives its input": lambda: _function([], outputs=("a",)),
    "a function that reads the caller's": lambda: _function([node("Add", ["a", "x"], ["b"])]),
    "a function of too many inputs": lambda: _function([node("Neg", ["a"], ["b"])], reads=("x", "x", "x")),
    "a function of no inputs": lambda: _function([node("Neg", ["a"], ["b"])], reads=()),
    "a function of two results": lambda: _function([node("Neg", ["a"], ["b"])], outputs=("b", "b")),
    "a function of operator set 0": lambda: _function([node("Neg", ["a"], ["b"])], version=0),
    "an attribute that nobody gives": lambda: _function([_reference("Elu", "alpha", "k", 1)], attributes=("k",)),
    "an attribute of another type": lambda: _function([_reference("Elu", "alpha", "k", 1)], attributes=("k",),
                                                      given={"k": "text"}),
    "an attribute of nowhere": lambda: network(_reference_of_main()),
    "an attribute of itself": lambda: _function([_reference("F", "k", "k", 1)], attributes=("k",)),
    "a function called Relu": _standard_function, "functions 300 deep": _deep_function,
}
