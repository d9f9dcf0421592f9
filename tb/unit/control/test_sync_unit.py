# SPDX-License-Identifier: Apache-2.0
"""The sync unit against counters in plain Python: posts of all cores at once, waits that last, overflow, stop."""

from __future__ import annotations

from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.hw.control.sync_unit import SyncUnit
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Cycles
from weft.tb.bench.block_ports import Ports

CORES, COUNTERS = 3, 5
ARCH = Arch.load("tiny").replace(dram_ports=SHARED, cores=CORES, sync_counters=COUNTERS)


class Reference(Cycles):
    """Drives random operations and posts, and compares every output of every cycle.

    ``rate``: of posts. Waits ask for what is not too far away; from cycle ``stop_at`` on the core is stopped."""

    def __init__(self, seed: int, count: int, rate: float, stop_at: int | None = None) -> None:
        super().__init__(count)
        self.rng, self.rate, self.stop_at = Random(seed), rate, stop_at
        self.counters = [0] * COUNTERS
        self.held: tuple[int, int, int] | None = None
        self.offered: tuple[int, int, int] | None = None
        self.posted: list[tuple[int, int]] = []
        self.waited = self.overflows = self.posts = 0

    def drive(self, ports: Ports) -> None:
        rng = self.rng
        if self.offered is None and rng.random() < 0.5:
            wait, counter = rng.randrange(2), rng.randrange(COUNTERS)
            held = self.counters[counter] if self.rate < 1 else 1  # else counters fill up
            above = rng.choice([0, held, held + rng.randrange(3)])
            self.offered = wait, counter, min(above, 255) if wait else rng.randrange(1 << CORES)
        self.posted = [(rng.randrange(2) and rng.random() < self.rate, rng.randrange(COUNTERS)) for _ in range(CORES)]
        ports["operation.valid"] = self.offered is not None
        wait, counter, above = self.offered or (0, 0, 0)
        ports["operation.payload"] = wait | (above << 4 | counter) << 1
        ports["posted"] = sum((int(valid) | counter << 1) << 5 * k for k, (valid, counter) in enumerate(self.posted))
        ports["stop"] = self.stop_at is not None and ports.cycle >= self.stop_at

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        wait, counter, above = self.held or (0, 0, 0)
        stop, busy = ports["stop"], self.held is not None
        done = busy and (not wait or self.counters[counter] >= above or stop)
        post = busy and not wait and not stop
        assert (ports["operation.ready"], ports["done"]) == (not busy, done)
        assert ports["post"] & 1 == post
        if post:
            assert ports["post"] == 1 | counter << 1 | above << 5
        taken = above if done and wait and not stop else 0
        then = [value - taken * (k == counter) + sum(bool(valid) and number == k for valid, number in self.posted)
                for k, value in enumerate(self.counters)]
        assert ports["overflow"] == any(value > 255 for value in then)
        self.counters = [value % 256 for value in then]
        self.overflows, self.posts = self.overflows + any(value > 255 for value in then), self.posts + post
        self.waited += busy and not done
        if done:
            self.held = None
        elif not busy and ports["operation.valid"]:
            self.held, self.offered = self.offered, None


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_posts_are_counted_and_waits_last_until_their_counter_is_filled(rate: float) -> None:
    model = Reference(3, 4000, rate)
    Bench(SyncUnit(ARCH)).run(model)
    assert model.posts > 100 and (model.waited > 20 or rate == 1.0)
    assert (model.overflows > 0) == (rate == 1.0)


def test_a_core_that_stopped_drains_and_posts_no_more() -> None:
    model = Reference(4, 400, 0.02, stop_at=200)
    Bench(SyncUnit(ARCH)).run(model)
    assert model.waited > 20
