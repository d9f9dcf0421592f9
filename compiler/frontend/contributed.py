# SPDX-License-Identifier: Apache-2.0
"""Write in ONNX's own operators what files of onnxruntime's optimiser and quantiser have.

These are operators of the domain com.microsoft, weights of few bits that stand in the file, quantizers of sixteen bits,
and GroupNormalization of opset 18, which onnx itself refuses as deprecated. A node with inputs or attributes that are
not understood stays as it is, and is refused where others are."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx

from weft.compiler.frontend.check_quantizers import DEQUANTIZE, QUANTIZE
from weft.compiler.frontend.few_bits import dequantize, matmul_of_bits, quantize
from weft.compiler.frontend.rewriter import Convert, Writer, input_of
from weft.tmodel.onnx_bounds import graphs

MICROSOFT = "com.microsoft"
OWN = ("", "ai.onnx")

CLIP_OF_INPUTS, MEAN_OF_INPUTS = 11, 18
"""The opsets in which limits of Clip and axes of ReduceMean became inputs."""

WIDE = 21
"""The opset in which ONNX's own quantizers got sixteen bits and blocks."""

PER_GROUP = range(18, 21)
"""The opsets in which GroupNormalization has a scale for each group."""


def write_in_onnx(model: onnx.ModelProto) -> bool:
    """Rewrite the nodes of all graphs of ``model``; return whether any was.

    Raise CompileError for more nodes or weights than a network may have."""
    opset = max((entry.version for entry in model.opset_import if entry.domain in OWN), default=0)
    found = False
    for graph in graphs(model.graph):
        if any(_conversion(node, opset) for node in graph.node):
            found |= Writer(graph, opset).write(_conversion)
    return found


def _conversion(node: onnx.NodeProto, opset: int) -> Convert | None:
    """Return how a node is rewritten, None if it stays."""
    if not node.output or not node.output[0] or not node.input or not node.input[0]:
        return None
    if node.op_type in (QUANTIZE, DEQUANTIZE) and (node.domain == MICROSOFT or node.domain in OWN and opset >= WIDE):
        return quantize if node.op_type == QUANTIZE else dequantize
    if node.op_type == "GroupNormalization" and node.domain in OWN and opset in PER_GROUP:
        return _group_normalization
    return CONVERSIONS.get(node.op_type) if node.domain == MICROSOFT else None


# -- functions of one number -------------------------------------------------------------------------------------------
def _biased(writer: Writer, node: onnx.NodeProto) -> str:
    """Return input 0, or its sum with input 1 if there is one."""
    return writer.add(node, "Add", node.input[:2]) if input_of(node, 1) else node.input[0]


def _gelu(writer: Writer, node: onnx.NodeProto, _: Mapping[str, Any]) -> bool:
    """Write Gelu, and BiasGelu, as x (1 + erf(x / sqrt 2)) / 2."""
    x = _biased(writer, node)
    half, one, root = (writer.constant(node, value) for value in (0.5, 1.0, math.sqrt(2)))
    curve = writer.add(node, "Erf", [writer.add(node, "Div", [x, root])])
    writer.add(node, "Mul", [writer.add(node, "Mul", [x, writer.add(node, "Add", [curve, one])]), half], node.output[0])
    return True


def _fast_gelu(writer: Writer, node: onnx.NodeProto, _: Mapping[str, Any]) -> bool:
    """Write FastGelu as x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2."""
    x = _biased(writer, node)
    half, one, root, cubic, three = (writer.constant(node, value)
                                     for value in (0.5, 1.0, math.sqrt(2 / math.pi), 0.044715, 3.0))
    cube = writer.add(node, "Mul", [writer.add(node, "Pow", [x, three]), cubic])
    curve = writer.add(node, "Tanh", [writer.add(node, "Mul", [writer.add(node, "Add", [x, cube]), root])])
    writer.add(node, "Mul", [writer.add(node, "Mul", [x, half]), writer.add(node, "Add", [curve, one])],
               node.output[0])
    return True


