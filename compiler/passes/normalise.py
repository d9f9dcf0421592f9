"""Pass: bring every operator into canonical form, every tensor with shape 1 x C x H x W.

Conv(x, w, b) with explicit strides, pads (top, left, bottom, right), dilations and group; Add and Mul of two tensors;
Relu; Clip from 0; LeakyRelu; MaxPool; functions by lookup table; Product, View and Assemble (``rewrite.py``). The row
of an operator in ``operators.py`` says how it is rewritten."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.graph import Graph, GraphPort, Node
from weft.compiler.frontend.macs import macs_of
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.indices.index import (
    FILL,
    SMALL_ENOUGH,
    as_order,
    default_index,
    default_place,
    run_on_indices,
)
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.operators import ROWS
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.passes.align_slices import aligned_channels

OPSET = 20
"""The opset of the normalised graph."""


def normalise(graph: Graph, lanes: int, refused: list[CompileError] | None = None) -> Graph:
    """Return the graph in canonical form, for an array of ``lanes`` lanes.

    Raise CompileError for a node that the machine cannot compute. With ``refused`` such errors are added to that list
    instead, and the node's results are taken as inputs; the graph is then of no use."""
    rounds = any(node.op == FAKE_QUANTIZE for node in graph.nodes)
    state = Rewrite(graph, lanes, rounds, aligned_channels(graph, lanes))
    consumers, ends = graph.consumers(), graph.output_tensors()
    inputs = tuple(_input(state, port, consumers, ends) for port in graph.inputs)
    for node in graph.nodes:
        lower = ROWS[node.op].lower
        assert lower is not None, "refused before"
        first = len(state.nodes)
        try:
            lower(state, node)
            _count(state, node, first)
        except CompileError as error:
            if refused is None or error.node != node.name:
                raise
            refused.append(error)
            for name in filter(None, node.outputs):
                state.take_as_input(name)
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


def _input(state: Rewrite, port: GraphPort, consumers: Mapping[str, Sequence[Node]],
           ends: frozenset[str]) -> GraphPort:
    """Return an input port that lies as the first operator that computes wants it.

    Packing costs nothing, moving elements does. So TensorFlow's channels, the last axis of the user's array, lie as
    channels. ``ends``: the graph's outputs."""
    shape, elements, name = port.shape, np.arange(math.prod(port.shape)).reshape(port.shape), port.tensor
    while True:
        readers = consumers.get(name, [])
        if len(readers) != 1 or name in ends:
            break
        node, name = readers[0], readers[0].output
        scales = ROWS[node.op].scales and state.graph.shapes[name] == shape
        if (scales and sum(map(state.is_constant, node.inputs)) == 1) or node.op == FAKE_QUANTIZE:
            continue
        if not ROWS[node.op].relabels or len(state.graph.shapes[name]) < 3 or elements.size > SMALL_ENOUGH:
            break
        constants = {number: state.constant(entry) for number, entry in enumerate(node.inputs) if number and entry}
        elements, = run_on_indices(node, state.graph.opset, elements, constants, node.attributes)
        shape = state.graph.shapes[name]
    if len(shape) > 2 and any(_reads_matrix(state, node, name) for node in readers):
        shape = math.prod(shape[:-1]), shape[-1]
    index = np.empty(port.shape, np.int64)
    index.ravel()[elements.ravel()] = default_index(shape).ravel()
    state.shapes[port.tensor] = default_place(shape)
    state.hold(port.tensor, port.tensor, None if np.array_equal(index, default_index(port.shape)) else index)
    state.fixed.add(port.tensor)
    return dataclasses.replace(port, order=as_order(index, index.size))


def _reads_matrix(state: Rewrite, node: Node, name: str) -> bool:
    """Tell whether a node wants the last axis of a tensor as channels.

    Products of matrices do, except with a constant on their left side."""
    return node.op == "MatMul" and (node.input(0) == name or not state.is_constant(node.input(0)))


def _output(state: Rewrite, port: GraphPort) -> GraphPort:
    """Return an output port; outputs lie in whole tensors of their own, and ``order`` says where elements lie."""
    if port.tensor not in state.held:
        raise refuse(f"output {port.name!r}", "a constant", "a tensor computed from the inputs", "remove it")
    held = state.held[port.tensor]
    node = Node(f"{port.name}/output", "Identity", (port.tensor,), (f"{port.tensor}/output",), {}, "Identity")
    if held.where is not None and (held.where == FILL).any():
        state.hold(port.tensor, exact(state, node, port.tensor))
        held = state.held[port.tensor]
    tensor = held.tensor
    made = state.maker(tensor)
    if made is None or made.op == "View" or tensor in state.parts:
        tensor = state.copied(node, tensor)
        state.held[port.tensor] = held._replace(tensor=tensor)
    state.fixed.add(tensor)
    order = as_order(state.index(port.tensor), math.prod(state.shapes[tensor]))
    return dataclasses.replace(port, tensor=tensor, order=order)
