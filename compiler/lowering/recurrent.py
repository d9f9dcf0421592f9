# SPDX-License-Identifier: Apache-2.0
"""Lower LSTM, GRU and RNN, written out step by step.

The products of all steps with the inputs are one convolution for each gate, whose pixels are the steps. A step adds the
product with the state before it. Hidden units fill whole lanes; those beyond the last stay 0 from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weft.compiler.frontend.graph import Node
from weft.compiler.indices.index import FILL, in_memory_order
from weft.compiler.lowering.arithmetic import constant_image
from weft.compiler.lowering.gather import exact
from weft.compiler.lowering.lookup import function
from weft.compiler.lowering.move import lie
from weft.compiler.lowering.pieces import choose
from weft.compiler.lowering.rewrite import PartPlace, Rewrite

KINDS = {"Sigmoid": "any", "Softplus": "any", "Softsign": "keeps_zero", "Tanh": "keeps_zero"}
"""Activations by lookup table, with the kind of each function (a key of ``functions.KINDS``)."""

ACTIVATIONS = ("Relu", *KINDS)
"""The supported activations, all without parameters."""

STEP_SHARE = 16
"""The part, one in so many, that a further step's product with a state counts of its weights.

All steps have them in common, but the compiler looks at them for each step."""

X, W, R, B, LENGTHS, INITIAL_H, INITIAL_C, PEEPHOLES = range(8)
"""The numbers of the operators' inputs."""


class States(NamedTuple):
    """The states of a step as canonical tensors [1, hidden, batch, 1], None for all zeros; ``c`` only for LSTM."""

    h: str | None
    c: str | None = None


