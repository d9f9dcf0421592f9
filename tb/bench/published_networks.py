# SPDX-License-Identifier: Apache-2.0
"""The networks of the published schedules, ResNet-50 and GoogLeNet, with seeded random weights.

Nodes have the names that the schedules use; what has no layer there (a ReLU, a concatenation) has a name of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 224
"""Rows and columns of an image."""
INCEPTIONS = {  # 1x1, 3x3 reduced, 3x3, 5x5 reduced, 5x5, behind the pool
    "3a": (64, 96, 128, 16, 32, 32), "3b": (128, 128, 192, 32, 96, 64), "4a": (192, 96, 208, 16, 48, 64),
    "4b": (160, 112, 224, 24, 64, 64), "4c": (128, 128, 256, 24, 64, 64), "4d": (112, 144, 288, 32, 64, 64),
    "4e": (256, 160, 320, 32, 128, 128), "5a": (256, 160, 320, 32, 128, 128), "5b": (384, 192, 384, 48, 128, 128)}
STAGES = {2: (64, 3), 3: (128, 4), 4: (256, 6), 5: (512, 3)}
"""Stage of ResNet-50 -> inner channels and units."""


class Named:
    """A network whose nodes have the names of their results."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(50)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.channels = {"input": 3}

    def node(self, kind: str, name: str, inputs: list[str], channels: int, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        self.channels[name] = channels
        return name

    def conv(self, x: str, name: str, channels: int, kernel: int, stride: int = 1, relu: bool = True) -> str:
        shape = channels, self.channels[x], kernel, kernel
        values = self.random.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"{name}_weights"))
        made = self.node("Conv", name, [x, f"{name}_weights"], channels, kernel_shape=[kernel] * 2,
                         pads=[kernel // 2] * 4, strides=[stride] * 2)
        return self.relu(made) if relu else made

    def relu(self, x: str) -> str:
        return self.node("Relu", f"{x}_relu", [x], self.channels[x])

    def max_pool(self, x: str, name: str, stride: int) -> str:
        return self.node("MaxPool", name, [x], self.channels[x], kernel_shape=[3, 3], pads=[1] * 4,
                         strides=[stride] * 2)

    def save(self, x: str, path: Path) -> Path:
        """Write the network, which ends with pooling and a dense layer behind ``x``."""
        pooled = self.node("GlobalAveragePool", "pool5", [x], self.channels[x])
        end = self.conv(pooled, "fc", 1000, 1, relu=False)
        graph = helper.make_graph(self.nodes, path.stem, [helper.make_tensor_value_info(
            "input", TensorProto.FLOAT, [1, 3, SIZE, SIZE])], [onnx.ValueInfoProto(name=end)], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(onnx.shape_inference.infer_shapes(model), path)
        return path


def resnet50(folder: Path) -> Path:
    """Write ResNet-50, whose stages have their stride in the first convolution."""
    net = Named()
    x = net.max_pool(net.conv("input", "conv1", 64, 7, 2), "pool1", 2)
    for stage, (inner, units) in STAGES.items():
        for unit in range(units):
            stride, name = (2 if stage > 2 and unit == 0 else 1), f"conv_{stage}_{unit}"
            y = net.conv(net.conv(x, f"{name}_a", inner, 1, stride), f"{name}_b", inner, 3)
            y = net.conv(y, f"{name}_c", 4 * inner, 1, relu=False)
            if unit == 0:
                x = net.conv(x, f"conv_{stage}_br", 4 * inner, 1, stride, relu=False)
            x = net.relu(net.node("Add", f"{name}_res", [y, x], 4 * inner))
    return net.save(x, folder / "resnet50.onnx")


def googlenet(folder: Path) -> Path:
    """Write GoogLeNet without its side branches."""
    net = Named()
    x = net.max_pool(net.conv("input", "conv1", 64, 7, 2), "pool1", 2)
    x = net.max_pool(net.conv(net.conv(x, "conv2_3x3_reduce", 64, 1), "conv2_3x3", 192, 3), "pool2", 2)
    for block, sizes in INCEPTIONS.items():
        name = f"inception_{block}"
        if block in ("4a", "5a"):
            x = net.max_pool(x, f"pool{int(block[0]) - 1}", 2)
        branches = [net.conv(x, f"{name}_1x1", sizes[0], 1),
                    net.conv(net.conv(x, f"{name}_3x3_reduce", sizes[1], 1), f"{name}_3x3", sizes[2], 3),
                    net.conv(net.conv(x, f"{name}_5x5_reduce", sizes[3], 1), f"{name}_5x5", sizes[4], 5),
                    net.conv(net.max_pool(x, f"{name}_pool", 1), f"{name}_pool_proj", sizes[5], 1)]
        x = net.node("Concat", f"{name}_joined", branches, sum(net.channels[branch] for branch in branches), axis=1)
    return net.save(x, folder / "googlenet.onnx")


PUBLISHED: dict[str, Callable[[Path], Path]] = {"resnet_b1_2x2_SET_IR.json": resnet50,
                                                "goog_b1_2x2_SET_IR.json": googlenet}
"""File of a published schedule -> its network."""
