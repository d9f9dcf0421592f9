# SPDX-License-Identifier: Apache-2.0
"""What a bridge keeps in mind, against a dictionary of words: any ranges, within pages and over their borders."""

from __future__ import annotations

import numpy as np
import pytest

from weft.runtime.driver.shadow import PAGE_WORDS, Shadow
from weft.runtime.driver.transport import WORD_BYTES

Runs = list[tuple[int, list[int]]]


def runs_of(words: dict[int, int], first: int, count: int) -> Runs:
    """Runs of a dictionary's words, cut at pages, by their byte addresses."""
    found: Runs = []
    for at in range(first, first + count):
        if at not in words:
            continue
        if found and at % PAGE_WORDS and found[-1][0] // WORD_BYTES + len(found[-1][1]) == at:
            found[-1][1].append(words[at])
        else:
            found.append((at * WORD_BYTES, [words[at]]))
    return found


def plain(runs: list[tuple[int, np.ndarray]]) -> Runs:
    return [(address, words.tolist()) for address, words in runs]


@pytest.mark.parametrize("seed", range(4))
def test_the_same_as_a_dictionary(seed: int) -> None:
    rng, shadow, words = np.random.default_rng(seed), Shadow(), dict[int, int]()
    counts = (1, 2, 7, PAGE_WORDS - 1, PAGE_WORDS, PAGE_WORDS + 1, 2 * PAGE_WORDS + 1)
    for _ in range(40):
        count = int(rng.choice(counts))
        edge = int(rng.choice((-1, 0, 1, -count, int(rng.integers(PAGE_WORDS)))))
        first = int(rng.integers(3, 6)) * PAGE_WORDS + edge
        address, content = first * WORD_BYTES, rng.integers(3, size=count).astype(np.uint32)
        if rng.integers(3):
            shadow.keep(address, content)
            words |= dict(zip(range(first, first + count), content.tolist(), strict=True))
        else:
            shadow.release(address, count)
            words = {at: word for at, word in words.items() if not first <= at < first + count}
        assert plain(list(shadow.kept())) == runs_of(words, 0, 8 * PAGE_WORDS)
        assert plain(shadow.within(address - WORD_BYTES, count + 2)) == runs_of(words, first - 1, count + 2)
        for low, size in ((first, count), (first - 1, count), (first, count + 1), (first + count - 1, 1)):
            there = [words.get(at) for at in range(low, low + size)]
            assert shadow.keeps(low * WORD_BYTES, size) == (None not in there)
            if None not in there:
                exact = np.array(there, np.uint32)
                assert shadow.holds(low * WORD_BYTES, exact)
                exact[rng.integers(size)] ^= 4
                assert not shadow.holds(low * WORD_BYTES, exact)
            else:
                assert not shadow.holds(low * WORD_BYTES, np.array([word or 0 for word in there], np.uint32))


def test_words_kept_are_copies() -> None:
    shadow, content = Shadow(), np.arange(4, dtype=np.uint32)
    shadow.keep(64, content)
    content[0] = 9
    ((_, found),) = shadow.within(64, 4)
    assert found.tolist() == [0, 1, 2, 3]
    found[1] = 9
    assert shadow.holds(64, np.arange(4, dtype=np.uint32))
