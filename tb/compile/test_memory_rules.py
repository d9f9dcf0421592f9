# SPDX-License-Identifier: Apache-2.0
"""Rules of memory, each by itself with numbers by hand: allocations, live ranges, stripes, shares, and their check."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.choices import Choices
from weft.compiler.errors import CompileError, Fault
from weft.compiler.layers.var import Part, Var
from weft.compiler.memory import sharing, stripes, variables
from weft.compiler.memory.allocation import Allocation, DramAddress, first_fit
from weft.compiler.memory.plan import MemoryPlan, with_tilings
from weft.compiler.memory.stripes import Stripes, extended
from weft.compiler.memory.variables import LiveRange, live_ranges, place_variables, spread_vectors
from weft.compiler.memory.verifier import verify_allocations, verify_live_ranges
from weft.compiler.tiling.shape import LayerShape
from weft.hw.contract.arch import Arch

ARCH = Arch.load("tiny").replace(array_size=4)


def place(base: int, size: int, first: int = 0, last: int = 9, name: str = "t") -> Allocation:
    return Allocation(name, base, size, first, last)


@pytest.mark.parametrize(("first", "last", "meets"), [(0, 2, False), (0, 3, True), (4, 4, True), (5, 9, True),
                                                      (6, 9, False)])
def test_both_ends_of_a_life_count(first: int, last: int, meets: bool) -> None:
    assert place(0, 1, 3, 5).meets(first, last) == meets
    assert place(0, 4, 3, 5).overlaps(place(3, 4, first, last)) == meets
    assert not place(0, 4, 3, 5).overlaps(place(4, 4, first, last))


@pytest.mark.parametrize("seed", range(6))
def test_the_lowest_base_at_which_all_vectors_are_free(seed: int) -> None:
    """Against one that asks vector by vector; holes that just fit are taken."""
    random = np.random.default_rng(seed)
    placed: list[Allocation] = []
    for number in range(40):
        size, (first, last) = int(random.integers(1, 5)), sorted(random.integers(0, 6, 2).tolist())
        layers = range(first, last + 1)
        taken = {vector for other in placed if any(other.first <= layer <= other.last for layer in layers)
                 for vector in range(other.base, other.base + other.size)}
        wanted = next(base for base in range(500) if not taken & {*range(base, base + size)})
        assert first_fit(placed, size, first, last) == wanted
        placed.append(place(wanted, size, first, last, f"t{number}"))
    verify_allocations(placed, max(each.base + each.size for each in placed), "memory")


@pytest.mark.parametrize(("places", "said"), [
    ([place(0, 4), place(4, 4)], ""), ([place(-1, 4)], "lies outside 0..7"), ([place(5, 4)], "lies outside 0..7"),
    ([place(0, 4), place(4, 4), place(3, 1)], "overlaps"), ([place(0, 4, 0, 2), place(3, 4, 3, 5)], ""),
    ([place(0, 4, 0, 3), place(3, 4, 3, 5)], "overlaps")])
def test_allocations_lie_within_their_memory_and_apart(places: list[Allocation], said: str) -> None:
    if not said:
        verify_allocations(places, 8, "memory")
        return
    with pytest.raises(Fault, match=said):
        verify_allocations(places, 8, "memory")


def test_channel_tiles_take_turns_where_they_are_striped() -> None:
    both, one, other = DramAddress(10, 100), DramAddress(10), DramAddress(None, 100)
    assert [str(both.address(tile, 3)) for tile in range(4)] == ["dram0[10]", "dram1[100]", "dram0[13]", "dram1[103]"]
    assert both.runs((1, 3)) == [(1, 2), (2, 3)] and one.runs((1, 3)) == other.runs((1, 3)) == [(1, 3)]
    assert (str(one.address(2, 3)), str(other.address(2, 3))) == ("dram0[16]", "dram1[106]")


@pytest.mark.parametrize(("channels", "vectors"), [(4, 6), (8, 6), (12, 6), (16, 12)])
def test_what_is_spread_has_its_odd_tiles_or_its_only_one_in_dram1(channels: int, vectors: int) -> None:
    assert spread_vectors(Var("x", channels, 2, 3), 4) == vectors


# -- live ranges -------------------------------------------------------------------------------------------------------
def layers(*given: tuple[str, str]) -> list[Any]:
    """Layers that read and write Vars of these names."""
    return [SimpleNamespace(name=f"l{number}", inputs=[Var(name, 4, 1, 1) for name in reads],
                            outputs=[Var(name, 4, 1, 1) for name in writes]) for number, (reads, writes) in
            enumerate(given)]


def lives(network: list[Any], monkeypatch: pytest.MonkeyPatch, together: dict[int, int] | None = None,
          keep: bool = False) -> dict[str, tuple[int, int, bool]]:
    monkeypatch.setattr(variables, "beside", lambda *_: together or {})
    names = {var.name for layer in network for var in (*layer.inputs, *layer.outputs)}
    graph: Any = SimpleNamespace(shapes=dict.fromkeys(names, (1, 4, 1, 1)), output_tensors=lambda: frozenset("y"),
                                 inputs=[SimpleNamespace(tensor="x")])
    return {life.name: (life.first, life.last, life.fixed) for life in live_ranges(graph, network, ARCH, keep)}


def test_a_var_lives_from_its_first_writer_to_its_last_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inputs and outputs live to the end; what nobody reads lives while it is made, what two layers write from the
    first of them on."""
    network = layers(("x", "a"), ("xa", "b"), ("a", "by"), ("b", "c"))
    assert lives(network, monkeypatch) == {"x": (-1, 4, True), "a": (0, 2, False), "b": (1, 3, False),
                                           "y": (2, 4, True), "c": (3, 3, False)}
    assert lives(network, monkeypatch, keep=True)["a"] == (0, 4, True)
    # layers 1 and 2 run beside layer 0: all three begin and end together
    found = lives(network, monkeypatch, {1: 0, 2: 0})
    assert (found["a"], found["b"], found["c"]) == ((0, 2, False), (0, 3, False), (3, 3, False))


