# SPDX-License-Identifier: Apache-2.0
"""ProgramReader: every byte in order, ends, stops and errors."""

from random import Random

import pytest

from weft.hw.bus.program_reader import ProgramReader
from weft.hw.contract.arch import Arch
from weft.tb.bench.axi_models import AxiReadMemory, ByteMemory
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Pulses, Script, Sink
from weft.tb.bench.block_ports import from_bits

BASE = 0x8000_0000


def make_arch(array_size: int = 8, stream_width: int = 64, burst: int = 16) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, dram0_depth=256, dram1_depth=256, local_depth=64,
                accumulator_depth=32, simd_registers_depth=1, stride0_depth=4, stride1_depth=4,
                stream_width=stream_width, axi_max_burst=burst)


class Bench:
    def __init__(self, arch, programs, seed, *, rate=1.0, latency=(1, 1), errors=range(0)):
        rng = Random(seed)
        self.dut, self.programs = ProgramReader(arch), programs
        self.memory = ByteMemory(1 << 16, rng, BASE)
        self.axi = AxiReadMemory(self.memory, rng, rate, latency, max_burst=self.dut._max_burst, errors=errors)
        self.sink, self.errors = Sink("beats", rng, rate=rate), Pulses("error")

    @staticmethod
    def start(ports, address, size):
        """Ends in the cycle after the start."""
        ports["address"], ports["bytes"], ports["start"] = address, size, 1
        yield
        ports["start"] = 0
        yield

    def steps(self, ports):
        for address, size in self.programs:
            yield from self.start(ports, address, size)
            while ports["busy"]:
                yield
            assert not self.axi.waiting
        yield from range(3)

    def run(self, steps=None):
        simulate(self.dut, self.axi, self.sink, self.errors, Script(steps or self.steps))
        return self

    def programs_out(self):
        """Bytes of each program that ended with last, and what came after the last end."""
        done, current = [], b""
        for item in self.sink.items:
            beat = from_bits(self.dut.beats.payload.shape(), item)
            size = len(self.dut.beats.payload.keep)
            kept = bin(beat["keep"]).count("1")
            assert beat["keep"] == (1 << kept) - 1 and (beat["last"] or kept == size)
            current += beat["data"].to_bytes(size, "little")[:kept]
            if beat["last"]:
                done.append(current)
                current = b""
        return done, current


@pytest.mark.wide_cases("*-2", "*-8")
@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize(("stream_width", "burst"), [(32, 4), (64, 16), (128, 1), (512, 64)])
@pytest.mark.parametrize("rate", [1.0, 0.6], ids=["quick", "stalls"])
def test_programs_come_out_byte_for_byte(array_size, stream_width, burst, rate) -> None:
    rng, unit = Random(f"{stream_width} {rate}"), stream_width // 8
    programs = [(BASE + rng.randrange(20_000 // unit) * unit, size)
                for size in (1, unit, unit + 1, 5000, *(rng.randint(1, 900) for _ in range(6)))]
    bench = Bench(make_arch(array_size, stream_width, burst), programs, 1, rate=rate, latency=(1, 20)).run()
    done, rest = bench.programs_out()
    assert done == [bench.memory.read(address, size) for address, size in programs] and not rest
    assert not bench.errors.cycles


def test_beats_come_every_cycle() -> None:
    bench = Bench(make_arch(), [(BASE + 8, 16_000)], 2, latency=(40, 40)).run()
    assert bench.sink.taken[-1] - bench.sink.taken[0] == 16_000 // 8 - 1
    assert bench.axi.outstanding_most >= 4


def test_empty_program_does_nothing() -> None:
    bench = Bench(make_arch(), [(BASE, 0)], 3).run()
    assert not bench.axi.bursts and not bench.sink.items


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 5, 17, 60])
def test_stop_discards_and_the_next_program_is_whole(stop_after) -> None:
    bench = Bench(make_arch(), [], 4, rate=0.7, latency=(1, 20))
    bench.sink.stable = None

    def steps(ports):
        yield from bench.start(ports, BASE, 16_000)
        yield from range(stop_after - 1)
        ports["stop"] = 1
        yield
        while ports["busy"]:
            assert not ports["beats.valid"]
            yield
        assert not bench.axi.waiting and len(bench.axi.bursts) < 16_000 // 128
        ports["stop"] = 0
        bench.sink.items.clear()
        yield from bench.start(ports, BASE + 800, 300)
        while ports["busy"]:
            yield

    bench.run(steps)
    assert bench.programs_out() == ([bench.memory.read(BASE + 800, 300)], b"")


def test_error_stops_before_the_first_bad_byte_and_pulses_once() -> None:
    bench = Bench(make_arch(), [(BASE, 4000), (BASE + 2048, 64)], 6, rate=0.8, latency=(1, 20),
                  errors=range(BASE + 1000, BASE + 1100))
    bench.sink.stable = None
    bench.run()
    out = b"".join(from_bits(bench.dut.beats.payload.shape(), item)["data"].to_bytes(8, "little")
                   for item in bench.sink.items)
    assert out == bench.memory.read(BASE, 1000) + bench.memory.read(BASE + 2048, 64)
    assert len(bench.errors.cycles) == 1


def test_address_goes_out_after_the_stated_latency() -> None:
    bench = Bench(make_arch(), [], 7)

    def steps(ports):
        ports["address"], ports["bytes"], ports["start"] = BASE, 8, 1
        yield
        cycles = 0
        while not ports["ar.valid"]:
            ports["start"] = 0
            yield
            cycles += 1
        assert cycles == ProgramReader.REQUEST_LATENCY

    bench.run(steps)
