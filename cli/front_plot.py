# SPDX-License-Identifier: Apache-2.0
"""Plot the front of a search: in characters, and as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from weft.support.errors import WeftError, explain
from weft.support.files import MOST_BYTES
from weft.support.outputs import Kind, replacing
from weft.support.packages import no_package

COLUMNS, ROWS = 60, 14
BEFORE = 12
"""The characters before the columns: label and axis."""
KINDS = (".svg", ".png", ".pdf")
MAGIC = {b"<?xml", b"\x89PNG\r", b"%PDF-"}
PICTURE = Kind("a picture of weft explore",
               lambda file: file.read(5) in MAGIC and b"Matplotlib" in file.read(MOST_BYTES))
Spot = tuple[float, float]
"""A machine of the front: milliseconds, and share of the chip."""


def text_plot(spots: Sequence[Spot], width: int) -> str:
    """Return a plot of milliseconds (upwards, logarithmic) against percent of the chip; lines fit ``width``."""
    columns = min(COLUMNS, width - BEFORE)
    heights = [math.log(ms) for ms, _ in spots]
    low, high = min(heights), max(heights)
    right = max(share for _, share in spots)
    lines = [[" "] * columns for _ in range(ROWS)]
    for height, (_, share) in zip(heights, spots, strict=True):
        row = 0 if high == low else round((high - height) / (high - low) * (ROWS - 1))
        lines[row][min(columns - 1, round(share / right * (columns - 1)))] = "*"
    labels = {0: f"{math.exp(high):.3g} ms", ROWS - 1: f"{math.exp(low):.3g} ms"}
    text = [f"{labels.get(number, ''):>10} |{''.join(line).rstrip()}" for number, line in enumerate(lines)]
    scale = f"0 %{f'{100 * right:.0f} % of the room':>{columns - 3}}"
    return "\n".join([*text, f"{'':>10} +{'-' * columns}", f"{'':>{BEFORE}}{scale}"])


def check_picture(path: Path) -> None:
    """Raise WeftError for another kind of file, and without matplotlib."""
    if path.suffix not in KINDS:
        raise WeftError(explain(f"picture {path}", path.suffix or "no suffix", ", ".join(KINDS),
                                "name a file that ends so"))
    if find_spec("matplotlib") is None:
        raise WeftError(no_package("--plot", "matplotlib", "explore"))


def draw(path: Path, spots: Sequence[Spot], part: str) -> None:
    """Draw the front of ``part`` into a file that :func:`check_picture` has passed. Raise WeftError if it fails."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.step([100 * share for _, share in spots], [ms for ms, _ in spots], where="post", marker="o", color="#0072B2")
    axes.set(xlabel=f"room taken of {part}, %", ylabel="latency, ms", yscale="log", title="The front")
    for set_formatter in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        set_formatter(LogFormatter(minor_thresholds=(2, 0.4)))  # 20, not 2 x 10^1
    axes.grid(True, which="both", alpha=0.3)
    with replacing(path, PICTURE) as file:
        figure.savefig(file, format=path.suffix[1:])
