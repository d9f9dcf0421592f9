# SPDX-License-Identifier: Apache-2.0
"""The inputs of an ONNX model: sizes that the file leaves open, values that the user fixes, and types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import onnx
from numpy.typing import ArrayLike
from onnx import numpy_helper

from weft.compiler.errors import CompileError, refuse
from weft.compiler.request import Sizes, Values

NUMBERS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.BOOL: "bool", onnx.TensorProto.INT8: "int8", onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32", onnx.TensorProto.INT64: "int64", onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.UINT16: "uint16", onnx.TensorProto.UINT32: "uint32", onnx.TensorProto.UINT64: "uint64",
}
"""Types of inputs and outputs -> numpy's names of them."""


def true_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs without weights, which old files list too."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def type_name(value: onnx.ValueInfoProto, kind: str = "input") -> str:
    """Return numpy's name of a tensor's type. Raise CompileError for types that are not numbers."""
    number = value.type.tensor_type.elem_type
    if number not in NUMBERS:
        known = number in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(number).lower() if known else f"number {number}"
        raise refuse(f"type of {kind} {value.name!r}", name if value.type.HasField("tensor_type") else "no tensor",
                     ", ".join(NUMBERS.values()), "convert it in front of the network, or end the network before it")
    return NUMBERS[number]


def settle_inputs(graph: onnx.GraphProto, shapes: Sizes, fixed: Values) -> None:
    """Set all open sizes of inputs, and turn inputs of ``fixed`` into constants.

    Open sizes become those of ``shapes``, wherever they have the same name; a batch that is still open becomes 1. Raise
    CompileError for any other open size, and for ``shapes`` and values that do not fit."""
    arrays = {name: _array(graph, name, value) for name, value in fixed.items()}
    fix_shapes(graph, {**_sizes_of(graph, arrays), **shapes})
    for value in [value for value in graph.input if value.name in arrays]:
        graph.initializer.append(numpy_helper.from_array(_fitted(value, arrays[value.name]), value.name))
        graph.input.remove(value)


def fix_shapes(graph: onnx.GraphProto, shapes: Sizes) -> None:
    """Set all open sizes of inputs; see :func:`settle_inputs`."""
    inputs = true_inputs(graph)
    symbols = _symbols(inputs, shapes)
    for value in inputs:
        type_name(value)
        sizes = shapes.get(value.name, 0)
        if not isinstance(sizes, int):
            symbols |= _give(value, sizes, symbols)
    for value in inputs:
        for axis, dimension in enumerate(_open(value)):
            if dimension is None:
                continue
            if symbols.get(_symbol(dimension)):
                dimension.dim_value = symbols[_symbol(dimension)]
            elif axis == 0:
                dimension.dim_value = 1
            else:
                raise _open_dimension(value, axis, dimension, _channels(graph, value.name))
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def _symbols(inputs: Sequence[onnx.ValueInfoProto], shapes: Sizes) -> dict[str, int]:
    """Return the sizes that ``shapes`` gives by their names. Raise CompileError for an unknown name."""
    names = {value.name for value in inputs}
    symbols = dict.fromkeys(_symbol(entry) for value in inputs for entry in value.type.tensor_type.shape.dim
                            if _symbol(entry))
    for name, sizes in shapes.items():
        if name not in (symbols if isinstance(sizes, int) else names):
            allowed = [f"inputs {', '.join(map(repr, names_of(inputs)))}"]
            allowed += [f"sizes {', '.join(map(repr, symbols))}"] if symbols else []
            raise _unfit(name, "no such input or size", "; ".join(allowed))
        if isinstance(sizes, int) and sizes < 1:
            raise _unfit(name, sizes, "a size of at least 1")
    return {name: sizes for name, sizes in shapes.items() if isinstance(sizes, int)}


def _symbol(dimension: onnx.TensorShapeProto.Dimension) -> str:
    """Return the name of an open size, empty if it has none. Some exporters write "?" for every open size."""
    return dimension.dim_param.strip("?")


def names_of(values: Sequence[onnx.ValueInfoProto]) -> list[str]:
    """Return the names of tensors."""
    return [value.name for value in values]


