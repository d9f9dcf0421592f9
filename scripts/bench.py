# SPDX-License-Identifier: Apache-2.0
"""Whole networks: cycles in RTL, bit for bit compared with the golden machine, against what the array needs at least.

    python scripts/bench.py [--quick] [--only NETWORK] [--arch PRESET] [--estimate]

Prints a table and writes build/bench/results.json; exit code 1 where RTL and golden differ. DRAM answers
as ``EXPECTED`` of hw/contract/dram.py says. ``--quick``: ResNet-20 alone, without INT8 machines; ``--estimate``:
without RTL and golden, the estimator's cycles only.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from networks import NETWORKS
from rich.console import Console
from rich.table import Table

from weft.boards import clock_hz
from weft.cli.estimate import estimated_program
from weft.compiler.backend.limit import limit_cycles
from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Products, Step
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram
from weft.runtime.devices import no_progress
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.support.errors import WeftError, explain, run_script
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).parents[1]
OUTPUT = ROOT / "build" / "bench"
SHARED = ROOT.parent / "shared" / "models"
QUICK = "resnet20v2"
SHARED_NAMES = {"resnet20v2": "resnet20v2_cifar"}
"""The networks that are taken from the shared models if these are there, for their trained weights."""
WITHOUT_BAR = ("mobilenetv2_1.0_224", "squeezenet_v1_0_dc", "yolo_fastest_1_1_coco_320", "mlperf_tiny_resnet8",
               "mlperf_tiny_vww_mobilenetv1_025")
DEEPER = {"resnet50v2_224": 4}
"""The networks whose weights need a DRAM window so many times as deep as the presets'."""
PRESETS = ("arty", "pynq", "ultra96", "zcu104")
IN_BYTES, USUAL_BYTES = (*NETWORKS, "mobilenetv2_1.0_224"), ("pynq_int8", "ultra96_int8")
"""The networks that are measured in bytes too, and the INT8 machines that they are measured on."""
BYTE_PRESETS = ("arty_int8", "pynq_int8", "ultra96_int8", "zcu104_int8", "ecpix5_int8")
CORES_PRESETS = ("ecpix5_2x4", "arty100_3x8", "pynq_3x8", "zcu104_4x16", "zcu104_int8_4x24")
"""Machines of several cores: an image a core, and cycles those that an image takes on average. Where they are asked
for."""
TABLE_PRESETS = ("pynq_lut", "arty100_lut", "ecpix5_4_lut")
"""Presets with lookup tables beside their twins without. Where they are asked for."""
DEPTHWISE_PRESETS = ("zcu104_int8_taps9", "ultra96_int8_taps9", "pynq_int8_taps3", "ultra96_taps9",
                     "zcu104_taps9")
"""Presets with a depthwise mode beside their twins without. Where they are asked for."""
ALL_PRESETS = (*PRESETS, *BYTE_PRESETS, *CORES_PRESETS, *TABLE_PRESETS, *DEPTHWISE_PRESETS)


@dataclass(frozen=True)
class Result:
    """The result of one network on one machine; None for what was not measured."""

    network: str
    arch: str
    clock_mhz: float
    cycles_rtl: int | None
    cycles_estimated: int
    ms: float
    fps: float
    utilization: float
    limit_cycles: int
    dram0_bytes: int
    dram1_bytes: int
    program_bytes: int
    compile_seconds: float
    estimate_seconds: float
    sim_seconds: float | None
    bit_exact: bool | None
    largest_loss: str


def network_file(name: str) -> Path | None:
    """Return the ONNX file of a network, built if it is not shared; None if it is neither."""
    shared = SHARED / f"{SHARED_NAMES.get(name, name)}.onnx"
    if shared.is_file():
        return shared
    if name not in NETWORKS:
        return None
    path = OUTPUT / "networks" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    NETWORKS[name](path)
    return path


def sample(path: Path) -> dict[str, np.ndarray]:
    """Return one input: seeded random values, like those that calibration takes if it is given none."""
    random = np.random.default_rng(0)
    ports = read_model(path).inputs
    return {port.name: random.standard_normal(port.shape).astype(np.float32) for port in ports}


def images(path: Path, count: int) -> dict[str, np.ndarray]:
    """So many of them, each its own; the first is that of :func:`sample`."""
    random = np.random.default_rng(0)
    ports = read_model(path).inputs
    return {port.name: random.standard_normal((count, *port.shape[1:])).astype(np.float32) for port in ports}


def before_softmax(path: Path) -> tuple[str, ...]:
    """Return the network's ends, without a final Softmax: presets without lookup tables leave it to the host."""
    graph = read_model(path)
    makers = {node.output: node for node in graph.nodes}
    ends = [makers[port.tensor] for port in graph.outputs]
    return tuple(node.input(0) if node.op == "Softmax" else node.output for node in ends)


def machine(name: str, preset: str) -> Arch:
    """Return the machine of a preset, with DRAM windows deep enough for the network."""
    arch, factor = Arch.load(preset), DEEPER.get(name, 1)
    return arch.replace(dram0_depth=arch.dram0_depth * factor, dram1_depth=arch.dram1_depth * factor)


