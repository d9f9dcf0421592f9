# SPDX-License-Identifier: Apache-2.0
"""Fetch: beats of any width become instructions of any size, program after program."""

from random import Random
from typing import Any

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.control.fetch import Fetch
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Script, Sink, Source
from weft.tb.bench.block_ports import to_bits

SIZES: dict[int, dict[str, Any]] = {  # instruction bytes -> depths that lead to them
    4: {"dram0_depth": 16, "dram1_depth": 16, "local_depth": 16, "accumulator_depth": 16},
    5: {"dram0_depth": 256, "dram1_depth": 256, "local_depth": 32, "accumulator_depth": 16},
    8: {"dram0_depth": 1 << 20, "dram1_depth": 1 << 20, "local_depth": 8192, "accumulator_depth": 2048},
    9: {"dram0_depth": 1 << 20, "dram1_depth": 1 << 20, "local_depth": 1 << 14, "accumulator_depth": 2048},
    11: {"dram0_depth": 1 << 30, "dram1_depth": 1 << 30, "local_depth": 1 << 16, "accumulator_depth": 1 << 16},
}


def make_arch(size: int, stream_width: int, array_size: int = 8) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, simd_registers_depth=1, stride0_depth=8, stride1_depth=8,
                stream_width=stream_width, axi_address_width=40, **SIZES[size])


def beats_of(layout, program: bytes, rng: Random) -> list[int]:
    """Beats of one program; what keep leaves out is noise."""
    width = layout["keep"].width
    beats = []
    for at in range(0, len(program), width):
        part = program[at:at + width]
        noise = rng.randbytes(width - len(part))
        last = at + width >= len(program)
        keep = (1 << len(part)) - 1
        beats.append(to_bits(layout, {"data": int.from_bytes(part + noise, "little"), "keep": keep, "last": last}))
    return beats


def instructions_of(program: bytes, size: int) -> list[int]:
    return [int.from_bytes(program[at:at + size], "little") for at in range(0, len(program) - size + 1, size)]


class Bench:
    def __init__(self, arch, seed, rate):
        self.rng, self.size, self.dut = Random(seed), Isa(arch).instruction_bytes, Fetch(arch)
        self.layout = self.dut.stream.payload.shape()
        self.sources = {name: Source(name, [], self.rng, rate) for name in ("stream", "program")}
        self.sink = Sink("instruction", self.rng, rate=rate)

    def give(self, source, program):
        self.sources[source].items += beats_of(self.layout, program, self.rng)

    @property
    def given(self):
        """All beats are taken."""
        return all(source.finished for source in self.sources.values())

    def run(self, count, steps=None):
        def wait(ports):
            while len(self.sink.items) < count or not self.given:
                yield
            yield from range(10)
            assert not ports["busy"]

        simulate(self.dut, *self.sources.values(), self.sink, Script(steps or wait), cycles=20_000)


def test_sizes_are_as_named() -> None:
    for size in SIZES:
        assert Isa(make_arch(size, 64)).instruction_bytes == size


@pytest.mark.parametrize("source", ["stream", "program"])
@pytest.mark.parametrize("rate", [1.0, 0.6], ids=["quick", "stalls"])
@pytest.mark.parametrize("stream_width", [32, 64, 128])
@pytest.mark.parametrize("size", SIZES)
def test_instructions_come_out_whole_and_rests_are_dropped(size, stream_width, rate, source) -> None:
    bench = Bench(make_arch(size, stream_width), f"{size} {stream_width}", rate)
    expected = []
    for count in (1, 7, 20, 0, 3):
        for rest in (0, 1, size - 1):
            program = bench.rng.randbytes(count * size + rest)
            bench.give(source, program)
            expected += instructions_of(program, size)
    bench.run(len(expected))
    assert bench.sink.items == expected