def _give(value: onnx.ValueInfoProto, sizes: Sequence[int], known: Mapping[str, int]) -> dict[str, int]:
    """Set the sizes of an input, and return the size of each name; ``known`` are those of other inputs."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in sizes)
    allowed = [entry.dim_value if entry.dim_value > 0 else entry.dim_param or "?" for entry in kind.shape.dim]
    fits = len(sizes) == len(allowed) and min(sizes, default=1) > 0 and all(
        not isinstance(there, int) or there == size for there, size in zip(allowed, sizes, strict=True))
    if not fits:
        raise _unfit(value.name, ",".join(map(str, sizes)), f"sizes that fit {','.join(map(str, allowed))}")
    symbols = dict(known)
    for entry, size in zip(kind.shape.dim, sizes, strict=True):
        name = _symbol(entry)
        if name and symbols.setdefault(name, size) != size:
            raise _unfit(value.name, f"{symbols[name]} and {size} for {name}", "one size for one name")
        entry.dim_value = size
    return symbols


def _open(value: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension | None]:
    """Yield an input's dimensions, None for those of a known size."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        raise refuse(f"input {value.name!r}", "no shape", "a shape of fixed sizes",
                     f"give it: --shape {value.name}:1,3,224,224, for example")
    for dimension in kind.shape.dim:
        yield None if dimension.dim_value > 0 else dimension


def _channels(graph: onnx.GraphProto, name: str) -> int:
    """Return how many channels a convolution of an input wants, 0 if that is not known."""
    weights = {tensor.name: tensor.dims for tensor in graph.initializer if len(tensor.dims) > 2}
    for node in graph.node:
        if node.op_type == "Conv" and node.input[0] == name and node.input[1] in weights:
            group = next((entry.i for entry in node.attribute if entry.name == "group"), 1)
            return weights[node.input[1]][1] * group
    return 0


def _open_dimension(value: onnx.ValueInfoProto, axis: int, found: onnx.TensorShapeProto.Dimension,
                    channels: int) -> CompileError:
    """Return the error for an open size, with an example of --shape; ``channels``: of axis 1, or 0."""
    sizes = [entry.dim_value if entry.dim_value > 0 else entry.dim_param or "?"
             for entry in value.type.tensor_type.shape.dim]
    likely = {0: 1, 1: channels or 224}
    example = ",".join(str(size if isinstance(size, int) else likely.get(number, 224))
                       for number, size in enumerate(sizes))
    return refuse(f"input {value.name!r}, dimension {axis}", found.dim_param or found.dim_value or "unknown",
                  "fixed sizes of at least 1", f"give all sizes of it: --shape {value.name}:{example}, for example")


def _unfit(name: str, found: object, allowed: str) -> CompileError:
    """Return the error for a --shape that does not fit."""
    return refuse(f"--shape {name}", found, allowed, "give the sizes of an input, --shape NAME:1,3,224,224, or one by "
                  "its name, --shape batch=1")


# -- values ------------------------------------------------------------------------------------------------------------
def _array(graph: onnx.GraphProto, name: str, value: ArrayLike) -> np.ndarray:
    """Return the value in the type of the input.

    Raise CompileError for an unknown input, and for a value that its type cannot hold."""
    inputs = {entry.name: entry for entry in true_inputs(graph)}
    if name not in inputs:
        raise _unlike(name, "no such input", f"inputs {', '.join(map(repr, inputs))}")
    kind = type_name(inputs[name])
    try:
        given = np.asarray(value)
        with np.errstate(all="ignore"):
            made = given.astype(kind)
    except (ValueError, TypeError, OverflowError):
        raise _unlike(name, repr(value), f"numbers of {kind}") from None
    if given.dtype.kind not in "biuf" or (made.dtype.kind in "biu" and not np.array_equal(given, made)):
        raise _unlike(name, repr(value), f"numbers of {kind}")
    if not np.isfinite(made).all():
        raise _unlike(name, repr(value), f"finite numbers of {kind}")
    return made


def _sizes_of(graph: onnx.GraphProto, arrays: Mapping[str, np.ndarray]) -> dict[str, Sequence[int]]:
    """Return the open sizes of inputs that their fixed values tell."""
    return {value.name: arrays[value.name].shape for value in true_inputs(graph)
            if value.name in arrays and arrays[value.name].ndim == len(value.type.tensor_type.shape.dim) > 0
            and arrays[value.name].size > 1}


def _fitted(value: onnx.ValueInfoProto, array: np.ndarray) -> np.ndarray:
    """Return the value in the shape of its input. Raise CompileError if it does not fit."""
    shape = tuple(entry.dim_value for entry in value.type.tensor_type.shape.dim)
    if array.size == 1:
        return np.full(shape, array.reshape(()), array.dtype)
    if array.shape == shape or (array.ndim == 1 and array.size == math.prod(shape)):
        return array.reshape(shape)
    raise _unlike(value.name, f"{array.size} numbers of shape {list(array.shape)}",
                  f"one number, or {math.prod(shape)} of shape {list(shape)}")


def _unlike(name: str, found: object, allowed: str) -> CompileError:
    """Return the error for a --fix that does not fit."""
    return refuse(f"--fix {name}", found, allowed, "give an input its value: --fix NAME=16000, or --fix NAME=1,2,3")
