"""Bytes of a ``.tflite`` file -> its subgraphs, tensors and operators, read strictly.

The accessors are those of the package ``tflite``, generated from TensorFlow Lite's schema. They check no offset, so
every access here goes through :func:`readable`, and all vectors together may have no more entries than the file has
bytes: tables that stand in for each other cannot make the reader walk a small file for ever.
"""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.tflite.numbers import TYPES, Quantization, stored
from weft.compiler.frontend.tflite.sparsity import Dimension, Sparsity, dense
from weft.runtime.onnx_bounds import MOST_ELEMENTS, MOST_NODES, check_size

IDENTIFIER = b"TFL3"
ALLOWED, CONVERT_AGAIN = "a TensorFlow Lite model", "convert the network again with TFLiteConverter"
BUILTIN = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
OPTIONS = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}
SPARSE_INDICES = {tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
                  tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
                  tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector}


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn what the accessors raise where an offset leads astray into one message."""
    try:
        yield
    except (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise damaged(str(error).split("\n")[0] or type(error).__name__) from None


def damaged(reason: str) -> CompileError:
    """Return the error for a file that is none of TensorFlow Lite."""
    return refuse("the model file", f"not a TensorFlow Lite model, or a damaged one ({reason})", ALLOWED, CONVERT_AGAIN)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as the file describes it. ``type`` is numpy's name, or the file's where numpy has none.

    ``data`` holds a constant's stored numbers in ``shape``, None for what is computed. ``opened`` says that the file
    leaves a size other than the batch open. ``variable``: it keeps its numbers from one run to the next.
    """

    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray | None = None
    quantization: Quantization | None = None
    opened: bool = False
    variable: bool = False


@dataclass(frozen=True, eq=False)
class Operator:
    """An operator: ``code`` is its name in the schema, or the custom operator's own. Tensors are numbers, -1: none."""

    code: str
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Any
    custom_options: bytes

    def option(self, name: str, default: Any = 0) -> Any:
        """Return a field of the operator's options, ``default`` where it has none. Raises CompileError."""
        if self.table is None:
            return default
        with readable():
            return getattr(self.table, name)()


