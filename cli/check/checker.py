"""``weft compile --check``: the same input runs after every step, and the first step that changes the result is named.

What runs is the newest product: the graph on onnxruntime, the layers in real numbers, the layers in fixed point (with
constants as they are, as they are stored, and with tensors where they are placed), the LIR, and the program on the
golden machine. Each result is compared with the one before it. Rounding to fixed point is allowed one loss, where the
points are chosen; before that results must be as near as single precision is, after it they must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper

from weft.cli.check.evaluate import Fixed, Real, Tensors, quantised, stored
from weft.cli.check.lir_machine import run_lir
from weft.compiler.errors import reason
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import FROZEN, load_model
from weft.compiler.frontend.tensorflow_reader import run_frozen
from weft.compiler.layers.hir import Var
from weft.compiler.memory.variables import whole_var
from weft.compiler.passes.index import feed
from weft.compiler.pipeline import NOT_MADE, State, Step
from weft.compiler.quantize.calibrate import check_inputs, random_inputs
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.runtime.compare import signal_to_noise
from weft.runtime.elements import gather, pack, unpack
from weft.runtime.errors import Mismatch
from weft.runtime.onnx_engine import run_model

FLOAT_DECIBELS = 80.0
"""Signal to noise that two ways of computing in single precision reach by far."""

DECIBELS_A_BIT = 2.0
"""Of the data type: what rounding everything to it leaves at least (32 dB at 16 bits)."""

TABLE_DECIBELS = 20.0
"""What is left at least where a value table takes the place of a function: 64 entries of straight pieces, the fewest
that random networks get, reach that."""

Results = dict[str, np.ndarray]
"""Outputs by name, in the user's shape, as real numbers."""


@dataclass(frozen=True)
class Verdict:
    """``decibels`` between the step's result and the one before it, None where they are equal; ``least`` is what is
    allowed, None for bit for bit; ``problem`` in words where the step is at fault."""

    step: str
    runs: str
    decibels: float | None
    least: float | None
    problem: str = ""

    @property
    def allowed(self) -> str:
        """In words."""
        if self.least is None:
            return "equal"
        return "anything" if self.least == -math.inf else f"{self.least:g} dB"

    def to_json(self) -> dict[str, Any]:
        """``signal_to_noise`` is null where results are equal, or have nothing in common."""
        finite = self.decibels is not None and math.isfinite(self.decibels)
        return {"step": self.step, "runs": self.runs, "equal": self.decibels is None,
                "signal_to_noise": self.decibels if finite else None, "allowed": self.allowed,
                "problem": self.problem or None}


