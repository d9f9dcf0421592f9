# SPDX-License-Identifier: Apache-2.0
"""Calibration: the graph runs in floating point on sample inputs, which gives the range of every tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph, GraphPort, Node, Shape
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE, scale_of
from weft.compiler.indices.index import feed
from weft.cycles.jit import entry
from weft.hw.contract.numerics import largest_point
from weft.tmodel.onnx_engine import runner, session

SAMPLE_LIMIT = 32
"""The most calibration inputs that are run, evenly chosen among those given."""

MOST_HELD = 1 << 26
"""The most numbers of tensors that one run of a sample keeps in memory: 256 MB."""

PIECE = 1 << 20
"""The numbers of a tensor whose exponents are counted at once."""

SUMS = ("Conv", "Product")
"""Operators whose partial sums are measured."""

FEWEST_WHOLE = 256
"""The fewest numbers of which it means something that they are all whole."""

NUMBERS = "biuf"
"""The kinds of numpy types that calibration takes: truth values, integers, floats."""
RANDOM_SAMPLES = 4
RANDOM_SEED = 0
MOST_BYTE = 255
"""The largest random integer."""
BINADES = range(-40, 41)
"""Exponents of the magnitude histogram."""

LARGEST = 2.0 ** BINADES[-1]
"""The largest allowed magnitude: beside a larger number no other would keep bits behind the binary point."""


HEADROOM = 1.125
"""The least ratio of the magnitude that a computed tensor gets room for to the one that calibration saw."""

MOST_HEADROOM, ONE_SAMPLE = 2.0, 1.5
"""The largest ratio of the magnitude that a tensor gets room for to the one seen, and that for one sample.

With a single sample nothing is known of the tensor's spread."""

STUDENT = (318.0, 22.3, 10.2, 7.17, 5.89, 5.21, 4.79, 4.5, 4.3, 4.14)
"""Student's t that is exceeded with one chance in a thousand, for 1, 2, ... degrees of freedom.

A network has some hundred tensors, and none of them shall saturate."""

UNCLIPPED_SHARE = 0.25
"""The share of the magnitude that a ReLU reads for which its result gets room at least.

The ReLU may give 0 in all samples."""


def _student(freedom: int) -> float:
    """Return Student's t that is exceeded with one chance in a thousand, for ``freedom`` degrees of freedom."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else 3.09 + 10 / freedom


@dataclass(frozen=True)
class Range:
    """The values that a tensor took: extremes, and for k in BINADES how many had a magnitude of 2**k or more.

    ``count`` values, ``squares`` the sum of their squares; ``peaks``: the largest magnitude of each sample.
    ``unclipped``: for a ReLU's result, the largest magnitude that the ReLU read. ``bounded``: ``low`` and ``high`` are
    mathematical bounds (``bounds.py``) instead of what was seen."""

    low: float
    high: float
    at_least: tuple[int, ...]
    count: int = 0
    squares: float = 0.0
    peaks: tuple[float, ...] = ()
    unclipped: float = 0.0
    bounded: bool = False

    def expected(self, least: float) -> float:
        """Return the magnitude that the tensor gets room for: another sample exceeds it with a chance of 1/1000.

        Peaks are taken as normally distributed and are few, so Student's t is used. The result is at least ``least``
        and at most MOST_HEADROOM times what was seen. A bounded tensor gets exactly its bound."""
        if self.bounded:
            return self.magnitude
        if len(self.peaks) < 2:
            reached = self.magnitude * (ONE_SAMPLE if least > 1 else 1)
        else:
            count, spread = len(self.peaks), float(np.std(self.peaks, ddof=1))
            reached = float(np.mean(self.peaks)) + spread * math.sqrt(1 + 1 / count) * _student(count - 1)
        reached = min(max(reached, least * self.magnitude), MOST_HEADROOM * self.magnitude)
        return max(reached, UNCLIPPED_SHARE * self.unclipped)

    @property
    def root_mean_square(self) -> float:
        """The root of the values' mean square; 0 if there are none."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0

    @property
    def magnitude(self) -> float:
        """The larger magnitude of the two extremes."""
        return max(abs(self.low), abs(self.high))

    def beyond(self, exponent: int) -> int:
        """Return the number of values whose magnitude was at least 2**exponent."""
        return self.at_least[min(max(exponent - BINADES[0], 0), len(BINADES) - 1)]


