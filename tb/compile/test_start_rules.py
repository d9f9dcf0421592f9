# SPDX-License-Identifier: Apache-2.0
"""When operations start, for interleaving: rows of integers by hand, and their starts against a plain definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft.compiler import lir
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address, Operation, Settings
from weft.compiler.lir_table import LirTable
from weft.compiler.scheduler import merge
from weft.compiler.scheduler.interleave import SIMD_CYCLES, Paces, Timeline, interleave
from weft.compiler.scheduler.rows import MatMuls, Row, within
from weft.compiler.scheduler.starts import CHAINED, COLUMNS, GAPS, JOINT
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.instructions import KEY_ENTRIES, SimdOpcode
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.timing import load_weight_cycles
from weft.hw.contract.units import Memory
from weft.tb.compile.test_interleave import ARCH, BOTH, ENTER, MOVED, LirMaker

BYTES = ARCH.replace(data_type="INT8", accumulator_width=None)
SCALED = Settings.of(output_shift=1, output_zero_point=0)


def rows_of(arch: Arch, *operations: Operation, paces: Paces | None = None) -> list[dict[str, Any]]:
    """The row of each operation by its columns, with the names of units and memories."""
    line = Timeline(LirTable.of(operations), arch, paces or Paces())
    names, memories = {number: name for name, number in line.units.items()}, [memory.value for memory in Memory]
    found = [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in line.rows]
    for row in found:
        row["unit"] = names[row["unit"]]
        for way in ("read", "write"):
            row[way] = (memories[row[way]], row[f"{way}_first"], row[f"{way}_last"]) if row[way] >= 0 else None
    return found


@pytest.mark.parametrize(("operation", "unit", "cycles", "read", "write"), [
    (lir.MatMul(Address(LOCAL, 3), Address(ACCUMULATORS, 1), 4, ENTER, False, 2, 1, 3, 10, 5), "mat_mul", 12,
     (LOCAL, 3, 29), (ACCUMULATORS, 1, 14)),
    (lir.MatMul(None, Address(ACCUMULATORS, 1), 4, ENTER), "mat_mul", 4, None, (ACCUMULATORS, 1, 4)),
    (lir.DataMove(True, Address(LOCAL, 3), Address(DRAM1, 9), 4, far_stride=2, rows=2, local_pitch=6, far_pitch=8),
     "dram1_read", 8, (DRAM1, 9, 23), (LOCAL, 3, 12)),
    (lir.DataMove(False, Address(LOCAL, 3), Address(DRAM0, 9), 4), "dram0_write", 4, (LOCAL, 3, 6), (DRAM0, 9, 12)),
    (lir.DataMove(True, Address(LOCAL, 3), Address(ACCUMULATORS, 9), 4, MOVED[True]), "move_out", 4,
     (ACCUMULATORS, 9, 12), (LOCAL, 3, 6)),
    (lir.DataMove(False, Address(LOCAL, 3), Address(ACCUMULATORS, 9), 4, MOVED[False]), "move_in", 4, (LOCAL, 3, 6),
     (ACCUMULATORS, 9, 12)),
    (lir.LoadLut(Address(LOCAL, 3), 0, 4), "simd", KEY_ENTRIES, (LOCAL, 3, 6), None),
    (lir.LoadLut(Address(LOCAL, 3), 1, 4), "simd", 4, (LOCAL, 3, 6), None)])
def test_an_operation_has_the_unit_the_cycles_and_the_ranges_that_it_touches(
        operation: Operation, unit: str, cycles: int, read: object, write: object) -> None:
    arch = ARCH.replace(axi_data_width=8 * ARCH.vector_bytes)  # a beat a vector
    row, = rows_of(arch, operation)
    assert (row["unit"], row["cycles"], row["read"], row["write"]) == (unit, cycles, read, write)
    inside = isinstance(operation, lir.DataMove) and operation.far.memory == ACCUMULATORS
    assert (row["fills"], row["joined"]) == (int(inside), 0)
    if isinstance(operation, lir.DataMove) and not inside:
        assert row["latency"] == EXPECTED.read_latency
        shared, = rows_of(arch.replace(dram_ports=SHARED), operation)
        assert shared["unit"] == f"dram_{unit[6:]}"
        narrow, = rows_of(arch.replace(array_size=4), operation)
        assert narrow["cycles"] == 2 * cycles


@pytest.mark.parametrize(("origin", "mask", "read"), [(0, 1, (3, 6)), (1, 0b1, (3, 6)), (1, 0b101, (3, 16)),
                                                      (1, 0b110, (3, 11)), (1, 0, None)])
def test_rows_of_taps_reach_from_the_first_to_the_last_that_counts(origin: int, mask: int,
                                                                   read: tuple[int, int] | None) -> None:
    """Five vectors lie between two of them; without any nothing is read."""
    settings = Settings.of(input_shift=3, tap_origin=origin, tap_dropped=0, tap_rows=mask, tap_pitch=5)
    row, = rows_of(ARCH, lir.MatMul(Address(LOCAL, 3), Address(ACCUMULATORS, 1), 4, settings))
    assert row["read"] == (None if read is None else (LOCAL, *read))


@pytest.mark.parametrize(("size", "zero_bias"), [(1, False), (1, True), (2, True), (3, False)])
def test_a_row_of_zeros_is_loaded_too(size: int, zero_bias: bool) -> None:
    row, = rows_of(ARCH, lir.LoadWeight(Address(LOCAL, 5), size, zero_bias))
    assert row["cycles"] == load_weight_cycles(ARCH, size + zero_bias) and row["read"] == (LOCAL, 5, 4 + size)


def test_a_body_is_a_loops_for_all_of_its_iterations() -> None:
    """What is held is read at one place."""
    body = [lir.Simd(SimdOpcode.ADD, 0, 1, 1, BOTH, Address(ACCUMULATORS, 2), None, 2, 1),
            lir.Simd(SimdOpcode.ADD, 0, 1, 1, BOTH, Address(ACCUMULATORS, 9), None, 1, 1, hold=True),
            lir.Simd(SimdOpcode.ADD, 1, 1, 0, BOTH, None, Address(ACCUMULATORS, 4), 1, 3),
            lir.Simd(SimdOpcode.ADD, 1, 1, 1, BOTH, None, None)]
    head, first, held, last, none = rows_of(ARCH, lir.SimdLoop(3, 4, BOTH), *body)
    assert (head["cycles"], head["joined"], head["unit"]) == (1, 0, "simd")
    assert [row["joined"] for row in (first, held, last, none)] == [JOINT] * 4
    assert [row["cycles"] for row in (first, held, last, none)] == [3 * SIMD_CYCLES] * 3 + [3]
    assert (first["read"], held["read"], last["read"]) == ((ACCUMULATORS, 2, 6), (ACCUMULATORS, 9, 9), None)
    assert (first["write"], last["write"]) == (None, (ACCUMULATORS, 4, 10))
    alone, = rows_of(ARCH, body[0])
    assert alone["joined"] == 0 and alone["cycles"] == SIMD_CYCLES


def test_moves_out_of_a_byte_machine_go_with_their_scales() -> None:
    """They fill gaps only together with the LoadScale before them, and so does that one."""
    leave = lir.DataMove(True, Address(LOCAL, 8), Address(ACCUMULATORS, 0), 2, SCALED)
    enter = lir.DataMove(False, Address(LOCAL, 8), Address(ACCUMULATORS, 0), 2)
    scale = lir.LoadScale(Address(LOCAL, 1))
    found = rows_of(BYTES, leave, scale, leave, leave, enter, scale, enter)
    assert [row["fills"] for row in found] == [0, 1, 0, 0, 1, 0, 1]
    assert [row["joined"] for row in found] == [0, 0, CHAINED, CHAINED, 0, 0, 0]
    assert found[1]["read"] == (LOCAL, 1, SCALE_VECTORS) and found[1]["write"] is None
    table, = rows_of(BYTES, lir.LoadActivationTable(Address(LOCAL, 1), 1))
    assert table["read"] == (LOCAL, 1, TABLE_ENTRIES)


def test_paces_are_of_vectors_and_of_beats() -> None:
    """Half cycles; moves within the machine and registers' own operations have none of a port."""
    simd = lir.Simd(SimdOpcode.MOVE, 0, 0, 0, BOTH, Address(ACCUMULATORS, 2), Address(ACCUMULATORS, 2))
    load = lir.DataMove(True, Address(LOCAL, 3), Address(DRAM1, 9), 4)
    leave = lir.DataMove(True, Address(LOCAL, 3), Address(ACCUMULATORS, 9), 4, MOVED[True])
    arch = ARCH.replace(axi_data_width=8 * ARCH.vector_bytes)
    found = rows_of(arch, simd, load, leave, paces=Paces(np.full(3, 6), np.full(3, 3)))
    assert [row["cycles"] for row in found] == [3, 6, 4]


