# SPDX-License-Identifier: Apache-2.0
"""ONNX files whose names and versions are not what they must be: a name twice, a name that is no text, an opset of the
far future."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

from weft.tb.hostile.case import FORGED, SHAPE, Case, good, good_and, network, quick
from weft.tb.hostile.onnx_constants import Make, floats, node

COMPILE = ["compile", "net.onnx", "-a", "arty", "-o", "out"]


def _with(change: Callable[[onnx.ModelProto], Any]) -> Make:
    def make() -> onnx.ModelProto:
        model = good()
        change(model)
        return model

    return make


def _port(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape or SHAPE)


TWICE: dict[str, Make] = {
    "an output": _with(lambda model: model.graph.output.append(model.graph.output[0])),
    "an output of another shape": _with(lambda model: model.graph.output.append(_port("y", 1, 2))),
    "an input": _with(lambda model: model.graph.input.append(model.graph.input[0])),
    "an input of another shape": _with(lambda model: model.graph.input.append(_port("x", 1, 2))),
    "a constant": _with(lambda model: model.graph.initializer.append(model.graph.initializer[0])),
    "a result": lambda: network(node("Relu", ["x"], ["a"]), node("Abs", ["x"], ["a"]), node("Relu", ["a"], ["y"])),
    "a result of one node": lambda: network(node("Split", ["x"], ["y", "y"], axis=1)),
    "a result and an input": lambda: network(node("Relu", ["x"], ["x"]), node("Relu", ["x"], ["y"])),
    "a result and a constant": lambda: network(node("Relu", ["x"], ["w"]), node("Relu", ["w"], ["y"]),
                                               weights=[floats("w", 1)]),
    "an output that nothing makes": _with(lambda model: model.graph.output.append(_port("nothing"))),
    "an output without a name": _with(lambda model: setattr(model.graph.output[0], "name", "")),
    "an input without a name": _with(lambda model: setattr(model.graph.input[0], "name", "")),
    "an input of 5000 letters": lambda: _renamed("a" * 5000),
    "an input of a million letters": lambda: _renamed("a" * 10**6),
}


def _renamed(name: str) -> onnx.ModelProto:
    """Return the good network with another name of its input."""
    model = good()
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    return model


OPSETS = (-(1 << 62), -1, 0, 1, 6, 29, 100, 1000, 10**9, (1 << 63) - 1)

DOMAINS: dict[str, Make] = {
    "an operator of nobody": lambda: _of_domain("com.nobody"),
    "an operator of nobody with a known result": lambda: _of_domain("com.nobody", told=True),
    "an operator of onnxruntime": lambda: _of_domain("com.microsoft", told=True),
    "an operator of ai.onnx.ml": lambda: _of_domain("ai.onnx.ml", told=True),
    "a domain of escapes": lambda: _of_domain("\x1b[31m", told=True),
    "a domain of newlines": lambda: _of_domain(FORGED, told=True),
}


def _of_domain(domain: str, told: bool = False) -> onnx.ModelProto:
    """Return a network with a node called Relu that is not ONNX's."""
    model = network(node("Relu", ["x"], ["a"], domain=domain), node("Relu", ["a"], ["y"]))
    model.opset_import.append(helper.make_opsetid(domain, 1))
    if told:
        model.graph.value_info.append(_port("a"))
    return model


def _forged(place: str) -> onnx.ModelProto:
    """Return a network that the machine does not compute, with a name that makes lines in one place."""
    name = {place: FORGED}.get
    weights = [floats(name("constant", "w"), 1)]
    nodes = [node("Conv", [name("input", "x"), "k"], ["c"], name="conv"),
             node(name("operator", "Sin"), ["c"], [name("tensor", "t")], name=name("node", "sine")),
             node("Add", [name("tensor", "t"), name("constant", "w")], [name("output", "y")])]
    if place == "attribute":
        nodes[-1].attribute.append(helper.make_attribute(FORGED, 1))
    kernel = good().graph.initializer[0]
    kernel.name = "k"
    graph = helper.make_graph(nodes, name("graph", "net"), [_port(name("input", "x"))], [_port(name("output", "y"))],
                              [*weights, kernel])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = name("producer", "")
    return model


PLACES = ("constant", "input", "operator", "tensor", "node", "output", "attribute", "graph", "producer")


def _dimension() -> onnx.ModelProto:
    model = good()
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = FORGED
    return model


def _made(make: Make) -> Callable[[Path], Any]:
    return lambda folder: (folder / "net.onnx").write_bytes(make().SerializeToString())


def cases() -> list[Case]:
    found = [Case(f"onnx twice: {name}", "onnx names", good_and(COMPILE, _made(make))) for name, make in TWICE.items()]
    found += [Case(f"onnx opset {opset}", "onnx names", good_and(
        COMPILE, _made(_with(partial(_set_opset, opset))))) for opset in OPSETS]
    found += [Case(f"onnx domain: {name}", "onnx names", good_and(COMPILE, _made(make)))
              for name, make in DOMAINS.items()]
    for place in PLACES:
        make = partial(_forged, place)
        found += [Case(f"onnx forged {place} {way}", "onnx names", good_and(command, _made(make)), code=None)
                  for way, command in (("compiled", COMPILE), ("inspected", ["inspect", "net.onnx"]),
                                       ("without the host", [*COMPILE, "--no-host-fallback"]),
                                       ("in a report", [*COMPILE, "--report", "r.json"]))]
    found += [Case("onnx forged dimension", "onnx names", good_and(COMPILE, _made(_dimension)))]
    return quick(found, "onnx twice: an output", "onnx twice: an input", "onnx opset 1000000000", "onnx opset 0",
                 "onnx forged node without the host", "onnx forged output in a report",
                 "onnx domain: an operator of nobody with a known result")


def _set_opset(version: int, model: onnx.ModelProto) -> None:
    model.opset_import[0].version = version
