# SPDX-License-Identifier: Apache-2.0
"""DramWriter against a plain memory: which bytes change, how it asks, how fast, and what it does with errors."""

from random import Random

import pytest
from amaranth.sim import Simulator

from weft.hw.bus.dram_writer import DramWriter
from weft.hw.contract.timing import DRAM_REQUEST_LATENCY, LOCAL_READ_LATENCY
from weft.tb.bench.axi_models import AxiWriteMemory, ByteMemory
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Pulses, ReadServer, Script, Source
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.unit.bus.dram_moves import (
    MACHINES,
    Move,
    machine_id,
    make_arch,
    memory_bytes,
    random_move,
    to_bytes,
)

FAST = (1.0, (1, 1))
"""Chance of the bus to move in a cycle, latency of the memory."""
ERRORS = range(600, 6000)
"""Addresses that answer SLVERR."""


class Bench:
    """A writer with its memory, operations and local memory; ``run`` ends when all operations are done."""

    def __init__(self, machine, moves, seed, *, axi=FAST, local=1.0, depth=256, dram_depth=2000, errors=range(0),
                 **options):
        rng = Random(seed)
        self.arch = arch = make_arch(machine, depth, dram_depth)
        self.moves = moves(rng, arch)
        self.dut = DramWriter(arch)
        self.memory = ByteMemory(memory_bytes(arch), rng)
        self.before = bytearray(self.memory.data)
        self.axi = AxiWriteMemory(self.memory, rng, *axi, max_burst=arch.axi_max_burst, errors=errors, **options)
        self.source = Source("operation", [move.raw(arch) for move in self.moves], rng, local)
        self.rows = [rng.getrandbits(arch.array_size * arch.number.width) for _ in range(arch.local_depth)]
        self.local = ReadServer("local_read", self.rows, LOCAL_READ_LATENCY, rng, local)
        self.done, self.error = Pulses("done"), Pulses("error")

    def steps(self, ports):
        while len(self.done.cycles) < len(self.moves):
            yield
        yield from range(4)
        assert not ports["busy"] and self.axi.finished

    def run(self, *watchers, check=True):
        simulate(self.dut, self.axi, self.source, self.local, self.done, self.error, *watchers, Script(self.steps))
        expected, requests = self.before, []
        for move in self.moves:
            requests += move.local_addresses
            for local, address in zip(move.local_addresses, move.dram_bytes(self.arch), strict=True):
                expected[address:address + self.arch.vector_bytes] = to_bytes(self.arch, self.rows[local])
        assert [address for _, address in self.local.requests] == requests
        if check:
            assert self.memory.data == expected
        assert sum(beats for _, beats, _ in self.axi.bursts) == sum(move.beats(self.arch) for move in self.moves)
        return self

    @property
    def utilisation(self):
        times = self.axi.data.taken
        return len(times) / (times[-1] - times[0] + 1)


def randoms(count, longest=40):
    return lambda rng, arch: [random_move(rng, arch, longest) for _ in range(count)]


def one(size, local=(0, 0, 0), dram=(0, 0, 0), rows=1, window=0, cache=0, count=1):
    return lambda rng, arch: [Move(size, rows, local, dram, window, cache)] * count


@pytest.mark.wide_cases("3x*", "12xFP16BP8*", "8xFP8*")
@pytest.mark.parametrize("machine", MACHINES, ids=machine_id)
def test_random_writes_change_exactly_their_bytes_under_stalls(machine) -> None:
    Bench(machine, randoms(30), 1, axi=(0.6, (1, 30)), local=0.6).run()


@pytest.mark.wide_cases("12x*", "8xFP18*", "3x*")
@pytest.mark.parametrize("machine", MACHINES, ids=machine_id)
def test_random_writes_change_exactly_their_bytes_at_full_speed(machine) -> None:
    Bench(machine, randoms(30), 2).run()


def test_address_goes_out_after_the_stated_latency() -> None:
    bench, address = Bench((8, "FP16BP8", 64, 16), one(4), 13), Pulses("aw.valid")
    bench.run(address)
    assert address.cycles[0] - bench.source.taken[0] == DRAM_REQUEST_LATENCY


@pytest.mark.parametrize("order", ["data_waits", "address_waits"])
def test_addresses_and_data_do_not_wait_for_each_other(order) -> None:
    for machine in ((3, "FP16BP8", 64, 16), (8, "FP16BP8", 64, 16)):
        Bench(machine, randoms(20), 3, axi=(0.8, (1, 10)), local=0.8, **{order: True}).run()


def test_at_least_8_addresses_go_ahead_of_data() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(250), 4)
    bench.axi.data_blocked = True

    def release(ports):
        yield from range(100)
        assert len(bench.axi.bursts) >= 8 and not bench.axi.data.taken
        bench.axi.data_blocked = False

    bench.run(Script(release))


def test_at_least_8_bursts_wait_for_responses() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(250), 5, axi=(1.0, (300, 300))).run()
    assert bench.axi.outstanding_most >= 8


