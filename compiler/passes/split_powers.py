# SPDX-License-Identifier: Apache-2.0
"""Logarithms, roots and the like of sums of a spectrum's magnitudes or powers, over a wide range.

A function's parts (``split_functions.py``) need arguments with bits of their own. Behind a spectrum there are none: of
16 bits at one point a power 40 dB below the largest one has two, and its magnitude has lost its bits before. So the
range is split where sums of products still have all bits, in the accumulators of the convolution that makes real and
imaginary parts. Each level of the range has a copy of what computes the magnitude, LEVEL_LOG2 bits finer than the level
above, that saturates where its readers tell nothing apart any more. Magnitudes are limited before they are squared,
squares are added up again for each part of the function, and the parts are joined behind it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from weft.compiler.frontend.graph import Bound, Graph, Interval, Limited, Node, Within
from weft.compiler.lowering.functions import FUNCTION, of_steps, real_function
from weft.compiler.lowering.rules import Step, filled
from weft.compiler.passes.magnitudes import TURN

LEVEL_LOG2 = 2
"""log2 of the ratio of the largest magnitudes of two levels; a part has 10 bits of its largest magnitude or more."""

MOST_LEVELS = 7
ROOM_LOG2 = 1
"""log2 of the room that the largest magnitudes leave above what was seen; a level below has none."""

PART_LOG2 = 2
"""log2 of the ratio of the magnitudes behind a part's largest argument to those behind its smallest one."""

MOST_PARTS = 12
SEEN = 2.0 ** -16
"""The share of a function's rise over its range that is more than an error of single precision."""

LIMITS = 2.0 ** np.arange(2, 5)
"""Factors of the least limit of a part's magnitudes that are tried; the first leaves most bits."""

SHORTFALL = 2.0 ** -7
"""The share of a sum that limiting its squares may take away on calibration inputs."""

SUM_BITS, ACTIVATION_BITS = 31, 15
"""Bits of an accumulator and of an activation, without their signs."""

FEW = 2
"""The most channels that one channel of a magnitude's nodes is made of."""

ChannelRanges = Callable[[Graph, Sequence[str]], Mapping[str, tuple[np.ndarray, np.ndarray]]]


@dataclass(frozen=True)
class Powers:
    """The terms of a function's argument.

    ``mix``: nodes that add up with weights that are not negative, from ``source`` or its square to the argument.
    ``square``: the factor of the square, None if magnitudes are added up. ``cone``: the nodes that make the magnitudes
    ``source``, whose results grow in proportion; ``roots``: the convolutions before them."""

    mix: tuple[Node, ...]
    square: float | None
    source: str
    cone: tuple[Node, ...]
    roots: tuple[Node, ...]

    @property
    def degree(self) -> int:
        """The power of the magnitudes to which the argument grows in proportion."""
        return 1 if self.square is None else 2


# -- what belongs together ---------------------------------------------------------------------------------------------
def powers_of(graph: Graph, argument: str, makers: Mapping[str, Node]) -> Powers | None:
    """Return the terms of the sum ``argument`` if they are magnitudes of convolutions' results; else None."""
    mix: list[Node] = []
    name, square = argument, None
    while (node := makers.get(name)) is not None:
        square = _square(node, graph)
        if square is not None or not _adds_up(graph, node):
            break
        mix.insert(0, node)
        name = node.input(0)
    source = makers[name].input(0) if square is not None else name
    cone: list[Node] = []
    roots: dict[str, Node] = {}
    waiting, seen = [source], {source}
    while waiting:
        node = makers.get(waiting.pop())
        if node is None:
            return None
        if _is_proportional(graph, node):
            cone.append(node)
            waiting += [entry for entry in _tensors(graph, node) if entry not in seen]
            seen |= set(_tensors(graph, node))
        elif node.op == "Conv":
            roots[node.output] = node
        else:
            return None
    if not any(node.op == "Abs" for node in cone):
        return None
    place = {node.output: number for number, node in enumerate(graph.nodes)}
    return Powers(tuple(mix), square, source, tuple(sorted(cone, key=lambda node: place[node.output])),
                  tuple(roots.values()))


