"""DramReader against a plain memory: what it writes, how it asks, how fast, and what it does with errors."""

from random import Random

import pytest

from weft.hw.bus.dram_reader import DramReader
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY, READER_OPERATIONS_AHEAD
from weft.tb.bench.amaranth_axi import AxiReadMemory, ByteMemory, Stalls, StreamSink, StreamSource, simulate, unpack
from weft.tb.unit.bus.dram_moves import (
    MACHINES,
    Move,
    UnitPulses,
    machine_id,
    make_arch,
    memory_bytes,
    random_move,
    to_vector,
)

QUIET = (0.0, (1, 1))
ERRORS = range(600, 6000)
"""Addresses that answer SLVERR."""


class Bench:
    """A reader with its memory, operations and local memory; ``run`` ends when all operations are done."""

    def __init__(self, machine, moves, seed, *, axi=QUIET, local=0.0, size=None, base=0, depth=256, dram_depth=2000,
                 errors=range(0)):
        rng = Random(seed)
        self.arch = arch = make_arch(machine, depth, dram_depth)
        self.moves = moves(rng, arch)
        self.dut = dut = DramReader(arch)
        self.memory = ByteMemory(size or memory_bytes(arch), rng, base)
        self.axi = AxiReadMemory(dut, self.memory, Stalls(rng, *axi), max_burst=arch.axi_max_burst, errors=errors)
        self.source = StreamSource(dut.operation, [move.raw(arch) for move in self.moves], Stalls(rng, local))
        self.sink = StreamSink(dut.local_write.request, Stalls(rng, local), name="local write")
        self.pulses = UnitPulses(dut)

    async def bench(self, ctx):
        while len(self.pulses.done) < len(self.moves):
            await ctx.tick()
        await ctx.tick().repeat(4)
        assert not self.pulses.busy and not self.axi.waiting

    def run(self, check=True):
        simulate(self.dut, self.bench, self.axi, self.source, self.sink, self.pulses)
        got = [unpack(self.dut.local_write.request.payload.shape(), item) for item in self.sink.items]
        expected, last = [], []
        for move in self.moves:
            for local, address in zip(move.local_addresses, move.dram_bytes(self.arch), strict=True):
                content = self.memory.read(address, self.arch.vector_bytes)
                expected.append({"address": local, "data": to_vector(self.arch, content)})
            last.append(len(expected) - 1)
        if check:
            assert got == expected
        assert self.pulses.done == [self.sink.times[index] for index in last]
        assert sum(beats for _, beats, _ in self.axi.bursts) == sum(move.beats(self.arch) for move in self.moves)
        return self


def randoms(count, longest=40):
    return lambda rng, arch: [random_move(rng, arch, longest) for _ in range(count)]


def one(size, local=(0, 0, 0), dram=(0, 0, 0), rows=1, window=0, cache=0, count=1):
    return lambda rng, arch: [Move(size, rows, local, dram, window, cache)] * count


@pytest.mark.parametrize("machine", MACHINES, ids=machine_id)
def test_random_reads_land_in_local_memory_under_stalls(machine) -> None:
    Bench(machine, randoms(30), 1, axi=(0.4, (1, 30)), local=0.4).run()


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


@pytest.mark.parametrize(("machine", "size", "latency"), [
    ((8, "FP16BP8", 64, 16), 4096, 30), ((12, "FP16BP8", 64, 16), 4096, 100), ((2, "FP32BP16", 64, 16), 1000, 30),
    ((3, "FP16BP8", 32, 16), 1000, 30)], ids=str)
def test_data_bus_is_busy_for_a_long_read(machine, size, latency) -> None:
    bench = Bench(machine, one(size), 5, axi=(0.0, (latency, latency)), depth=4096, dram_depth=8192).run()
    times = bench.axi.times
    assert len(times) / (times[-1] - times[0] + 1) >= 0.95