# -- starts ------------------------------------------------------------------------------------------------------------
def plain_starts(line: Timeline) -> tuple[list[int], list[int]]:
    """Start and end of every row, from what the interlock does: vector by vector, gap by gap."""
    rows = [dict(zip(COLUMNS, row.tolist(), strict=True)) for row in line.rows]
    names = {number: name for name, number in line.units.items()}
    held: dict[tuple[int, int, int, str], int] = {}  # memory, vector, unit, way -> until when
    free, gaps = dict.fromkeys(names, 0), {unit: [(0, 0)] * GAPS for unit in names}
    weights, taken = 0, -1
    starts, ends = [0] * len(rows), [0] * len(rows)

    def ranges(row: dict[str, int]) -> list[tuple[str, int, range]]:
        return [(way, row[way], range(row[f"{way}_first"], row[f"{way}_last"] + 1)) for way in ("read", "write")
                if row[way] >= 0]

    def ready(group: list[dict[str, int]], unit: int, own: bool) -> int:
        """When what a group touches is free of other units, or of its own one."""
        behind = group[-1]["latency"] if own else 0
        return max((until - behind for row in group for way, memory, vectors in ranges(row)
                    for (where, vector, other, done), until in held.items()
                    if (where, other == unit) == (memory, own) and vector in vectors and "write" in (way, done)),
                   default=0)

    def joined(first: int, kind: int) -> int:
        end = first + 1
        while end < len(rows) and rows[end]["joined"] == kind:
            end += 1
        return end

    def keep(unit: int, low: int, high: int) -> None:
        if high > low:
            gaps[unit][min(range(GAPS), key=lambda place: gaps[unit][place][1])] = low, high

    first = 0
    while first < len(rows):
        unit, fills, start = rows[first]["unit"], rows[first]["fills"], -1
        if fills:
            end = joined(first, CHAINED)
            group = rows[first:end]
            cycles = sum(row["cycles"] for row in group)
            soonest = ready(group, unit, False)
            if soonest < free[unit]:
                soonest = max(soonest, ready(group, unit, True))
                fit = [place for place, (low, high) in enumerate(gaps[unit]) if max(low, soonest) + cycles <= high]
                if fit:
                    place = min(fit, key=lambda place: gaps[unit][place][0])
                    low, high = gaps[unit][place]
                    start = max(low, soonest)
                    gaps[unit][place] = start + cycles, high
                    keep(unit, low, start)
        if start < 0:
            end = joined(first, JOINT)
            group = rows[first:end]
            soonest = ready(group, unit, False)
            if names[unit] == "mat_mul":
                soonest = max(soonest, weights)
            if names[unit] == "load_weight":
                soonest = max(soonest, taken + 1)
            if fills and joined(first, CHAINED) > end:
                soonest = max(soonest, ready(rows[first + 1:first + 2], unit, False) - rows[first]["cycles"])
            start = max(soonest, free[unit])
            if fills:
                keep(unit, free[unit], start)
            elif not rows[first]["joined"]:
                gaps[unit] = [(0, 0)] * GAPS
            free[unit] = start + sum(row["cycles"] for row in group)
        done = start + sum(row["cycles"] for row in group) + group[-1]["latency"]
        for row in group:
            for way, memory, vectors in ranges(row):
                for vector in vectors:
                    key = memory, vector, unit, way
                    held[key] = max(held.get(key, 0), done)
        starts[first:end], ends[first:end] = [start] * (end - first), [done] * (end - first)
        if names[unit] == "mat_mul":
            taken = start
        if names[unit] == "load_weight":
            weights = done
        first = end
    return starts, ends


