# SPDX-License-Identifier: Apache-2.0
"""The interlock: no operation starts before what it conflicts with is done, none waits without need, all start."""

from __future__ import annotations

from functools import cache
from itertools import product
from random import Random
from typing import Any

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.contract.units import depths, unit_names
from weft.hw.control.interlock import Interlock
from weft.hw.control.issue import issue_layout
from weft.hw.parts.operations import SimdKind
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.hazards import CELLS, TOUCHES, UNIT_OF_ACCESS, Touch
from weft.tb.bench.issue_model import (
    FREE_LATENCY,
    WINDOWS,
    Issued,
    IssueSource,
    Units,
    find_waits,
    known,
    operation_layouts,
)

ARCH = Arch.load("tiny").replace(array_size=3, local_depth=50, accumulator_depth=23, dram0_depth=200, dram1_depth=99,
                                 lut_count=1, simd_registers_depth=2, dram_ports=SEPARATE)
MACHINES = {"separate": ARCH, "shared": ARCH.replace(dram_ports=SHARED),
            "signals": ARCH.replace(dram_ports=SHARED, cores=2, sync_counters=3)}
"""DRAM ports apart and shared, and a unit for Signals beside these."""
on_both = pytest.mark.parametrize("machine", MACHINES)
DEPTHS = {"local": 50, "accumulator": 23, "dram0": 200, "dram1": 99}
FAR = {"mat_mul": "accumulator", "move_out": "accumulator", "move_in": "accumulator", "dram0_read": "dram0",
       "dram0_write": "dram0", "dram1_read": "dram1", "dram1_write": "dram1"}


class Maker:
    """Random programs of decoded instructions whose ranges often touch, just miss, or contain each other."""

    def __init__(self, seed: int, longest: int = 12, machine: str = "separate") -> None:
        self.rng, self.longest, self.arch = Random(seed), longest, MACHINES[machine]
        self.units = unit_names(self.arch)
        self.program: list[Issued] = []
        self.loops = 0

    def range(self, memory: str) -> tuple[int, int]:
        depth = DEPTHS[memory]
        first = self.rng.randrange(depth)
        return first, min(depth - 1, first + self.rng.choice([0, 0, 1, self.rng.randrange(self.longest)]))

    def add(self, unit: str, range0=None, range1=None, *, accumulators0: bool = False, **fields: Any) -> Issued:
        rng = self.rng
        numbers = {"size_m1": rng.randrange(16), "rows_m1": rng.randrange(8), "flags": rng.randrange(16),
                   "input_shift": rng.randrange(32), "output_shift": rng.randrange(32), "cache": rng.randrange(16),
                   "sub": rng.getrandbits(8), "table": rng.randrange(2),
                   "turns": {"loads": rng.randrange(4), "swaps": rng.randrange(2)}}
        operands = {}
        for index, span in enumerate((range0, range1)):
            noise = rng.randrange(20), rng.randrange(20)  # of an operand that is no range
            first, last = span or noise
            operands[f"operand{index}"] = {"base": first, "last": last, "stride_log2": rng.randrange(8),
                                           "pitch": rng.randrange(16)}
        valid = {"local0": range0 is not None and not accumulators0,
                 "accumulators0": range0 is not None and accumulators0, "range1": range1 is not None}
        if unit in ("dram_read", "dram_write", "sync"):
            fields.setdefault("dram1", 0)
        if unit == "sync":
            fields.setdefault("target", 0x12345)
        fields = {"unit": {unit: 1}, "program_counter": len(self.program) * 0x1234567 % (1 << 32),
                  **numbers, **operands, **valid, **fields}
        issued = Issued(unit, fields, range0, accumulators0, range1)
        self.program.append(issued)
        return issued

    def one(self, unit: str) -> None:
        chance = self.rng.random
        if unit == "simd":
            self.simd() if chance() < 0.6 else self.loop() if chance() < 0.7 else self.add(
                "simd", self.range("local"), simd_kind=SimdKind.LOAD_LUT)
        elif unit == "load_weight":
            self.add(unit, self.range("local") if chance() < 0.8 else None)
        elif unit == "mat_mul":
            self.add(unit, self.range("local") if chance() < 0.8 else None, self.range("accumulator"),
                     swap=self.rng.randrange(2))
        elif unit == "sync":
            dram1 = self.rng.randrange(2)
            self.add(unit, None, self.range(f"dram{dram1}"), dram1=dram1, target=self.rng.getrandbits(20))
        elif unit in FAR:
            self.add(unit, self.range("local"), self.range(FAR[unit]))
        else:
            dram1 = self.rng.randrange(2)
            self.add(unit, self.range("local"), self.range(f"dram{dram1}"), dram1=dram1)

    def simd(self, **fields: Any) -> Issued:
        rng = self.rng
        return self.add("simd", self.range("accumulator") if rng.random() < 0.7 else None,
                        self.range("accumulator") if rng.random() < 0.7 else None, accumulators0=True,
                        simd_kind=SimdKind.INSTRUCTION, **fields)

    def loop(self) -> None:
        body = self.rng.choice([1, 2, 3, 12])
        self.add("simd", simd_kind=SimdKind.LOOP, body_m1=body - 1)
        for left in range(body, 0, -1):
            self.simd(in_loop=1, loop_last=left == 1).loop = self.loops
        self.loops += 1


