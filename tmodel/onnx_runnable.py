# SPDX-License-Identifier: Apache-2.0
"""Decide whether an ONNX model of a file may run: every size known, work and memory bounded before it starts.

It imports onnx; import it where onnx is needed anyway. docs/decisions/host-part.md explains the bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from weft.support.errors import WeftError, explain
from weft.support.files import reason
from weft.tmodel.onnx_bounds import MOST_TOGETHER, check_content, check_names, check_opset, check_size, has_graph
from weft.tmodel.onnx_control import CONTROL, LOOP, LOOP_HEAD, Body, bodies
from weft.tmodel.onnx_work import Shape, held_by, is_bounded, steps_of

MOST_STEPS = 1 << 34
"""The most steps of one run of the model: some seconds of one core."""

MOST_BYTES = 1 << 30
"""The most bytes of all tensors of the model together."""

WAY_OUT = "end the network before it (--end), or run it with onnxruntime alone"

TURN_STEPS = 1 << 15
"""The steps of a loop's iteration, beside those of its operators."""

KEEP = frozenset({"GroupNormalization"})
"""Operators whose result has the shape of input 0, which ONNX's shape inference does not say."""

_HELD_BYTES = 4
"""The bytes of an element that a node holds beside its inputs and outputs."""

Ports = dict[str, tuple[np.dtype, Shape]]
"""Name -> type and shape."""


@dataclass(frozen=True)
class Runnable:
    """A model's properties before it runs: its inputs, its outputs, and the most steps that it takes.

    If values decide how often a loop runs, one iteration counts."""

    inputs: Ports
    outputs: Ports
    steps: int


def check_runnable(model: onnx.ModelProto) -> Runnable:
    """Return the sizes and types of a model whose sizes and work are bounded. Raise WeftError for any other.

    Sizes are inferred from those of its inputs; what the file says of other tensors is not believed."""
    check_content(model, None)
    onnx.checker.check_model(model)
    return _check_graph(model)


def _check_graph(model: onnx.ModelProto) -> Runnable:
    """Return the sizes and types of a model, or of a graph within one, that onnx's checker has accepted."""
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
    for node in model.graph.node:
        if node.op_type in CONTROL:
            for body, within in _within(model, node, {**known, **_weights(model)}):
                steps += (1 if body.turns is None else body.turns) * (within.steps + TURN_STEPS)
    if steps > MOST_STEPS:
        raise _refuse("work of the model", f"{steps:.3g} steps", f"at most {MOST_STEPS:.3g}")
    weights = {tensor.name for tensor in model.graph.initializer}
    return Runnable({value.name: known[value.name] for value in model.graph.input if value.name not in weights},
                    {value.name: known[value.name] for value in model.graph.output}, steps)


@functools.lru_cache(maxsize=16)
def check_bytes(content: bytes) -> Runnable:
    """Return the sizes and types of a model given as bytes. Raise WeftError if it is no model or not bounded."""
    try:
        return check_runnable(onnx.ModelProto.FromString(content))
    except WeftError:
        raise
    except Exception as error:  # protobuf's and shape inference's own
        raise _refuse("model of the host's part", f"not a valid ONNX model ({reason(error)})",
                      "as the compiler writes it", "compile the model again") from None


def _refuse(what: str, found: object, allowed: str, way_out: str = WAY_OUT) -> WeftError:
    """Return the error for a model that may not run."""
    return WeftError(explain(what, found, allowed, way_out))


def _named(node: onnx.NodeProto) -> str:
    """Return a node's name and operator as text."""
    return f"node {node.name!r}, operator {node.op_type}"


