# SPDX-License-Identifier: Apache-2.0
"""Convert operators of one number, or of numbers in the same place."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.values import PLANES, REAL_TYPES

SMALLEST_NORM = 1e-6
"""The least divisor of L2_NORMALIZATION."""


def same(op: Operation, onnx: str, rounds: bool = True, **attributes: Any) -> None:
    """Convert an operator of one tensor to the ONNX operator that does the same."""
    layout = op.layout(0)
    op.write(onnx, [op.read(0, layout)], layout, rounds=rounds, **attributes)


def of_one(onnx: str, **attributes: Any) -> Convert:
    """Return the conversion of an operator of one tensor to the ONNX operator that does the same."""
    return partial(same, onnx=onnx, **attributes)


def of_several(onnx: str, activation: bool = False) -> Convert:
    """Return the conversion of an operator of tensors that broadcast against each other."""
    def convert(op: Operation) -> None:
        layout = op.layout() if len(op.made) == 4 else ""
        names = [op.operand(index, layout) for index in range(len(op.operator.inputs))]
        op.write(onnx, names, layout, activation=activation)

    return convert


def limited(*limits: float) -> Convert:
    """Return the conversion to Clip, whose limits ONNX takes as inputs."""
    def convert(op: Operation) -> None:
        layout = op.layout(0)
        op.write("Clip", [op.read(0, layout), *op.limits(limits)], layout)

    return convert


def leaky_relu(op: Operation) -> None:
    """Convert LEAKY_RELU."""
    same(op, "LeakyRelu", alpha=float(op.option("Alpha")))


def gelu(op: Operation) -> None:
    """Convert GELU."""
    same(op, "Gelu", approximate="tanh" if op.option("Approximate") else "none")


def rsqrt(op: Operation) -> None:
    """Convert RSQRT, 1 / sqrt(x)."""
    layout = op.layout(0)
    op.write("Reciprocal", [op.emit("Sqrt", [op.read(0, layout)])], layout)


def square(op: Operation) -> None:
    """Convert SQUARE."""
    layout = op.layout(0)
    source = op.read(0, layout)
    op.write("Mul", [source, source], layout)


def squared_difference(op: Operation) -> None:
    """Convert SQUARED_DIFFERENCE."""
    layout = op.layout() if len(op.made) == 4 else ""
    difference = op.emit("Sub", [op.operand(0, layout), op.operand(1, layout)])
    op.write("Mul", [difference, difference], layout)


def softmax(op: Operation, onnx: str = "Softmax") -> None:
    """Convert SOFTMAX or LOG_SOFTMAX, over the last axis; the input is multiplied by beta first."""
    layout = op.layout(0)
    source, rank = op.read(0, layout), len(op.shape(0))
    beta = float(op.option("Beta", 1.0)) if onnx == "Softmax" else 1.0
    if beta != 1:
        source = op.emit("Mul", [source, op.constant(np.array(beta, np.float32), "beta")])
    op.write(onnx, [source], layout, axis=op.place(op.axis(-1, rank), layout))


def l2_normalization(op: Operation) -> None:
    """Convert L2_NORMALIZATION: a tensor divided by its length along the last axis."""
    layout = op.layout(0)
    source, axis = op.read(0, layout), op.place(op.axis(-1, len(op.shape(0))), layout)
    norm = op.emit("ReduceL2", [source, op.constant(np.array([axis], np.int64), "axis")], keepdims=1)
    norm = op.emit("Max", [norm, *op.limits([SMALLEST_NORM])])
    op.write("Div", [source, norm], layout, activation=True)


def local_response_normalization(op: Operation) -> None:
    """Convert LOCAL_RESPONSE_NORMALIZATION."""
    size = 2 * op.option("Radius") + 1
    op.write("LRN", [op.read(0, PLANES)], PLANES, size=size, alpha=op.option("Alpha") * size, beta=op.option("Beta"),
             bias=op.option("Bias"))


def quantize(op: Operation) -> None:
    """Convert QUANTIZE: real numbers or bytes become bytes of another scale."""
    same(op, "Identity")


def dequantize(op: Operation) -> None:
    """Convert DEQUANTIZE: bytes, or real numbers of half precision, become real numbers."""
    value = op.input(0).constant
    if value is not None:
        op.writer.know(op.operator.outputs[0], value.astype(np.float32))
    else:
        same(op, "Identity")


def densify(op: Operation) -> None:
    """Convert DENSIFY: sparse weights, which became dense when the file was read."""
    op.writer.know(op.operator.outputs[0], op.numbers(0))


def cast(op: Operation) -> None:
    """Convert CAST."""
    same(op, "Cast", to=op.outputs[0].onnx_type)


def floor_div(op: Operation) -> None:
    """Convert FLOOR_DIV, also of whole numbers, where ONNX's Div would round towards 0."""
    layout = op.layout() if len(op.made) == 4 else ""
    names = [op.operand(index, layout) for index in range(2)]
    if op.outputs[0].tensor.type in REAL_TYPES:
        op.write("Floor", [op.emit("Div", names)], layout)
        return
    double = [op.emit("Cast", [name], to=11) for name in names]
    op.write("Cast", [op.emit("Floor", [op.emit("Div", double)])], layout, to=op.outputs[0].onnx_type)


