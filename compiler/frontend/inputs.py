"""The inputs of an ONNX model: sizes that the file leaves open, and types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from weft.compiler.errors import CompileError, refuse

NUMBERS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.DOUBLE: "float64",
    onnx.TensorProto.BOOL: "bool", onnx.TensorProto.INT8: "int8", onnx.TensorProto.INT16: "int16",
    onnx.TensorProto.INT32: "int32", onnx.TensorProto.INT64: "int64", onnx.TensorProto.UINT8: "uint8",
    onnx.TensorProto.UINT16: "uint16", onnx.TensorProto.UINT32: "uint32", onnx.TensorProto.UINT64: "uint64",
}
"""Types of inputs and outputs, and numpy's names of them."""

NO_SHAPES: Mapping[str, Sequence[int]] = {}
"""By input, sizes that a file leaves open."""


def true_inputs(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """Without weights, which old files list too."""
    weights = {tensor.name for tensor in graph.initializer}
    return [value for value in graph.input if value.name not in weights]


def type_name(value: onnx.ValueInfoProto, kind: str = "input") -> str:
    """numpy's name of its type. Raises CompileError for what holds no numbers."""
    number = value.type.tensor_type.elem_type
    if number not in NUMBERS:
        known = number in onnx.TensorProto.DataType.values()
        name = onnx.TensorProto.DataType.Name(number).lower() if known else f"number {number}"
        raise refuse(f"type of {kind} {value.name!r}", name if value.type.HasField("tensor_type") else "no tensor",
                     ", ".join(NUMBERS.values()), "convert it in front of the network, or end the network before it")
    return NUMBERS[number]


def fix_shapes(graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
    """Sizes that are open become those of ``shapes``, everywhere where they have the same name; a batch that is open
    then becomes 1. Raises CompileError for any other that is open, and for ``shapes`` that do not fit."""
    inputs = true_inputs(graph)
    for name in shapes:
        if name not in {value.name for value in inputs}:
            raise _unfit(name, "no such input", f"inputs {', '.join(repr(value.name) for value in inputs)}")
    symbols: dict[str, int] = {}
    for value in inputs:
        type_name(value)
        if value.name in shapes:
            symbols |= _give(value, shapes[value.name])
    for value in inputs:
        for axis, dimension in enumerate(_open(value)):
            if dimension is None:
                continue
            if symbols.get(dimension.dim_param):
                dimension.dim_value = symbols[dimension.dim_param]
            elif axis == 0:
                dimension.dim_value = 1
            else:
                raise _open_dimension(value, axis, dimension)
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]


def _give(value: onnx.ValueInfoProto, sizes: Sequence[int]) -> dict[str, int]:
    """Sets the sizes of an input, and says which names have which size."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        kind.shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in sizes)
    allowed = [entry.dim_value if entry.dim_value > 0 else entry.dim_param or "?" for entry in kind.shape.dim]
    fits = len(sizes) == len(allowed) and min(sizes, default=1) > 0 and all(
        not isinstance(there, int) or there == size for there, size in zip(allowed, sizes, strict=True))
    if not fits:
        raise _unfit(value.name, ",".join(map(str, sizes)), f"sizes that fit {','.join(map(str, allowed))}")
    symbols: dict[str, int] = {}
    for entry, size in zip(kind.shape.dim, sizes, strict=True):
        name = entry.dim_param
        if name and symbols.setdefault(name, size) != size:
            raise _unfit(value.name, f"{symbols[name]} and {size} for {name}", "one size for one name")
        entry.dim_value = size
    return symbols


def _open(value: onnx.ValueInfoProto) -> Iterator[onnx.TensorShapeProto.Dimension | None]:
    """Its dimensions, None for those of a known size."""
    kind = value.type.tensor_type
    if not kind.HasField("shape"):
        raise refuse(f"input {value.name!r}", "no shape", "a shape of fixed sizes",
                     f"give it: --shape {value.name}:1,3,224,224, for example")
    for dimension in kind.shape.dim:
        yield None if dimension.dim_value > 0 else dimension


def _open_dimension(value: onnx.ValueInfoProto, axis: int, found: onnx.TensorShapeProto.Dimension) -> CompileError:
    sizes = [entry.dim_value if entry.dim_value > 0 else entry.dim_param or "?"
             for entry in value.type.tensor_type.shape.dim]
    example = ",".join(str(size) if isinstance(size, int) else "1" if number == 0 else "224"
                       for number, size in enumerate(sizes))
    return refuse(f"input {value.name!r}, dimension {axis}", found.dim_param or found.dim_value or "unknown",
                  "fixed sizes of at least 1", f"give all sizes of it: --shape {value.name}:{example}, for example")


def _unfit(name: str, found: str, allowed: str) -> CompileError:
    return refuse(f"--shape {name}", found, allowed, "give the sizes of an input: --shape NAME:1,3,224,224")