def test_a_vector_a_cycle_where_vectors_are_narrower_than_the_bus() -> None:
    bench = Bench((2, "FP8BP4", 64, 16), one(1000, dram=(1, 0, 0)), 6, axi=(0.0, (30, 30)), depth=1024).run()
    assert len(bench.sink.times) / (bench.sink.times[-1] - bench.sink.times[0] + 1) >= 0.99


def test_short_operations_follow_each_other_without_a_gap() -> None:
    """Operations of 4 beats each hide a latency of 30 cycles: later ones are requested before the first one's data."""
    bench = Bench((8, "FP16BP8", 64, 16), one(2, count=64), 7, axi=(0.0, (30, 30))).run()
    assert bench.axi.outstanding_most >= 8
    times = bench.axi.times
    assert len(times) / (times[-1] - times[0] + 1) >= 0.9


def test_strided_vectors_keep_the_bus_busy() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(250, dram=(0, 2, 0)), 8, axi=(0.0, (20, 20))).run()
    times = bench.axi.times
    assert len(times) / (times[-1] - times[0] + 1) >= 0.95


def test_at_least_8_bursts_are_outstanding_while_the_memory_is_slow() -> None:
    bench = Bench((12, "FP16BP8", 64, 16), one(250), 9, axi=(0.0, (200, 200))).run()
    assert bench.axi.outstanding_most >= 8


def test_address_goes_out_after_the_stated_latency() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(4), 10)
    cycles: list[int] = []

    async def watch(ctx) -> None:
        cycle = 0
        async for _, _, taken, valid in ctx.tick().sample(
                bench.dut.operation.valid & bench.dut.operation.ready, bench.dut.ar.valid):
            if taken or (valid and len(cycles) == 1):
                cycles.append(cycle)
            cycle += 1

    simulate(bench.dut, bench.bench, bench.axi, bench.source, bench.sink, bench.pulses, watch)
    assert cycles[1] - cycles[0] == DRAM_REQUEST_LATENCY


@pytest.mark.parametrize("machine", [(2, "FP16BP8", 32, 4), (3, "FP16BP8", 64, 16), (8, "FP16BP8", 64, 16)],
                         ids=machine_id)
def test_error_responses_pulse_and_drain(machine) -> None:
    bench = Bench(machine, randoms(20), 11, axi=(0.3, (1, 10)), local=0.3, errors=ERRORS).run(check=False)
    bus = bench.arch.axi_data_width // 8

    def meets_error(move: Move) -> bool:
        spans = ((start // bus * bus, -(-(start + bench.arch.vector_bytes) // bus) * bus)
                 for start in move.dram_bytes(bench.arch))
        return any(first < ERRORS.stop and end > ERRORS.start for first, end in spans)

    bad = [number for number, move in enumerate(bench.moves) if meets_error(move)]
    oldest = [sum(done < cycle for done in bench.pulses.done) for cycle in bench.pulses.error]
    assert bad and oldest[0] == bad[0], "the first error comes while its operation is the oldest"
    assert set(oldest) <= set(bad)
    assert len(bench.pulses.done) == len(bench.moves)


def test_error_comes_no_later_than_done() -> None:
    for machine in ((2, "FP32BP16", 64, 16), (8, "FP16BP8", 64, 16)):
        bench = Bench(machine, one(1), 12, errors=range(0, 64)).run(check=False)
        assert bench.pulses.error[-1] <= bench.pulses.done[0]


def test_operations_wait_when_data_does_not_come() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(1, count=40), 13, axi=(0.0, (100, 100)))
    most = 0

    async def watch(ctx) -> None:
        nonlocal most
        async for _ in ctx.tick():
            most = max(most, bench.source.sent - len(bench.pulses.done))

    simulate(bench.dut, bench.bench, bench.axi, bench.source, bench.sink, bench.pulses, watch)
    assert most == READER_OPERATIONS_AHEAD + 1