def _tensors(graph: Graph, node: Node) -> list[str]:
    """Return the tensors that a node reads."""
    return [name for name in node.inputs if name and not graph.is_constant(name)]


def _square(node: Node, graph: Graph) -> float | None:
    """Return c if a node computes c x x of its input x, else None."""
    if node.op == "Mul" and node.input(0) == node.input(1):
        return 1.0
    if node.op != FUNCTION:
        return None
    values = real_function(FUNCTION, tuple(sorted(node.attributes.items())), graph.opset)(np.array([-1.0, 1.0, 2, 3]))
    factor = float(values[1])
    return factor if factor > 0 and np.allclose(values, factor * np.array([1, 1, 4, 9]), rtol=1e-4) else None


def _adds_up(graph: Graph, node: Node) -> bool:
    """Tell whether a node moves elements or adds them up with weights that are not negative."""
    if node.op == "View":
        return True
    return node.op == "Conv" and graph.constants[node.input(1)].min() >= 0 and not graph.constants[node.input(2)].any()


def _is_proportional(graph: Graph, node: Node) -> bool:
    """Tell whether a node's results grow in proportion to its inputs, each channel from few channels of an input.

    A difference of numbers that saturate is small where it should be large; of turns only the longer side counts."""
    if node.op != "Conv":
        return node.op in ("Abs", "Add", "Assemble", "Relu", "View")
    weights = graph.constants[node.input(1)]
    return bool((np.count_nonzero(weights.reshape(len(weights), -1), axis=1) <= FEW).all()
                and (weights.min() >= 0 or TURN in node.output) and not graph.constants[node.input(2)].any())


# -- parts of the range ------------------------------------------------------------------------------------------------
def parts_of(steps: tuple[Step, ...], opset: int, degree: int, low: float, high: float) -> list[Interval]:
    """Return the parts (low, high) of a function's range of arguments, the first one from 0; empty if one will do.

    ``degree``: the power of magnitudes that arguments are. The first part ends where the function bends: up to there it
    rises by more than half of its largest slope. A function that is steeper and steeper towards 0 goes down to a share
    of the least argument that was seen."""
    if low < 0 or high <= 0:
        return []
    function = real_function(FUNCTION, of_steps(steps, "any"), opset)
    step = PART_LOG2 * degree
    ladder = high * 2.0 ** -np.arange(MOST_PARTS * step, -0.5, -0.5)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = function(np.concatenate([[0.0], ladder]))
        rises = np.abs(values[1:] - values[0])
    slopes = np.where(rises > SEEN * rises[-1], rises / ladder, 0.0) if np.isfinite(values[0]) else np.zeros(1)
    bend = int(np.flatnonzero(slopes >= slopes.max() / 2)[-1])
    low = float(ladder[bend]) if bend else max(low * 2.0 ** -step, float(ladder[0]))
    count = min(math.ceil(math.log2(2 * high / low) / step), MOST_PARTS)
    if count < 2:
        return []
    ends = [0.0, *(2 * high * 2.0 ** -(step * np.arange(count - 1, -1, -1.0))).tolist()]
    return list(itertools.pairwise(ends))


def least_limits(powers: Powers, graph: Graph, highs: Sequence[float]) -> list[float]:
    """Return, for each part's end, the magnitude at which one alone brings every sum to it, at its largest weight."""
    weights = None
    for node in powers.mix:
        if node.op == "Conv":
            own = graph.constants[node.input(1)].astype(np.float64)
            pointwise = own.shape[2:] == (1, 1) and node.attributes["group"] == 1
            if pointwise:
                weights = own[..., 0, 0] if weights is None else own[..., 0, 0] @ weights
            elif weights is None:
                weights = own.reshape(len(own), -1)
    reach = 1.0 if weights is None else float(weights.max(1)[weights.any(1)].min())
    return [(high / (reach * (powers.square or 1.0))) ** (1 / powers.degree) for high in highs]


