# SPDX-License-Identifier: Apache-2.0
"""Pass: a convolution whose kernels repeat themselves, as a Fourier transform's do, first adds up its input.

The second half of a wave of an even frequency is its first half again, and of an odd one its negative. So are the
quarters of an even one. A window scales each sample, and for all frequencies alike. Two samples that all kernels of a
class weigh in one ratio are added up in that ratio, once for the whole class. The kernels of the class are then half as
long. Results lie class after class; a Gather says where, and whoever reads them takes them from there.

A sum is rounded once more than a direct product. So a spectrum of which logarithms are taken stays as it is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.frontend.macs import macs_of
from weft.compiler.passes.align_slices import SLICES, channels_of
from weft.compiler.passes.magnitudes import MIX
from weft.compiler.passes.order import needed

EQUAL = 1e-6
"""The share of the largest weight by which weights may miss their ratio: the rounding of single precision."""

LAYER_TILES = 4
"""The price of a layer in front, in weight tiles: its results are waited for."""

LEAST_WEIGHTS = 1 << 12
"""Smaller convolutions are not searched."""


@dataclass(frozen=True)
class Slice:
    """Channels [first, end) of a group of convolutions, read as the tensor ``name``.

    ``function``: the node that makes it of these channels, None if it is these channels."""

    name: str
    first: int
    end: int
    function: Node | None = None


@dataclass(frozen=True)
class Folding:
    """A class of kernels: ``weights`` [rows, sums] of the sums ``sums`` [sums, taps]; the ``rows`` of the group.

    ``sums`` is None for the input itself. ``cost``: weight tiles of the class, with its layer of sums."""

    rows: np.ndarray
    weights: np.ndarray
    sums: np.ndarray | None
    cost: int


def fold_kernels(graph: Graph, lanes: int) -> Graph:
    """Return the graph with convolutions computed from sums, where an array of ``lanes`` lanes loads fewer weights."""
    made = _Folder(graph, lanes, dict(graph.shapes), dict(graph.constants))
    replaced: dict[str, list[Node]] = {}
    for convs in _groups(graph):
        nodes = made.folded(convs)
        if nodes:
            replaced |= {convs[0].output: nodes, **{conv.output: [] for conv in convs[1:]}}
    if not replaced:
        return graph
    given = {name for nodes in replaced.values() for node in nodes for name in node.outputs}
    kept = [node for node in graph.nodes if not given.intersection(node.outputs) or node.output in replaced]
    nodes = [entry for node in kept for entry in replaced.get(node.output, [node])]
    return graph.replace(shapes=made.shapes).with_nodes(needed(nodes, graph.output_tensors()), made.constants)


def _groups(graph: Graph) -> list[list[Node]]:
    """Return the convolutions that may be folded; those with the same input and window are a group."""
    groups: dict[tuple[object, ...], list[Node]] = {}
    for node in graph.nodes:
        if node.op != "Conv" or node.attributes.get("group", 1) != 1 or not all(
                graph.is_constant(name) for name in node.inputs[1:] if name):
            continue
        weights = graph.constants[node.input(1)]
        if weights.size >= LEAST_WEIGHTS and np.prod(weights.shape[1:]) % 2 == 0 and not _has_logarithm(
                graph, node.output):
            key = node.input(0), weights.shape[1:], tuple(sorted(node.attributes.items()))
            groups.setdefault(key, []).append(node)
    return list(groups.values())


def _has_logarithm(graph: Graph, name: str) -> bool:
    """Tell whether a logarithm, or a power below a root, is taken of what nodes make of a tensor.

    Products with weights below 0 end the search: their sums have no small numbers that count beside large ones."""
    waiting, seen = [name], {name}
    while waiting:
        for reader in graph.consumers().get(waiting.pop(), []):
            constants = [graph.constants[entry] for entry in reader.inputs if graph.is_constant(entry)]
            if reader.op == "Log" or (reader.op == "Pow" and constants and 0 < float(constants[0].max()) < 0.5):
                return True
            if reader.op in MIX and any(value.size and value.min() < 0 for value in constants):
                continue
            waiting += [entry for entry in reader.outputs if entry not in seen]
            seen.update(reader.outputs)
    return False


def classes(weights: np.ndarray, slices: Sequence[tuple[int, int]], lanes: int) -> list[Folding]:
    """Return the classes into which kernels ``weights`` [rows, taps] fall such that the fewest weight tiles are loaded.

    ``slices``: the rows [first, end) that are read together. One class without sums is the convolution as it is."""
    return _cheapest(Folding(np.arange(len(weights)), weights, None, 0), np.abs(weights).max(), slices, lanes)


def _cheapest(folding: Folding, largest: float, slices: Sequence[tuple[int, int]], lanes: int) -> list[Folding]:
    """Return a class, with its cost, or the classes of its halves if these cost less."""
    own = sum(_tiles(folding.weights[(folding.rows >= first) & (folding.rows < end)], lanes) for first, end in slices)
    sums = 0 if folding.sums is None else _tiles(folding.sums, lanes) + LAYER_TILES
    whole = [Folding(folding.rows, folding.weights, folding.sums, own + sums)]
    halves = [half for sign in (1, -1) if (half := _half(folding, sign, largest)) is not None]
    if sum(len(half.rows) for half in halves) < len(folding.rows):
        return whole
    found = [entry for half in halves for entry in _cheapest(half, largest, slices, lanes)]
    return found if sum(entry.cost for entry in found) < whole[0].cost else whole


def _half(folding: Folding, sign: int, largest: float) -> Folding | None:
    """Return the kernels of a class whose halves have the same (1) or the opposite (-1) sign, half as long.

    None if there are none, or if their halves are in no common ratio. Kernels of zeros have the same sign."""
    if folding.weights.shape[1] % 2:
        return None
    left, right = np.split(folding.weights, 2, axis=1)
    chosen = (np.sum(left * right, axis=1) >= 0) == (sign > 0)
    left, right = left[chosen], right[chosen]
    if not len(left):
        return None
    angles = np.arctan2(2 * np.sum(left * right, axis=0), np.sum(left**2 - right**2, axis=0)) / 2
    along, across = np.cos(angles), np.sin(angles)
    if np.abs(right * along - left * across).max() > EQUAL * largest:
        return None
    parts = np.eye(folding.weights.shape[1]) if folding.sums is None else folding.sums
    first, second = np.split(parts, 2)
    return Folding(folding.rows[chosen], left * along + right * across,
                   first * along[:, None] + second * across[:, None], 0)


def _surely_whole(kernels: Sequence[np.ndarray]) -> bool:
    """Tell whether kernels [rows, taps] surely have no halves, by two of the first rows that have the same sign.

    Where halves are in one ratio, so are those of these rows, tap by tap, but for twice the error that is allowed."""
    taps = kernels[0].shape[1]
    if taps % 2:
        return True
    few = kernels[0][:3].astype(np.float64)
    left, right = np.split(few, 2, axis=1)
    signs = np.sum(left * right, axis=1) >= 0
    pair = next((pair for pair in itertools.combinations(range(len(few)), 2) if signs[pair[0]] == signs[pair[1]]), None)
    if pair is None:
        return False
    largest = max(max(-float(own.min()), float(own.max())) for own in kernels)
    one, other = pair
    return bool(np.abs(left[one] * right[other] - right[one] * left[other]).max() > 4 * EQUAL * largest ** 2)


def _tiles(weights: np.ndarray, lanes: int) -> int:
    """Return the number of tiles of a matrix that are not all zero."""
    rows, columns = (-(-size // lanes) for size in weights.shape)
    padded = np.zeros((rows * lanes, columns * lanes), bool)
    padded[:weights.shape[0], :weights.shape[1]] = weights != 0
    return int(padded.reshape(rows, lanes, columns, lanes).any(axis=(1, 3)).sum())


@dataclass
class _Folder:
    """The writer of folded convolutions into a graph, whose ``shapes`` and ``constants`` grow.

    ``added``: the nodes of the group that is written, whose rows each stand for ``work`` multiply-accumulates as drawn;
    ``counted`` rows are written."""

    graph: Graph
    lanes: int
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, np.ndarray]
    added: list[Node] = field(default_factory=list)
    work: float = 0.0
    counted: int = 0

    def folded(self, convs: Sequence[Node]) -> list[Node]:
        """Return the nodes that make what is read of a group of convolutions; none if they stay as they are."""
        stored = [self.graph.constants[conv.input(1)] for conv in convs]
        if _surely_whole([own.reshape(len(own), -1) for own in stored]):
            return []
        kernels = [own.astype(np.float64) for own in stored]
        slices = list(self._slices(convs))
        found = classes(np.concatenate([own.reshape(len(own), -1) for own in kernels]),
                        [(part.first, part.end) for part in slices], self.lanes)
        if any(entry.sums is None for entry in found):
            return []
        bias = np.concatenate([self.graph.constants[conv.input(2)] if conv.input(2) else np.zeros(len(own))
                               for conv, own in zip(convs, kernels, strict=True)])
        self.added, self.counted = [], 0
        self.work = sum(macs_of(self.graph, conv) for conv in convs) / sum(part.end - part.first for part in slices)
        sources = [self._sums(convs[0], entry, number) for number, entry in enumerate(found)]
        for part in slices:
            self._part(convs[0], part, found, sources, bias)
        return self.added

    def _slices(self, convs: Sequence[Node]) -> Iterator[Slice]:
        """Yield the slices of channels that are read of a group; a convolution's whole result if it is not sliced."""
        first = 0
        for conv in convs:
            rows = self.graph.shapes[conv.output][1]
            for part in self._read(conv.output) or [Slice(conv.output, 0, rows)]:
                function = self._function(part.name)
                yield Slice(function.output if function else part.name, first + part.first, first + part.end, function)
            first += rows

    def _function(self, name: str) -> Node | None:
        """Return the node that takes the magnitudes of a tensor, or cuts it at 0, if all that is read are these."""
        readers = self.graph.consumers().get(name, [])
        if len(readers) != 1 or name in self.graph.output_tensors():
            return None
        reader, = readers
        if reader.op in ("Abs", "Relu"):
            return reader
        moves = reader.op in (*SLICES, "Identity") and self.graph.shapes[reader.output] == self.graph.shapes[name]
        return self._function(reader.output) if moves else None

    def _read(self, name: str) -> list[Slice]:
        """Return the slices of channels that are read of a tensor, none if anything else is read of it."""
        if name in self.graph.output_tensors():
            return []
        found: list[Slice] = []
        shape = self.graph.shapes[name]
        for reader in self.graph.consumers().get(name, []):
            if reader.op not in (*SLICES, "Identity"):
                return []
            for number, made in enumerate(reader.outputs):
                part = self.graph.shapes[made]
                bounds = channels_of(self.graph, reader, number) if part[2:] == shape[2:] else None
                inner = self._read(made) if part == shape else [Slice(made, *bounds)] if bounds else []
                if not inner:
                    return []
                found += inner
        return found

    def _sums(self, conv: Node, entry: Folding, number: int) -> str:
        """Append the convolution that adds up a class's input; return the tensor that it makes."""
        assert entry.sums is not None
        weights = entry.sums.reshape(-1, *self.graph.constants[conv.input(1)].shape[1:])
        return self._conv(conv, conv.input(0), f"{conv.output}/sums.{number}", weights, np.zeros(len(weights)),
                          conv.attributes, 0)

    def _part(self, conv: Node, part: Slice, found: Sequence[Folding], sources: Sequence[str],
              bias: np.ndarray) -> None:
        """Append the nodes that make a slice of channels, class after class, each from a lane 0 on.

        Classes that fill their last tile come first; others are filled with rows of zeros, but for the last one."""
        chosen = [(entry.rows >= part.first) & (entry.rows < part.end) for entry in found]
        order = sorted((number for number, own in enumerate(chosen) if own.any()),
                       key=lambda number: np.count_nonzero(chosen[number]) % self.lanes != 0)
        ones = (1,) * (len(self.graph.shapes[part.name]) - 2)
        window = {"kernel_shape": ones, "strides": ones, "dilations": ones, "pads": (0,) * 2 * len(ones), "group": 1}
        made, places = [], np.zeros(part.end - part.first, np.int64)
        begin = 0
        for number in order:
            rows, weights = found[number].rows[chosen[number]], found[number].weights[chosen[number]]
            places[rows - part.first] = begin + np.arange(len(rows))
            room = -len(rows) % self.lanes if number != order[-1] else 0
            weights = np.pad(weights, ((0, room), (0, 0))).reshape(-1, weights.shape[1], *ones)
            name = self._conv(conv, sources[number], f"{part.name}/class.{number}", weights,
                              np.pad(bias[rows], (0, room)), window, len(rows))
            made.append(name if part.function is None else self._made(part.function, name))
            begin += len(weights)
        joined = f"{part.name}/classes"
        batch, _, *size = self.graph.shapes[part.name]
        self.shapes[joined] = (batch, begin, *size)
        self.constants[f"{joined}/places"] = places
        self.added += [Node(conv.name, "Concat", tuple(made), (joined,), {"axis": 1}, conv.op),
                       Node(conv.name, "Gather", (joined, f"{joined}/places"), (part.name,), {"axis": 1}, conv.op)]

    def _conv(self, conv: Node, source: str, name: str, weights: np.ndarray, bias: np.ndarray,
              window: Mapping[str, object], rows: int) -> str:
        """Append a convolution in the place of ``conv`` that stands for some ``rows`` of it; return what it makes."""
        done, self.counted = self.counted, self.counted + rows
        macs = round(self.work * self.counted) - round(self.work * done)
        self.constants |= {f"{name}/weights": weights.astype(np.float32), f"{name}/bias": bias.astype(np.float32)}
        batch, _, *size = self.graph.shapes[conv.output]
        self.shapes[name] = (batch, len(weights), *size)
        self.added.append(conv.replace(inputs=(source, f"{name}/weights", f"{name}/bias"), outputs=(name,),
                                       attributes=window, macs=macs))
        return name

    def _made(self, function: Node, source: str) -> str:
        """Append ``function`` of the tensor ``source``; return what it makes."""
        name = f"{source}/made"
        self.shapes[name] = self.shapes[source]
        self.added.append(function.replace(inputs=(source,), outputs=(name,)))
        return name
