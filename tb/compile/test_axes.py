# SPDX-License-Identifier: Apache-2.0
"""The axes with which a tensor is stored are found again from where its elements lie."""

from __future__ import annotations

from itertools import permutations
from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

from weft.compiler.lowering.axes import Axes, axes_of, lie_so


def stored(shape: tuple[int, ...], axes: Axes) -> Any:
    """A Rewrite that knows one tensor ``x``, which lies with ``axes``."""
    _, channels, pixels = axes.turned(shape)
    return SimpleNamespace(shapes={"memory": (1, channels, 1, pixels)}, held={"x": SimpleNamespace(tensor="memory")},
                           index=lambda name: axes.places(shape))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 2), (4, 2, 3), (3, 2, 2, 5)])
def test_axes_are_found_from_the_places_of_elements(shape: tuple[int, ...]) -> None:
    """Channels in their order, pixels as numbers, however the axes are divided; the tensor lies as itself alone."""
    every = {Axes(order[:count], tuple(sorted(order[count:])))
             for order in permutations(range(len(shape))) for count in range(len(shape) + 1)}
    for axes in every:
        state = stored(shape, axes)
        assert axes_of(state, "x", len(shape)) == axes
        for other in every:
            assert lie_so(state, "x", other) == (set(other.channels) == set(axes.channels))
    assert len(every) > prod(range(1, len(shape) + 1))
