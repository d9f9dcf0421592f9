# SPDX-License-Identifier: Apache-2.0
"""Write a graph as an ONNX model, to run it in floating point after any pass, and for the host's subgraphs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from weft.compiler.frontend.graph import Graph, Node

IR_VERSION = 10
"""The version of the ONNX format, old enough for every onnxruntime in use."""

TOLD = 1024
"""The most elements of a constant that may be a shape, so that shape inference gets its values."""


def to_onnx(graph: Graph, outputs: Sequence[str] | None = None, extra: Sequence[Node] = (),
            constants: Mapping[str, np.ndarray] | None = None,
            apart: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Return the graph as a model with the given output tensors (default: its own).

    ``extra`` nodes read its tensors. ``apart``: constants of more than TOLD elements are put there and only named in
    the model, as :func:`weft.tmodel.onnx_engine.session` takes them, without copies."""
    names = [port.tensor for port in graph.outputs] if outputs is None else list(outputs)
    inputs = [_value(graph, port.tensor) for port in graph.inputs]
    nodes: list[onnx.NodeProto] = []
    weights = {**graph.constants, **(constants or {})}
    for node in (*graph.nodes, *extra):
        nodes += EXPAND.get(node.op, _plain)(graph, node, weights)
    return _model(nodes, graph.name, inputs, [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)],
                  weights, graph.opset, apart)


def part_to_onnx(graph: Graph, nodes: Sequence[Node], inputs: Sequence[str],
                 outputs: Sequence[str]) -> onnx.ModelProto:
    """Return some nodes of the graph as a model of its own, between the given tensors."""
    read = {name for node in nodes for name in node.inputs}
    weights = {name: value for name, value in graph.constants.items() if name in read}
    made = [entry for node in nodes for entry in (_fake_quantize(graph, node, weights) if node.op == "FakeQuantize"
                                                  else [node_to_onnx(node)])]
    model = _model(made, f"{graph.name}_host",
                   [_value(graph, name) for name in inputs], [onnx.ValueInfoProto(name=name) for name in outputs],
                   weights, graph.opset)
    for value in model.graph.output:
        if not value.type.tensor_type.HasField("shape"):  # of a loop, for ONNX does not infer it
            value.CopyFrom(_value(graph, value.name))
    return model