def test_cache_and_window_reach_the_bus() -> None:
    bench = Bench((3, "FP16BP8", 64, 16), one(5, window=3, cache=11, dram=(7, 0, 0)), 6).run()
    assert bench.axi.bursts == [(3 * 65536 + 40, 4, 11)]  # bytes 42..71 of the window


def test_scalars_are_sign_extended() -> None:
    bench = Bench((3, "FP18BP10", 64, 16), one(1), 7)
    bench.rows[0] = 1 << 17 | 1 << 18 | ((1 << 17) - 1) << 36  # the most negative, one, the most positive
    bench.run()
    assert bench.memory.read(0, 12) == b"\x00\x00\xfe\xff\x01\x00\x00\x00\xff\xff\x01\x00"


@pytest.mark.wide_cases("(12,*", "(8,*", "(3,*")
@pytest.mark.parametrize(("machine", "size", "latency"), [
    ((8, "FP16BP8", 64, 16), 4096, 30), ((12, "FP16BP8", 64, 16), 4096, 100), ((2, "FP32BP16", 64, 16), 1000, 30),
    ((3, "FP16BP8", 32, 16), 1000, 30)], ids=str)
def test_data_bus_is_busy_for_a_long_write(machine, size, latency) -> None:
    bench = Bench(machine, one(size), 8, axi=(1.0, (latency, latency)), depth=4096, dram_depth=8192).run()
    assert bench.utilisation >= 0.95


def test_the_longest_bursts_end_with_their_last_beat() -> None:
    """Of 256 beats, so that every bit of a burst's length counts; then one that ends in the middle."""
    bench = Bench((8, "FP16BP8", 64, 256), one(350), 14, axi=(0.1, (1, 10)), depth=512).run()
    assert [beats for _, beats, _ in bench.axi.bursts] == [256, 256, 188]


def test_a_vector_a_cycle_where_vectors_are_narrower_than_the_bus() -> None:
    bench = Bench((2, "FP8BP4", 64, 16), one(1000, dram=(1, 0, 0)), 9, depth=1024).run()
    times = [cycle for cycle, _ in bench.local.requests]
    assert len(times) / (times[-1] - times[0] + 1) >= 0.98


def test_short_operations_and_strided_vectors_keep_the_bus_busy() -> None:
    machine = (8, "FP16BP8", 64, 16)
    assert Bench(machine, one(2, count=64), 10, axi=(1.0, (30, 30))).run().utilisation >= 0.9
    assert Bench(machine, one(250, dram=(0, 2, 0)), 10, axi=(1.0, (30, 30))).run().utilisation >= 0.95


def test_busy_until_the_last_of_many_short_operations_is_answered() -> None:
    """Many more than eight are under way while the memory answers late."""
    class Busy(Model):
        def watch(self, ports) -> None:
            taken, done = len(bench.source.taken), len(bench.done.cycles)
            most.append(taken - done)
            assert ports["busy"] or taken - done <= 1  # one was taken or is done in this cycle

    most: list[int] = []
    bench = Bench((8, "FP16BP8", 64, 16), one(1, count=64), 12, axi=(1.0, (200, 200)))
    bench.run(Busy())
    assert max(most) >= 16


def test_done_follows_the_last_response() -> None:
    bench = Bench((8, "FP16BP8", 64, 16), one(20, count=3), 11, axi=(1.0, (50, 50))).run()
    assert bench.done.cycles[-1] == bench.axi.taken[-1] + 1


@pytest.mark.parametrize("machine", [(2, "FP16BP8", 32, 4), (3, "FP16BP8", 64, 16), (8, "FP16BP8", 64, 16)],
                         ids=machine_id)
def test_error_responses_pulse_and_drain(machine) -> None:
    bench = Bench(machine, randoms(20), 12, axi=(0.7, (1, 10)), local=0.7, errors=ERRORS).run(check=False)
    bus = bench.arch.axi_data_width // 8
    bad = sum(1 for address, beats, _ in bench.axi.bursts
              if address < ERRORS.stop and address + beats * bus > ERRORS.start)
    assert bad and len(bench.error.cycles) == bad


@pytest.mark.parametrize("slices", [0, 1])
def test_an_error_is_told_when_the_interlock_hears_of_ends_so_far(slices: int) -> None:
    """The cycle after the response; with register slices ends come a cycle later, and so do errors."""
    dut = DramWriter(lockstep_archs()["lanes2"].replace(register_slices=slices))
    responses = [0, 2, 0, 3, 1, 0, 0, 0]
    found = []

    async def bench(ctx) -> None:
        ctx.set(dut.b.valid, 1)
        for response in responses:
            ctx.set(dut.b.payload.resp, response)
            found.append(ctx.get(dut.error))
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    bad = [int(response != 0) for response in responses]
    assert found == [0] * (1 + slices) + bad[:-1 - slices]