class Scaled(LirMaker):
    """Programs of a byte machine: what leaves the accumulators has scales before it or not."""

    def data_move(self) -> list[Operation]:
        move, = super().data_move()
        assert isinstance(move, lir.DataMove)
        if move.far.memory != ACCUMULATORS:
            return [move]
        scale: list[Operation] = [lir.LoadScale(self.address(LOCAL, SCALE_VECTORS))] if self.below(3) else []
        return [*scale, *[move] * (1 + self.below(2))] if move.to_local else [move]

    def load_lut(self) -> list[Operation]:
        return self.data_move()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("arch", [ARCH, BYTES, ARCH.replace(dram_ports=SHARED)], ids=["words", "bytes", "one port"])
def test_starts_are_those_of_the_plain_definition(arch: Arch, seed: int) -> None:
    maker = Scaled(seed) if arch is BYTES else LirMaker(seed)
    line = Timeline(LirTable.of(maker.program(100)), arch)
    wanted = plain_starts(line)
    line.advance(line.starts.size)
    assert (line.starts.tolist(), line.done.tolist()) == wanted


@pytest.mark.parametrize("seed", range(3))
def test_moves_fill_gaps_as_the_plain_definition_does(seed: int) -> None:
    """Many short ones that wait for other units, so that a unit has more gaps than are kept."""
    random = np.random.default_rng(seed)
    arch = ARCH.replace(local_depth=256, accumulator_depth=256)

    def move(kind: int) -> Operation:
        size, near, far = (int(random.integers(1, end)) for end in (5, 250, 250))
        if kind == 3:
            return lir.DataMove(True, Address(LOCAL, near), Address(DRAM0, far), 1 + size % 2)
        if kind == 4:
            return lir.MatMul(Address(LOCAL, near), Address(ACCUMULATORS, far), size, ENTER)
        return lir.DataMove(kind < 2, Address(LOCAL, near), Address(ACCUMULATORS, far), size, MOVED[kind < 2])

    line = Timeline(LirTable.of([move(kind) for kind in random.integers(0, 5, 600).tolist()]), arch)
    wanted = plain_starts(line)
    line.advance(line.starts.size)
    assert (line.starts.tolist(), line.done.tolist()) == wanted


