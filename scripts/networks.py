# SPDX-License-Identifier: Apache-2.0
"""Benchmark networks whose topology is built here with seeded random weights: cycles do not depend on the values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 13


class Builder:
    """A network to which nodes are appended; ``channels``: name of a tensor -> its channels."""

    def __init__(self, seed: int, channels: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.channels = {"input": channels}

    def constant(self, values: np.ndarray) -> str:
        """Add a constant; return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, inputs: list[str], channels: int, **attributes: object) -> str:
        """Add a node; return the name of its result."""
        output = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        self.channels[output] = channels
        return output

    def conv(self, x: str, channels: int, kernel: int, stride: int = 1) -> str:
        """Add a convolution with zero padding, which keeps the size but for the stride; return its result."""
        fan_in = self.channels[x] * kernel**2
        weights = self.random.normal(0, fan_in**-0.5, (channels, self.channels[x], kernel, kernel)).astype(np.float32)
        bias = self.random.normal(0, 0.1, channels).astype(np.float32)
        return self.node("Conv", [x, self.constant(weights), self.constant(bias)], channels,
                         kernel_shape=[kernel] * 2, pads=[kernel // 2] * 4, strides=[stride] * 2)

    def norm(self, x: str) -> str:
        """Add a batch normalisation; return its result."""
        count = self.channels[x]
        rows = (self.random.uniform(0.5, 1.5, count), self.random.normal(0, 0.1, count),
                self.random.normal(0, 0.1, count), self.random.uniform(0.5, 1.5, count))
        return self.node("BatchNormalization", [x, *(self.constant(row.astype(np.float32)) for row in rows)], count)

    def relu(self, x: str) -> str:
        """Add a ReLU; return its result."""
        return self.node("Relu", [x], self.channels[x])

    def leaky(self, x: str) -> str:
        """Add a LeakyRelu; return its result."""
        return self.node("LeakyRelu", [x], self.channels[x], alpha=0.1)

    def add(self, x: str, y: str) -> str:
        """Add a sum; return its result."""
        return self.node("Add", [x, y], self.channels[x])

    def concat(self, *parts: str) -> str:
        """Add a Concat of channels; return its result."""
        return self.node("Concat", list(parts), sum(self.channels[part] for part in parts), axis=1)

    def max_pool(self, x: str, kernel: int, stride: int, pad: int) -> str:
        """Add a max pool; return its result."""
        return self.node("MaxPool", [x], self.channels[x], kernel_shape=[kernel] * 2, strides=[stride] * 2,
                         pads=[pad] * 4)

    def classify(self, x: str, classes: int) -> str:
        """Add global pooling and a dense layer; return its result."""
        pooled = self.node("Flatten", [self.node("GlobalAveragePool", [x], self.channels[x])], self.channels[x])
        weights = self.random.normal(0, self.channels[x]**-0.5, (classes, self.channels[x])).astype(np.float32)
        bias = np.zeros(classes, np.float32)
        return self.node("Gemm", [pooled, self.constant(weights), self.constant(bias)], classes, transB=1)

    def save(self, path: Path, size: int, outputs: list[str]) -> None:
        """Write the network for images of ``size`` pixels a side; the shapes of ``outputs`` are inferred."""
        given = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, self.channels["input"], size, size])
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(self.nodes, path.stem, [given], made, self.constants)
        model = onnx.shape_inference.infer_shapes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8))
        known = {value.name: value for value in model.graph.value_info}
        del model.graph.output[:]
        model.graph.output.extend(known[name] for name in outputs)
        onnx.save(model, path)


def preactivated(net: Builder, x: str, inner: int, outer: int, stride: int, stride_at: int, *, first: bool) -> str:
    """Add a bottleneck unit; return its result.

    ``stride_at``: which of its convolutions has the stride, as the shortcut's has. ``first``: its input is
    normalised already."""
    ready = x if first else net.relu(net.norm(x))
    y = ready
    for place, (channels, kernel) in enumerate(((inner, 1), (inner, 3), (outer, 1))):
        y = net.conv(y, channels, kernel, stride if place == stride_at else 1)
        y = net.relu(net.norm(y)) if place < 2 else y
    if net.channels[x] != outer or stride > 1:
        x = net.conv(x if stride_at == 0 else ready, outer, 1, stride)
    return net.add(x, y)


def resnet20v2(path: Path) -> None:
    """Write ResNet-20 v2 for 32 x 32 pixels, as Keras' example builds it (He et al. 2016, bottlenecks)."""
    net = Builder(20, 3)
    x = net.relu(net.norm(net.conv("input", 16, 3)))
    inner = 16
    for stage, outer in enumerate((64, 128, 256)):
        for unit in range(2):
            first = unit == 0
            x = preactivated(net, x, inner, outer, 2 if stage and first else 1, 0, first=stage == 0 and first)
        inner = outer
    net.save(path, 32, [net.classify(net.relu(net.norm(x)), 10)])


def resnet50v2(path: Path) -> None:
    """Write ResNet-50 v2 for 224 x 224 pixels (He et al. 2016): stride in the 3x3 convolution, as in the ONNX zoo."""
    net = Builder(50, 3)
    x = net.max_pool(net.relu(net.norm(net.conv("input", 64, 7, 2))), 3, 2, 1)
    for stage, units in enumerate((3, 4, 6, 3)):
        for unit in range(units):
            stride = 2 if stage and unit == 0 else 1
            x = preactivated(net, x, 64 << stage, 256 << stage, stride, 1, first=False)
    net.save(path, 224, [net.classify(net.relu(net.norm(x)), 1000)])


def yolov4_tiny(path: Path) -> None:
    """Write YOLOv4-tiny for 192 x 192 pixels and 80 classes (Wang et al. 2021), two heads."""
    net = Builder(4, 3)
    x = net.leaky(net.conv(net.leaky(net.conv("input", 32, 3, 2)), 64, 3, 2))
    fine = x
    for channels in (64, 128, 256):
        whole = net.leaky(net.conv(x, channels, 3))
        half = [net.constant(np.array(values, np.int64)) for values in ([channels // 2], [channels], [1])]
        part = net.node("Slice", [whole, *half], channels // 2)
        first = net.leaky(net.conv(part, channels // 2, 3))
        second = net.leaky(net.conv(first, channels // 2, 3))
        fine = net.leaky(net.conv(net.concat(second, first), channels, 1))
        x = net.max_pool(net.concat(whole, fine), 2, 2, 0)
    neck = net.leaky(net.conv(net.leaky(net.conv(x, 512, 3)), 256, 1))
    coarse_head = net.conv(net.leaky(net.conv(neck, 512, 3)), 255, 1)
    up = net.leaky(net.conv(neck, 128, 1))
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    up = net.node("Resize", [up, "", scales], 128, mode="nearest", coordinate_transformation_mode="asymmetric",
                  nearest_mode="floor")
    fine_head = net.conv(net.leaky(net.conv(net.concat(up, fine), 256, 3)), 255, 1)
    net.save(path, 192, [coarse_head, fine_head])


NETWORKS: dict[str, Callable[[Path], None]] = {
    "resnet20v2": resnet20v2, "resnet50v2_224": resnet50v2, "yolov4_tiny_192": yolov4_tiny,
}
"""Name -> the function that writes the ONNX file."""