@dataclass
class Direction:
    """One direction of a recurrent node, ``number`` 0 or 1, which emits the tensors of its steps.

    ``of_states``: the first product of each gate with a state, whose weights all steps read."""

    state: Rewrite
    node: Node
    number: int
    batch: int
    hidden: int
    inputs: list[str]
    activations: tuple[str, ...]
    of_states: dict[int, str] = field(default_factory=dict)

    @property
    def channels(self) -> int:
        """The number of hidden units, with those that fill lanes."""
        return -(-self.hidden // self.state.lanes) * self.state.lanes

    def gate_of(self, number: int, gate: int) -> np.ndarray:
        """Return a gate's rows of input ``number``: W or R as [channels, columns], B as [2, channels].

        Units that fill lanes have 0."""
        count = 2 if number == B else 1
        whole = self.state.constant(self.node.input(number))[self.number]
        halves = whole.reshape(count, -1, self.hidden, *whole.shape[1:]).astype(np.float64)
        return np.stack([self._filled(half[gate]) for half in halves]) if number == B else self._filled(halves[0, gate])

    def _filled(self, rows: np.ndarray) -> np.ndarray:
        """Return rows with zeros appended for the units that fill lanes."""
        return np.concatenate([rows, np.zeros((self.channels - self.hidden, *rows.shape[1:]))])

    def biases(self, gate: int) -> np.ndarray:
        """Return a gate's biases [2, channels]: of the input's product and of the state's product."""
        return self.gate_of(B, gate) if self.node.input(B) else np.zeros((2, self.channels))

    def of_input(self, gate: int, bias: np.ndarray) -> str:
        """Return the tensor of a gate's product with the inputs of all steps, plus ``bias`` [channels]."""
        rows = self.inputs[0]
        _, _, steps, _ = self.state.shapes[rows]
        return self._product(rows, self.gate_of(W, gate), bias, steps, "inputs")

    def of_state(self, gate: int, h: str, bias: np.ndarray | float = 0.0) -> str:
        """Return the tensor of a gate's product with the state ``h`` before the step, plus ``bias``."""
        weights = self.gate_of(R, gate)
        full = np.concatenate([weights, np.zeros((self.channels, self.channels - self.hidden))], 1)
        made = self._product(h, full, np.asarray(bias), self.batch, "state")
        first = self.of_states.setdefault(gate, made)
        if first != made:
            self.state.count_weights(self.node, full.size // STEP_SHARE)
            self.state.share_weights(made, first)
        return made

    def _product(self, source: str, weights: np.ndarray, bias: np.ndarray, rows: int, part: str) -> str:
        """Return the tensor of ``source`` times ``weights`` [channels, columns] plus ``bias``; each row is a pixel."""
        name = self.state.conv(self.node, source, weights[..., None, None], bias, (rows, 1), part)
        self.state.nodes[-1] = self.state.nodes[-1].replace(origin=self.node.op)
        return name

    def at(self, tensor: str, step: int) -> str:
        """Return the rows of a step from a tensor of all steps."""
        return self.state.view(self.node, tensor, (self.batch, 1), step * self.batch, 1, 1)

    def sum(self, left: str, right: str | None) -> str:
        """Return the tensor ``left`` + ``right``; None counts as 0."""
        return left if right is None else self.state.add(self.node, left, right, "sum")

    def product(self, left: str, right: str) -> str:
        """Return the tensor ``left`` * ``right``, element by element."""
        return self.state.emit(self.node, "Mul", (left, right), {}, self.state.shapes[left], "product")

    def scaled(self, tensor: str, factor: np.ndarray | float) -> str:
        """Return the tensor times ``factor``, one number or one for each channel."""
        return self.state.scale(self.node, tensor, factor, part="scaled")

    def activate(self, tensor: str, number: int) -> str:
        """Return the tensor after activation ``number`` of this direction."""
        kind = self.activations[number]
        if kind == "Relu":
            return self.state.relu(self.node, tensor, "activation")
        return function(self.state, self.node, tensor, ((kind, (0,), ()),), KINDS[kind], "activation")


Step = Callable[[int, States], States]
"""A function that returns the states after a step, given its number and the states before it."""


# -- the operators -----------------------------------------------------------------------------------------------------
def rnn(state: Rewrite, node: Node) -> None:
    """Lower RNN."""
    _run(state, node, ("Tanh",), _rnn)


def gru(state: Rewrite, node: Node) -> None:
    """Lower GRU, with the reset gate before or after the product with the state."""
    _run(state, node, ("Sigmoid", "Tanh"), _gru)


def lstm(state: Rewrite, node: Node) -> None:
    """Lower LSTM, also with peepholes."""
    _run(state, node, ("Sigmoid", "Tanh", "Tanh"), _lstm)


def _rnn(of: Direction) -> Step:
    """Return the step function of an RNN."""
    inputs = of.of_input(0, of.biases(0).sum(0))

    def step(number: int, before: States) -> States:
        recurrent = None if before.h is None else of.of_state(0, before.h)
        return States(of.activate(of.sum(of.at(inputs, number), recurrent), 0))
    return step


def _gru(of: Direction) -> Step:
    """Return the step function of a GRU, with gates z (update), r (reset), h (hidden): h = n + z (before - n)."""
    behind = bool(of.node.attributes.get("linear_before_reset", 0))
    own, recurrent = of.biases(2)
    inputs = [of.of_input(gate, of.biases(gate).sum(0)) for gate in range(2)]
    inputs.append(of.of_input(2, own if behind else own + recurrent))

    def gate(which: int, number: int, h: str | None) -> str:
        return of.activate(of.sum(of.at(inputs[which], number), None if h is None else of.of_state(which, h)), 0)

    def candidate(number: int, h: str | None) -> str | None:
        """Return the tensor that the old state adds to the new state, None for no tensor."""
        if h is None and not (behind and recurrent.any()):
            return None
        reset = gate(1, number, h)
        if h is None:
            return of.scaled(reset, recurrent)
        return (of.product(reset, of.of_state(2, h, recurrent)) if behind
                else of.of_state(2, of.product(reset, h)))

    def step(number: int, before: States) -> States:
        update = gate(0, number, before.h)
        new = of.activate(of.sum(of.at(inputs[2], number), candidate(number, before.h)), 1)
        minus = of.scaled(new, -1.0)
        kept = of.product(update, minus if before.h is None else of.sum(minus, before.h))
        return States(of.sum(kept, new))
    return step


def _lstm(of: Direction) -> Step:
    """Return the step function of an LSTM, with gates i (input), o (output), f (forget), c (cell)."""
    inputs = [of.of_input(gate, of.biases(gate).sum(0)) for gate in range(4)]
    seen = of.state.constant(of.node.input(PEEPHOLES))[of.number].reshape(3, -1) if of.node.input(PEEPHOLES) else None

    def gate(which: int, number: int, h: str | None, c: str | None) -> str:
        total = of.sum(of.at(inputs[which], number), None if h is None else of.of_state(which, h))
        if seen is not None and c is not None and which < len(seen):
            total = of.sum(of.scaled(c, of._filled(seen[which])), total)
        return of.activate(total, 1 if which == 3 else 0)

    def step(number: int, before: States) -> States:
        cell = of.product(gate(0, number, before.h, before.c), gate(3, number, before.h, None))
        if before.c is not None:
            cell = of.sum(of.product(gate(2, number, before.h, before.c), before.c), cell)
        return States(of.product(gate(1, number, before.h, cell), of.activate(cell, 2)), cell)
    return step


# -- what they share ---------------------------------------------------------------------------------------------------
def _run(state: Rewrite, node: Node, activations: tuple[str, ...], cell: Callable[[Direction], Step]) -> None:
    """Emit all directions and steps of a recurrent node, then its outputs.

    ``cell`` returns the step function of a direction. Outputs are Y [steps, directions, batch, hidden] and the last
    states [directions, batch, hidden]; with ``layout`` 1 the batch comes first."""
    turned = bool(node.attributes.get("layout", 0))
    index = state.index(node.input(X))
    index = np.swapaxes(index, 0, 1) if turned else index
    steps, batch, size = index.shape
    count, _, hidden = state.shape(node.input(R))
    _check_lengths(state, node, steps)
    rows = f"{node.output}/rows"
    lie(state, rows, node.input(X), index.reshape(-1, size))
    source = exact(state, node, rows)
    named = tuple(node.attributes.get("activations", activations * count))
    every: list[list[States]] = []
    for number in range(count):
        own = named[number * len(activations):][:len(activations)]
        of = Direction(state, node, number, batch, hidden, [source], own)
        now, made, step = _initial(of, turned), [], cell(of)
        backwards = number == 1 or node.attributes.get("direction", "forward") == "reverse"
        for place in reversed(range(steps)) if backwards else range(steps):
            now = step(place, now)
            made.append(now)
        every.append(made[::-1] if backwards else made)
    lasts = [made[0 if number == 1 or node.attributes.get("direction") == "reverse" else -1]
             for number, made in enumerate(every)]
    _hold_outputs(state, node, every, lasts, turned)


def _check_lengths(state: Rewrite, node: Node, steps: int) -> None:
    """Raise CompileError unless all sequences have all steps."""
    if node.input(LENGTHS) and (state.constant(node.input(LENGTHS)) != steps).any():
        raise state.refusal(node, f"sequence_lens {node.input(LENGTHS)!r}",
                            state.constant(node.input(LENGTHS)).tolist(), f"{steps}, all steps, for each of the batch")


def _initial(of: Direction, turned: bool) -> States:
    """Return the initial states of a direction; ``turned``: the batch comes first."""
    h, c = (_initial_of(of, number, turned) for number in (INITIAL_H, INITIAL_C))
    return States(h, c)


def _initial_of(of: Direction, number: int, turned: bool) -> str | None:
    """Return the initial state in input ``number`` as a tensor, or None if it is 0 or absent."""
    state, name = of.state, of.node.input(number)
    if not name:
        return None
    if state.is_constant(name):
        values = state.constant(name)
        values = (values[:, of.number] if turned else values[of.number]).astype(np.float64)
        rows = np.concatenate([values, np.zeros((of.batch, of.channels - of.hidden))], 1)
        return constant_image(state, of.node, in_memory_order(rows), of.inputs[0]) if rows.any() else None
    index = state.index(name)
    own = f"{of.node.output}/initial{number}.{of.number}"
    lie(state, own, name, index[:, of.number] if turned else index[of.number])
    tensor = exact(state, of.node, own)
    if of.channels == of.hidden:
        return tensor
    chosen = np.full(of.channels, FILL)
    chosen[:of.hidden] = range(of.hidden)
    return choose(state, of.node, tensor, chosen, part="initial")


def _hold_outputs(state: Rewrite, node: Node, every: list[list[States]], lasts: list[States], turned: bool) -> None:
    """Note where the outputs lie that are read: all states of all steps, and the last states."""
    read = state.graph.output_tensors() | state.graph.consumers().keys()
    names = [name if name in read else "" for name in (*node.outputs, "", "", "")[:3]]
    if names[0]:
        places = [made[step].h for step in range(len(every[0])) for made in every]
        _hold(state, node, names[0], [place for place in places if place], (2, 0, 1) if turned else ())
    for name, states in zip(names[1:], ([last.h for last in lasts], [last.c for last in lasts]), strict=True):
        if name:
            _hold(state, node, name, [place for place in states if place], (1, 0) if turned else ())


def _hold(state: Rewrite, node: Node, name: str, tensors: list[str], order: tuple[int, ...]) -> None:
    """Join tensors [1, hidden, batch, 1] as the model's tensor ``name``, with its axes in ``order``."""
    _, channels, batch, _ = state.shapes[tensors[0]]
    rows = len(tensors) * batch
    parts = [(tensor, PartPlace(0, number * batch, 1, 1)) for number, tensor in enumerate(tensors)]
    whole = tensors[0] if len(tensors) == 1 else state.assemble(node, parts, (1, channels, rows, 1), "states")
    shape = state.graph.shapes[name]
    *_, hidden = shape
    places = np.arange(hidden) * rows + np.arange(rows)[:, None]
    if order:
        outer = (len(tensors) // shape[2], shape[2], batch) if len(order) == 3 else (len(tensors), batch)
        places = places.reshape(*outer, hidden).transpose(*order, len(order))
    state.hold(name, whole, places.reshape(shape))
