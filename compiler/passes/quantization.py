# SPDX-License-Identifier: Apache-2.0
"""The eight-bit scales of a network's file, once no operator states them any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.tmodel.scales import TensorScale


@dataclass(frozen=True)
class Quantization:
    """The tensors that keep the scale and zero point of the network's file, by name in the final graph.

    No layer may be fused over such a tensor, except with a ReLU of the same scale and zero point. It is empty for a
    network of real numbers: then calibration alone decides."""

    tensors: Mapping[str, TensorScale] = field(default_factory=dict)

    def text(self) -> str:
        """Return a line for each tensor, with the scale and zero point that the network's file gives it."""
        lines = [f"tensor {name}: scale {entry.scale:.9g} zero {entry.zero}" for name, entry in self.tensors.items()]
        return "\n".join(lines or ["nothing is quantised by the file"]) + "\n"

    def with_copies(self, graph: Graph) -> Quantization:
        """Return the scales with those of the graph's tensors of copies, which are their sources'."""
        copies = {name: self.tensors[copied.source] for name, copied in graph.copies.items()
                  if copied.source in self.tensors}
        return Quantization({**self.tensors, **copies})


def with_rounding(graph: Graph, quantization: Quantization) -> Graph:
    """Return the graph with its tensors rounded to the scales of the network's file again.

    It is for running the graph in real numbers: the limits of bytes are its ReLUs, and without them it is another
    network."""
    nodes, shapes = [], dict(graph.shapes)
    for node in graph.nodes:
        scale = quantization.tensors.get(node.output)
        if scale is None:
            nodes.append(node)
            continue
        exact = graph.free_name(f"{node.output}/exact")  # readers of files give that name too
        shapes[exact] = shapes[node.output]
        nodes += [node.replace(outputs=(exact,)),
                  Node(f"{node.name}/rounded", FAKE_QUANTIZE, (exact,), node.outputs, scale._asdict())]
    return graph.replace(nodes=tuple(nodes), shapes=shapes)
