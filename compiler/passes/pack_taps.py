# SPDX-License-Identifier: Apache-2.0
"""Pass: moved copies of a tensor fill lanes that would be idle, so that one tap of a convolution does several.

A tensor of 16 channels leaves 32 of 48 lanes idle, in each of the 25 taps of a 5x5 kernel. With two copies of it beside
it, each moved by a pixel, ten taps do. A convolution with weights of one makes the copies, in a tensor of their own. If
the tensor has full tiles too, only the channels of its last tile are copied; the tensor and its copies are then parts
of one. The numbers stay what they were: a copy has the range of its source, and its rounded weights too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.frontend.graph import Copied, Graph, Node, Within
from weft.compiler.frontend.macs import macs_of
from weft.compiler.lowering.rewrite import PartPlace
from weft.compiler.passes.pack_inputs import SHARE
from weft.compiler.passes.tap_copies import TapCopies, tap_copies
from weft.hw.contract.arch import Arch
from weft.tmodel.window import Size, Window

LAYER_CYCLES = 200
"""The cycles that a further layer takes beside its MatMuls: its weights are loaded and its results waited for."""


@dataclass(frozen=True)
class _Choice:
    """The choice of ``copies`` of a tensor for some ``readers``, with the cycles that it saves.

    The tensor has ``full`` channels before those that are copied."""

    source: str
    readers: tuple[Node, ...]
    copies: TapCopies
    full: int
    saved: int


def pack_taps(graph: Graph, arch: Arch) -> Graph:
    """Return the graph with copies of tensors in idle lanes where convolutions then take fewer cycles."""
    made = _Packer(graph, arch.array_size)
    for choice in _choices(graph, arch.array_size, arch.dram0_depth // SHARE):
        made.add(choice)
    return made.graph() if made.copies else graph


def _choices(graph: Graph, lanes: int, most: int) -> list[_Choice]:
    """Return the choices that save cycles, whose tensors of copies take at most ``most`` vectors.

    There is one for a tensor with full tiles, as it can be a part of one other only."""
    held = {name for node in graph.nodes if node.op == "Assemble" for name in node.inputs}
    makers = {node.output: node for node in graph.nodes}
    found = []
    for name, readers in graph.consumers().items():
        if graph.is_constant(name) or len(graph.shapes[name]) != 4:
            continue
        full = (graph.shapes[name][1] - 1) // lanes * lanes
        if 2 * (graph.shapes[name][1] - full) > lanes or (full and not _may_be_part(graph, name, makers, held)):
            continue
        groups: dict[object, list[Node]] = {}
        for node in (node for node in readers if _is_packable(graph, node, name, full)):
            groups.setdefault((node.window, node.attributes["pads"], graph.shapes[node.output][2:]), []).append(node)
        best = [choice for nodes in groups.values() if (choice := _best(graph, name, nodes, full, lanes, most))]
        found += [max(best, key=lambda choice: choice.saved)] if full and best else best
    return found


def _may_be_part(graph: Graph, name: str, makers: Mapping[str, Node], held: set[str]) -> bool:
    """Tell whether a tensor can lie in one with its copies.

    One that lies elsewhere cannot, nor one that users read. A max pool of windows that overlap runs beside the layers
    before it, which takes more local memory than the copies leave."""
    maker = makers.get(name)
    if maker is None or maker.op == "View" or name in held or name in graph.output_tensors():
        return False
    return maker.op != "MaxPool" or maker.window.partitions(_size(graph, maker.input(0)), _size(graph, name))


def _size(graph: Graph, name: str) -> Size:
    """Return the rows and columns of a tensor."""
    _, _, rows, columns = graph.shapes[name]
    return rows, columns


def _is_packable(graph: Graph, node: Node, name: str, full: int) -> bool:
    """Tell whether a node is a convolution of a tensor whose kernel has weights other than 0 in all of its taps."""
    if node.op != "Conv" or node.input(0) != name or node.attributes["group"] != 1 or not all(
            map(graph.is_constant, node.inputs[1:])):
        return False
    weights = graph.constants[node.input(1)]
    return bool(weights.shape[2:] != (1, 1) and weights[:, full:].any(axis=(0, 1)).all())


def _best(graph: Graph, name: str, readers: Sequence[Node], full: int, lanes: int, most: int) -> _Choice | None:
    """Return the choice for readers with the same window that saves most cycles, None if none saves any.

    Its tensor of copies takes at most ``most`` vectors."""
    channels, window = graph.shapes[name][1], readers[0].window
    size, made = _size(graph, name), _size(graph, readers[0].output)
    tiles = sum(-(-graph.shapes[node.output][1] // lanes) for node in readers)
    before = tiles * window.work(size, made)

    def saved(copies: TapCopies) -> int:
        return before - tiles * copies.vectors(made) - _ones(copies).work(size, copies.size) - LAYER_CYCLES

    ways = tap_copies(window, size, made, lanes // (channels - full), whole=full > 0)
    held = full // lanes + 2 if full else 1
    found = (_Choice(name, tuple(readers), copies, full, saved(copies)) for copies in ways
             if held * copies.size[0] * copies.size[1] <= most)
    return max((choice for choice in found if choice.saved > 0), key=lambda choice: choice.saved, default=None)


def _ones(copies: TapCopies) -> Window:
    """Return the window of the convolution that makes copies."""
    rows, columns = copies.rows, copies.columns
    return Window((rows.count, columns.count), (rows.step, columns.step), (rows.front, columns.front),
                  (rows.apart, columns.apart))


class _Packer:
    """The writer of copies into a graph: what is ``added`` before a node, nodes in ``changed`` form, ``copies``."""

    def __init__(self, graph: Graph, lanes: int) -> None:
        self._graph, self._lanes = graph, lanes
        self._shapes, self._bounds = dict(graph.shapes), dict(graph.bounds)
        self._constants: dict[str, np.ndarray] = {}
        self._added: dict[str, list[Node]] = {}
        self._changed: dict[str, Node] = {}
        self.copies: dict[str, Copied] = {}

    def add(self, choice: _Choice) -> None:
        """Add the copies of a choice, and let its readers read them."""
        tail = self._graph.shapes[choice.source][1] - choice.full
        sources = tuple(choice.full + number for number in range(tail)) * choice.copies.count
        name = self._tensor(choice, "copies", sources, choice.copies.size)
        nodes = [self._of_ones(choice, name, tail)]
        if choice.full:
            begin = choice.full + self._lanes
            held = (*range(choice.full + tail), *(-1,) * (self._lanes - tail), *sources)
            whole = PartPlace(0, 0, choice.copies.size[1], 1)
            name = self._tensor(choice, "with_copies", held, choice.copies.size)
            nodes.append(Node(nodes[0].name, "Assemble", (choice.source, nodes[0].output), (name,),
                              {"places": (tuple(whole), tuple(whole._replace(channel=begin)))}))
        self._added.setdefault(choice.readers[0].output, []).extend(nodes)
        for reader in choice.readers:
            self._changed[reader.output] = self._reader(choice, reader, name)

    def graph(self) -> Graph:
        """Return the graph with all that was added."""
        nodes = [entry for node in self._graph.nodes
                 for entry in (*self._added.get(node.output, ()), self._changed.get(node.output, node))]
        packed = self._graph.with_nodes(nodes, self._constants)
        return packed.replace(shapes=self._shapes, bounds=self._bounds, copies=self.copies)

    def _tensor(self, choice: _Choice, kind: str, sources: tuple[int, ...], size: tuple[int, int]) -> str:
        """Declare a tensor that has, in its channels, copies of the channels ``sources``; return its name."""
        name = f"{choice.source}/{kind}_for_{choice.readers[0].output}"
        self._shapes[name] = (1, len(sources), *size)
        self._bounds[name] = self._graph.bounds.get(choice.source, Within(choice.source))
        self.copies[name] = Copied(choice.source, sources)
        return name

    def _of_ones(self, choice: _Choice, name: str, tail: int) -> Node:
        """Return the convolution that makes copies of the last ``tail`` channels of a tensor."""
        rows, columns = choice.copies.rows, choice.copies.columns
        window, image = _ones(choice.copies), self._graph.shapes[choice.source][2:]
        weights = np.zeros((rows.count, columns.count, tail, choice.full + tail, *window.kernel), np.float32)
        for row, column in np.ndindex(*window.kernel):
            weights[row, column, :, choice.full:, row, column] = np.eye(tail)
        names = f"{name}/weights", f"{name}/bias"
        self._constants[names[0]] = weights.reshape(-1, *weights.shape[3:])
        self._constants[names[1]] = np.zeros(len(self._constants[names[0]]), np.float32)
        ends = (max(axis.behind(size), 0) for axis, size in zip((rows, columns), image, strict=True))
        return Node(f"{choice.readers[0].name}/copies", "Conv", (choice.source, *names), (name,), {
            "group": 1, "kernel_shape": window.kernel, "strides": window.strides, "dilations": window.dilations,
            "pads": (*window.pads, *ends)}, macs=0)

    def _reader(self, choice: _Choice, node: Node, source: str) -> Node:
        """Return a convolution that reads ``source``, the tensor of its copies, with weights for them."""
        rows, columns = choice.copies.rows, choice.copies.columns
        given = self._graph.constants[node.input(1)]
        tail = given.shape[1] - choice.full
        weights = np.zeros((len(given), self._shapes[source][1], rows.kernel, columns.kernel), np.float32)
        if choice.full:
            weights[:, :choice.full] = given[:, :choice.full]
        first = weights.shape[1] - choice.copies.count * tail
        for down in rows.reads:
            for across in columns.reads:
                begin = first + (down.copy * columns.count + across.copy) * tail
                weights[:, begin:begin + tail, down.at, across.at] = given[:, choice.full:, down.tap, across.tap]
        name = f"{node.output}/weights_of_copies"
        self._constants[name] = weights
        axes = rows, columns
        ends = [max(axis.end(made), 0) for axis, made in zip(axes, self._graph.shapes[node.output][2:], strict=True)]
        window = {"kernel_shape": (rows.kernel, columns.kernel), "strides": (rows.stride, columns.stride),
                  "dilations": (rows.dilation, columns.dilation), "pads": (rows.pad, columns.pad, *ends)}
        return node.replace(inputs=(source, name, *node.inputs[2:]), macs=macs_of(self._graph, node),
                            attributes={**node.attributes, **window})
