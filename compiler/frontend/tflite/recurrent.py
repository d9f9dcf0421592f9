# SPDX-License-Identifier: Apache-2.0
"""Convert recurrent layers; their states are inputs and outputs (``states.py``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tflite

from weft.compiler.frontend.tflite.operation import ACTIVATIONS, Convert, Operation
from weft.compiler.frontend.tflite.values import Value

GATES = (0, 3, 1, 2)
"""The file's number of each gate in ONNX's order (input, output, forget, cell)."""

TANH = tflite.ActivationFunctionType.TANH
WEIGHTS, RECURRENCE, PEEPHOLES, BIASES, PROJECTION, STATES, NORMS = 1, 5, 9, 12, 16, (18, 19), 20
"""The first input of each group of UNIDIRECTIONAL_SEQUENCE_LSTM; the states are output and cell."""


def unidirectional_sequence_lstm(op: Operation) -> None:
    """Convert UNIDIRECTIONAL_SEQUENCE_LSTM.

    Raise CompileError for peepholes, projection, clipping and normalised gates, which ONNX's LSTM lacks."""
    for what, first, count in (("peepholes", PEEPHOLES, 3), ("a projection", PROJECTION, 2),
                               ("normalised gates", NORMS, 4)):
        if any(op.has(first + number) for number in range(count)):
            raise op.refusal("", f"an LSTM with {what}", "an LSTM of four plain gates")
    if not op.has(WEIGHTS) or op.option("CellClip") or op.option(
            "FusedActivationFunction", TANH) != TANH:
        raise op.refusal("", "coupled gates, a clipped cell, or an activation other than TANH",
                         "an LSTM of four plain gates")
    units, inputs = op.shape(WEIGHTS + 1, 2)
    weights = [op.constant(_gates(op, first, (units, size))[None], what)
               for first, size, what in ((WEIGHTS, inputs, "weights"), (RECURRENCE, units, "recurrence"))]
    biases = np.concatenate([_gates(op, BIASES, (units,)), np.zeros(4 * units, np.float32)])
    _recurrent(op, "LSTM", [*weights, op.constant(biases[None], "biases")], STATES, units)


def _gates(op: Operation, first: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return the constants of the four gates one after the other."""
    found = [op.numbers(first + gate) for gate in GATES]
    if any(each.shape != shape for each in found):
        raise op.refusal("weights", [list(each.shape) for each in found], f"four of {list(shape)}")
    return np.concatenate(found).astype(np.float32)


def unidirectional_sequence_rnn(op: Operation) -> None:
    """Convert UNIDIRECTIONAL_SEQUENCE_RNN. Inputs are sequence, weights, recurrence, bias, state."""
    units, _ = op.shape(1, 2)
    activation = ACTIVATIONS.get(op.option("FusedActivationFunction", 0), ("", ()))[0]
    if activation not in ("Relu", "Tanh"):
        raise op.refusal("fused activation", activation or "none", "RELU, TANH")
    biases = np.concatenate([op.numbers(3).ravel(), np.zeros(units)]).astype(np.float32)
    names = [op.constant(op.numbers(index).astype(np.float32)[None], what)
             for index, what in ((1, "weights"), (2, "recurrence"))]
    _recurrent(op, "RNN", [*names, op.constant(biases[None], "biases")], (4,), units, activations=[activation])


def _recurrent(op: Operation, onnx: str, constants: Sequence[str], states: Sequence[int], units: int,
               **attributes: Sequence[str]) -> None:
    """Add a recurrent node, with steps as the first axis and a direction's axis for states."""
    first, second, _ = op.shape(0, 3)
    steps, batch = (first, second) if op.option("TimeMajor") else (second, first)
    source = op.read(0) if op.option("TimeMajor") else op.emit("Transpose", [op.read(0)], perm=[1, 0, 2])
    befores = [_state(op, index) for index in states]
    given = [op.reshaped(op.writer.as_real(op.operator.inputs[index]), (1, batch, units)) for index in states]
    wanted = [f"{op.name}/{what}" for what in ("sequence", *(before.name for before in befores))]
    made, *behind = op.writer.many(onnx, [source, *constants, "", *given], wanted, hidden_size=units, **attributes)
    made = op.reshaped(made, (steps, batch, units))
    if not op.option("TimeMajor"):
        made = op.emit("Transpose", [made], perm=[1, 0, 2])
    op.give(made)
    for before, name in zip(befores, behind, strict=True):
        op.writer.keep(before, op.reshaped(name, before.shape))


def _state(op: Operation, index: int) -> Value:
    """Return a state, which becomes an input of the network. Raise CompileError for one that something else makes."""
    value = op.input(index)
    if value.is_made:
        raise op.refusal(f"state {value.name!r}", "a constant, or the state of another layer",
                         "a variable of this layer alone")
    op.writer.input(op.operator.inputs[index])
    return value


CONVERTERS: dict[str, Convert] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": unidirectional_sequence_lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": unidirectional_sequence_rnn}