def test_a_layer_uses_only_what_has_a_place_while_it_runs() -> None:
    network = layers(("x", "a"), ("a", "y"))
    good = {"x": place(0, 1, 0, 0), "a": place(1, 1, 0, 1), "y": place(2, 1, 1, 1)}
    verify_live_ranges(network, good)
    for name, wrong in (("a", place(1, 1, 1, 1)), ("a", place(1, 1, 0, 0)), ("x", place(0, 1, 1, 1)), ("y", None)):
        with pytest.raises(Fault, match=f"{name!r} has no place while it runs"):
            verify_live_ranges(network, {key: value for key, value in {**good, name: wrong}.items() if value})


def test_dram0_has_room_for_what_is_not_elsewhere() -> None:
    """A striped Var keeps its even tiles there."""
    arch = ARCH.replace(dram0_depth=16)
    own = [LiveRange(Var(name, 8, 2, 3), 0, 2, False) for name in "ab"]
    assert {name: (each.base, each.size) for name, each in place_variables(own, ["a"], [], arch).items()} == {
        "b": (0, 12)}
    assert [each.base for each in place_variables(own, [], ["a", "b"], arch).values()] == [0, 6]
    assert [each.base for each in place_variables([own[0], replace(own[1], first=3, last=3)], [], [],
                                                  arch).values()] == [0, 0]
    with pytest.raises(CompileError, match="found 16; allowed: at least 18 vectors"):
        place_variables(own, [], ["a"], arch)


# -- layers beside each other and in stripes ---------------------------------------------------------------------------
@pytest.mark.parametrize(("columns", "local", "accumulators", "plans"), [
    (5, 9, 8, True), (4, 9, 8, False), (6, 9, 8, True), (5, 0, 8, False), (5, 9, 1, False), (5, 9, 2, True)])
