"""Windows of convolutions and pools: padding made explicit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.compiler.errors import refuse_node
from weft.compiler.frontend.graph import Node


def window_attributes(node: Node, kernel: Sequence[int], size: Sequence[int]) -> dict[str, Any]:
    """strides, dilations and pads (top, left, bottom, right) of a node over an image of ``size``."""
    if tuple(node.attributes.get("kernel_shape", kernel)) != tuple(kernel):
        raise refuse_node(node, "attribute kernel_shape", node.attributes["kernel_shape"],
                          f"the shape of the weights, {tuple(kernel)}", "correct the model")
    strides = tuple(node.attributes.get("strides", (1, 1)))
    dilations = tuple(node.attributes.get("dilations", (1, 1)))
    pads = _pads(node, kernel, size, strides, dilations)
    return {"strides": strides, "dilations": dilations, "pads": pads}


def _pads(node: Node, kernel: Sequence[int], size: Sequence[int], strides: Sequence[int],
          dilations: Sequence[int]) -> tuple[int, ...]:
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(node.attributes.get("pads", (0, 0, 0, 0)))
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


def no_window_empty(node: Node, attributes: Mapping[str, Any], size: Sequence[int], outputs: Sequence[int]) -> None:
    """The maximum of nothing but padding has no value."""
    strides, pads = attributes["strides"], attributes["pads"]
    for axis in range(2):
        if (outputs[axis] - 1) * strides[axis] - pads[axis] >= size[axis]:
            raise refuse_node(node, "last window", "only padding", "a pixel of the image in every window",
                              "reduce pads, or set ceil_mode=0")


def average_divisor_ok(node: Node, pads: Sequence[int]) -> None:
    """Every window must have the same divisor, so padding must count."""
    if any(pads) and not node.attributes.get("count_include_pad", 0):
        raise refuse_node(node, "attribute pads", tuple(pads), "no padding, or count_include_pad=1",
                          "set count_include_pad=1 or pad with a Pad node of your own")