def sum_key(source: str, weights: str) -> str:
    """Return the key of a convolution in ``Calibration.sums``: its input and weights, as weights may serve several."""
    return f"{source} x {weights}"


def sum_key_of(node: Node) -> str:
    """Return the key of a node's partial sums in ``Calibration.sums``; the operator is one of SUMS."""
    return sum_key(node.input(0), node.input(1)) if node.op == "Conv" else node.output


@dataclass(frozen=True)
class Calibration:
    """The result of calibration on ``samples`` inputs; ``random``: they were random numbers.

    ``ranges``: tensor -> its range. ``sums``: :func:`sum_key_of` a node -> a limit of its partial sums, in whatever
    order. ``means``: tensor that a convolution reads -> the mean of every channel."""

    ranges: Mapping[str, Range]
    sums: Mapping[str, float]
    samples: int
    random: bool
    means: Mapping[str, np.ndarray] = field(default_factory=dict)

    def text(self) -> str:
        """Return the calibration as text, a line for each range and sum."""
        lines = [f"samples {self.samples}{' random' if self.random else ''}"]
        lines += [f"range {name}: {entry.low:.6g} .. {entry.high:.6g}" for name, entry in self.ranges.items()]
        lines += [f"sum {name}: {value:.6g}" for name, value in self.sums.items()]
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Samples:
    """The calibration inputs that are run.

    ``arrays``: input name -> float32 [samples, ...]. ``numbers``: indices of these samples among those given.
    ``random``: they are random numbers."""

    arrays: Mapping[str, np.ndarray]
    numbers: tuple[int, ...]
    random: bool

    def text(self) -> str:
        """Return as text which samples are run, and the type and shape of each input."""
        lines = [f"samples {', '.join(map(str, self.numbers))}{' random' if self.random else ''}"]
        lines += [f"input {name}: {value.dtype}{list(value.shape)}" for name, value in self.arrays.items()]
        return "\n".join(lines) + "\n"

    def fed(self, graph: Graph) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield each sample's index and its values, by the names of the graph's input tensors."""
        for place, number in enumerate(self.numbers):
            yield number, feed(graph, {name: array[place] for name, array in self.arrays.items()})


def choose_samples(graph: Graph, inputs: Mapping[str, np.ndarray] | None) -> Samples:
    """Return up to SAMPLE_LIMIT of ``inputs`` (name -> [samples, ...]); seeded random ones if ``inputs`` is None."""
    given = random_inputs(graph) if inputs is None else check_inputs(graph, inputs)
    count = len(next(iter(given.values())))
    numbers = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_LIMIT)).astype(int))
    return Samples({name: array[numbers] for name, array in given.items()}, tuple(numbers.tolist()), inputs is None)


def samples_of_parts(graph: Graph, samples: Samples, parts: Sequence[Graph]) -> list[Samples]:
    """Return the samples of every subgraph in ``parts``: what it reads when the network runs on ``samples``."""
    given = {port.name for port in graph.inputs}
    cut = list(dict.fromkeys(port.name for part in parts for port in part.inputs if port.name not in given))
    arrays = dict(samples.arrays)
    if cut:
        run = runner(to_onnx(graph, cut))
        made = [run(values) for _, values in samples.fed(graph)]
        arrays |= {name: np.stack([values[name].reshape(sample_shape(graph.shapes[name])) for values in made])
                   for name in cut}
    return [dataclasses.replace(samples, arrays={port.name: arrays[port.name] for port in part.inputs})
            for part in parts]


def calibrate(graph: Graph, samples: Samples) -> Calibration:
    """Return the calibration of a graph on the given samples.

    The graph runs several times if its tensors do not fit memory at once. Raise CompileError for NaN, infinity, and
    numbers beyond LARGEST."""
    for node in graph.nodes:
        for name in filter(graph.is_constant, node.inputs if node.op in SUMS else ()):
            _need_below(f"constant {name!r} of node {node.name!r}", float(np.abs(graph.constants[name]).max(initial=0)))
    seen = _Seen(graph)
    given = [port.tensor for port in graph.inputs]
    for number, nodes in enumerate(_looked_at_together(graph)):
        seen.run(samples, nodes, () if number else given)
    for node in graph.nodes:
        if node.op == "Relu":
            seen.ranges[node.output] = replace(seen.ranges[node.output],
                                               unclipped=seen.ranges[node.input(0)].magnitude)
    return Calibration(seen.ranges, seen.sums, len(samples.numbers), samples.random, seen.means)


def _looked_at_together(graph: Graph) -> list[list[Node]]:
    """Return the nodes in groups whose results take at most MOST_HELD numbers, or that are one node."""
    groups: list[list[Node]] = [[]]
    held = 0
    for node in graph.nodes:
        size = math.prod(graph.shapes[node.output]) * (2 if node.op in SUMS else 1)
        if groups[-1] and held + size > MOST_HELD:
            groups.append([])
            held = 0
        groups[-1].append(node)
        held += size
    return groups


class _Seen:
    """Statistics of a graph's tensors on the samples run so far.

    ``ranges``: by tensor. ``sums``: the largest partial sum of every convolution and product, by its key. ``means``: by
    channel, of tensors that convolutions read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.ranges: dict[str, Range] = {}
        self.sums: dict[str, float] = {}
        self.means = {node.input(0): np.zeros(graph.shapes[node.input(0)][1]) for node in graph.nodes
                      if node.op == "Conv"}
        self.ends = {node.input(0): scale_of(node) for node in graph.nodes if node.op == FAKE_QUANTIZE}
        """An infinite number (1 / sqrt of what the file rounds to 0) saturates there."""

    def run(self, samples: Samples, nodes: Sequence[Node], given_names: Sequence[str]) -> None:
        """Run every sample and add to the statistics: the results of ``nodes`` and the inputs ``given_names``."""
        summed = [node for node in nodes if node.op in SUMS]
        extra, constants = _sum_nodes(self.graph, summed)
        sums = [node.output for node in extra if node.op != "Abs"]
        apart: dict[str, np.ndarray] = {}
        engine = session(to_onnx(self.graph, [*(node.output for node in nodes), *sums], extra, constants, apart), apart)
        outputs = [output.name for output in engine.get_outputs()]
        for number, given in samples.fed(self.graph):
            values = {**given, **dict(zip(outputs, engine.run(None, given), strict=True))}
            for name in (*given_names, *(node.output for node in nodes)):
                self._look(name, values[name], number, len(samples.numbers))
            for node, name in zip(summed, sums, strict=True):
                key = sum_key_of(node)
                self.sums[key] = max(self.sums.get(key, 0.0), _largest_partial_sum(values[name], values[node.output]))

    def _look(self, name: str, value: np.ndarray, number: int, count: int) -> None:
        """Add a tensor's ``value`` on sample ``number``, one of ``count``. Raise CompileError for NaN or infinity."""
        if name in self.ends:
            value = np.nan_to_num(value, nan=np.nan, neginf=self.ends[name].low, posinf=self.ends[name].high)
        if not np.isfinite((value.min(), value.max())).all():  # NaN and infinity are extremes
            raise refuse(f"tensor {name!r} on calibration input {number}", "NaN or infinity",
                         "finite numbers", "calibrate with inputs of the kind that the network is made for")
        self.ranges[name] = widened(self.ranges.get(name), value)
        _need_below(f"tensor {name!r} on calibration input {number}", self.ranges[name].magnitude)
        if name in self.means:
            self.means[name] += value.mean((0, 2, 3), dtype=np.float64) / count


