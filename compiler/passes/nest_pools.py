# SPDX-License-Identifier: Apache-2.0
"""Pass: among max pools of one tensor with stride 1, a larger one becomes a pool of a smaller one.

The maximum over 9 pixels is the maximum of 5 maxima over 5. Networks that pool an image at several sizes side by side
(5, 9 and 13 pixels in YOLO's) read a third of the vectors so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.compiler.frontend.graph import Graph, Node


class Window(NamedTuple):
    """A pool's window: pixels along both axes, and pads (top, left, bottom, right)."""

    kernel: tuple[int, ...]
    pads: tuple[int, ...]


def nest_pools(graph: Graph) -> Graph:
    """Return the network in which each MaxPool of stride 1 reads the largest other one that it can be made of."""
    windows = {node.output: window for node in graph.nodes if (window := _window(node)) is not None}
    beside: dict[str, list[Node]] = {}
    for node in graph.nodes:
        if node.output in windows:
            beside.setdefault(node.input(0), []).append(node)
    nested = {source: _nested(pools, windows) for source, pools in beside.items()}
    nodes: list[Node] = []
    for node in graph.nodes:  # all pools of a tensor where the first of them was, the smallest first
        nodes += nested.pop(node.input(0), []) if node.output in windows else [node]
    return graph.with_nodes(nodes)


def _window(node: Node) -> Window | None:
    """Return the window of a two-dimensional MaxPool with stride 1; None for any other node."""
    kernel = tuple(node.attributes.get("kernel_shape", ()))
    if node.op != "MaxPool" or len(kernel) != 2 or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return None
    if any(step != 1 for name in ("strides", "dilations") for step in node.attributes.get(name) or ()):
        return None
    return Window(kernel, tuple(node.attributes.get("pads") or (0, 0, 0, 0)))


def _nested(pools: Sequence[Node], windows: Mapping[str, Window]) -> list[Node]:
    """Return the pools of one tensor, each reading the largest other one that it can be made of."""
    made: list[Node] = []
    for pool in sorted(pools, key=lambda node: math.prod(windows[node.output].kernel)):
        rest = [(smaller.output, left) for smaller in reversed(made)
                if (left := _rest(windows[pool.output], windows[smaller.output])) is not None]
        if rest:
            source, (kernel, pads) = rest[0]
            pool = pool.replace(inputs=(source,),
                                attributes={**pool.attributes, "kernel_shape": kernel, "pads": pads})
        made.append(pool)
    return made


def _rest(large: Window, small: Window) -> Window | None:
    """Return the window that makes ``large`` from the results of ``small``, or None if there is none.

    It has fewer pads on a side than its kernel has pixels, so that each of its windows holds a result of ``small``."""
    kernel = tuple(one - other + 1 for one, other in zip(large.kernel, small.kernel, strict=True))
    pads = tuple(one - other for one, other in zip(large.pads, small.pads, strict=True))
    possible = max(small.kernel) > 1 and all(0 <= pad < kernel[side % 2] for side, pad in enumerate(pads))
    return Window(kernel, pads) if possible else None