def test_a_timeline_goes_on_where_it_stopped() -> None:
    """With the same starts; a later beginning holds the first operation alone."""
    operations = [*LirMaker(1).mat_mul(), *LirMaker(2).load_weight(), *LirMaker(3).data_move()] * 4
    table = LirTable.of(operations)
    whole, parts = Timeline(table, ARCH).advance(12), Timeline(table, ARCH)
    for end in (1, 5, 6, 12):
        found = parts.advance(end)
    assert np.array_equal(found, whole)
    assert Timeline(table, ARCH).advance(12, 900)[0] == 900
    assert sorted(interleave(table, ARCH)) == list(range(12))


# -- layers together ---------------------------------------------------------------------------------------------------
def merged(monkeypatch: pytest.MonkeyPatch, arch: Arch, *given: tuple[list[int], list[Operation]]) -> list[int]:
    tables = [LirTable.of(operations) for _, operations in given]
    starts = {id(table): np.array(times) for table, (times, _) in zip(tables, given, strict=True)}
    monkeypatch.setattr(merge, "start_cycles", lambda table, arch: starts[id(table)])
    return merge.merged(tables[0], tables[1], arch).tolist()


def test_the_shorter_of_two_layers_is_spread_over_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer second one stays as it is. Each keeps its own order, whatever its starts."""
    load: Operation = lir.DataMove(True, Address(LOCAL, 3), Address(DRAM1, 9), 4)
    long, short = ([0, 10, 5, 30], [load] * 4), ([0, 4, 10], [load] * 3)
    assert merged(monkeypatch, ARCH, long, short) == [0, 4, 1, 2, 5, 3, 6]
    assert merged(monkeypatch, ARCH, short, long) == [0, 3, 1, 2, 4, 5, 6]
    assert merged(monkeypatch, ARCH, long, ([0], [load])) == [0, 4, 1, 2, 3]
    assert merged(monkeypatch, ARCH, long, ([], [])) == [0, 1, 2, 3]


def test_nothing_comes_between_what_leaves_a_unit_and_what_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIMD operations in a row; on a byte machine a LoadScale and all moves out behind it."""
    load: Operation = lir.DataMove(True, Address(LOCAL, 3), Address(DRAM1, 9), 4)
    leave: Operation = lir.DataMove(True, Address(LOCAL, 8), Address(ACCUMULATORS, 0), 2, SCALED)
    enter: Operation = lir.DataMove(False, Address(LOCAL, 8), Address(ACCUMULATORS, 0), 2)
    simd: Operation = lir.Simd(SimdOpcode.MOVE, 0, 0, 0, BOTH, Address(ACCUMULATORS, 2), None)
    other = [0, 5, 15, 25, 35, 45], [load] * 6

    def follows(arch: Arch, *operations: Operation) -> list[int]:
        """Where the operations of the first layer, due every ten cycles, come among those of the second."""
        count = len(operations)
        found = merged(monkeypatch, arch, ([10 * number for number in range(count)], [*operations]), other)
        return [sum(each >= count for each in found[:found.index(number)]) for number in range(count)]

    assert follows(ARCH, load, load, load, load) == [0, 2, 3, 4]
    assert follows(ARCH, simd, lir.SimdLoop(2, 1, BOTH), simd, load) == [0, 0, 0, 4]
    assert follows(BYTES, lir.LoadScale(Address(LOCAL, 1)), leave, leave, load) == [0, 0, 0, 4]
    assert follows(BYTES, lir.LoadScale(Address(LOCAL, 1)), leave, enter, leave) == [0, 0, 3, 4]
    assert follows(ARCH, leave, leave, leave, load) == [0, 2, 3, 4]


def test_operations_up_to_the_first_one_beyond_a_number() -> None:
    rows = MatMuls(np.zeros((3, len(Row._fields)), np.int64), 0, 0, 0)
    load: Operation = lir.DataMove(True, Address(LOCAL, 3), Address(DRAM1, 9), 4)
    emitted = [load, rows, load, load]
    assert [len(within(emitted, most)) for most in range(8)] == [1, 2, 2, 2, 3, 4, 4, 4]
