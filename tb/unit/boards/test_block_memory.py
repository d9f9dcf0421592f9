# SPDX-License-Identifier: Apache-2.0
"""On-chip memory behind AXI4: the machine writes, the machine reads and the host does both, all at once."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest
from migen import passive, run_simulation

from weft.boards.shell.block_memory import WORD_BYTES, BlockMemory
from weft.boards.shell.machine import Window, windows
from weft.hw.contract.arch import Arch

INCREMENTING, WORD_SIZE = 1, 2
WINDOWS = {"dram0": Window(0, 96), "dram1": Window(0x10000, 288)}
WRITTEN, READ, HOSTS = range(3)
"""Thirds of each window: the machine's writes, its reads, and the host's own."""
ROUNDS, MOST_CYCLES = 12, 5000
Step = Generator[Any, Any, None]


def test_windows_begin_where_their_registers_can() -> None:
    arch = Arch.load("tiny")
    assert windows(arch.replace(dram0_depth=20_000), 4096) == {
        "dram0": Window(0, 80_000), "dram1": Window(0x20000, 1024), "program": Window(0x30000, 4096)}
    exact = arch.replace(dram0_depth=0x20000 // arch.vector_bytes)
    assert windows(exact, 4096)["dram1"].start == 0x20000


class Users:
    """Three processes on a memory, and the words that it must hold."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.memory = BlockMemory(WINDOWS, 18)
        self.words = {address: 0 for third in range(3) for address in self.third(third)}
        self.filled, self.ended, self.read = False, 0, 0

    def third(self, number: int) -> list[int]:
        return [window.start + at for window in WINDOWS.values()
                for at in range(number * window.size // 3, (number + 1) * window.size // 3, WORD_BYTES)]

    def burst(self, number: int) -> tuple[int, int]:
        """Address and words of a burst within a third of a window."""
        window = self.random.choice(list(WINDOWS.values()))
        most = window.size // 3 // WORD_BYTES
        count = self.random.randint(1, most)
        return window.start + WORD_BYTES * (number * most + self.random.randint(0, most - count)), count

    def put(self, address: int, word: int, strobe: int) -> None:
        mask = sum(0xFF << 8 * byte for byte in range(WORD_BYTES) if strobe >> byte & 1)
        self.words[address] = self.words[address] & ~mask | word & mask

    # -- processes -----------------------------------------------------------------------------------------------------
    def send(self, channel: Any, **fields: int) -> Step:
        for _ in range(self.random.choice((0, 0, 0, 2))):
            yield
        for name, value in fields.items():
            yield getattr(channel, name).eq(value)
        yield channel.valid.eq(1)
        yield
        while not (yield channel.ready):
            yield
        yield channel.valid.eq(0)
        yield

    def ask(self, channel: Any, address: int, count: int, mark: int) -> Step:
        yield from self.send(channel, addr=address, len=count - 1, size=WORD_SIZE, burst=INCREMENTING, id=mark)

    def writer(self) -> Step:
        port = self.memory.port
        while not self.filled:
            yield
        for number in range(ROUNDS):
            address, count = self.burst(WRITTEN)
            yield from self.ask(port.aw, address, count, number % 2)
            for at in range(count):
                word, strobe = self.random.getrandbits(32), self.random.choice((15, 15, 15, self.random.getrandbits(4)))
                yield from self.send(port.w, data=word, strb=strobe, last=int(at == count - 1))
                self.put(address + WORD_BYTES * at, word, strobe)
            yield port.b.ready.eq(1)
            yield
            while not (yield port.b.valid):
                yield
            assert (yield port.b.id) == number % 2
            yield port.b.ready.eq(0)
            yield
        self.ended += 1

    def reader(self) -> Step:
        port = self.memory.port
        while not self.filled:
            yield
        for number in range(ROUNDS):
            address, count = self.burst(READ)
            yield from self.ask(port.ar, address, count, number % 2)
            at = 0
            while at < count:
                ready = self.random.random() < 0.7
                yield port.r.ready.eq(int(ready))
                yield
                if ready and (yield port.r.valid):
                    found = (yield port.r.data), (yield port.r.last), (yield port.r.id)
                    assert found == (self.words[address + WORD_BYTES * at], int(at == count - 1), number % 2)
                    at, self.read = at + 1, self.read + 1
            yield port.r.ready.eq(0)
            yield
        self.ended += 1

    def access(self, address: int, word: int | None = None, strobe: int = 15) -> Step:
        """Of the host: writes ``word``, or reads what must be there."""
        bus = self.memory.bus
        for signal, value in ((bus.adr, address // WORD_BYTES), (bus.we, int(word is not None)), (bus.sel, strobe),
                              (bus.dat_w, word or 0), (bus.cyc, 1), (bus.stb, 1)):
            yield signal.eq(value)
        yield
        while not (yield bus.ack):
            yield
        if word is None:
            assert (yield bus.dat_r) == self.words[address], hex(address)
        else:
            self.put(address, word, strobe)
        yield bus.cyc.eq(0)
        yield bus.stb.eq(0)
        yield

    def patience(self) -> Step:
        for _ in range(MOST_CYCLES):
            yield
        raise AssertionError(f"no end after {MOST_CYCLES} cycles")

    def host(self) -> Step:
        for address in self.third(READ):
            yield from self.access(address, self.random.getrandbits(32))
        self.filled = True
        while self.ended < 2:
            address, word = self.random.choice(self.third(HOSTS)), self.random.getrandbits(32)
            yield from self.access(address, self.random.choice((word, None)), self.random.choice((15, 3)))
        for address in self.words:
            yield from self.access(address)
        self.ended += 1


@pytest.mark.parametrize("seed", range(2))
def test_machine_and_host_find_what_was_written(seed: int) -> None:
    users = Users(seed)
    run_simulation(users.memory, [users.writer(), users.reader(), users.host(), passive(users.patience)()])
    assert users.ended == 3 and users.read > ROUNDS


def words_moved(*channels: str) -> list[int]:
    """In forty cycles, of bursts of 24 words that the machine's channels ("w", "r") want to move without a pause."""
    memory, moved = BlockMemory(WINDOWS, 18), dict.fromkeys(channels, 0)

    def master(channel: str) -> Step:
        address = getattr(memory.port, f"a{channel}")
        yield from [address.addr.eq(0), address.len.eq(23), address.size.eq(WORD_SIZE), address.burst.eq(INCREMENTING),
                    address.valid.eq(1), memory.port.w.valid.eq(1), memory.port.r.ready.eq(1)]
        for _ in range(40):
            yield
            beats = getattr(memory.port, channel)
            moved[channel] += (yield beats.valid) & (yield beats.ready)
            if (yield address.ready):
                yield address.valid.eq(0)

    run_simulation(memory, [master(channel) for channel in channels])
    return [*moved.values()]


def test_reads_have_their_turn_beside_writes_without_a_pause() -> None:
    """And writes beside reads: of forty cycles each gets its half."""
    assert min(words_moved("w", "r")) >= 16


@pytest.mark.parametrize("channel", ["w", "r"])
def test_a_word_a_cycle_moves_where_nobody_else_asks(channel: str) -> None:
    assert words_moved(channel) == [24]


def test_a_burst_ends_when_the_response_before_was_taken() -> None:
    """Two bursts of one word, whose responses have their marks, and nobody takes one at first."""
    memory, marks = BlockMemory(WINDOWS, 18), list[int]()
    taken, port = 0, memory.port

    def addresses() -> Step:
        for mark in (0, 1):
            yield from [port.aw.addr.eq(0), port.aw.len.eq(0), port.aw.size.eq(WORD_SIZE),
                        port.aw.burst.eq(INCREMENTING), port.aw.id.eq(mark), port.aw.valid.eq(1)]
            yield
            while not (yield port.aw.ready):
                yield
        yield port.aw.valid.eq(0)

    def words() -> Step:
        nonlocal taken
        yield port.w.valid.eq(1)
        for cycle in range(40):
            yield port.b.ready.eq(cycle >= 20)
            yield
            taken += (yield port.w.ready) and cycle < 20
            if (yield port.b.valid) and (yield port.b.ready):
                marks.append((yield port.b.id))

    run_simulation(memory, [passive(addresses)(), words()])
    assert taken == 1 and marks == [0, 1]
