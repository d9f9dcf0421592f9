# SPDX-License-Identifier: Apache-2.0
"""Windows of convolutions and pools: one axis becomes two, padding is made explicit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.compiler.errors import refuse_node
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.rewrite import PartPlace, Rewrite
from weft.tmodel.window import Window


def two_axes(state: Rewrite, node: Node, kernel: Sequence[int]) -> tuple[int, int]:
    """Return a kernel over one or two axes as (height, width). Raise CompileError for other inputs."""
    rank = len(state.graph.shapes[node.input(0)])
    if rank not in (3, 4) or len(kernel) != rank - 2:
        raise state.refusal(node, f"shape of input 0 ({node.input(0)!r})", list(state.graph.shapes[node.input(0)]),
                            "3 or 4 dimensions (networks over one or two axes)")
    return (1, kernel[0]) if rank == 3 else (kernel[0], kernel[1])


def pair(node: Node, name: str, default: int = 1) -> tuple[int, int]:
    """Return an attribute of one or two integers as (height, width)."""
    value = tuple(node.attributes.get(name, ())) or (default,) * 2
    return (default, value[0]) if len(value) == 1 else (value[0], value[1])


def four(node: Node, name: str) -> tuple[int, int, int, int]:
    """Return an attribute with padding as (top, left, bottom, right)."""
    value = tuple(node.attributes.get(name, ())) or (0, 0, 0, 0)
    return (0, value[0], 0, value[1]) if len(value) == 2 else (value[0], value[1], value[2], value[3])


def window_attributes(node: Node, kernel: Sequence[int], size: Sequence[int]) -> dict[str, Any]:
    """Return strides, dilations and pads (top, left, bottom, right) of a node over an image of ``size``."""
    strides, dilations = pair(node, "strides"), pair(node, "dilations")
    return {"strides": strides, "dilations": dilations, "pads": _pads(node, kernel, size, strides, dilations)}


def _pads(node: Node, kernel: Sequence[int], size: Sequence[int], strides: Sequence[int],
          dilations: Sequence[int]) -> tuple[int, ...]:
    """Return the pads (top, left, bottom, right) of a node, from ``pads`` or ``auto_pad``."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return four(node, "pads")
    if mode == "VALID":
        return (0, 0, 0, 0)
    before, after = [], []
    for axis in range(2):
        outputs = -(-size[axis] // strides[axis])
        total = max((outputs - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - size[axis], 0)
        small, large = total // 2, total - total // 2
        before.append(small if mode == "SAME_UPPER" else large)
        after.append(large if mode == "SAME_UPPER" else small)
    return (*before, *after)


def transposed_pads(node: Node, kernel: Sequence[int], source: Sequence[int],
                    result: Sequence[int]) -> tuple[int, int]:
    """Return how many pixels a ConvTranspose cuts off above and left.

    ``source`` and ``result`` are sizes from :func:`image_size`."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return 0, 0
    if mode == "NOTSET" and "output_shape" not in node.attributes:
        return four(node, "pads")[:2]
    strides, dilations, extra = pair(node, "strides"), pair(node, "dilations"), pair(node, "output_padding", 0)
    begin = []
    for axis in range(2):
        total = strides[axis] * (source[1 + axis] - 1) + extra[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        total = max(total - result[1 + axis], 0)
        begin.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return begin[0], begin[1]


def no_window_empty(node: Node, attributes: Mapping[str, Any], size: Sequence[int], outputs: Sequence[int]) -> None:
    """Raise CompileError if a window sees only padding, because the maximum of nothing has no value."""
    kernel, strides, pads, dilations = (attributes[key] for key in ("kernel_shape", "strides", "pads", "dilations"))
    window = Window(kernel, strides, pads[:2], dilations)
    for axis, name in enumerate(("row", "column")):
        empty = [output for output in range(outputs[axis]) if not window.reads(axis, output, (0, size[axis]))]
        if empty:
            raise refuse_node(node, f"window of output {name} {empty[0]}", "only padding",
                              "a pixel of the image in every window", "reduce pads, or set ceil_mode=0")


def image_size(graph: Graph, name: str) -> tuple[int, int, int]:
    """Return batch, height and width of a tensor of 3 or 4 dimensions."""
    shape = graph.shapes[name]
    return shape[0], (shape[2] if len(shape) == 4 else 1), shape[-1]


def images(state: Rewrite, node: Node, source: str) -> list[str]:
    """Return the images of a batch, which lie below each other in ``source``, as views of it; of one as it is."""
    batch, height, width = image_size(state.graph, node.input(0))
    if batch == 1:
        return [source]
    return [state.view(node, source, (height, width), number * height * width, width, 1) for number in range(batch)]


def per_image(state: Rewrite, node: Node, source: str, run: Callable[[str], str]) -> str:
    """Return the result of ``run`` on every image of a batch; images and results lie below each other."""
    found = images(state, node, source)
    if len(found) == 1:
        return run(source)
    parts: list[tuple[str, PartPlace]] = []
    row = 0
    for image in found:
        made = run(image)
        _, channels, rows, columns = state.shapes[made]
        parts.append((made, PartPlace(0, row * columns, columns, 1)))
        row += rows
    return state.assemble(node, parts, (1, channels, row, columns), "batch")
