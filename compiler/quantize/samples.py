# SPDX-License-Identifier: Apache-2.0
"""The calibration inputs of a network: checked, chosen among those given, or drawn at random."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.compiler.errors import refuse
from weft.compiler.frontend.graph import Graph, GraphPort, Shape
from weft.compiler.frontend.macs import macs_of
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.indices.index import feed
from weft.hw.contract.numerics import largest_point
from weft.support.files import reason
from weft.tmodel.onnx_engine import runner

SAMPLE_LIMIT = 32
"""The most calibration inputs that are run, evenly chosen among those given."""

FEWEST_WHOLE = 256
"""The fewest numbers of which it means something that they are all whole."""

MOVES = frozenset({"Cast", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators behind which integers are still the input's own."""

NUMBERS = "biuf"
"""The kinds of numpy types that calibration takes: truth values, integers, floats."""

MASKED_SAMPLES = 2
"""The samples that are run again with a half of each mask."""

RANDOM_SAMPLES = 4
FEWEST_RANDOM = 2
MOST_RANDOM_MACS = 1 << 34
"""The multiply-accumulates of all random samples beyond which there are only FEWEST_RANDOM.

Tensors of so much work have so many numbers that one sample shows their range."""

RANDOM_SEED = 0
MOST_BYTE = 255
"""The largest random integer."""


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


def with_masked_rows(samples: Samples, masks: Sequence[str]) -> Samples:
    """Return the samples, and some of them again with the second half of each input in ``masks`` left out.

    So sums with a mask have room for it, even if no sample left a row out. Random masks become zeros and ones."""
    if not masks:
        return samples
    given = {name: value % 2 if samples.random and name in masks and value.dtype.kind in "iu" else value
             for name, value in samples.arrays.items()}
    again = {name: value[:MASKED_SAMPLES].copy() for name, value in given.items()}
    for name in masks:
        again[name][..., again[name].shape[-1] // 2:] = 0
    return dataclasses.replace(samples, numbers=samples.numbers + samples.numbers[:MASKED_SAMPLES], arrays={
        name: np.concatenate([value, again[name]]) for name, value in given.items()})


def samples_of_parts(graph: Graph, samples: Samples, parts: Sequence[Graph]) -> list[Samples]:
    """Return the samples of every subgraph in ``parts``: what it reads when the network runs on ``samples``."""
    given = {port.name for port in graph.inputs}
    cut = list(dict.fromkeys(port.name for part in parts for port in part.inputs if port.name not in given))
    arrays = dict(samples.arrays)
    if cut:
        run = runner(to_onnx(graph, cut))
        try:
            made = [run(values) for _, values in samples.fed(graph)]
        except Exception as error:  # onnxruntime's errors have no common type
            raise refuse("calibration inputs", reason(error), "inputs on which onnxruntime runs the network",
                         "calibrate with inputs of the kind that the network is made for") from None
        arrays |= {name: np.stack([values[name].reshape(sample_shape(graph.shapes[name])) for values in made])
                   for name in cut}
    return [dataclasses.replace(samples, arrays={port.name: arrays[port.name] for port in part.inputs})
            for part in parts]


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


def sample_shape(shape: Shape) -> Shape:
    """Return the shape of one sample of an input: without its batch if that is 1."""
    return shape[1:] if len(shape) > 1 and shape[0] == 1 else shape


def random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    """Return standard normal samples of every input, the same every time; fewer of a network with much work.

    A network whose inputs are different needs calibration. Integer inputs are valid indices of the network's tables, or
    bytes."""
    generator = np.random.default_rng(RANDOM_SEED)
    work = RANDOM_SAMPLES * sum(macs_of(graph, node) for node in graph.nodes)
    count = RANDOM_SAMPLES if work <= MOST_RANDOM_MACS else FEWEST_RANDOM
    return {port.name: _random(graph, port, count, generator) for port in graph.inputs}


def _random(graph: Graph, port: GraphPort, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return random samples [count, ...] of one input, of its type."""
    shape, kind = (count, *sample_shape(port.shape)), _type(graph, port)
    if kind.kind == "f":
        return generator.standard_normal(shape).astype(np.float32)
    if port.quantized is not None:
        return generator.integers(np.iinfo(kind).min, np.iinfo(kind).max + 1, shape).astype(kind)
    tables = _tables(graph, port.tensor)
    most = 2 if kind.kind == "b" else min([*tables, MOST_BYTE + 1])
    return generator.integers(0, min(most, np.iinfo(kind).max if kind.kind in "iu" else most), shape).astype(kind)


def _tables(graph: Graph, name: str) -> list[int]:
    """Return the sizes of the constant tables of which a tensor's numbers choose entries, moved before or not."""
    found: list[int] = []
    waiting = [name]
    while waiting:
        source = waiting.pop()
        for node in graph.consumers().get(source, []):
            if node.op == "Gather" and node.input(1) == source and graph.is_constant(node.input(0)):
                found.append(graph.constants[node.input(0)].shape[node.attributes.get("axis", 0)])
            elif node.op in MOVES and node.input(0) == source:
                waiting += node.outputs
    return found


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
