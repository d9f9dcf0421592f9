# SPDX-License-Identifier: Apache-2.0
"""Memory handed out by the scheduler: never twice, longest out of use first, and always enough for what fits."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from weft.compiler.scheduler.buffers import Buffers, Key, kept
from weft.compiler.scheduler.pool import Buffer, Pool


def vectors(buffer: Buffer) -> set[int]:
    return set(range(buffer.base, buffer.base + buffer.size))


@pytest.mark.parametrize("seed", range(20))
def test_a_vector_has_one_owner(seed: int) -> None:
    random, pool, held = np.random.default_rng(seed), Pool(50), list[Buffer]()
    for _ in range(300):
        if held and random.integers(2):
            pool.release(held.pop(random.integers(len(held))))
            continue
        size = int(random.integers(1, 12))
        taken = set().union(*map(vectors, held))
        buffer = pool.take(size)
        if buffer is None:
            assert pool.largest().size < size
            continue
        assert buffer.size == size and not taken & vectors(buffer) and vectors(buffer) <= set(range(50))
        held.append(buffer)
    for buffer in held:
        pool.release(buffer)
    assert pool.largest() == (0, 50)


def test_a_part_of_a_memory_is_free_from_where_it_begins() -> None:
    pool = Pool(10, base=5)
    assert pool.largest() == (5, 10)
    pool.hold(Buffer(5, 4))
    assert pool.largest() == (9, 6) and pool.take(7) is None


def test_longest_out_of_use_first() -> None:
    """Buffers that follow each other go round the whole memory."""
    pool, bases = Pool(40), []
    for _ in range(8):
        buffer = pool.take(10)
        assert buffer is not None
        bases.append(buffer.base)
        pool.release(buffer)
    assert bases == [0, 10, 20, 30] * 2


A, B, C, D = (Key("some", name) for name in "abcd")


def test_what_is_kept_gives_way() -> None:
    buffers = Buffers(Pool(10), two=False)
    assert buffers.claim({A: 4, B: 3})[1] == {A, B}
    buffers.release(A)
    assert buffers.claim({B: 3, C: 4}) == ({B: 4, C: 0}, {C})
    assert buffers.claim({D: 10}) == ({D: 0}, {D})
    assert buffers.claim({B: 3})[1] == {B}


def test_what_fits_in_one_piece_fits() -> None:
    """What a step has already may have to move."""
    buffers = Buffers(Pool(10), two=False)
    buffers.claim({A: 3, B: 4})
    buffers.release(A)
    bases, fresh = buffers.claim({B: 4, C: 6})
    assert bases == {B: 0, C: 4} and fresh == {B, C}


@pytest.mark.parametrize(("two", "room", "expected"), [
    (False, 0, {A: 7, C: 12}), (True, 0, {A: 0, C: 2}), (True, 4, {A: 4, C: 6})])
def test_a_small_buffer_does_not_part_large_ones(two: bool, room: int, expected: dict[Key, int]) -> None:
    """A is kept in the middle, so that C would lie where B was. In one piece both fit below that; or, with vectors
    held there, overlap it."""
    pool = Pool(20)
    buffers = Buffers(pool, two)
    pool.hold(Buffer(0, 7))
    buffers.claim({A: 2})
    pool.hold(Buffer(9, 3))
    assert buffers.claim({A: 2, B: 8})[0] == {A: 7, B: 12}
    buffers.release(B)
    pool.release(Buffer(room, 7 - room))
    pool.release(Buffer(9, 3))
    assert buffers.claim({A: 2, C: 8})[0] == expected


@pytest.mark.parametrize(("made", "expected"), [((), {A: 8, C: 0}), (("some",), {A: 0, C: 4})])
def test_what_nothing_is_loaded_into_is_as_good_elsewhere(made: tuple[str, ...], expected: dict[Key, int]) -> None:
    """A is half as large as C, too large to be loaded again; there is room for C behind it, not beside."""
    buffers = Buffers(Pool(16), True, made)
    buffers.claim({B: 8, A: 4})
    buffers.release(B)
    assert buffers.claim({A: 4, C: 8})[0] == expected


@pytest.mark.parametrize(("keys", "count", "expected"), [
    ("abab", 2, "1100"), ("abab", 1, "0000"), ("aabb", 1, "1010"), ("abcabc", 3, "111000"), ("abcabc", 2, "000000")])
def test_kept_until_the_next_use(keys: str, count: int, expected: str) -> None:
    assert kept(list(keys), count) == [flag == "1" for flag in expected]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_content_that_was_unused_for_longest_gives_way(count: int) -> None:
    """Against a list of what the buffers hold, the latest use last."""
    keys = np.random.default_rng(count).integers(0, 5, 60).tolist()
    held: list[int] = []
    last: dict[int, int] = {}
    wanted = [False] * len(keys)
    for number, key in enumerate(keys):
        if key in held:
            wanted[last[key]] = True
            held.remove(key)
        held, last[key] = [*held, key][-count:], number
    assert kept(keys, count) == wanted


@pytest.mark.parametrize(("size", "base"), [(5, 4), (6, 4), (7, 0)])
def test_one_piece_lies_apart_from_the_step_before_where_it_just_fits(size: int, base: int) -> None:
    pool = Pool(10)
    buffers = Buffers(pool, two=True)
    assert buffers._in_one_piece({A: size - 1, B: 1}, Buffer(0, 4)) == {A, B}
    assert buffers._held == {A: Buffer(base, size - 1), B: Buffer(base + size - 1, 1)}


WALK = """
import numpy as np
from weft.compiler.scheduler.buffers import Buffers, Key
from weft.compiler.scheduler.pool import Pool
random = np.random.default_rng(1)
for _ in range(40):
    buffers, bases = Buffers(Pool(int(random.integers(80, 130))), two=True), []
    for step in range(20):
        small, large = int(random.integers(1, 3)), int(random.integers(25, 30))
        sizes = {Key("weights", step % 3): small,
                 **{Key(kind, step): large for kind in ("input_tile", "output_buffer")}}
        found, _ = buffers.claim(sizes)
        bases += found.values()
        for kind in ("input_tile", "output_buffer"):
            buffers.release(Key(kind, step))
    print(bases)
"""


def test_places_are_the_same_in_every_process() -> None:
    """Of a network that is compiled twice the files are equal: no order of a set, which Python draws anew in each
    process, decides where a buffer lies."""
    found = {subprocess.run([sys.executable, "-c", WALK], env={**os.environ, "PYTHONHASHSEED": seed}, check=True,
                            capture_output=True).stdout for seed in "1234"}
    assert len(found) == 1
