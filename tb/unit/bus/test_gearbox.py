# SPDX-License-Identifier: Apache-2.0
"""The gearbox against its reference, and its rate."""

from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator

from weft.hw.parts.gearbox import Gearbox, StreamFifo
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Script, Sink, Source
from weft.tb.bench.block_ports import from_bits, to_bits

SHAPES = [(1, 1), (1, 3), (3, 1), (4, 3), (3, 4), (4, 1), (1, 4), (2, 3), (8, 9), (9, 8), (5, 2), (16, 12)]
UNIT_WIDTH = 8


def words_of(rng: Random, units_in: int, units_out: int, segments: int, *, flush: bool) -> list[dict]:
    """Segments of 1..6 words; the first may skip, the last may end early, with flush the output may begin late."""
    words = []
    for _ in range(segments):
        count = rng.randint(1, 6)
        for index in range(count):
            first, last = index == 0, index == count - 1
            skip = rng.randrange(units_in) if first else 0
            least = skip + 1 if flush else skip
            words.append({
                "units": list(rng.randbytes(units_in)), "skip": skip, "last": last,
                "end": rng.randint(least, units_in) if last else units_in,
                "lead": rng.randrange(units_out) if flush else 0,
            })
    return words


def run(units_in: int, units_out: int, flush: bool, words: list[dict], rate: float, seed: int) -> Sink:
    dut = Gearbox(UNIT_WIDTH, units_in, units_out, flush=flush)
    layout = dut.i.payload.shape()
    raw = [to_bits(layout, {"data": int.from_bytes(bytes(word["units"]), "little"), "skip": word["skip"],
                            "end": word["end"], "lead": word["lead"], "last": word["last"]}) for word in words]
    expected = Gearbox.reference(words, units_out, flush=flush)
    source = Source("i", raw, Random(seed), rate)
    sink = Sink("o", Random(seed + 1), len(expected), rate)

    def steps(ports):
        while not (source.finished and sink.finished):
            yield
        yield from range(5)

    simulate(dut, source, sink, Script(steps))
    got = []
    for item in sink.items:
        word = from_bits(dut.o.payload.shape(), item)
        units = word["data"].to_bytes(units_out, "little")
        got.append([unit if word["mask"] >> index & 1 else None for index, unit in enumerate(units)])
    assert got == expected
    return sink


@pytest.mark.parametrize("flush", [False, True], ids=["drop", "flush"])
@pytest.mark.parametrize(("units_in", "units_out"), SHAPES)
def test_units_keep_order_and_segments_their_edges(units_in: int, units_out: int, flush: bool) -> None:
    for seed, rate in ((1, 1.0), (2, 0.5)):
        rng = Random(f"{units_in} {units_out} {flush} {seed}")
        run(units_in, units_out, flush, words_of(rng, units_in, units_out, 40, flush=flush), rate, seed)


@pytest.mark.parametrize(("units_in", "units_out"), SHAPES)
def test_the_narrower_side_moves_every_cycle(units_in: int, units_out: int) -> None:
    count = 12 * units_out
    words = [{"units": [0] * units_in, "skip": 0, "end": units_in, "lead": 0, "last": False} for _ in range(count)]
    sink = run(units_in, units_out, False, words, 1.0, 1)
    moved = count * units_in // min(units_in, units_out)
    assert sink.taken[-1] - sink.taken[0] <= moved


def test_flush_costs_nothing_between_single_word_segments() -> None:
    words = [{"units": [1], "skip": 0, "end": 1, "lead": index % 4, "last": True} for index in range(50)]
    sink = run(1, 4, True, words, 1.0, 1)
    assert sink.taken[-1] - sink.taken[0] == len(words) - 1


def test_fifo_keeps_order_at_full_rate() -> None:
    for rate in (1.0, 0.6):
        sink = Sink("o", Random(2), 200, rate)
        simulate(StreamFifo(16, 2), Source("i", range(200), Random(1), rate), sink)
        assert sink.items == list(range(200))
        if rate == 1.0:
            assert sink.taken[-1] - sink.taken[0] == 199


def test_an_empty_word_waits_for_nobody() -> None:
    """Nothing of it comes out, where both words are one unit too."""
    dut = Gearbox(UNIT_WIDTH, 1, 1)

    async def bench(ctx: Any) -> None:
        ctx.set(dut.i.valid, 1)
        for end, ready in ((0, 0), (0, 1), (1, 0), (1, 1)):
            ctx.set(dut.i.payload.end, end)
            ctx.set(dut.o.ready, ready)
            assert (ctx.get(dut.o.valid), ctx.get(dut.i.ready)) == (end, ready or not end)

    simulator = Simulator(dut)
    simulator.add_testbench(bench)
    simulator.run()
