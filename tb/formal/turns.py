# SPDX-License-Identifier: Apache-2.0
"""Proofs of LoadWeight and MatMul in turn: weights are swapped in after they are loaded, and overwritten after that."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.array.load_two_rows_unit import LoadTwoRowsUnit
from weft.hw.array.load_weight_unit import LoadWeightUnit
from weft.hw.array.mat_mul_unit import MatMulUnit
from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY, ROWS_AHEAD
from weft.hw.contract.units import depths
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.operations import turns_layout
from weft.hw.parts.ports import local_read_port
from weft.hw.parts.walker import Walker
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, Inside, is_zero, ones, toggles
from weft.tb.formal.prove import BOUNDED, Proof

TWO_ROWS = SMALL.replace(weight_load_rows=2)


class Pair(wiring.Component):
    """Both units, joined as in the core. ``loads``, ``swaps``: a load is done, weights are swapped in."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            "load": In(stream.Signature(operation_layout(arch, "load_weight"))),
            "mat_mul": In(stream.Signature(operation_layout(arch, "mat_mul"))),
            "load_read": Out(local_read_port(arch)), "mat_mul_read": Out(local_read_port(arch)),
            **({"lower_read": Out(local_read_port(arch))} if arch.weight_load_rows == 2 else {}),
            "contended": In(1), "loads": Out(1), "swaps": Out(1),
        })

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.load_weight = load = (
            LoadTwoRowsUnit if self._arch.weight_load_rows == 2 else LoadWeightUnit)(self._arch)
        m.submodules.mat_mul = mat_mul = MatMulUnit(self._arch)
        for unit, operation, read in ((load, self.load, self.load_read), (mat_mul, self.mat_mul, self.mat_mul_read)):
            connect(m, flipped(operation), unit.operation)
            connect(m, unit.local_read, flipped(read))
        if self._arch.weight_load_rows == 2:
            connect(m, load.lower_read, flipped(self.lower_read))
        m.d.comb += [
            load.swapped.eq(mat_mul.swapped), mat_mul.loaded.eq(load.done), mat_mul.contended.eq(self.contended),
            self.loads.eq(load.done), self.swaps.eq(mat_mul.swapped),
        ]
        return m


class Waiting:
    """The operations of a unit that were issued and have not happened, the oldest first.

    For each it counts how many of the other unit's (not happened yet) come before it."""

    def __init__(self, harness: Harness, name: str, most: int) -> None:
        self.harness, self.most = harness, most
        self.count = Signal(range(most + 1), name=f"{name}_count")
        self.before = [Signal(range(most + 1), name=f"{name}_before{index}") for index in range(most)]

    def there(self, index: int) -> Value:
        return self.count > index

    def at(self, index: Value) -> Value:
        return Array(self.before)[index]

    def update(self, enters: Value, others: Value, leaves: Value, other_leaves: Value) -> None:
        """Let one enter behind ``others`` of the other unit, and the oldest of either unit leave."""
        m = self.harness.m
        entering = [enters & (self.count == index) for index in range(self.most)]
        now = [Mux(enter, others, before) for enter, before in zip(entering, self.before, strict=True)]
        less = [value - (other_leaves & (value != 0)) for value in now]
        m.d.sync += self.count.eq(self.count + enters - leaves)
        for index, before in enumerate(self.before):
            following = less[index + 1] if index + 1 < self.most else 0
            m.d.sync += before.eq(Mux(leaves, following, less[index]))


def load_at_work(inside: Inside) -> tuple[Value, Any]:
    """Return whether LoadWeight of one row a cycle works on an operation, and which."""
    layout = Walker.walked(operation_layout(SMALL, "load_weight"), ("local",))
    return inside("load_weight.walker.o__valid"), data.View(layout, inside("load_weight.walker.at")).operation


def swap_at_work(inside: Inside) -> tuple[Value, Any]:
    """Return whether MatMul works on an operation whose weights are not swapped in yet, and which."""
    operation = data.StructLayout({**operation_layout(SMALL, "mat_mul").members, "enters": 1})
    at = data.View(Walker.walked(operation, ("local", "accumulator")), inside("mat_mul.walker.at"))
    return inside("mat_mul.walker.o__valid") & at.first & at.operation.swap, at.operation


def turns(broken: Broken | None = None) -> Harness:
    """Prove the turns with one row of weights a cycle."""
    harness, block = Harness(), Pair(SMALL)
    inside = harness.block(block, latency=LOCAL_READ_LATENCY, broken=broken)
    loading, load = load_at_work(inside)
    loads, loaded, swapped = decoded(harness, block, inside, loading)
    harness.always(~inside("load_weight.taken") | (loads.there(0) & (loads.before[0] == 0)), "shifted_when_taken_over")
    # what keeps it true
    harness.always((inside("mat_mul.loads") == loaded) & (inside("load_weight.swaps") == swapped), "counted")
    harness.always(~loading | (loads.there(0) & (load.swaps == (swapped + loads.before[0])[0])), "load")
    return harness


def turns_of_two_rows(broken: Broken | None = None) -> Harness:
    """Prove the turns with two rows a cycle: the unit may hold several loads."""
    harness, block = Harness(), Pair(TWO_ROWS)
    inside = harness.block(block, latency=LOCAL_READ_LATENCY, broken=broken)
    loading = harness.count(block.load.valid & block.load.ready, block.loads, depths(SMALL, "load_weight").outstanding,
                            "loading")
    loads, _, _ = decoded(harness, block, inside, loading)
    harness.always(~inside("load_weight.shifts") | (loads.there(0) & (loads.before[0] == 0)), "shifted_when_taken_over")
    return harness


