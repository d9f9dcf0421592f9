# SPDX-License-Identifier: Apache-2.0
"""Pass: store each input of the network in the order that the first operator that computes needs.

The host packs the inputs, so that any order is free. What an operator wants is known at once if it has an order of
its own, as a convolution or the product with a constant matrix. Others take what they are given: then an input has
no place until the operator's turn comes, when it is known how the other operands lie."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from weft.compiler.frontend.graph import GraphPort, Node, Shape
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.indices.index import FILL, SMALL_ENOUGH, as_order, default_index, default_place, run_on_indices
from weft.compiler.lowering.axes import Axes, common_axes, default_axes, last_axis
from weft.compiler.lowering.operators import ROWS
from weft.compiler.lowering.rewrite import Rewrite

ROW_NORMS = ("LayerNormalization", "RMSNormalization")
RECURRENT = ("GRU", "LSTM", "RNN")
SEVERAL = ("Add", "Concat", "Div", "Max", "Mean", "Min", "Mul", "Sub", "Sum")
"""The operators of several tensors, each of which lies as the others do."""


def hold_input(state: Rewrite, port: GraphPort, consumers: Mapping[str, Sequence[Node]],
               ends: frozenset[str]) -> None:
    """Hold an input as the first operator that computes wants it.

    So TensorFlow's channels, the last axis of the user's array, lie as channels. ``ends``: the graph's outputs."""
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
    if readers and all(_takes_any_order(state, reader) for reader in readers):
        state.shapes[port.tensor] = 1, 1, 1, math.prod(port.shape)
        state.hold(port.tensor, port.tensor, np.arange(math.prod(port.shape)).reshape(port.shape))
        state.unplaced.add(port.tensor)
        return
    if len(shape) > 2 and any(_reads_matrix(state, node, name) for node in readers):
        shape = math.prod(shape[:-1]), shape[-1]
    position = np.empty(port.shape, np.int64)
    position.ravel()[elements.ravel()] = default_index(shape).ravel()
    _place(state, port.tensor, position, default_place(shape))


def _reads_matrix(state: Rewrite, node: Node, name: str) -> bool:
    """Return whether a node wants the last axis of a tensor as channels.

    Products of matrices do, but for the right operand of a product whose left one is constant."""
    return node.op == "MatMul" and (node.input(0) == name or not state.is_constant(node.input(0)))


def _takes_any_order(state: Rewrite, node: Node) -> bool:
    """Return whether an operator takes its input as it is given."""
    row = ROWS[node.op]
    return row.elementwise or row.moves or row.scales or node.op in (*ROW_NORMS, *RECURRENT, *SEVERAL) or (
        node.op == "MatMul" and not any(map(state.is_constant, node.inputs)))


def _place(state: Rewrite, tensor: str, position: np.ndarray, place: Shape) -> None:
    """Lay an input out as the canonical shape ``place``.

    ``position``: the place of each of the user's elements in it."""
    state.unplaced.discard(tensor)
    state.shapes[tensor] = place
    state.fixed.add(tensor)
    state.orders[tensor] = as_order(position, position.size)
    plain = place == default_place(position.shape) and np.array_equal(position, default_index(position.shape))
    flat = position.ravel()
    for name, held in state.held.items():
        if held.tensor == tensor:
            index = state.index(name)
            state.held[name] = held._replace(where=np.where(index == FILL, FILL, flat[index]))
    state.hold(tensor, tensor, None if plain else position)


# -- inputs that wait for their first reader ---------------------------------------------------------------------------
def place_operands(state: Rewrite, node: Node) -> None:
    """Lay out those inputs that a node reads and that have no place yet, unless it only moves elements."""
    if not state.unplaced or ROWS[node.op].moves:
        return
    for number, name in enumerate(node.inputs):
        if name in state.held and state.held[name].tensor in state.unplaced:
            _place_as(state, name, _wanted(state, node, number))


def place_rest(state: Rewrite) -> None:
    """Lay out the inputs that nobody reads but to move them."""
    for tensor in sorted(state.unplaced):
        _place_as(state, tensor, default_axes(len(state.graph.shapes[tensor])))


def _wanted(state: Rewrite, node: Node, number: int) -> Axes:
    """Return the axes as a node wants its input ``number`` to lie."""
    shape = state.graph.shapes[node.input(number)]
    rank = len(shape)
    if node.op in RECURRENT or node.op in ROW_NORMS or _reads_matrix(state, node, node.input(number)):
        return last_axis(rank)
    placed = [name for name in node.inputs if name in state.held and state.held[name].tensor not in state.unplaced]
    if node.op in SEVERAL and placed:
        result = state.graph.shapes[node.output]
        axes = common_axes(state, placed, result)
        before = len(result) - rank
        return Axes(*(tuple(axis - before for axis in kind if axis >= before) for kind in axes))
    readers = state.graph.consumers().get(node.output, [])
    if readers and state.graph.shapes[node.output] == shape and not ROWS[readers[0].op].moves:
        return _wanted(state, readers[0], readers[0].inputs.index(node.output))
    return default_axes(rank)


def _place_as(state: Rewrite, name: str, axes: Axes) -> None:
    """Lay out the input that ``name`` holds, or a part of it, so that ``name`` lies with ``axes``.

    If ``name`` holds only a part, an axis of the input of which no or one kind of axes changes in ``name`` is of
    that kind."""
    tensor, index = state.held[name].tensor, state.index(name)
    own = state.graph.shapes[tensor]
    if index.size == math.prod(own) and np.array_equal(np.sort(index.ravel()), np.arange(index.size)):
        places, shape = axes, index.shape
    else:
        index, shape = np.arange(math.prod(own)).reshape(own), own
        places = _own_axes(state.index(name), axes, own)
    position = np.empty(own, np.int64)
    if places == default_axes(len(shape)):
        position.ravel()[index.ravel()] = default_index(shape).ravel()
        _place(state, tensor, position, default_place(shape))
    else:
        position.ravel()[index.ravel()] = places.places(shape).ravel()
        _place(state, tensor, position, (*places.turned(shape), 1))


def _own_axes(index: np.ndarray, axes: Axes, shape: Shape) -> Axes:
    """Return the axes for a whole input of ``shape`` such that its elements ``index`` are stored with ``axes``.

    These are the default axes if no choice stores them so."""
    channels = []
    for axis, numbers in enumerate(np.unravel_index(np.maximum(index, 0), shape)):
        changes = [[bool((numbers != numbers.take([0], entry)).any()) for entry in kind] for kind in axes]
        if any(changes[0]) and any(changes[1]):
            return default_axes(len(shape))
        if any(changes[0]):
            channels.append(axis)
    return Axes(tuple(channels), tuple(axis for axis in range(len(shape)) if axis not in channels))


def placed_port(state: Rewrite, port: GraphPort) -> GraphPort:
    """Return the port with the order in which its elements lie."""
    return dataclasses.replace(port, order=state.orders[port.tensor])
