# SPDX-License-Identifier: Apache-2.0
"""Lower products of matrices with a constant matrix, and the rest of Gemm and MatMul."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.indices.index import FILL, in_memory_order
from weft.compiler.lowering.arithmetic import add, constant_image, mul
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.move import concat, lie
from weft.compiler.lowering.product import products
from weft.compiler.lowering.rewrite import Rewrite


def _matrix(state: Rewrite, node: Node, matrix: np.ndarray, bias: np.ndarray) -> None:
    """Lower rows times ``matrix`` (inputs x outputs), plus ``bias``.

    For one row the kernel is the image that the row was before. For more rows each row is a pixel, or a window of
    pixels."""
    shape = state.graph.shapes[node.input(0)]
    if len(shape) == 2 and shape[0] == 1:
        held = state.held[node.input(0)]
        _, *memory = state.shapes[held.tensor]
        features = state.index(node.input(0)).reshape(-1)
        if (features >= 0).all():
            weights = state.weights(node, (matrix.shape[1], int(np.prod(memory))), matrix.size)
            np.add.at(weights.T, features, matrix)
            made = state.conv(node, held.tensor, weights.reshape(-1, *memory), bias, (1, 1))
            state.hold(node.output, made)
            return
    if _windows_times(state, node, matrix, bias):
        return
    source = exact(state, node, node.input(0))
    _, channels, height, width = state.shapes[source]
    made = state.conv(node, source, matrix.T.reshape(-1, channels, 1, 1), bias, (height, width))
    state.hold(node.output, made)


def _windows_times(state: Rewrite, node: Node, matrix: np.ndarray, bias: np.ndarray) -> bool:
    """Lower rows whose elements lie over several pixels each; return whether they were lowered.

    If all rows lie alike and evenly one behind the other, they are the windows of a convolution."""
    index = state.index(node.input(0))
    tensor = state.held[node.input(0)].tensor
    _, count, height, width = state.shapes[tensor]
    channels, pixels = np.divmod(index, height * width)
    first, offsets = pixels.min(1), pixels[0] - pixels[0].min()
    size, pitches = int(offsets.max()) + 1, np.diff(first)
    alike = (channels == channels[:1]).all() and (pixels == first[:, None] + offsets).all()
    if size == 1 or not alike or (index == FILL).any():
        return False
    if not len(pitches) or pitches.min() < size or pitches.min() != pitches.max():
        return False
    weights = state.weights(node, (matrix.shape[1], count, 1, size), matrix.size)
    np.add.at(weights[:, :, 0].transpose(1, 2, 0), (channels[0], offsets), matrix)
    image = state.view(node, tensor, (len(first), size), int(first[0]), int(pitches[0]), 1)
    state.hold(node.output, state.conv(node, image, weights, bias, (len(first), 1)))
    return True


def gemm(state: Rewrite, node: Node) -> None:
    """Lower Gemm with alpha, beta, transA, transB and a bias of any shape; matrices and bias may be computed."""
    if not all(state.is_constant(name) for name in node.inputs[1:] if name):
        _gemm_in_steps(state, node)
        return
    matrix = state.constant(node.input(1)).astype(np.float64) * node.attributes.get("alpha", 1.0)
    matrix = matrix.T if node.attributes.get("transB", 0) else matrix
    rows = np.zeros(state.graph.shapes[node.output])
    if node.input(2):
        rows = rows + state.constant(node.input(2)) * node.attributes.get("beta", 1.0)
    alike = bool((rows == rows[:1]).all())
    node = node.replace(inputs=(_transposed(state, node, 0, "transA"), *node.inputs[1:]))
    _matrix(state, node, matrix, rows[0] if alike else np.zeros(matrix.shape[1]))
    if not alike:
        made = exact(state, node, node.output)
        state.hold(node.output, state.add(node, constant_image(state, node, in_memory_order(rows), made), made))


def _gemm_in_steps(state: Rewrite, node: Node) -> None:
    """Lower a Gemm with computed inputs: the product, then alpha, beta and the sum."""
    made, added = f"{node.output}/product", node.input(2)
    factors = _transposed(state, node, 0, "transA"), _transposed(state, node, 1, "transB")
    state.declare(made, state.graph.shapes[node.output])
    if all(map(state.is_constant, factors)):
        state.know(made, np.matmul(*map(state.constant, factors)))
    else:
        mat_mul(state, node.replace(inputs=factors, outputs=(made,)))
    made = _times(state, node, made, "alpha")
    if added:
        add(state, node.replace(op="Add", inputs=(made, _times(state, node, added, "beta"))))
    else:
        state.held[node.output] = state.held[made]


def _transposed(state: Rewrite, node: Node, number: int, attribute: str) -> str:
    """Return the factor ``number``, transposed if the attribute says so."""
    source = node.input(number)
    if not node.attributes.get(attribute, 0):
        return source
    name = f"{node.output}/transposed{number}"
    if state.is_constant(source):
        state.know(name, state.constant(source).T)
    else:
        lie(state, name, source, state.index(source).T)
    return name


def _times(state: Rewrite, node: Node, source: str, attribute: str) -> str:
    """Return a tensor or constant times the number in the attribute ``attribute``."""
    factor, name = node.attributes.get(attribute, 1.0), f"{node.output}/{attribute}"
    if factor == 1:
        return source
    if state.is_constant(source):
        state.know(name, state.constant(source) * factor)
        return name
    state.know(f"{name}/number", np.array(factor))
    state.declare(name, state.shape(source))
    mul(state, node.replace(op="Mul", inputs=(source, f"{name}/number"), outputs=(name,)))
    return name


def mat_mul(state: Rewrite, node: Node) -> None:
    """Lower MatMul.

    A constant on the right may be a vector, a matrix, or a stack with one matrix for each matrix of the tensor. With a
    constant on the left it is the transposed product. Two tensors go to ``lowering/product.py``."""
    if not state.is_constant(node.input(1)):
        (_constant_times if state.is_constant(node.input(0)) else products)(state, node)
        return
    constant = state.constant(node.input(1)).astype(np.float64)
    shape, vector = state.graph.shapes[node.output], state.index(node.input(0)).ndim == 1
    constant = constant[:, None] if constant.ndim == 1 else constant
    index = state.index(node.input(0))
    index = index[None] if vector else index
    if constant.ndim == 2:
        state.hold(node.output, *_rows_times(state, node, index.reshape(-1, len(constant)), constant, shape))
        return
    batch = np.broadcast_shapes(index.shape[:-2], constant.shape[:-2])
    matrices = np.broadcast_to(constant, (*batch, *constant.shape[-2:])).reshape(-1, *constant.shape[-2:])
    rows = np.broadcast_to(index, (*batch, *index.shape[-2:])).reshape(-1, *index.shape[-2:])
    names = []
    for number, (own, matrix) in enumerate(zip(rows, matrices, strict=True)):
        names.append(f"{node.output}/product{number}")
        state.declare(names[-1], (len(own), matrix.shape[1]))
        part = node.replace(outputs=(names[-1],))
        state.hold(names[-1], *_rows_times(state, part, own, matrix, (len(own), matrix.shape[1])))
    joined = f"{node.output}/products"
    state.declare(joined, (rows.shape[0] * rows.shape[1], matrices.shape[2]))
    concat(state, node.replace(op="Concat", inputs=tuple(names), outputs=(joined,), attributes={"axis": 0}))
    state.hold(node.output, state.held[joined].tensor, state.index(joined).reshape(shape))


def _constant_times(state: Rewrite, node: Node) -> None:
    """Lower a MatMul with a constant on its left side, as a transposed product."""
    constant, index = state.constant(node.input(0)), state.index(node.input(1))
    constant = constant if constant.ndim > 1 else constant[None]
    index = index if index.ndim > 1 else index[:, None]
    batch = np.broadcast_shapes(constant.shape[:-2], index.shape[:-2])
    names = [f"{node.output}/{part}" for part in ("factor", "constant", "transposed")]
    lie(state, names[0], node.input(1), np.swapaxes(index, -1, -2))
    state.know(names[1], np.swapaxes(constant, -1, -2))
    state.declare(names[2], (*batch, index.shape[-1], constant.shape[-2]))
    mat_mul(state, node.replace(inputs=tuple(names[:2]), outputs=(names[2],)))
    made = np.swapaxes(state.index(names[2]), -1, -2)
    state.hold(node.output, state.held[names[2]].tensor, made.reshape(state.graph.shapes[node.output]))


def _rows_times(state: Rewrite, node: Node, rows: np.ndarray, matrix: np.ndarray,
                shape: Shape) -> tuple[str, np.ndarray | None]:
    """Lower rows, given by their places in input 0, times a matrix; return the tensor and index array of ``shape``."""
    names = (f"{node.output}/rows", f"{node.output}/result")
    state.declare(names[0], rows.shape)
    state.declare(names[1], (len(rows), matrix.shape[1]))
    held = state.held[node.input(0)]
    plain = held.where is None and state.graph.shapes[node.input(0)] == rows.shape
    state.hold(names[0], held.tensor, None if plain else rows, held.fill)
    _matrix(state, node.replace(inputs=names[:1], outputs=names[1:]), matrix, np.zeros(matrix.shape[1]))
    same = shape == state.graph.shapes[names[1]]
    return state.held[names[1]].tensor, None if same else state.index(names[1]).reshape(shape)