# -- the writer --------------------------------------------------------------------------------------------------------
@dataclass
class PowerParts:
    """The writer of a function's parts; ``shapes``, ``constants`` and ``bounds`` of the graph are added to."""

    graph: Graph
    node: Node
    powers: Powers
    shapes: dict[str, tuple[int, ...]]
    constants: dict[str, np.ndarray]
    bounds: dict[str, Bound]
    halved: dict[str, list[Node]]
    """Convolution's result -> the nodes that make it from halves of its weights, if they do."""
    levels: dict[int, str] = field(default_factory=dict)

    def nodes(self, steps: tuple[Step, ...], parts: Sequence[Interval], measure: ChannelRanges) -> list[Node]:
        """Return the nodes that compute the function as the sum of its ``parts``."""
        peaks = measure(self.graph, [self.powers.source, *(root.input(0) for root in self.powers.roots)])
        largest = {name: float(np.maximum(np.abs(low), np.abs(high)).max()) for name, (low, high) in peaks.items()}
        limits = self._limits(parts, measure)
        made: list[Node] = []
        total, least = "", 0.0
        for number, ((low, high), limit) in enumerate(zip(parts, limits, strict=True)):
            last = number == len(parts) - 1
            level = self._level(limit, largest[self.powers.source]) if not last else 0
            if level not in self.levels:
                made += self._copy(level, largest)
            argument, part = f"{self.node.output}/power{number}", f"{self.node.output}/part{number}"
            made += self._sums(self.levels[level], argument, None if last else limit, high)
            limited, span = self._function(steps, low, high, last)
            made.append(self.node.replace(op=FUNCTION, inputs=(argument,), outputs=(part,),
                                          attributes=dict(of_steps(limited, "any"))))
            self.shapes[part] = self.shapes[self.node.output]
            least += span
            if total:
                joined = self.node.output if last else f"{part}/sum"
                made.append(Node(self.node.name, "Add", (part, total), (joined,), {}, self.node.origin))
                self.shapes[joined], part = self.shapes[self.node.output], joined
                if not last:
                    self.bounds[joined] = -least, least
            total = part
        return made

    def _limits(self, parts: Sequence[Interval], measure: ChannelRanges) -> list[float]:
        """Return, for each part, the limit of magnitudes that loses nothing of its sums on calibration inputs."""
        least = least_limits(self.powers, self.graph, [high for _, high in parts])
        shapes, constants = dict(self.graph.shapes), dict(self.graph.constants)
        trial = PowerParts(self.graph, self.node, self.powers, shapes, constants, {}, {})
        nodes: list[Node] = []
        names: dict[str, tuple[int, float]] = {}
        wanted = self.node.input(0)
        for number, (_, high) in enumerate(parts[:-1]):
            for factor in LIMITS[:-1]:
                limit = float(least[number] * factor)
                name = f"{self.node.output}/trial.{number}.{factor:g}"
                nodes += trial._sums(self.powers.source, f"{name}/sums", limit, high)
                nodes += _shortfall(name, f"{name}/sums", wanted, high, shapes, constants)
                names[name] = number, limit
        tried = self.graph.replace(shapes=shapes).with_nodes([*self.graph.nodes, *nodes], constants)
        seen = measure(tried, [*names, wanted])
        lowest = float(seen[wanted][0].min())  # a part that no sample reaches tells nothing
        chosen = [float(entry * LIMITS[-1]) for entry in least]
        for name, (number, limit) in names.items():
            if seen[name][1].max() <= SHORTFALL and lowest < parts[number][1]:
                chosen[number] = min(chosen[number], limit)
        return chosen

    @staticmethod
    def _level(limit: float, largest: float) -> int:
        """Return the level whose magnitudes are just large enough for ``limit``."""
        return min(max(math.floor((math.log2(largest / limit) + ROOM_LOG2) / LEVEL_LOG2), 0), MOST_LEVELS - 1)

    def _copy(self, level: int, largest: Mapping[str, float]) -> Iterator[Node]:
        """Yield the nodes that make the magnitudes of a level; of level 0 there are none to be made."""
        if not level:
            self.levels[0] = self.powers.source
            return
        limit = filled(largest[self.powers.source] * 2.0 ** (ROOM_LOG2 - LEVEL_LOG2 * level))
        names = {}
        for root in self.powers.roots:
            names[root.output] = made = f"{root.output}/level{level}"
            if root.output not in self.halved:
                self.halved[root.output] = self._halves(root, largest[root.input(0)])
            yield from self._root(root, made)
            self.bounds[made] = Limited(-limit, limit)
        for node in self.powers.cone:
            made = f"{node.output}/level{level}"
            inputs = tuple(names.get(name, name) for name in node.inputs)
            names[node.output], self.shapes[made] = made, self.shapes[node.output]
            self.bounds[made] = self._bound(node, inputs, limit)
            yield self._of_its_own(node.replace(inputs=inputs, outputs=(made,), macs=None))
        self.levels[level] = names[self.powers.source]

    def _bound(self, node: Node, inputs: Sequence[str], limit: float) -> Limited:
        """Return the bound of a node of a level, from those of what it reads; beyond ``limit`` it may saturate.

        No number of a turn is larger than the magnitude that comes out, which is told apart up to ``limit``."""
        read = np.array([_interval(self.bounds[name]) for name in inputs if name in self.bounds])
        low, high = read.sum(0) if node.op == "Add" else (read[:, 0].min(), read[:, 1].max())
        if node.op == "Conv":
            weights = self.constants[node.input(1)].astype(np.float64)
            most, least = (np.maximum(sign * weights, 0).reshape(len(weights), -1).sum(1) for sign in (1, -1))
            low, high = (most * low - least * high).min(), (most * high - least * low).max()
        if node.op in ("Abs", "Relu"):
            low, high = max(low, 0.0), max(high, -low if node.op == "Abs" else 0.0)
        return Limited(max(float(low), -limit), min(float(high), limit))

    def _root(self, root: Node, made: str) -> Iterator[Node]:
        """Yield the nodes that make the result of a convolution in halves once more, as the tensor ``made``."""
        self.shapes[f"{made}/coarse"] = self.shapes[made] = self.shapes[root.output]
        inputs = root.input(0), f"{root.output}/coarse_weights", f"{root.output}/no_bias"
        yield root.replace(inputs=inputs, outputs=(f"{made}/coarse",), macs=root.macs if made == root.output else 0)
        yield Node(root.name, "Add", (f"{made}/coarse", f"{root.output}/fine"), (made,), {}, root.origin)

    def _halves(self, root: Node, largest: float) -> list[Node]:
        """Return the nodes in place of a convolution that make its result with all bits of its products.

        Accumulators have no room for activations and weights in full, so weights are the sum of two halves, of which
        each has room beside all bits of the activations. The result of the fine half is small."""
        weights = self.constants[root.input(1)].astype(np.float64)
        coarse = _rounded(weights, largest)
        self.constants |= {f"{root.output}/coarse_weights": coarse.astype(np.float32),
                           f"{root.output}/fine_weights": _rounded(weights - coarse, largest).astype(np.float32),
                           f"{root.output}/no_bias": np.zeros(len(weights), np.float32)}
        fine = f"{root.output}/fine"
        self.shapes[fine] = self.shapes[root.output]
        inputs = root.input(0), f"{root.output}/fine_weights", root.input(2)
        return [root.replace(inputs=inputs, outputs=(fine,), macs=0), *self._root(root, root.output)]

    def _sums(self, source: str, name: str, limit: float | None, high: float) -> Iterator[Node]:
        """Yield the nodes that add up magnitudes, or their squares, limited to ``limit``, as the tensor ``name``."""
        entry = source
        if self.powers.square is not None or limit is not None:
            entry = f"{name}/limited" if self.powers.mix else name
            first: list[Step] = [("Max", (0, 0.0), ()), *([] if limit is None else [("Min", (1, limit), ())])]
            steps = [*first, *([("Mul", (len(first), len(first)), ()),
                                ("Mul", (len(first) + 1, self.powers.square), ())] if self.powers.square else [])]
            self.shapes[entry] = self.shapes[source]
            if limit is not None:
                self.bounds[entry] = Limited(0.0, (self.powers.square or 1.0) * limit ** self.powers.degree)
            yield Node(self.node.name, FUNCTION, (source,), (entry,), dict(of_steps(tuple(steps), "keeps_zero")),
                       self.node.origin)
        for number, node in enumerate(self.powers.mix):
            made = name if number == len(self.powers.mix) - 1 else f"{name}/{number}"
            self.shapes[made] = self.shapes[node.output]
            reach = _interval(self.bounds[entry])[1] if entry in self.bounds else math.inf
            if node.op == "Conv":
                weights = self.constants[node.input(1)]
                reach *= float(weights.reshape(len(weights), -1).sum(1).max())
            if all(self._chooses(later) for later in self.powers.mix[number + 1:]):
                reach = min(reach, filled(high))
            if math.isfinite(reach):
                self.bounds[made] = Limited(0.0, reach)
            drawn = node.macs if limit is None else None  # of the last part alone, as the network has one
            yield self._of_its_own(node.replace(inputs=(entry, *node.inputs[1:]), outputs=(made,), macs=drawn))
            entry = made

    def _of_its_own(self, node: Node) -> Node:
        """Return a node with a name of its own for its weights.

        Levels and parts differ in range, and layers that read the same weights agree on points (``alike.py``)."""
        if node.op != "Conv":
            return node
        name = f"{node.output}/weights"
        self.constants[name] = self.constants[node.input(1)]
        return node.replace(inputs=(node.input(0), name, *node.inputs[2:]))

    def _chooses(self, node: Node) -> bool:
        """Tell whether each element of a node's result is one of its input's, as it is."""
        if node.op == "View":
            return True
        weights = self.constants[node.input(1)]
        rows = weights.reshape(len(weights), -1)
        return bool((np.count_nonzero(rows, axis=1) == 1).all() and (rows.sum(1) == 1).all())

    def _function(self, steps: tuple[Step, ...], low: float, high: float,
                  last: bool) -> tuple[tuple[Step, ...], float]:
        """Return the steps of the function limited to a part, and its span there.

        Except for the last part, the function's value at the part's end is subtracted."""
        first: list[Step] = [("Max", (0, low), ()), *([] if last else [("Min", (1, high), ())])]
        moved = [(op, tuple(entry + len(first) if isinstance(entry, int) else entry for entry in arguments), attributes)
                 for op, arguments, attributes in steps]
        ends = real_function(FUNCTION, of_steps(steps, "any"), self.graph.opset)(np.array([low, high]))
        span = float(abs(ends[1] - ends[0]))
        if last:
            return (*first, *moved), span
        return (*first, *moved, ("Sub", (len(first) + len(steps), float(ends[1])), ())), span


