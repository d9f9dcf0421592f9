# SPDX-License-Identifier: Apache-2.0
"""Transposed convolutions of ``auto_pad`` SAME with an ``output_padding``.

onnxruntime makes stride times as many pixels as there are. Shape inference of ONNX adds the output padding to that. So
these get pads that say onnxruntime's sizes without a doubt, before shapes are inferred."""

from __future__ import annotations

import onnx

SAME = (b"SAME_UPPER", b"SAME_LOWER")


def write_pads(graph: onnx.GraphProto) -> None:
    """Write the pads of each such node whose kernel is known."""
    kernels = {tensor.name: list(tensor.dims[2:]) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "ConvTranspose" and len(node.input) > 1:
            values = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
            kernel = values.get("kernel_shape") or kernels.get(node.input[1], [])
            if values.get("auto_pad") in SAME and any(values.get("output_padding", ())) and kernel:
                _write(node, values, kernel)


def _write(node: onnx.NodeProto, values: dict[str, object], kernel: list[int]) -> None:
    """Write pads in place of ``auto_pad``, if all attributes have a number for each axis of the kernel."""
    ones = [1] * len(kernel)
    strides, dilations, more = (list(values.get(name) or ones)  # type: ignore[call-overload]
                                for name in ("strides", "dilations", "output_padding"))
    if not len(strides) == len(dilations) == len(more) == len(kernel) or "output_shape" in values:
        return
    totals = [max((taps - 1) * dilation + 1 + extra - stride, 0)
              for taps, dilation, extra, stride in zip(kernel, dilations, more, strides, strict=True)]
    less, rest = [total // 2 for total in totals], [total - total // 2 for total in totals]
    pads = [*less, *rest] if values["auto_pad"] == SAME[0] else [*rest, *less]
    kept = [entry for entry in node.attribute if entry.name not in ("auto_pad", "pads")]
    del node.attribute[:]
    node.attribute.extend([*kept, onnx.helper.make_attribute("pads", pads)])
