"""How much work an ONNX operator is, from shapes alone: multiply-accumulates as drawn, steps and elements at most.

An operator stands in these tables when its shapes and attributes bound what onnxruntime does for it. Others are left
out: control flow, sequences, strings, and operators whose loops depend on values (NonMaxSuppression, a RoiAlign that
chooses its own samples).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Count = Callable[[Mapping[str, Any], Shapes, Shapes], int]
"""Attributes, shapes of the inputs (an input that is left out has the shape ()) and of the outputs -> a number."""

ATTENTION_PRODUCTS = 2
"""Of queries and keys, and of their weights and the values."""

ELEMENT_STEPS = 64
"""A step is a multiply-accumulate of onnxruntime at its slowest, half a nanosecond. An element that is read or written
costs at most so many."""

TAP_STEPS = 32
"""Of an input element under a pooling window."""


def _size(shapes: Shapes, number: int = 0) -> int:
    return math.prod(shapes[number])


# -- multiply-accumulates ----------------------------------------------------------------------------------------------
def _weights(number: int, transposed: bool = False) -> Count:
    """Every output (``transposed``: input) meets all weights of a channel: the product of ``shape[1:]`` of an input."""
    return lambda attributes, given, made: _size(given if transposed else made) * math.prod(given[number][1:])


def _matrix(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _size(made) * (given[0] or (0,))[-1]


def _gemm(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _size(made) * given[0][0 if attributes.get("transA") else -1]


def _turns(attributes: Mapping[str, Any], given: Shapes) -> int:
    """Gates that a recurrent layer computes: steps x batch x directions x rows of its weights."""
    first, second = given[0][:2]
    directions, rows, _ = given[2]
    return first * second * directions * rows


def _recurrent(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _turns(attributes, given) * (given[0][-1] + given[2][-1])


def _equation(attributes: Mapping[str, Any], given: Shapes) -> int:
    """Every index that stands in an Einsum's equation, once; an ellipsis as what its dimensions are broadcast to."""
    terms = str(attributes["equation"]).replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    spread: list[Shape] = []
    for term, shape in zip(terms, given, strict=True):
        before, dots, behind = term.partition("...")
        middle = len(shape) - len(behind) if dots else len(before)
        spread.append(shape[len(before):middle][::-1])
        for index, size in zip(before + behind, (*shape[:len(before)], *shape[middle:]), strict=True):
            sizes[index] = max(size, sizes.get(index, 1))
    return math.prod(sizes.values()) * math.prod(map(max, itertools.zip_longest(*spread, fillvalue=1)))