def _model(nodes: list[onnx.NodeProto], name: str, inputs: list[onnx.ValueInfoProto],
           outputs: list[onnx.ValueInfoProto], weights: Mapping[str, np.ndarray], opset: int,
           apart: dict[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """Return a model with inferred shapes; large weights are added after inference, which copies the model.

    ``apart``: see :func:`to_onnx`."""
    known = [_weight(value, key) for key, value in weights.items() if value.size <= TOLD]
    shaped = [helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
              for key, value in weights.items() if value.size > TOLD]
    graph = helper.make_graph(nodes, name, [*inputs, *shaped], outputs, known)
    model = onnx.shape_inference.infer_shapes(helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION))
    del model.graph.input[len(inputs):], model.graph.initializer[:]
    for key, value in weights.items():
        if apart is not None and value.size > TOLD:
            apart[key] = np.ascontiguousarray(value)
            _name_weight(model.graph.initializer.add(), key, value)
        else:
            model.graph.initializer.add().CopyFrom(_weight(value, key))
    return model


def _name_weight(entry: onnx.TensorProto, name: str, value: np.ndarray) -> None:
    """Make an entry of a constant whose values are not in the model."""
    entry.name, entry.data_type = name, helper.np_dtype_to_tensor_dtype(value.dtype)
    entry.dims.extend(value.shape)
    entry.data_location = onnx.TensorProto.EXTERNAL
    entry.external_data.add(key="location", value=name)


def _weight(value: np.ndarray, name: str) -> onnx.TensorProto:
    """Return a constant of the model."""
    return numpy_helper.from_array(np.asarray(value, order="C"), name)


def _value(graph: Graph, name: str) -> onnx.ValueInfoProto:
    """Return the declaration of a tensor."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(graph.type(name)))
    return helper.make_tensor_value_info(name, kind, graph.shapes[name])


# -- nodes of ours in operators of ONNX ----------------------------------------------------------------------------
def _plain(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return a node that ONNX knows, named by its output, since a node of the model may have become several."""
    return [node_to_onnx(node.replace(name=node.output))]  # a node of the model may have become several


def _gathered(node: Node, sources: Sequence[str], indices: np.ndarray,
              weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return nodes that gather elements of flattened ``sources`` (in a row, then a zero) by position."""
    prefix = f"{node.output}/export"
    weights |= {f"{prefix}/flat": np.array([-1], np.int64), f"{prefix}/zero": np.zeros(1, np.float32),
                f"{prefix}/indices": indices}
    flat = [helper.make_node("Reshape", [source, f"{prefix}/flat"], [f"{prefix}/{number}"])
            for number, source in enumerate(sources)]
    joined = helper.make_node("Concat", [*(made.output[0] for made in flat), f"{prefix}/zero"], [f"{prefix}/all"],
                              axis=0)
    return [*flat, joined, helper.make_node("Gather", [f"{prefix}/all", f"{prefix}/indices"], [node.output], axis=0)]


def _view(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of ONNX for a View."""
    _, channels, height, width = graph.shapes[node.output]
    pixels = graph.shapes[node.input(0)][2] * graph.shapes[node.input(0)][3]
    chosen = (node.attributes["offset"] + node.attributes["pitch"] * np.arange(height)[:, None]
              + node.attributes["step"] * np.arange(width))
    return _gathered(node, [node.input(0)], (np.arange(channels)[:, None, None] * pixels + chosen)[None], weights)


def _assemble(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of ONNX for an Assemble."""
    _, channels, height, width = graph.shapes[node.output]
    sizes = [graph.shapes[name][1:] for name in node.inputs]
    indices = np.full((channels, height * width), sum(math.prod(size) for size in sizes))
    base = 0
    for (count, rows, columns), (channel, offset, pitch, step) in zip(sizes, node.attributes["places"], strict=True):
        pixels = (offset + pitch * np.arange(rows)[:, None] + step * np.arange(columns)).ravel()
        own = base + np.arange(count * rows * columns).reshape(count, -1)
        indices[channel:channel + count, pixels] = own
        base += own.size
    return _gathered(node, node.inputs, indices.reshape(graph.shapes[node.output]), weights)


def _product(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the node of ONNX for a Product."""
    return [helper.make_node("Einsum", node.inputs, node.outputs, name=node.output, equation="bkhw,bnko->bnhw")]


def _enlarge(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the node of ONNX for an Enlarge."""
    scales = f"{node.output}/export/scales"
    weights[scales] = np.array([1, 1, *node.attributes["factors"]], np.float32)
    return [helper.make_node("Resize", [node.input(0), "", scales], node.outputs, name=node.output, mode="nearest",
                             coordinate_transformation_mode="asymmetric", nearest_mode="floor")]


def _gate(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of ONNX for a Gate."""
    source, prefix = node.input(0), f"{node.output}/export"
    names = {key: f"{prefix}/{key}" for key in ("offset", "zero", "limit")}
    weights |= {name: np.array(node.attributes.get(key, 0.0), np.float32) for key, name in names.items()}
    return [helper.make_node("Add", [source, names["offset"]], [f"{prefix}/line"]),
            helper.make_node("Clip", [f"{prefix}/line", names["zero"], names["limit"]], [f"{prefix}/gate"]),
            helper.make_node("Mul", [source, f"{prefix}/gate"], node.outputs, name=node.output)]


def _scale_channels(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of ONNX for a ScaleChannels."""
    image, factors = node.inputs
    prefix = f"{node.output}/export"
    names = {key: f"{prefix}/{key}" for key in ("first", "second", "axis")}
    weights |= {name: np.array([value], np.int64) for name, value in zip(names.values(), (0, 1, 3), strict=True)}
    return [helper.make_node("Slice", [factors, *names.values()], [f"{prefix}/factor"]),
            helper.make_node("Mul", [image, f"{prefix}/factor"], node.outputs, name=node.output)]


def function_nodes(node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of a function of one number: an ONNX operator, or a ``Function`` of several steps.

    Steps are explained in ``lowering/rules.py``."""
    if node.op != "Function":
        return [node_to_onnx(node.replace(name=node.output))]
    made, names = [], [node.input(0)]
    for number, (op, arguments, attributes) in enumerate(node.attributes["steps"], 1):
        inputs = []
        for place, argument in enumerate(arguments):
            name = f"{node.output}/step{number}.{place}"
            if isinstance(argument, float):
                weights[name] = np.array(argument, np.float32)
            inputs.append(name if isinstance(argument, float) else names[argument])
        last = number == len(node.attributes["steps"])
        names.append(node.output if last else f"{node.output}/step{number}")
        made.append(helper.make_node(op, inputs, names[-1:], **dict(attributes)))
    return made


def _fake_quantize(graph: Graph, node: Node, weights: dict[str, np.ndarray]) -> list[onnx.NodeProto]:
    """Return the nodes of ONNX for a FakeQuantize."""
    prefix = f"{node.output}/export"
    names = [f"{prefix}/scale", f"{prefix}/zero"]
    weights |= {names[0]: np.array(node.attributes["scale"], np.float32),
                names[1]: np.array(node.attributes["zero"], np.int8)}
    return [helper.make_node("QuantizeLinear", [node.input(0), *names], [f"{prefix}/bytes"]),
            helper.make_node("DequantizeLinear", [f"{prefix}/bytes", *names], node.outputs, name=node.output)]


EXPAND: dict[str, Callable[[Graph, Node, dict[str, np.ndarray]], list[onnx.NodeProto]]] = {
    "Assemble": _assemble, "Enlarge": _enlarge, "FakeQuantize": _fake_quantize, "Gate": _gate,
    "Function": lambda graph, node, weights: function_nodes(node, weights), "Product": _product,
    "ScaleChannels": _scale_channels, "View": _view}


def node_to_onnx(node: Node) -> onnx.NodeProto:
    """Return a node whose operator ONNX knows."""
    attributes = {key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
                  for key, value in node.attributes.items()}
    inputs = node.inputs[:len(node.inputs) - node.captured]
    return helper.make_node(node.op, inputs, node.outputs, name=node.name, **attributes)
