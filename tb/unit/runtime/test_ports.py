# SPDX-License-Identifier: Apache-2.0
"""Places of a port's elements as they are written into a ``.tmodel`` and read again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from weft.hw.contract.numerics import DataType
from weft.tmodel.packing import Packing
from weft.tmodel.ports import Port, layer_runs, layers_from_text, layers_to_text, runs
from weft.tmodel.scales import TensorScale
from weft.tmodel.schema import PortEntry, TensorEntry
from weft.tmodel.tensors import Tensor
from weft.tmodel.window import Window


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


def test_scales_are_read_as_they_were_written() -> None:
    port = Port("x", 2, 15, (60,), (60, 1, 1)).holding(TensorScale(0.1, -3))
    assert port.to_json()["scale"] == 0.1 and "point" not in port.to_json()
    found = Port.from_entry(entry_of(port))
    numbers = found.numbers(DataType(8, 0))
    assert numbers == TensorScale(0.1, -3)
    assert numbers.quantize(np.array([0, 0.25, 0.351, -99, 99])).tolist() == [-3, -1, 1, -128, 127]
    np.testing.assert_allclose(numbers.dequantize(np.array([-3, 1])), [0, 0.4])
    reals = np.array([-99, numbers.low, numbers.low - 0.06, 0, numbers.high, 13.2])
    assert numbers.saturated(numbers.quantize(reals), reals) == 2  # what is rounded to an end does not count


@pytest.mark.parametrize(("kind", "shift"), [("int8", 0), ("uint8", 128)])
def test_bytes_of_the_user_come_back_as_they_were(kind: str, shift: int) -> None:
    """Real numbers between: of every byte, also of scales that no binary number is."""
    for scale in (0.1, 1 / 3, 2.0 ** -20, 77.7):
        tensor = Tensor("x", kind, (256,), TensorScale(float(np.float32(scale)), -7))
        given = (np.arange(-128, 128) + shift).astype(kind)
        real = tensor.given(given)
        np.testing.assert_allclose(real, (np.arange(-128, 128) + 7) * float(np.float32(scale)))
        np.testing.assert_array_equal(tensor.made(real.astype(np.float32)), given)
        assert tensor.made(real).dtype == np.dtype(kind)
    assert Tensor.from_entry(TensorEntry(**json.loads(json.dumps(tensor.to_json())) | {"shape": (256,)})) == tensor


def test_layers_are_read_as_they_were_written() -> None:
    layers = np.array([2, 2, 5, 0, 0, 0, 5])
    assert layers_to_text(layers) == "2x2 5x1 0x3 5x1"
    assert layer_runs("2x2 5x1 0x3 5x1") == [(2, 2), (5, 1), (0, 3), (5, 1)]
    assert np.array_equal(layers_from_text(layers_to_text(layers)), layers)
    for wrong in ("2x0", "2", "x3", "2x-1", "\u0662x1", "1x" + "9" * 12):
        with pytest.raises(ValueError, match="instead of LAYERxCOUNT"):
            layer_runs(wrong)


def test_a_stack_of_images_is_packed_image_by_image() -> None:
    """Leading axes stay: im2col of each image is as of it alone."""
    packing = Packing((2, 4, 5), Window((3, 1), (1, 1), (1, 0)), (4, 5))
    images = np.arange(3 * 2 * 40).reshape(3, 2, 2, 4, 5)
    packed = packing.pack(images)
    assert packed.shape == (3, 2, *packing.layout)
    for first in range(3):
        for second in range(2):
            assert packed[first, second].tolist() == packing.pack(images[first, second]).tolist()
    assert packed[1, 0, 2:4].tolist() == images[1, 0].tolist(), "the middle tap reads the pixel itself"
