# SPDX-License-Identifier: Apache-2.0
"""Constant folding: nodes whose inputs are all constant become constants, if these are small enough."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.graph import Shape
from weft.compiler.frontend.onnx_writer import IR_VERSION, TOLD
from weft.tmodel.onnx_bounds import check_size, has_graph
from weft.tmodel.onnx_engine import session

MOST_FOLDED = 1 << 26
"""The most elements of all constants that folding makes: more than any preset's DRAM holds."""

MOST_WORK = 1 << 32
"""The most steps of one node, because onnx's evaluator is written in Python and numpy."""

EXPORT_AGAIN = "export the model again with its constants folded"

NO_LARGER = frozenset({"Compress", "NonZero", "Unique"})
"""Operators whose result has no known size, but at most one element for each of their input (and dimension)."""

PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"})

STEPWISE = frozenset({
    "AveragePool", "Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DFT", "DeformConv", "Einsum", "GRU", "GridSample",
    "LRN", "LSTM", "LpPool", "MaxPool", "MaxUnpool", "NonMaxSuppression", "QLinearConv", "RNN", "Resize", "RoiAlign",
    "STFT", "Upsample"})
"""Operators that may read every input for every output."""


class Folder:
    """The folding of one model's nodes, one after another; ``known`` holds every constant so far."""

    def __init__(self, model: onnx.ModelProto, known: Mapping[str, np.ndarray], shapes: Mapping[str, Shape]) -> None:
        self._opsets, self.known, self._shapes = model.opset_import, dict(known), shapes
        self._folded = 0

    def fold_all(self, nodes: Iterable[onnx.NodeProto],
                 shapes: Mapping[str, Shape]) -> tuple[list[onnx.NodeProto], dict[str, np.ndarray]]:
        """Return the nodes that stay, and the constants that the others make; ``shapes``: known by now."""
        self._shapes = shapes
        kept, found = [], {}
        for node in nodes:
            made = self.fold(node)
            if made is None:
                kept.append(node)
            else:
                found.update(made)
        return kept, found

    def fold(self, node: onnx.NodeProto) -> dict[str, np.ndarray] | None:
        """Return the constants that a node makes, or None. Raise WeftError if they are too large."""
        values = self._values(node)
        if values is None:
            return None
        made = {name: np.asarray(value) for name, value in zip(node.output, values, strict=False)}
        self._folded += sum(value.size for value in made.values())
        if self._folded > MOST_FOLDED:
            raise refuse(f"constants up to {_name(node)}", f"{self._folded} elements that are computed",
                         f"at most {MOST_FOLDED}", EXPORT_AGAIN)
        self.known.update(made)
        return made

    def _values(self, node: onnx.NodeProto) -> Sequence[Any] | None:
        """Return the values of a node's outputs, or None if they are not known or too much work."""
        if node.op_type in ("Shape", "Size") and node.input[0] in self._shapes:
            return _measured(node, self._shapes[node.input[0]])
        if any(name and name not in self.known for name in node.input) or node.op_type.startswith("Random"):
            return None
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            return [_plain(node)]
        inputs = {name: self.known[name] for name in node.input if name}
        if has_graph(node) or any(value.dtype.kind in "OSU" for value in inputs.values()):
            return None
        if not self._is_bounded(node, inputs):
            return None
        model = self._alone(node, [_declared(name, value) for name, value in inputs.items()], [])
        try:
            with warnings.catch_warnings(action="ignore"):  # what comes of a division by 0 is checked where it is used
                return list(_evaluated(model, inputs))
        except Exception as error:  # of no common type
            raise refuse(_name(node), f"constant inputs that it cannot be evaluated on ({reason(error)})",
                         "inputs that fit the operator", EXPORT_AGAIN) from None

    def _is_bounded(self, node: onnx.NodeProto, inputs: Mapping[str, np.ndarray]) -> bool:
        """Tell whether shape inference knows the size of a node's results. Raise WeftError for a too large one."""
        small = {name for name, value in inputs.items() if value.size <= TOLD}
        declared = [_declared(name, value) for name, value in inputs.items() if name not in small]
        weights = [numpy_helper.from_array(np.asarray(inputs[name]), name) for name in small]
        try:
            alone = onnx.shape_inference.infer_shapes(self._alone(node, declared, weights))
        except Exception as error:  # of no common type
            raise refuse(_name(node), f"constant inputs that do not fit ({reason(error)})",
                         "inputs that fit the operator", EXPORT_AGAIN) from None
        given, made = sum(value.size for value in inputs.values()), 0
        for value in alone.graph.output:
            kind = value.type.tensor_type
            if not kind.HasField("shape") or not all(entry.HasField("dim_value") for entry in kind.shape.dim):
                return node.op_type in NO_LARGER
            made += check_size(f"tensor {value.name!r} ({_name(node)})", tuple(d.dim_value for d in kind.shape.dim))
        read = math.prod(max(inputs[name].size, 1) for name in node.input if name)
        work = {PRODUCTS: math.sqrt(read * max(made, 1)), STEPWISE: given * made}
        for operators, steps in work.items():
            if node.op_type in operators and steps > MOST_WORK:
                raise refuse(_name(node), f"constant inputs, and {steps:.3g} steps to evaluate them",
                             f"at most {MOST_WORK}", EXPORT_AGAIN)
        return True

    def _alone(self, node: onnx.NodeProto, declared: Sequence[onnx.ValueInfoProto],
               weights: Sequence[onnx.TensorProto]) -> onnx.ModelProto:
        """Return a model with a single node."""
        outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "constant", list(declared), outputs, list(weights))
        return onnx.helper.make_model(graph, opset_imports=self._opsets, ir_version=IR_VERSION)


def _evaluated(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> Sequence[Any]:
    """Return the outputs of a model.

    ONNX's own evaluator computes them, or onnxruntime if that one lacks the operator's version or fails, as it does for
    some functions of a single number. Raise what the former raised if both fail."""
    from onnx.reference import ReferenceEvaluator  # as in tmodel/onnx_engine.py

    try:
        return list(ReferenceEvaluator(model).run(None, dict(inputs)))
    except Exception as error:  # of no common type
        try:
            return list(session(onnx.shape_inference.infer_shapes(model)).run(None, dict(inputs)))
        except Exception:  # of no common type
            raise error from None


def _plain(node: onnx.NodeProto) -> np.ndarray:
    """Return the tensor of a Constant node. Raise CompileError if onnx cannot read it."""
    try:
        return numpy_helper.to_array(node.attribute[0].t)
    except Exception as error:  # of no common type
        raise refuse(_name(node), f"a tensor that onnx cannot read ({reason(error)})", "a whole tensor",
                     EXPORT_AGAIN) from None


def _measured(node: onnx.NodeProto, shape: Shape) -> list[Any]:
    """Return the result of Shape or Size for a tensor of a known shape."""
    if node.op_type == "Size":
        return [np.array(math.prod(shape), np.int64)]
    span = {attribute.name: attribute.i for attribute in node.attribute}
    return [np.array(shape, np.int64)[span.get("start"):span.get("end")]]


def _declared(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    """Return the declaration of a tensor of this type and shape."""
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _name(node: onnx.NodeProto) -> str:
    """Return a node's name and operator as text."""
    return f"node {node.name or (node.output[0] if node.output else '')!r}, operator {node.op_type}"
