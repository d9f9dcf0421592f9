# SPDX-License-Identifier: Apache-2.0
"""Pass: taps of a kernel that fall on padding for every pixel of the result are cut off.

A kernel of three over one pixel with padding is its middle tap. The others would cost no MatMul, but their weights
would be stored and loaded."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.tmodel.window import Window


def drop_dead_taps(graph: Graph) -> Graph:
    """Return the graph with the first and last rows and columns of kernels cut off where they only see padding."""
    constants: dict[str, np.ndarray] = {}
    return graph.with_nodes([_smaller(graph, node, constants) if node.op == "Conv" else node for node in graph.nodes],
                            constants)


def _smaller(graph: Graph, conv: Node, constants: dict[str, np.ndarray]) -> Node:
    """Return a convolution without dead taps; add its weights to ``constants``."""
    attributes, window = conv.attributes, conv.window
    sizes, results = (graph.shapes[name][2:] for name in (conv.input(0), conv.output))
    rows, columns = (_live(window, axis, results[axis], sizes[axis]) for axis in range(2))
    kernel = rows[1] - rows[0], columns[1] - columns[0]
    cut = [pad - taps * dilation for pad, taps, dilation in zip(
        attributes["pads"], (rows[0], columns[0], *(whole - end for whole, (_, end) in zip(
            window.kernel, (rows, columns), strict=True))), 2 * window.dilations, strict=True)]
    if kernel == window.kernel or min(cut) < 0:
        return conv
    weights = conv.input(1)
    name = f"{weights}/taps{rows[0]}-{rows[1]}x{columns[0]}-{columns[1]}"
    constants[name] = graph.constants[weights][:, :, slice(*rows), slice(*columns)]
    return conv.replace(inputs=(conv.input(0), name, *conv.inputs[2:]),
                        attributes={**attributes, "kernel_shape": kernel, "pads": tuple(cut)})


def _live(window: Window, axis: int, results: int, size: int) -> tuple[int, int]:
    """Return the taps [first, end) of one axis outside of which none falls into the image; all if none does."""
    spans = [window.outputs(axis, tap, 0, results, size) for tap in range(window.kernel[axis])]
    live = [tap for tap, (low, high) in enumerate(spans) if low < high]
    return (live[0], live[-1] + 1) if live else (0, len(spans))
