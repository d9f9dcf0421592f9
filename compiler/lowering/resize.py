# SPDX-License-Identifier: Apache-2.0
"""Lower Resize and Upsample. The operator itself, run on single bright rows and columns, tells what each pixel sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.errors import reason
from weft.compiler.frontend.graph import Node, Shape
from weft.compiler.frontend.onnx_writer import IR_VERSION, node_to_onnx
from weft.compiler.lowering.arithmetic import constant_image
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.pool import weighted
from weft.compiler.lowering.rewrite import Rewrite
from weft.tmodel.onnx_engine import session

MOST_STEPS = 1 << 29
"""The most pixels of all test images and results on which the operator runs: some seconds."""


def resize(state: Rewrite, node: Node) -> None:
    """Lower Resize and Upsample over height and width: nearest, linear, cubic, every coordinate mode."""
    shape, wanted = state.graph.shapes[node.input(0)], state.graph.shapes[node.output]
    if len(shape) != 4 or shape[:2] != wanted[:2]:
        raise state.refusal(node, "shapes", f"{list(shape)} to {list(wanted)}",
                            "4 dimensions, of which height and width change")
    _need_clear_scale(state, node, shape, wanted)
    value, attributes = node.attributes.get("extrapolation_value", 0.0), {**node.attributes}
    attributes.pop("extrapolation_value", None)
    rows, columns = (_response(state, node.replace(attributes=attributes), axis, wanted) for axis in (2, 3))
    source = exact(state, node, node.input(0))
    factors = _repeats(rows), _repeats(columns)
    if factors[0] and factors[1]:
        state.hold(node.output, state.enlarge(node, source, factors) if factors != (1, 1) else source)
        return
    state.need_matrix(node, shape[0] * len(rows), shape[0] * shape[2])
    rows = np.kron(np.eye(shape[0]), rows)
    made = weighted(state, node, source, rows, columns)
    outside = np.logical_or.outer(~rows.any(1), ~columns.any(1))  # they see no pixel of the image
    if value and outside.any():
        fill = constant_image(state, node, np.tile(value * outside, (shape[1], 1, 1)), made)
        made = state.add(node, made, fill)
    state.hold(node.output, made)


def _repeats(matrix: np.ndarray) -> int:
    """Return how often a matrix [outputs, inputs] repeats every input in a row; 0 if it does anything else."""
    outputs, inputs = matrix.shape
    factor = outputs // inputs
    repeated = np.repeat(np.eye(inputs), factor, axis=0)
    return factor if repeated.shape == matrix.shape and np.allclose(repeated, matrix, atol=1e-9) else 0


def _need_clear_scale(state: Rewrite, node: Node, shape: Sequence[int], wanted: Sequence[int]) -> None:
    """Raise CompileError for scales whose meaning differs between ONNX and onnxruntime, or that move channels.

    A scale near 1 of batch or channels keeps their number and would still move them. The two differ with align_corners
    and a size that the scale does not give exactly."""
    aligned = node.attributes.get("coordinate_transformation_mode") == "align_corners"
    scales = state.constant(node.input(2)) if node.input(2) else np.ones(0)
    if scales.size == 4 and (scales[:2] != 1).any():
        raise state.refusal(node, "scales", scales.tolist(), "1 for batch and channels")
    if not aligned or scales.size != 4:
        return
    for axis in (2, 3):
        if abs(shape[axis] * float(scales[axis]) - wanted[axis]) > 1e-3:
            raise state.refusal(node, "scales with align_corners", scales.tolist(),
                                f"scales that give whole sizes from {list(shape)}")


def _response(state: Rewrite, node: Node, axis: int, wanted: Shape) -> np.ndarray:
    """Return [outputs, inputs] of one axis: the operator run on images with one bright row (column) each.

    Of each result one line across is used, the one that is brightest if the whole image is bright."""
    size = state.graph.shapes[node.input(0)][2:]
    count = size[axis - 2]
    if count * (math.prod(size) + math.prod(wanted[2:])) > MOST_STEPS:
        raise state.refusal(node, "sizes", f"{list(size)} to {list(wanted[2:])}",
                            f"at most {MOST_STEPS} pixels of all images of one bright line")
    run = _resizer(state, node, size)

    def lines(image: np.ndarray) -> np.ndarray:
        """Return the image resized, as [outputs along the axis, outputs across it]."""
        made = run(image if axis == 2 else image.T)
        return made if axis == 2 else made.T

    image = np.ones(size if axis == 2 else size[::-1], np.float32)
    brightest = int(np.abs(lines(image)).sum(0).argmax())
    found = []
    for number in range(count):
        image[:] = 0
        image[number] = 1
        found.append(lines(image)[:, brightest])
    return np.stack(found, 1).astype(np.float64)


def _resizer(state: Rewrite, node: Node, size: Sequence[int]) -> Callable[[np.ndarray], np.ndarray]:
    """Return the operator as a function of an image [height, width] of ``size``."""
    weights = []
    for number, name in enumerate(node.inputs[1:], 1):
        if not name:
            continue
        value = state.constant(name)
        if node.op == "Resize" and number == 3 and "axes" not in node.attributes and value.size == 4:
            value = np.array([1, 1, *value[2:]], value.dtype)
        weights.append(numpy_helper.from_array(value, name))
    declared = [helper.make_tensor_value_info(node.input(0), TensorProto.FLOAT, [1, 1, *size])]
    outputs = [onnx.ValueInfoProto(name=node.output)]
    graph = helper.make_graph([node_to_onnx(node)], "resize", declared, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", state.graph.opset)], ir_version=IR_VERSION)
    try:
        engine = session(onnx.shape_inference.infer_shapes(model))
        engine.run(None, {node.input(0): np.zeros((1, 1, *size), np.float32)})
    except Exception as error:
        raise state.refusal(node, "attributes", reason(error), "what onnxruntime computes") from None
    return lambda image: np.asarray(engine.run(None, {node.input(0): image[None, None]})[0])[0, 0]
