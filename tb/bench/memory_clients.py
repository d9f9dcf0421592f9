# SPDX-License-Identifier: Apache-2.0
"""Clients of a block's memory ports and the sequential memory they are judged by (for ``block_bench.simulate``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random

from weft.tb.bench.block_models import Model, Source
from weft.tb.bench.block_ports import Ports


class SequentialMemory(Model):
    """Rows as a program would see them: what is written in a cycle is seen from the next cycle on.

    Put it before its clients in the list of models. ``rows`` hold raw bits."""

    def __init__(self, depth: int, banks: int) -> None:
        self.rows = [0] * depth
        self.banks = banks
        self._written: dict[int, tuple[int, int]] = {}

    def write(self, address: int, update: Callable[[int], int]) -> None:
        """Replace a row by ``update`` of it, seen from the next cycle on."""
        bank = address % self.banks
        assert bank not in self._written, f"two writes to bank {bank} in a cycle"
        self._written[bank] = address, update(self.rows[address])

    def drive(self, ports: Ports) -> None:
        self.settle()

    def settle(self) -> None:
        """End a cycle: what was written is seen from now on."""
        for address, row in self._written.values():
            self.rows[address] = row
        self._written = {}


class PortReader(Source):
    """A model that reads ``addresses`` through the port ``name``, and checks each answer.

    An answer must hold what the reference held when the request was taken, and come exactly ``latency`` cycles
    later; at all other times there are zeros, unless ``anything_between``."""

    def __init__(self, name: str, memory: SequentialMemory, addresses: Iterable[int], latency: int, rng: Random,
                 rate: float = 1.0, *, anything_between: bool = False) -> None:
        super().__init__(f"{name}.request", addresses, rng, rate)
        self.anything_between = anything_between
        self.port, self.memory, self.latency = name, memory, latency
        self.due: deque[tuple[int, int, int]] = deque()

    def on_taken(self, ports: Ports, item: int) -> None:
        self.due.append((ports.cycle + self.latency, self.memory.rows[item], item))

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        answered = bool(ports[f"{self.port}.response.valid"])
        due = bool(self.due) and self.due[0][0] == ports.cycle
        assert answered == due, f"{self.port}, cycle {ports.cycle}: answered {answered}, due {due}"
        found = ports[f"{self.port}.response.payload"]
        quiet = answered or self.anything_between or not found
        assert quiet, f"{self.port}, cycle {ports.cycle}: {found:#x} without an answer"
        if due:
            _, row, address = self.due.popleft()
            assert found == row, f"{self.port}, cycle {ports.cycle}, address {address}: {found:#x}, not {row:#x}"
        self.finished = self.finished and not self.due


class PortWriter(Source):
    """A model that offers ``requests`` (raw payloads) on the port ``name``.

    ``apply`` puts each, when it is taken, into the reference."""

    def __init__(self, name: str, requests: Iterable[int], apply: Callable[[int], None], rng: Random,
                 rate: float = 1.0) -> None:
        super().__init__(f"{name}.request", requests, rng, rate)
        self._apply = apply

    def on_taken(self, ports: Ports, item: int) -> None:
        self._apply(item)