def measure(name: str, path: Path, preset: str, *, on_rtl: bool, latency: int = EXPECTED.read_latency,
            watch: Callable[[Step, Products], None] | None = None) -> Result:
    """Compile a network, estimate its cycles and run it; return the result.

    ``watch`` sees what each step of the compiler made. Raise CompileError if the network does not fit the machine."""
    arch, inputs, folder = machine(name, preset), sample(path), OUTPUT / f"{name}_{preset}"
    began = time.monotonic()
    compile_model(path, arch, folder, name=name, calibration=inputs, outputs=before_softmax(path),
                  watch=watch)
    compiled = time.monotonic()
    model = TModel.load(folder / f"{name}.tmodel")
    session = Session(model)
    where = estimated_program(session, session.machines[0], IdealDram(latency, latency), no_progress).where
    cycles_estimated = -(-where["cycles"] // arch.cores)
    estimated = time.monotonic()
    ran = exact = None
    if on_rtl:
        memory = MemorySettings(read_latency=latency, write_latency=latency)
        ran = session.run(images(path, arch.cores), on=RTL, memory=memory)
        exact = ran.comparison is not None and ran.comparison.equal == ran.comparison.words
    cycles_rtl = None if ran is None or ran.cycles is None else -(-ran.cycles // arch.cores)
    cycles = cycles_estimated if cycles_rtl is None else cycles_rtl
    clock = clock_hz(preset)
    return Result(
        name, preset, clock / 1e6, cycles_rtl, cycles_estimated, 1e3 * cycles / clock,
        clock / cycles, model.done_macs / (arch.cores * arch.array_size**2 * cycles),
        limit_cycles(read_model(path), arch),
        where["dram0_bytes"], where["dram1_bytes"], len(model.program), round(compiled - began, 2),
        round(estimated - compiled, 2), None if ran is None else round(ran.seconds, 2), exact, largest_loss(where))


def largest_loss(where: dict[str, Any]) -> str:
    """Return the longest cause of the array's waiting and the layer that waited most, in percent of all cycles."""
    waits = {**where["waits"], "tail": where["tail"]}
    cause = max(waits, key=lambda name: waits[name])
    said = f"{cause.replace('_', ' ')} {waits[cause] / where['cycles']:.1%}"
    if cause == "tail":
        return said
    layer = max(where["layers"], key=lambda row: row["waits"][cause])
    return f"{said}, most in {layer['name'][-32:]} ({layer['waits'][cause] / where['cycles']:.1%})"


def cases(only: str, quick: bool, preset: str) -> Iterator[tuple[str, str]]:
    """Yield (network, preset), ResNet-20 first."""
    names = (QUICK,) if quick else (*NETWORKS, *WITHOUT_BAR)
    for name in names:
        for arch in usual_presets(name, quick) if not preset else (preset,):
            if only in ("", name) and arch in ALL_PRESETS:
                yield name, arch


def usual_presets(name: str, quick: bool) -> tuple[str, ...]:
    """Return the presets that a network is measured on if nobody asks for one.

    32 lanes and most INT8 machines are measured with ResNet-20 alone, to save time."""
    if name != QUICK:
        return (*PRESETS[:-1], *(USUAL_BYTES if name in IN_BYTES else ()))
    return PRESETS if quick else (*PRESETS, *BYTE_PRESETS)


def show(results: list[Result]) -> None:
    """Print the table of results."""
    table = Table("network", "machine", "cycles", "estimated", "limit", "of limit", "ms", "fps", "util", "compile s",
                  "sim s", "")
    for row in results:
        cycles = row.cycles_rtl or row.cycles_estimated
        verdict = {None: "", True: "bit exact", False: "[red]DIFFERS"}[row.bit_exact]
        table.add_row(row.network, row.arch, f"{row.cycles_rtl or 0:,}" if row.cycles_rtl else "",
                      f"{row.cycles_estimated:,}", f"{row.limit_cycles:,}", f"{row.limit_cycles / cycles:.1%}",
                      f"{row.ms:.2f}", f"{row.fps:.1f}", f"{row.utilization:.1%}", f"{row.compile_seconds:.1f}",
                      f"{row.sim_seconds:.1f}" if row.sim_seconds else "", verdict)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(table)
    for row in results:
        console.print(f"{row.network} on {row.arch}: waited longest for {row.largest_loss}", highlight=False)
    console.print("limit, util: of the network as drawn. Work that nobody needs is left out, so both may pass 100 %.")


def write(name: str, content: object) -> None:
    """Write JSON into build/bench/, never seen half written."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    file = OUTPUT / f"{name}.json"
    file.with_suffix(".tmp").write_text(json.dumps(content, indent=1) + "\n")
    file.with_suffix(".tmp").replace(file)


def main(
    quick: Annotated[bool, typer.Option(help="ResNet-20 alone")] = False,
    only: Annotated[str, typer.Option(help="one network")] = "",
    arch: Annotated[str, typer.Option(help="one preset")] = "",
    estimate_only: Annotated[bool, typer.Option("--estimate", help="without RTL and golden")] = False,
) -> None:
    """Measure networks in RTL; exit with code 1 if RTL and golden differ."""
    chosen = list(cases(only, quick, arch))
    if not chosen:
        networks = ", ".join((*NETWORKS, *WITHOUT_BAR))
        raise WeftError(explain("what to measure", f"{only or 'any network'} on {arch or 'any preset'}",
                                f"{networks} on {', '.join(ALL_PRESETS)}", "name one of each"))
    results: list[Result] = []
    for name, preset in chosen:
        path = network_file(name)
        if path is None:
            print(f"{name}: left out, {SHARED} has no such file", file=sys.stderr)
            continue
        try:
            results.append(measure(name, path, preset, on_rtl=not estimate_only))
        except CompileError as error:
            print(f"{name} on {preset}: {error}", file=sys.stderr)
            continue
        last = results[-1]
        print(f"{name} on {preset}: {last.cycles_rtl} cycles in RTL, {last.cycles_estimated} estimated",
              file=sys.stderr, flush=True)
        write("results", [asdict(result) for result in results])
    show(results)
    if any(result.bit_exact is False for result in results):
        raise typer.Exit(1)


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
