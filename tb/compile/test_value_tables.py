# SPDX-License-Identifier: Apache-2.0
"""Lookup tables at zero: unused lanes of a tensor must stay zero, for what reads it multiplies them by anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.compiler.layers.stages import Lookup
from weft.compiler.lowering.operators import FUNCTIONS, OPERATORS
from weft.compiler.passes.normalise import OPSET
from weft.compiler.quantize.ranges import Range
from weft.compiler.quantize.tables import encode_table, make_pieces
from weft.golden import alu
from weft.tb.compile.run_model import BASE, ModelMaker, check_every_step
from weft.tb.random.network_rule import TABLES

ARCH = BASE.replace(**TABLES)


@pytest.mark.parametrize("seen", [(-0.7, 5.1), (-3.0, -0.2), (2.0, 5.0), (-1.0, 0.0)])
@pytest.mark.parametrize("function", sorted(
    name for name in FUNCTIONS if (table := OPERATORS[name].table) and table.keeps_zero))
def test_zero_becomes_zero(function: str, seen: tuple[float, float]) -> None:
    number, points = ARCH.number, (12, 11)
    pieces = make_pieces("layer", Lookup(function, (), "x"), Range(*seen, ()), points[0], ARCH, OPSET)
    tables = np.array(encode_table(pieces, *points, ARCH))
    scalars = np.arange(int(seen[0] * 2 ** points[0]), int(seen[1] * 2 ** points[0]))
    distance, height, slope = alu.lookup(number, tables[..., None], np.append(scalars, 0)[:, None])[:3]
    made = number.saturate(number.multiply(distance, slope) + height).ravel()
    assert made[-1] == 0
    # Beyond the pieces' error, the value and the product round.
    wanted = np.array([evaluate(function, value) for value in scalars[::37] / 2 ** points[0]])
    assert np.abs(made[:-1][::37] / 2 ** points[1] - wanted).max() <= pieces.error + 2 * 2 ** -points[1]


@pytest.mark.parametrize("seen", [(-7.9, 2.0), (-2.0, 7.9), (-7.9, 7.9)])
def test_keys_stay_within_the_type(seen: tuple[float, float]) -> None:
    """The margin around a range that fills the type would leave it; saturated, the first keys told a wrong spacing."""
    points = (12, 14)
    pieces = make_pieces("layer", Lookup("Sigmoid", (), "x"), Range(*seen, ()), points[0], ARCH, OPSET)
    keys = np.array(encode_table(pieces, *points, ARCH)[0])
    assert keys[0] == pieces.first and keys[1] - keys[0] == 1 << pieces.spacing_log2


def evaluate(function: str, value: float) -> float:
    known: dict[str, Callable[[float], float]] = {
        "Tanh": np.tanh, "Elu": lambda x: x if x > 0 else np.expm1(x),
        "Selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * np.expm1(x)),
        "Gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
        "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))), "Erf": math.erf,
        "Softsign": lambda x: x / (1 + abs(x)), "Celu": lambda x: x if x > 0 else np.expm1(x)}
    return float(known[function](value))


def test_unused_lanes_behind_a_table(tmp_path: Path) -> None:
    """Four of eight lanes are used, the weight column holds a fuller tile's rows (seed 31 of the machine ``lanes8``,
    when random networks had more products)."""
    maker = ModelMaker((1, 6, 9, 8), seed=2)
    inner = maker.node("Elu", maker.conv("x", 6, 4, (1, 1)))
    maker.conv(maker.node("Elu", inner), 4, 9, (3, 3))
    samples = maker.random.standard_normal((2, 6, 9, 8)).astype(np.float32)
    check_every_step(maker.save(tmp_path / "model.onnx"), ARCH, samples)
