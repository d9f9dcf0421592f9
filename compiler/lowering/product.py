# SPDX-License-Identifier: Apache-2.0
"""Lower products of two computed matrices.

The array needs the rows of both factors as pixels and their columns as channels. Then the second factor lies as weights
do (``Product`` in ``rewrite.py``)."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.index import FILL
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.move import concat, lie
from weft.compiler.lowering.rewrite import Rewrite
from weft.compiler.lowering.row_product import row_product


def products(state: Rewrite, node: Node) -> None:
    """Lower MatMul of two tensors: vectors, matrices, or stacks with one product for each matrix."""
    for name in node.inputs:
        if (state.index(name) == FILL).any():
            state.hold(name, exact(state, node, name))
    stacks = [_stack(state, node, number) for number in range(2)]
    if row_product(state, node, *stacks):
        return
    node, left, right = _straightened(state, node, stacks)
    if right.ndim == 2:
        left = left.reshape(-1, left.shape[-1])
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    pairs = zip(_matrices(state, node, 0, left, batch), _matrices(state, node, 1, right, batch), strict=True)
    size = left.shape[-2], right.shape[-1]
    names = []
    for number, (first, second) in enumerate(pairs):
        names.append(f"{node.output}/product{number}")
        state.declare(names[-1], size)
        product(state, node.replace(inputs=(first, second), outputs=(names[-1],)))
    joined = names[0]
    if len(names) > 1:
        joined = f"{node.output}/products"
        state.declare(joined, (len(names) * size[0], size[1]))
        concat(state, node.replace(op="Concat", inputs=tuple(names), outputs=(joined,), attributes={"axis": 0}))
    shape = state.graph.shapes[node.output]
    same = state.graph.shapes[joined] == shape and state.held[joined].where is None
    state.hold(node.output, state.held[joined].tensor, None if same else state.index(joined).reshape(shape))


def _stack(state: Rewrite, node: Node, number: int) -> np.ndarray:
    """Return the index array of an input, with a vector as a matrix: a row on the left, a column on the right."""
    index = state.index(node.input(number))
    return index if index.ndim > 1 else index[None, :] if number == 0 else index[:, None]


def _straightened(state: Rewrite, node: Node, stacks: list[np.ndarray]) -> tuple[Node, np.ndarray, np.ndarray]:
    """Return the node and both index arrays, with a single crossed stack (see ``_is_crossed``) turned as a whole.

    Turning it as a whole costs less than one matrix after the other."""
    flat = [stack.reshape(-1, stack.shape[-1]) for stack in stacks]
    crossed = [_is_crossed(state, name, index) for name, index in zip(node.inputs, flat, strict=True)]
    if sum(crossed) == 1:
        number = crossed.index(True)
        name = f"{node.output}/factor{number}"
        lie(state, name, node.input(number), flat[number])
        state.hold(name, exact(state, node, name))
        stacks[number] = state.index(name).reshape(stacks[number].shape)
        node = node.replace(inputs=tuple(name if place == number else entry
                                         for place, entry in enumerate(node.inputs)))
    return node, stacks[0], stacks[1]


def _matrices(state: Rewrite, node: Node, number: int, stack: np.ndarray, batch: tuple[int, ...]) -> list[str]:
    """Return the names of tensors, one for each matrix of a stack, broadcast to the shape ``batch`` of stacks.

    ``stack`` [..., rows, columns] has the indices of the elements in input ``number`` of the node."""
    matrices = stack.reshape(-1, *stack.shape[-2:])
    names = [f"{node.output}/factor{number}.{place}" for place in range(len(matrices))]
    for name, index in zip(names, matrices, strict=True):
        lie(state, name, node.input(number), index)
    places = np.broadcast_to(np.arange(len(names)).reshape(stack.shape[:-2]), batch)
    return [names[place] for place in places.ravel()]


def product(state: Rewrite, node: Node) -> None:
    """Lower the product of inputs [rows, inner] and [inner, columns].

    If both lie with rows as channels, as tensors of three dimensions do, it is the transposed product of their
    transposed."""
    left, right = node.inputs
    if all(_is_crossed(state, name, state.index(name)) for name in node.inputs):
        names = tuple(f"{name}/transposed" for name in (right, left))
        for name, source in zip(names, (right, left), strict=True):
            lie(state, name, source, state.index(source).T)
        flipped = f"{node.output}/transposed"
        state.declare(flipped, state.graph.shapes[node.output][::-1])
        product(state, node.replace(inputs=names, outputs=(flipped,)))
        state.hold(node.output, state.held[flipped].tensor, state.index(flipped).T)
        return
    source, weights = exact(state, node, left), _dense(state, node, exact(state, node, right))
    shape = (1, state.shapes[weights][1], *state.shapes[source][2:])
    state.hold(node.output, state.emit(node, "Product", (source, weights), {}, shape))


def _is_crossed(state: Rewrite, name: str, index: np.ndarray) -> bool:
    """Tell whether a matrix, whose elements lie at ``index``, lies only with rows as channels and columns as pixels."""
    _, _, height, width = state.shapes[state.held[name].tensor]
    channel, pixel = np.divmod(index, height * width)
    straight = (channel == channel[:1]).all() and (pixel == pixel[:, :1]).all()
    return bool(not straight and (channel == channel[:, :1]).all() and (pixel == pixel[:1]).all())


def _dense(state: Rewrite, node: Node, tensor: str) -> str:
    """Return a matrix whose pixels lie contiguously, as the array's weights must; copy it if needed."""
    whole, pixels = tensor, np.arange(state.shapes[tensor][2])
    while (made := state.maker(whole)) is not None and made.op == "View":
        rows, columns = np.divmod(pixels, state.shapes[whole][3])
        view = made.attributes
        pixels = view["offset"] + rows * view["pitch"] + columns * view["step"]
        whole = made.input(0)
    if whole in state.parts or (np.diff(pixels) != 1).any():
        tensor = state.scale(node, tensor, 1.0, part="copy")
    state.fixed.add(tensor)
    return tensor
