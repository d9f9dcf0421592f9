# SPDX-License-Identifier: Apache-2.0
"""A user's arrays cut into images, and results joined: the edges of what is allowed, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.runtime import images
from weft.runtime.images import stored_images, together
from weft.support.errors import WeftError

TINY = Arch.load("tiny")
PORTS = SimpleNamespace(name="x", size=2), SimpleNamespace(name="z", size=2)


def cut(most: int | None = None, **arrays: np.ndarray) -> tuple[list[dict[str, np.ndarray]], bool]:
    model: Any = SimpleNamespace(inputs=PORTS[:len(arrays)], arch=TINY)
    return stored_images(model, arrays, most)


def whole(count: int, value: int = 0) -> np.ndarray:
    return np.full((count, 2, TINY.array_size), value)


@pytest.mark.parametrize(("most", "count"), [(None, 3), (1, 1), (3, 3), (4, 3)])
def test_as_many_images_as_there_are_and_as_are_asked_for(most: int | None, count: int) -> None:
    found, many = cut(most, x=whole(3))
    assert len(found) == count and many and not cut(x=whole(1)[0])[1]


@pytest.mark.parametrize("most", [0, -1])
def test_no_images_are_refused(most: int) -> None:
    with pytest.raises(WeftError, match=f"images: found at most {most}; allowed: 1 or more"):
        cut(most, x=whole(3))


def test_inputs_have_one_number_of_images() -> None:
    assert len(cut(x=whole(3), z=whole(3))[0]) == 3
    with pytest.raises(WeftError, match="found x with 3 images, z with 2 images"):
        cut(x=whole(3), z=whole(2))


def test_the_most_images_and_one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is more is cut only where that is asked for."""
    monkeypatch.setattr(images, "MOST_IMAGES", 3)
    assert len(cut(x=whole(3))[0]) == len(cut(3, x=whole(4))[0]) == 3
    for most in (None, 4):
        with pytest.raises(WeftError, match="found 4 images; allowed: at most 3 in one run"):
            cut(most, x=whole(4))


@pytest.mark.parametrize("value", [TINY.number.minimum, TINY.number.maximum])
def test_the_ends_of_raw_numbers(value: int) -> None:
    assert (cut(x=whole(1, value))[0][0]["x"] == value).all()
    beyond = whole(1)
    beyond[0, 1, -1] = value + (1 if value > 0 else -1)
    with pytest.raises(WeftError, match="raw input x: found values"):
        cut(x=beyond)


@pytest.mark.parametrize(("shape", "count", "counted", "joined"), [
    ((1, 2), 3, False, (3, 2)), ((1, 2), 1, False, (1, 2)), ((1, 2), 1, True, (1, 2)), ((4, 2), 3, False, (3, 4, 2)),
    ((4, 2), 1, False, (4, 2)), ((4, 2), 1, True, (1, 4, 2)), ((), 2, False, (2,)), ((), 1, False, ())])
def test_outputs_of_images_are_joined(shape: tuple[int, ...], count: int, counted: bool,
                                      joined: tuple[int, ...]) -> None:
    assert together([{"y": np.zeros(shape)}] * count, counted)["y"].shape == joined
