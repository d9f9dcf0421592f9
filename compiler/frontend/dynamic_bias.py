# SPDX-License-Identifier: Apache-2.0
"""Biases that are quantised while the network runs, as real numbers.

Older quantizers of onnxruntime divide a constant bias by the product of both scales, round it, cast it to an integer
and add it to the bytes' convolution before that becomes real. Here the convolution becomes real first, and the bias is
neither rounded nor cast."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import onnx
from onnx import TensorProto, helper

ROUNDINGS = ("Floor", "Round")
PLACINGS = ("Reshape", "Unsqueeze")
"""Operators that give the bias the rank of the convolution's result."""


def real_biases(graph: onnx.GraphProto, known: Collection[str]) -> None:
    """Rewrite the graph's sums of a convolution of bytes and such a bias; ``known``: names of constants."""
    makers = {name: node for node in graph.node for name in node.output}
    chains: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        if node.op_type == "Add" and len(node.input) == 2:
            for product, bias in (tuple(node.input), tuple(reversed(node.input))):
                chain = _chain(makers, bias, known)
                if chain and product in makers and makers[product].op_type == "ConvInteger":
                    chains[node.output[0]] = chain
    copied = {rounding.output[0] for chain in chains.values() for rounding in chain}
    nodes = []
    for node in graph.node:
        if node.output[0] in copied:
            node = helper.make_node("Identity", node.input, node.output, name=node.name)
        if node.output[0] in chains:
            product = next(name for name in node.input if makers[name].op_type == "ConvInteger")
            real = f"{product}/real"
            nodes.append(helper.make_node("Cast", [product], [real], name=f"{node.name}/Cast", to=TensorProto.FLOAT))
            node = helper.make_node("Add", [real if name == product else name for name in node.input], node.output,
                                    name=node.name)
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _chain(makers: Mapping[str, onnx.NodeProto], name: str, known: Collection[str]) -> list[onnx.NodeProto]:
    """Return the rounding and the cast that make the bias ``name`` of a constant; empty if it is made otherwise."""
    while name in makers and makers[name].op_type in PLACINGS:
        name = makers[name].input[0]
    cast = makers.get(name)
    rounding = makers.get(cast.input[0]) if cast is not None and cast.op_type == "Cast" else None
    division = makers.get(rounding.input[0]) if rounding is not None and rounding.op_type in ROUNDINGS else None
    if cast is None or rounding is None or division is None or division.op_type != "Div":
        return []
    return [rounding, cast] if division.input[0] in known else []
