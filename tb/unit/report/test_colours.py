# SPDX-License-Identifier: Apache-2.0
"""What stands side by side in a chart is told apart by colour-blind people: by colour, or by stripes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.tb.unit.report.test_script import result

SIGHT = {
    "full": np.eye(3),
    "deuteranopia": np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
                              [-0.011820, 0.042940, 0.968881]]),
    "protanopia": np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
                            [-0.003882, -0.048116, 1.051998]]),
}
"""What becomes of linear red, green and blue; Machado, Oliveira and Fernandes 2009, full severity."""
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = XYZ.sum(1)
LEAST = 14
"""Distance of two colours in CIE L*a*b*. Some 2 are seen when patches touch; lines and small patches need more."""


def lab(colour: str, sight: np.ndarray) -> np.ndarray:
    share = np.array([int(colour[place:place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    x, y, z = np.cbrt(np.maximum(XYZ @ np.clip(sight @ linear, 0, 1) / WHITE, 1e-6))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def apart(one: str, other: str, sight: str) -> float:
    return float(np.linalg.norm(lab(one, SIGHT[sight]) - lab(other, SIGHT[sight])))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("looks", ["[...PARTS, ...CAUSES].map((row) => row.slice(2))", "Object.values(UNIT_LOOKS)"])
def test_looks_of_a_chart_are_told_apart(looks: str, sight: str) -> None:
    found = result(f"return {looks};", files=("numbers.js", "timeline.js", "plots.js"))
    near = [(one, other) for (one, pattern), (other, second) in itertools.combinations(found, 2)
            if pattern == second and apart(one, other, sight) < LEAST]
    assert len(found) >= 4 and near == []


def test_red_and_green_are_one_colour_to_some() -> None:
    assert apart("#a05000", "#607000", "full") > 2 * LEAST > 2 * apart("#a05000", "#607000", "deuteranopia")
