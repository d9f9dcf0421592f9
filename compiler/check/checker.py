# SPDX-License-Identifier: Apache-2.0
"""``weft compile --check``: the same input runs after every step, and the first step that changes the result is named.

The newest product that can run is run (``runners.py``). The graph runs on onnxruntime. The layers run in real numbers,
then in the machine's integers: with constants as chosen, as stored, and with tensors where they are placed. The LIR
runs by itself, and the program on the golden machine. Each result is compared with the one before it. Rounding to
integers is allowed one loss, where points or scales are chosen. Before that results must be as near as single precision
is, after it they must be equal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper

from weft.compiler.check.runners import RUNNERS, Results, Sample, newest
from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.precision import is_half
from weft.compiler.frontend.quantizers import FAKE_QUANTIZE
from weft.compiler.frontend.reader import FROZEN, load_model
from weft.compiler.frontend.tensorflow_reader import run_frozen
from weft.compiler.layers.hir import Layers
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.partition import Part
from weft.compiler.passes.quantization import Quantization
from weft.compiler.products import Products, Step
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.samples import Samples, check_inputs, random_inputs
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SchemeKind
from weft.support.errors import Mismatch
from weft.support.signals import signal_to_noise
from weft.tmodel.onnx_engine import run_model

FLOAT_DECIBELS = 80.0
"""The signal to noise that two computations in single precision always reach."""

HALF_DECIBELS = 40.0
"""The signal to noise for a file in half precision, which the compiler computes in single precision."""

DECIBELS_A_BIT = 2.0
"""The least signal to noise for each bit of the data type after rounding (32 dB at 16 bits)."""

BYTE_DECIBELS = 10.0
"""The least signal to noise of a network of real numbers with scales from calibration.

MobileNetV2, the worst that is known, keeps 15 dB."""

TABLE_DECIBELS = 20.0
"""The least signal to noise after lookup tables replace functions.

64 entries of straight pieces, the fewest that random networks get, reach that."""

ROUNDED_DECIBELS = 20.0
"""The least signal to noise of a quantised file while graphs round as it does.

Sums in another order round some bytes to the other side."""

TURNED_DECIBELS = 45.0
"""The least signal to noise of a network in which turns replace roots of squares; they are right to 69 dB."""

TURNED = "turn_magnitudes"
"""The step after which lengths are computed by turns."""

LIMITED = "limits_of_quantizers"
"""The step after which graphs for machines of fixed point no longer round as a quantised file says."""

SETTLED = "propagate_quantizers"
"""The step after which graphs for INT8 machines no longer round as a quantised file says.

The machine's integers are compared with the result before it."""