class Checker:
    """Give :meth:`after` to ``compile_model`` as ``watch``; then ask ``verdicts`` and :meth:`insist`."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.sample: Mapping[str, np.ndarray] = {}
        self._before: Results = {}
        self._product: object = None

    def after(self, step: Step, state: State) -> None:
        """Run what the step left, and compare."""
        if not self.verdicts:
            self.sample = first_sample(state)
            self._before = original(state, self.sample)
        runs, product, run = newest(state)
        least = self._least(runs, state)
        if product is self._product:
            self.verdicts.append(Verdict(step.name, runs, None, least))
            return
        try:
            found = run(state, self.sample)
            decibels, problem = compare(self._before, found, least)
        except Exception as error:  # a broken step may leave anything; what it raises has no common type
            found, decibels = {}, -math.inf
            problem = f"cannot run: {reason(error)}"
        self.verdicts.append(Verdict(step.name, runs, decibels, least, problem))
        self._before, self._product = found or self._before, product

    def _least(self, runs: str, state: State) -> float | None:
        """What is allowed between the last result and one of ``runs``."""
        if runs in (GRAPH, LAYERS):
            return FLOAT_DECIBELS
        last, enough = self.verdicts[-1].runs, DECIBELS_A_BIT * state.arch.number.width
        if any(layer.lookup for layer in state.layers):
            enough = min(enough, TABLE_DECIBELS)
        numbers = state.arch.numbers
        if last == LAYERS:
            return -math.inf if state.plain or not numbers.has_points else enough
        if last == PLACED and runs == LIR and numbers.order_matters:  # much so where sums saturate
            rounded = next(verdict for verdict in self.verdicts if verdict.runs == FIXED)
            return enough if (rounded.decibels or 0) >= enough else -math.inf
        return None

    def insist(self) -> None:
        """Raises Mismatch, naming the first step that changes the result, unless there is none."""
        for verdict in self.verdicts:
            if verdict.problem:
                raise Mismatch(f"step {verdict.step!r} changes the result: {verdict.problem}")


def first_sample(state: State) -> Mapping[str, np.ndarray]:
    """One value for each input: the first of calibration, else of those that take its place."""
    samples = (random_inputs(state.graph) if state.inputs is None else check_inputs(state.graph, state.inputs))
    return {port.name: samples[port.name][0].reshape(port.shape) for port in state.graph.inputs}


def compare(before: Results, found: Results, least: float | None) -> tuple[float | None, str]:
    """Decibels of the worst output that both have, and what is wrong with it, if anything."""
    worst: tuple[float, str] | None = None
    for name in before.keys() & found.keys():
        if before[name].shape != found[name].shape:
            return -math.inf, f"output {name!r} has shape {found[name].shape}, not {before[name].shape}"
        if not np.array_equal(before[name], found[name]):
            worst = min(filter(None, (worst, (_decibels(before[name], found[name]), name))))
    if not before.keys() & found.keys():
        return -math.inf, "no output is left"
    if worst is None:
        return None, ""
    decibels, name = worst
    if least is not None and decibels >= least:
        return decibels, ""
    different = int((before[name] != found[name]).sum())
    allowed = "none" if least is None else f"{least:g} dB or more"
    return decibels, (f"output {name!r} differs in {different} of {before[name].size} values, {decibels:.1f} dB; "
                      f"allowed: {allowed}")


def _decibels(reference: np.ndarray, found: np.ndarray) -> float:
    """Of results that differ; infinite where the difference is too small to be squared."""
    distance = signal_to_noise(float((reference ** 2).sum()), float(((reference - found) ** 2).sum()))
    return math.inf if distance is None else distance


# -- the original ------------------------------------------------------------------------------------------------------
def original(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    """The model file itself, by the tool that it is made for."""
    if state.model.suffix == FROZEN:
        found = run_frozen(state.model, state.outputs, sample)
        return {name: np.asarray(value, np.float64) for name, value in found.items()}
    model = load_model(state.model, state.outputs)
    kinds = {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
             for value in model.graph.input if value.name in sample}
    found = run_model(model, {name: np.asarray(sample[name], kind) for name, kind in kinds.items()})
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


# -- what each step left -----------------------------------------------------------------------------------------------
GRAPH, LAYERS, FIXED, STORED, PLACED, LIR, PROGRAM = (
    "graph on onnxruntime", "layers in real numbers", "layers in fixed point", "layers, stored constants",
    "layers, placed tensors", "LIR on golden", "program on golden")

Run = Callable[[State, Mapping[str, np.ndarray]], Results]


def newest(state: State) -> tuple[str, object, Run]:
    """What of a state can be run, the newest product first: its name, itself, and how."""
    if state.program:
        return PROGRAM, state.program, _run_program
    if state.schedule is not NOT_MADE:
        return LIR, state.schedule, _run_lir
    if state.layout is not NOT_MADE:
        return PLACED, state.layout, _run_fixed
    if state.consts is not NOT_MADE:
        return STORED, state.consts, _run_fixed
    if state.points is not NOT_MADE:
        return FIXED, state.points, _run_fixed
    if state.layers:
        return LAYERS, state.layers, _run_real
    return GRAPH, state.graph, _run_graph


def _run_graph(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    """With the host's part behind it, where there is one."""
    tensors = run_model(to_onnx(state.graph), feed(state.graph, sample))
    found = {port.name: gather(np.asarray(tensors[port.tensor]), port.order, port.shape)
             for port in state.graph.outputs}
    if state.host is not None:
        given = {name: found[name].astype(np.float32) for name in state.host.inputs}
        found |= run_model(state.host.model, given)
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def _run_real(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    tensors = Tensors(state.graph, state.arch, np.float64)
    for name, value in feed(state.graph, sample).items():
        tensors.write(whole_var(state.graph, name), value[0])
    Real(state.graph.constants, state.graph.opset).run(state.layers, tensors)
    return _outputs(state, lambda var: tensors.read(var))


def _run_fixed(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    layout = None if state.layout is NOT_MADE else state.layout
    tensors = Tensors(state.graph, state.arch, np.int64, layout)
    for name, value in feed(state.graph, sample).items():
        tensors.write(whole_var(state.graph, name), state.arch.number.quantize(value[0], state.points.vars[name]))
    integers = (quantised(state.layers, state.graph.constants, state.points, state.arch)
                if state.consts is NOT_MADE else stored(state.layers, state.consts, state.arch))
    Fixed(state.arch, state.points, integers).run(state.layers, tensors)
    return _outputs(state, lambda var: _real(state, var, tensors.read(var)))


def _run_lir(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    memories = _memories(state, sample)
    run_lir(state.schedule.operations, Machine(state.arch, *memories))
    return _outputs(state, lambda var: _real(state, var, _from_dram(state, memories[0], var)))


def _run_program(state: State, sample: Mapping[str, np.ndarray]) -> Results:
    memories = _memories(state, sample)
    Machine(state.arch, *memories).run(state.program)
    return _outputs(state, lambda var: _real(state, var, _from_dram(state, memories[0], var)))


def _memories(state: State, sample: Mapping[str, np.ndarray]) -> tuple[Dram, Dram]:
    """DRAM0 with the inputs, DRAM1 with the constants."""
    dram0, dram1 = Dram(state.arch), Dram(state.arch)
    dram1.write(0, state.consts.vectors)
    if state.layout.copy is not None:
        dram0.write(state.layout.copy.base, state.consts.vectors)
    for name, value in feed(state.graph, sample).items():
        scalars = state.arch.number.quantize(value[0], state.points.vars[name])
        dram0.write(state.layout.dram0[name].base, pack(scalars, state.arch.array_size))
    return dram0, dram1


def _from_dram(state: State, dram0: Dram, var: Var) -> np.ndarray:
    place = state.layout.dram0[var.name]
    return unpack(dram0.read(place.base, place.size), (var.channels, var.height, var.width))


def _real(state: State, var: Var, scalars: np.ndarray) -> np.ndarray:
    return state.arch.number.dequantize(scalars, state.points.vars[var.root])


def _outputs(state: State, read: Callable[[Var], np.ndarray]) -> Results:
    """The machine's outputs, in the user's shape."""
    return {port.name: gather(read(whole_var(state.graph, port.tensor)), port.order, port.shape)
            for port in state.graph.outputs}
