# SPDX-License-Identifier: Apache-2.0
"""The product of a computed row with a computed matrix: element by element, and summed.

An array loads a matrix as weights to multiply one row with it, and needs it in the order of weights for that. The SIMD
unit multiplies as many numbers in about the same time, wherever they lie. So heads of keys and values lie beside each
other, and each token is a pixel, as a cache keeps them. Sums over channels or pixels are convolutions.
"""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.lowering.arithmetic import mul
from weft.compiler.lowering.groups import groups, total
from weft.compiler.lowering.move import lie
from weft.compiler.lowering.rewrite import NO_WINDOW, Rewrite


def row_product(state: Rewrite, node: Node, left: np.ndarray, right: np.ndarray) -> bool:
    """Lower the product of stacks of matrices of which one is a row, or a column; return whether it was lowered.

    The elements lie at ``left`` [..., rows, inner] and ``right`` [..., inner, columns]. If they lie as the array
    takes them, or neither is a row or column, nothing is done."""
    if state.in_bytes or min(left.shape[-2], right.shape[-1]) > 1:
        return False
    if _straight(state, node.input(0), left) and _straight(state, node.input(1), right):
        return False
    if left.shape[-2] == 1:
        row, matrix = (node.input(0), np.swapaxes(left, -1, -2)), (node.input(1), right)
    else:
        row, matrix = (node.input(1), right), (node.input(0), np.swapaxes(left, -1, -2))
    names = [f"{node.output}/row", f"{node.output}/matrix"]
    factor = 1.0
    for name, (source, index) in zip(names, (row, matrix), strict=True):
        lie(state, name, source, index)
        tensor, own = _without_factor(state, state.held[name].tensor)
        state.held[name] = state.held[name]._replace(tensor=tensor)
        factor *= own
    products = f"{node.output}/products"
    shape = np.broadcast_shapes(row[1].shape, matrix[1].shape)
    state.declare(products, shape)
    mul(state, node.replace(inputs=tuple(names), outputs=(products,)))
    of = groups(state, node, products, [len(shape) - 2])
    made = total(state, node, of.tensor, of, factor, "")
    state.nodes[-1] = state.nodes[-1].replace(origin=node.op)
    state.hold(node.output, made, of.result_index(state.graph.shapes[node.output]))
    return True


def _without_factor(state: Rewrite, tensor: str) -> tuple[str, float]:
    """Return (other tensor, number) if a tensor is another one times a number, else (the tensor, 1).

    The weights of the sum take the number."""
    made = state.maker(tensor)
    if made is None or made.op != "Conv" or made.attributes["group"] != state.shapes[tensor][1]:
        return tensor, 1.0
    weights, bias = (state.constants[name] for name in made.inputs[1:])
    plain = all(made.attributes[key] == value for key, value in NO_WINDOW.items()) and weights.shape[1:] == (1, 1, 1)
    if not plain or bias.any() or (weights != weights.flat[0]).any() or tensor in state.parts:
        return tensor, 1.0
    return made.input(0), float(weights.flat[0])


def _straight(state: Rewrite, name: str, index: np.ndarray) -> bool:
    """Return whether rows are pixels and columns are channels in each matrix of a stack."""
    _, _, height, width = state.shapes[state.held[name].tensor]
    channel, pixel = np.divmod(index, height * width)
    return bool((channel == channel[..., :1, :]).all() and (pixel == pixel[..., :1]).all())