def _rounded(weights: np.ndarray, largest: float) -> np.ndarray:
    """Return weights rounded so that sums of 32 bits have room for them beside 16 bits of the activations.

    ``largest``: the largest magnitude of the activations."""
    reach = float(np.abs(weights).reshape(len(weights), -1).sum(1).max()) * largest
    bits = (SUM_BITS - math.ceil(math.log2(reach or 1.0))) - (ACTIVATION_BITS - math.ceil(math.log2(largest or 1.0)))
    return np.asarray(np.rint(weights * 2.0 ** bits) * 2.0 ** -bits)


def _interval(bound: Bound) -> Interval:
    """Return a stated bound that is an interval."""
    assert not isinstance(bound, Within)
    return bound[0], bound[1]


def _shortfall(name: str, sums: str, wanted: str, high: float, shapes: dict[str, tuple[int, ...]],
               constants: dict[str, np.ndarray]) -> list[Node]:
    """Return the nodes that compute by which share ``sums`` falls short of ``wanted``, both counted up to ``high``."""
    inner = [f"{name}/{part}" for part in ("limited", "wanted", "lost", "least")]
    shapes |= dict.fromkeys((*inner, name), shapes[wanted])
    ends = [f"{name}/{part}" for part in ("high", "low")]
    constants |= {ends[0]: np.array(high, np.float32), ends[1]: np.array(high * 2.0 ** -(2 * PART_LOG2), np.float32)}
    return [Node(name, "Min", (sums, ends[0]), (inner[0],)), Node(name, "Min", (wanted, ends[0]), (inner[1],)),
            Node(name, "Sub", (inner[1], inner[0]), (inner[2],)), Node(name, "Max", (inner[1], ends[1]), (inner[3],)),
            Node(name, "Div", (inner[2], inner[3]), (name,))]