def rows_ahead(broken: Broken | None = None) -> Harness:
    """Prove that only the order of the rows can be full.

    All else has room for as many, and what leaves has arrived."""
    harness, block = Harness(), LoadTwoRowsUnit(TWO_ROWS)
    inside = harness.block(block, latency=LOCAL_READ_LATENCY, broken=broken)
    order, leaving = inside("order.level"), inside("shifting")[::2]
    harness.always(order <= ROWS_AHEAD, "order_holds_them")
    for part in ("upper", "lower"):
        sources, rows = (inside(f"{part}_{name}.level") for name in ("sources", "rows"))
        ahead, coming = (inside(f"{part}_{name}") for name in ("ahead", "coming"))
        harness.always(order == sources + ahead, f"{part}_in_order")
        harness.always(rows + ones(coming) == ahead + ones(leaving), f"{part}_rows_are_counted")
        harness.always((sources != ROWS_AHEAD) | (order == ROWS_AHEAD), f"{part}_room_to_ask")
        harness.always(~coming[-1] | (rows != ROWS_AHEAD), f"{part}_room_to_arrive")
        harness.always(~leaving[-1] | (rows != 0), f"{part}_there_to_leave")
    return harness


def decoded(harness: Harness, block: Pair, inside: Inside, loading: Value) -> tuple[Waiting, Signal, Signal]:
    """Put a decoder that counts in front of both units, with as many operations under way as the interlock allows.

    So many loads are ``loading`` in their unit. Return the loads that wait, and loads and swaps so far, modulo their
    widths."""
    m, most = harness.m, depths(SMALL, "load_weight").outstanding
    loads, swaps = Waiting(harness, "loads", most), Waiting(harness, "swaps", most)
    issue_load, issue_swap, fresh = Signal(name="issue_load"), Signal(name="issue_swap"), Signal(name="fresh", init=1)
    harness.free(Cat(issue_load, issue_swap), "issue")
    harness.assume(~(issue_load & issue_swap), "one_at_a_time")
    harness.assume(~issue_load | (loads.count < most), "room_for_a_load")
    harness.assume(~issue_swap | ((swaps.count < most) & fresh), "a_load_between_swaps")
    m.d.sync += fresh.eq(issue_load | (fresh & ~issue_swap))
    loads.update(issue_load, swaps.count, block.loads, block.swaps)
    swaps.update(issue_swap, loads.count, block.swaps, block.loads)
    width = turns_layout(SMALL)["loads"].width
    loaded, swapped = Signal(width, name="loaded"), Signal(name="swapped_so_far")
    m.d.sync += [loaded.eq(loaded + block.loads), swapped.eq(swapped ^ block.swaps)]
    takes_over, mat_mul = swap_at_work(inside)
    next_load, next_swap = block.load.payload, block.mat_mul.payload  # behind those that the units work on
    harness.assume(~block.load.valid | ((loads.count > loading)
                                        & (next_load.swaps == (swapped + loads.at(loading))[0])), "offered_load")
    harness.assume(~(block.mat_mul.valid & next_swap.swap)
                   | ((swaps.count > takes_over)
                      & (next_swap.loads == (loaded + swaps.at(takes_over))[:width])), "offered_swap")
    # what is promised
    harness.always(~block.swaps | (swaps.there(0) & (swaps.before[0] == 0)), "taken_over_when_loaded")
    # what keeps it true
    harness.always(~takes_over | (swaps.there(0) & (mat_mul.loads == (loaded + swaps.before[0])[:width])), "swap")
    newest = swaps.at((swaps.count - 1)[:len(swaps.count)])
    harness.always(~(fresh & swaps.there(0)) | (loads.count > newest), "a_load_behind_the_newest_swap")
    harness.always((loads.count <= most) & (swaps.count <= most), "counts")
    for index in range(most):
        for other in range(most):
            both = loads.there(index) & swaps.there(other)
            earlier = loads.before[index] <= other  # the load comes before that swap
            harness.always(~both | (earlier == (swaps.before[other] > index)), f"load{index}_swap{other}")
        harness.always(~loads.there(index) | (loads.before[index] <= swaps.count), f"load{index}_bound")
        harness.always(~swaps.there(index) | (swaps.before[index] <= loads.count), f"swap{index}_bound")
        if index:
            harness.always(~swaps.there(index) | (swaps.before[index] > swaps.before[index - 1]), f"apart{index}")
    return loads, loaded, swapped


PROOFS = [
    Proof("turns", "LoadWeightUnit and MatMulUnit: weights are taken over when all loads before are done, and rows are "
          "shifted in when all weights before are taken over; both units' reads keep the stream rules",
          turns, {"mat_mul.loads": toggles}),
    Proof("turns_two_rows", "LoadTwoRowsUnit and MatMulUnit: the same with two rows of weights a cycle",
          turns_of_two_rows, {"load_weight.swaps": toggles}, 9, BOUNDED),
    Proof("rows_ahead", "LoadTwoRowsUnit: there is room for every row that is asked for, and its order is known",
          rows_ahead, {"upper_ahead": is_zero}, LOCAL_READ_LATENCY + 2),
]
