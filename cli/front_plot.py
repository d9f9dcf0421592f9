"""The front of a search as a picture: in characters, and as a file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from weft.hw.contract.errors import WeftError, explain
from weft.runtime.files import replacing

COLUMNS, ROWS = 60, 14
KINDS = (".svg", ".png", ".pdf")
Spot = tuple[float, float]
"""Milliseconds, and share of a chip's room."""


def text_plot(spots: Sequence[Spot]) -> str:
    """Milliseconds upwards, in logarithms, against percent of the chip's room."""
    heights = [math.log(ms) for ms, _ in spots]
    low, high = min(heights), max(heights)
    right = max(share for _, share in spots)
    lines = [[" "] * COLUMNS for _ in range(ROWS)]
    for height, (_, share) in zip(heights, spots, strict=True):
        row = 0 if high == low else round((high - height) / (high - low) * (ROWS - 1))
        lines[row][min(COLUMNS - 1, round(share / right * (COLUMNS - 1)))] = "*"
    labels = {0: f"{math.exp(high):.3g} ms", ROWS - 1: f"{math.exp(low):.3g} ms"}
    text = [f"{labels.get(number, ''):>10} |{''.join(line).rstrip()}" for number, line in enumerate(lines)]
    scale = f"0 %{f'{100 * right:.0f} % of the room':>{COLUMNS - 3}}"
    return "\n".join([*text, f"{'':>10} +{'-' * COLUMNS}", f"{'':>12}{scale}"])


def draw(path: Path, spots: Sequence[Spot], part: str) -> None:
    """Raises WeftError for another kind of file, and without matplotlib."""
    if path.suffix not in KINDS:
        raise WeftError(explain(f"picture {path}", path.suffix or "no suffix", ", ".join(KINDS),
                                "name a file that ends so"))
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise WeftError(explain("--plot", "no Python package matplotlib", "an installation with the extra explore",
                                "pip install 'weft[explore]'")) from None
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.step([100 * share for _, share in spots], [ms for ms, _ in spots], where="post", marker="o", color="#0072B2")
    axes.set(xlabel=f"room taken of {part}, %", ylabel="latency, ms", yscale="log", title="The front")
    axes.grid(True, which="both", alpha=0.3)
    with replacing(path, "picture") as file:
        figure.savefig(file, format=path.suffix[1:])
