# SPDX-License-Identifier: Apache-2.0
"""Pass: normalisations of a tensor with further readers are folded into the convolutions that follow them.

Before a residual network's next block stands relu(g x + b), with one g and b for each channel, of a sum x that is also
carried on. With g > 0 it is g relu(x + b/g). The factor g goes into the weights of the convolutions that read it, and x
+ b/g takes the place of x. The offset b/g goes into the bias of a convolution that feeds the sum, and the biases of the
sum's other readers take it back. So no operation is left but the ReLU, which the requantizer does. If x never falls
below -b/g the ReLU never cuts; then a smaller offset serves as well and the rest is a constant. If x never reaches -b/g
the result is zero. Calibration tells the range of x, as for every binary point. So an offset is no larger than x
itself, and costs at most one bit behind the binary point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.passes.fold import is_channelwise

Ranges = Mapping[str, tuple[np.ndarray, np.ndarray]]
"""Tensor -> lowest and highest value of every channel."""


class Normalisation(NamedTuple):
    """A normalisation: ``relu`` of the channelwise convolution ``scaling``, and the convolutions after it.

    ``readers`` of the ReLU, the ``pools`` (average pools, as convolutions) among them, and the ``later`` readers of
    these pools."""

    scaling: Node
    relu: Node
    readers: tuple[Node, ...]
    pools: tuple[Node, ...]
    later: tuple[Node, ...]

    @property
    def padded(self) -> bool:
        """Whether any of the convolutions after it sees zeros around its input."""
        return any(any(reader.attributes["pads"]) for reader in (*self.readers, *self.later))


class Folded(NamedTuple):
    """The form factor * relu(x + offset) + constant of relu(g x + b), each with one number for each channel."""

    offset: np.ndarray
    factor: np.ndarray
    constant: np.ndarray


def fold_forward(graph: Graph, measure: Callable[[Sequence[str]], Ranges], headroom: float) -> Graph:
    """Return the network without the normalisations that can be folded.

    ``measure`` gives the ranges of tensors and is only called if there are any. Tensors have room for ``headroom``
    times what is measured."""
    sums = _Sums(graph)
    found = [entry for node in graph.nodes if (entry := sums.normalisation(node)) is not None]
    if not found:
        return graph
    ranges = measure([entry.scaling.input(0) for entry in found])
    made = _Folder(sums)
    for entry in found:
        source = entry.scaling.input(0)
        scale, shift = (graph.constants[name].astype(np.float64).reshape(-1) for name in entry.scaling.inputs[1:])
        folded = fold(scale, shift, *ranges[source], headroom, padded=entry.padded)
        if folded is not None:
            made.fold(entry, folded)
    return made.folded()


def fold(scale: np.ndarray, shift: np.ndarray, low: np.ndarray, high: np.ndarray, headroom: float,
         padded: bool) -> Folded | None:
    """Return relu(``scale`` x + ``shift``) as factor, offset and constant, or None if there is no such form.

    All arrays are [channels]. It holds for ``low`` <= x <= ``high`` and as far beyond as ``headroom`` gives tensors
    room. With ``padded`` the result is read with zeros around it, so that the constant must be zero."""
    if (scale < 0).any():
        return None
    room = (headroom - 1) * np.maximum(np.abs(low), np.abs(high))
    low, high = low - room, high + room
    flat = scale == 0
    exact = np.divide(shift, scale, out=np.zeros_like(shift), where=~flat)
    zero = flat | (exact <= -high)
    never = ~flat & (exact > -low)  # cut: every offset from -low on serves, the nearest to 0 is best
    offset = np.where(zero, 0.0, exact)
    if not padded:
        offset = np.where(never, np.clip(0.0, -low, np.maximum(exact, -low)), offset)
    constant = np.where(flat, np.maximum(shift, 0.0), np.where(never, shift - scale * offset, 0.0))
    if padded and (constant[flat].any() or (np.abs(offset) > max(np.abs(low).max(), np.abs(high).max())).any()):
        return None
    return Folded(offset, np.where(zero, 0.0, scale), constant)


class _Sums:
    """The search for normalisations, and for tensors that can carry an offset."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.readers, self.ends = graph, graph.consumers(), graph.output_tensors()
        self.makers = {node.output: node for node in graph.nodes}

    def normalisation(self, node: Node) -> Normalisation | None:
        """Return the normalisation that ``node`` begins if it may be folded forward, else None."""
        if not is_channelwise(self.graph, node) or node.output in self.ends:
            return None
        following, source = self.readers.get(node.output, []), node.input(0)
        if len(following) != 1 or following[0].op != "Relu" or following[0].output in self.ends:
            return None
        after = tuple(self.readers.get(following[0].output, []))
        pools = tuple(reader for reader in after if self._is_pool(reader))
        later = tuple(reader for pool in pools for reader in self.readers[pool.output])
        fine = after and all(reader.op == "Conv" for reader in after) and self._can_be_moved(source, node)
        return Normalisation(node, following[0], after, pools, later) if fine else None

    def _is_pool(self, node: Node) -> bool:
        """Tell whether a node is a convolution of single channels that can leave factors to later convolutions.

        The weights of an average pool are all the same, and exact if they are a power of two."""
        if node.op != "Conv" or node.output in self.ends:
            return False
        weights, bias = (self.graph.constants[name] for name in node.inputs[1:])
        later = self.readers.get(node.output, [])
        alone = weights.shape[1] == 1 and node.attributes["group"] == len(weights) and not bias.any()
        return alone and all(reader.op == "Conv" for reader in later)

    def _can_be_moved(self, name: str, scaling: Node) -> bool:
        """Tell whether a tensor may get an offset in each channel.

        Its maker must be able to add the offset, and all readers but ``scaling`` must be able to take it back."""
        if name in self.ends or self.absorber(name) is None:
            return False
        others = [reader for reader in self.readers[name] if reader is not scaling]
        return all(self._takes_back(reader, name) for reader in others)

    def _takes_back(self, reader: Node, name: str) -> bool:
        """Tell whether a reader of the tensor ``name`` can subtract an offset of it again."""
        if reader.op == "Conv":
            return not any(reader.attributes["pads"])
        return reader.op == "Add" and self.absorber(reader.output) is not None

    def absorber(self, name: str) -> Node | None:
        """Return the convolution whose bias can move the tensor ``name`` and nothing else, or None.

        It makes the tensor, or makes an operand of the sum that makes it."""
        maker = self.makers.get(name)
        if maker is None or maker.op == "Conv":
            return maker
        if maker.op != "Add":
            return None
        own = [entry for entry in maker.inputs if self.graph.has_one_reader(entry)]
        return next((found for entry in own if (found := self.absorber(entry)) is not None), None)


