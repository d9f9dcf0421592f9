"""Whether an ONNX model of a file can be run as it is: every size known, work and memory bounded before it starts.

Import it where onnx is needed anyway. docs/decisions/host-part.md says why these bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from weft.hw.contract.errors import WeftError, explain
from weft.runtime.files import reason
from weft.runtime.onnx_bounds import MOST_TOGETHER, check_content, check_names, check_opset, check_size, has_graph
from weft.runtime.onnx_work import Shape, held_by, is_bounded, steps_of

MOST_STEPS = 1 << 34
"""Of one run of the model: some seconds of one core."""

MOST_BYTES = 1 << 30
"""Of all tensors of the model together."""

WAY_OUT = "end the network before it (--end), or run it with onnxruntime alone"

_HELD_BYTES = 4
"""Of an element that a node holds beside its inputs and outputs."""

Ports = dict[str, tuple[np.dtype, Shape]]
"""By name: the type, and the shape."""


@dataclass(frozen=True)
class Runnable:
    """What is known of a model before it runs: its inputs and outputs, and the steps that it takes at most."""

    inputs: Ports
    outputs: Ports
    steps: int


def check_runnable(model: onnx.ModelProto) -> Runnable:
    """Return what is known of a model whose sizes and work are bounded. Raises WeftError for any other.

    Sizes are inferred from those of its inputs; what the file says of other tensors is not believed.
    """
    check_content(model, None)
    onnx.checker.check_model(model)
    check_names(model.graph)
    check_opset(model)
    if model.functions:
        raise _refuse("model of the host's part", f"functions of its own, such as {model.functions[0].name!r}",
                      "operators of ONNX", "write the functions out with onnx.inliner.inline_local_functions")
    for node in model.graph.node:
        _check_node(node)
    known = _inferred(model)
    tensors = {name: shape for name, (_, shape) in known.items()}
    tensors |= {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    tensors |= {tensor.values.name: tuple(tensor.dims) for tensor in model.graph.sparse_initializer}
    steps = _check_work(model.graph.node, tensors, known)
    weights = {tensor.name for tensor in model.graph.initializer}
    return Runnable({value.name: known[value.name] for value in model.graph.input if value.name not in weights},
                    {value.name: known[value.name] for value in model.graph.output}, steps)


@functools.lru_cache(maxsize=16)
def check_bytes(content: bytes) -> Runnable:
    """Return the same of a model in bytes. Raises WeftError also for bytes that are no model."""
    try:
        return check_runnable(onnx.ModelProto.FromString(content))
    except WeftError:
        raise
    except Exception as error:  # protobuf's and shape inference's own
        raise _refuse("model of the host's part", f"not a valid ONNX model ({reason(error)})",
                      "as the compiler writes it", "compile the model again") from None


def _refuse(what: str, found: object, allowed: str, way_out: str = WAY_OUT) -> WeftError:
    return WeftError(explain(what, found, allowed, way_out))


def _named(node: onnx.NodeProto) -> str:
    return f"node {node.name!r}, operator {node.op_type}"


# -- operators ---------------------------------------------------------------------------------------------------------
def _check_node(node: onnx.NodeProto) -> None:
    """Raises WeftError for what shapes do not bound."""
    if node.domain not in ("", "ai.onnx"):
        raise _refuse(_named(node), f"an operator of {node.domain!r}", "operators of ONNX")
    if has_graph(node) or not is_bounded(node.op_type, _attributes(node)):
        raise _refuse(_named(node), "an operator whose work depends on values",
                      "operators whose shapes say how much work they are")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Numbers, texts, and lists of them."""
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


# -- shapes ------------------------------------------------------------------------------------------------------------
def _inferred(model: onnx.ModelProto) -> Ports:
    """Type and shape of every input and of what every node makes. Raises WeftError where one is not known."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.value_info[:]
    for value in plain.graph.output:
        value.ClearField("type")
    for propagate in (False, True):  # with data it computes them too, be they ever so many: so first without
        plain_graph = onnx.shape_inference.infer_shapes(plain, check_type=True, strict_mode=True,
                                                        data_prop=propagate).graph
        known = dict(_known(plain_graph))
        _check_elements(known)
    for value in model.graph.input:
        if value.name not in known:
            raise _refuse(f"input {value.name!r}", "a shape that is open, or no tensor of numbers", "fixed sizes")
    for node in model.graph.node:
        for name in filter(None, node.output):
            if name not in known:
                raise _refuse(f"{_named(node)}, output {name!r}", "a size that is not known before it runs",
                              "sizes that ONNX shape inference finds")
    for value in model.graph.output:
        if value.name not in known:
            raise _refuse(f"output {value.name!r}", "nothing that a node makes", "results of nodes")
    return known


def _known(graph: onnx.GraphProto) -> Iterator[tuple[str, tuple[np.dtype, Shape]]]:
    """Tensors of numbers whose shape is known."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(entry.HasField("dim_value") for entry in kind.shape.dim) and kind.elem_type:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind not in "OSUc":
                yield value.name, (dtype, tuple(entry.dim_value for entry in kind.shape.dim))


def _check_elements(known: Ports) -> None:
    together = sum(check_size(f"tensor {name!r}", shape) for name, (_, shape) in known.items())
    if together > MOST_TOGETHER:
        raise _refuse("tensors of the model", f"{together} elements together", f"at most {MOST_TOGETHER}")


# -- work --------------------------------------------------------------------------------------------------------------
def _check_work(nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, Shape], known: Ports) -> int:
    """Return the steps of all nodes. Raises WeftError for too many, and for too many bytes."""
    steps = held = 0
    for node in nodes:
        attributes = _attributes(node)
        given = [shapes[name] if name else () for name in node.input]
        made = [shapes[name] if name else () for name in node.output]
        steps += steps_of(node.op_type, attributes, given, made)
        if steps > MOST_STEPS:
            raise _refuse(f"work up to {_named(node)}", f"{steps:.3g} steps", f"at most {MOST_STEPS:.3g}")
        held = max(held, held_by(node.op_type, attributes, given, made))
    size = sum(dtype.itemsize * math.prod(shape) for dtype, shape in known.values()) + _HELD_BYTES * held
    if size > MOST_BYTES:
        raise _refuse("tensors of the model", f"{size} bytes together", f"at most {MOST_BYTES}")
    return steps