def expected(issued: Issued) -> dict[str, Any]:
    """The unit's operation, from the decoded instruction."""
    fields, unit = issued.fields, issued.unit
    bit = [fields["flags"] >> k & 1 for k in range(4)]
    walks = [{key: fields[f"operand{k}"][key] for key in ("base", "stride_log2", "pitch")} for k in (0, 1)]
    tile = {"size_m1": fields["size_m1"], "rows_m1": fields["rows_m1"], "local": walks[0]}
    far = {**tile, "accumulator": walks[1]}
    if unit == "load_weight":
        last = {**walks[0], "base": fields["operand0"]["last"], "pitch": 0}
        return {**tile, "rows_m1": 0, "local": last, "zeroes": bit[0], "zero_bias": bit[1],
                "swaps": fields["turns"]["swaps"]}
    if unit == "mat_mul":
        return {**far, "accumulate": bit[0], "zeroes": bit[1], "swap": fields["swap"],
                "loads": fields["turns"]["loads"], "input_shift": fields["input_shift"]}
    if unit == "sync":
        return {"wait": bit[0], "target": fields["target"]}
    if unit == "move_out":
        return {**far, "relu": bit[1], "output_shift": fields["output_shift"]}
    if unit == "move_in":
        return {**far, "accumulate": bit[1], "input_shift": fields["input_shift"]}
    if unit != "simd":
        place: dict[str, Any] = {name: fields[name] for name in ("cache", "dram1") if name in fields}
        window = WINDOWS[fields.get("dram1", int(unit.startswith("dram1")))]
        return {**tile, "dram": walks[1], "window": window, **place}
    width, accumulator_bits = 2, (1 << ARCH.accumulator_address_width) - 1
    sub = fields["sub"]
    return {
        "kind": fields["simd_kind"].value, "read": bit[0], "write": bit[1], "accumulate": bit[2], "hold": bit[3],
        "write_address": walks[0]["base"] & accumulator_bits, "write_stride_log2": walks[0]["stride_log2"],
        "read_address": walks[1]["base"] & accumulator_bits, "read_stride_log2": walks[1]["stride_log2"],
        "destination": sub & 3, "right": sub >> width & 3, "left": sub >> 2 * width & 3, "opcode": sub >> 3 * width,
        "input_shift": fields["input_shift"], "output_shift": fields["output_shift"], "table": fields["table"],
        "iterations_m1": fields["size_m1"], "body_m1": fields.get("body_m1", 0),
        "local_base": walks[0]["base"], "local_stride_log2": walks[0]["stride_log2"],
    }


def run(maker: Maker, rng: Random, *, give: float = 1.0, take: float = 1.0, busy_cycles: int = 1) -> None:
    program, arch = maker.program, maker.arch
    find_waits(program)
    units = Units(arch, program, operation_layouts(arch), expected, rng, busy_cycles, take)
    issue = IssueSource(program, issue_layout(arch), units, rng, give)
    bench(arch).run(units, issue, cycles=400 + 60 * len(program) * busy_cycles)


@cache
def bench(arch: Arch) -> Bench:
    return Bench(Interlock(arch, operation_layouts(arch)))


@pytest.mark.wide_cases("shared-*", "separate-3-*", "separate-25-1-1-1", "separate-25-0.3-1-3",
                        "separate-25-1-0.9-40", "signals-3-*")
@pytest.mark.parametrize(("give", "take", "busy_cycles"), ((1, 1, 1), (1, 1, 12), (0.6, 0.5, 6), (1, 0.9, 40),
                                                           (0.3, 1, 3)))
@pytest.mark.parametrize("longest", (3, 25))
@on_both
def test_conflicts_wait_all_else_runs(machine: str, longest: int, give: float, take: float, busy_cycles: int) -> None:
    """All units at random: long enough for every counter and pointer to wrap many times."""
    maker = Maker(61 + busy_cycles, longest, machine)
    while len(maker.program) < 160:
        maker.one(maker.rng.choice(maker.units))
    run(maker, maker.rng, give=give, take=take, busy_cycles=busy_cycles)


@pytest.mark.parametrize(("machine", "left"), [(machine, unit) for machine, arch in MACHINES.items()
                                               for unit in unit_names(arch)])
def test_each_pair_of_units_in_both_orders(machine: str, left: str) -> None:
    """Two units alone, so that their queues fill and every conflict of the pair decides."""
    maker = Maker(62, 20, machine)
    for right in maker.units:
        for _ in range(6):
            maker.one(maker.rng.choice((left, right)))
    run(maker, maker.rng, take=0.9, busy_cycles=8)


