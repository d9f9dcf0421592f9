# SPDX-License-Identifier: Apache-2.0
"""The comparison of two memories against one that asks word for word, and the place that it names."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.runtime import compare as subject
from weft.runtime.compare import Comparison, compare, compare_vectors
from weft.support.errors import Mismatch

TINY, BYTES = Arch.load("tiny"), Arch.load("arty_int8")


def memories(arch: Arch, rng: np.random.Generator, places: list[int]) -> tuple[Dram, Dram]:
    """Golden's memory and the RTL's, both with the same content around these bytes."""
    golden, found = Dram(arch), Dram(arch)
    for place in places:
        content = rng.integers(1, 255, 200, np.uint8).tobytes()
        golden.load_bytes(place, content)
        found.load_bytes(place, content)
    return golden, found


@pytest.mark.parametrize("arch", [TINY, BYTES], ids=["sixteen bits", "bytes"])
@pytest.mark.parametrize("chunk_bytes", [1 << 22, 4096])
@pytest.mark.parametrize("count", [1, 2, 30])
def test_all_words_that_differ(arch: Arch, chunk_bytes: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "CHUNK_BYTES", chunk_bytes)
    rng = np.random.default_rng(count)
    itemsize, window = arch.number.storage_dtype.itemsize, 4 * arch.vector_bytes
    golden, found = memories(arch, rng, [0, 64 * arch.vector_bytes])
    words = compare(arch, "dram0", golden, found, window).words
    assert words and compare(arch, "dram0", golden, found, window) == Comparison(words, 0, None)
    wrong = np.sort(rng.choice(200 // itemsize, count, replace=False))
    for word in wrong:
        found.bytes[word * itemsize + itemsize - 1] ^= 1
    result = compare(arch, "dram1", golden, found, window, first_image=5)
    assert (result.words, result.different, result.equal) == (words, count, words - count)
    place, first = int(wrong[0]) * itemsize, result.first
    assert first and (first.image, first.memory) == (5 + place // window, "dram1")
    assert first.address * arch.vector_bytes + first.lane * itemsize == place % window
    values = [memory.bytes[place:place + itemsize].view(arch.number.storage_dtype)[0] for memory in (golden, found)]
    assert [first.golden, first.rtl] == values


def test_the_first_of_words_that_differ_in_two_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "CHUNK_BYTES", 4096)
    golden, found = memories(TINY, np.random.default_rng(3), [0, 8192])
    found.bytes[[8, 8192, 8200]] ^= 1
    result = compare(TINY, "dram0", golden, found, 4096)
    assert result.different == 3 and result.first and (result.first.image, result.first.address) == (0, 2)


@pytest.mark.parametrize("more", ["golden", "found"])
def test_a_page_that_only_one_machine_touched(more: str) -> None:
    golden, found = memories(TINY, np.random.default_rng(1), [0])
    (golden if more == "golden" else found).load_bytes(1 << 11, b"\1")
    result = compare(TINY, "dram0", golden, found, 1 << 12)
    assert result.different == 1 and result.first and result.first.image == 0
    assert result.first.address == (1 << 11) // TINY.vector_bytes


def test_vectors_and_the_way_they_add_up() -> None:
    golden = np.arange(12).reshape(4, 3)
    found = golden.copy()
    assert compare_vectors(golden, found, 2, 100, "board") == Comparison(12, 0, None)
    found[1, 2], found[3, 0] = -1, -2
    result = compare_vectors(golden, found, 2, 100, "board")
    assert (result.words, result.different) == (12, 2)
    assert str(result.first) == "image 2, DRAM0 address 101, lane 2: board -1, golden 5"
    both = Comparison(8, 0, None) + result + Comparison(1, 1, None)
    assert (both.words, both.different, both.first) == (21, 3, result.first)
    with pytest.raises(Mismatch, match="board and golden differ in 3 of 21 words, first at image 2, "):
        both.insist()
    Comparison(8, 0, None).insist()


def test_a_word_counts_once_where_one_memory_has_pieces_of_the_other() -> None:
    """Golden touched four pages in a row, the board two of them that lie apart."""
    golden, found = Dram(TINY), Dram(TINY)
    page = 4096
    golden.load_bytes(0, bytes(range(1, 129)) * (4 * page // 128))
    for place in (page, 3 * page):
        found.load_bytes(place, golden.bytes[place:place + page].tobytes())
    result = compare(TINY, "dram0", golden, found, 8 * page)
    size = TINY.number.storage_dtype.itemsize
    assert (result.words, result.different) == (4 * page // size, 2 * page // size)


def test_the_first_of_two_comparisons_is_named() -> None:
    one, other = (compare_vectors(np.zeros((1, 2)), np.full((1, 2), value), value, 0, "board") for value in (1, 2))
    assert (one + other).first == one.first != other.first == (other + one).first
    assert (Comparison(2, 0, None) + other).first == other.first
