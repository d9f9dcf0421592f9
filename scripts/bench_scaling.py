# SPDX-License-Identifier: Apache-2.0
"""Measure how ResNet-20's utilisation depends on array size, local memory, DRAM latency and width of the bus.

    python scripts/bench_scaling.py [--confirm]

From the estimator; ``--confirm`` runs some points in RTL too. Writes build/bench/scaling.json and scaling.png.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from bench import OUTPUT, QUICK, network_file, sample, write

from weft.compiler.errors import CompileError
from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.tmodel.manifest import TModel

BASE = "pynq"
WIDE_FROM_LANES = 16
"""Arrays of so many lanes or more have a bus of 128 bits, smaller ones 64."""
AXES: dict[str, tuple[int, ...]] = {
    "array_size": (4, 8, 12, 16, 24, 32),
    "local_depth": (512, 1024, 2048, 4096, 8192, 16384),
    "axi_data_width": (32, 64, 128, 256),
    "dram_latency": (1, 15, 30, 60, 90, 120),
}
CONFIRMED = {("array_size", 8), ("array_size", 12), ("dram_latency", 1), ("dram_latency", 120)}


@dataclass(frozen=True)
class Point:
    """One machine's result; None if the network does not fit it.

    ``utilization``: the share of the array's multipliers that do work of the network."""

    axis: str
    value: int
    cycles_estimated: int | None
    cycles_rtl: int | None
    utilization: float | None


def arch_of(axis: str, value: int) -> Arch:
    """Return BASE with one key changed."""
    base = Arch.load(BASE)
    if axis == "array_size":
        return base.replace(array_size=value, axi_data_width=128 if value >= WIDE_FROM_LANES else 64)
    return base if axis == "dram_latency" else base.replace(**{axis: value})


def point(axis: str, value: int, *, confirm: bool) -> Point:
    """Return the result of BASE with one key changed; ``confirm``: in RTL too."""
    path = network_file(QUICK)
    assert path is not None  # it can be built
    arch, inputs = arch_of(axis, value), sample(path)
    latency = value if axis == "dram_latency" else EXPECTED.read_latency
    folder = OUTPUT / "scaling" / f"{axis}_{value}"
    try:
        compile_model(path, arch, folder, name=QUICK, calibration=inputs)
    except CompileError as error:
        print(f"{axis} {value}: {error}")
        return Point(axis, value, None, None, None)
    model = TModel.load(folder / f"{QUICK}.tmodel")
    cycles = estimate(model.program, arch, IdealDram(latency, latency)).cycles
    ran = None
    if confirm:
        memory = MemorySettings(read_latency=latency, write_latency=latency)
        ran = Session(model).run(inputs, on=RTL, memory=memory, check=False).cycles
    used = model.done_macs / (arch.array_size**2 * cycles)
    print(f"{axis} {value}: {cycles:,} cycles, {used:.1%} of the array" + (f", RTL {ran:,}" if ran else ""))
    return Point(axis, value, cycles, ran, used)


def points(confirm: bool) -> Iterator[Point]:
    """Yield the results along all axes; ``confirm``: some of them in RTL too."""
    for axis, values in AXES.items():
        for value in values:
            yield point(axis, value, confirm=confirm and (axis, value) in CONFIRMED)


def plot(found: list[Point]) -> None:
    """Draw the results into build/bench/scaling.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, frames = pyplot.subplots(1, len(AXES), figsize=(4 * len(AXES), 3.2), sharey=True, layout="constrained")
    for frame, axis in zip(frames, AXES, strict=True):
        shown = [each for each in found if each.axis == axis and each.utilization is not None]
        frame.plot([each.value for each in shown], [100 * (each.utilization or 0) for each in shown], marker="o")
        frame.set_xlabel(axis.replace("_", " "))
        if axis in ("local_depth", "axi_data_width"):
            frame.set_xscale("log", base=2)
        frame.grid(alpha=0.3)
    frames[0].set_ylabel("of the array, %")
    figure.savefig(OUTPUT / "scaling.png", dpi=120)


def main(confirm: Annotated[bool, typer.Option(help="some points in RTL too")] = False) -> None:
    """Measure how utilisation depends on the machine, and write data and picture."""
    found = list(points(confirm))
    write("scaling", [asdict(each) for each in found])
    plot(found)
    print(f"written: {OUTPUT / 'scaling.json'}, {OUTPUT / 'scaling.png'}")


if __name__ == "__main__":
    typer.run(main)
