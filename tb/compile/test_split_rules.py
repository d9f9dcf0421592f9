# SPDX-License-Identifier: Apache-2.0
"""Rules of several cores, each by itself: modes, boxes of a schedule, what goes from core to core, posts and waits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.cores import (
    AUTO,
    BATCH,
    LATENCY,
    SPLIT,
    THROUGHPUT,
    AssignedLayer,
    can_wait,
    check_choices_fit,
    check_cores,
)
from weft.compiler.errors import CompileError, Fault
from weft.compiler.layers.var import Part, Var
from weft.compiler.lir import DRAM0, DRAM1, LOCAL, Address, DataMove, Operation, Signal
from weft.compiler.memory.allocation import Kept
from weft.compiler.scheduler.emit import LayerEmitter
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.split import assigned
from weft.compiler.split.assigned import Match, _boxes, _by_shape, _joined, _nearest
from weft.compiler.split.exchange import Flows, boxes_of
from weft.compiler.split.order import common_starts
from weft.compiler.split.shares import Made, Way, _best, _own
from weft.compiler.split.sync import Dependency, dependencies, synchronised
from weft.compiler.split.touched import NOTHING, Touched
from weft.compiler.split.verify import turns_of
from weft.compiler.tiling.spans import Box
from weft.support.errors import WeftError
from weft.tb.compile.run_model import BASE
from weft.tb.compile.test_split import cores_of

THREE = cores_of(BASE.replace(array_size=4), 3)


# -- modes -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("cores", "counters", "waits"), [(1, 0, False), (1, 4, False), (2, 1, False), (2, 2, True),
                                                          (3, 2, False), (3, 4, True)])
def test_cores_wait_with_a_counter_for_each(cores: int, counters: int, waits: bool) -> None:
    arch: Any = SimpleNamespace(cores=cores, sync_counters=counters)
    assert can_wait(arch) == waits


@pytest.mark.parametrize(("mode", "goal", "cores", "counters", "said"), [
    (AUTO, THROUGHPUT, 1, 0, ""), (AUTO, LATENCY, 1, 0, ""), (BATCH, LATENCY, 2, 0, ""), (SPLIT, LATENCY, 2, 2, ""),
    (BATCH, LATENCY, 1, 0, "for a machine of one core"), (SPLIT, LATENCY, 1, 0, "for a machine of one core"),
    (SPLIT, LATENCY, 2, 1, "a machine with sync_counters 1"), ("pipeline", LATENCY, 2, 2, "which is not built"),
    ("one", LATENCY, 2, 2, "found one"), (AUTO, "power", 2, 2, "found power")])
def test_modes_and_goals(mode: str, goal: str, cores: int, counters: int, said: str) -> None:
    arch: Any = SimpleNamespace(cores=cores, sync_counters=counters)
    if not said:
        check_cores(mode, goal, arch)
        return
    with pytest.raises(WeftError, match=said):
        check_cores(mode, goal, arch)


@pytest.mark.parametrize(("mode", "goal", "counters", "option", "fits"), [
    (SPLIT, THROUGHPUT, 2, "--tune", False), (AUTO, LATENCY, 2, "--tune", False), (AUTO, LATENCY, 1, "--tune", True),
    (AUTO, THROUGHPUT, 2, "--tune", True), (BATCH, LATENCY, 2, "--tune", True), (SPLIT, LATENCY, 2, None, True)])
def test_choices_of_one_program_where_all_cores_may_share(mode: str, goal: str, counters: int, option: str | None,
                                                          fits: bool) -> None:
    arch: Any = SimpleNamespace(cores=2, sync_counters=counters)
    if fits:
        check_choices_fit(mode, goal, arch, option)
        return
    with pytest.raises(WeftError, match="choices for the program of one core"):
        check_choices_fit(mode, goal, arch, option)


# -- boxes of a schedule -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("position", "unit", "nearest"), [(0, 4, 0), (1, 4, 0), (2, 4, 1), (5, 4, 1), (6, 4, 2),
                                                           (7, 1, 7), (4, 3, 1), (5, 3, 2)])
def test_ends_go_to_the_nearest_tile(position: int, unit: int, nearest: int) -> None:
    assert _nearest(position, unit) == nearest


def test_boxes_of_a_core_are_one_box_together() -> None:
    entry = AssignedLayer("l", (8, 4, 4), True, ())
    low, high = Box((0, 1), (0, 4), (0, 2)), Box((0, 1), (0, 4), (2, 4))
    assert _joined(entry, 0, []) is None and _joined(entry, 0, [low, high]) == Box((0, 1), (0, 4), (0, 4))
    for wrong in (Box((0, 1), (0, 4), (3, 4)), Box((0, 1), (0, 4), (1, 4)), Box((1, 2), (0, 4), (2, 4))):
        with pytest.raises(CompileError, match="2 workloads that are no box together"):
            _joined(entry, 0, [low, wrong])


def test_a_layer_of_the_schedule_is_found_once_by_its_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    """In its order, with weights for a layer that multiplies. What has a name of ours is left for that."""
    monkeypatch.setattr(assigned, "_names", lambda layer: {layer.name})
    monkeypatch.setattr(assigned, "_size", lambda layer: (8, 4, 4))

    def layer(name: str, macs: int = 0) -> Any:
        return SimpleNamespace(name=name, macs=macs, pool=None)

    first, second, weighted, named = (AssignedLayer(name, (8, 4, 4), name == "w", ()) for name in ("p", "q", "w", "b"))
    other = AssignedLayer("o", (8, 4, 5), True, ())
    found: dict[int, Match] = {}
    layers = [layer("a"), layer("b"), layer("c", 9), layer("d"), layer("e", 9)]
    _by_shape(layers, [other, named, first, weighted, second], found)
    assert {number: match.entry.name for number, match in found.items()} == {0: "p", 1: "w", 3: "q"}


def test_boxes_are_of_cores_that_there_are_and_of_the_whole_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned, "whole_box", lambda layer, arch: Box((0, 2), (0, 4), (0, 2)))
    layer: Any = SimpleNamespace(output=SimpleNamespace(channels=8, size=(4, 2)))

    def boxes(*given: tuple[int, tuple[int, int], tuple[int, int]]) -> Any:
        entry = AssignedLayer("l", (8, 4, 2), True, tuple((core, span, rows, (0, 2)) for core, span, rows in given))
        return _boxes(Match(entry), layer, THREE)

    halves = boxes((0, (0, 8), (0, 2)), (2, (0, 8), (2, 4)))
    assert halves == ((Box((0, 2), (0, 2), (0, 2)), None, Box((0, 2), (2, 4), (0, 2))), 0)
    assert boxes((0, (0, 5), (0, 4)), (1, (5, 8), (0, 4)))[1] == 2
    with pytest.raises(CompileError, match="core 3, layer 'l': found a core of a larger mesh; allowed: cores 0..2"):
        boxes((0, (0, 8), (0, 2)), (3, (0, 8), (2, 4)))
    with pytest.raises(CompileError, match="boxes that are not the whole ofmap"):
        boxes((0, (0, 8), (0, 2)), (1, (0, 8), (2, 3)))


# -- from core to core -------------------------------------------------------------------------------------------------
X, Y, Z = (Var(name, 8, 4, 3) for name in "xyz")


def rows(low: int, high: int, tiles: tuple[int, int] = (0, 2)) -> Box:
    return Box(tiles, (low, high), (0, 3))


def test_boxes_make_up_a_mask() -> None:
    random = np.random.default_rng(1)
    for _ in range(20):
        mask = random.random((2, 4, 3)) < 0.6
        found = np.zeros(mask.shape, int)
        for box in boxes_of(mask):
            found[slice(*box.tiles), slice(*box.rows), slice(*box.columns)] += 1
        assert np.array_equal(found, mask.astype(int))


def test_a_core_takes_each_vector_of_others_once_and_leaves_what_they_read() -> None:
    """Core 0 makes rows 0 and 1 of y, core 1 the others; core 0 reads a row more twice, core 1 all of z, core 2
    nothing but x."""
    flows = Flows([
        [Touched(((X, rows(0, 3)),), ((Y, rows(0, 2)),)), Touched(((Y, rows(0, 3)),), ((Z, rows(0, 2)),)),
         Touched(((Y, rows(1, 3)),), ())],
        [Touched(((X, rows(1, 4)),), ((Y, rows(2, 4)),)), Touched(((Y, rows(2, 4)),), ((Z, rows(2, 4)),)),
         Touched(((Z, rows(0, 4)),), ())],
        [NOTHING, NOTHING, Touched(((X, rows(3, 4)),), ())]], [X, Y, Z], 4)
    first, second, third = (flows.exchanges(core, ["y", "z"]) for core in range(3))
    assert [each.imports for each in first] == [(), ((Y, rows(2, 3, (0, 1))), (Y, rows(2, 3, (1, 2)))), ()]
    assert [each.exports for each in first] == [{"y": ()}, {"z": (rows(0, 2),)}, {}]
    assert [each.imports for each in second] == [(), (), ((Z, rows(0, 2, (0, 1))), (Z, rows(0, 2, (1, 2))))]
    assert [each.exports for each in second] == [{"y": (rows(2, 3),)}, {"z": ()}, {}]
    assert [(each.imports, each.exports) for each in third] == [((), {})] * 3
    assert flows.kept(0) == {"x": Kept(0, 2, 0, 9), "y": Kept(0, 2, 0, 9), "z": Kept(0, 2, 0, 6)}
    assert flows.kept(2) == {"x": Kept(0, 2, 9, 3)}
    # what is not resident is saved whole, and loaded where it is read
    only = [(each.imports, each.exports) for each in flows.exchanges(0, ["z"])]
    assert only == [((), {}), ((), {"z": (rows(0, 2),)}), ((), {})]


class Moved(LayerEmitter):
    """The emission of a layer that computes nothing: one operation a step, and those that load what others made."""

    def __init__(self, inputs: list[Var], core: Var, imports: list[tuple[Var, Box]], steps: list[Box]) -> None:
        self.layer: Any = SimpleNamespace(inputs=inputs, core=SimpleNamespace(input=core))
        self.imports, self.operand = imports, None  # type: ignore[assignment]
        self.steps = [SimpleNamespace(input_tile=box) for box in steps]  # type: ignore[misc]
        self.free: Any = SimpleNamespace(hold=lambda buffer: None, release=lambda buffer: None)
        self.registers = None  # type: ignore[assignment]
        self.loader: Any = SimpleNamespace(
            operands=lambda *_: iter(()), sizes=lambda step: {}, endings=lambda needs: [[] for _ in needs],
            prepare=lambda step, sizes: step, loads=[], release=lambda keys: None)

    def _compute(self, prepared: Any) -> Any:
        yield "step"

    def _transfer(self, to_local: bool, box: Box, var: Var) -> Any:
        assert to_local
        yield f"{var.name} {box.rows[0]}"


@pytest.mark.parametrize(("inputs", "order"), [
    ([X], "x 0, step, x 2, step, x 3"), ([X, Y], "y 0, x 0, step, x 2, step, x 3"),
    ([X, X], "x 3, x 0, x 2, step, step"),
    ([X, Var("p", 4, 4, 3, Part("x", 0, 0, 3, 1, 12))], "x 3, x 0, x 2, step, step")])
def test_what_others_made_is_loaded_before_the_first_step_that_reads_it(inputs: list[Var], order: str) -> None:
    """Before the first step of all if another input needs it too; what no step reads comes last, for later layers."""
    made = [(X, rows(3, 4)), *((Y, rows(0, 1)) for var in inputs if var is Y), (X, rows(0, 1)), (X, rows(2, 3))]
    moved = Moved(inputs, X, [*made], [rows(0, 2), rows(1, 3)])
    moved.operand = SimpleNamespace(base=0)  # type: ignore[assignment]
    operations: Any = moved.operations()
    assert ", ".join(operations) == order


def test_vectors_that_a_core_has_made_itself() -> None:
    """By rows and tiles of another part of the root; columns count where it is the same Var."""
    half = Var("h", 4, 4, 3, Part("y", 1, 0, 3, 1, 12))
    small = Var("s", 8, 2, 3)
    box = Box((0, 2), (1, 4), (0, 2))

    def own(var: Var, made: Box | None, core: int = 0) -> float:
        return _own([Made(var, (made, None))], core, Y, box)

    assert own(Y, rows(0, 2)) == 1 * 2 * 2 and own(Y, Box((0, 1), (0, 4), (1, 3))) == 3 * 1 * 1
    assert own(Y, None) == own(Y, rows(0, 4), 1) == 0 and own(Y, rows(0, 1)) == 0
    assert own(half, Box((0, 1), (0, 4), (0, 1))) == 3 * 1 * 2
    assert own(small, Box((0, 2), (1, 2), (0, 3))) == 2 * 2 * 2
    assert _own([Made(Y, (rows(0, 2),)), Made(Y, (rows(0, 4),))], 0, Y, box) == box.vectors


def test_of_ways_that_go_on_alike_the_cheapest_stays() -> None:
    """Roots that nobody needs again make no difference."""
    def way(cost: float, **made: Box) -> Way:
        return Way((), cost, {root: (Made(Y, (box,)),) for root, box in made.items()})

    ways = way(3, y=rows(0, 2)), way(2, y=rows(0, 2), z=rows(0, 1)), way(5, y=rows(1, 2)), way(1, y=rows(0, 1))
    found = _best(ways, {"y"})
    assert [each.cost for each in found] == [1, 2, 5] and all(each.made.keys() == {"y"} for each in found)


# -- posts and waits ---------------------------------------------------------------------------------------------------
def save(at: int, size: int = 1) -> DataMove:
    return DataMove(False, Address(LOCAL, 0), Address(DRAM0, at), size)


def load(at: int, size: int = 1) -> DataMove:
    return DataMove(True, Address(LOCAL, 0), Address(DRAM0, at), size)


def schedule(*operations: Operation, layers: list[int] | None = None) -> Schedule:
    return Schedule.of(operations, np.array(layers or [0] * len(operations), np.int64))


def test_moves_of_other_cores_keep_their_order_where_one_of_them_saves() -> None:
    """A load waits for the save before it, a save for the loads since and for the save before it; loads never for
    loads, and nothing for its own core."""
    found = dependencies([
        schedule(save(0, 2), save(4), load(0), save(8), layers=[0, 0, 2, 3]),
        schedule(load(1), load(4), save(0, 2), layers=[1, 1, 3]),
        schedule(load(0, 2), load(1), save(8), layers=[2, 4, 4])])
    assert found == [[], [Dependency(0, 0, 0), Dependency(0, 1, 1), Dependency(2, 0, 2), Dependency(0, 2, 2),
                          Dependency(0, 0, 2)],
                     [Dependency(0, 0, 0), Dependency(1, 2, 1), Dependency(0, 3, 2)]]


def test_a_read_that_a_save_has_followed_is_waited_for_no_more() -> None:
    found = dependencies([schedule(load(0), layers=[0]), schedule(save(0), layers=[1]),
                          schedule(save(0), layers=[2])])
    assert found == [[], [Dependency(0, 0, 0)], [Dependency(1, 0, 0)]]


def test_a_chunk_has_one_post_for_all_that_wait_for_it() -> None:
    """Behind the last of its moves that others need, over the vectors of these. A later wait serves for an earlier
    chunk too."""
    zero = schedule(save(0), save(1), save(2), layers=[0, 0, 0])
    one, two = (schedule(load(at), layers=[1]) for at in (0, 1))
    first, second, third = (each.operations for each in synchronised([zero, one, two]))
    assert first == (save(0), save(1), Signal(False, 0, 0b110, Address(DRAM0, 0), 2), save(2))
    assert second == (Signal(True, 0, 1, Address(DRAM0, 0), 1), load(0))
    assert third == (Signal(True, 0, 1, Address(DRAM0, 1), 1), load(1))
    both = synchronised([schedule(save(0), save(1)), schedule(load(1), load(0), layers=[1, 1])])[1].operations
    assert both == (Signal(True, 0, 1, Address(DRAM0, 0), 2), load(1), load(0))
    late = schedule(load(2), load(0), layers=[1, 1])
    first, second = (each.operations for each in synchronised([
        schedule(save(0), save(2), layers=[0, 1]), schedule(load(2), load(0), layers=[2, 2])]))
    assert [each for each in first if isinstance(each, Signal)] == [Signal(False, 0, 0b10, Address(DRAM0, 0), 3)]
    assert second == (Signal(True, 0, 1, Address(DRAM0, 0), 3), *late.operations)


def signals(*given: tuple[bool, int, int]) -> Schedule:
    return schedule(*(Signal(wait, counter, above, Address(DRAM0, 0), 1) for wait, counter, above in given))


def test_cores_run_in_turns_up_to_waits_that_are_not_filled() -> None:
    """A wait takes as many posts as it says."""
    twice = [signals((False, 0, 0b10), (False, 0, 0b10)), signals((True, 0, 2))]
    assert [turn[:] for turn in turns_of([twice[1], twice[0]][::-1], THREE)] == [(0, 0, 2), (1, 0, 1)]
    with pytest.raises(Fault, match="core 1, operation 0: a wait that no post fills"):
        turns_of([signals((False, 0, 0b10)), twice[1]], THREE)
    with pytest.raises(Fault, match="posts that no core waits for"):
        turns_of([twice[0], signals((True, 0, 1))], THREE)
    with pytest.raises(Fault, match="core 0, operation 0: a wait that no post fills"):
        turns_of([signals((True, 1, 1), (False, 0, 0b10)), signals((True, 0, 1), (False, 1, 0b1))], THREE)


def test_a_wait_starts_when_the_last_of_its_posts_has_ended() -> None:
    slow = schedule(Signal(False, 0, 0b10, Address(DRAM1, 0), 1), save(0, 50),
                    Signal(False, 0, 0b10, Address(DRAM0, 0), 50))
    posts, (one, _) = common_starts([slow, signals((True, 0, 1), (True, 0, 1))], THREE)
    again, (two,) = common_starts([slow, signals((True, 0, 2))], THREE)
    assert np.array_equal(posts, again) and posts[2] >= 50 and one < 50 and two > posts[2]


def test_a_wait_for_two_posts_starts_behind_both() -> None:
    """The second one comes when another core has posted."""
    slow = schedule(save(0, 60), Signal(False, 2, 0b10, Address(DRAM0, 0), 60))
    found = common_starts([signals((True, 1, 2)), signals((False, 1, 1), (True, 2, 1), (False, 1, 1)), slow], THREE)
    assert found[0][0] > found[1][2] > found[2][1] >= 60
