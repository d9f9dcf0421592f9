"""Places of a port's elements as they are written into a ``.tmodel`` and read again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from weft.runtime.ports import Port, layer_runs, layers_from_text, layers_to_text, runs
from weft.runtime.schema import PortEntry


def entry_of(port: Port) -> PortEntry:
    """Through JSON, as in a file."""
    found = json.loads(json.dumps(port.to_json()))
    tuples = {key: tuple(value) for key, value in found.items() if isinstance(value, list)}
    return PortEntry(**{**found, **tuples})


@pytest.mark.parametrize(("order", "expected"), [
    ([0, 1, 2, 3], [[0, 1, 4]]),
    ([5], [[5, 0, 1]]),
    ([0, 2, 4, 7, 8, 9], [[0, 2, 3], [7, 1, 3]]),
    ([9, 6, 3, 0, 1, 5], [[9, -3, 4], [1, 4, 2]]),
    ([0, 4, 1, 5, 2, 6], [[0, 4, 2], [1, 4, 2], [2, 4, 2]]),
    ([3, 3, 3, 4], [[3, 0, 3], [4, 0, 1]]),
])
def test_runs_go_on_while_the_step_is_the_same(order: list[int], expected: list[list[int]]) -> None:
    assert runs(np.array(order)) == expected


@pytest.mark.parametrize("seed", range(20))
def test_any_order_is_read_as_it_was_written(seed: int) -> None:
    random = np.random.default_rng(seed)
    pieces = [first + step * np.arange(count) for first, step, count in zip(
        random.integers(0, 30, 4), random.integers(0, 4, 4), random.integers(1, 6, 4), strict=True)]
    order = np.concatenate(pieces)
    port = Port("x", 2, 15, (len(order),), (60, 1, 1), 3, order)
    assert "order" in port.to_json() or len(order) < 3
    found = Port.from_entry(entry_of(port))
    assert found.order is not None and np.array_equal(found.order, order)
    assert (found.name, found.base, found.size, found.layout, found.point) == ("x", 2, 15, (60, 1, 1), 3)


def test_layers_are_read_as_they_were_written() -> None:
    layers = np.array([2, 2, 5, 0, 0, 0, 5])
    assert layers_to_text(layers) == "2x2 5x1 0x3 5x1"
    assert layer_runs("2x2 5x1 0x3 5x1") == [(2, 2), (5, 1), (0, 3), (5, 1)]
    assert np.array_equal(layers_from_text(layers_to_text(layers)), layers)
    for wrong in ("2x0", "2", "x3", "2x-1", "\u0662x1", "1x" + "9" * 12):
        with pytest.raises(ValueError, match="instead of LAYERxCOUNT"):
            layer_runs(wrong)
