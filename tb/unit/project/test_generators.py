# SPDX-License-Identifier: Apache-2.0
"""The generators that tests of a module share: each test draws what it draws alone (tb/generators.py)."""

from __future__ import annotations

import random

import numpy as np
import pytest

SHARED, PLAIN = np.random.default_rng(5), random.Random(5)
DRAWN = [int(SHARED.integers(1 << 30)), PLAIN.randrange(1 << 30)]
"""What the import draws; tests go on from there."""


@pytest.fixture
def draws() -> list[int]:
    """The fixture draws before its test does, which finds the generators as they were before."""
    return [int(SHARED.integers(1 << 30)), PLAIN.randrange(1 << 30)]


@pytest.mark.parametrize("turn", range(3))
def test_each_test_begins_where_the_import_ended(turn: int, draws: list[int]) -> None:
    numpy_alone, alone = np.random.default_rng(5), random.Random(5)
    assert [int(numpy_alone.integers(1 << 30)), alone.randrange(1 << 30)] == DRAWN
    expected = [int(numpy_alone.integers(1 << 30)), alone.randrange(1 << 30)]
    assert draws == expected == [int(SHARED.integers(1 << 30)), PLAIN.randrange(1 << 30)]
