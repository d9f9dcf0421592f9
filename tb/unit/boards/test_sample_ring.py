# SPDX-License-Identifier: Apache-2.0
"""The ring of samples in a shell: what the machine puts in comes out once and in order, whatever the host does."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import pytest
from migen import passive, run_simulation

from weft.boards.shell.sample_ring import SampleRing
from weft.hw.contract.host_link import RING_COUNT_BITS, RING_SAMPLES, RING_TAKEN, RING_WORDS, RING_WRITTEN

Step = Generator[Any, Any, Any]


def machine(ring: SampleRing, put: list[int], chance: random.Random, often: float) -> Step:
    """Offer samples, each until it is taken."""
    while True:
        sample = chance.getrandbits(64)
        while chance.random() > often:
            yield
        yield ring.data.eq(sample)
        yield ring.valid.eq(1)
        yield
        while not (yield ring.ready):
            yield
        put.append(sample)
        yield ring.valid.eq(0)


@pytest.mark.parametrize(("seed", "often"), [(1, 1.0), (3, 0.02)])
def test_samples_come_out_once_and_in_order(seed: int, often: float) -> None:
    """Reads are repeated at random, and some of them look where nothing new is."""
    ring, chance = SampleRing(), random.Random(seed)
    put: list[int] = []
    got: list[int] = []
    levels: list[int] = []
    most = 0

    def host() -> Step:
        nonlocal most
        taken = before = 0
        for _ in range(8):
            for _ in range(chance.choice((0, 5, 50, 560))):
                yield
            yield from ring.bus.write(RING_TAKEN // 4, taken)
            for _ in range(chance.choice((1, 2))):
                assert (yield from ring.bus.read(RING_TAKEN // 4)) == taken
                written = yield from ring.bus.read(RING_WRITTEN // 4)
            levels.append((written - taken) % (1 << RING_COUNT_BITS))
            most = max(most, (written - before) % (1 << RING_COUNT_BITS))
            for number in range(levels[-1]):
                place = RING_WORDS // 4 + 2 * ((taken + number) % RING_SAMPLES)
                for _ in range(chance.choice((1, 1, 2))):
                    low = yield from ring.bus.read(place)
                    high = yield from ring.bus.read(place + 1)
                got.append(low | high << 32)
            before, taken = taken, written
        assert got

    run_simulation(ring, [host(), passive(machine)(ring, put, random.Random(seed + 10), often)])
    assert got == put[:len(got)] and len(put) - len(got) <= RING_SAMPLES + 1
    assert max(levels) <= most <= RING_SAMPLES and (most == RING_SAMPLES) == (often > 0.1)


def test_a_write_to_a_sample_takes_none() -> None:
    """Nor does one to the count of those that were written."""
    ring = SampleRing()

    def host() -> Step:
        for address in (RING_WORDS // 4 + RING_TAKEN // 4, RING_WRITTEN // 4, RING_WORDS // 4 + 8 + RING_TAKEN // 4):
            yield from ring.bus.write(address, 5)
            assert (yield from ring.bus.read(RING_TAKEN // 4)) == 0
        yield from ring.bus.write(RING_TAKEN // 4, 5)
        assert (yield from ring.bus.read(RING_TAKEN // 4)) == 5

    run_simulation(ring, host())
