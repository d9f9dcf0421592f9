# SPDX-License-Identifier: Apache-2.0
"""An operator of the file, as the functions that convert it see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tflite

from weft.compiler.errors import CompileError, refuse_node
from weft.compiler.frontend.check_quantizers import OnnxNode
from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN, Damaged, Operator
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES, Layout, Value
from weft.compiler.frontend.tflite.writer import Writer

ACTIVATIONS: dict[int, tuple[str, tuple[float, ...]]] = {
    tflite.ActivationFunctionType.NONE: ("", ()), tflite.ActivationFunctionType.RELU: ("Relu", ()),
    tflite.ActivationFunctionType.RELU_N1_TO_1: ("Clip", (-1, 1)),
    tflite.ActivationFunctionType.RELU6: ("Clip", (0, 6)), tflite.ActivationFunctionType.TANH: ("Tanh", ())}
"""The schema's number of a fused activation -> ONNX's operator and its limits."""

MOST_INTEGERS = 1 << 14
"""The most axes, sizes and the like of an operator."""


class Operation:
    """An operator while it is converted; its methods return names in the ONNX model."""

    def __init__(self, writer: Writer, operator: Operator) -> None:
        self.writer, self.operator = writer, operator
        self.outputs = [writer.values[number] for number in operator.outputs]
        if not self.outputs:
            self.name = operator.code.lower()
        else:
            self.name = self.outputs[0].name

    # -- what it is ----------------------------------------------------------------------------------------------------
    def refusal(self, detail: str, found: object, allowed: str, way_out: str = "") -> CompileError:
        """Return the error for this operator; by default the way out is to end the network before it."""
        return refuse_node(OnnxNode(self.name, self.operator.code), detail, found, allowed, way_out or self.way_out)

    @property
    def way_out(self) -> str:
        """The advice to end the network before this operator, as words of a message."""
        given = [value.name for number in self.operator.inputs if number >= 0
                 for value in [self.writer.values[number]] if value.constant is None and not value.variable]
        return f"end the network before it with --end {','.join(dict.fromkeys(given)) or 'TENSOR'}"

    def option(self, name: str, default: Any = 0) -> Any:
        """Return a field of the operator's options."""
        return self.operator.option(name, default)

    def has(self, index: int) -> bool:
        """Tell whether the operator has this input."""
        return index < len(self.operator.inputs) and self.operator.inputs[index] >= 0

    def input(self, index: int) -> Value:
        """Return an input. Raise Damaged if it is left out."""
        return self.writer.values[self._number(index)]

    def _number(self, index: int) -> int:
        """Return the number of the tensor that is an input. Raise Damaged if it is left out."""
        if not self.has(index):
            raise Damaged(f"operator {self.operator.code} of {self.name!r} lacks input {index}")
        return self.operator.inputs[index]

    def shape(self, index: int, rank: int | None = None) -> tuple[int, ...]:
        """Return the shape of an input. Raise CompileError if it does not have ``rank`` axes."""
        found = self.input(index).shape
        if rank is not None and len(found) != rank:
            raise self.refusal(f"shape of input {index}", list(found), f"{rank} dimensions", CONVERT_AGAIN)
        return found

    @property
    def made(self) -> tuple[int, ...]:
        """The shape of the first result; only ASSIGN_VARIABLE has none."""
        return self.outputs[0].shape

    def numbers(self, index: int) -> np.ndarray:
        """Return a constant input. Raise CompileError if it is computed."""
        value = self.input(index).constant
        if value is None:
            raise self.refusal(f"input {index} ({self.input(index).name!r})", "a tensor computed at run time",
                               "a constant", "convert the network again with fixed shapes")
        return value

    def integers(self, index: int) -> list[int]:
        """Return a constant input as a list of integers. Raise CompileError for others, and for too many."""
        value = self.numbers(index)
        if value.dtype.kind not in "iu" or value.size > MOST_INTEGERS:
            raise self.refusal(f"input {index} ({self.input(index).name!r})", f"{value.size} numbers of {value.dtype}",
                               f"at most {MOST_INTEGERS} whole numbers", CONVERT_AGAIN)
        return [int(number) for number in value.ravel()]

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the first. Raise CompileError if it does not exist."""
        if not -rank <= axis < rank:
            raise self.refusal("axis", axis, f"{-rank} .. {rank - 1}", CONVERT_AGAIN)
        return axis % rank

    # -- what it reads -------------------------------------------------------------------------------------------------
    def layout(self, *indices: int) -> Layout:
        """Return the layout in which the inputs with four axes (default: all) lie; the file's if none is in planes."""
        for index in indices or range(len(self.operator.inputs)):
            if self.has(index):
                value = self.input(index)
                if value.constant is None and len(value.shape) == 4 and value.native == PLANES:
                    return PLANES
        return FILE

    def read(self, index: int, layout: Layout = FILE) -> str:
        """Return an input's real numbers."""
        if layout == PLANES:
            self.shape(index, 4)
        return self.writer.as_real(self._number(index), layout)

    def operand(self, index: int, layout: Layout) -> str:
        """Return an input such that it broadcasts against others; it gets leading axes if planes are wanted."""
        value, rank = self.input(index), len(self.shape(index))
        if layout == FILE or rank in (0, 4):
            return self.read(index, layout if rank else FILE)
        shape = (1,) * (4 - rank) + value.shape
        if value.constant is not None:
            return self.constant(value.constant.reshape(shape).transpose(ORDER[PLANES]), "spread")
        return self.emit("Transpose", [self.reshaped(self.read(index), shape)], perm=ORDER[PLANES])

    def place(self, axis: int, layout: Layout) -> int:
        """Return where an axis of the file's four lies in a layout."""
        return axis if layout == FILE else ORDER[PLANES].index(axis)

    # -- what it makes -------------------------------------------------------------------------------------------------
    def constant(self, value: np.ndarray, what: str) -> str:
        """Add a constant named after ``what``; return its name."""
        return self.writer.constant(value, f"{self.name}/{what}")

    def emit(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Add an intermediate node; return its result."""
        return self.writer.node(op, inputs, f"{self.name}/{op.lower()}", **attributes)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """Add a Reshape; return its result."""
        return self.emit("Reshape", [name, self.constant(np.array(shape, np.int64), "shape")])

    def write(self, op: str, inputs: Sequence[str], layout: Layout = FILE, *, activation: bool = False,
              rounds: bool = True, **attributes: Any) -> None:
        """Add the node that makes the first result, and the fused activation if ``activation``."""
        self.give(self.emit(op, inputs, **attributes), layout, activation=activation, rounds=rounds)

    def give(self, name: str, layout: Layout = FILE, *, activation: bool = False, rounds: bool = True,
             index: int = 0) -> None:
        """Make the result of a node a result of the operator."""
        if activation:
            name = self.activated(name)
        self.writer.give(self.operator.outputs[index], name, layout, rounds or not self._keeps_scale(index))

    def _keeps_scale(self, index: int) -> bool:
        """Tell whether a result has the scale of the first input, so that a copy needs no rounding."""
        read, made = self.input(0).tensor.quantization, self.outputs[index].tensor.quantization
        if read is None or made is None or self.input(0).tensor.type != self.outputs[index].tensor.type:
            return False
        return np.array_equal(read.scales, made.scales) and np.array_equal(read.zeros, made.zeros)

    def activated(self, name: str) -> str:
        """Return a tensor after the operator's fused activation."""
        number = self.option("FusedActivationFunction")
        if number not in ACTIVATIONS:
            raise self.refusal("fused activation", f"number {number}", "RELU, RELU_N1_TO_1, RELU6, TANH")
        op, limits = ACTIVATIONS[number]
        return self.emit(op, [name, *self.limits(limits)]) if op else name

    def limits(self, limits: Sequence[float]) -> list[str]:
        """Add limits as constants; return their names."""
        return [self.constant(np.array(limit, np.float32), "limit") for limit in limits]


Convert = Callable[[Operation], None]
"""A function that adds an operator to the model."""
