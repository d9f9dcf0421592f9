"""Pass: a factor and an offset for each channel, behind a convolution, go into its weights and bias."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Graph, Node


def is_channelwise(graph: Graph, node: Node) -> bool:
    """A 1x1 convolution with one weight a channel: y[c] = scale[c] * x[c] + shift[c]."""
    if node.op != "Conv" or any(node.attributes["pads"]) or node.attributes["strides"] != (1, 1):
        return False
    weights = graph.constants[node.input(1)]
    return weights.shape[1:] == (1, 1, 1) and node.attributes["group"] == weights.shape[0]


def fold_channelwise(graph: Graph) -> Graph:
    """BatchNormalization and constants behind a convolution that nobody else reads go into its weights and bias."""
    consumers, outputs = graph.consumers(), graph.output_tensors()
    made: dict[str, Node] = {}
    constants = dict(graph.constants)
    for node in graph.nodes:
        before = made.get(node.input(0))
        alone = len(consumers.get(node.input(0), [])) == 1 and node.input(0) not in outputs
        if before is not None and before.op == "Conv" and alone and is_channelwise(graph, node):
            node = _merge(before, node, constants)
            del made[before.output]
        made[node.output] = node
    return graph.with_nodes(made.values(), constants)


def _merge(conv: Node, scaling: Node, constants: dict[str, np.ndarray]) -> Node:
    weights, bias = (constants[name].astype(np.float64) for name in conv.inputs[1:])
    scale = constants[scaling.input(1)].astype(np.float64).reshape(-1)
    shift = constants[scaling.input(2)].astype(np.float64)
    names = (f"{scaling.output}/weights", f"{scaling.output}/bias")
    constants[names[0]] = (weights * scale[:, None, None, None]).astype(np.float32)
    constants[names[1]] = (bias * scale + shift).astype(np.float32)
    return conv.replace(name=f"{conv.name}+{scaling.name}", inputs=(conv.input(0), *names), outputs=scaling.outputs)