# -- operators ---------------------------------------------------------------------------------------------------------
def _check_node(node: onnx.NodeProto) -> None:
    """Raise WeftError for an operator whose work is not bounded by shapes."""
    if node.domain not in ("", "ai.onnx"):
        raise _refuse(_named(node), f"an operator of {node.domain!r}", "operators of ONNX")
    if node.op_type not in CONTROL and (has_graph(node) or not is_bounded(node.op_type, _attributes(node))):
        raise _refuse(_named(node), "an operator whose work depends on values",
                      "operators whose shapes say how much work they are")


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes that are numbers, texts, or lists of them."""
    values = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute
              if not attribute.HasField("g")}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


# -- shapes ------------------------------------------------------------------------------------------------------------
def _inferred(model: onnx.ModelProto) -> Ports:
    """Return type and shape of every input and of what every node makes. Raise WeftError if one is not known."""
    plain = onnx.ModelProto()
    plain.CopyFrom(model)
    del plain.graph.value_info[:]
    for value in plain.graph.output:
        value.ClearField("type")
    known: Ports = {}
    while True:
        for propagate in (False, True):  # with data it computes them too, be they ever so many: so first without
            plain_graph = onnx.shape_inference.infer_shapes(plain, check_type=True, strict_mode=True,
                                                            data_prop=propagate).graph
            known = ports_of(plain_graph)
            _check_elements(known)
        found = uninferred_shapes(plain, known)
        if not found:
            break
        plain.graph.value_info.extend(found)
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


def uninferred_shapes(model: onnx.ModelProto, known: Ports) -> list[onnx.ValueInfoProto]:
    """Return the shapes of results that are not in ``known`` and that ONNX does not infer: of loops and of ``KEEP``.

    Those of a loop are known if what it carries keeps its shape."""
    found = []
    for node in model.graph.node:
        if node.op_type in KEEP and node.input[0] in known and node.output[0] not in known:
            kind, shape = known[node.input[0]]
            found.append(onnx.helper.make_tensor_value_info(
                node.output[0], onnx.helper.np_dtype_to_tensor_dtype(kind), shape))
        if node.op_type == LOOP and any(name and name not in known for name in node.output):
            try:
                (body, within), = _within(model, node, {**known, **_weights(model)})
            except WeftError:
                continue
            found += [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(kind), shape)
                      for name, (kind, shape) in zip(node.output, _made(body, within), strict=False)
                      if name and name not in known]
    return found


def _made(body: Body, within: Runnable) -> list[tuple[np.dtype, Shape]]:
    """Return type and shape of a loop's results, as far as known: what it carries, and what all iterations collect."""
    ports = list(within.outputs.values())[body.skipped:]
    states, scanned = ports[:body.carried], ports[body.carried:]
    if body.turns is None:
        return states
    return [*states, *((kind, (body.turns, *shape)) for kind, shape in scanned)]


def _weights(model: onnx.ModelProto) -> Ports:
    """Return type and shape of a model's constants."""
    return {tensor.name: (onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type), tuple(tensor.dims))
            for tensor in model.graph.initializer}


def _within(model: onnx.ModelProto, node: onnx.NodeProto, known: Ports) -> list[tuple[Body, Runnable]]:
    """Return the graphs of a choice or loop with what is known of each.

    Raise WeftError for work that is not bounded, and if an iteration changes the shape of what it carries."""
    try:
        found = [(body, _check_graph(body.model)) for body in bodies(model, node, known)]
    except WeftError:
        raise
    except Exception as error:  # of attributes, and shape inference's own
        raise _refuse(_named(node), f"graphs of sizes that are not known before they run ({reason(error)})",
                      "graphs whose tensors have fixed sizes") from None
    for body, within in found:
        read, made = list(within.inputs.values()), list(within.outputs.values())
        first = LOOP_HEAD if node.op_type == LOOP else 0
        for before, behind in zip(read[first:first + body.carried],
                                  made[body.skipped:body.skipped + body.carried], strict=True):
            if before != behind:
                raise _refuse(_named(node), f"a state of shape {list(before[1])} that a turn leaves as "
                              f"{list(behind[1])}", "states that keep their type and shape")
    return found


def ports_of(graph: onnx.GraphProto) -> Ports:
    """Return type and shape of the numeric tensors of a graph whose shape is known."""
    known: Ports = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape") and all(entry.HasField("dim_value") for entry in kind.shape.dim) and kind.elem_type:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            if dtype.kind not in "OSUc":
                known[value.name] = (dtype, tuple(entry.dim_value for entry in kind.shape.dim))
    return known


def _check_elements(known: Ports) -> None:
    """Raise WeftError if a tensor, or all of them together, has too many elements."""
    together = sum(check_size(f"tensor {name!r}", shape) for name, (_, shape) in known.items())
    if together > MOST_TOGETHER:
        raise _refuse("tensors of the model", f"{together} elements together", f"at most {MOST_TOGETHER}")


# -- work --------------------------------------------------------------------------------------------------------------
def _check_work(nodes: Sequence[onnx.NodeProto], shapes: Mapping[str, Shape], known: Ports) -> int:
    """Return the steps of all nodes. Raise WeftError for too many steps or bytes."""
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
