# SPDX-License-Identifier: Apache-2.0
"""Windows over images: what is told of many ranges at once is what is told of each."""

from __future__ import annotations

import numpy as np
import pytest

from weft.tmodel.window import Enlargement, Window


@pytest.mark.parametrize("seed", range(20))
def test_counts_of_many_ranges_are_those_of_each(seed: int) -> None:
    """Ranges that lie in the padding, beyond the image, or are empty are among them."""
    random = np.random.default_rng(seed)
    kernel, strides, dilations = (tuple(random.integers(1, 6, 2).tolist()) for _ in range(3))
    pads, size = tuple(random.integers(-4, 9, 2).tolist()), int(random.integers(1, 40))
    low = random.integers(0, 30, 50)
    high = low + random.integers(0, 8, 50)
    windows = (Window(kernel, strides, pads, dilations), Enlargement(factors=strides))
    for window, axis in ((window, axis) for window in windows for axis in range(2)):
        ranges = [window.inputs(axis, *pair, size) for pair in zip(low.tolist(), high.tolist(), strict=True)]
        assert window.input_counts(axis, low, high, size).tolist() == [last - first for first, last in ranges]