def fake_quant(op: Operation) -> None:
    """Convert FAKE_QUANT, which training leaves behind: only its limits; the machine rounds."""
    layout = op.layout(0)
    op.write("Clip", [op.read(0, layout), *op.limits([op.option("Min"), op.option("Max")])], layout)


def select(op: Operation) -> None:
    """Convert SELECT; a condition of one axis applies to the first axis of the others."""
    layout = op.layout() if len(op.made) == 4 else ""
    names: Sequence[str] = [op.operand(index, layout) for index in range(3)]
    if op.operator.code == "SELECT" and len(op.shape(0)) == 1 < len(op.made):
        layout = ""
        shape = np.array([-1] + [1] * (len(op.made) - 1), np.int64)
        chosen = op.emit("Reshape", [op.read(0), op.constant(shape, "shape")])
        names = [chosen, op.read(1), op.read(2)]
    op.write("Where", names, layout)


CONVERTERS: dict[str, Convert] = {
    **{code: of_one(onnx) for code, onnx in {
        "ABS": "Abs", "CEIL": "Ceil", "COS": "Cos", "EXP": "Exp", "FLOOR": "Floor", "LOG": "Log",
        "LOGICAL_NOT": "Not", "LOGISTIC": "Sigmoid", "NEG": "Neg", "RELU": "Relu", "ROUND": "Round", "SIGN": "Sign",
        "SIN": "Sin", "SQRT": "Sqrt", "TANH": "Tanh"}.items()},
    **{code: of_several(onnx, activation=True) for code, onnx in {
        "ADD": "Add", "DIV": "Div", "MUL": "Mul", "SUB": "Sub"}.items()},
    **{code: of_several(onnx) for code, onnx in {
        "ADD_N": "Sum", "EQUAL": "Equal", "GREATER": "Greater", "GREATER_EQUAL": "GreaterOrEqual",
        "LESS": "Less", "LESS_EQUAL": "LessOrEqual", "LOGICAL_AND": "And", "LOGICAL_OR": "Or", "MAXIMUM": "Max",
        "MINIMUM": "Min", "POW": "Pow", "PRELU": "PRelu"}.items()},
    "CAST": cast, "DENSIFY": densify, "DEQUANTIZE": dequantize, "ELU": of_one("Elu", alpha=1.0),
    "FAKE_QUANT": fake_quant, "FLOOR_DIV": floor_div, "GELU": gelu, "HARD_SWISH": of_one("HardSwish"),
    "L2_NORMALIZATION": l2_normalization, "LEAKY_RELU": leaky_relu,
    "LOCAL_RESPONSE_NORMALIZATION": local_response_normalization, "LOG_SOFTMAX": partial(softmax, onnx="LogSoftmax"),
    "QUANTIZE": quantize, "RELU6": limited(0, 6), "RELU_0_TO_1": limited(0, 1), "RELU_N1_TO_1": limited(-1, 1),
    "RSQRT": rsqrt, "SELECT": select, "SELECT_V2": select, "SOFTMAX": softmax, "SQUARE": square,
    "SQUARED_DIFFERENCE": squared_difference}