def test_a_smaller_plan_cuts_no_row_that_was_whole(columns: int, local: int, accumulators: int, plans: bool,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    arch = ARCH.replace(accumulator_banks=2)
    monkeypatch.setattr(sharing, "replace", lambda shape, **changed: shape)
    made: Any = SimpleNamespace(tiling=SimpleNamespace(grain=SimpleNamespace(columns=columns, rows=1)))
    before: Any = SimpleNamespace(tiling=SimpleNamespace(grain=SimpleNamespace(columns=5, rows=5)))
    search: Any = SimpleNamespace(plan=lambda shape: made)
    shape: Any = SimpleNamespace(arch=arch)
    assert (sharing._within(shape, local, accumulators, before, lambda depth: (arch, search)) is made) == plans


def test_two_sides_take_as_long_as_the_longer_and_half_of_the_other() -> None:
    assert sharing._cost(10, 4) == sharing._cost(4, 10) == 12


def test_layers_beside_another_one_need_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "together", lambda *_: {0: [1, 2], 3: [4]})
    shape: Any = SimpleNamespace(layer=None, arch=ARCH)
    plans: Any = [SimpleNamespace(need=SimpleNamespace(local_total=local)) for local in (10, 3, 4, 20, 5)]
    share = sharing.Share(4, 1)
    assert sharing.local_needs([shape] * 5, plans, {1: share, 2: share}) == [14, 14, 14, 20, 5]