@dataclass(frozen=True)
class Verdict:
    """A verdict says how far the result of a ``step`` is from the result before it.

    ``runs`` says what ran. ``decibels`` is the signal to noise between the two results, None if they are equal.
    ``least`` is the least signal to noise that is allowed, None if the results must be equal. ``problem`` says in words
    what is wrong, and is empty if nothing is."""

    step: str
    runs: str
    decibels: float | None
    least: float | None
    problem: str = ""

    @property
    def allowed(self) -> str:
        """The allowed difference, in words."""
        if self.least is None:
            return "equal"
        return "anything" if self.least == -math.inf else f"{self.least:g} dB"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as an object; ``signal_to_noise`` is null if results are equal or unrelated."""
        finite = self.decibels is not None and math.isfinite(self.decibels)
        return {"step": self.step, "runs": self.runs, "equal": self.decibels is None,
                "signal_to_noise": self.decibels if finite else None, "allowed": self.allowed,
                "problem": self.problem or None}


class Checker:
    """A checker runs the product of each step on one input, and compares the result with that of the step before.

    Give :meth:`after` to ``compile_model`` as ``watch``. Then ``verdicts`` has a :class:`Verdict` for each step, in
    order, and :meth:`insist` raises Mismatch for the first step that changes the result."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.sample: Sample = {}
        self._before: Results = {}
        self._product: object = None
        self._kind: type = Graph
        self._rounding: Verdict | None = None
        self._rounded: Results | None = None
        self._part: Part | None = None

    def after(self, step: Step, products: Products) -> None:
        """Run the step's product, and compare its result with the one before."""
        name = self._begin(step, products)
        kind = newest(products)
        runner, least = RUNNERS[kind], self._least(kind, products)
        before = self._before
        if step.name == LIMITED:
            least = -math.inf
        if step.name == TURNED and least is not None:
            least = min(least, TURNED_DECIBELS)
        if step.name == SETTLED and products[Quantization].tensors:  # from here on graphs do not round
            self._rounded, least = self._before, -math.inf
        if kind is Numbers and self._kind is not Numbers and self._rounded is not None:
            before, least = self._rounded, DECIBELS_A_BIT * products[Arch].number.width
        product: object = products[kind]
        if product is self._product:
            self.verdicts.append(Verdict(name, runner.name, None, least))
            return
        try:
            found = runner.run(products, self.sample)
            decibels, problem = compare(before, found, least)
        except Exception as error:  # a broken step may leave anything; what it raises has no common type
            found, decibels = {}, -math.inf
            problem = f"cannot run: {reason(error)}"
        self.verdicts.append(Verdict(name, runner.name, decibels, least, problem))
        self._before, self._product, self._kind = found or self._before, product, kind
        if kind is Numbers:
            self._rounding = self.verdicts[-1]

    def _begin(self, step: Step, products: Products) -> str:
        """Return the step's name in verdicts; begin anew for the first product of the network or of a subgraph.

        The comparison then begins with the model file itself, or with the subgraph's graph."""
        part = products.get(Part)
        if not self.verdicts:
            self.sample = first_sample(products)
            self._before = original(products[Request], self.sample)
            _need_numbers(products[Graph], self._before)
        elif part is not self._part and part is not None:
            self.sample = {name: array[0] for name, array in products[Samples].arrays.items()}
            self.sample = {port.name: self.sample[port.name].reshape(port.shape) for port in part.graph.inputs}
            self._before = RUNNERS[Graph].run(products.plus({Graph: part.graph}), self.sample)
            self._product, self._kind, self._rounding, self._rounded = None, Graph, None, None
        self._part = part
        return step.name if part is None or part.count == 1 else f"{step.name} of part {part.number}"

    def _least(self, kind: type, products: Products) -> float | None:
        """Return the least signal to noise allowed between the last result and a product of this kind."""
        if not RUNNERS[kind].exact:
            if kind is Graph and any(node.op == FAKE_QUANTIZE for node in products[Graph].nodes):
                return ROUNDED_DECIBELS
            return HALF_DECIBELS if not self.verdicts and _is_half(products[Request]) else FLOAT_DECIBELS
        arch = products[Arch]
        enough = DECIBELS_A_BIT * arch.number.width
        if any(layer.lookup for layer in products[Layers]):
            enough = min(enough, TABLE_DECIBELS)
        numbers = arch.scheme
        if not RUNNERS[self._kind].exact:
            if numbers.kind is SchemeKind.AFFINE:
                return BYTE_DECIBELS
            return -math.inf if products[Request].plain or not numbers.chooses_points else enough
        if (self._kind, kind) == (MemoryPlan, Schedule) and numbers.order_matters:
            assert self._rounding is not None  # much so where sums saturate
            return enough if (self._rounding.decibels or 0) >= enough else -math.inf
        return None

    def insist(self) -> None:
        """Raise Mismatch, naming the first step that changes the result, unless there is none."""
        for verdict in self.verdicts:
            if verdict.problem:
                raise Mismatch(f"step {verdict.step!r} changes the result: {verdict.problem}")


def first_sample(products: Products) -> Sample:
    """Return one value for each input: the first calibration sample, or a random one."""
    graph, given = products[Graph], products[Request].calibration
    samples = random_inputs(graph) if given is None else check_inputs(graph, given)
    return {port.name: samples[port.name][0].reshape(port.shape) for port in graph.inputs}


def compare(before: Results, found: Results, least: float | None) -> tuple[float | None, str]:
    """Return the decibels of the worst output that both have, and what is wrong with it, if anything."""
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
    """Return the signal to noise of results that differ; infinite if the difference is too small to be squared."""
    distance = signal_to_noise(float((reference ** 2).sum()), float(((reference - found) ** 2).sum()))
    return math.inf if distance is None else distance


def _is_half(request: Request) -> bool:
    """Tell whether the model file computes in half precision."""
    return request.model.suffix != FROZEN and is_half(_loaded(request))


def _loaded(request: Request) -> onnx.ModelProto:
    """Return the model of the request, as ONNX."""
    return load_model(request.model, request.outputs, request.shapes, request.fixed)


def _need_numbers(graph: Graph, found: Results) -> None:
    """Raise CompileError if the model file's own results do not allow a comparison."""
    for port in graph.outputs:
        if found[port.name].shape != port.shape:
            raise refuse(f"output {port.name!r}, with --check", f"shape {list(found[port.name].shape)} in onnxruntime",
                         f"{list(port.shape)}, which ONNX gives it", "export the model again")
        if not np.isfinite(found[port.name]).all():
            raise refuse(f"output {port.name!r} on the first input, with --check", "NaN or infinity", "finite numbers",
                         "calibrate with inputs of the kind that the network is made for (--calibrate), or look for a "
                         "damaged file")


# -- the original ------------------------------------------------------------------------------------------------------
def original(request: Request, sample: Sample) -> Results:
    """Return the results of the model file itself, by the tool that it is made for."""
    if request.model.suffix == FROZEN:
        found = run_frozen(request.model, request.outputs, sample)
        return {name: np.asarray(value, np.float64) for name, value in found.items()}
    model = _loaded(request)
    kinds = {value.name: helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
             for value in model.graph.input if value.name in sample}
    try:
        found = run_model(model, {name: np.asarray(sample[name], kind) for name, kind in kinds.items()})
    except Exception as error:  # of no common type
        raise refuse(f"model {request.model}, with --check", f"onnxruntime cannot run it ({reason(error)})",
                     "a network that onnxruntime runs", "export the model again") from None
    return {name: np.asarray(value, np.float64) for name, value in found.items()}
