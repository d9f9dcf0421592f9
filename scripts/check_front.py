# SPDX-License-Identifier: Apache-2.0
"""Whether a search told the truth: some machines of its front, run in RTL and counted with yosys.

    weft explore MODEL --part xc7a35t --json > front.json
    python scripts/check_front.py front.json MODEL [--calibrate FILE.npz] [--host-fallback] [--points 3] [--write]

Takes ``--points`` machines, evenly from the cheapest to the fastest. Each is compiled, runs one random input in RTL on
memories that answer as late as the search assumed, equal to golden, and is synthesised. Prints what was predicted
beside what was found; exit code 1 where they differ by more than MOST_PERCENT. ``--write``: to docs/data/front.json,
from which docs/explore.md has its table. The model's options are those that the search had.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.samples import random_inputs
from weft.hw.contract.arch import Arch
from weft.hw.flow.parts import PARTS, block_rams
from weft.hw.flow.synthesis import synthesize, total
from weft.runtime.arrays import read_arrays
from weft.runtime.session import RTL, Session
from weft.simulate.job import MemorySettings
from weft.support.errors import WeftError, explain, run_script
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "front"
DATA = ROOT / "docs" / "data" / "front.json"
MOST_PERCENT = {"cycles": 1.0, "lut": 5.0, "ff": 5.0, "dsp": 0.0, "bram": 0.0}

Pairs = dict[str, tuple[int, int]]
"""Column -> (predicted, found)."""


def checked(machine: dict[str, Any], family: str, latency: int, model: Path, given: dict[str, np.ndarray] | None,
            host_fallback: bool) -> Pairs:
    """Return the predicted and measured numbers of one machine. Raise AssertionError if RTL and golden differ."""
    arch = Arch.from_dict(machine["arch"])
    report = compile_model(model, arch, FOLDER, calibration=given, host_fallback=host_fallback)
    inputs = given or random_inputs(read_model(model))
    ran = Session(TModel.load(report.model_path)).run(
        {name: array[:1] for name, array in inputs.items()}, on=RTL,
        memory=MemorySettings(read_latency=latency, write_latency=latency))
    assert ran.comparison is not None and ran.comparison.equal == ran.comparison.words, "RTL and golden differ"
    assert ran.cycles is not None
    predicted, found = machine["resources"], total(synthesize(arch, family, FOLDER / "synth"))
    return {"cycles": (machine["cycles"], ran.cycles),
            **{name: (predicted[name], found[name]) for name in ("lut", "ff", "dsp")},
            "bram": (block_rams(predicted, family), block_rams(found, family))}


def percent(predicted: int, found: int) -> float:
    """Return the difference of a prediction from what was found, in percent."""
    return round(100 * (predicted - found) / max(1, found), 2)


def main(
    front: Annotated[Path, typer.Argument(help="what weft explore --json printed, of one model")],
    model: Annotated[Path, typer.Argument(help="that model")],
    calibrate: Annotated[Path | None, typer.Option(help="as the search had it")] = None,
    host_fallback: Annotated[bool, typer.Option("--host-fallback", help="as the search had it")] = False,
    points: Annotated[int, typer.Option(min=1, help="machines of the front to look at")] = 3,
    write: Annotated[bool, typer.Option("--write", help="write docs/data/front.json")] = False,
) -> None:
    """Check some machines of a front; exit with code 1 if predictions are off."""
    searched = json.loads(front.read_text())
    machines, part = searched["front"], PARTS[searched["part"].partition(" ")[0]]
    names = [port.name for port in read_model(model).inputs]
    given = None if calibrate is None else read_arrays(calibrate, names, "calibration file")
    chosen = sorted({round(place) for place in np.linspace(0, len(machines) - 1, points)})
    rows, wrong = [], []
    for place in chosen:
        if searched["dram_latency_cycles"] is None:
            raise WeftError(explain(f"front {front}", "searched with a board's memory", "one of ideal memories",
                                    "search with --latency 30"))
        pairs = checked(machines[place], part.family, searched["dram_latency_cycles"], model, given, host_fallback)
        rows.append({"searched": machines[place]["searched"], "pairs": pairs})
        for name, pair in pairs.items():
            print(f"{place}: {name}: predicted {pair[0]:,}, found {pair[1]:,}, off by {percent(*pair)} %")
            if abs(percent(*pair)) > MOST_PERCENT[name]:
                wrong.append(f"{name} of machine {place}")
    if write:
        commit = subprocess.run(["git", "describe", "--always", "--exclude=*", "--dirty"], cwd=ROOT, check=True,
                                capture_output=True, text=True).stdout.strip()
        DATA.write_text(json.dumps({"commit": commit, "model": model.stem, "part": part.name, "front": len(machines),
                                    "machines": searched["machines"], "rows": rows}, indent=1) + "\n")
    if wrong:
        raise WeftError(explain("the front", ", ".join(wrong), "what was predicted, within "
                                f"{MOST_PERCENT} percent", "fit the resources again: scripts/fit_resources.py"))


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
