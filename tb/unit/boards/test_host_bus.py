# SPDX-License-Identifier: Apache-2.0
"""The host's side of a shell's bus: the witness says what the driver expects.

Commands that wait for their turn are part of the whole shell's simulation (tb/system/test_shell.py)."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Any

import numpy as np
from litex.gen import LiteXModule
from litex.soc.interconnect import wishbone
from migen import run_simulation

from weft.boards.shell.host_bus import CRC_BITS, Witness, crc_terms
from weft.hw.contract.host_link import ROOM_BYTES, WITNESS_WORDS
from weft.runtime.driver.uartbone import UartBone
from weft.runtime.driver.witness import fold

WITNESS, WORDS = 1 << 12, 16
ALL_BITS = (1 << CRC_BITS) - 1


def test_the_sums_are_those_of_the_crc() -> None:
    terms = crc_terms()
    for seed in range(50):
        chance = random.Random(seed)
        crc, address, word = (chance.getrandbits(32) for _ in range(3))
        address >>= 2
        sources = (crc ^ ALL_BITS) | address << 32 | word << 64
        after = sum((sum(sources >> source & 1 for source in each) & 1) << bit for bit, each in enumerate(terms))
        assert after ^ ALL_BITS == fold(crc, 4 * address, np.array([word], np.uint32))


class Bench(LiteXModule):
    """A bus with a small memory and the witness."""

    def __init__(self) -> None:
        self.bus = wishbone.Interface(address_width=32, addressing="word")
        self.memory = wishbone.SRAM(4 * WORDS, bus=wishbone.Interface(address_width=32, addressing="word"))
        self.witness = Witness(self.bus)
        self.decoder = wishbone.Decoder(self.bus, [(lambda address: address[10] == 0, self.memory.bus),
                                                   (lambda address: address[10] == 1, self.witness.bus)])


def test_the_witness_says_what_the_host_expects() -> None:
    """Random accesses one right after another, and those of the witness among them."""
    chance, bench, memory = random.Random(1), Bench(), [0] * WORDS
    crcs = {True: 0, False: 0}

    def host() -> Generator[Any, Any, None]:
        for number in range(30):
            index, word = chance.randrange(WORDS), chance.getrandbits(32)
            if number % 10 == 9:
                for place in range(WITNESS_WORDS):
                    said = yield from bench.bus.read(WITNESS // 4 + place)
                    assert said == crcs[place == 0], (number, place)
                    crcs[False] = fold(crcs[False], WITNESS + 4 * place, np.array([said], np.uint32))
            elif chance.random() < 0.5:
                yield from bench.bus.write(index, word)
                memory[index] = word
                crcs[True] = fold(crcs[True], 4 * index, np.array([word], np.uint32))
            else:
                assert (yield from bench.bus.read(index)) == memory[index]
                crcs[False] = fold(crcs[False], 4 * index, np.array([memory[index]], np.uint32))

    run_simulation(bench, host())
    assert len(set(crcs.values())) == 2


def test_accesses_that_nobody_answers_are_counted_too() -> None:
    """The host gets a word for them, as LiteX's bus has it after a time-out, and counts it."""
    watched = wishbone.Interface(address_width=32, addressing="word")
    witness, said = Witness(watched), list[int]()

    def host() -> Generator[Any, Any, None]:
        yield from [watched.cyc.eq(1), watched.stb.eq(1), watched.adr.eq(7), watched.dat_r.eq(ALL_BITS),
                    watched.err.eq(1)]
        yield
        yield from [watched.cyc.eq(0), watched.stb.eq(0), watched.err.eq(0)]
        for place in range(WITNESS_WORDS):
            said.append((yield from witness.bus.read(place)))

    run_simulation(witness, host())
    assert said == [0, fold(0, 28, np.array([ALL_BITS], np.uint32))]


def test_as_many_reads_as_there_is_room_for() -> None:
    """The first is taken at once, and the six bytes of each other one wait."""
    assert 6 * (UartBone.most_reads - 1) <= ROOM_BYTES < 6 * UartBone.most_reads
