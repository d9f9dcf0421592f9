# SPDX-License-Identifier: Apache-2.0
"""Covers of boxes, against counting every element."""

from __future__ import annotations

import itertools
import random

import numpy as np

from weft.schedule.boxes import Box, fault_of_cover, hull

SIZES = (2, 3, 4, 3)


def a_box(draw: random.Random) -> Box:
    pairs = [sorted((draw.randrange(size), draw.randrange(size))) for size in SIZES]
    return Box(tuple(low for low, _ in pairs), tuple(high for _, high in pairs))


def counted(boxes: list[Box]) -> np.ndarray:
    counts = np.zeros([size + 1 for size in SIZES], int)
    for box in boxes:
        counts[tuple(slice(low, high + 1) for low, high in zip(box.lower, box.upper, strict=True))] += 1
    return counts


def pieces_of(box: Box, draw: random.Random) -> list[Box]:
    """A box cut at random."""
    axis = draw.randrange(4)
    if draw.random() < 0.25 or box.sizes[axis] == 1:
        return [box]
    middle = draw.randrange(box.lower[axis], box.upper[axis])
    first, second = list(box.upper), list(box.lower)
    first[axis], second[axis] = middle, middle + 1
    return [*pieces_of(Box(box.lower, tuple(first)), draw), *pieces_of(Box(tuple(second), box.upper), draw)]


def test_a_cut_box_is_covered_once() -> None:
    draw = random.Random(1)
    for _ in range(200):
        box = a_box(draw)
        pieces = pieces_of(box, draw)
        assert fault_of_cover(pieces, box) is None and hull(pieces) == box
        assert fault_of_cover([*pieces, *pieces], box, 2) is None


def test_the_first_element_that_is_wrong_is_told_with_its_count() -> None:
    draw = random.Random(2)
    for _ in range(300):
        boxes, whole, times = [a_box(draw) for _ in range(draw.randrange(4))], a_box(draw), draw.choice([1, 1, 2])
        wrong = counted(boxes) != times * counted([whole])
        first = next((point for point in itertools.product(*map(range, wrong.shape)) if wrong[point]), None)
        assert fault_of_cover(boxes, whole, times) == (None if first is None
                                                       else (first, int(counted(boxes)[first])))


def test_common_elements_and_places() -> None:
    draw = random.Random(3)
    for _ in range(200):
        one, other = a_box(draw), a_box(draw)
        both = counted([one]) * counted([other])
        common = one.common(other)
        assert (common is None) == (not both.any()) and (common is None or (counted([common]) == both).all())
        assert one.within(other) == bool((both == counted([one])).all())
        assert one.volume == int(counted([one]).sum()) and one.shifted(3).shifted(-3) == one
        assert all(one.holds(point) == bool(counted([one])[point]) for point in itertools.product(*map(range, SIZES)))
