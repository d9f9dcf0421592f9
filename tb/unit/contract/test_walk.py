# SPDX-License-Identifier: Apache-2.0
"""A walk's addresses, its last one and its slices, against the sentence that defines them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weft.hw.contract.walk import Walk

WALKS = st.builds(Walk, st.integers(0, 50), st.integers(1, 9), st.sampled_from([1, 2, 4, 8]), st.integers(1, 5),
                  st.integers(0, 30))


def visited(walk: Walk) -> list[int]:
    return [walk.base + row * walk.pitch + vector * walk.stride
            for row in range(walk.rows) for vector in range(walk.size)]


@given(WALKS)
def test_rows_outer_vectors_inner(walk: Walk) -> None:
    assert walk.addresses().shape == (walk.rows, walk.size)
    assert walk.addresses().ravel().tolist() == visited(walk)
    assert walk.last == max(visited(walk))


@given(WALKS)
def test_slices_pick_the_rows_addresses(walk: Walk) -> None:
    memory = np.arange(walk.last + 1)
    assert [memory[row].tolist() for row in walk.slices()] == walk.addresses().tolist()


@given(WALKS)
def test_parts_pick_all_addresses_in_order_and_none_twice(walk: Walk) -> None:
    memory = np.arange(walk.last + 1)
    parts = [memory[part].tolist() for part in walk.parts()]
    assert [address for part in parts for address in part] == visited(walk)
    assert all(len(set(part)) == len(part) for part in parts)
    assert len(parts) == (1 if walk.pitch > (walk.size - 1) * walk.stride else walk.rows)


def test_arrays_of_walks() -> None:
    walks = [Walk(3, 4, 2, 3, 10), Walk(0, 1, 1, 1, 99), Walk(7, 5)]
    together = Walk(*(np.array(column) for column in zip(*walks, strict=True)))  # type: ignore[arg-type]
    assert together.last.tolist() == [walk.last for walk in walks]  # type: ignore[attr-defined]
