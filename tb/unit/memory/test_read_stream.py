# SPDX-License-Identifier: Apache-2.0
"""Memory rows as a stream: nothing lost or reordered, one row a cycle."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from amaranth.lib import data

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY, READ_STREAM_LATENCY
from weft.hw.memory.read_stream import ReadStream
from weft.hw.parts.ports import accumulator_read_port, local_read_port
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import ReadServer, Sink, Source
from weft.tb.bench.block_ports import from_bits, to_bits

TAG = data.StructLayout({"number": 12, "last": 1})


def run(size: int, count: int, ask: float, serve: float, take: float, *, latency: int = LOCAL_READ_LATENCY,
        far: bool = False) -> tuple[Source, Sink]:
    arch, rng = Arch.load("tiny").replace(array_size=size), Random(count)
    port = accumulator_read_port(arch) if far else local_read_port(arch)
    depth = arch.accumulator_depth if far else arch.local_depth
    dut = ReadStream(port, TAG, latency)
    row_bits = dut.o.payload.shape()["data"].width
    rows = [rng.getrandbits(row_bits) for _ in range(depth)]
    given: list[dict[str, Any]] = [
        {"address": rng.randrange(depth), "tag": {"number": k, "last": rng.randrange(2)}} for k in range(count)]
    source = Source("i", [to_bits(dut.i.payload.shape(), item) for item in given], rng, ask)
    sink = Sink("o", rng, count, take)
    simulate(dut, source, ReadServer("port", rows, latency, rng, serve), sink)
    layout = dut.o.payload.shape()
    found = [from_bits(layout, raw) for raw in sink.items]
    row = layout["data"].shape
    assert found == [{"data": from_bits(row, rows[item["address"]]), "tag": item["tag"]} for item in given]
    return source, sink


@pytest.mark.parametrize(("ask", "serve", "take"), ((0.5, 1, 1), (1, 0.5, 1), (1, 1, 0.5), (1, 1, 0.1), (0.7, 0.7, 0.7),
                                                    (1, 0.9, 0.95)))
@pytest.mark.parametrize("size", (2, 3))
def test_nothing_lost_or_reordered_under_stalls(size: int, ask: float, serve: float, take: float) -> None:
    run(size, 200, ask, serve, take, far=size == 3)


@pytest.mark.parametrize("latency", (1, 2, 4, 7))
def test_one_row_a_cycle_and_the_stated_latency(latency: int) -> None:
    source, sink = run(2, 60, 1, 1, 1, latency=latency)
    assert source.taken == list(range(60))
    assert sink.taken == [cycle + latency + READ_STREAM_LATENCY for cycle in source.taken]


def test_a_full_stream_takes_no_more_than_it_can_hold() -> None:
    """Nobody takes for long, again and again: answers keep coming after the last request and all find room."""
    run(2, 150, 1, 1, 0.02)
