# SPDX-License-Identifier: Apache-2.0
"""Pass: bring every operator into canonical form, every tensor with shape 1 x C x H x W.

Conv(x, w, b) with explicit strides, pads (top, left, bottom, right), dilations and group; Add and Mul of two tensors;
Relu; Abs; Clip from 0; LeakyRelu; PRelu by channel; MaxPool; functions by lookup table; Product, View and Assemble
(``rewrite.py``). The row of an operator in ``operators.py`` says how it is rewritten."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.macs import macs_of
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.indices.index import FILL, as_order
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.operators import ROWS
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.passes.align_slices import aligned_channels
from weft.compiler.passes.place_inputs import hold_input, place_operands, place_rest, placed_port

OPSET = 20
"""The opset of the normalised graph."""


def normalise(graph: Graph, lanes: int, refused: list[CompileError] | None = None, *, in_bytes: bool = False,
              has_abs: bool = False, has_slopes: bool = True, most_slopes: int = 0,
              largest_slope: float = 0.0) -> Graph:
    """Return the graph in canonical form, for an array of ``lanes`` lanes.

    ``in_bytes``: tensors are of eight bits. ``has_abs``: the SIMD unit computes magnitudes. ``has_slopes``: it, or what
    requantizes, computes leaky ReLUs. ``most_slopes``: the most channels for which the SIMD unit has a slope each, less
    than ``largest_slope`` in magnitude.

    Raise CompileError for a node that the machine cannot compute. With ``refused`` such errors are added to that list
    instead, and the node's results are taken as inputs; the graph is then of no use."""
    rounds = any(node.op == FAKE_QUANTIZE for node in graph.nodes)
    state = Rewrite(graph, lanes, rounds, aligned_channels(graph, lanes), in_bytes, has_abs, has_slopes,
                    most_slopes, largest_slope)
    consumers, ends = graph.consumers(), graph.output_tensors()
    for port in graph.inputs:
        hold_input(state, port, consumers, ends)
    for node in graph.nodes:
        lower = ROWS[node.op].lower
        assert lower is not None, "refused before"
        first = len(state.nodes)
        try:
            place_operands(state, node)
            lower(state, node)
            _count(state, node, first)
        except CompileError as error:
            if refused is None or error.node != node.name:
                raise
            refused.append(error)
            for name in filter(None, node.outputs):
                state.take_as_input(name)
    place_rest(state)
    inputs = tuple(placed_port(state, port) for port in graph.inputs)
    outputs = tuple(_output(state, port) for port in graph.outputs)
    return Graph(graph.name, tuple(state.nodes), inputs, outputs, state.shapes, state.constants, OPSET,
                 bounds=state.bounds)


def _count(state: Rewrite, node: Node, first: int) -> None:
    """Share the multiply-accumulates of a node, as drawn, among the canonical nodes from ``first`` on that do its work.

    A canonical node does not know them, as a kernel may have many zeros, and zeros of a first state are left out."""
    if not ROWS[node.op].counted:
        return
    read = {held.tensor for held in state.held.values()}.union(*(made.inputs for made in state.nodes[first:]))
    does = [number for number, made in enumerate(state.nodes[first:], first)
            if made.origin == node.op and made.op in ("Conv", "Product") and made.output in read]
    if not does:
        return
    sizes = [_size(state, state.nodes[number]) for number in does]
    ends = np.rint(np.cumsum([0, *sizes]) * (macs_of(state.graph, node) / sum(sizes))).astype(int)
    for number, macs in zip(does, np.diff(ends).tolist(), strict=True):
        state.nodes[number] = state.nodes[number].replace(macs=macs)


def _size(state: Rewrite, node: Node) -> int:
    """Return a number to which a canonical node's share of the work is proportional."""
    pixels = math.prod(state.shapes[node.output][2:])
    if node.op == "Product":
        return pixels * state.shapes[node.input(0)][1] * state.shapes[node.output][1]
    return max(pixels * int(np.count_nonzero(state.constants[node.input(1)])), 1)


def _output(state: Rewrite, port: GraphPort) -> GraphPort:
    """Return an output port; outputs lie in whole tensors of their own, and ``order`` says where elements lie."""
    if port.tensor not in state.held:
        raise refuse(f"output {port.name!r}", "a constant", "a tensor computed from the inputs", "remove it")
    held = state.held[port.tensor]
    node = Node(f"{port.name}/output", "Identity", (port.tensor,), (f"{port.tensor}/output",), {}, "Identity")
    if held.where is not None and (held.where == FILL).any():
        maker = next((entry.name for entry in state.graph.nodes if port.tensor in entry.outputs), node.name)
        state.hold(port.tensor, exact(state, node.replace(name=maker), port.tensor))  # a refusal names the model's node
        held = state.held[port.tensor]
    tensor = held.tensor
    made = state.maker(tensor)
    if made is None or made.op == "View" or tensor in state.parts:
        tensor = state.copied(node, tensor)
        state.held[port.tensor] = held._replace(tensor=tensor)
    state.fixed.add(tensor)
    order = as_order(state.index(port.tensor), math.prod(state.shapes[tensor]))
    return dataclasses.replace(port, tensor=tensor, order=order)
