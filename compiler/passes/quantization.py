"""What a network's file says of its numbers in eight bits, once no operator says it any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.tmodel.scales import TensorScale

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE


@dataclass(frozen=True)
class Quantization:
    """``tensors``: those that keep the scale and zero of the network's file, by their names in the graph that layers
    are built of; no layer may go on over one, but with a ReLU of the same scale and zero.

    Empty for a network of real numbers: then calibration alone decides.
    """

    tensors: Mapping[str, TensorScale] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"tensor {name}: scale {entry.scale:.9g} zero {entry.zero}" for name, entry in self.tensors.items()]
        return "\n".join(lines or ["nothing is quantised by the file"]) + "\n"


def with_rounding(graph: Graph, quantization: Quantization) -> Graph:
    """The graph, whose computed tensors are rounded again to the scales that the network's file gives them: for those
    who run it in real numbers. Without the limits of bytes it is another network, for they are its ReLUs."""
    nodes, shapes = [], dict(graph.shapes)
    for node in graph.nodes:
        scale = quantization.tensors.get(node.output)
        if scale is None:
            nodes.append(node)
            continue
        exact = f"{node.output}/exact"
        shapes[exact] = shapes[node.output]
        nodes += [node.replace(outputs=(exact,)),
                  Node(f"{node.name}/rounded", FAKE_QUANTIZE, (exact,), node.outputs, scale._asdict())]
    return graph.replace(nodes=tuple(nodes), shapes=shapes)
