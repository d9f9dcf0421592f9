# SPDX-License-Identifier: Apache-2.0
"""Convert QOperator models to QDQ: operators on quantised tensors become operators on real numbers.

They stand between DequantizeLinear and QuantizeLinear, which is what ONNX says they mean. Constants among their inputs
become real numbers at once, so that scales per channel need no particular opset."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.compiler.errors import END, refuse_node
from weft.compiler.frontend.check_quantizers import check_parameters, known_constants, named, spread
from weft.tmodel.onnx_bounds import check_opset

MICROSOFT = "com.microsoft"
OURS = ("", "ai.onnx", MICROSOFT)
FIRST_PER_AXIS = 13
"""The first opset in which a DequantizeLinear has an axis, and a Softmax is of one axis."""


def to_qdq(model: onnx.ModelProto) -> None:
    """Rewrite the model's own graph. Raise CompileError for an operator that lacks inputs."""
    writer = _Writer(model.graph, check_opset(model))
    for node in model.graph.node:
        make = QOPERATORS.get(node.op_type) if node.domain in OURS else None
        if make is None:
            writer.nodes.append(node)
        else:
            make(writer, node)
    nodes = list(writer.nodes)
    del model.graph.node[:]
    model.graph.node.extend(map(_standard, nodes))


def _standard(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node as one of ONNX.

    Raise CompileError for operators of other domains: one may have the name of an ONNX operator and mean something
    else."""
    if node.domain not in ("", "ai.onnx"):
        raise refuse_node(named(node), "", f"an operator of {node.domain!r}", "operators of ONNX",
                          f"export the model again with operators of ONNX alone, or {END}")
    return node


@dataclass
class _Writer:
    """The nodes of the new graph, whose operators are of ``opset``."""

    graph: onnx.GraphProto
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    known: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read the graph's constants."""
        self.known = known_constants(self.graph)

    def inputs(self, node: onnx.NodeProto, least: int) -> list[str]:
        """Return a node's inputs, empty if they are left out. Raise CompileError for fewer than ``least``."""
        if len(node.input) < least or not all(node.input[:least]):
            raise refuse_node(named(node), "inputs", sum(map(bool, node.input)),
                              f"at least {least}, scales and zero points included", "export the model again")
        return [*node.input, *[""] * 9]

    def real(self, node: onnx.NodeProto, trio: Sequence[str], number: int, axis: int = 0) -> str:
        """Return the real numbers of a quantised input; ``axis``: of a constant's scales per channel."""
        name, scale, zero = trio
        made = f"{node.output[0]}/real{number}"
        if self.knows(trio):
            self.constant(made, self.values(node, trio, axis))
        else:
            self.node("DequantizeLinear", [name, scale, zero] if zero else [name, scale], made, node, number=number)
            if name in self.known and self.opset >= FIRST_PER_AXIS:
                self.nodes[-1].attribute.append(helper.make_attribute("axis", axis))
        return made

    def knows(self, trio: Sequence[str]) -> bool:
        """Tell whether bytes, scale and zero point are constants; a zero point may be left out."""
        return all(name in self.known for name in (*trio[:2], *filter(None, trio[2:])))

    def values(self, node: onnx.NodeProto, trio: Sequence[str], axis: int) -> np.ndarray:
        """Return the real numbers of a quantised constant."""
        name, scale, zero = trio
        check_parameters(named(node), self.known, name, scale, zero, axis)
        values = self.known[name].astype(np.float64)
        scales, zeros = (spread(entry, values.ndim, axis) for entry in (
            self.known[scale], self.known[zero] if zero else np.zeros(1)))
        return np.asarray(((values - zeros) * scales).astype(np.float32))

    def constant(self, name: str, value: np.ndarray) -> None:
        """Add a constant."""
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))

    def node(self, op: str, inputs: Sequence[str], output: str, source: onnx.NodeProto,
             attributes: Sequence[str] = (), number: int = 0) -> None:
        """Add a node named after ``source``, with some of its attributes; ``number``: of those of its kind."""
        made = helper.make_node(op, [*inputs], [output],
                                name=f"{source.name or source.output[0]}/{op}{number or ''}")
        made.attribute.extend(entry for entry in source.attribute if entry.name in attributes)
        self.nodes.append(made)

    def between(self, node: onnx.NodeProto, op: str, inputs: Sequence[str], scale: str, zero: str,
                attributes: Sequence[str] = ()) -> None:
        """Add ``op`` on real inputs; its output is quantised, or real without a ``scale``."""
        result = f"{node.output[0]}/real" if scale else node.output[0]
        self.node(op, inputs, result, node, attributes)
        if scale:
            self.node("QuantizeLinear", [result, scale, zero] if zero else [result, scale], node.output[0], node)