@dataclass(frozen=True, eq=False)
class Subgraph:
    """Operators in the order in which they run; ``inputs`` and ``outputs`` are numbers of tensors."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


def read_subgraphs(content: bytes) -> list[Subgraph]:
    """Return the subgraphs of a file, the network first. Raises WeftError for a file that is none or damaged."""
    if content[4:8] != IDENTIFIER:
        raise damaged(f"it lacks the mark {IDENTIFIER.decode()}")
    with readable():
        return _Reader(content).subgraphs()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content = content
        self.left = len(content)
        self.nodes = self.elements = 0
        self.model = tflite.Model.GetRootAs(content)

    def subgraphs(self) -> list[Subgraph]:
        count = self._count(self.model.SubgraphsLength())
        if not count:
            raise damaged("it has no subgraph")
        self.codes = [self._code(self.model.OperatorCodes(number))
                      for number in range(self._count(self.model.OperatorCodesLength()))]
        self.buffers = self._count(self.model.BuffersLength())
        return [self._subgraph(self.model.Subgraphs(number)) for number in range(count)]

    def _count(self, length: int) -> int:
        """Return the length of a vector. Raises CompileError once all of them are longer than the file."""
        self.left -= length
        if self.left < 0:
            raise damaged("it lists more than it has room for")
        return length

    def _numbers(self, table: Any, name: str) -> np.ndarray:
        """Return a vector of numbers, empty where there is none; the result is a view."""
        length = self._count(getattr(table, f"{name}Length")())
        return getattr(table, f"{name}AsNumpy")() if length else np.zeros(0, np.int32)

    def _text(self, content: bytes | None) -> str:
        self._count(len(content or b""))
        return (content or b"").decode(errors="replace")

    def _code(self, code: Any) -> tuple[str, bool]:
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = number == tflite.BuiltinOperator.CUSTOM
        return (self._text(code.CustomCode()) if custom else BUILTIN.get(number, f"number {number}")), custom

    def _subgraph(self, graph: Any) -> Subgraph:
        operators = self._count(graph.OperatorsLength())
        self.nodes += operators
        if self.nodes > MOST_NODES:
            raise refuse("the model", f"more than {MOST_NODES} operators", f"at most {MOST_NODES}", "split the network")
        tensors = tuple(self._tensor(graph.Tensors(number), number)
                        for number in range(self._count(graph.TensorsLength())))
        made = Subgraph(tensors, self._tensor_numbers(graph, "Inputs"), self._tensor_numbers(graph, "Outputs"),
                        tuple(self._operator(graph.Operators(number)) for number in range(operators)))
        used = [*made.inputs, *made.outputs, *(number for each in made.operators for number in each.outputs)]
        if not all(0 <= number < len(tensors) for number in used) or not all(
                -1 <= number < len(tensors) for each in made.operators for number in each.inputs):
            raise damaged("it names a tensor that it has not")
        return made

    def _tensor_numbers(self, table: Any, name: str) -> tuple[int, ...]:
        return tuple(self._numbers(table, name).tolist())

    def _operator(self, operator: Any) -> Operator:
        code, custom = self.codes[operator.OpcodeIndex()]
        table, found = None, operator.BuiltinOptions()
        if found is not None:
            table = getattr(tflite, OPTIONS[operator.BuiltinOptionsType()])()
            table.Init(found.Bytes, found.Pos)
        return Operator(code, custom, self._tensor_numbers(operator, "Inputs"),
                        self._tensor_numbers(operator, "Outputs"), table,
                        self._numbers(operator, "CustomOptions").tobytes())

    # -- tensors -------------------------------------------------------------------------------------------------------
    def _tensor(self, tensor: Any, number: int) -> Tensor:
        name = self._text(tensor.Name()).removesuffix(":0") or f"tensor{number}"
        shape = tuple(self._numbers(tensor, "Shape").tolist())
        signature = self._numbers(tensor, "ShapeSignature").tolist()
        kind = TYPES.get(tensor.Type(), f"type {tensor.Type()}")
        check_size(f"tensor {name!r}", shape)
        return Tensor(name, shape, kind, self._data(tensor, name, kind, shape), self._quantization(tensor, name, shape),
                      -1 in signature[1:], tensor.IsVariable())

    def _data(self, tensor: Any, name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
        content = self._buffer(tensor.Buffer())
        if not len(content):
            return None
        self.elements += math.prod(shape)
        if self.elements > MOST_ELEMENTS:
            raise refuse("constants of the model", f"more than {MOST_ELEMENTS} numbers", f"at most {MOST_ELEMENTS}",
                         "make the network smaller")
        sparsity = tensor.Sparsity()
        if sparsity is None:
            return stored(content, kind, shape, name)
        return dense(stored(content, kind, None, name), shape, self._sparsity(sparsity), name)

    def _buffer(self, number: int) -> np.ndarray:
        """Return a buffer's bytes: inside the flatbuffer, or behind it where that is too small for them."""
        if number == 0 and self.buffers == 0:
            return np.zeros(0, np.uint8)
        if number >= self.buffers:
            raise damaged(f"it names buffer {number} of {self.buffers}")
        buffer = self.model.Buffers(number)
        first, size = buffer.Offset(), buffer.Size()
        if first <= 1:
            return buffer.DataAsNumpy() if buffer.DataLength() else np.zeros(0, np.uint8)
        if first + size > len(self.content):
            raise damaged(f"a buffer ends at byte {first + size} of {len(self.content)}")
        return np.frombuffer(self.content, np.uint8, size, first)

    def _quantization(self, tensor: Any, name: str, shape: tuple[int, ...]) -> Quantization | None:
        found = tensor.Quantization()
        if found is None or not found.ScaleLength():
            return None
        scales = self._numbers(found, "Scale").astype(np.float64)
        zeros = self._numbers(found, "ZeroPoint").astype(np.int64)
        if not zeros.size:
            zeros = np.zeros(scales.size, np.int64)
        return Quantization.checked(scales, zeros, found.QuantizedDimension(), name, shape)

    def _sparsity(self, found: Any) -> Sparsity:
        dimensions = tuple(self._dimension(found.DimMetadata(number))
                           for number in range(self._count(found.DimMetadataLength())))
        return Sparsity(tuple(self._numbers(found, "TraversalOrder").tolist()),
                        tuple(self._numbers(found, "BlockMap").tolist()), dimensions)

    def _dimension(self, found: Any) -> Dimension:
        if found.Format() == tflite.DimensionType.DENSE:
            return Dimension(found.DenseSize())
        return Dimension(0, self._indices(found.ArraySegmentsType(), found.ArraySegments()),
                         self._indices(found.ArrayIndicesType(), found.ArrayIndices()))

    def _indices(self, kind: int, table: Any) -> np.ndarray:
        vector = SPARSE_INDICES[kind]() if kind in SPARSE_INDICES else None
        if vector is None or table is None:
            raise damaged("sparse weights without their indices")
        vector.Init(table.Bytes, table.Pos)
        return self._numbers(vector, "Values").astype(np.int64)