@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize(("size", "stream_width"), [(8, 64), (5, 64), (8, 128), (9, 128), (4, 64)])
def test_an_instruction_a_cycle(array_size, size, stream_width) -> None:
    bench = Bench(make_arch(size, stream_width, array_size), 1, 1.0)
    bench.give("stream", bench.rng.randbytes(300 * size))
    bench.run(300)
    assert bench.sink.taken[-1] - bench.sink.taken[0] == 299


def test_a_beat_a_cycle_where_instructions_are_wider() -> None:
    bench = Bench(make_arch(9, 32), 2, 1.0)
    bench.give("stream", bench.rng.randbytes(200 * 9))
    bench.run(200)
    assert bench.sink.taken[-1] - bench.sink.taken[0] <= 200 * 9 // 4


@pytest.mark.parametrize("size", SIZES)
def test_programs_of_both_sources_do_not_mix(size) -> None:
    """Both offer all the time: each source's instructions come whole and in order, a program without a break."""
    bench = Bench(make_arch(size, 64), 3, 0.7)
    expected: dict[str, list[list[int]]] = {"stream": [], "program": []}
    for source in expected:
        for _ in range(5):
            program = bench.rng.randbytes(bench.rng.randint(1, 12) * size + 1)
            bench.give(source, program)
            expected[source].append(instructions_of(program, size))
    flat: dict[str, list[int]] = {source: sum(programs, []) for source, programs in expected.items()}
    bench.run(sum(map(len, flat.values())))
    for source, items in flat.items():
        assert [item for item in bench.sink.items if item in items] == items, source
    for instructions in expected["program"]:
        at = bench.sink.items.index(instructions[0])
        assert bench.sink.items[at:at + len(instructions)] == instructions


@pytest.mark.parametrize("gap", range(4))
def test_a_program_waits_for_the_bytes_of_the_stream_wherever_they_are(gap: int) -> None:
    """A beat with half an instruction is on its way, and the program comes so many cycles behind it."""
    bench = Bench(make_arch(8, 32), 5, 1.0)
    programs = {name: bench.rng.randbytes(16) for name in ("stream", "program")}
    beats = {name: beats_of(bench.layout, program, bench.rng) for name, program in programs.items()}

    def steps(ports):
        bench.sources["stream"].items += beats["stream"][:1]
        while not bench.sources["stream"].finished:
            yield
        yield from range(gap)
        bench.sources["program"].items += beats["program"]
        yield from range(12)
        bench.sources["stream"].items += beats["stream"][1:]
        while len(bench.sink.items) < 4:
            yield

    bench.run(4, steps)
    assert bench.sink.items == sum((instructions_of(program, 8) for program in programs.values()), [])


@pytest.mark.parametrize("size", SIZES)
def test_discard_takes_everything_and_the_next_program_is_whole(size) -> None:
    bench = Bench(make_arch(size, 64), 4, 0.7)
    bench.sink.stable = None
    after = bench.rng.randbytes(9 * size)
    for source in ("stream", "program"):
        bench.give(source, bench.rng.randbytes(50 * size + 3))

    def steps(ports):
        yield from range(20)
        ports["discard"] = 1
        while not bench.given:
            yield
            assert not ports["instruction.valid"]
        yield from range(10)
        ports["discard"] = 0
        bench.sink.items.clear()
        bench.give("stream", after)
        while len(bench.sink.items) < 9:
            yield

    bench.run(0, steps)
    assert bench.sink.items == instructions_of(after, size)


@pytest.mark.parametrize("size", [5, 8])
def test_busy_while_a_beat_or_an_instruction_is_inside(size: int) -> None:
    """Nobody takes what comes: of one instruction, of less, and of more than the gearbox holds."""
    for program_bytes, busy in ((size, True), (size - 1, False), (8 * size, True)):
        bench = Bench(make_arch(size, 64), program_bytes, 1.0)
        bench.give("program", bench.rng.randbytes(program_bytes))

        def wait(ports, busy=busy):
            yield from range(20)
            assert ports["busy"] == busy

        simulate(bench.dut, *bench.sources.values(), Script(wait), cycles=100)
