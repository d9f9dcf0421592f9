# SPDX-License-Identifier: Apache-2.0
"""States of a network: outputs that the next run reads as inputs, as a model's metadata says them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import NamedTuple

import onnx

KEY = "weft.states"
"""The key of the model's metadata."""


class State(NamedTuple):
    """A state: the next run reads ``output`` of this run as ``input``.

    Before the first run it is 0, unless ``zero`` is false."""

    output: str
    input: str
    zero: bool = True


def declare_states(model: onnx.ModelProto, states: Iterable[State]) -> None:
    """Write the states into the model's metadata."""
    entries = list(states)
    if entries:
        onnx.helper.set_model_props(model, {KEY: json.dumps(entries)})


def states_of(model: onnx.ModelProto) -> tuple[State, ...]:
    """Return the states in a model's metadata by :func:`declare_states`; those of unknown ports are left out."""
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), "[]")
    inputs = {value.name for value in model.graph.input}
    outputs = {value.name for value in model.graph.output}
    try:
        found = [State(str(output), str(source), bool(zero)) for output, source, zero in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return ()  # not ours
    return tuple(state for state in found if state.output in outputs and state.input in inputs)
