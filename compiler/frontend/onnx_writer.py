"""Graph -> ONNX model, to run it in floating point after any pass, and for the part that runs on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from weft.compiler.frontend.graph import Graph, Node, Shape

IR_VERSION = 8
"""Old enough for every onnxruntime in use."""


def to_onnx(graph: Graph, outputs: Sequence[str] | None = None, extra: Sequence[Node] = (),
            constants: Mapping[str, np.ndarray] | None = None) -> onnx.ModelProto:
    """The graph as a model with the given output tensors (default: its own); ``extra`` nodes read its tensors."""
    names = [port.tensor for port in graph.outputs] if outputs is None else list(outputs)
    inputs = [_float_value(port.tensor, graph.shapes[port.tensor]) for port in graph.inputs]
    nodes = [_node(node) for node in (*graph.nodes, *extra)]
    weights = {**graph.constants, **(constants or {})}
    return _model(nodes, graph.name, inputs, [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)],
                  weights, graph.opset)


def part_to_onnx(graph: Graph, nodes: Sequence[Node], inputs: Mapping[str, Shape],
                 outputs: Mapping[str, Shape]) -> onnx.ModelProto:
    """Some nodes of the graph as a model of its own, between the given tensors."""
    read = {name for node in nodes for name in node.inputs}
    weights = {name: value for name, value in graph.constants.items() if name in read}
    return _model([_node(node) for node in nodes], f"{graph.name}_host",
                  [_float_value(name, shape) for name, shape in inputs.items()],
                  [onnx.ValueInfoProto(name=name) for name in outputs], weights, graph.opset)


def _model(nodes: list[onnx.NodeProto], name: str, inputs: list[onnx.ValueInfoProto],
           outputs: list[onnx.ValueInfoProto], weights: Mapping[str, np.ndarray], opset: int) -> onnx.ModelProto:
    initializers = [numpy_helper.from_array(np.ascontiguousarray(value), key) for key, value in weights.items()]
    graph = helper.make_graph(nodes, name, inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=IR_VERSION)
    return onnx.shape_inference.infer_shapes(model)


def _float_value(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _node(node: Node) -> onnx.NodeProto:
    attributes = {key: numpy_helper.from_array(value) if isinstance(value, np.ndarray) else value
                  for key, value in node.attributes.items()}
    return helper.make_node(node.op, node.inputs, node.outputs, name=node.name, **attributes)


def session(model: onnx.ModelProto | bytes) -> onnxruntime.InferenceSession:
    """An onnxruntime session on one thread (the same result every time), quiet."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    content = model if isinstance(model, bytes) else model.SerializeToString()
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
