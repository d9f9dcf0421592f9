# SPDX-License-Identifier: Apache-2.0
"""Random networks on INT8 machines, of real numbers and quantised by onnxruntime.

The former pass when ``weft compile --check`` finds no step that changes the result, from layers in bytes to the program
on the golden machine bit for bit, and when bytes lose no more than ``DECIBELS`` against real numbers. The latter pass
when no step up to the scales changes the result, and each layer gives the bytes that onnxruntime gives of the same
inputs, and all together lose as little.

What bytes lose is measured over all samples by which scales are chosen, and over all outputs of one scale together. The
scale has 255 steps for what its tensors reach on these samples, so the largest value is 127 steps or more: its square
alone is 48 dB above that of half a step, by which rounding moves a value at most. On one sample, or in one of several
outputs that share a scale, all values may be smaller than a step. Rounding leaves 0 dB of these, whatever is right.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from weft.compiler.check.checker import Checker
from weft.compiler.check.runners import RUNNERS
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.memory.variables import whole_var
from weft.compiler.pipeline import compile_model, run_parts
from weft.compiler.products import Products, Step
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.tb.compile.layer_bytes import Checked, scales_of, together
from weft.tb.compile.quantised_twin import KINDS, quantised_twin
from weft.tb.compile.run_model import BASE, run_float, signal_to_noise
from weft.tb.random.network_rule import Verdict, describe, save, with_the_least
from weft.tb.random.random_networks import Case, generate
from weft.tmodel.onnx_engine import session
from weft.tmodel.scales import TensorScale

DECIBELS, ROUNDED_DECIBELS = 15.0, 16.0
"""Of bytes against real numbers, and against those that a quantised file rounds."""

SCALED = "scales"
"""The step that chooses scales."""

LEAST_EQUAL, FEW = 0.92, 6
"""Of the bytes of a quantised network so small, in which halves of pools and resizes are common. No other may be off by
more than one; so many may always be off."""

BYTES8 = BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256)
ARCHS: dict[str, Arch] = {
    "bytes2": BYTES8.replace(array_size=2, local_depth=600, accumulator_depth=40, simd_loop_depth=0),
    "bytes3": BYTES8.replace(array_size=3, local_depth=700, accumulator_depth=90, stride0_depth=2, stride1_depth=1,
                             activation_tables=1),
    "bytes8": BYTES8,
    "bytes3tight": BYTES8.replace(array_size=3, local_depth=8, accumulator_depth=3, local_banks=1, accumulator_banks=1,
                                  lut_count=0, simd_registers_depth=1),
    "bytes12": BYTES8.replace(array_size=12, local_depth=1500, accumulator_depth=100, accumulator_width=24,
                              activation_tables=8, lut_count=0),
}
REFUSED = ("two computed tensors to multiply", "not supported in bytes", "keys lut_count, lut_depth",
           "allowed: nearest, where it reads bytes")
"""What these machines do not compute, and one of them has no tables."""


class WatchedScales:
    """Each step is checked; ``scaled``: what the compiler has made when scales are chosen."""

    def __init__(self) -> None:
        self.checker = Checker()

    def after(self, step: Step, products: Products) -> None:
        self.checker.after(step, products)
        if step.name == SCALED:
            self.scaled = products


def _decibels(products: Products, path: Path, samples: np.ndarray) -> float:
    """Of the worst scale among those of outputs: layers in bytes against onnxruntime."""
    graph, scales = products[Graph], scales_of(products)
    found: dict[TensorScale, list[tuple[np.ndarray, np.ndarray]]] = {}
    for sample in samples:
        wanted = run_float(path, {"x": sample[None]})
        made = RUNNERS[Numbers].run(products, {"x": sample})
        for port in graph.outputs:
            pair = wanted[port.name].ravel(), made[port.name].ravel()
            found.setdefault(scales.vars[whole_var(graph, port.tensor).root], []).append(pair)
    return min(signal_to_noise(*map(np.concatenate, zip(*pairs, strict=True))) for pairs in found.values())


def _faults(checker: Checker, decibels: float, least: float) -> list[str]:
    """Of steps, but for what bytes lose, which is not measured by one sample; and of that."""
    faults = [f"step {verdict.step!r}: {verdict.problem}" for verdict in checker.verdicts
              if verdict.problem and verdict.step != SCALED]
    return faults if decibels >= least else [*faults, f"{decibels:.1f} dB against onnxruntime; allowed: {least} dB or "
                                             "more"]


def judge(case: Case, arch: Arch | None = None) -> Verdict:
    """Return the verdict on a random network on an INT8 machine.

    ``arch`` takes the place of the machine that is named. ``refusal``: a refusal that is none of ``REFUSED``. A
    network that a machine has no memory for is judged on one that has just what the refusal asks for."""
    arch, watch = arch or ARCHS[case.arch], WatchedScales()
    with tempfile.TemporaryDirectory() as name:
        path, samples = save(case, arch, Path(name))
        network = describe(path)
        try:
            compile_model(path, arch, path.parent, calibration={"x": samples}, watch=watch.after)
            decibels = _decibels(watch.scaled, path, samples)
        except CompileError as error:
            least = with_the_least(arch, str(error))
            if least is not None:
                return judge(case, least)
            refused = any(text in str(error) for text in REFUSED)
            return Verdict(case, network, refusal="" if refused else str(error))
    faults = _faults(watch.checker, decibels, DECIBELS)
    return Verdict(case, network, "; ".join(faults), decibels=decibels)


# -- quantised by onnxruntime ------------------------------------------------------------------------------------------
def _runs(path: Path) -> bool:
    """Whether onnxruntime runs what its quantiser wrote: it gives QLinearAveragePool dilations, which that has not."""
    try:
        session(path.read_bytes())
    except Exception:  # of no common type
        return False
    return True


def judge_quantised(seed: int) -> Verdict:
    """The network, what the quantiser is asked for and the machine follow from the seed."""
    case, machine = Case("int8", seed), list(ARCHS)[seed % len(ARCHS)]
    with tempfile.TemporaryDirectory() as folder:
        net = generate(case, tables=True)
        samples = np.random.default_rng(seed).standard_normal((2, *net.maker.shape[1:])).astype(np.float32)
        path = net.maker.save(Path(folder) / "random.onnx", *sorted(net.unread))
        twin = quantised_twin(path, {"x": samples}, list(KINDS)[seed % len(KINDS)])
        network, watch = f"{machine}: {describe(twin)}", Checked()
        if not _runs(twin):
            return Verdict(case, network)
        try:
            arch = BYTES8.replace(array_size=ARCHS[machine].array_size,
                                  activation_tables=ARCHS[machine].activation_tables)
            run_parts(Request(twin, {"x": samples}), arch, watch=watch.after, last="scales")
        except CompileError as error:
            refused = any(text in str(error) for text in REFUSED)
            return Verdict(case, network, refusal="" if refused else str(error))
        found = together(watch.differences({"x": sample}) for sample in samples)
        decibels = _decibels(watch.parts[1], twin, samples)
    faults = _faults(watch.checker, decibels, ROUNDED_DECIBELS)
    most, off = int(found.max(initial=0)), int((found > 0).sum())
    if most > 1 or off > max((1 - LEAST_EQUAL) * len(found), FEW):
        faults.append(f"{off} of {len(found)} bytes are off by up to {most}")
    return Verdict(case, network, "; ".join(faults), decibels=decibels)
