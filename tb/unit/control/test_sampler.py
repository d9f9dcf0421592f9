# SPDX-License-Identifier: Apache-2.0
"""Sampler: words at their interval, blocks with their end, and a machine that never waits."""

from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.samples import FILLER, HANDSHAKES
from weft.hw.control.sampler import Sampler
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Script, Sink
from weft.tb.bench.block_ports import from_bits


def make_arch(array_size: int, block: int) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, dram0_depth=256, dram1_depth=256, local_depth=64,
                accumulator_depth=32, simd_registers_depth=1, stride0_depth=4, stride1_depth=4,
                sample_block_size=block)


class Bench(Model):
    """Counts cycles in the program counter, so that each sample tells its own time; handshakes follow from it."""

    def __init__(self, block, rate=1.0, array_size=8):
        self.dut = Sampler(make_arch(array_size, block))
        self.sink = Sink("samples", Random(1), rate=rate)

    @staticmethod
    def handshakes(cycle):
        return cycle * 0x9E37 & 0xFFFF

    def drive(self, ports):
        ports["program_counter"], ports["handshakes"] = ports.cycle, self.handshakes(ports.cycle)

    def run(self, *steps):
        """``steps``: (interval, cycles)."""
        def script(ports):
            for interval, cycles in steps:
                ports["interval"] = interval
                yield from range(cycles)

        simulate(self.dut, self, self.sink, Script(script))
        words = [from_bits(self.dut.samples.payload.shape(), item) for item in self.sink.items]
        assert all(word["keep"] == 0xFF for word in words)
        samples = [word["data"] for word in words if word["data"] != FILLER]
        for sample in samples:
            assert sample >> 32 == self.handshakes(sample & 0xFFFFFFFF)
        return words, [sample & 0xFFFFFFFF for sample in samples]


def test_handshakes_lie_where_the_seed_says() -> None:
    dut = Sampler(make_arch(8, 4))
    seed = {"array": 32, "accumulator": 34, "dataflow": 36, "dram1": 38, "dram0": 40, "memory_port_b": 42,
            "memory_port_a": 44, "instruction": 46}
    assert list(seed) == list(HANDSHAKES)

    def steps(ports):
        ports["interval"] = 1
        for name, bit in seed.items():
            for part in ("valid", "ready"):
                ports.put("handshakes", {name: {part: 1}})
                yield
                ports["handshakes"] = 0
                yield
                assert ports.get("samples.payload")["data"] == 1 << (bit + (part == "ready"))

    simulate(dut, Sink("samples", Random(1)), Script(steps))


@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize("interval", [1, 2, 7, 100])
def test_samples_come_every_interval(array_size, interval) -> None:
    words, times = Bench(4, array_size=array_size).run((interval, 10 * interval + 5))
    assert len(times) >= 9
    assert {late - early for early, late in zip(times, times[1:], strict=False)} == {interval}
    assert [word["last"] for word in words] == [index % 4 == 3 for index in range(len(words))]


def test_nothing_comes_without_an_interval() -> None:
    assert Bench(4).run((0, 100))[0] == []


def test_full_output_drops_samples_and_keeps_the_rest_in_their_grid() -> None:
    words, times = Bench(5, rate=0.2).run((2, 1000))
    assert 50 < len(times) < 400
    assert all((late - early) % 2 == 0 for early, late in zip(times, times[1:], strict=False))
    assert [word["last"] for word in words] == [index % 5 == 4 for index in range(len(words))]


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_an_open_block_is_closed_with_invalid_samples(rate) -> None:
    words, times = Bench(8, rate).run((3, 3 * 3 + 2), (0, 100), (3, 3 * 8 + 2), (0, 100))
    assert len(words) % 8 == 0 and words[-1]["last"]
    assert sum(word["last"] for word in words) == len(words) // 8
    if rate == 1.0:
        kinds = [word["data"] == FILLER for word in words]
        assert kinds == [False] * 3 + [True] * 5 + [False] * 8


def test_a_block_of_one_needs_no_closing() -> None:
    words, times = Bench(1).run((4, 22), (0, 20))
    assert len(words) == len(times) == 5 and all(word["last"] for word in words)


def test_a_shorter_interval_counts_at_once() -> None:
    _, times = Bench(4).run((1000, 50), (5, 20))
    assert len(times) == 4
