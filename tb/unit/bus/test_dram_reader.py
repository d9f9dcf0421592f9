# SPDX-License-Identifier: Apache-2.0
"""DramReader against a plain memory: what it writes, how it asks, how fast, and what it does with errors."""

from random import Random

import pytest

from weft.hw.bus.dram_reader import DramReader
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY, READER_OPERATIONS_AHEAD
from weft.tb.bench.axi_models import AxiReadMemory, ByteMemory
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Pulses, Script, Sink, Source
from weft.tb.bench.block_ports import from_bits
from weft.tb.unit.bus.dram_moves import (
    MACHINES,
    Move,
    machine_id,
    make_arch,
    memory_bytes,
    random_move,
    to_vector,
)

FAST = (1.0, (1, 1))
"""Chance of the bus to move in a cycle, latency of the memory."""
ERRORS = range(600, 6000)
"""Addresses that answer SLVERR."""


class Bench:
    """A reader with its memory, operations and local memory; ``run`` ends when all operations are done."""

    def __init__(self, machine, moves, seed, *, axi=FAST, local=1.0, size=None, base=0, depth=256, dram_depth=2000,
                 errors=range(0)):
        rng = Random(seed)
        self.arch = arch = make_arch(machine, depth, dram_depth)
        self.moves = moves(rng, arch)
        self.dut = DramReader(arch)
        self.memory = ByteMemory(size or memory_bytes(arch), rng, base)
        self.axi = AxiReadMemory(self.memory, rng, *axi, max_burst=arch.axi_max_burst, errors=errors)
        self.source = Source("operation", [move.raw(arch) for move in self.moves], rng, local)
        self.sink = Sink("local_write.request", rng, rate=local)
        self.done, self.error = Pulses("done"), Pulses("error")

    def steps(self, ports):
        while len(self.done.cycles) < len(self.moves):
            yield
        yield from range(4)
        assert not ports["busy"] and not self.axi.waiting

    def run(self, *watchers, check=True):
        simulate(self.dut, self.axi, self.source, self.sink, self.done, self.error, *watchers, Script(self.steps))
        layout = self.dut.local_write.request.payload.shape()
        got = [from_bits(layout, item) for item in self.sink.items]
        expected, last = [], []
        for move in self.moves:
            for local, address in zip(move.local_addresses, move.dram_bytes(self.arch), strict=True):
                content = self.memory.read(address, self.arch.vector_bytes)
                row = from_bits(layout["data"].shape, to_vector(self.arch, content))
                expected.append({"address": local, "data": row})
            last.append(len(expected) - 1)
        if check:
            assert got == expected
        assert self.done.cycles == [self.sink.taken[index] for index in last]
        assert sum(beats for _, beats, _ in self.axi.bursts) == sum(move.beats(self.arch) for move in self.moves)
        return self


def randoms(count, longest=40):
    return lambda rng, arch: [random_move(rng, arch, longest) for _ in range(count)]


def one(size, local=(0, 0, 0), dram=(0, 0, 0), rows=1, window=0, cache=0, count=1):
    return lambda rng, arch: [Move(size, rows, local, dram, window, cache)] * count


@pytest.mark.wide_cases("3x*", "12xFP16BP8*", "8xFP8*")
@pytest.mark.parametrize("machine", MACHINES, ids=machine_id)
def test_random_reads_land_in_local_memory_under_stalls(machine) -> None:
    Bench(machine, randoms(30), 1, axi=(0.6, (1, 30)), local=0.6).run()


@pytest.mark.wide_cases("12x*", "8xFP18*", "3x*")
@pytest.mark.parametrize("machine", MACHINES, ids=machine_id)
def test_random_reads_land_in_local_memory_at_full_speed(machine) -> None:
    Bench(machine, randoms(30), 2).run()


def test_cache_and_window_reach_the_bus() -> None:
    bench = Bench((3, "FP16BP8", 64, 16), one(5, window=3, cache=11, dram=(7, 0, 0)), 3).run()
    assert bench.axi.bursts == [(3 * 65536 + 40, 4, 11)]  # bytes 42..71 of the window


@pytest.mark.parametrize("machine", [(8, "FP16BP8", 64, 16), (12, "FP16BP8", 64, 16), (32, "FP16BP8", 128, 16)],
                         ids=machine_id)
def test_bursts_are_as_long_as_allowed(machine) -> None:
    bench = Bench(machine, one(200, dram=(3, 0, 0)), 4).run()
    beats = [beats for _, beats, _ in bench.axi.bursts]
    assert set(beats[1:-1]) == {16}


