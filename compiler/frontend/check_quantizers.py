# SPDX-License-Identifier: Apache-2.0
"""Check scales and zero points of an ONNX model before shapes are inferred and constants folded.

So each error message can name the node at fault."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import Named, refuse_node

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
BYTES = ("int8", "uint8")
"""The types of quantised activations and weights."""

QUANTISE_AGAIN = "quantise the model again to int8 or uint8, with constant scales above 0"
PER_OUTPUT = "one scale for the tensor, or one for each output channel"

WEIGHT_AXES: dict[str, int] = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": -1}
"""Operator -> the axis of input 1 on which output channels lie."""


@dataclass(frozen=True)
class OnnxNode:
    """A node as error messages name it."""

    name: str
    op: str


def named(node: onnx.NodeProto) -> Named:
    """Return a node as error messages name it."""
    return OnnxNode(node.name or next(iter(node.output), ""), node.op_type)


class _Constants(Mapping[str, np.ndarray]):
    """The values of those ``tensors`` that can be read, each read when it is asked for.

    So a network without quantizers is spared copies of all its weights."""

    def __init__(self, tensors: Mapping[str, onnx.TensorProto]) -> None:
        self._tensors = tensors
        self._values: dict[str, np.ndarray | None] = {}

    def __getitem__(self, name: str) -> np.ndarray:
        """Return the value of a tensor. Raise KeyError if there is none, or it cannot be read."""
        if name not in self._values:
            try:
                self._values[name] = numpy_helper.to_array(self._tensors[name])
            except Exception:  # of no common type; ``known.py`` refuses it with its name
                self._values[name] = None
        value = self._values[name]
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        """Yield the names of tensors that can be read."""
        return (name for name in self._tensors if name in self)

    def __len__(self) -> int:
        """Return how many can be read."""
        return sum(1 for _ in self)


def known_constants(graph: onnx.GraphProto) -> Mapping[str, np.ndarray]:
    """Return the values of initializers and Constant nodes that can be read, and of an Identity of them."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and [entry.name for entry in node.attribute] == ["value"]:
            tensors[node.output[0]] = node.attribute[0].t
        elif node.op_type == "Identity" and node.input[0] in tensors:
            tensors[node.output[0]] = tensors[node.input[0]]
    return _Constants(tensors)


def spread(values: np.ndarray, rank: int, axis: int) -> np.ndarray:
    """Return one number, or one for each entry of ``axis``, in a shape that broadcasts to ``rank`` axes."""
    if values.size == 1 or rank == 0:
        return values.astype(np.float64).reshape(())
    return values.astype(np.float64).reshape([-1 if place == axis % rank else 1 for place in range(rank)])


def check_quantizers(model: onnx.ModelProto) -> None:
    """Raise CompileError for the first QuantizeLinear or DequantizeLinear that cannot be used."""
    graph = model.graph
    known = known_constants(graph)
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for number, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, number))
    _check_types(graph, readers)
    for node in graph.node:
        if node.op_type not in (QUANTIZE, DEQUANTIZE):
            continue
        if len(node.input) < 2 or not all(node.input[:2]):
            raise refuse_node(named(node), "inputs", sum(map(bool, node.input)), "a tensor and its scale",
                              QUANTISE_AGAIN)
        given = {entry.name: entry.i for entry in node.attribute}
        if given.get("block_size"):
            raise refuse_node(named(node), "attribute block_size", given["block_size"], PER_OUTPUT, QUANTISE_AGAIN)
        zero = node.input[2] if len(node.input) > 2 else ""
        check_parameters(named(node), known, node.input[0], node.input[1], zero, given.get("axis", 1))
        if node.op_type == DEQUANTIZE:
            _check_axis(node, known, given.get("axis", 1), readers.get(node.output[0], []))


def _check_types(graph: onnx.GraphProto, readers: Mapping[str, Iterable[tuple[onnx.NodeProto, int]]]) -> None:
    """Raise CompileError if an operator that computes reads bytes, or if DequantizeLinear reads real numbers.

    Types are those known without inference, whose errors only say that types do not fit."""
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    types |= {node.output[0]: onnx.TensorProto.INT8 for node in graph.node if node.op_type == QUANTIZE and node.output}
    for name, kind in types.items():
        for node, number in readers.get(name, ()):
            found = f"input {number} ({name!r})"
            if node.op_type in WEIGHT_AXES and kind in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
                raise refuse_node(named(node), found, "bytes of a quantised tensor", "real numbers",
                                  "put DequantizeLinear in front of it")
            if node.op_type == DEQUANTIZE and number == 0 and kind == onnx.TensorProto.FLOAT:
                raise refuse_node(named(node), found, "real numbers", "bytes of QuantizeLinear, or constants",
                                  "put QuantizeLinear in front of it")


def check_parameters(node: Named, known: Mapping[str, np.ndarray], source: str, scale: str, zero: str,
                     axis: int) -> None:
    """Raise CompileError for wrong scales or zero points of the tensor ``source``, if they are constants."""
    scales, zeros, values = known.get(scale), known.get(zero), known.get(source)
    if scales is not None:
        if scales.dtype.kind != "f" or not scales.size:
            raise refuse_node(node, f"scale {scale!r}", f"{scales.dtype}{list(scales.shape)}", "real numbers above 0",
                              QUANTISE_AGAIN)
        bad = scales[~(np.isfinite(scales) & (scales > 0))]
        if bad.size:
            raise refuse_node(node, f"scale {scale!r}", float(bad.ravel()[0]), "finite numbers above 0", QUANTISE_AGAIN)
    if zeros is not None:
        wide = values is not None and values.dtype == np.int32 and zeros.dtype == np.int32
        if str(zeros.dtype) not in BYTES and not wide:
            raise refuse_node(node, f"type of zero point {zero!r}", zeros.dtype, " or ".join(BYTES), QUANTISE_AGAIN)
        if wide and zeros.any():
            raise refuse_node(node, f"zero point {zero!r}", int(zeros[zeros != 0].ravel()[0]), "0 of an int32 bias",
                              QUANTISE_AGAIN)
        if scales is not None and zeros.size != scales.size:
            raise refuse_node(node, f"zero point {zero!r}", f"{zeros.size} numbers",
                              f"as many as scales, {scales.size}", QUANTISE_AGAIN)
    if values is None or scales is None or scales.size == 1:
        return
    if not -values.ndim <= axis < values.ndim or values.shape[axis] != scales.size:
        raise refuse_node(node, f"scale {scale!r}", f"{scales.size} numbers for axis {axis} of {list(values.shape)}",
                          PER_OUTPUT, QUANTISE_AGAIN)


def _check_axis(node: onnx.NodeProto, known: Mapping[str, np.ndarray], axis: int,
                readers: Iterable[tuple[onnx.NodeProto, int]]) -> None:
    """Raise CompileError if scales of weights lie on another axis than that of the output channels."""
    scales, values = known.get(node.input[1]), known.get(node.input[0])
    if scales is None or values is None or scales.size == 1:
        return
    for reader, number in readers:
        if number != 1 or reader.op_type not in WEIGHT_AXES:
            continue
        wanted = WEIGHT_AXES[reader.op_type]
        if reader.op_type == "Gemm" and any(entry.name == "transB" and entry.i for entry in reader.attribute):
            wanted = 0
        if axis % values.ndim != wanted % values.ndim:
            raise refuse_node(named(node), "attribute axis", axis,
                              f"{wanted % values.ndim}, the output channels of the weights of {named(reader).name!r}",
                              "quantise the weights per output channel, or per tensor")
