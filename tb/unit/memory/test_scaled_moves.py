# SPDX-License-Identifier: Apache-2.0
"""The move_out unit of INT8 machines: loads of scales and moves keep their order. Its numbers: ``test_scaler.py``."""

from __future__ import annotations

from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SCALE_VECTORS
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, LOCAL_READ_LATENCY
from weft.hw.memory.scaled_move_out import ScaledMoveOutUnit
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Pulses, ReadServer, Sink, Source
from weft.tb.bench.block_ports import Ports, to_bits
from weft.tb.random.random_operations import random_tile

ARCH = Arch.load("tiny").replace(data_type="INT8")


class Loads(ReadServer):
    """Local memory, which keeps the cycle of each request."""

    def __init__(self, rows: list[int], rng: Random, rate: float) -> None:
        super().__init__("local_read", rows, LOCAL_READ_LATENCY, rng, rate)
        self.asked: list[tuple[int, int]] = []

    def on_taken(self, ports: Ports, item: int) -> None:
        self.asked.append((ports.cycle, item))
        super().on_taken(ports, item)


@pytest.mark.parametrize("slices", [0, 1])
@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_a_load_waits_until_every_move_before_it_is_written(rate: float, slices: int) -> None:
    arch, rng = ARCH.replace(register_slices=slices), Random(5)
    depths = {"local": arch.local_depth, "accumulator": arch.accumulator_depth}
    moves = [random_tile(rng, 6, 2, 3, **depths) for _ in range(8)]
    load = {"size_m1": SCALE_VECTORS - 1, "local": {"base": 3}, "load_scale": 1}
    operations = [each for move in moves for each in (move, load)]
    dut = ScaledMoveOutUnit(arch)
    layout = dut.operation.payload.shape()
    written = [Walker.reference(move, "local") for move in moves]
    loads = Loads([rng.getrandbits(8 * arch.array_size) for _ in range(arch.local_depth)], rng, rate)
    rows = ReadServer("accumulator_read", [0] * arch.accumulator_depth, ACCUMULATOR_READ_LATENCY, rng, rate)
    sink, done = Sink("local_write.request", rng, sum(map(len, written)), rate), Pulses("done")
    busy = Pulses("busy")
    simulate(dut, Source("operation", [to_bits(layout, each) for each in operations], rng, rate), rows, loads, sink,
             done, busy, cycles=5000)
    assert [address for _, address in loads.asked[:SCALE_VECTORS]] == list(range(3, 3 + SCALE_VECTORS))
    ends = [sink.taken[sum(map(len, written[:number + 1])) - 1] for number in range(len(moves))]
    starts = [sink.taken[sum(map(len, written[:number]))] for number in range(len(moves))]
    for number, end in enumerate(ends):
        asked = [cycle for cycle, _ in loads.asked[SCALE_VECTORS * number:SCALE_VECTORS * (number + 1)]]
        assert not asked or asked[0] > end + slices, "scales come when the move before them is written"
        assert number + 1 == len(ends) or asked[-1] < starts[number + 1]
    assert len(done.cycles) >= len(operations) - 1  # the last load goes on behind the last write
    under_way = sorted({cycle + late for cycle, _ in loads.asked for late in range(1, LOCAL_READ_LATENCY + 1)})
    assert busy.cycles == under_way[:len(busy.cycles)], "busy until what was requested is there"
    assert len(under_way) - len(busy.cycles) < LOCAL_READ_LATENCY + 2, "but for the end"
