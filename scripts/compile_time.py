# SPDX-License-Identifier: Apache-2.0
"""CPU time of the compiler on chains of equal layers: a figure for docs/ that shows that it grows with the layers.

    python scripts/compile_time.py

Writes docs/data/compile_time.json and docs/compile_time.svg.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

import matplotlib
import numpy as np
from networks import Builder

from weft.compiler.pipeline import run_steps
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch

DOCS = Path(__file__).resolve().parents[1] / "docs"
COUNTS = (50, 100, 200, 400)
CHANNELS, SIZE, PRESET = 16, 16, "pynq"


def chain(path: Path, count: int) -> Path:
    """Write a network of so many layers; return its path.

    A layer is a 3x3 convolution and a ReLU, with a sum over every other one."""
    net = Builder(1, CHANNELS)
    x = net.relu(net.conv("input", CHANNELS, 3))
    for number in range(1, count):
        made = net.conv(x, CHANNELS, 3)
        x = net.relu(net.add(made, x) if number % 2 else made)
    net.save(path, SIZE, [x])
    return path


def seconds(path: Path) -> float:
    """Return the CPU seconds of one compilation."""
    samples = np.zeros((1, CHANNELS, SIZE, SIZE), np.float32)
    began = time.process_time()
    run_steps(Request(path, {"input": samples}), Arch.load(PRESET))
    return time.process_time() - began


def main() -> None:
    """Measure, write the data, and draw the figure."""
    with tempfile.TemporaryDirectory() as folder:
        seconds(chain(Path(folder) / "first.onnx", 2))  # what is loaded and compiled once
        found = {count: round(seconds(chain(Path(folder) / f"{count}.onnx", count)), 2) for count in COUNTS}
    (DOCS / "data" / "compile_time.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(found)
    print(found)


def draw(found: dict[int, float]) -> None:
    """Write the figure; ``found``: layers -> CPU seconds."""
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "weft"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5, 3), layout="constrained")
    axes.plot(list(found), list(found.values()), marker="o")
    axes.set(xlabel="equal layers", ylabel="CPU seconds of a compilation", xlim=0, ylim=0)
    figure.savefig(DOCS / "compile_time.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
