"""What the compiler honours: operators, their attributes, and which inputs must be constant.

One table, read by the check below and by the documentation. An attribute that is not in its operator's row is an
error, so nothing is silently ignored.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.compiler.errors import refuse_node
from weft.compiler.frontend.graph import Graph, Node

ON_HOST = "run the network from here on the host (--host-fallback)"
USE_HOST = f"rewrite this part with supported operators, or {ON_HOST}"


@dataclass(frozen=True)
class Rule:
    """Which values of an attribute are honoured: ``text`` says it, ``accepts`` tests it."""

    text: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True)
class Operator:
    """``attributes`` by name; ``constants`` the inputs that must be known when compiling; ``rank`` of input 0.

    ``outputs``: more than the first may be read.
    """

    attributes: dict[str, Rule]
    constants: tuple[int, ...] = ()
    rank: int | None = None
    outputs: bool = False


def only(*values: Any) -> Rule:
    return Rule(" or ".join(map(repr, values)), lambda value: value in values)


def plane(least: int) -> Rule:
    """Integers, each at least ``least``."""
    return Rule(f"integers of at least {least}", lambda value: all(number >= least for number in value))


ANY = Rule("any value", lambda value: True)
AT_LEAST_1 = Rule("at least 1", lambda value: value >= 1)
AUTO_PAD = only("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOW = {"kernel_shape": plane(1), "strides": plane(1), "dilations": plane(1), "pads": plane(0), "auto_pad": AUTO_PAD}
AXES = {"axes": ANY, "keepdims": ANY, "noop_with_empty_axes": ANY}

OPERATORS: dict[str, Operator] = {
    "Abs": Operator({}),
    "Add": Operator({}),
    "AveragePool": Operator({**WINDOW, "ceil_mode": only(0, 1), "count_include_pad": only(0, 1)}),
    "BatchNormalization": Operator({"epsilon": ANY, "momentum": ANY, "spatial": only(1), "training_mode": only(0)},
                                   (1, 2, 3, 4)),
    "Clip": Operator({"min": ANY, "max": ANY}, (1, 2)),
    "Concat": Operator({"axis": ANY}),
    "Conv": Operator({**WINDOW, "group": AT_LEAST_1}, (1, 2)),
    "ConvTranspose": Operator({**WINDOW, "group": AT_LEAST_1, "output_padding": plane(0), "output_shape": plane(1)},
                              (1, 2)),
    "DepthToSpace": Operator({"blocksize": ANY, "mode": ANY}),
    "Div": Operator({}),
    "Dropout": Operator({"ratio": ANY, "seed": ANY}, (1, 2)),
    "Elu": Operator({"alpha": ANY}),
    "Exp": Operator({}),
    "Expand": Operator({}, (1,)),
    "Flatten": Operator({"axis": ANY}),
    "Gather": Operator({"axis": ANY}, (1,)),
    "Gelu": Operator({"approximate": ANY}),
    "Gemm": Operator({"alpha": ANY, "beta": ANY, "transA": only(0, 1), "transB": only(0, 1)}, (), 2),
    "GlobalAveragePool": Operator({}),
    "GlobalMaxPool": Operator({}),
    "HardSigmoid": Operator({"alpha": ANY, "beta": ANY}),
    "HardSwish": Operator({}),
    "Identity": Operator({}),
    "LeakyRelu": Operator({"alpha": ANY}),
    "MatMul": Operator({}),
    "Max": Operator({}),
    "MaxPool": Operator({**WINDOW, "ceil_mode": only(0, 1), "storage_order": ANY}),
    "Mean": Operator({}),
    "Min": Operator({}),
    "Mish": Operator({}),
    "Mul": Operator({}),
    "Neg": Operator({}),
    "PRelu": Operator({}, (1,)),
    "Pad": Operator({"mode": only("constant", "reflect", "edge", "wrap"), "value": ANY, "pads": ANY}, (1, 2, 3)),
    "Reciprocal": Operator({}),
    "ReduceMax": Operator(AXES, (1,)),
    "ReduceMean": Operator(AXES, (1,)),
    "ReduceSum": Operator(AXES, (1,)),
    "Relu": Operator({}),
    "Reshape": Operator({"allowzero": ANY}, (1,)),
    "Resize": Operator({"antialias": ANY, "axes": ANY, "coordinate_transformation_mode": ANY, "cubic_coeff_a": ANY,
                        "exclude_outside": ANY, "extrapolation_value": ANY, "keep_aspect_ratio_policy": ANY,
                        "mode": ANY, "nearest_mode": ANY}, (1, 2, 3)),
    "Selu": Operator({"alpha": ANY, "gamma": ANY}),
    "Sigmoid": Operator({}),
    "Slice": Operator({"axes": ANY, "starts": ANY, "ends": ANY}, (1, 2, 3, 4)),
    "Softplus": Operator({}),
    "SpaceToDepth": Operator({"blocksize": ANY, "mode": ANY}),
    "Split": Operator({"axis": ANY, "num_outputs": ANY, "split": ANY}, (1,), outputs=True),
    "Sqrt": Operator({}),
    "Squeeze": Operator({"axes": ANY}, (1,)),
    "Sub": Operator({}),
    "Sum": Operator({}),
    "Tanh": Operator({}),
    "Tile": Operator({}, (1,)),
    "Transpose": Operator({"perm": ANY}),
    "Unsqueeze": Operator({"axes": ANY}, (1,)),
    "Upsample": Operator({"mode": ANY, "scales": ANY}, (1,)),
}

RELABEL = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators that keep every element, and only call it another: an input is packed as it leaves them."""


def check_supported(graph: Graph) -> Graph:
    """The graph itself; raises CompileError with node, operator, attribute and what is allowed."""
    consumers, outputs = graph.consumers(), graph.output_tensors()
    for node in graph.nodes:
        operator = OPERATORS.get(node.op)
        if operator is None:
            near = difflib.get_close_matches(node.op, OPERATORS, 1, 0.8)
            raise refuse_node(node, "", "not supported", ", ".join(OPERATORS),
                              f"{USE_HOST}{f'; the nearest supported one is {near[0]}' if near else ''}")
        _check_attributes(node, operator)
        _check_inputs(graph, node, operator)
        unread = [name for name in node.outputs[1:] if name and (name in consumers or name in outputs)]
        if unread and not operator.outputs:
            raise refuse_node(node, f"output {unread[0]!r}", "read by another node", "only the first output is read",
                              USE_HOST)
    return graph


def _check_attributes(node: Node, operator: Operator) -> None:
    for name, value in node.attributes.items():
        rule = operator.attributes.get(name)
        if rule is None:
            raise refuse_node(node, f"attribute {name}", value, ", ".join(operator.attributes) or "no attributes",
                              USE_HOST)
        if not rule.accepts(value):
            raise refuse_node(node, f"attribute {name}", value, rule.text, USE_HOST)


def _check_inputs(graph: Graph, node: Node, operator: Operator) -> None:
    for index in operator.constants:
        name = node.input(index)
        if name and not graph.is_constant(name):
            raise refuse_node(node, f"input {index} ({name!r})", "a tensor computed at run time", "a constant",
                              USE_HOST)
    first = node.input(0)
    shape = graph.constants[first].shape if graph.is_constant(first) else graph.shapes.get(first, ())
    if operator.rank is not None and len(shape) != operator.rank:
        raise refuse_node(node, f"shape of input 0 ({node.input(0)!r})", list(shape),
                          f"{operator.rank} dimensions", USE_HOST)