@dataclass
class _Folder:
    """The network while normalisations are folded.

    ``factors`` and ``constants`` of folded ReLUs, ``offsets`` of tensors, all by tensor; ``gone``: output of a dropped
    node -> the tensor in its place."""

    sums: _Sums
    factors: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    offsets: dict[str, np.ndarray] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)

    def fold(self, entry: Normalisation, folded: Folded) -> None:
        """Record a normalisation as folded, unless another one of the same tensor was folded before."""
        source, relu = entry.scaling.input(0), entry.relu.output
        if source in self.offsets:  # another normalisation of the same tensor was there first
            return
        self.offsets[source], self.factors[relu], self.constants[relu] = folded.offset, folded.factor, folded.constant
        for pool in entry.pools:
            weights = self.sums.graph.constants[pool.input(1)].astype(np.float64)
            self.factors[pool.output] = folded.factor
            self.constants[pool.output] = folded.constant * weights.sum((1, 2, 3))
        self.gone[entry.scaling.output] = source

    def folded(self) -> Graph:
        """Return the graph without the recorded normalisations."""
        graph, moves = self.sums.graph, self._moves()
        nodes: list[Node] = []
        constants: dict[str, np.ndarray] = {}
        for node in graph.nodes:
            if node.output in self.gone:
                continue
            node = node.replace(inputs=tuple(self.gone.get(name, name) for name in node.inputs))
            if node.op == "Conv":
                node = self._conv(node, moves.get(node.output), constants)
            nodes.append(node)
        return graph.with_nodes(nodes, constants)

    def _moves(self) -> dict[str, np.ndarray]:
        """Return the additions to the biases of convolutions [channels], by the tensor that a convolution makes."""
        moves: dict[str, np.ndarray] = {}
        for name, maker in self.sums.makers.items():
            sources = [self.offsets[entry] for entry in maker.inputs if entry in self.offsets]
            offset = self.offsets.get(name)
            if maker.op == "Conv" and offset is not None:
                moves[name] = moves.get(name, 0) + offset
            elif maker.op == "Add" and (offset is not None or sources):
                conv = self.sums.absorber(name)
                assert conv is not None
                move = (0 if offset is None else offset) - sum(sources, np.zeros(1))
                moves[conv.output] = moves.get(conv.output, 0) + move
        return moves

    def _conv(self, node: Node, move: np.ndarray | None, constants: dict[str, np.ndarray]) -> Node:
        """Return a convolution with factors in its weights, and constants and offsets in its bias.

        Factor, constant and offset are those of its input; ``move`` is its own offset."""
        source = node.input(0)
        if node.output in self.factors:  # a pool leaves both to those behind it
            return node
        factor, added = self.factors.get(source), self.constants.get(source)
        if source in self.offsets:
            added = -self.offsets[source]
        if factor is None and added is None and move is None:
            return node
        weights, bias = (self.sums.graph.constants[name].astype(np.float64) for name in node.inputs[1:])
        group = node.attributes["group"]
        if added is not None:
            bias = bias + _by_input(weights, added, group).sum((1, 2, 3))
        if factor is not None:
            weights = _by_input(weights, factor, group)
        bias = bias if move is None else bias + move
        names = (f"{node.output}/folded_weights", f"{node.output}/folded_bias")
        constants |= dict(zip(names, (weights.astype(np.float32), bias.astype(np.float32)), strict=True))
        return node.replace(inputs=(source, *names))


def _by_input(weights: np.ndarray, numbers: np.ndarray, group: int) -> np.ndarray:
    """Return weights [out, in / group, height, width], those of input channel i multiplied by ``numbers[i]``."""
    outputs, per_group = weights.shape[:2]
    own = np.repeat(numbers.reshape(group, per_group), outputs // group, axis=0)
    return weights * own[:, :, None, None]
