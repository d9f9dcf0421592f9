# SPDX-License-Identifier: Apache-2.0
"""Infer the shapes of a network whose file leaves sizes open, operator by operator, as an interpreter does.

Most shapes follow from the nodes that an operator becomes. Conversions that need the shape of their result beforehand
get it from the rules here."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.onnx_writer import TOLD
from weft.compiler.frontend.tflite.operation import Operation
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES, Value
from weft.compiler.frontend.tflite.writer import OPSET, Writer

WAY_OUT = "convert the network again with fixed shapes"
Shape = tuple[int, ...]


def _reshaped(op: Operation) -> Shape:
    """Return the shape of a RESHAPE: what it is told, with at most one size open."""
    if op.has(1) and op.input(1).constant is not None:
        told = op.integers(1)
    else:
        told = list(op.outputs[0].tensor.signature or op.made)
    count = math.prod(op.shape(0))
    if told.count(-1) == 1:
        others = -math.prod(told)
        told[told.index(-1)] = count // others if others else 0
    if -1 in told or math.prod(told) != count:
        raise op.refusal("shape", f"{told} for {list(op.shape(0))}", "as many numbers, at most one size open", WAY_OUT)
    return tuple(told)


def _expanded(op: Operation) -> Shape:
    """Return the shape of an EXPAND_DIMS."""
    shape = op.shape(0)
    axis, = op.integers(1)
    axis = op.axis(axis, len(shape) + 1)
    return (*shape[:axis], 1, *shape[axis:])


def _squeezed(op: Operation) -> Shape:
    """Return the shape of a SQUEEZE: it drops the axes that it is told, or all of one number."""
    shape = op.shape(0)
    told = np.atleast_1d(op.option("SqueezeDimsAsNumpy")).tolist() if op.option("SqueezeDimsLength") else [
        axis for axis, size in enumerate(shape) if size == 1]
    dropped = {op.axis(axis, len(shape)) for axis in told}
    return tuple(size for axis, size in enumerate(shape) if axis not in dropped)


def _packed(op: Operation) -> Shape:
    """Return the shape of a PACK."""
    shape = op.shape(0)
    axis = op.axis(op.option("Axis"), len(shape) + 1)
    return (*shape[:axis], len(op.operator.inputs), *shape[axis:])


def _unpacked(op: Operation) -> Shape:
    """Return the shape of each result of an UNPACK."""
    axis = op.axis(op.option("Axis"), len(op.shape(0)))
    return op.shape(0)[:axis] + op.shape(0)[axis + 1:]


def _connected(op: Operation) -> Shape:
    """Return the shape of a FULLY_CONNECTED; one of two axes has a row for each of the filter's inputs."""
    outputs, inputs = op.shape(1, 2)
    rows = math.prod(op.shape(0)) // max(inputs, 1)
    return (rows, outputs) if len(op.made) == 2 else (*op.shape(0)[:-1], outputs)


def _sliced(op: Operation) -> Shape:
    """Return the shape of a SLICE."""
    pairs = zip(op.integers(1), op.integers(2), op.shape(0), strict=False)
    return tuple(whole - begin if size == -1 else size for begin, size, whole in pairs)


def _resized(op: Operation) -> Shape:
    """Return the shape of a RESIZE_BILINEAR or RESIZE_NEAREST_NEIGHBOR."""
    batch, _, _, channels = op.shape(0, 4)
    height, width = op.integers(1)
    return batch, height, width, channels


def _told(index: int) -> Callable[[Operation], Shape]:
    """Return the rule that the result has the shape in input ``index``, a constant."""
    return lambda op: tuple(op.integers(index))


def _same(op: Operation) -> Shape:
    """Return the shape of the first input."""
    return op.shape(0)


RULES: dict[str, Callable[[Operation], Shape]] = {
    "BROADCAST_TO": _told(1), "EXPAND_DIMS": _expanded, "FILL": _told(0), "FULLY_CONNECTED": _connected,
    "PACK": _packed, "RESHAPE": _reshaped, "RESIZE_BILINEAR": _resized, "RESIZE_NEAREST_NEIGHBOR": _resized,
    "SLICE": _sliced, "SQUEEZE": _squeezed, "TRANSPOSE_CONV": _told(0), "UNPACK": _unpacked, "ZEROS_LIKE": _same}
"""Operators whose conversion reads the shape of the result -> the rule that gives it."""

UNRULED = frozenset({"Convolution2DTransposeBias", "SPACE_TO_BATCH_ND", "STRIDED_SLICE"})
"""Operators whose conversion reads the shape of the result, which must not be open."""


class OpenShapes:
    """The shapes of a network of open sizes while ``writer`` gets its operators, one after the other."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.known = {each.name: each for each in writer.inputs}
        self.done = 0

    @property
    def larger(self) -> str:
        """The advice to give other sizes, as words of a message."""
        return f"give other sizes of {', '.join(each.name for each in self.writer.inputs)} with --shape"

    def before(self, op: Operation) -> None:
        """Set the shapes of an operator's results as far as its conversion needs them."""
        code = op.operator.code
        if code in UNRULED and any(-1 in value.tensor.signature for value in op.outputs):
            raise op.refusal("shape of the result", list(op.outputs[0].tensor.signature),
                             "fixed sizes, for this operator", f"{WAY_OUT}, or {op.way_out}")
        if code in RULES:
            shape = RULES[code](op)
            for value in op.outputs:
                value.shape = shape

    def after(self, op: Operation) -> None:
        """Infer the shapes of an operator's results from the nodes that it became."""
        nodes = self.writer.nodes[self.done:]
        self.done = len(self.writer.nodes)
        made = {name for node in nodes for name in node.output}
        read = dict.fromkeys(name for node in nodes for name in node.input if name and name not in made)
        constants = {name: self.writer.constants[name] for name in read if name in self.writer.constants}
        inputs = [self.known.get(name) or helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(constants[name].dtype), constants[name].shape)
            for name in read if name not in constants or constants[name].size > TOLD]
        small = [numpy_helper.from_array(value, name) for name, value in constants.items() if value.size <= TOLD]
        graph = helper.make_graph(nodes, "operator", inputs, [], small)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        try:
            found = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True).graph.value_info
        except Exception as error:  # of no common type
            raise op.refusal("shapes", reason(error), "sizes of the inputs that fit this operator",
                             self.larger) from None
        self.known |= {each.name: each for each in found}
        for value in op.outputs:
            self._take(value)

    def _take(self, value: Value) -> None:
        """Set the shape of a tensor that was made. Raise CompileError if it is unknown."""
        if value.constant is not None or value.variable:
            return
        layout, name = next((layout, names[layout]) for names in (value.bytes, value.real) for layout in (FILE, PLANES)
                            if layout in names)
        dims = self.known[name].type.tensor_type.shape.dim if name in self.known else []
        sizes = [each.dim_value for each in dims]
        if name not in self.known or not all(each.HasField("dim_value") for each in dims):
            raise refuse(f"shape of tensor {value.name!r}", "unknown", "fixed sizes", WAY_OUT)
        if min(sizes, default=1) < 1:
            raise refuse(f"shape of tensor {value.name!r}", sizes, "sizes of at least 1", self.larger)
        value.shape = tuple(sizes if layout == FILE else (sizes[axis] for axis in ORDER[FILE]))


def fits(told: Sequence[int], signature: Sequence[int]) -> bool:
    """Tell whether the sizes ``told`` are those of ``signature``, in which -1 is open."""
    return len(told) == len(signature) and all(size == there or (there == -1 and size > 0)
                                               for size, there in zip(told, signature, strict=True))