ELDER = (8, 12)
MEETING, APART = ((8, 12), (12, 13), (7, 8), (10, 10), (7, 13)), ((13, 14), (6, 7))
"""Ranges of the younger operation: with an address of the elder's, at its ends too, and next to it."""
ELSEWHERE = {0: ((0, 1), (2, 3)), 1: ((16, 17), (18, 19))}
"""By operand, ranges of the elder and of the younger in what the case is not about."""


class Longest(Random):
    """Random numbers that are none: every operation takes its longest time, and is taken at once."""

    def random(self) -> float:
        return 0.0

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert (stop, step) == (None, 1)
        return start - 1


def access(maker: Maker, name: str, touch: Touch, span: tuple[int, int], younger: int) -> Issued:
    """An operation with ``touch`` at ``span``; its other operand lies where nothing else does."""
    ranges: list[tuple[int, int] | None] = [None, None]
    for other in TOUCHES[name]:
        ranges[other.operand] = span if other == touch else ELSEWHERE[other.operand][younger]
    place = {"dram1": int(name.endswith("1"))} if touch.unit in ("dram_read", "dram_write", "sync") else {}
    kinds = {"load_lut": SimdKind.LOAD_LUT, "simd_write": SimdKind.INSTRUCTION, "simd_read": SimdKind.INSTRUCTION}
    return maker.add(touch.unit, *ranges, accumulators0=name == "simd_write", simd_kind=kinds.get(name, 0), swap=0,
                     **place)


def accesses_of(machine: str) -> list[str]:
    """Rows of the table that this machine has."""
    return [name for name in TOUCHES if UNIT_OF_ACCESS.get(name, name) in unit_names(MACHINES[machine])]


@pytest.mark.wide_cases("shared-m*", "shared-s*", "shared-l*", "*-load_weight", "*-simd_read", "*-move_in",
                        "*-dram?_read", "shared-dram_read?", "signals-m*", "signals-l*", "signals-si*", "signals-d*")
@pytest.mark.parametrize(("machine", "left"), [(machine, left) for machine in MACHINES
                                               for left in accesses_of(machine)])
def test_each_pair_of_accesses_keeps_its_order_exactly_where_the_table_says_so(machine: str, left: str) -> None:
    """An elder and a younger operation in turn, the elder a long one: the younger waits until it is done, or not."""
    for ours, right in product(TOUCHES[left], accesses_of(machine)):
        for theirs in TOUCHES[right]:
            if theirs.memory != ours.memory or theirs.unit == ours.unit:
                continue
            conflict = ours.memory in CELLS[left, right]
            for spans, meet in ((MEETING, True), (APART, False)) if conflict else (((*MEETING, *APART), False),):
                maker = Maker(68, machine=machine)
                pairs = [(access(maker, left, ours, ELDER, 0), access(maker, right, theirs, span, 1)) for span in spans]
                run(maker, Longest(0), busy_cycles=12)
                waits = [known(younger.offered) > known(elder.done) for elder, younger in pairs]
                assert waits == [meet] * len(spans), (ours, theirs, spans)


def test_operations_on_ranges_that_only_touch_do_not_wait() -> None:
    """Neighbouring ranges of one memory, no address in common: everything is offered at the free latency."""
    maker = Maker(65)
    for k in range(40):
        maker.add("dram0_read", (10 * (k % 4), 10 * (k % 4) + 4), (0, 50))
        maker.add("move_out", (10 * (k % 4) + 5, 10 * (k % 4) + 9), (0, 11))
        maker.add("move_in", (40, 49), (12, 22))
        maker.add("dram0_write", (40, 49), (51, 199))
    run(maker, maker.rng, busy_cycles=1)
    assert all(known(each.offered) - known(each.issued) == FREE_LATENCY[each.unit] for each in maker.program)


def test_a_later_operation_waits_for_the_whole_loop() -> None:
    """Ranges of the first body instruction count until the last one is done, and not beyond; those of the last too."""
    maker = Maker(66)
    for read, write in (((3, 4), (8, 9)), ((21, 21), (14, 14))) * 3:
        maker.add("simd", simd_kind=SimdKind.LOOP, body_m1=2)
        for left, ours in ((3, ((3, 5), None)), (2, (None, (8, 9))), (1, ((20, 21), (14, 14)))):
            maker.add("simd", *ours, accumulators0=True, in_loop=1, loop_last=left == 1,
                      simd_kind=SimdKind.INSTRUCTION).loop = maker.loops
        maker.loops += 1
        maker.add("move_out", (0, 2), read)
        maker.add("move_in", (30, 31), write)
    run(maker, maker.rng, busy_cycles=20)


@on_both
def test_every_unit_can_fill_its_queue_and_its_tracker(machine: str) -> None:
    """The first operation takes long: the rest wait, `ready` falls exactly when there is no room, and all ends well."""
    for unit in unit_names(MACHINES[machine]):
        maker = Maker(67, machine=machine)
        room = depths(MACHINES[machine], unit)
        for _ in range(room.outstanding + 2 * room.queue):
            maker.one(unit)
        run(maker, maker.rng, take=0.2, busy_cycles=12)
