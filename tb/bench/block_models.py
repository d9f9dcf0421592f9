# SPDX-License-Identifier: Apache-2.0
"""Models of what stands around a block in its bench: streams that offer and take, memories that answer, steps.

In every cycle a model drives, then watches (``block_bench.py``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from random import Random
from typing import Any

from weft.tb.bench.block_ports import Ports


class Model:
    """A model that does nothing; the base of models that only drive or only watch."""

    def drive(self, ports: Ports) -> None:
        """Set inputs."""

    def watch(self, ports: Ports) -> None:
        """Read outputs."""


class Cycles(Model):
    """A model that ends a simulation after a number of cycles."""

    def __init__(self, count: int) -> None:
        self.left = count

    def watch(self, ports: Ports) -> None:
        self.left -= 1

    @property
    def finished(self) -> bool:
        return self.left <= 0


class Script(Model):
    """Steps one after another; the simulation ends with them.

    ``steps`` is a generator: it sets inputs, ``yield``s for a cycle to pass (``yield from range(5)``: five), and
    then reads the outputs of that cycle. Put it behind the models whose results it asks for."""

    def __init__(self, steps: Callable[[Ports], Generator[Any, None, None]]) -> None:
        self.finished = False
        self._steps = steps
        self._running: Generator[Any, None, None] | None = None

    def _advance(self) -> None:
        assert self._running is not None
        try:
            next(self._running)
        except StopIteration:
            self.finished = True

    def drive(self, ports: Ports) -> None:
        if self._running is None:
            self._running = self._steps(ports)
            self._advance()

    def watch(self, ports: Ports) -> None:
        if not self.finished:
            self._advance()


class Source(Model):
    """A model that offers ``items`` (raw payloads) on the stream ``name``, each until it is taken, with random pauses.

    ``items`` may grow during the run. ``taken``: the cycle in which each was taken. While not valid the payload is
    noise."""

    def __init__(self, name: str, items: Iterable[int], rng: Random, rate: float = 1.0) -> None:
        self.name, self.rng, self.rate = name, rng, rate
        self.items = deque(items)
        self.taken: list[int] = []
        self.offered: int | None = None
        self.finished = False

    def drive(self, ports: Ports) -> None:
        if self.offered is None and self.items and self.rng.random() < self.rate:
            self.offered = self.items.popleft()
        ports[f"{self.name}.valid"] = self.offered is not None
        noise = self.rng.getrandbits(64) * 0x9E37_79B9_7F4A_7C15
        ports[f"{self.name}.payload"] = noise if self.offered is None else self.offered

    def watch(self, ports: Ports) -> None:
        if self.offered is not None and ports[f"{self.name}.ready"]:
            self.taken.append(ports.cycle)
            self.on_taken(ports, self.offered)
            self.offered = None
        self.finished = self.offered is None and not self.items

    def on_taken(self, ports: Ports, item: int) -> None:
        """Note that an item was taken; called in the cycle of the handshake."""


class Stable:
    """The rule of a stream that the block offers: what is valid stays, unchanged, until it is taken."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._held: int | None = None

    def check(self, ports: Ports) -> None:
        """Check the rule; to be called once in every cycle."""
        payload = ports[f"{self.name}.payload"] if ports[f"{self.name}.valid"] else None
        if self._held is not None:
            assert payload == self._held, f"{self.name} changed while it waited, cycle {ports.cycle}"
        self._held = None if ports[f"{self.name}.ready"] else payload


class Watched(Model):
    """A stream that the block offers, watched for the rule of :class:`Stable`, unless that is set to None.

    Nothing is taken while ``blocked``."""

    def __init__(self, name: str, rng: Random, rate: float = 1.0) -> None:
        self.name, self.rng, self.rate = name, rng, rate
        self.stable: Stable | None = Stable(name)
        self.blocked = False

    def drive(self, ports: Ports) -> None:
        ports[f"{self.name}.ready"] = not self.blocked and self.rng.random() < self.rate

    def watch(self, ports: Ports) -> None:
        if self.stable is not None:
            self.stable.check(ports)
        if ports[f"{self.name}.valid"] and ports[f"{self.name}.ready"]:
            self.on_taken(ports, ports[f"{self.name}.payload"])

    def on_taken(self, ports: Ports, item: int) -> None:
        """Note that an item was taken; called in the cycle of the handshake."""


class Sink(Watched):
    """A model that takes with random pauses and collects: ``items`` raw, ``taken`` their cycles.

    It is finished after ``count`` items."""

    def __init__(self, name: str, rng: Random, count: int = 0, rate: float = 1.0) -> None:
        super().__init__(name, rng, rate)
        self.items: list[int] = []
        self.taken: list[int] = []
        self.count = count

    @property
    def finished(self) -> bool:
        return len(self.items) >= self.count

    def on_taken(self, ports: Ports, item: int) -> None:
        self.items.append(item)
        self.taken.append(ports.cycle)


class ReadServer(Watched):
    """A memory behind a read port that the block owns: it refuses at random, and answers ``rows[address]``.

    It answers after ``latency`` cycles. Rows are raw bits; ``requests`` are (cycle, address). While there is no
    answer the response is zero."""

    def __init__(self, name: str, rows: Any, latency: int, rng: Random, rate: float = 1.0) -> None:
        super().__init__(f"{name}.request", rng, rate)
        self.port, self.rows = name, rows
        self.requests: list[tuple[int, int]] = []
        self._answers: deque[int | None] = deque([None] * latency, maxlen=latency)

    def drive(self, ports: Ports) -> None:
        super().drive(ports)
        answer = self._answers[0]
        ports[f"{self.port}.response.valid"] = answer is not None
        ports[f"{self.port}.response.payload"] = answer or 0
        self._answers.append(None)

    def on_taken(self, ports: Ports, item: int) -> None:
        self.requests.append((ports.cycle, item))
        self._answers[-1] = self.rows[item]


class Pulses(Model):
    """A model that records the cycles in which an output is high."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.cycles: list[int] = []

    def watch(self, ports: Ports) -> None:
        if ports[self.name]:
            self.cycles.append(ports.cycle)


class Turns(Model):
    """A MatMul unit that swaps weights in when the loads before are done, ``delay`` cycles later at most.

    ``before``: for each load, how many swaps it waits for."""

    def __init__(self, before: list[int], rng: Random, delay: int) -> None:
        self.before, self.rng, self.delay = before, rng, delay
        self.swaps: list[int] = []
        """Cycles of those so far."""
        self.done = 0
        self._next: int | None = None

    def drive(self, ports: Ports) -> None:
        number = len(self.swaps) + 1
        if self._next is None and number <= max(self.before) and sum(b < number for b in self.before) <= self.done:
            self._next = ports.cycle + self.rng.randrange(self.delay)
        ports["swapped"] = ports.cycle == self._next
        if ports["swapped"]:
            self.swaps.append(ports.cycle)
            self._next = None

    def watch(self, ports: Ports) -> None:
        self.done += bool(ports["done"])