@pytest.mark.wide_cases("(12,*", "(8,*", "(3,*")
@pytest.mark.parametrize(("machine", "size", "latency"), [
    ((8, "FP16BP8", 64, 16), 4096, 30), ((12, "FP16BP8", 64, 16), 4096, 100), ((2, "FP32BP16", 64, 16), 1000, 30),
    ((3, "FP16BP8", 32, 16), 1000, 30)], ids=str)
def test_data_bus_is_busy_for_a_long_read(machine, size, latency) -> None:
    bench = Bench(machine, one(size), 5, axi=(1.0, (latency, latency)), depth=4096, dram_depth=8192).run()
    times = bench.axi.taken
    assert len(times) / (times[-1] - times[0] + 1) >= 0.95


def test_a_vector_a_cycle_where_vectors_are_narrower_than_the_bus() -> None:
    bench = Bench((2, "FP8BP4", 64, 16), one(1000, dram=(1, 0, 0)), 6, axi=(1.0, (30, 30)), depth=1024).run()
    assert len(bench.sink.taken) / (bench.sink.taken[-1] - bench.sink.taken[0] + 1) >= 0.99


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_read_fills_local_memory_from_anywhere_within_a_beat(first: int) -> None:
    """Vectors of two bytes from a bus of eight: 1024 of them take a beat more if the first is inside one."""
    bench = Bench((2, "FP8BP4", 64, 16), one(1024, dram=(first, 0, 0)), 6, depth=1024).run()
    assert sum(beats for _, beats, _ in bench.axi.bursts) == 256 + (first > 0)


def test_short_operations_follow_each_other_without_a_gap() -> None:
    """Operations of 4 beats each hide a latency of 30 cycles: later ones are requested before the first one's data."""
    bench = Bench((8, "FP16BP8", 64, 16), one(2, count=64), 7, axi=(1.0, (30, 30))).run()
    assert bench.axi.outstanding_most >= 8
    times = bench.axi.taken
    assert len(times) / (times[-1] - times[0] + 1) >= 0.9


def test_strided_vectors_keep_the_bus_busy() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(250, dram=(0, 2, 0)), 8, axi=(1.0, (20, 20))).run()
    times = bench.axi.taken
    assert len(times) / (times[-1] - times[0] + 1) >= 0.95


def test_at_least_8_bursts_are_outstanding_while_the_memory_is_slow() -> None:
    bench = Bench((12, "FP16BP8", 64, 16), one(250), 9, axi=(1.0, (200, 200))).run()
    assert bench.axi.outstanding_most >= 8


def test_address_goes_out_after_the_stated_latency() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(4), 10)
    address = Pulses("ar.valid")
    bench.run(address)
    assert address.cycles[0] - bench.source.taken[0] == DRAM_REQUEST_LATENCY


@pytest.mark.parametrize("machine", [(2, "FP16BP8", 32, 4), (3, "FP16BP8", 64, 16), (8, "FP16BP8", 64, 16)],
                         ids=machine_id)
def test_error_responses_pulse_and_drain(machine) -> None:
    bench = Bench(machine, randoms(20), 11, axi=(0.7, (1, 10)), local=0.7, errors=ERRORS).run(check=False)
    bus = bench.arch.axi_data_width // 8

    def meets_error(move: Move) -> bool:
        spans = ((start // bus * bus, -(-(start + bench.arch.vector_bytes) // bus) * bus)
                 for start in move.dram_bytes(bench.arch))
        return any(first < ERRORS.stop and end > ERRORS.start for first, end in spans)

    bad = [number for number, move in enumerate(bench.moves) if meets_error(move)]
    oldest = [sum(done < cycle for done in bench.done.cycles) for cycle in bench.error.cycles]
    assert bad and oldest[0] == bad[0], "the first error comes while its operation is the oldest"
    assert set(oldest) <= set(bad)
    assert len(bench.done.cycles) == len(bench.moves)


def test_error_comes_no_later_than_done() -> None:
    for machine in ((2, "FP32BP16", 64, 16), (8, "FP16BP8", 64, 16)):
        bench = Bench(machine, one(1), 12, errors=range(0, 64)).run(check=False)
        assert bench.error.cycles[-1] <= bench.done.cycles[0]


def test_operations_wait_when_data_does_not_come() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(1, count=40), 13, axi=(1.0, (100, 100)))
    inside = []

    class Inside(Model):
        def watch(self, ports) -> None:
            inside.append(len(bench.source.taken) - len(bench.done.cycles))

    bench.run(Inside())
    assert max(inside) == READER_OPERATIONS_AHEAD + 1
