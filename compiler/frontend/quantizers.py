# SPDX-License-Identifier: Apache-2.0
"""Turn QuantizeLinear and DequantizeLinear into a graph of real numbers, in which a node FakeQuantize rounds.

FakeQuantize(x) with ``scale`` and ``zero`` is DequantizeLinear(QuantizeLinear(x)): real numbers that a signed byte can
encode. Nothing that computes is folded over it. Tensors of bytes become the real numbers that they mean."""

from __future__ import annotations

import dataclasses

import numpy as np

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.check_quantizers import BYTES, DEQUANTIZE, QUANTISE_AGAIN, QUANTIZE, check_parameters
from weft.compiler.frontend.graph import Graph, Node
from weft.tmodel.scales import SHIFTS, TensorScale

FAKE_QUANTIZE = "FakeQuantize"

MOVES = frozenset({"Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "Identity", "Max", "MaxPool", "Min", "Pad",
                   "ReduceMax", "ReduceMin", "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
                   "Transpose", "Unsqueeze", "Upsample"})
"""Operators whose results have the scale of their input, as they only choose among its bytes."""

PRODUCTS = {"ConvInteger": "Conv", "MatMulInteger": "MatMul"}
"""Products of bytes -> products of real numbers. Inputs: two operands, then their zero points."""

PAD_VALUE = 2
"""The input of a Pad that is a byte too."""


def has_quantizers(graph: Graph) -> bool:
    """Tell whether a graph has QuantizeLinear or DequantizeLinear."""
    return any(node.op in (QUANTIZE, DEQUANTIZE) for node in graph.nodes)


def with_fake_quantizers(graph: Graph) -> Graph:
    """Return the same network without QuantizeLinear and DequantizeLinear.

    Those whose scales are found while it runs stay. Raise CompileError for a scale that is not of the whole tensor, and
    for operators that compute on bytes."""
    return _Reader(graph).read() if has_quantizers(graph) else graph


