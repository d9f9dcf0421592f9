# SPDX-License-Identifier: Apache-2.0
"""Read the bytes of a ``.tflite`` file strictly, as subgraphs, tensors and operators.

The accessors are those of the package ``tflite``, generated from TensorFlow Lite's schema. They check no offset, so
every access here goes through :func:`readable`. All vectors together may have no more entries than the file has bytes.
So tables that refer to each other cannot make the reader walk a small file for ever. Buffers are no entries."""

from __future__ import annotations

import contextlib
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tflite

from weft.compiler.errors import refuse
from weft.compiler.frontend.tflite.numbers import TYPES, Quantization, stored
from weft.compiler.frontend.tflite.sparsity import Dimension, Sparsity, dense
from weft.tmodel.onnx_bounds import MOST_ELEMENTS, MOST_NODES, check_size

IDENTIFIER = b"TFL3"
CONVERT_AGAIN = "convert the network again with TFLiteConverter"
BUILTIN = {number: name for name, number in vars(tflite.BuiltinOperator).items() if isinstance(number, int)}
OPTIONS = {number: name for name, number in vars(tflite.BuiltinOptions).items() if isinstance(number, int)}
MOST_ENTRIES = 1 << 24
"""The most entries of all vectors and names together."""

MOST_TENSORS = 1 << 16
MOST_SPARSE = 1 << 23
"""The most numbers that a sparse tensor stores, and entries of its indices."""

SPARSE_INDICES = {tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
                  tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
                  tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector}


@contextlib.contextmanager
def readable() -> Iterator[None]:
    """Turn errors of the accessors, when an offset leads astray, into Damaged, within a with statement."""
    try:
        yield
    except (struct.error, LookupError, ValueError, TypeError, AttributeError, OverflowError) as error:
        raise Damaged(str(error).split("\n")[0] or type(error).__name__) from None


class Damaged(Exception):
    """The error for a file that is not TensorFlow Lite, or whose parts do not fit together; the text says why."""


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor as the file describes it. ``type`` is numpy's name, or the file's if numpy has none.

    ``data`` holds a constant's stored numbers in ``shape``, None for computed tensors. ``signature``: the shape with -1
    for each size that the file leaves open, empty if it leaves none. ``variable``: it keeps its numbers from one run to
    the next."""

    name: str
    shape: tuple[int, ...]
    type: str
    data: np.ndarray | None = None
    quantization: Quantization | None = None
    signature: tuple[int, ...] = ()
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
        """Return a field of the operator's options, ``default`` if it has none. Raise Damaged."""
        if self.table is None:
            return default
        with readable():
            return getattr(self.table, name)()


@dataclass(frozen=True, eq=False)
class Subgraph:
    """A subgraph: operators in the order in which they run; ``inputs`` and ``outputs`` are numbers of tensors."""

    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


def read_subgraphs(content: bytes) -> list[Subgraph]:
    """Return the subgraphs of a file, the network first. Raise Damaged, and WeftError if it is too large."""
    if content[4:8] != IDENTIFIER:
        raise Damaged(f"it lacks the mark {IDENTIFIER.decode()}")
    with readable():
        return _Reader(content).subgraphs()


class _Unknown:
    """Options that our schema does not have; reading a field raises Damaged."""

    def Init(self, content: bytes, place: int) -> None:  # noqa: N802  # as the generated tables call it
        """Do nothing: the options are not read."""


