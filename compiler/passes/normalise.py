"""Pass: every operator in one form that the later passes know, every tensor with shape 1 x C x H x W.

Conv(x, w, b) with explicit strides, pads (top, left, bottom, right), dilations and group; Add and Mul of two tensors;
Relu; Clip from 0; LeakyRelu; MaxPool; functions by value table; View and Assemble (``rewrite.py``). The handlers are in
``lower_*.py``, one small function for each operator.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph, Node, Port
from weft.compiler.passes import lower_arithmetic as arithmetic
from weft.compiler.passes import lower_linear as linear
from weft.compiler.passes import lower_move as moves
from weft.compiler.passes import lower_pool as pools
from weft.compiler.passes.index import FILL, default_place
from weft.compiler.passes.rewrite import Rewrite
from weft.compiler.passes.take import exact

OPSET = 20
"""Opset of the normalised graph."""

TABLES = ("Elu", "Exp", "Gelu", "Mish", "Reciprocal", "Selu", "Sigmoid", "Softplus", "Sqrt", "Tanh")
"""Functions that become value tables."""


def normalise(graph: Graph, lanes: int) -> Graph:
    """The graph in canonical form, for an array of ``lanes``."""
    state = Rewrite(graph, lanes)
    for port in graph.inputs:
        state.shapes[port.tensor] = default_place(port.shape)
        state.hold(port.tensor, port.tensor)
        state.fixed.add(port.tensor)
    for node in graph.nodes:
        HANDLERS[node.op](state, node)
    outputs = tuple(_output(state, port) for port in graph.outputs)
    return Graph(graph.name, tuple(state.nodes), graph.inputs, outputs, state.shapes, state.constants, OPSET)


def _output(state: Rewrite, port: Port) -> Port:
    """Outputs lie in whole tensors of their own; where elements lie in another order, ``order`` says it."""
    if port.tensor not in state.held:
        raise refuse(f"output {port.name!r}", "a constant", "a tensor computed from the inputs", "remove it")
    held = state.held[port.tensor]
    node = Node(f"{port.name}/output", "Identity", (port.tensor,), (f"{port.tensor}/output",), {}, "Identity")
    if held.where is not None and (held.where == FILL).any():
        state.hold(port.tensor, exact(state, node, port.tensor))
        held = state.held[port.tensor]
    tensor = held.tensor
    made = next((entry for entry in state.nodes if entry.output == tensor), None)
    given = {entry.tensor for entry in state.graph.inputs}
    if tensor in given | state.parts or (made is not None and made.op == "View"):
        tensor = state.scale(node, tensor, 1.0)
        state.held[port.tensor] = held._replace(tensor=tensor)
    state.fixed.add(tensor)
    index = state.index(port.tensor).ravel()
    plain = np.array_equal(index, np.arange(index.size)) and index.size == np.prod(state.shapes[tensor])
    return Port(port.name, port.shape, tensor, None if plain else tuple(index.tolist()))


HANDLERS: dict[str, Callable[[Rewrite, Node], None]] = {
    "Abs": arithmetic.absolute,
    "Add": arithmetic.add,
    "AveragePool": pools.average_pool,
    "BatchNormalization": linear.batch_normalization,
    "Clip": arithmetic.clip,
    "Concat": moves.concat,
    "Conv": linear.conv,
    "ConvTranspose": linear.conv_transpose,
    "DepthToSpace": moves.move,
    "Div": arithmetic.div,
    "Dropout": moves.dropout,
    "Expand": moves.move,
    "Flatten": moves.move,
    "Gather": moves.move,
    "Gemm": linear.gemm,
    "GlobalAveragePool": pools.reduce_mean,
    "GlobalMaxPool": pools.global_max_pool,
    "HardSigmoid": arithmetic.hard_sigmoid,
    "HardSwish": arithmetic.hard_swish,
    "Identity": moves.alias,
    "LeakyRelu": arithmetic.leaky_relu,
    "MatMul": linear.mat_mul,
    "Max": arithmetic.maximum,
    "MaxPool": pools.max_pool,
    "Mean": arithmetic.mean,
    "Min": arithmetic.minimum,
    "Mul": arithmetic.mul,
    "Neg": arithmetic.negate,
    "PRelu": arithmetic.prelu,
    "Pad": moves.pad,
    "ReduceMax": pools.reduce_max,
    "ReduceMean": pools.reduce_mean,
    "ReduceSum": pools.reduce_sum,
    "Relu": arithmetic.relu,
    "Reshape": moves.move,
    "Resize": pools.resize,
    "Slice": moves.move,
    "SpaceToDepth": moves.move,
    "Split": moves.move,
    "Squeeze": moves.move,
    "Sub": arithmetic.sub,
    "Sum": arithmetic.add,
    "Tile": moves.move,
    "Transpose": moves.move,
    "Unsqueeze": moves.move,
    "Upsample": pools.resize,
    **dict.fromkeys(TABLES, arithmetic.lookup),
}
