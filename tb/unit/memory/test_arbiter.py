# SPDX-License-Identifier: Apache-2.0
"""Round robin against its reference; nobody starves."""

from __future__ import annotations

from random import Random

import pytest

from weft.hw.parts.arbiter import RoundRobin
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Cycles
from weft.tb.bench.block_ports import Ports


class Requests(Cycles):
    """Random requests, those not granted staying with probability ``stay``; checks every grant."""

    def __init__(self, count: int, cycles: int, rng: Random, stay: float = 1.0, used: float = 0.8) -> None:
        super().__init__(cycles)
        self.count, self.rng, self.stay, self.used = count, rng, stay, used
        self.requests, self.last = 0, count - 1
        self.waited = [0] * count
        self.grants = 0

    def drive(self, ports: Ports) -> None:
        kept = self.requests if self.rng.random() < self.stay else 0
        self.requests = kept | self.rng.getrandbits(self.count) & self.rng.getrandbits(self.count)
        self.advance = self.rng.random() < self.used
        ports["requests"], ports["advance"] = self.requests, self.advance

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        granted = RoundRobin.reference(self.requests, self.last, self.count)
        assert ports["grant"] == (1 << granted if granted >= 0 else 0)
        if granted < 0 or not self.advance:
            return
        for index in range(self.count):
            waits = self.requests >> index & 1 and index != granted
            self.waited[index] = self.waited[index] + 1 if waits else 0
        self.requests &= ~(1 << granted)
        self.last, self.grants = granted, self.grants + 1
        if self.stay == 1:
            assert max(self.waited) < self.count, "a request that stays is granted within `count` grants"


@pytest.mark.parametrize("stay", (0.3, 1.0))
@pytest.mark.parametrize("count", (1, 2, 3, 8, 9))
def test_grants_follow_the_reference_and_nobody_starves(count: int, stay: float) -> None:
    requests = Requests(count, 400, Random(count), stay)
    simulate(RoundRobin(count), requests)
    assert requests.grants > 50


@pytest.mark.parametrize("count", (2, 3, 9))
def test_all_requesting_are_served_in_turn(count: int) -> None:
    order = []

    class All(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["requests"], ports["advance"] = (1 << count) - 1, 1

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            order.append(ports["grant"].bit_length() - 1)

    simulate(RoundRobin(count), All(3 * count))
    assert order == list(range(count)) * 3


def test_a_grant_that_is_not_used_is_kept_where_that_is_asked_for() -> None:
    """Whoever asks beside it, until it is used; then the next one has its turn."""
    requests = [(0b100, 0), (0b111, 0), (0b111, 0), (0b111, 1), (0b111, 1), (0b110, 0), (0b111, 0), (0b101, 1)]
    found: list[int] = []

    class Given(Cycles):
        def drive(self, ports: Ports) -> None:
            ports["requests"], ports["advance"] = requests[ports.cycle]

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            found.append(ports["grant"])

    simulate(RoundRobin(3, keeps=True), Given(len(requests)))
    assert found == [0b100, 0b100, 0b100, 0b100, 0b001, 0b010, 0b010, 0b100]
