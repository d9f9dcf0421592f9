# SPDX-License-Identifier: Apache-2.0
"""The work of ONNX operators from shapes alone: multiply-accumulates as drawn, and the most steps and elements.

An operator is in these tables if its shapes and attributes bound what onnxruntime does for it. Control flow is counted
by ``onnx_control.py``. Left out are sequences, strings, and operators whose loops depend on values (NonMaxSuppression,
a RoiAlign that chooses its own samples)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Count = Callable[[Mapping[str, Any], Shapes, Shapes], int]
"""A function that returns a number from attributes, shapes of the inputs and shapes of the outputs.

An input that is left out has the shape ()."""

ATTENTION_PRODUCTS = 2
"""The matrix products of an Attention: of queries and keys, and of their weights and the values."""

ELEMENT_STEPS = 64
"""The most steps for an element that is read or written.

A step is a multiply-accumulate of onnxruntime at its slowest, half a nanosecond."""

TAP_STEPS = 32
"""The steps for an input element under a pooling window."""


def _size(shapes: Shapes, number: int = 0) -> int:
    """Return the elements of the shape ``number``."""
    return math.prod(shapes[number])


# -- multiply-accumulates ----------------------------------------------------------------------------------------------
def _weights(number: int, transposed: bool = False) -> Count:
    """Return a count of convolutions: every output meets all weights of a channel, ``shape[1:]`` of input ``number``.

    With ``transposed`` every input does."""
    return lambda attributes, given, made: _size(given if transposed else made) * math.prod(given[number][1:])


def _matrix(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the multiply-accumulates of a MatMul."""
    return _size(made) * (given[0] or (0,))[-1]


def _gemm(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the multiply-accumulates of a Gemm."""
    return _size(made) * given[0][0 if attributes.get("transA") else -1]


def _turns(attributes: Mapping[str, Any], given: Shapes) -> int:
    """Return the gates that a recurrent layer computes: steps x batch x directions x rows of its weights."""
    first, second = given[0][:2]
    directions, rows, _ = given[2]
    return first * second * directions * rows


def _recurrent(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the multiply-accumulates of an RNN, GRU or LSTM."""
    return _turns(attributes, given) * (given[0][-1] + given[2][-1])


def _equation(attributes: Mapping[str, Any], given: Shapes) -> int:
    """Return the product of the sizes of all indices of an Einsum's equation, each counted once.

    An ellipsis counts as the shape to which its dimensions are broadcast."""
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
    """Return the multiply-accumulates of an Einsum; 0 with a single input."""
    return _equation(attributes, given) if len(given) > 1 else 0


def _attention(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the multiply-accumulates of an Attention."""
    return ATTENTION_PRODUCTS * _size(given) * given[1][-2]


MACS: dict[str, Count] = {
    "Attention": _attention, "Conv": _weights(1), "ConvInteger": _weights(1),
    "ConvTranspose": _weights(1, transposed=True), "Einsum": _einsum, "GRU": _recurrent, "Gemm": _gemm,
    "LSTM": _recurrent, "MatMul": _matrix, "MatMulInteger": _matrix, "QLinearConv": _weights(3),
    "QLinearMatMul": _matrix, "RNN": _recurrent,
}
"""Operator -> count of multiply-accumulates as drawn: matrix products, convolutions and recurrent layers."""


# -- steps beside those of elements and products -----------------------------------------------------------------------
def _per_output(steps: int) -> Count:
    """Return a count of so many ``steps`` for each output element."""
    return lambda attributes, given, made: _size(made) * steps


def _pool(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the steps of a pool beyond its elements."""
    return _size(made) * math.prod(attributes["kernel_shape"]) * TAP_STEPS


def _resize(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the steps of a Resize beyond its elements."""
    return 4 * ELEMENT_STEPS * (_size(made) + _size(given))


def _longest_axis(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the steps of a Fourier transform of a length that is no power of two.

    Half of a spectrum stands for all of it."""
    return 2 * _size(made) * max(made[0], default=1)


def _roi_align(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the steps of a RoiAlign beyond its elements."""
    return _size(made) * int(attributes["sampling_ratio"]) ** 2 * ELEMENT_STEPS


def _keys(given: Shapes) -> int:
    """Return the number of keys of an Attention, those of its cache (input 4) included."""
    return given[1][-2] + (given[4][-2] if len(given) > 4 and given[4] else 0)


def _attention_steps(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the steps of an Attention beyond its elements."""
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
"""Operators whose work is that of reading and writing their elements."""


def is_bounded(operator: str, attributes: Mapping[str, Any]) -> bool:
    """Tell whether shapes and attributes bound the work of a node."""
    if operator == "RoiAlign":
        return int(attributes.get("sampling_ratio", 0)) > 0
    return operator in PLAIN or operator in MACS or operator in EXTRA


def steps_of(operator: str, attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the most steps that a bounded node takes."""
    elements = sum(map(math.prod, (*given, *made)))
    extra = (table[operator](attributes, given, made) for table in (MACS, EXTRA) if operator in table)
    return ELEMENT_STEPS * elements + sum(extra)


# -- elements beside those of inputs and outputs -----------------------------------------------------------------------
def _columns(number: int, transposed: bool = False) -> Count:
    """Return a count of elements for a convolution that is made a matrix product first.

    For every pixel it holds all weights of an output channel."""
    return lambda attributes, given, made: (_size(given if transposed else made)
                                            // max((given if transposed else made)[0][1], 1)
                                            * math.prod(given[number][1:]))


def _scores(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the elements of an Attention's scores: for each head a number for every query and key."""
    heads = given[0][1] if len(given[0]) == 4 else int(attributes.get("q_num_heads", 1))
    return given[0][0] * heads * given[0][-2] * _keys(given)


def _gates(attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the elements that a recurrent layer holds: all its gates."""
    return _turns(attributes, given)


HELD: dict[str, Count] = {
    "Attention": _scores, "ConvInteger": _columns(1), "ConvTranspose": _columns(1, transposed=True),
    "DeformConv": _columns(1), "Einsum": lambda attributes, given, made: (
        _equation(attributes, given) if len(given) > 2 else 0),
    "GRU": _gates, "LSTM": _gates, "QLinearConv": _columns(3), "RNN": _gates,
}
"""Operator -> count of elements that a node holds while it runs."""


def held_by(operator: str, attributes: Mapping[str, Any], given: Shapes, made: Shapes) -> int:
    """Return the elements that a bounded node holds beside its inputs and outputs."""
    return HELD[operator](attributes, given, made) if operator in HELD else 0
