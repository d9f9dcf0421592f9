# SPDX-License-Identifier: Apache-2.0
"""Small TensorFlow Lite files that keep something from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from weft.tb.compile.tflite_bytes import int8_conv
from weft.tb.compile.tflite_files import INT8, INT32, FileMaker
from weft.tb.compile.tflite_floats import TANH, Make, weights


def stream(file: FileMaker, kind: str = INT8, first: float = 0.0) -> None:
    """The last three rows are kept: a variable, which an own subgraph sets to ``first`` before."""
    graph, begin = file.main, file.graph()
    own: Mapping[str, Any] = {"scale": 0.02, "zero": -100} if kind == INT8 else {}
    kept = np.full((1, 3, 1, 4), round(first / 0.02) - 100 if kind == INT8 else first)
    handle = begin.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"}, name="kept")
    begin.operator("ASSIGN_VARIABLE", [handle, begin.constant(kept, kind, **own)], [])
    graph.operator("CALL_ONCE", [], [], {"InitSubgraphIndex": 1})
    handle = graph.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"}, name="kept")
    before = graph.run("READ_VARIABLE", [handle], (1, 3, 1, 4), kind, **own)
    x = graph.input("x", (1, 2, 1, 4), kind, **own)
    both = graph.run("CONCATENATION", [before, x], (1, 5, 1, 4), kind, options={"Axis": 1}, **own)
    bounds = [graph.constant(each, INT32) for each in ([0, -3, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1])]
    last = graph.run("STRIDED_SLICE", [both, *bounds], (1, 3, 1, 4), kind,
                     options={"BeginMask": 13, "EndMask": 15}, **own)
    graph.operator("ASSIGN_VARIABLE", [handle, last], [])
    if kind == INT8:
        graph.outputs = [int8_conv(graph, both, (1, 5, 1, 4), (1, 5, 1, 3), 0.02)]
    else:
        known = [graph.constant(weights(3, 3, 1, 4)), graph.constant(weights(3, seed=1))]
        graph.outputs = [graph.run("CONV_2D", [both, *known], (1, 5, 1, 3), options={"StrideW": 1, "StrideH": 1})]


def read_again(file: FileMaker) -> None:
    """A sum of all that came: the variable is read twice before it is assigned, and once behind."""
    graph, begin, shape = file.main, file.graph(), (1, 4)
    begun = begin.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"}, name="kept")
    begin.operator("ASSIGN_VARIABLE", [begun, begin.constant(np.zeros(shape))], [])
    graph.operator("CALL_ONCE", [], [], {"InitSubgraphIndex": 1})
    handle = graph.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"}, name="kept")
    before, again = (graph.run("READ_VARIABLE", [handle], shape) for _ in range(2))
    graph.operator("ASSIGN_VARIABLE", [handle, graph.run("ADD", [before, graph.input("x", shape)], shape)], [])
    graph.run("MUL", [graph.run("READ_VARIABLE", [handle], shape), graph.run("EXP", [again], shape)], shape, name="y")


def lstm(file: FileMaker, time_major: bool = False) -> None:
    graph = file.main
    units, size, shape = 5, 4, (1, 3, 4)
    gates = [graph.constant(weights(units, size, seed=seed)) for seed in range(4)]
    recurrence = [graph.constant(weights(units, units, seed=4 + seed)) for seed in range(4)]
    biases = [graph.constant(weights(units, seed=8 + seed)) for seed in range(4)]
    states = [graph.tensor(name, (1, units), variable=True) for name in ("state", "cell")]
    x = graph.input("x", (3, 1, 4) if time_major else shape)
    graph.run("UNIDIRECTIONAL_SEQUENCE_LSTM", [x, *gates, *recurrence, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1,
                                               -1], (3, 1, units) if time_major else (1, 3, units),
              options={"FusedActivationFunction": TANH, "TimeMajor": time_major}, name="y")


def rnn(file: FileMaker) -> None:
    graph = file.main
    inputs = [graph.input("x", (1, 3, 4)), graph.constant(weights(5, 4)), graph.constant(weights(5, 5, seed=1)),
              graph.constant(weights(5, seed=2)), graph.tensor("state", (1, 5), variable=True)]
    graph.run("UNIDIRECTIONAL_SEQUENCE_RNN", inputs, (1, 3, 5), options={"FusedActivationFunction": TANH}, name="y")


STREAMS: dict[str, Make] = {
    "a variable of bytes": stream, "a variable of real numbers": partial(stream, kind="float32"),
    "a variable that is read again": read_again,
    "LSTM": lstm, "LSTM, steps first": partial(lstm, time_major=True), "RNN": rnn}
"""Networks that keep something."""
