"""ProgramReader: every byte in order, ends, stops and errors."""

from random import Random

import pytest

from weft.hw.bus.program_reader import ProgramReader
from weft.hw.contract.arch import Arch
from weft.tb.bench.amaranth_axi import AxiReadMemory, ByteMemory, Stalls, StreamSink, simulate, unpack

BASE = 0x8000_0000


def make_arch(array_size: int = 8, stream_width: int = 64, burst: int = 16) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, dram0_depth=256, dram1_depth=256, local_depth=64,
                accumulator_depth=32, simd_registers_depth=1, stride0_depth=4, stride1_depth=4,
                stream_width=stream_width, axi_max_burst=burst)


class Bench:
    def __init__(self, arch, programs, seed, *, rate=0.0, latency=(1, 1), errors=range(0)):
        rng = Random(seed)
        self.dut, self.programs = ProgramReader(arch), programs
        self.memory = ByteMemory(1 << 16, rng, BASE)
        burst = self.dut._max_burst
        self.axi = AxiReadMemory(self.dut, self.memory, Stalls(rng, rate, latency), max_burst=burst, errors=errors)
        self.sink = StreamSink(self.dut.beats, Stalls(rng, rate))
        self.errors = 0

    async def start(self, ctx, address, size):
        ctx.set(self.dut.address, address)
        ctx.set(self.dut.bytes, size)
        ctx.set(self.dut.start, 1)
        await ctx.tick()
        ctx.set(self.dut.start, 0)

    async def bench(self, ctx):
        for address, size in self.programs:
            await self.start(ctx, address, size)
            while ctx.get(self.dut.busy):
                await ctx.tick()
            assert not self.axi.waiting
        await ctx.tick().repeat(3)

    async def count_errors(self, ctx):
        async for _, _, error in ctx.tick().sample(self.dut.error):
            self.errors += error

    def run(self, steps=None):
        """``steps`` in place of the programs."""
        simulate(self.dut, steps or self.bench, self.axi, self.sink, self.count_errors)
        return self

    def programs_out(self):
        """Bytes of each program that ended with last, and what came after the last end."""
        done, current = [], b""
        for item in self.sink.items:
            beat = unpack(self.dut.beats.payload.shape(), item)
            size = len(self.dut.beats.payload.keep)
            kept = bin(beat["keep"]).count("1")
            assert beat["keep"] == (1 << kept) - 1 and (beat["last"] or kept == size)
            current += beat["data"].to_bytes(size, "little")[:kept]
            if beat["last"]:
                done.append(current)
                current = b""
        return done, current


@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize(("stream_width", "burst"), [(32, 4), (64, 16), (128, 1), (512, 64)])
@pytest.mark.parametrize("rate", [0.0, 0.4], ids=["quick", "stalls"])
def test_programs_come_out_byte_for_byte(array_size, stream_width, burst, rate) -> None:
    rng, unit = Random(f"{stream_width} {rate}"), stream_width // 8
    programs = [(BASE + rng.randrange(20_000 // unit) * unit, size)
                for size in (1, unit, unit + 1, 5000, *(rng.randint(1, 900) for _ in range(6)))]
    bench = Bench(make_arch(array_size, stream_width, burst), programs, 1, rate=rate, latency=(1, 20)).run()
    done, rest = bench.programs_out()
    assert done == [bench.memory.read(address, size) for address, size in programs] and not rest
    assert bench.errors == 0


def test_beats_come_every_cycle() -> None:
    bench = Bench(make_arch(), [(BASE + 8, 16_000)], 2, latency=(40, 40)).run()
    assert bench.sink.times[-1] - bench.sink.times[0] == 16_000 // 8 - 1
    assert bench.axi.outstanding_most >= 4


def test_empty_program_does_nothing() -> None:
    bench = Bench(make_arch(), [(BASE, 0)], 3).run()
    assert not bench.axi.bursts and not bench.sink.items


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5, 17, 60])
def test_stop_discards_and_the_next_program_is_whole(stop_after) -> None:
    bench = Bench(make_arch(), [], 4, rate=0.3, latency=(1, 20))
    bench.sink.stable = None

    async def steps(ctx):
        await bench.start(ctx, BASE, 16_000)
        await ctx.tick().repeat(stop_after)
        ctx.set(bench.dut.stop, 1)
        while ctx.get(bench.dut.busy):
            assert not ctx.get(bench.dut.beats.valid)
            await ctx.tick()
        assert not bench.axi.waiting and len(bench.axi.bursts) < 16_000 // 128
        ctx.set(bench.dut.stop, 0)
        bench.sink.items.clear()
        await bench.start(ctx, BASE + 800, 300)
        while ctx.get(bench.dut.busy):
            await ctx.tick()

    bench.run(steps)
    assert bench.programs_out() == ([bench.memory.read(BASE + 800, 300)], b"")


def test_error_stops_before_the_first_bad_byte_and_pulses_once() -> None:
    bench = Bench(make_arch(), [(BASE, 4000), (BASE + 2048, 64)], 6, rate=0.2, latency=(1, 20),
                  errors=range(BASE + 1000, BASE + 1100))
    bench.sink.stable = None
    bench.run()
    out = b"".join(unpack(bench.dut.beats.payload.shape(), item)["data"].to_bytes(8, "little")
                   for item in bench.sink.items)
    assert out == bench.memory.read(BASE, 1000) + bench.memory.read(BASE + 2048, 64)
    assert bench.errors == 1


def test_address_goes_out_after_the_stated_latency() -> None:
    bench = Bench(make_arch(), [], 7)

    async def steps(ctx):
        ctx.set(bench.dut.address, BASE)
        ctx.set(bench.dut.bytes, 8)
        ctx.set(bench.dut.start, 1)
        cycles = 0
        while not ctx.get(bench.dut.ar.valid):
            await ctx.tick()
            ctx.set(bench.dut.start, 0)
            cycles += 1
        assert cycles == ProgramReader.REQUEST_LATENCY

    bench.run(steps)
