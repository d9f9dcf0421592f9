# SPDX-License-Identifier: Apache-2.0
"""Functions of one number: what is known of each, and their values as onnxruntime computes them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from weft.compiler.frontend.graph import Node
from weft.compiler.frontend.onnx_writer import IR_VERSION, function_nodes
from weft.compiler.lowering.rules import Step, ValueTable
from weft.tmodel.onnx_engine import session

RealFunction = Callable[[np.ndarray], np.ndarray]

FUNCTION = "Function"
"""The canonical operator for a function of several ``steps`` (operators of ONNX); its ``kind`` is a key of KINDS."""

RECIPROCAL = ValueTable(domain=lambda low, high: (low, high), pole_at_zero=True)
KINDS: dict[str, ValueTable] = {
    "any": ValueTable(), "keeps_zero": ValueTable(keeps_zero=True),
    "as_seen": ValueTable(domain=lambda low, high: (low, high)),
    "positive": ValueTable(domain=lambda low, high: (max(low, 0.0), max(high, 0.0)))}

TABLES: dict[str, ValueTable] = {}
"""ONNX operators that become lookup tables, with their properties; ``operators.py`` adds its rows."""


def value_table(op: str, attributes: Mapping[str, Any]) -> ValueTable:
    """Return the known properties of a canonical node's function."""
    return KINDS[attributes["kind"]] if op == FUNCTION else TABLES[op]


@functools.lru_cache(maxsize=1024)
def real_function(op: str, attributes: tuple[tuple[str, Any], ...], opset: int) -> RealFunction:
    """Return a canonical node's function, of an array, as onnxruntime computes it."""
    weights: dict[str, np.ndarray] = {}
    nodes = function_nodes(Node("table", op, ("x",), ("y",), dict(attributes)), weights)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])
    graph = helper.make_graph(nodes, "table", [value], [onnx.ValueInfoProto(name="y")],
                              [onnx.numpy_helper.from_array(entry, name) for name, entry in weights.items()])
    engine = session(onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)))
    return lambda x: np.asarray(engine.run(None, {"x": x.astype(np.float32)})[0], np.float64)


def of_steps(steps: tuple[Step, ...], kind: str) -> tuple[tuple[str, Any], ...]:
    """Return the attributes of a Function node with these steps and this kind."""
    return ("kind", kind), ("steps", steps)


def steps_of(op: str, attributes: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the steps of a canonical node that is a function of one number; a single operator is one step."""
    return tuple(attributes["steps"]) if op == FUNCTION else ((op, (0,), tuple(sorted(attributes.items()))),)


def may_be_infinite(step: Step) -> bool:
    """Tell whether a step has arguments at which it is infinite, towards which it bends more and more."""
    op, arguments, _ = step
    if op == "Pow":
        return isinstance(arguments[1], int) or arguments[1] < 0 or arguments[1] % 1 != 0
    return op in ("Log", "Reciprocal", "Sqrt") or (op == "Div" and isinstance(arguments[1], int))
