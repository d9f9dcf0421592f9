# SPDX-License-Identifier: Apache-2.0
"""Pools that round sizes up (``ceil_mode``), and whose last window would lie behind the image.

onnxruntime and PyTorch leave such a window out, and so does ONNX as of opset 22. Shape inference for older opsets
counts it. So these pools get pads that say the same without a doubt, before shapes are inferred."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Shape

POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
EXPORT_PLAIN = "export the model again with ceil_mode=0"


@dataclass(frozen=True)
class Axis:
    """A pool along one axis; ``extent``: from a window's first pixel to its last one."""

    size: int
    extent: int
    stride: int
    before: int
    after: int

    @property
    def whole(self) -> int:
        """The number of windows that lie within image and pads."""
        return (self.size + self.before + self.after - self.extent) // self.stride + 1

    @property
    def rounded(self) -> int:
        """The number of windows if a last one may begin within the pads and end anywhere."""
        return -(-(self.size + self.before + self.after - self.extent) // self.stride) + 1

    @property
    def begun(self) -> int:
        """The number of windows if a last one must begin on the image or before it, and may end anywhere."""
        late = (self.rounded - 1) * self.stride >= self.size + self.before
        return self.whole if late else self.rounded

    @property
    def end(self) -> int:
        """The pixels behind the image that the last window of ``begun`` covers; negative if it ends before."""
        return (self.begun - 1) * self.stride + self.extent - self.size - self.before


def may_round_up(node: onnx.NodeProto) -> bool:
    """Tell whether a pool rounds its size up and says its pads itself."""
    values = _values(node) if node.op_type in POOLS else {}
    return values.get("ceil_mode", 0) == 1 and values.get("auto_pad", b"NOTSET") == b"NOTSET" and (
        "kernel_shape" in values)


def leave_out_last(node: onnx.NodeProto, shape: Shape) -> bool:
    """Leave the last windows that begin behind the image out of a pool (:func:`may_round_up`) of ``shape``.

    Return whether there were any. The node is changed. Raise CompileError where no pads can say it."""
    values, axes = _values(node), _axes(node, shape)
    if all(axis.begun == axis.rounded for axis in axes):
        return False
    if all(axis.begun == axis.whole for axis in axes):
        values["ceil_mode"], ends = 0, [axis.after for axis in axes]
    elif all(axis.end >= 0 for axis in axes):
        ends = [min(axis.end, axis.after) for axis in axes]
    else:  # a stride is beyond its kernel, and another axis needs ceil_mode
        values["ceil_mode"], ends = 0, [max(axis.end, axis.after) for axis in axes]
        kernel: list[int] = values["kernel_shape"]  # type: ignore[assignment]
        if values.get("count_include_pad", 0) or any(pads >= taps for pads, taps in zip(ends, kernel, strict=True)):
            raise refuse(f"node {node.name!r}, operator {node.op_type}", "ceil_mode=1 with a window that begins behind "
                         "the image, whose place no pads can say", "windows that begin on the image", EXPORT_PLAIN)
    values["pads"] = [*(axis.before for axis in axes), *ends]
    del node.attribute[:]
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in values.items())
    return True


def _values(node: onnx.NodeProto) -> dict[str, object]:
    """Return the attributes of a node."""
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _axes(node: onnx.NodeProto, shape: Shape) -> list[Axis]:
    """Return the axes of a pool over an image of ``shape``; none if its attributes do not fit it."""
    values: Mapping[str, list[int]] = _values(node)  # type: ignore[assignment]
    kernel, rank = values["kernel_shape"], len(shape) - 2
    strides, dilations = values.get("strides", [1] * rank), values.get("dilations", [1] * rank)
    pads = values.get("pads", [0] * 2 * rank)
    if not len(kernel) == len(strides) == len(dilations) == rank or len(pads) != 2 * rank or min(strides) < 1:
        return []
    return [Axis(shape[2 + axis], (kernel[axis] - 1) * dilations[axis] + 1, strides[axis], pads[axis],
                 pads[rank + axis]) for axis in range(rank)]
