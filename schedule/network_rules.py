# SPDX-License-Identifier: Apache-2.0
"""Rules about a schedule and the network that it is for.

A layer has the name of a node or of its output. What follows a node and has no weights may be part of its layer, so
that the layer's ofmap has the shape of any of these nodes' outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.windows import window_attributes
from weft.schedule.boxes import Box
from weft.schedule.faults import Fault
from weft.schedule.model import Schedule, Workload
from weft.tmodel.window import Window

WEIGHTED = ("Conv", "ConvTranspose", "Gemm", "MatMul")
POOLS = ("MaxPool", "AveragePool")
Sizes = tuple[int, ...]


def faults_of_network(schedule: Schedule, graph: Graph) -> Iterator[Fault]:
    """Yield where a schedule differs from the network: names, shapes, what workloads read, and missing layers."""
    known = {name: node for node in graph.nodes for name in (*node.outputs, node.name)}
    for layer, workloads in schedule.layers.items():
        if layer not in known:
            yield Fault("network", "no node and no output of a node of this name", "a layer of the network",
                        workloads[0].id, layer, key="layer_name")
            continue
        yield from _layer_faults(graph, known[layer], workloads)
    for node in graph.nodes:
        if _is_weighted(graph, node) and not {node.name, *node.outputs} & schedule.layers.keys():
            yield Fault("network", "no workload", f"workloads that make {node.output}, of operator {node.op}",
                        layer=node.name or node.output, key="layer_name")


def _is_weighted(graph: Graph, node: Node) -> bool:
    return node.op in WEIGHTED and any(graph.is_constant(name) for name in node.inputs)


def _layer_faults(graph: Graph, node: Node, workloads: Sequence[Workload]) -> Iterator[Fault]:
    chain = _chain(graph, node)
    batch, *sizes = (max(workload.box.upper[axis] for workload in workloads) + 1 for axis in range(4))
    shapes = [_sizes(graph.shapes[each.output]) for each in chain]
    end = next((number for number, shape in enumerate(shapes)
                if shape[1:] == tuple(sizes) and batch % shape[0] == 0), None)
    if end is None:
        yield Fault("network", f"an ofmap of {[batch, *sizes]}", " or ".join(str(list(shape)) for shape in
                                                                          dict.fromkeys(shapes)),
                    workloads[0].id, workloads[0].layer, key="workload")
        return
    for workload in workloads:
        need = _need(graph, chain[:end + 1], workload.box)
        if need is not None and not any(need.within(ifmap.box) for ifmap in workload.ifmaps):
            yield Fault("network", f"ifmaps of {', '.join(str(ifmap.box) for ifmap in workload.ifmaps)}",
                        f"one that holds {need}, which the {chain[0].op} reads", workload.id, workload.layer,
                        workload.ifmaps[0].transfer if workload.ifmaps else None, "ifmap")


def _chain(graph: Graph, node: Node) -> list[Node]:
    """Return the node and those behind it that may be in its layer: as long as one node reads what comes out."""
    chain = [node]
    while True:
        readers = graph.consumers().get(chain[-1].output, ())
        following = [reader for reader in readers if not _is_weighted(graph, reader) and reader.output in graph.shapes]
        if len(following) != 1 or len(chain) > len(graph.nodes):
            return chain
        chain += following


def _sizes(shape: Sizes) -> Sizes:
    """Return a tensor's shape as [batch, channels, rows, columns]; of more axes the last are taken for one."""
    padded = (*shape, 1, 1, 1, 1)[:max(4, len(shape))]
    columns = 1
    for size in padded[3:]:
        columns *= size
    return (*padded[:3], columns)


def _need(graph: Graph, chain: Sequence[Node], box: Box) -> Box | None:
    """Return the box of the layer's ifmap that the elements of ``box`` need; None if an operator's is not known."""
    need: Box | None = box
    for node in reversed(chain):
        need = _inputs(graph, node, need) if need is not None else None
    return need


def _kernel(graph: Graph, node: Node) -> Sizes:
    """Return the kernel's rows and columns: of an attribute, else of the weights' shape; nothing where neither says."""
    given = node.attributes.get("kernel_shape")
    weights = graph.constants.get(node.input(1))
    return tuple(given) if given is not None else weights.shape[2:] if weights is not None else ()


_POINTWISE = frozenset({"Relu", "LeakyRelu", "Clip", "Sigmoid", "Tanh", "BatchNormalization", "Add", "Mul", "Identity"})


def _inputs(graph: Graph, node: Node, box: Box) -> Box | None:
    """Return the elements of a node's first input that ``box`` of its output needs; None where it is unknown."""
    shape, result = graph.shapes.get(node.input(0), ()), graph.shapes[node.output]
    if node.op in _POINTWISE and shape == result:
        return box
    if len(shape) != 4 or node.op not in ("Conv", *POOLS):
        return None
    kernel = _kernel(graph, node)
    if len(kernel) != 2:
        return None
    found = window_attributes(node, kernel, shape[2:])
    window = Window((kernel[0], kernel[1]), found["strides"], found["pads"][:2], found["dilations"])
    spans = [window.inputs(axis, box.lower[2 + axis], box.upper[2 + axis] + 1, shape[2 + axis]) for axis in range(2)]
    if any(low == high for low, high in spans):
        return None
    channels = box.lower[1], box.upper[1]
    if node.op == "Conv":
        group = int(node.attributes.get("group", 1))
        inside, outside = shape[1] // group, result[1] // group
        channels = channels[0] // outside * inside, (channels[1] // outside + 1) * inside - 1
    return Box((box.lower[0], channels[0], *(low for low, _ in spans)),
               (box.upper[0], channels[1], *(high - 1 for _, high in spans)))
