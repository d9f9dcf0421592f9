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

USE_HOST = "rewrite this part with supported operators, or cut the model here and run the rest on the host"


@dataclass(frozen=True)
class Rule:
    """Which values of an attribute are honoured: ``text`` says it, ``accepts`` tests it."""

    text: str
    accepts: Callable[[Any], bool]


@dataclass(frozen=True)
class Operator:
    """``attributes`` by name; ``constants`` the inputs that must be known when compiling; ``rank`` of input 0."""

    attributes: dict[str, Rule]
    constants: tuple[int, ...] = ()
    rank: int | None = None


def only(*values: Any) -> Rule:
    return Rule(" or ".join(map(repr, values)), lambda value: value in values)


def plane(count: int, least: int) -> Rule:
    """``count`` integers, each at least ``least``."""
    return Rule(f"{count} integers of at least {least}",
                lambda value: len(value) == count and all(number >= least for number in value))


ANY = Rule("any value", lambda value: True)
AUTO_PAD = only("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
WINDOW = {"kernel_shape": plane(2, 1), "strides": plane(2, 1), "dilations": plane(2, 1), "pads": plane(4, 0),
          "auto_pad": AUTO_PAD}

OPERATORS: dict[str, Operator] = {
    "Add": Operator({}),
    "AveragePool": Operator({**WINDOW, "ceil_mode": only(0), "count_include_pad": only(0, 1)}, rank=4),
    "BatchNormalization": Operator({"epsilon": ANY, "momentum": ANY, "spatial": only(1), "training_mode": only(0)},
                                   (1, 2, 3, 4)),
    "Clip": Operator({"min": only(0.0), "max": ANY}, (1, 2)),
    "Conv": Operator({**WINDOW, "group": Rule("at least 1", lambda value: value >= 1)}, (1, 2), 4),
    "Div": Operator({}, (1,)),
    "Dropout": Operator({"ratio": ANY, "seed": ANY}),
    "Flatten": Operator({"axis": ANY}),
    "Gemm": Operator({"alpha": ANY, "beta": ANY, "transA": only(0), "transB": only(0, 1)}, (1, 2), 2),
    "GlobalAveragePool": Operator({}, rank=4),
    "Identity": Operator({}),
    "LeakyRelu": Operator({"alpha": Rule("above 0 and below 1", lambda value: 0 < value < 1)}),
    "MatMul": Operator({}, (1,), 2),
    "MaxPool": Operator({**WINDOW, "ceil_mode": only(0, 1), "storage_order": only(0)}, rank=4),
    "Mul": Operator({}),
    "Relu": Operator({}),
    "Reshape": Operator({"allowzero": ANY}, (1,)),
    "Squeeze": Operator({"axes": ANY}, (1,)),
    "Sub": Operator({}, (1,)),
    "Unsqueeze": Operator({"axes": ANY}, (1,)),
}


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
        if unread:
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
    shape = graph.shapes.get(node.input(0), ())
    if operator.rank is not None and len(shape) != operator.rank:
        raise refuse_node(node, f"shape of input 0 ({node.input(0)!r})", list(shape),
                          f"{operator.rank} dimensions", USE_HOST)
