# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files whose parts are there and do not fit: numbers of buffers, operators and tensors, types, scales,
subgraphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tflite

from weft.tb.compile.tflite_files import FileMaker, Graph
from weft.tb.hostile.case import Case, quick
from weft.tb.hostile.tflite_files import COMPILE, INSPECT, LARGE, _written

IMAGE = (1, 4, 4, 2)
NAN = float("nan")
TYPES = sorted(name.lower() for name, number in vars(tflite.TensorType).items() if isinstance(number, int)
               and not name.startswith("_"))


def _network(change: Callable[[Graph, FileMaker], Any]) -> Callable[[], bytes]:
    """Return a maker of x -> FULLY_CONNECTED by constants -> ABS, changed."""
    def make() -> bytes:
        file = FileMaker()
        graph = file.main
        graph.input("x", (1, 8))
        weights = graph.constant(np.ones((4, 8)), name="w")
        graph.run("ABS", [graph.run("FULLY_CONNECTED", [0, weights], (1, 4))], (1, 4))
        change(graph, file)
        return file.content()

    return make


def _tensor(number: int, **values: Any) -> Callable[[], bytes]:
    return _network(lambda graph, file: graph.tensors[number].update(values))


def _operator(number: int, **values: Any) -> Callable[[], bytes]:
    return _network(lambda graph, file: graph.operators[number].update(values))


def _ends(kind: str, numbers: list[int]) -> Callable[[], bytes]:
    """Return a maker of a network with more inputs or outputs, by numbers of tensors."""
    return _network(lambda graph, file: getattr(graph, kind).extend(numbers))


def _scaled(scales: list[float], zeros: list[int], axis: int = 0, kind: str = "int8") -> Callable[[], bytes]:
    """Return a maker of an INT8 network whose input has these scales."""
    def make() -> bytes:
        file = FileMaker()
        graph = file.main
        graph.input("x", IMAGE, kind, scale=0.5)
        graph.run("RELU", [0], IMAGE, kind, scale=0.5)
        graph.tensors[0].update(scales=scales, zeros=zeros, axis=axis)
        return file.content()

    return make


def _loop(body: int, count: int = 3) -> Callable[[], bytes]:
    """Return a maker of WHILE whose body is a subgraph by number, perhaps the network itself."""
    def change(graph: Graph, file: FileMaker) -> None:
        for _ in range(count):
            other = file.graph()
            other.run("ABS", [other.input("a", (1, 4))], (1, 4))
        graph.run("WHILE", [3], (1, 4), options={"CondSubgraphIndex": 1, "BodySubgraphIndex": body})

    return _network(change)


def _choice(first: int, other: int) -> Callable[[], bytes]:
    return _network(lambda graph, file: graph.run("IF", [0, 3], (1, 4), options={
        "ThenSubgraphIndex": first, "ElseSubgraphIndex": other}))


FILES: dict[str, Callable[[], bytes]] = {
    "as it is": _network(lambda graph, file: None),
    **{f"buffer {number}": _tensor(1, buffer=number) for number in (0, 99, LARGE)},
    **{f"weights of {kind}": _tensor(1, kind=kind) for kind in TYPES if kind != "float32"},
    **{f"an input of {kind}": _tensor(0, kind=kind) for kind in TYPES if kind != "float32"},
    "a shape of 0": _tensor(1, shape=[0, 8]), "a shape of -1": _tensor(1, shape=[-1, 8]),
    "no shape": _tensor(1, shape=[]), "more than its buffer": _tensor(1, shape=[400, 8]),
    "less than its buffer": _tensor(1, shape=[1, 8]), "2**31 x 2**31": _tensor(1, shape=[LARGE, LARGE]),
    "a name of nothing": _tensor(0, name=""), "one name for all": _network(
        lambda graph, file: [each.update(name="same") for each in graph.tensors]),
    "a name of a surrogate": _tensor(0, name="a\x00b\u202e"), "a signature of 7 sizes": _tensor(0, signature=[-1] * 7),
    "a signature of -9": _tensor(0, signature=[-9, 8]), "an input that is a variable": _tensor(0, variable=True),
    **{f"inputs {numbers}": _operator(0, inputs=numbers) for numbers in (
        [], [0], [-1, 1], [0, -1], [0, 1, -1, -1], [0, 99], [0, -99], [1, 0], [3, 1], [0, 1] * 5000)},
    **{f"outputs {numbers}": _operator(0, outputs=numbers) for numbers in ([], [-1], [99], [2, 2], [0], [1], [2, 3])},
    **{f"the network's outputs {numbers}": _ends("outputs", numbers) for numbers in ([99], [-1], [3, 3], [0], [1])},
    **{f"the network's inputs {numbers}": _ends("inputs", numbers) for numbers in ([99], [-1], [0], [1], [2])},
    "a version of 99": _network(lambda graph, file: file.codes.__setitem__(1, (file.codes[1][0], 99))),
    "a version of -1": _network(lambda graph, file: file.codes.__setitem__(1, (file.codes[1][0], -1))),
    "an operator of its own": _network(lambda graph, file: graph.operator(
        "Mine\x1b[31m", [3], [graph.tensor("mine", (1, 4))], custom=b"\xff" * 99)),
    "options of noise": _operator(1, custom=bytes(range(256)) * 99),
    "an activation of 99": _operator(0, options={"FusedActivationFunction": 99}),
    "options of another": _operator(1, options={"Axis": 3}, table="ConcatenationOptions"),
    **{f"scale {scale}": _scaled([scale], [0]) for scale in (0.0, -1.0, NAN, float("inf"), 1e-45, 3e38)},
    **{f"zero point {zero}": _scaled([0.5], [zero]) for zero in (200, -129, 1 << 40, -(1 << 62))},
    "no zero point": _scaled([0.5], []), "three scales": _scaled([0.5] * 3, [0] * 3, 3),
    "two scales on axis 99": _scaled([0.5] * 2, [0] * 2, 99), "two scales on axis -1": _scaled([0.5] * 2, [0] * 2, -1),
    "100000 scales": _scaled([0.5] * 100_000, [0] * 100_000), "no scale": _scaled([], []),
    "a scale of floats": _scaled([0.5], [0], kind="float32"), "a scale of uint8": _scaled([0.5], [-5], kind="uint8"),
    "a scale of int16": _scaled([0.5], [5], kind="int16"), "a scale of int32": _scaled([0.5], [0], kind="int32"),
    "a loop": _loop(2), "a loop of itself": _loop(0), "a loop of nobody": _loop(77), "a loop of -1": _loop(-1),
    "5000 subgraphs": _loop(2, 5000), "a choice": _choice(0, 0), "a choice of nobody": _choice(5, -7),
}


def cases() -> list[Case]:
    """Return each file with one of two commands, in turn."""
    found = [Case(f"strange tflite: {name}", "strange tflite", _written(make, (INSPECT, COMPILE)[number % 2]),
                  code=None) for number, (name, make) in enumerate(FILES.items())]
    return quick(found, "strange tflite: buffer 99")
