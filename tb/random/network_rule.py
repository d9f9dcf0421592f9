# SPDX-License-Identifier: Apache-2.0
"""The rule by which a random network (``random_networks.py``) passes on a machine, and the machines.

A network passes when three things hold:

1. ``weft compile --check`` finds no step that changes the result (``compiler/check/checker.py``): graphs on onnxruntime
   and layers in real numbers within single precision; from the layers in fixed point, which
   ``compiler/check/evaluate.py`` computes without tiles or instructions, to the program on the golden machine bit for
   bit.
2. Rounding costs no more than the data type does: over three samples together, 2 dB a bit between onnxruntime and the
   golden machine.
3. The same network on the same machine with numbers of 24 bits answers as onnxruntime does to ``WIDE_DECIBELS``: a
   single wrong pixel, which 16 bits might hide in their rounding, is far above that. Lookup tables have an error of
   their own (straight pieces): there ``check.TABLE_DECIBELS`` are enough, and wide numbers come with tables of
   ``WIDE_TABLE`` entries and room for them, which have to reach ``WIDE_TABLE_DECIBELS``.

A network that a machine has no memory for is judged on one that has just what the refusal asks for.

The step that chooses binary points is not judged by the first sample, which may have only small values, but by 2.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from weft.compiler.check.checker import DECIBELS_A_BIT, TABLE_DECIBELS, Checker
from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.hw.contract.arch import Arch
from weft.runtime.session import RTL, Session
from weft.support.errors import Mismatch
from weft.tb.compile.run_model import BASE, run_golden, signal_to_noise
from weft.tb.random.random_networks import FUNCTIONS, Case, generate
from weft.tb.random.random_operators import TABLE_OPERATORS
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import run_model

WIDE, WIDE_DECIBELS = "FP24BP12", 75.0
WIDE_TABLE, WIDE_TABLE_DECIBELS = 1024, 55.0
SAMPLES = 3

TABLES = {"lut_count": 2, "lut_depth": 64, "simd_registers_depth": 3}
ARCHS: dict[str, Arch] = {
    "lanes2": BASE.replace(array_size=2, local_depth=160, accumulator_depth=40, simd_loop_depth=0),
    "lanes3": BASE.replace(array_size=3, local_depth=700, accumulator_depth=90, stride0_depth=2, stride1_depth=1,
                           **TABLES),
    "lanes8": BASE.replace(dram0_depth=1 << 14, dram1_depth=1 << 14, local_depth=1024, accumulator_depth=256, **TABLES),
    "lanes12": BASE.replace(array_size=12, local_depth=1500, accumulator_depth=100),
}
"""Machines by name: small memories and roomy ones, with and without tables, loops and strides."""

TINY = Arch.load("tiny").replace(dram0_depth=1 << 16, dram1_depth=1 << 16)
SMALL: dict[str, Arch] = {
    "tiny": TINY,
    "small3": TINY.replace(array_size=3, local_depth=64, accumulator_depth=16, **TABLES),
    "small4": TINY.replace(array_size=4, local_depth=64, accumulator_depth=3, accumulator_banks=1, **TABLES),
    "small8": TINY.replace(array_size=8, local_depth=13, accumulator_depth=5, accumulator_banks=1),
}
"""Machines that have to split layers: the preset ``tiny`` behind DRAM in which the networks fit, and odd ones with
little more than a network's smallest tile."""
ODD: dict[str, Arch] = {
    "odd5": BASE.replace(array_size=5, dram0_depth=20011, dram1_depth=30011, local_depth=331, accumulator_depth=43,
                         stride0_depth=3, stride1_depth=2, simd_loop_depth=3, axi_data_width=32, axi_max_burst=1),
    "odd7": BASE.replace(data_type="FP15BP7", array_size=7, dram0_depth=20011, dram1_depth=30011, local_depth=503,
                         accumulator_depth=61, stride0_depth=2, stride1_depth=4, simd_loop_depth=5, local_banks=8,
                         accumulator_banks=4, axi_data_width=128, **{**TABLES, "lut_depth": 37}),
}
"""Machines of which nothing is a power of two that may be something else: lanes, depths, bits, entries of tables, and
banks that are not full."""
WITH_FUNCTIONS: dict[str, Arch] = {f"{FUNCTIONS}3": ARCHS["lanes3"], f"{FUNCTIONS}8": BASE.replace(
    accumulator_depth=256, **{**TABLES, "lut_depth": 256})}
"""Machines whose networks have attention, norms, reductions, functions and recurrent layers."""
ARCHS |= SMALL | ODD | WITH_FUNCTIONS


# -- the rule ----------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """The verdict on a network. ``problem`` is empty if all is well; ``refusal`` is the compiler's, if it refused."""

    case: Case
    network: str
    problem: str = ""
    refusal: str = ""
    decibels: float = np.inf
    wide_decibels: float = np.inf

    def __str__(self) -> str:
        return f"{self.network}\n{self.case}: {self.problem or self.refusal}\nagain: {self.case.command}"


