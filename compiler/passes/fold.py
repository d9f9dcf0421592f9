# SPDX-License-Identifier: Apache-2.0
"""Pass: a factor and an offset for each channel, after a convolution, are folded into its weights and bias.

One factor after a product is folded into the convolution before the limits of one of its operands. One factor of which
only convolutions read is folded into their weights."""

from __future__ import annotations

import numpy as np

from weft.compiler.frontend.graph import Bound, Graph, Node, Within


def is_channelwise(graph: Graph, node: Node) -> bool:
    """Tell whether a node is a 1x1 convolution with one weight a channel: y[c] = scale[c] * x[c] + shift[c]."""
    if node.op != "Conv" or any(node.attributes["pads"]) or node.attributes["strides"] != (1, 1):
        return False
    weights = graph.constants[node.input(1)]
    return weights.shape[1:] == (1, 1, 1) and node.attributes["group"] == weights.shape[0]


def fold_channelwise(graph: Graph) -> Graph:
    """Return the graph with channelwise factors and offsets folded into the convolutions before them.

    Only convolutions without another reader are changed. A factor may come from BatchNormalization or a constant."""
    made: dict[str, Node] = {}
    constants = dict(graph.constants)
    for node in graph.nodes:
        before = made.get(node.input(0))
        alone = graph.has_one_reader(node.input(0))
        if before is not None and before.op == "Conv" and alone and is_channelwise(graph, node):
            node = _merge(before, node, constants)
            del made[before.output]
        elif before is not None and before.op == "Mul" and alone and is_channelwise(graph, node):
            node = _into_gate(graph, made, before, node, constants) or node
        made[node.output] = node
    folded, bounds = graph.replace(nodes=tuple(made.values()), constants=constants), dict(graph.bounds)
    for node in folded.nodes:
        _into_readers(folded, made, node.output, constants, bounds)
    return graph.replace(bounds=bounds).with_nodes(made.values(), constants)


def _into_readers(graph: Graph, made: dict[str, Node], name: str, constants: dict[str, np.ndarray],
                  bounds: dict[str, Bound]) -> None:
    """Fold the factor of the node in ``made`` that makes ``name`` into the convolutions that read it, if it applies.

    It applies only to one factor for all channels, without an offset, of which nothing but convolutions reads. The
    ``constants`` of ``graph`` grow. ``bounds`` by ``name`` become bounds by what it was made of."""
    scaling = made[name]
    readers = [made[reader.output] for reader in graph.consumers().get(name, [])]
    if not is_channelwise(graph, scaling) or name in graph.output_tensors() or any(
            reader.op != "Conv" for reader in readers):
        return
    factor, offset = (constants[entry].astype(np.float64).reshape(-1) for entry in scaling.inputs[1:])
    if offset.any() or (factor != factor[0]).any():
        return
    for reader in readers:
        scaled = f"{reader.output}/scaled_weights"
        constants[scaled] = (constants[reader.input(1)] * factor[0]).astype(np.float32)
        made[reader.output] = reader.replace(inputs=(scaling.input(0), scaled, *reader.inputs[2:]))
    del made[name]
    for tensor, bound in bounds.items():
        if isinstance(bound, Within) and bound.source == name:
            bounds[tensor] = bound._replace(source=scaling.input(0), factor=bound.factor * float(factor[0]))


def _into_gate(graph: Graph, made: dict[str, Node], product: Node, scaling: Node,
               constants: dict[str, np.ndarray]) -> Node | None:
    """Return c (x y) rewritten as x (c y), where y is a convolution limited to 0..m; None if it does not apply.

    c is folded into that convolution, which is then limited to 0..c m. So a hard swish as networks spell it, x * clip(x
    + 3, 0, 6) / 6, needs no layer that divides. It applies only to one c > 0 without an offset."""
    factor, offset = (constants[name].astype(np.float64).reshape(-1) for name in scaling.inputs[1:])
    if offset.any() or factor[0] <= 0 or (factor != factor[0]).any():
        return None

    def own(name: str, *ops: str) -> Node | None:
        """Return the node that makes a tensor, if it is one of these operators and nobody else reads it."""
        maker = made.get(name)
        return maker if maker is not None and maker.op in ops and graph.has_one_reader(name) else None

    for gate in filter(None, (own(name, "Clip", "Relu") for name in product.inputs)):
        conv = own(gate.input(0), "Conv")
        if conv is None:
            continue
        sources = *conv.inputs[1:], *gate.inputs[1:]
        names = [f"{gate.output}/scaled.{number}" for number in range(len(sources))]
        for name, source in zip(names, sources, strict=True):
            constants[name] = (constants[source].astype(np.float64) * factor[0]).astype(np.float32)
        made[conv.output] = conv.replace(inputs=(conv.input(0), *names[:2]))
        made[gate.output] = gate.replace(inputs=(gate.input(0), *names[2:]))
        del made[product.output]
        return product.replace(outputs=scaling.outputs)
    return None


def _merge(conv: Node, scaling: Node, constants: dict[str, np.ndarray]) -> Node:
    """Return ``conv`` with the factors and offsets of ``scaling`` in its weights and bias.

    Add the new weights and bias to ``constants``."""
    weights, bias = (constants[name].astype(np.float64) for name in conv.inputs[1:])
    scale = constants[scaling.input(1)].astype(np.float64).reshape(-1)
    shift = constants[scaling.input(2)].astype(np.float64)
    names = (f"{scaling.output}/weights", f"{scaling.output}/bias")
    constants[names[0]] = (weights * scale[:, None, None, None]).astype(np.float32)
    constants[names[1]] = (bias * scale + shift).astype(np.float32)
    return conv.replace(name=f"{conv.name}+{scaling.name}", inputs=(conv.input(0), *names), outputs=scaling.outputs)
