# SPDX-License-Identifier: Apache-2.0
"""Depthwise operations of the MatMul unit against their definition: what goes into the array, which taps count, and
where results go."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY
from weft.hw.parts.walker import Walker
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import ReadServer, Source
from weft.tb.bench.block_ports import Ports, to_bits
from weft.tb.unit.array.test_mat_mul_unit import Array, Ended, machine, random_operation

TAPS = 3


class TapArray(Array):
    """Also keeps what comes with each vector."""

    def __init__(self, arch: Arch) -> None:
        super().__init__(arch)
        self.modes: list[tuple[int, int]] = []
        """(depthwise, taps)"""

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        if ports["activation_valid"]:
            self.modes.append((ports["depthwise"], ports["taps"]))


def expected(operation: dict[str, Any]) -> tuple[list[int | None], list[tuple[int, dict[str, int], set[int]]]]:
    """Of an operation: the local address of each vector that goes into the array, None behind the last one; and of each
    result that is written the number of its vector, where it goes, and the taps that count."""
    local, far = Walker.reference(operation, "local"), Walker.reference(operation, "accumulator")
    origin, size = operation["tap_origin"] - 1, operation["size_m1"] + 1
    lag = 0 if origin < 0 else TAPS - 1 - origin
    results = []
    for number, address in enumerate(far):
        place = number % size
        taps = {tap for tap in range(TAPS) if 0 <= place + tap - origin < size}
        if origin < 0 or place < size - operation["tap_dropped"]:
            results.append((number + lag, {"address": address, "accumulate": operation["accumulate"]}, taps))
    return [*local, *[None] * lag], results


@pytest.mark.parametrize(("ask", "serve"), ((1, 1), (0.4, 1), (1, 0.4), (0.6, 0.7)))
@pytest.mark.parametrize("keys", ({}, {"register_slices": 1}, {"data_type": "INT8"}))
def test_results_lag_and_rows_keep_to_themselves(keys: dict[str, object], ask: float, serve: float) -> None:
    rng, arch = Random(51), machine(6, depthwise_taps=TAPS, **keys)
    dut, number = MatMulUnit(arch), arch.number
    shape = dut.operation.payload.shape()
    operations = [{**random_operation(rng, arch), "tap_origin": rng.randrange(TAPS + 1),
                   "tap_dropped": rng.randrange(4)} for _ in range(40)]
    if arch.scheme.per_lane:
        for operation in operations:
            operation |= {"activation_zero_point": rng.randint(-128, 127), "input_shift": 0}
    rows = [[rng.randint(number.minimum, number.maximum) for _ in range(6)] for _ in range(arch.local_depth)]
    given = [{name: value for name, value in operation.items() if name in shape.members} for operation in operations]
    source = Source("operation", [to_bits(shape, each) for each in given], rng, ask)
    row_shape = dut.local_read.response.payload.shape()
    memory = ReadServer("local_read", [to_bits(row_shape, row) for row in rows], LOCAL_READ_LATENCY, rng, serve)
    array, done = TapArray(arch), Ended(len(operations))
    simulate(dut, source, memory, array, done)

    reads: list[int] = []
    vectors: list[list[int]] = []
    modes: dict[int, set[int]] = {}
    written, ends, swaps = [], [], set()
    for operation in operations:
        addresses, results = expected(operation)
        first = len(vectors)
        if operation["swap"]:
            swaps.add(first)
        reads += [address for address in addresses if address is not None and not operation["zeroes"]]
        zero = 0 if operation["zeroes"] else operation.get("activation_zero_point", 0)
        empty = [-zero] * 6  # behind the last vector nothing is read, and no tap counts
        vectors += [empty if address is None or operation["zeroes"] else [x - zero for x in rows[address]]
                    for address in addresses]
        written += [(first + vector, place) for vector, place, _ in results]
        modes |= {first + vector: taps for vector, _, taps in results if operation["tap_origin"]}
        ends.append(len(vectors) - 1)
        assert all(bool(mode) == bool(operation["tap_origin"]) for mode, _ in array.modes[first:len(vectors)])
    assert [address for _, address in memory.requests] == reads
    assert [vector for _, vector, *_ in array.given] == vectors
    assert {k for k, (_, _, swap, *_) in enumerate(array.given) if swap} == swaps
    for vector, taps in modes.items():
        assert array.modes[vector][1] == sum(1 << tap for tap in taps)
    cycles = [cycle for cycle, *_ in array.given]
    assert array.written == [(cycles[vector] + array.latency, place) for vector, place in written]
    assert done.cycles == [cycles[end] + array.latency for end in ends]


class RowArray(TapArray):
    """Also keeps what further rows of taps meet beside each vector."""

    def __init__(self, arch: Arch) -> None:
        super().__init__(arch)
        self.met: list[list[list[int]]] = []
        """Of each vector what each row of taps meets."""

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        if ports["activation_valid"]:
            self.met.append([ports.get(name) for name in ("activation", "activation_1", "activation_2")])


NOTHING = -1


def met_rows(operation: dict[str, Any]) -> list[list[int | None]]:
    """Of an operation the local addresses that three rows of taps meet at each step, NOTHING where one must meet zeros,
    None where no tap counts. A depthwise row meets its vectors two steps after the first read: row k reads k late."""
    walk = Walker.reference(operation, "local")
    if not operation["tap_origin"]:
        return [[NOTHING if operation["zeroes"] else address, None, None] for address in walk]
    counts = [] if operation["zeroes"] else [row for row in range(3) if operation["tap_rows"] >> row & 1]
    nothing: list[list[int | None]] = [[None] * 3]
    met: list[list[int | None]] = [
        [address + (row - counts[0]) * operation["tap_pitch"] if row in counts else NOTHING for row in range(3)]
        for address in walk]
    return nothing * 2 + met + nothing * (TAPS - operation["tap_origin"])


@pytest.mark.parametrize(("ask", "serve"), ((1, 1), (0.4, 1), (1, 0.4), (0.6, 0.7)))
@pytest.mark.parametrize("keys", ({}, {"register_slices": 1, "local_banks": 2}, {"data_type": "INT8"}))
def test_each_row_of_taps_meets_its_own_row_of_the_image(keys: dict[str, object], ask: float, serve: float) -> None:
    """Reads that meet in a bank, or are served late, come in steps of their own; what they read meets at one step."""
    rng, size = Random(52), 18
    arch = machine(size, depthwise_taps=9, **keys)
    dut, number = MatMulUnit(arch), arch.number
    shape, lanes = dut.operation.payload.shape(), range(size)
    operations = []
    for _ in range(40):
        operation = random_operation(rng, arch)
        rows = rng.choice([7, 7, 7, 6, 5, 3, 2, 1, 0])
        reach = arch.local_depth - 1 - max(Walker.reference(operation, "local"))
        operations.append({**operation, "tap_origin": rng.randrange(TAPS + 1), "tap_dropped": 0, "tap_rows": rows,
                           "tap_pitch": rng.randint(0, reach // 2)})
    if arch.scheme.per_lane:
        for operation in operations:
            operation |= {"activation_zero_point": rng.randint(-128, 127), "input_shift": 0}
    memory = [[rng.randint(number.minimum, number.maximum) for _ in lanes] for _ in range(arch.local_depth)]
    given = [{name: value for name, value in operation.items() if name in shape.members} for operation in operations]
    raw = [to_bits(dut.local_read.response.payload.shape(), row) for row in memory]
    servers = [ReadServer(name, raw, LOCAL_READ_LATENCY, rng, serve)
               for name in ("local_read", "local_read_1", "local_read_2")]
    array = RowArray(arch)
    simulate(dut, Source("operation", [to_bits(shape, each) for each in given], rng, ask), *servers, array,
             Ended(len(operations)))

    step = 0
    for operation in operations:
        zero = operation.get("activation_zero_point", 0)
        for met in met_rows(operation):
            for row, address in enumerate(met):
                wanted = [0] * size if address == NOTHING else [x - zero for x in memory[address or 0]]
                assert address is None or array.met[step][row] == wanted, (operation, step, row)
            step += 1
    assert step == len(array.met)