class _Reader:
    """The network while it is rewritten; ``scales`` of tensors of bytes so far, in the graph's order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.consumers = graph.consumers()
        self.scales: dict[str, TensorScale] = {}
        self.constants: dict[str, np.ndarray] = {}

    def read(self) -> Graph:
        """Return the graph without QuantizeLinear and DequantizeLinear, on real numbers."""
        inputs = []
        for port in self.graph.inputs:
            found = self._of_input(port.tensor) if port.type in BYTES else None
            if found is not None:
                self.scales[port.tensor] = found
            inputs.append(dataclasses.replace(port, quantized=found))
        nodes = [self._node(node) for node in self.graph.nodes]
        outputs = [dataclasses.replace(port, quantized=self.scales.get(port.tensor)) for port in self.graph.outputs]
        types = {name: kind for name, kind in self.graph.types.items() if name not in self.scales}
        graph = self.graph.replace(inputs=tuple(inputs), outputs=tuple(outputs), types=types)
        return graph.with_nodes(nodes, self.constants)

    def _of_input(self, name: str) -> TensorScale | None:
        """Return the scale of an input's bytes, from the first DequantizeLinear that they reach, or None."""
        for reader in self.consumers.get(name, []):
            if reader.op == DEQUANTIZE and reader.input(0) == name:
                return self._scale(reader)
            if reader.op in MOVES:
                found = self._of_input(reader.output)
                if found is not None:
                    return found
        return None

    def _node(self, node: Node) -> Node:
        """Return the node that replaces a node."""
        if node.op in (QUANTIZE, DEQUANTIZE) and not self._is_known(node):
            return node
        if node.op == QUANTIZE:
            scale = self._scale(node)
            self.scales[node.output] = scale
            return Node(node.name, FAKE_QUANTIZE, node.inputs[:1], node.outputs, scale._asdict())
        if node.op == DEQUANTIZE:
            return self._dequantised(node)
        read = {name: self.scales[name] for name in node.inputs if name in self.scales}
        if not read:
            return node
        if node.op not in MOVES:
            other = f" and take {PRODUCTS[node.op]} instead" if node.op in PRODUCTS else ""
            raise refuse_node(node, f"input {next(iter(read))!r}", "bytes of a quantised tensor", "real numbers; only "
                              f"{', '.join(sorted(MOVES))} take bytes", f"put DequantizeLinear in front of it{other}")
        if len(set(read.values())) > 1:
            raise refuse_node(node, "scales of its inputs", ", ".join(f"{entry.scale:.6g}" for entry in read.values()),
                              "one scale and zero point", "put DequantizeLinear in front of it")
        scale = next(iter(read.values()))
        self.scales |= dict.fromkeys(filter(None, node.outputs), scale)
        return self._with_real_constants(node, scale)

    def _is_known(self, node: Node) -> bool:
        """Tell whether a quantizer's scale and zero point are constants; else it is not for the machine."""
        return all(self.graph.is_constant(name) for name in node.inputs[1:] if name)

    def _with_real_constants(self, node: Node, scale: TensorScale) -> Node:
        """Return a node whose constants of bytes have become real numbers."""
        if node.op in ("Resize", "Upsample") and node.attributes.get("mode", "nearest") != "nearest":
            raise refuse_node(node, "attribute mode", node.attributes["mode"], "nearest, where it reads bytes",
                              "put DequantizeLinear in front of it")
        held = {number: self.graph.constants[name] for number, name in enumerate(node.inputs)
                if self.graph.is_constant(name) and str(self.graph.constants[name].dtype) in BYTES}
        if node.op == "Pad" and not node.input(PAD_VALUE):
            held[PAD_VALUE] = np.zeros((), self.graph.type(node.input(0)))
        names = [node.input(number) for number in range(max([len(node.inputs), *(number + 1 for number in held)]))]
        for number, value in held.items():
            names[number] = f"{node.output}/real{number}"
            signed = value.astype(np.int64) - SHIFTS[str(value.dtype)]
            self.constants[names[number]] = scale.dequantize(signed).astype(np.float32)
        return node.replace(inputs=tuple(names))

    def _dequantised(self, node: Node) -> Node:
        """Return the Identity that replaces a DequantizeLinear. Raise CompileError for other bytes."""
        source, scale = node.input(0), self._scale(node)
        if source not in self.scales:
            raise refuse_node(node, f"input {source!r}", f"{self.graph.type(source)} that no QuantizeLinear made",
                              "bytes of QuantizeLinear, or constants",
                              f"quantise it with QuantizeLinear of constant scales, or {ON_HOST}")
        if self.scales[source] != scale:
            found, made = scale, self.scales[source]
            raise refuse_node(node, "scale and zero point", f"{found.scale:.6g}, {found.zero}",
                              f"those of its input {source!r}: {made.scale:.6g}, {made.zero}", QUANTISE_AGAIN)
        return Node(node.name, "Identity", (source,), node.outputs)

    def _scale(self, node: Node) -> TensorScale:
        """Return the scale and zero point of the whole tensor, the zero point as a signed byte."""
        check_parameters(node, self.graph.constants, node.input(0), node.input(1), node.input(2), 0)
        scale = self.graph.constants[node.input(1)]
        zero = self.graph.constants[node.input(2)] if node.input(2) else np.zeros(1, np.uint8)
        kind = str(zero.dtype)
        if node.op == QUANTIZE and not node.input(2):
            kind = self.graph.type(node.output)
        elif node.op == DEQUANTIZE and not node.input(2):
            kind = self.graph.type(node.input(0))
        if kind not in BYTES:
            raise refuse_node(node, f"type of {node.input(0)!r}", kind, " or ".join(BYTES), QUANTISE_AGAIN)
        if scale.size != 1:
            raise refuse_node(node, f"scale {node.input(1)!r}", f"{scale.size} numbers", "one for the tensor: only "
                              "constants may have one a channel", "quantise activations per tensor")
        return TensorScale(float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0]) - SHIFTS[kind])


def scale_of(node: Node) -> TensorScale:
    """Return the scale and zero point of a FakeQuantize."""
    return TensorScale(node.attributes["scale"], node.attributes["zero"])