def _einsum(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _equation(attributes, given) if len(given) > 1 else 0


def _attention(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return ATTENTION_PRODUCTS * _size(given) * given[1][-2]


MACS: dict[str, Count] = {
    "Attention": _attention, "Conv": _weights(1), "ConvInteger": _weights(1),
    "ConvTranspose": _weights(1, transposed=True), "Einsum": _einsum, "GRU": _recurrent, "Gemm": _gemm,
    "LSTM": _recurrent, "MatMul": _matrix, "MatMulInteger": _matrix, "QLinearConv": _weights(3),
    "QLinearMatMul": _matrix, "RNN": _recurrent,
}
"""Multiply-accumulates as drawn, of products of matrices, convolutions and recurrent layers."""


# -- steps beside those of elements and products -----------------------------------------------------------------------
def _per_output(steps: int) -> Count:
    return lambda attributes, given, made: _size(made) * steps


def _pool(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _size(made) * math.prod(attributes["kernel_shape"]) * TAP_STEPS


def _resize(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return 4 * ELEMENT_STEPS * (_size(made) + _size(given))


def _longest_axis(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """A Fourier transform of a length that is no power of two; half of a spectrum stands for all of it."""
    return 2 * _size(made) * max(made[0], default=1)


def _roi_align(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _size(made) * int(attributes["sampling_ratio"]) ** 2 * ELEMENT_STEPS


def _keys(given: Shapes) -> int:
    """Keys of an Attention, those of its cache (input 4) among them."""
    return given[1][-2] + (given[4][-2] if len(given) > 4 and given[4] else 0)


def _attention_steps(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return ATTENTION_PRODUCTS * max(_size(given), _size(made)) * _keys(given)


EXTRA: dict[str, Count] = {
    "Attention": _attention_steps, "AveragePool": _pool, "DFT": _longest_axis, "DeformConv": _weights(1),
    "Det": lambda attributes, given, made: _size(given) * given[0][-1],
    "GRU": lambda attributes, given, made: _turns(attributes, given) * ELEMENT_STEPS,
    "GridSample": _per_output(ELEMENT_STEPS),
    "LRN": lambda attributes, given, made: _size(made) * int(attributes["size"]),
    "LSTM": lambda attributes, given, made: _turns(attributes, given) * ELEMENT_STEPS, "LpPool": _pool,
    "MaxPool": _pool,
    "MaxRoiPool": lambda attributes, given, made: _size(made) * math.prod(given[0][2:]),
    "RNN": lambda attributes, given, made: _turns(attributes, given) * ELEMENT_STEPS, "Resize": _resize,
    "RoiAlign": _roi_align, "STFT": _longest_axis,
    "TopK": lambda attributes, given, made: 4 * ELEMENT_STEPS * _size(given), "Upsample": _resize,
}

_PLAIN = """
    Abs Acos Acosh Add AffineGrid And ArgMax ArgMin Asin Asinh Atan Atanh BatchNormalization Bernoulli BitCast BitShift
    BitwiseAnd BitwiseNot BitwiseOr BitwiseXor BlackmanWindow Cast CastLike Ceil Celu CenterCropPad Clip Col2Im Concat
    Constant ConstantOfShape Cos Cosh CumProd CumSum DepthToSpace DequantizeLinear Div Dropout DynamicQuantizeLinear Elu
    Equal Erf Exp Expand EyeLike Flatten Floor Gather GatherElements GatherND Gelu GlobalAveragePool GlobalLpPool
    GlobalMaxPool Greater GreaterOrEqual GroupNormalization HammingWindow HannWindow HardSigmoid HardSwish Hardmax
    Identity InstanceNormalization IsInf IsNaN LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax
    LpNormalization Max MaxUnpool Mean MeanVarianceNormalization Min Mish Mod Mul Neg NegativeLogLikelihoodLoss Not
    OneHot Or PRelu Pad Pow QuantizeLinear RMSNormalization RandomNormal RandomNormalLike RandomUniform
    RandomUniformLike Range Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare Relu Reshape ReverseSequence RotaryEmbedding Round Scatter ScatterElements
    ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh Size Slice Softmax SoftmaxCrossEntropyLoss Softplus Softsign
    SpaceToDepth Split Sqrt Squeeze Sub Sum SwiGLU Swish Tan Tanh TensorScatter ThresholdedRelu Tile Transpose Trilu
    Unsqueeze Where Xor
"""
PLAIN = frozenset(_PLAIN.split())
"""Operators that cost what their elements cost."""


def is_bounded(operator: str, attributes: Mapping[str, Any]) -> bool:
    """Whether shapes and attributes say how much work a node is at most."""
    if operator == "RoiAlign":
        return int(attributes.get("sampling_ratio", 0)) > 0
    return operator in PLAIN or operator in MACS or operator in EXTRA


def steps_of(operator: str, attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Steps that a bounded node takes at most."""
    elements = sum(map(math.prod, (*given, *made)))
    extra = (table[operator](attributes, given, made) for table in (MACS, EXTRA) if operator in table)
    return ELEMENT_STEPS * elements + sum(extra)


# -- elements beside those of inputs and outputs -----------------------------------------------------------------------
def _columns(number: int, transposed: bool = False) -> Count:
    """A convolution that is made a product of matrices first: for every pixel all weights of an output channel."""
    return lambda attributes, given, made: (_size(given if transposed else made)
                                            // max((given if transposed else made)[0][1], 1)
                                            * math.prod(given[number][1:]))


def _scores(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Of an Attention, for each head a number for every query and key."""
    heads = given[0][1] if len(given[0]) == 4 else int(attributes.get("q_num_heads", 1))
    return given[0][0] * heads * given[0][-2] * _keys(given)


def _gates(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    return _turns(attributes, given)


HELD: dict[str, Count] = {
    "Attention": _scores, "ConvInteger": _columns(1), "ConvTranspose": _columns(1, transposed=True),
    "DeformConv": _columns(1), "Einsum": lambda attributes, given, made: (
        _equation(attributes, given) if len(given) > 2 else 0),
    "GRU": _gates, "LSTM": _gates, "QLinearConv": _columns(3), "RNN": _gates,
}
"""Elements that a node holds while it runs."""


def held_by(operator: str, attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Elements that a bounded node holds beside its inputs and outputs."""
    return HELD[operator](attributes, given, made) if operator in HELD else 0