WINDOW = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _conv(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a QLinearConv."""
    names = writer.inputs(node, 8)
    inputs = [writer.real(node, names[:3], 0), writer.real(node, names[3:6], 1)]
    if names[8]:
        inputs.append(_bias(writer, node, names[8], names[1], names[4]))
    writer.between(node, "Conv", inputs, names[6], names[7], WINDOW)


def _bias(writer: _Writer, node: onnx.NodeProto, bias: str, *scales: str) -> str:
    """Return the real numbers of a bias, stored in steps of the product of the input's and the weights' scales."""
    if not all(name in writer.known for name in (bias, *scales)):
        raise refuse_node(named(node), f"bias {bias!r}", "a tensor computed at run time", "a constant",
                          "export the model again")
    step = np.prod([np.broadcast_to(writer.known[name].astype(np.float64).reshape(-1), writer.known[bias].size)
                    for name in scales], axis=0)
    made = f"{node.output[0]}/real_bias"
    writer.constant(made, (writer.known[bias].reshape(-1) * step).astype(np.float32))
    return made


def _mat_mul(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a QLinearMatMul."""
    names = writer.inputs(node, 8)
    writer.between(node, "MatMul", [writer.real(node, names[:3], 0, -2), writer.real(node, names[3:6], 1, -1)],
                   names[6], names[7])


def _gemm(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a QGemm; its output is real if it has no scale."""
    names = writer.inputs(node, 6)
    transposed = any(entry.name == "transB" and entry.i for entry in node.attribute)
    inputs = [writer.real(node, names[:3], 0), writer.real(node, names[3:6], 1, 0 if transposed else 1)]
    if names[6]:
        alpha = next((entry.f for entry in node.attribute if entry.name == "alpha"), 1.0)
        made = f"{node.output[0]}/alpha"
        writer.known = {**writer.known, made: np.array(alpha)}
        inputs.append(_bias(writer, node, names[6], names[1], names[4], made))
    writer.between(node, "Gemm", inputs, names[7], names[8], ("alpha", "transA", "transB"))


def _concat(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a QLinearConcat."""
    names = writer.inputs(node, 5)[:len(node.input)]
    trios = [names[place:place + 3] for place in range(2, len(names), 3)]
    writer.between(node, "Concat", [writer.real(node, trio, number) for number, trio in enumerate(trios)], names[0],
                   names[1], ("axis",))


def _of_one(op: str, attributes: Sequence[str] = ()) -> Callable[[_Writer, onnx.NodeProto], None]:
    """Return the conversion of an operator of one quantised tensor."""
    def make(writer: _Writer, node: onnx.NodeProto) -> None:
        names = writer.inputs(node, 4)
        if any(entry.name == "channels_last" and entry.i for entry in node.attribute):
            raise refuse_node(named(node), "attribute channels_last", 1, "0",
                              "export the model with channels on axis 1")
        writer.between(node, op, [writer.real(node, names[:3], 0)], names[3], names[4], attributes)
    return make


def _softmax(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a QLinearSoftmax. It says itself of which opset it is: older ones take all axes from ``axis`` on."""
    given = {entry.name: entry.i for entry in node.attribute}
    own = given.get("opset", writer.opset)
    of_one_axis = writer.opset >= FIRST_PER_AXIS
    if (own >= FIRST_PER_AXIS) != of_one_axis and given.get("axis") != -1:
        allowed = f"{FIRST_PER_AXIS} or more" if of_one_axis else f"less than {FIRST_PER_AXIS}"
        raise refuse_node(named(node), "attribute opset", own, f"{allowed}, as the model has opset {writer.opset}, or "
                          "the axis -1", "quantise a model that was exported for that opset")
    _of_one("Softmax", ("axis",))(writer, node)


def _of_two(op: str) -> Callable[[_Writer, onnx.NodeProto], None]:
    """Return the conversion of an operator of two quantised tensors."""
    def make(writer: _Writer, node: onnx.NodeProto) -> None:
        names = writer.inputs(node, 7)
        writer.between(node, op, [writer.real(node, names[:3], 0), writer.real(node, names[3:6], 1)], names[6],
                       names[7])
    return make


def _dequantize(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert a DequantizeLinear: constants become real numbers; a tensor stays as it is."""
    names = writer.inputs(node, 2)
    if writer.knows(names[:3]):
        axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 1)
        writer.constant(node.output[0], writer.values(node, names[:3], axis))
    else:
        _of_onnx(writer, node)


def _of_onnx(writer: _Writer, node: onnx.NodeProto) -> None:
    """Convert onnxruntime's own operator to the same operator of ONNX."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.domain = ""
    writer.nodes.append(made)


QOPERATORS: dict[str, Callable[[_Writer, onnx.NodeProto], None]] = {
    "DequantizeLinear": _dequantize,
    "QGemm": _gemm,
    "QLinearAdd": _of_two("Add"),
    "QLinearAveragePool": _of_one("AveragePool", WINDOW),
    "QLinearConcat": _concat,
    "QLinearConv": _conv,
    "QLinearGlobalAveragePool": _of_one("GlobalAveragePool"),
    "QLinearLeakyRelu": _of_one("LeakyRelu", ("alpha",)),
    "QLinearMatMul": _mat_mul,
    "QLinearMul": _of_two("Mul"),
    "QLinearSigmoid": _of_one("Sigmoid"),
    "QLinearSoftmax": _softmax,
    "QuantizeLinear": _of_onnx,
}
"""Operator of ONNX or of onnxruntime's own domain -> its conversion."""