def in_stripes(*given: str) -> Stripes:
    """Layers that each read the one before, or "x" another: "c" convolves, "l" loads, "t" has a function by table."""
    found: list[Any] = []
    for number, kind in enumerate(given):
        reads = f"v{number - 1}" if "x" not in kind else "other"
        layer = SimpleNamespace(function="f" if "t" in kind else None, lookup=None, inputs=[reads], output=f"v{number}")
        found.append(SimpleNamespace(layer=layer, loads="l" in kind))
    return Stripes(found, [], [], {}, {}, [], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(("network", "apart", "first"), [
    ("c l", (), 0), ("c c c l", (), 0), ("c c c c l", (), 1), ("l c l", (), 1), ("c x l", (), 1), ("c c lx", (), 2),
    ("ct c lt", (), 1), ("c c lt", (), 0), ("ct c l", (), 0), ("ct ct l", (), 1), ("c c l", (0,), 1),
    ("c c l", (1,), 2)])
def test_up_to_four_layers_run_in_stripes(network: str, apart: tuple[int, ...], first: int) -> None:
    """Each reads the one before. Only the last may load, and one has a function by table."""
    own = in_stripes(*network.split())
    assert own._first(len(own.shapes) - 1, apart) == first


def test_a_layer_runs_in_stripes_once() -> None:
    own = in_stripes("c", "c", "c", "l")
    own.firsts[1] = 0
    assert own._first(3, ()) == 2


def test_layers_in_stripes_share_the_accumulators() -> None:
    """Each has its part, and stripes of at most a part of its rows. The last may cost as much as the others do."""
    asked: list[tuple[Any, ...]] = []
    own = in_stripes("c", "c", "l")
    output = SimpleNamespace(height=17)
    shape = LayerShape.__new__(LayerShape)
    shape.__dict__.update({each.name: None for each in fields(LayerShape)} | {
        "arch": ARCH, "layer": SimpleNamespace(output=output)})
    own.shapes, own.plans = [shape] * 3, [SimpleNamespace(cost=cost) for cost in (10.0, 20.0, 5.0)]  # type: ignore[misc]
    own.search = SimpleNamespace(in_stripes=lambda found, *given: asked.append(  # type: ignore[assignment]
        (found.scratch, *given)))
    assert own._plans(range(3), 4, 100) is None
    part = ARCH.accumulator_depth // 3
    assert asked == [(100, 4, part, pytest.approx(10.5)), (100, 4, part, pytest.approx(21.0)), (100, 4, part, 30.0)]


@pytest.mark.parametrize(("needs", "room", "again"), [((4, 5, 1), 10, None), ((4, 5, 1), 9, 4), ((4, 6, 2), 9, 3)])
def test_the_layer_that_needs_most_gives_way(needs: tuple[int, ...], room: int, again: int | None) -> None:
    """It gets what the others leave."""
    own = in_stripes("c", "c", "l")
    asked: list[tuple[int, int]] = []

    def plan(numbers: range, number: int, fewest: int, given: int) -> Any:
        asked.append((number, given))
        return SimpleNamespace(need=SimpleNamespace(local_total=min(needs[number], given)))

    own._plan = plan  # type: ignore[method-assign, assignment]
    found = own._plans(range(3), 4, room)
    assert found is not None and sum(each.need.local_total for each in found) == min(sum(needs), room)
    assert asked[3:] == ([] if again is None else [(1, again)])


@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_layers_are_put_in_stripes_where_they_find_room(more: int, taken: bool,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    """Below what is pinned while any of them runs."""
    depth = ARCH.local_depth
    monkeypatch.setattr(stripes, "replace", lambda found, **changed: replace(found, **changed) if isinstance(
        found, Allocation) else (found, changed))
    own = in_stripes("c", "l", "c")
    first: Any = own.shapes[0]
    first.arch = ARCH
    own.needs, own.plans = [1, 1, 1], [None] * 3  # type: ignore[list-item]
    own.local = {"p": place(depth - 10, 10, 1, 2, "p")}
    plans: Any = [SimpleNamespace(need=SimpleNamespace(local_total=local)) for local in (4, depth - 14 + more)]
    own._plans = lambda numbers, fewest, room: plans if room == depth - 10 else None  # type: ignore[method-assign]
    assert own._taken(range(2), 3) == taken
    assert own.firsts == ({1: 0} if taken else {}) and own.needs == ([depth - 10] * 2 + [1] if taken else [1] * 3)
    assert own.local["p"] == place(depth - 10, 10, 0 if taken else 1, 2, "p")


def test_what_lives_at_an_end_of_stripes_lives_in_all_of_them() -> None:
    """Layers 2 to 4 run together."""
    own = [LiveRange(Var(name, 4, 1, 1), first, last, False) for name, first, last in (
        ("a", 0, 2), ("b", 3, 3), ("c", 4, 6), ("d", 0, 1), ("e", 5, 6), ("f", 2, 5))]
    found = extended(own, {3: 2, 4: 2})
    assert [(life.first, life.last) for life in found] == [(0, 4), (2, 4), (2, 6), (0, 1), (5, 6), (2, 5)]


def test_what_is_live_in_some_of_the_layers_is_kept_apart_in_all() -> None:
    """Two that shared vectors one after the other no longer do; the one that lives shortest moves, beside what is
    fixed."""
    places = {"a": place(0, 4, 0, 2, "a"), "b": place(0, 4, 3, 3, "b"), "c": place(0, 4, 6, 7, "c")}
    found = stripes._apart(places, [place(4, 2, 0, 9, "fixed")], 2, 3)
    assert found == {"a": place(0, 4, 0, 3, "a"), "b": place(6, 4, 2, 3, "b"), "c": places["c"]}
    assert stripes._mirrored(places, 10)["a"] == place(6, 4, 0, 2, "a")


def test_a_part_begins_within_its_root() -> None:
    whole, part = Var("x", 20, 2, 3), Var("y", 8, 1, 3, Part("x", 3, 3, 3, 1, 6))
    assert (whole.odd_tiles(4), part.odd_tiles(4)) == (2, 1)
    assert (part.first_tile, part.tile_pixels, part.vectors(4)) == (3, 6, 6)
    assert replace(part, channels=4).odd_tiles(4) == 1 and replace(part, channels=12).odd_tiles(4) == 2


@pytest.mark.parametrize(("chosen", "left"), [
    ((0,), {5: 4}), ((1,), {5: 4}), ((2,), {5: 4}), ((3,), {1: 0, 2: 0, 5: 4}), ((4,), {1: 0, 2: 0}), ((2, 5), {}),
    ((), {1: 0, 2: 0, 5: 4})])
def test_layers_leave_stripes_with_any_of_them_whose_tiling_is_chosen(chosen: tuple[int, ...],
                                                                      left: dict[int, int]) -> None:
    """Layers 0 to 2 and 4 to 5 run in stripes."""
    shapes: Any = tuple(SimpleNamespace(layer=SimpleNamespace(name="l")) for _ in range(6))
    layout = MemoryPlan({}, {}, {}, shapes, tuple("abcdef"), stripes={1: 0, 2: 0, 5: 4})  # type: ignore[arg-type]
    search: Any = SimpleNamespace(told=lambda shape, tiling: tiling)
    found = with_tilings(layout, Choices(tilings=dict.fromkeys(chosen, "new")), search)  # type: ignore[arg-type]
    assert found.stripes == left
    assert found.plans == tuple("new" if number in chosen else old for number, old in enumerate("abcdef"))