def _quick_gelu(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write QuickGelu as x sigmoid(alpha x)."""
    x, alpha = node.input[0], writer.constant(node, given.get("alpha", 1.702))
    writer.add(node, "Mul", [x, writer.add(node, "Sigmoid", [writer.add(node, "Mul", [x, alpha])])], node.output[0])
    return True


def _activated(writer: Writer, node: onnx.NodeProto, x: str, name: str, numbers: Sequence[float]) -> bool:
    """Write the function ``name`` of ``x``, with its ``numbers``, as the node's output; return whether it is known."""
    if name in ("Relu", "Sigmoid", "Tanh"):
        writer.add(node, name, [x], node.output[0])
    elif name == "LeakyRelu" and len(numbers) >= 1:
        writer.add(node, name, [x], node.output[0], alpha=numbers[0])
    elif name == "HardSigmoid" and len(numbers) >= 2:
        writer.add(node, name, [x], node.output[0], alpha=numbers[0], beta=numbers[1])
    elif name == "Clip" and len(numbers) >= 2:
        if writer.opset < CLIP_OF_INPUTS:
            writer.add(node, name, [x], node.output[0], min=numbers[0], max=numbers[1])
        else:
            writer.add(node, name, [x, *(writer.constant(node, number) for number in numbers[:2])], node.output[0])
    else:
        return False
    return True


# -- fused operators ---------------------------------------------------------------------------------------------------
def _fused(operator: str, others: Sequence[str], writer: Writer, node: onnx.NodeProto,
           given: Mapping[str, Any]) -> bool:
    """Write FusedConv or FusedGemm: ``operator``, for a Conv a sum with its input 3, and a function."""
    numbers = [*given.get("activation_params", ()), *(given[name] for name in others if name in given)]
    own = {name: value for name, value in given.items() if not name.startswith("activation")}
    x = writer.add(node, operator, node.input[:3], **own)
    if operator == "Conv" and input_of(node, 3):
        x = writer.add(node, "Add", [x, node.input[3]])
    return _activated(writer, node, x, given.get("activation", b"").decode(errors="replace"), numbers)


def _fused_matmul(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write FusedMatMul; of transposed operands only a constant right one."""
    if any(given.get(name) for name in ("transA", "transBatchA", "transBatchB")) or len(node.input) != 2:
        return False
    right = node.input[1]
    if given.get("transB"):
        value = writer.known.get(right)
        if value is None or value.ndim < 2:
            return False
        writer.count(value.size)
        right = writer.constant(node, np.ascontiguousarray(value.swapaxes(-1, -2)))
    alpha = given.get("alpha", 1.0)
    made = writer.add(node, "MatMul", [node.input[0], right], node.output[0] if alpha == 1 else "")
    if alpha != 1:
        writer.add(node, "Mul", [made, writer.constant(node, alpha)], node.output[0])
    return True


# -- normalisations ----------------------------------------------------------------------------------------------------
def _skip_normalization(centred: bool, writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write SkipLayerNormalization, or without a mean SkipSimplifiedLayerNormalization, in steps of any opset."""
    names = [*node.output, "", "", ""][:4]
    if len(node.input) < 3 or names[1] or names[2]:
        return False
    bias = input_of(node, 4 if centred else 3)
    x = writer.add(node, "Add", node.input[:2], names[3] if names[3] and not bias else "")
    if bias:
        x = writer.add(node, "Add", [x, bias], names[3])
    epsilon = writer.constant(node, given.get("epsilon", 1e-12))
    if centred:
        x = writer.add(node, "Sub", [x, _mean(writer, node, x)])
    variance = _mean(writer, node, writer.add(node, "Mul", [x, x]))
    deviation = writer.add(node, "Sqrt", [writer.add(node, "Add", [variance, epsilon])])
    offset = input_of(node, 3) if centred else ""
    plain = writer.add(node, "Div", [x, deviation])
    scaled = writer.add(node, "Mul", [plain, node.input[2]], "" if offset else node.output[0])
    if offset:
        writer.add(node, "Add", [scaled, offset], node.output[0])
    return True


def _mean(writer: Writer, node: onnx.NodeProto, x: str) -> str:
    """Add the mean over the last axis; return its name."""
    if writer.opset < MEAN_OF_INPUTS:
        return writer.add(node, "ReduceMean", [x], axes=[-1])
    return writer.add(node, "ReduceMean", [x, writer.constant(node, np.array([-1]))])


def _group_normalization(writer: Writer, node: onnx.NodeProto, given: Mapping[str, Any]) -> bool:
    """Write GroupNormalization of a scale for each group as InstanceNormalization, whose channels are the groups."""
    count = given.get("num_groups", 0)
    if len(node.input) != 3 or count < 1:
        return False
    groups = writer.add(node, "Reshape", [node.input[0], writer.constant(node, np.array([0, count, -1]))])
    normal = writer.add(node, "InstanceNormalization", [groups, *node.input[1:]], epsilon=given.get("epsilon", 1e-5))
    writer.add(node, "Reshape", [normal, writer.add(node, "Shape", node.input[:1])], node.output[0])
    return True


CONVERSIONS: dict[str, Convert] = {
    "BiasGelu": _gelu, "FastGelu": _fast_gelu, "Gelu": _gelu, "QuickGelu": _quick_gelu,
    "FusedConv": partial(_fused, "Conv", ()),
    "FusedGemm": partial(_fused, "Gemm", ("activation_alpha", "activation_beta")),
    "FusedMatMul": _fused_matmul, "MatMulNBits": matmul_of_bits,
    "SkipLayerNormalization": partial(_skip_normalization, True),
    "SkipSimplifiedLayerNormalization": partial(_skip_normalization, False),
}
"""Operators of the domain com.microsoft -> how they are written."""
