# SPDX-License-Identifier: Apache-2.0
"""Repeater: words become the instructions that they stand for, those of ``hw/contract/repeats.py``."""

from collections.abc import Iterable
from functools import cache
from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.timing import REPEAT_LATENCY
from weft.hw.control.repeater import Repeater
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Script, Sink, Source

DEPTHS = (1, 2, 4, 16, 64)


def make_arch(depth: int, slices: int = 0) -> Arch:
    return Arch.load("tiny").replace(repeat_depth=depth, register_slices=slices)


@cache
def bench(arch: Arch) -> Bench:
    return Bench(Repeater(arch))


def random_words(isa: Isa, rng: Random, length: int) -> list[Instruction]:
    """Words that no machine would run, few kinds of them, and as many Repeats, often of the steps nearest to them."""
    words: list[Instruction] = []
    depth, made = isa.arch.repeat_depth, 0
    while len(words) < length:
        if made and rng.random() < 0.5:
            distance = min(rng.choice([1, 2, 3, 4, rng.randint(1, depth), depth]), made, depth)
            count = rng.choice([1, 1, 2, distance, rng.randint(1, 3 * depth), 50])
            words.append(isa.repeat(distance, min(count, 1 << isa.operand_widths[1])))
        else:
            word = isa.decode(rng.getrandbits(8 * isa.instruction_bytes))
            opcode = rng.choice([Opcode.MAT_MUL, Opcode.DATA_MOVE, Opcode.CONFIGURE, 13, word.opcode])
            words.append(word._replace(opcode=0 if opcode == Opcode.REPEAT else int(opcode)))
        made += words[-1].operand1 + 1 if words[-1].opcode == Opcode.REPEAT else 1
    return words


def expanded(isa: Isa, words: Iterable[Instruction]) -> list[int]:
    history = isa.history()
    return [isa.encode(each) for word in words for each in history.expand(word)]


class Run:
    """A simulation of some words; ``items`` came out, in the cycles ``taken``."""

    def __init__(self, arch: Arch, words: list[Instruction], seed: object, rates: tuple[float, float]) -> None:
        rng, self.isa = Random(f"{seed}"), Isa(arch)
        self.source = Source("i", map(self.isa.encode, words), rng, rates[0])
        self.sink = Sink("o", rng, rate=rates[1])
        self.expected = expanded(self.isa, words)

        def wait(ports):
            while len(self.sink.items) < len(self.expected) or not self.source.finished:
                yield
            yield from range(REPEAT_LATENCY + 2)
            assert not ports["busy"] and len(self.sink.items) == len(self.expected)

        bench(arch).run(self.source, self.sink, Script(wait), cycles=200_000)


@pytest.mark.wide_cases("64-0-*", "16-1-*")
@pytest.mark.parametrize("rates", [(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.7, 0.7)], ids=str)
@pytest.mark.parametrize("slices", [0, 1])
@pytest.mark.parametrize("depth", DEPTHS)
def test_words_become_what_they_stand_for(depth, slices, rates) -> None:
    arch = make_arch(depth, slices)
    for seed in range(2):
        run = Run(arch, random_words(Isa(arch), Random(seed), 120), seed, rates)
        assert run.sink.items == run.expected


@pytest.mark.parametrize("name", ["arty", "ultra96", "arty_int8"])
def test_operands_of_any_width(name) -> None:
    arch = Arch.load(name).replace(repeat_depth=32)
    run = Run(arch, random_words(Isa(arch), Random(1), 100), 1, (0.8, 0.8))
    assert run.sink.items == run.expected


@pytest.mark.parametrize("wrong", ["too far", "before the reset", "flags", "operand 2"])
def test_an_illegal_repeat_goes_through(wrong) -> None:
    arch = make_arch(4)
    isa = Isa(arch)
    before, bad = {
        "too far": (9, isa.repeat(5, 3)), "before the reset": (3, isa.repeat(4, 3)),
        "flags": (5, isa.repeat(1, 3)._replace(flags=4)),
        "operand 2": (5, isa.repeat(1, 3)._replace(operand2=64))}[wrong]
    run = Run(arch, [*(isa.load_weight(number, 1) for number in range(before)), bad], 1, (1.0, 1.0))
    assert run.sink.items == run.expected and run.sink.items[-1] == isa.encode(bad)


@pytest.mark.parametrize("slices", [0, 1])
def test_an_instruction_a_cycle(slices) -> None:
    """Words, and what a Repeat makes; between both as many cycles as REPEAT_LATENCY says."""
    arch = make_arch(16, slices)
    isa = Isa(arch)
    for distance in (1, 2, 3, 16):
        idle = isa.no_op()
        words = [*[idle] * 20, isa.repeat(distance, 30), *[idle] * 5, isa.repeat(distance, 1), idle]
        run = Run(arch, words, 1, (1.0, 1.0))
        gaps = [after - before for before, after in zip(run.sink.taken, run.sink.taken[1:], strict=False)]
        assert gaps == [*[1] * 19, REPEAT_LATENCY, *[1] * 34, REPEAT_LATENCY, 1]


def test_a_reset_forgets_what_was_before() -> None:
    """In the middle of a Repeat; operands step from 0 again, and nothing is within reach."""
    arch = make_arch(8)
    isa = Isa(arch)
    rng = Random(1)
    source, sink = Source("i", [], rng), Sink("o", rng)
    sink.stable = None
    words = [isa.load_weight(3, 2), isa.repeat(1, 2), isa.repeat(4, 1)]

    def steps(ports):
        source.items += map(isa.encode, [*[isa.load_weight(9, 1)] * 3, isa.repeat(2, 100)])
        yield from range(20)
        ports["reset"] = 1
        yield
        ports["reset"] = 0
        sink.items.clear()
        source.items += map(isa.encode, words)
        yield from range(30)

    bench(arch).run(source, sink, Script(steps))
    assert sink.items == expanded(isa, words)
    assert [isa.decode(item).operand0 for item in sink.items] == [3, 6, 9, 3]
