"""Functions by lookup table (Sigmoid, Tanh, Exp, ...): operators of ONNX keep their names here, others are a
``Function`` of several steps; tables are made with the points."""

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
"""Nodes before a function among which its argument's maker is looked for."""


def lookup(state: Rewrite, node: Node, table: ValueTable) -> None:
    """Lowers a function of one number to a lookup table."""
    _elementwise(state, node, table, node.op, node.attributes)


def several_steps(state: Rewrite, node: Node) -> None:
    """Lowers a Function."""
    _elementwise(state, node, KINDS[node.attributes["kind"]], FUNCTION, node.attributes)


def of_steps(steps: tuple[Step, ...], kind: str) -> Lower:
    """Lowers an operator of one tensor that is a function of several steps."""
    return lambda state, node: several_steps(state, node.replace(attributes={"kind": kind, "steps": steps}))


def function(state: Rewrite, node: Node, source: str, steps: tuple[Step, ...], kind: str, part: str = "") -> str:
    """A function of several steps of a canonical tensor. Returns the result's name, which may have more channels."""
    return _looked_up(state, node, source, KINDS[kind], FUNCTION, {"kind": kind, "steps": steps}, part)


def _elementwise(state: Rewrite, node: Node, table: ValueTable, op: str, attributes: Mapping[str, Any]) -> None:
    """All elements where they lie, unless most of what lies there is not wanted."""
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
    """Where the function of 0 is not 0, unused lanes become channels (copies of the first), so that what reads the
    result knows of them."""
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
    """A tensor of some of the channels of ``source``: made so at once where a convolution makes it for nobody else."""
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