def _largest_partial_sum(magnitudes: np.ndarray, sums: np.ndarray) -> float:
    """Return a limit of the partial sums in any order: all positive terms, or all negative ones.

    ``magnitudes`` are the sums of the terms' magnitudes. Together both parts are ``magnitudes``; their difference is
    ``sums``."""
    return float((magnitudes + np.abs(sums)).max()) / 2


def _need_below(what: str, magnitude: float) -> None:
    """Raise CompileError if a magnitude is LARGEST or more."""
    if not magnitude < LARGEST:
        raise refuse(what, f"a value of {magnitude:.3g}", f"magnitudes below 2**{BINADES[-1]}",
                     "look for a damaged file, or a network that needs its inputs scaled")


def channel_ranges(graph: Graph, samples: Samples,
                   names: Sequence[str]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the lowest and the highest value [channels] of each tensor in ``names``, over all samples.

    It runs the network. A pass calls it with its own graph, because earlier passes have changed the tensors."""
    apart: dict[str, np.ndarray] = {}
    engine = session(to_onnx(graph, names, apart=apart), apart)
    found: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for _, given in samples.fed(graph):
        for output, value in zip(engine.get_outputs(), engine.run(None, given), strict=True):
            low, high = value.min((0, 2, 3)), value.max((0, 2, 3))
            before = found.get(output.name, (low, high))
            found[output.name] = np.minimum(before[0], low), np.maximum(before[1], high)
    return found


def tensor_ranges(graph: Graph, samples: Samples, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Return the lowest and the highest value of each tensor in ``names``, over all samples."""
    run = runner(to_onnx(graph, names))
    found: dict[str, tuple[float, float]] = {}
    for _, given in samples.fed(graph):
        values = {**given, **run(given)}
        for name in names:
            low, high = found.get(name, (math.inf, -math.inf))
            found[name] = min(low, float(values[name].min())), max(high, float(values[name].max()))
    return found


def whole_points(graph: Graph, samples: Samples, width: int) -> dict[str, int]:
    """Return, for inputs whose samples are all whole numbers of ``width`` bits at a binary point, the least such point.

    So is sound that was recorded in 16 bits: no other sample exceeds these bits either. Random samples tell
    nothing."""
    found: dict[str, int] = {}
    for port in graph.inputs:
        values = np.asarray(samples.arrays[port.name], np.float64)
        if samples.random or values.size < FEWEST_WHOLE or not np.isfinite(values).all():
            continue
        most = largest_point(max(float(values.max()), -float(values.min())), width)
        points = (point for point in range(most + 1) if (values * 2.0 ** point == np.rint(values * 2.0 ** point)).all())
        if (least := next(points, None)) is not None:
            found[port.tensor] = least
    return found


def widened(before: Range | None, value: np.ndarray) -> Range:
    """Return the range ``before`` (None at first) extended by ``value``, a further sample of the tensor."""
    flat = value.ravel()
    pieces = [flat[start:start + PIECE] for start in range(0, flat.size, PIECE)]
    at_least = np.sum([_binades(piece) for piece in pieces], axis=0)[::-1].cumsum()[::-1][1:]
    squares = sum(float(np.square(piece, dtype=np.float64).sum()) for piece in pieces)
    low, high = float(value.min()), float(value.max())
    peak = max(-low, high)
    if before is None:
        return Range(low, high, tuple(at_least.tolist()), value.size, squares, (peak,))
    return Range(min(before.low, low), max(before.high, high), tuple((at_least + before.at_least).tolist()),
                 before.count + value.size, before.squares + squares, (*before.peaks, peak))


def _binades(values: np.ndarray) -> np.ndarray:
    """Return how many of the values are below BINADES, and in each of them."""
    counts = _exponents(np.ascontiguousarray(values, np.float32).view(np.uint32))
    first, last = (end + 127 for end in (BINADES[0], BINADES[-1]))
    return np.array([counts[:first].sum(), *counts[first:last], counts[last:].sum()])


@entry
def _exponents(words):  # type: ignore
    """Return how many of float32 ``words``, given as uint32, have each exponent: 127 + e for 2**e <= |v| < 2**(e+1).

    Neighbours are alike, so two counts take turns, for one need not wait for the other."""
    counts = np.zeros((2, 256), np.int64)
    for place in range(len(words)):
        counts[place & 1, words[place] >> 23 & 0xFF] += 1
    return counts[0] + counts[1]


def _sum_nodes(graph: Graph, summed: list[Node]) -> tuple[list[Node], dict[str, np.ndarray]]:
    """Return nodes, and their constants, that compute each convolution or product with operands' magnitudes."""
    nodes: list[Node] = []
    constants: dict[str, np.ndarray] = {}
    for node in summed:
        names = [f"{node.output}/magnitude{number}" for number in range(len(node.inputs))]
        for name, source in zip(names, node.inputs, strict=True):
            if graph.is_constant(source):
                constants[name] = np.abs(graph.constants[source])
            else:
                nodes.append(Node(name, "Abs", (source,), (name,)))
        total = f"{node.output}/magnitude"
        nodes.append(node.replace(name=total, inputs=tuple(names), outputs=(total,)))
    return nodes, constants


def sample_shape(shape: Shape) -> Shape:
    """Return the shape of one sample of an input: without its batch if that is 1."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Return RANDOM_SAMPLES standard normal samples of every input, the same every time.

    A network whose inputs are different needs calibration. Integer inputs are valid indices of the network's tables, or
    bytes."""
    generator = np.random.default_rng(RANDOM_SEED)
    return {port.name: _random(graph, port, generator) for port in graph.inputs}


def _random(graph: Graph, port: GraphPort, generator: np.random.Generator) -> np.ndarray:
    """Return random samples [RANDOM_SAMPLES, ...] of one input, of its type."""
    shape, kind = (RANDOM_SAMPLES, *sample_shape(port.shape)), _type(graph, port)
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(np.float32)
    if port.quantized is not None:
        return generator.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
    tables = [graph.constants[node.input(0)].shape[node.attributes.get("axis", 0)] for node in graph.nodes
              if node.op == "Gather" and node.input(1) == port.tensor and graph.is_constant(node.input(0))]
    most = 2 if kind.kind == "b" else min([*tables, MOST_BYTE + 1])
    return generator.integers(0, min(most, np.iinfo(kind).max if kind.kind in "iu" else most), shape).astype(kind)


def _type(graph: Graph, port: GraphPort) -> np.dtype:
    """Return the type of an input's array: the user's for a quantised input, else the graph's."""
    return np.dtype(port.type if port.quantized is not None else graph.type(port.tensor))


def check_inputs(graph: Graph, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the calibration inputs as [samples, ...], each sample without a batch of 1.

    Raise CompileError for a missing input, a wrong shape, what is no number, and numbers that an integer input does not
    have."""
    checked: dict[str, np.ndarray] = {}
    for port in graph.inputs:
        if port.name not in inputs:
            raise refuse(f"calibration of input {port.name!r}", f"arrays {', '.join(sorted(inputs)) or 'none'}",
                         f"an array named {port.name!r}", "name the arrays of the .npz after the model's inputs")
        value = _by_samples(np.asarray(inputs[port.name]), port)
        if value.dtype.kind not in NUMBERS:
            raise refuse(f"calibration array {port.name!r}", f"values of type {value.dtype}", "integers or floats",
                         "convert the array")
        kind = _type(graph, port)
        with np.errstate(invalid="ignore"):
            checked[port.name] = value.astype(kind)
        if kind.kind != "f" and not np.array_equal(checked[port.name], value):
            raise refuse(f"calibration array {port.name!r}", f"{value.dtype}, {value.min():.6g} .. {value.max():.6g}",
                         f"numbers of the type {kind}", "give inputs as the network takes them")
    if len({len(value) for value in checked.values()}) > 1:
        raise refuse("calibration arrays", "different numbers of samples", "the same number for every input",
                     "give one row a sample")
    return checked


def _by_samples(value: np.ndarray, port: GraphPort) -> np.ndarray:
    """Return an input's array as [samples, ...], each sample without a batch of 1.

    It may hold one sample or many, with or without a batch of 1. For a larger batch it may hold all rows of several
    batches. Raise CompileError for anything else."""
    whole, one = tuple(port.shape), sample_shape(port.shape)
    if value.shape in (whole, one):
        value = value.reshape(1, *one)
    elif value.shape[1:] in (whole, one):
        value = value.reshape(len(value), *one)
    elif whole and value.shape[1:] == whole[1:] and len(value) % whole[0] == 0:
        value = value.reshape(-1, *one)
    else:
        raise refuse(f"calibration array {port.name!r}", list(value.shape),
                     f"[{', '.join(map(str, ('samples', *one)))}]", "give one row a sample")
    if not value.size:
        raise refuse(f"calibration array {port.name!r}", list(value.shape), "at least one sample", "give some")
    return value
