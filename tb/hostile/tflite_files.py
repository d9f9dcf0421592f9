# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files: offsets that lead astray, tables that stand in for each other, sizes beyond all room."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from weft.tb.compile.tflite_bytes import int8_network
from weft.tb.compile.tflite_files import INT32, FileMaker, Graph
from weft.tb.compile.tflite_floats import FLOATS, IMAGE, kind_of
from weft.tb.compile.tflite_streams import lstm, stream
from weft.tb.hostile.case import Case, Recipe, quick

Change = Callable[[Graph], Any]
COMPILE = ["compile", "net.tflite", "-a", "arty_int8", "-o", "out"]
INSPECT = ["inspect", "net.tflite"]
LARGE = (1 << 31) - 1
DAMAGES = 60
"""Files of the sweep, a fifth of them in each of its ways."""


def _content(make: Callable[[FileMaker], Any]) -> bytes:
    file = FileMaker()
    make(file)
    return file.content()


GOOD: tuple[Callable[[FileMaker], Any], ...] = (int8_network, stream, lstm, FLOATS["sparse blocks"],
                                                FLOATS["STRIDED_SLICE, masks"])


def damaged(seed: int) -> bytes:
    """Return a good file cut off, with bytes or an offset that are wrong, or an offset of another place."""
    chance = random.Random(seed)
    content = bytearray(_content(GOOD[seed % len(GOOD)]))
    word, other = (4 * chance.randrange(2, len(content) // 4) for _ in range(2))
    way = seed // len(GOOD) % 4
    if way == 0:
        return bytes(content[:chance.randrange(len(content))])
    if way == 1:
        for _ in range(4):
            content[chance.randrange(8, len(content))] = chance.randrange(256)
    elif way == 2:
        wrong = chance.choice((0, 1, LARGE, 1 << 31, (1 << 32) - 1, chance.randrange(1 << 16)))
        content[word:word + 4] = wrong.to_bytes(4, "little")
    else:
        content[word:word + 4] = content[other:other + 4]
    return bytes(content)


def _one(change: Change, *, shape: tuple[int, ...] = IMAGE) -> Callable[[], bytes]:
    """Return a maker of a network of one input, ``x``, and what ``change`` adds."""
    return lambda: _content(lambda file: (file.main.input("x", shape), change(file.main)))


def _run(code: str, made: tuple[int, ...], *known: Any, kind: str = "float32", **options: Any) -> Callable[[], bytes]:
    def add(graph: Graph) -> None:
        numbers = [graph.constant(value, kind_of(value)) for value in known]
        graph.run(code, [0, *numbers], made, kind, options=options)

    return _one(add)


def _many(code: str, count: int, name: str = "") -> Callable[[], bytes]:
    def add(graph: Graph) -> None:
        source = 0
        for _ in range(count):
            source = graph.run(code, [source], IMAGE, name=name)

    return _one(add)


def _fills(count: int) -> Callable[[], bytes]:
    """Return a maker of constants of 2**26 numbers each, of a few bytes."""
    shape = (1 << 13, 1 << 13)

    def add(graph: Graph) -> None:
        for _ in range(count):
            large = graph.run("FILL", [graph.constant(shape, INT32), graph.constant(0.5)], shape)
            graph.run("ADD", [0, graph.run("DEQUANTIZE", [large], shape)], shape)
            graph.outputs.append(len(graph.tensors) - 1)

    return _one(add, shape=(1, 1 << 13))


def _calls(number: int) -> Callable[[], bytes]:
    """Return a maker of a subgraph that is run before, and that runs itself."""
    def make(file: FileMaker) -> None:
        graph, begin = file.main, file.graph()
        begin.operator("CALL_ONCE", [], [], {"InitSubgraphIndex": 1})
        graph.operator("CALL_ONCE", [], [], {"InitSubgraphIndex": number})
        graph.run("ABS", [graph.input("x", IMAGE)], IMAGE)

    return lambda: _content(make)


def _sparse(segments: list[int], indices: list[int], size: int = 8) -> Callable[[], bytes]:
    def add(graph: Graph) -> None:
        known = graph.tensor("sparse", (5, size), data=np.ones(len(indices), np.float32),
                             sparsity=([0, 1], [], [5, (segments, indices)]))
        graph.run("FULLY_CONNECTED", [0, graph.run("DENSIFY", [known], (5, size))], (1, 5))

    return _one(add, shape=(1, size))


def _shared_vectors() -> bytes:
    """Return a file in which every offset of the list of subgraphs leads to the first one."""
    def make(file: FileMaker) -> None:
        int8_network(file)
        for _ in range(2000):
            file.graph()

    content = bytearray(_content(make))
    count = (2001).to_bytes(4, "little")
    start = content.index(count) + 4
    first = start + int.from_bytes(content[start:start + 4], "little")
    for number in range(1, 2001):
        place = start + 4 * number
        content[place:place + 4] = (first - place).to_bytes(4, "little", signed=False) if first > place else bytes(4)
    return bytes(content)


FILES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"", "no flatbuffer": lambda: b"no flatbuffer at all",
    "another mark": lambda: b"\x1c\0\0\0TFL2" * 9,
    "nothing but ones": lambda: b"\x1c\0\0\0TFL3" + b"\xff" * 100, "an ONNX file": lambda: b"\x08\x08\x12\x04made" * 20,
    "nothing but zeros": lambda: b"\0\0\0\0TFL3" + bytes(1000), "subgraphs that are one": _shared_vectors,
    "a tensor of 2**62": _one(lambda graph: graph.run("ABS", [0], (LARGE, LARGE))),
    "an input of 2**62": _one(lambda graph: graph.run("ABS", [0], (LARGE, LARGE)), shape=(LARGE, LARGE)),
    "a negative size": _one(lambda graph: graph.run("ABS", [0], (1, -6, 7, 4))),
    "1000 dimensions": _one(lambda graph: graph.run("ABS", [0], (1,) * 1000), shape=(1,) * 1000),
    "a tensor that is not there": _one(lambda graph: graph.run("ABS", [99], IMAGE)),
    "a tensor of itself": _one(lambda graph: graph.operator("ABS", [1], [graph.tensor("y", IMAGE)])),
    "a cycle": _one(lambda graph: (graph.operator("ABS", [graph.tensor("b", IMAGE) + 1], [1]),
                                   graph.operator("ABS", [1], [graph.tensor("c", IMAGE)]))),
    "a tensor made twice": _one(lambda graph: [graph.operator("ABS", [0], [graph.tensor("y", IMAGE)]),
                                               graph.operator("NEG", [0], [1])]),
    "no operator": _one(lambda graph: None), "no result": _one(lambda graph: graph.operator("ABS", [0], [])),
    "20000 operators": _many("ABS", 20_000), "16000 of one name": _many("ABS", 16_000, "same"),
    "a subgraph that runs itself": _calls(1), "a subgraph that is not there": _calls(7), "the network once": _calls(0),
    "constants of 2**26 numbers": _fills(20),
    "sparse segments backwards": _sparse([0, 4, 2, 3, 4, 5], [0, 1, 2, 3, 4]),
    "sparse indices outside": _sparse([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 99]),
    "sparse and wide": _sparse([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4], 1 << 23),
    "PAD of 2**30": _run("PAD", IMAGE, [[0, 0], [1 << 30, 1 << 30], [0, 0], [0, 0]]),
    "PAD below nothing": _run("PAD", IMAGE, [[0, 0], [-9, 0], [0, 0], [0, 0]]),
    "TILE of 2**30": _run("TILE", IMAGE, [1, 1 << 30, 1 << 30, 1]),
    "RESIZE to 2**30": _run("RESIZE_BILINEAR", (1, 1 << 30, 1 << 30, 4), [1 << 30, 1 << 30]),
    "SPLIT in none": _one(lambda graph: graph.operator("SPLIT", [graph.constant(3, INT32), 0], [], {"NumSplits": 0})),
    "CUMSUM of 2**20": _one(lambda graph: graph.run("CUMSUM", [0, graph.constant(1, INT32)], (1, 1 << 20)),
                            shape=(1, 1 << 20)),
    "STRIDED_SLICE by 0": _run("STRIDED_SLICE", IMAGE, [0, 0, 0, 0], [1, 6, 7, 4], [1, 0, 1, 1]),
    "TRANSPOSE twice the axis": _run("TRANSPOSE", IMAGE, [0, 1, 1, 3]), "MEAN of axis 99": _run("MEAN", (1, 4), [99]),
    "CONV_2D of strides 0": _run("CONV_2D", IMAGE, np.ones((4, 1, 1, 4)), StrideW=0, StrideH=0),
    "CONV_2D of no channels": _run("CONV_2D", IMAGE, np.ones((4, 1, 1, 0)), StrideW=1, StrideH=1),
    "names of escapes": _one(lambda graph: graph.run("SVDF", [0], IMAGE, name="\x1b[31mred")),
    "a name of a million letters": _one(lambda graph: graph.run("SVDF", [0], IMAGE, name="a" * 1_000_000)),
}
LEGAL = {"16000 of one name", "no operator", "no result", "sparse and wide"}
"""Odd, and what they say can be done."""


def _written(make: Callable[[], bytes], command: list[str]) -> Recipe:
    def recipe(folder: Path) -> list[str]:
        (folder / "net.tflite").write_bytes(make())
        return command

    return recipe


def cases() -> list[Case]:
    found = [Case(f"tflite file: {name}", ".tflite", _written(make, INSPECT), code=None if name in LEGAL else 1)
             for name, make in FILES.items()]
    found += [Case(f"tflite damage {seed}", ".tflite", _written(partial(damaged, seed), COMPILE if seed % 10 == 0 else
                                                                INSPECT), code=None) for seed in range(DAMAGES)]
    return quick(found, "tflite file: subgraphs that are one", "tflite file: a cycle",
                 "tflite file: constants of 2**26 numbers", "tflite file: a subgraph that runs itself",
                 "tflite file: CUMSUM of 2**20", "tflite file: sparse and wide", "tflite file: names of escapes",
                 *(f"tflite damage {seed}" for seed in range(5, 60, 11)))