class _Reader:
    """The reader of a file, which counts what it has read."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.left = min(len(content), MOST_ENTRIES)
        self.nodes = self.tensors = self.elements = 0
        self.model = tflite.Model.GetRootAs(content)

    def subgraphs(self) -> list[Subgraph]:
        """Return all subgraphs."""
        count = self._count(self.model.SubgraphsLength())
        if not count:
            raise Damaged("it has no subgraph")
        self.codes = [self._code(self.model.OperatorCodes(number))
                      for number in range(self._count(self.model.OperatorCodesLength()))]
        self.buffers = self._count(self.model.BuffersLength())
        return [self._subgraph(self.model.Subgraphs(number)) for number in range(count)]

    def _count(self, length: int) -> int:
        """Return the length of a vector. Raise Damaged once all of them are longer than the file."""
        self.left -= length
        if self.left < 0:
            raise Damaged("it lists more than it has room for")
        return length

    def _numbers(self, table: Any, name: str) -> np.ndarray:
        """Return a vector of numbers, empty if there is none; the result is a view."""
        length = self._count(getattr(table, f"{name}Length")())
        return getattr(table, f"{name}AsNumpy")() if length else np.zeros(0, np.int32)

    def _text(self, content: bytes | None) -> str:
        """Return a text."""
        self._count(len(content or b""))
        return (content or b"").decode(errors="replace")

    def _code(self, code: Any) -> tuple[str, bool]:
        """Return an operator code's name, and whether it is a custom operator."""
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        custom = number == tflite.BuiltinOperator.CUSTOM
        return (self._text(code.CustomCode()) if custom else BUILTIN.get(number, f"number {number}")), custom

    def _subgraph(self, graph: Any) -> Subgraph:
        """Return a subgraph. Raise WeftError for too many operators or tensors."""
        operators, count = self._count(graph.OperatorsLength()), self._count(graph.TensorsLength())
        self.nodes, self.tensors = self.nodes + operators, self.tensors + count
        for found, most, what in ((self.nodes, MOST_NODES, "operators"), (self.tensors, MOST_TENSORS, "tensors")):
            if found > most:
                raise refuse("the model", f"more than {most} {what}", f"at most {most}", "split the network")
        tensors = tuple(self._tensor(graph.Tensors(number), number) for number in range(count))
        made = Subgraph(tensors, self._tensor_numbers(graph, "Inputs"), self._tensor_numbers(graph, "Outputs"),
                        tuple(self._operator(graph.Operators(number)) for number in range(operators)))
        used = [*made.inputs, *made.outputs, *(number for each in made.operators for number in each.outputs)]
        if not all(0 <= number < len(tensors) for number in used) or not all(
                -1 <= number < len(tensors) for each in made.operators for number in each.inputs):
            raise Damaged("it names a tensor that it has not")
        return made

    def _tensor_numbers(self, table: Any, name: str) -> tuple[int, ...]:
        """Return a vector of tensors' numbers."""
        return tuple(self._numbers(table, name).tolist())

    def _operator(self, operator: Any) -> Operator:
        """Return an operator."""
        code, custom = self.codes[operator.OpcodeIndex()]
        table, found = None, operator.BuiltinOptions()
        if found is not None:
            table = getattr(tflite, OPTIONS.get(operator.BuiltinOptionsType(), ""), _Unknown)()
            table.Init(found.Bytes, found.Pos)
        return Operator(code, custom, self._tensor_numbers(operator, "Inputs"),
                        self._tensor_numbers(operator, "Outputs"), table,
                        self._numbers(operator, "CustomOptions").tobytes())

    # -- tensors -------------------------------------------------------------------------------------------------------
    def _tensor(self, tensor: Any, number: int) -> Tensor:
        """Return a tensor."""
        name = self._text(tensor.Name()).removesuffix(":0") or f"tensor{number}"
        shape = tuple(self._numbers(tensor, "Shape").tolist())
        signature = tuple(self._numbers(tensor, "ShapeSignature").tolist())
        kind = TYPES.get(tensor.Type(), f"type {tensor.Type()}")
        check_size(f"tensor {name!r}", shape)
        return Tensor(name, shape, kind, self._data(tensor, name, kind, shape), self._quantization(tensor, name, shape),
                      signature if -1 in signature else (), tensor.IsVariable())

    def _data(self, tensor: Any, name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
        """Return a constant's stored numbers, or None for a computed tensor."""
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
        if content.size > 4 * MOST_SPARSE:
            raise refuse(f"sparse constant {name!r}", f"{content.size} bytes", f"at most {4 * MOST_SPARSE}",
                         CONVERT_AGAIN)
        return dense(stored(content, kind, None, name), shape, self._sparsity(sparsity), name)

    def _buffer(self, number: int) -> np.ndarray:
        """Return a buffer's bytes: inside the flatbuffer, or after it if that is too small for them."""
        if number == 0 and self.buffers == 0:
            return np.zeros(0, np.uint8)
        if number >= self.buffers:
            raise Damaged(f"it names buffer {number} of {self.buffers}")
        buffer = self.model.Buffers(number)
        first, size = buffer.Offset(), buffer.Size()
        if first <= 1:
            return buffer.DataAsNumpy() if buffer.DataLength() else np.zeros(0, np.uint8)
        if first + size > len(self.content):
            raise Damaged(f"a buffer ends at byte {first + size} of {len(self.content)}")
        return np.frombuffer(self.content, np.uint8, size, first)

    def _quantization(self, tensor: Any, name: str, shape: tuple[int, ...]) -> Quantization | None:
        """Return a tensor's quantisation, or None."""
        found = tensor.Quantization()
        if found is None or not found.ScaleLength():
            return None
        scales = self._numbers(found, "Scale").astype(np.float64)
        zeros = self._numbers(found, "ZeroPoint").astype(np.int64)
        if not zeros.size:
            zeros = np.zeros(scales.size, np.int64)
        return Quantization.checked(scales, zeros, found.QuantizedDimension(), name, shape)

    def _sparsity(self, found: Any) -> Sparsity:
        """Return the description of a sparse tensor."""
        dimensions = tuple(self._dimension(found.DimMetadata(number))
                           for number in range(self._count(found.DimMetadataLength())))
        return Sparsity(tuple(self._numbers(found, "TraversalOrder").tolist()),
                        tuple(self._numbers(found, "BlockMap").tolist()), dimensions)

    def _dimension(self, found: Any) -> Dimension:
        """Return a level of a sparse tensor."""
        if found.Format() == tflite.DimensionType.DENSE:
            return Dimension(found.DenseSize())
        return Dimension(0, self._indices(found.ArraySegmentsType(), found.ArraySegments()),
                         self._indices(found.ArrayIndicesType(), found.ArrayIndices()))

    def _indices(self, kind: int, table: Any) -> np.ndarray:
        """Return the indices of a sparse level. Raise Damaged if they are missing."""
        vector = SPARSE_INDICES[kind]() if kind in SPARSE_INDICES else None
        if vector is None or table is None:
            raise Damaged("sparse weights without their indices")
        vector.Init(table.Bytes, table.Pos)
        if vector.ValuesLength() > MOST_SPARSE:
            raise Damaged(f"{vector.ValuesLength()} indices of sparse weights")
        return self._numbers(vector, "Values").astype(np.int64)
