# SPDX-License-Identifier: Apache-2.0
"""Lower functions of one number to lookup tables (Sigmoid, Tanh, Exp, ...).

Operators of ONNX keep their names; others become a ``Function`` of several steps. The tables themselves are made once
binary points or scales are known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.index import FILL
from weft.compiler.lowering.functions import FUNCTION, KINDS
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.lowering.rules import Lower, Step, ValueTable

RECENT = 4
"""The number of nodes before a function among which the maker of its argument is searched."""


def lookup(state: Rewrite, node: Node, table: ValueTable) -> None:
    """Lower an ONNX operator that is a function of one number."""
    _elementwise(state, node, table, node.op, node.attributes)


def several_steps(state: Rewrite, node: Node) -> None:
    """Lower a Function node, whose attributes have its steps."""
    _elementwise(state, node, KINDS[node.attributes["kind"]], FUNCTION, node.attributes)


def of_steps(steps: tuple[Step, ...], kind: str) -> Lower:
    """Return the lowering of an operator of one tensor that is a function of several steps."""
    return lambda state, node: several_steps(state, node.replace(attributes={"kind": kind, "steps": steps}))


def function(state: Rewrite, node: Node, source: str, steps: tuple[Step, ...], kind: str, part: str = "") -> str:
    """Emit a function of several steps of a canonical tensor; return the result, which may have further channels."""
    return _looked_up(state, node, source, KINDS[kind], FUNCTION, {"kind": kind, "steps": steps}, part)


def _elementwise(state: Rewrite, node: Node, table: ValueTable, op: str, attributes: Mapping[str, Any]) -> None:
    """Lower a function of all elements where they lie, or of a copy if most of what lies there is not wanted."""
    held = state.held[node.input(0)]
    source, where = held.tensor, held.where
    if where is not None and ((where == FILL).any() or 2 * where.size < math.prod(state.shapes[source])):
        source, where = exact(state, node, node.input(0)), None
    count = state.shapes[source][1]
    made = _looked_up(state, node, source, table, op, attributes)
    if where is None and state.shapes[made][1] != count:
        where = state.index_of_shape(node.output)
    state.hold(node.output, made, where)


def _looked_up(state: Rewrite, node: Node, source: str, table: ValueTable, op: str, attributes: Mapping[str, Any],
               part: str = "") -> str:
    """Emit the function ``op`` of ``source`` and return the result.

    If the function of 0 is not 0, unused lanes become channels (copies of the first), so that its readers know of
    them."""
    count = state.shapes[source][1]
    full = count if table.keeps_zero else -(-count // state.lanes) * state.lanes
    if full != count:
        known = state.bounds.get(source)
        source = _filled(state, node, source, [*range(count), *[0] * (full - count)])
        if known is not None:
            state.bound(source, known)
    made = state.emit(node, op, [source], attributes, state.shapes[source], part)
    state.nodes[-1] = state.nodes[-1].replace(origin=node.origin or node.op)
    return made


def _filled(state: Rewrite, node: Node, source: str, channels: list[int]) -> str:
    """Return a tensor of the given channels of ``source``.

    If a convolution makes ``source`` for nobody else, its weights are changed; otherwise a 1x1 convolution is added."""
    maker = next((entry for entry in reversed(state.nodes[-RECENT:]) if entry.output == source), None)
    size = state.shapes[source][2:]
    if maker is None or maker.op != "Conv" or source in state.fixed or source in state.graph.shapes:
        eye = state.weights(node, (len(channels), state.shapes[source][1], 1, 1))
        eye[range(len(channels)), channels] = 1
        return state.conv(node, source, eye, np.zeros(1), size, "lanes")
    weights, bias = (state.constants[name] for name in maker.inputs[1:])
    group = maker.attributes["group"]
    if group > 1:
        dense = state.weights(node, (group, len(weights) // group, group, *weights.shape[1:]))
        dense[range(group), :, range(group)] = weights.reshape(group, -1, *weights.shape[1:])
        weights = dense.reshape(len(weights), -1, *weights.shape[2:])
    attributes = {key: maker.attributes[key] for key in ("strides", "pads", "dilations")}
    made = state.conv(node, maker.input(0), weights[channels], bias[channels], size, "lanes", **attributes)
    state.nodes[-1] = state.nodes[-1].replace(origin=maker.origin, macs=maker.macs)
    return made