def describe(path: Path) -> str:
    """Return the network's nodes, one in each line."""
    graph = onnx.load(path).graph
    shapes = {value.name: [entry.dim_value for entry in value.type.tensor_type.shape.dim]
              for value in (*graph.input, *graph.value_info, *graph.output)}
    shapes |= {value.name: list(value.dims) for value in graph.initializer}
    lines = [f"x {shapes['x']}"]
    for node in graph.node:
        attributes = ", ".join(f"{entry.name}={helper.get_attribute_value(entry)}" for entry in node.attribute)
        results = ", ".join(f"{name} {shapes.get(name)}" for name in node.output)
        inputs = ", ".join(f"{name} {shapes.get(name)}" if name.startswith("constant") else name
                           for name in node.input)
        lines.append(f"{results} = {node.op_type}({inputs}) {attributes}")
    return "\n".join(lines)


def save(case: Case, arch: Arch, folder: Path) -> tuple[Path, np.ndarray]:
    """Write the network as a file; return its path, and samples [SAMPLES, ...] of its input.

    All tensors that nothing reads are outputs."""
    net = generate(case, arch.lut_count >= 2)
    ends = [tensor.name for tensor in net.tensors if tensor.name in net.unread and tensor.name != "x"]
    path = net.maker.save(folder / "net.onnx", *ends)
    return path, net.maker.random.standard_normal((SAMPLES, *net.maker.shape[1:])).astype(np.float32)


def judge(case: Case, arch: Arch | None = None) -> Verdict:
    """Compile and run one case by the rule; ``arch`` in place of the one named."""
    arch = arch or ARCHS[case.arch]
    with tempfile.TemporaryDirectory() as name:
        path, samples = save(case, arch, Path(name))
        network = describe(path)
        try:
            checker = Checker()
            decibels = _decibels(path, arch, samples, checker)
            wide = _decibels(path, _widened(arch), samples)
        except CompileError as error:
            least = with_the_least(arch, str(error))
            return judge(case, least) if least else Verdict(case, network, refusal=str(error))
        tables = case.arch in WITH_FUNCTIONS or any(f"= {op}(" in network for op in TABLE_OPERATORS)
        faults = [f"step {verdict.step!r}: {verdict.problem}" for verdict in checker.verdicts
                  if verdict.problem and verdict.step not in ("points", "scales")]
        bars = (TABLE_DECIBELS, WIDE_TABLE_DECIBELS) if tables else (DECIBELS_A_BIT * arch.number.width, WIDE_DECIBELS)
        for name, found, bar in zip((arch.data_type, WIDE), (decibels, wide), bars, strict=True):
            if found < bar:
                faults.append(f"with {name}: {found:.1f} dB against onnxruntime; allowed: {bar} dB or more")
        return Verdict(case, network, "; ".join(faults), decibels=decibels, wide_decibels=wide)


_LEAST = re.compile(r"allowed: (\w+_depth) of at least (\d+) vectors")


def with_the_least(arch: Arch, refusal: str) -> Arch | None:
    """Return the machine with as much memory as a refusal for too little says would do: then it must.

    Return None for another refusal."""
    found = _LEAST.search(refusal)
    return arch.replace(**{found[1]: int(found[2])}) if found and int(found[2]) > getattr(arch, found[1]) else None


def _widened(arch: Arch) -> Arch:
    wide = arch.replace(data_type=WIDE)
    if not arch.lut_count:
        return wide
    return wide.replace(lut_depth=WIDE_TABLE, local_depth=max(arch.local_depth, WIDE_TABLE))


def _decibels(path: Path, arch: Arch, samples: np.ndarray, checker: Checker | None = None) -> float:
    """Return the signal to noise of the worst output, over all samples, of the golden machine against onnxruntime."""
    report = compile_model(path, arch, path.parent, calibration={"x": samples},
                           watch=checker.after if checker else None)
    model = TModel.load(report.model_path)
    expected = [run_model(path.read_bytes(), {"x": sample[None]}) for sample in samples]
    made = [run_golden(model, {"x": sample}) for sample in samples]
    assert all(found.keys() == expected[0].keys() for found in made)
    results = {key: [np.stack([run[key] for run in runs]) for runs in (expected, made)] for key in expected[0]}
    return min(signal_to_noise(*pair) if pair[0].any() else _beside(samples, pair[1]) for pair in results.values())


def _beside(samples: np.ndarray, rest: np.ndarray) -> float:
    """Return the signal to noise of an output that is 0 everywhere, which has no signal.

    Such an output is a function far below where it bends. What is found in its place is compared with the network's
    input."""
    noise = np.square(rest.astype(np.float64)).mean()
    return float(10 * np.log10(np.square(samples.astype(np.float64)).mean() / noise)) if noise else np.inf


def judge_on_rtl(case: Case) -> Verdict:
    """Run the program on the simulated hardware: every word of DRAM must be as the golden machine leaves it."""
    with tempfile.TemporaryDirectory() as name:
        path, samples = save(case, ARCHS[case.arch], Path(name))
        network = describe(path)
        try:
            report = compile_model(path, ARCHS[case.arch], path.parent, calibration={"x": samples})
        except CompileError as error:
            return Verdict(case, network, refusal=str(error))
        try:
            found = Session(TModel.load(report.model_path)).run({"x": samples[:1]}, on=RTL).comparison
            assert found is not None
            found.insist()
        except Mismatch as error:
            return Verdict(case, network, f"on RTL: {error}")
        return Verdict(case, network)
