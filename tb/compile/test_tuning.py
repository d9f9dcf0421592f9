# SPDX-License-Identifier: Apache-2.0
"""Tuning: the same result for the same seed, never slower, repeated by its file, refused where the file does not fit;
and what was tuned computes the same."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from weft.boards import BOARDS
from weft.compiler.backend.report import CompileReport
from weft.compiler.choices import FORMULA, Choices, for_memory, read_choices, write_choices
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.var import Var
from weft.compiler.memory.plan import MemoryPlan, plan_memory
from weft.compiler.memory.stripes import MOST
from weft.compiler.memory.variables import live_ranges
from weft.compiler.pipeline import compile_model, run_steps
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.compiler.scheduler.interleave import SIMD_CYCLES
from weft.compiler.scheduler.mat_muls import Drafts
from weft.compiler.scheduler.schedule import Schedule, schedule_layers
from weft.compiler.tiling.search import Search
from weft.compiler.tuning import judge, search
from weft.compiler.tuning import network as tuning
from weft.compiler.tuning.judge import Judge, Local, Problem, Whole
from weft.compiler.tuning.moves import FETCH_PACES, FIRST_FETCH_PACES, FIRST_PACES, PACES, STRIPES, Neighbours
from weft.compiler.tuning.network import problem_of, tune_network
from weft.compiler.tuning.search import Budget, Tuned, _Search, alike, tune
from weft.cycles.origin import apart
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram, LiteDram
from weft.runtime.devices import RTL
from weft.runtime.session import Session
from weft.support.processes import Here
from weft.tb.compile.run_model import BASE, ModelMaker, run_golden
from weft.tb.random import network_rule
from weft.tmodel.manifest import TModel

SAMPLES = np.random.default_rng(0).standard_normal((2, 8, 12, 12)).astype(np.float32)
STEPS = Budget(steps=48)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Convolutions, a max pool, and a sum: in some layer the formulas lose cycles."""
    maker = ModelMaker((1, 8, 12, 12))
    stem = maker.node("Relu", maker.conv("x", 8, 16, (3, 3), pads=(1, 1, 1, 1)))
    pooled = maker.node("MaxPool", stem, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    body = maker.conv(pooled, 16, 16, (3, 3), pads=(1, 1, 1, 1))
    maker.conv(maker.node("Add", body, pooled), 16, 8, (1, 1))
    return maker.save(tmp_path_factory.mktemp("tuning") / "net.onnx")


@pytest.fixture(scope="module")
def problem(network: Path) -> Problem:
    made = run_steps(Request(network, {"x": SAMPLES}), BASE)
    lives = live_ranges(made[Graph], made[Layers], BASE)
    return Problem(lives, made[Layers], made[Consts], made[Numbers], BASE, EXPECTED)


def found_by(problem: Problem, budget: Budget = STEPS) -> Tuned:
    judge.begin([problem])
    return tune([problem], budget, Here(), lambda *_: None)[0]


@pytest.fixture(scope="module")
def tuned(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """What the whole way finds, with the digest of what it is for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WEFT_CACHE", str(tmp_path_factory.mktemp("cache")))
        found, = tune_network(Request(network, {"x": SAMPLES}), BASE, EXPECTED, STEPS, 1, lambda *_: None)
    return found


def compiled(network: Path, folder: Path, *choices: Choices, arch: Arch = BASE) -> CompileReport:
    return compile_model(network, arch, folder, calibration={"x": SAMPLES}, choices=choices)


def test_a_program_for_a_boards_memory_takes_fewer_cycles_on_it(tmp_path: Path) -> None:
    """Loads are placed earlier where a beat takes four cycles of a bus that all share; the result is the same."""
    arch, dram = Arch.load("ulx3s"), BOARDS["ulx3s"].dram
    maker = ModelMaker((1, 16, 32, 32))
    name = maker.node("Relu", maker.conv("x", 16, 16, (3, 3), pads=(1, 1, 1, 1)))
    maker.node("Add", maker.conv(name, 16, 16, (3, 3), pads=(1, 1, 1, 1)), name)
    path = maker.save(tmp_path / "net.onnx")
    samples = {"x": maker.random.standard_normal((1, 16, 32, 32)).astype(np.float32)}
    found = []
    for choices in (FORMULA, for_memory(dram, arch)):
        report = compile_model(path, arch, tmp_path, calibration=samples, choices=choices)
        model = TModel.load(report.model_path)
        found.append((estimate(model.program, arch, dram, origin=apart(arch)).cycles,
                      Session(model).run(samples).outputs))
    assert found[1][0] < 0.97 * found[0][0]
    assert all(np.array_equal(values, found[1][1][name]) for name, values in found[0][1].items())


def test_an_ideal_memory_and_short_beats_change_nothing() -> None:
    assert for_memory(EXPECTED, BASE) == FORMULA
    dram = BOARDS["colorlight_i9"].dram
    assert isinstance(dram, LiteDram)
    assert [dram.beat_cycles(size) for size in (4, 8, 16)] == [1, 2, 4]
    assert for_memory(dram, Arch.load("colorlight_i9")).fetch_pace == 2 * 2 * 2  # half cycles, shared, two cycles


# -- the search --------------------------------------------------------------------------------------------------------
def test_the_search_finds_cycles(tuned: Tuned) -> None:
    assert tuned.after.cycles < tuned.before.cycles


def test_the_same_seed_and_steps_find_the_same(problem: Problem) -> None:
    once = found_by(problem)
    with ThreadPoolExecutor(2) as executor:  # who judges first does not matter
        judge.begin([problem])
        again, = tune([problem], STEPS, executor, lambda *_: None)
    assert again == once
    assert once.choices != FORMULA


class Listening(Here):
    """Does what it is given, and keeps what that was."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def submit(self, task: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        self.given.append(given)
        return super().submit(task, *given, **named)


def test_another_seed_draws_other_moves(problem: Problem) -> None:
    first, same, other = Listening(), Listening(), Listening()
    judge.begin([problem])
    for executor, seed in ((first, 0), (same, 0), (other, 1)):
        tune([problem], Budget(steps=40, seed=seed), executor, lambda *_: None)
    assert first.given == same.given != other.given


def test_paces_of_all_layers_are_judged_first(problem: Problem) -> None:
    executor = Listening()
    judge.begin([problem])
    tune([problem], Budget(steps=16), executor, lambda *_: None)
    judged = [given[-1] for given in executor.given if isinstance(given[-1], Choices)]
    assert {*FIRST_FETCH_PACES} <= {move.fetch_pace for move in judged}
    assert {*FIRST_PACES} <= {pace for move in judged if len(move.paces) == len(problem.layers)
                              for pace in move.paces.values()}


@pytest.mark.parametrize(("move", "beside"), [
    (Choices(fetch_pace=4), [Choices(fetch_pace=3), Choices(fetch_pace=6)]),
    (Choices(fetch_pace=FETCH_PACES[-1]), [Choices(fetch_pace=FETCH_PACES[-2])]),
    (Choices(paces={0: 2, 5: 3}), [Choices(paces={0: 1, 5: 2}), Choices(paces={0: 3, 5: 5})]),
    (Choices(paces={0: 1, 5: 2}), [Choices(paces={5: 1}), Choices(paces={0: 2, 5: 3})]),
    (Choices(copy=True), []),
])
def test_where_a_pace_gains_those_beside_it_follow(problem: Problem, move: Choices, beside: list[Choices]) -> None:
    own = search_of(problem, Here())
    own._take(FORMULA, [(Local(1, 0, 2), move), (Local(0, 2, 3), Choices(fetch_pace=12))])
    assert [*own.queue] == beside


def test_where_no_move_is_left_pairs_are_judged(tmp_path: Path) -> None:
    """A single layer has few moves: the search goes on with two at once, each of them once."""
    maker = ModelMaker((1, 8, 6, 6))
    maker.conv("x", 8, 8, (1, 1))
    request = Request(maker.save(tmp_path / "net.onnx"), {"x": SAMPLES[:, :, :6, :6]})
    alone, executor = problem_of(request, run_steps(request, BASE), EXPECTED), Listening()
    judge.begin([alone])
    tune([alone], Budget(steps=100), executor, lambda *_: None)
    named = [[key for key, value in given[-1].to_json().items() if value] for given in executor.given
             if isinstance(given[-1], Choices)]
    singles = next(number for number, keys in enumerate(named) if len(keys) > 1)
    assert len(named) - singles > 20 and all(len(keys) <= 1 for keys in named[:singles])


def test_no_budget_finds_the_formulas(problem: Problem) -> None:
    assert found_by(problem, Budget(steps=0)).choices == FORMULA
    assert found_by(problem, Budget(seconds=0)).choices == FORMULA


def test_seconds_end_the_search(problem: Problem) -> None:
    assert found_by(problem, Budget(seconds=0.5)).after.cycles <= found_by(problem, Budget(steps=0)).before.cycles


def test_what_windows_promise_is_dropped_where_the_program_does_not_keep_it(
        problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge whose windows praise everything."""
    honest = Judge.local
    monkeypatch.setattr(Judge, "local", lambda *given: found and found._replace(saved=1000) if (
        found := honest(*given)) else None)
    found = found_by(problem, Budget(steps=64, seed=5))
    assert found.after.cycles <= found.before.cycles


def test_a_window_of_all_layers_says_what_the_whole_program_says(problem: Problem) -> None:
    """The network is so short that the window of its middle layer is all of it."""
    judged = Judge(problem)
    slow = Choices(paces=dict.fromkeys(range(len(problem.layers)), 12))
    before, after, local = judged.whole(FORMULA), judged.whole(slow), judged.local(FORMULA, slow)
    assert before and after and local
    assert local == (before.cycles - after.cycles, 0, len(problem.layers))
    assert before.cycles != after.cycles


def test_a_window_is_what_changes_and_a_layer_on_either_side(problem: Problem) -> None:
    """A copy of the constants changes all layers."""
    own, count = Judge(problem), len(problem.layers)
    layout = own.layout(FORMULA)
    assert layout is not None
    for first in range(count):
        for last in (first, min(first + 1, count - 1)):
            found = own.local(FORMULA, Choices(paces=dict.fromkeys((first, last), 12)))
            assert found and found[1:] == (max(first - 1, 0), min(last + 2, count))
    copied = own.local(FORMULA, Choices(copy=layout.copy is None))
    assert copied and copied[1:] == (0, count)


def test_a_window_begins_as_far_before_as_it_reaches(problem: Problem) -> None:
    judge.begin([problem])
    last = len(problem.layers) - 1
    for reach in (1, 2, 3):
        found = judge.local(0, reach, FORMULA, Choices(paces={last: 12}))
        assert found and found[1:] == (max(last - reach, 0), last + 1)


def test_a_tensor_elsewhere_in_dram_makes_another_window(problem: Problem) -> None:
    """Rows and banks are others there, and so are the cycles of a board's memory."""
    layout = Judge(problem).layout(FORMULA)
    assert layout is not None
    places = {name: replace(place, base=place.base + 1) for name, place in layout.dram0.items()}
    kept, moved = (judge._of_window(each, FORMULA, 0, 2) for each in (layout, replace(layout, dram0=places)))
    assert kept == judge._of_window(replace(layout), FORMULA, 0, 2) != moved


def test_what_was_found_is_kept_by_content(network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    shares: list[float] = []

    def find(samples: np.ndarray) -> list[Tuned]:
        return tune_network(Request(network, {"x": samples}), BASE, EXPECTED, Budget(steps=16), 1,
                            lambda share, *_: shares.append(share))

    first, asked = find(SAMPLES), len(shares)
    kept, = (tmp_path / "tuning").iterdir()
    assert find(SAMPLES) == first
    assert len(shares) == asked > 0
    find(4 * SAMPLES)
    assert len(shares) > asked
    kept.write_text("[{")  # a file that ends early is not believed, and written anew
    assert find(SAMPLES) == first
    assert msgspec.json.decode(kept.read_bytes(), type=list[Tuned]) == first


def search_of(problem: Problem, executor: Any) -> _Search:
    before = Judge(problem).whole(FORMULA)
    assert before is not None
    return _Search(0, problem, before, executor)


def test_of_moves_whose_windows_meet_the_best_is_taken(problem: Problem) -> None:
    own = search_of(problem, Here())
    windows = [Local(70, 5, 7), None, Local(90, 2, 5), Local(0, 7, 9), Local(100, 0, 3), Local(80, 3, 6),
               Local(60, 1, 2), Local(50, 4, 6)]
    own._take(FORMULA, [(found, Choices(paces={number: 3})) for number, found in enumerate(windows)])
    assert own.taken == [(100, Choices(paces={4: 3})), (80, Choices(paces={5: 3}))]
    assert own.judged_layers == sum(found.end - found.first for found in windows if found)


@pytest.mark.parametrize(("taken", "cycles", "best"), [
    ([1, 4, 3, 2], {4: 60, 2: 70}, 4), ([1, 4, 3, 2], {4: 90, 2: 70}, 2), ([1, 4, 3, 2], {4: 100, 2: 101}, 0),
    ([5], {1: 99}, 1)])
def test_a_check_keeps_all_or_the_half_that_promised_most(problem: Problem, taken: list[int], cycles: dict[int, int],
                                                          best: int) -> None:
    """A judge knows choices by how many layers they name, and programs of ``cycles`` are those of the best ones."""
    def judged(_: Any, part: int, choices: Choices, most: int) -> Future[Whole]:
        found: Future[Whole] = Future()
        assert (part, most) == (0, 100) and {*choices.paces} == {*sorted(taken, reverse=True)[:len(choices.paces)]}
        found.set_result(Whole(cycles[len(choices.paces)], (), ()))
        return found

    own = search_of(problem, SimpleNamespace(submit=judged))
    own.cycles = own.cycles._replace(cycles=100)
    own.taken = [(saved, Choices(paces={saved: 3})) for saved in taken]
    own._check(SimpleNamespace(now=lambda: 0.0))  # type: ignore[arg-type]
    assert len(own.best.paces) == best and own.cycles.cycles == min(100, cycles.get(best, 100))
    assert not own.taken


def test_as_much_time_is_left_for_a_check_as_the_longest_took(problem: Problem) -> None:
    own, times = search_of(problem, Here()), iter([0.0, 3.0, 10.0, 11.0])
    judge.begin([problem])
    for _ in range(2):
        own.taken = [(1, Choices(paces={0: 3}))]
        own._check(SimpleNamespace(now=lambda: next(times)))  # type: ignore[arg-type]
    assert own.longest_check == 3.0


@pytest.mark.parametrize(("kept", "reach"), [
    ([0, 0, 0], 1), ([0, 0, 0, 0], 2), ([199, 0, 0, 0], 2), ([200, 0, 0, 0], 1), ([100, 100, 100, 100, 0, 0, 0, 0], 1),
    ([0] * 7, 2), ([0] * 8, 3), ([0] * 40, 3)])
def test_windows_reach_farther_where_programs_keep_less_than_half_of_four_promises(problem: Problem, kept: list[int],
                                                                                  reach: int) -> None:
    own = search_of(problem, Here())
    for each in kept:
        own._weigh(100, each)
    assert own.reach == reach


def test_what_a_check_weighs_is_what_was_promised_and_what_the_best_try_saved(problem: Problem) -> None:
    found: Future[Whole] = Future()
    found.set_result(Whole(70, (), ()))
    own = search_of(problem, SimpleNamespace(submit=lambda *_: found))
    own.cycles = own.cycles._replace(cycles=100)
    own.taken = [(saved, Choices(paces={saved: 3})) for saved in (40, 20)]
    own._check(SimpleNamespace(now=lambda: 0.0))  # type: ignore[arg-type]
    assert own.promises == [(60, 30)]


class Sceptic(Here):
    """Finds no move good. ``reaches``: what each was judged with; ``names``: the moves."""

    def __init__(self) -> None:
        self.reaches: list[int] = []
        self.names: list[str] = []

    def submit(self, task: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        found: Future[Any] = Future()
        self.reaches.append(given[1])
        self.names.append(given[-1].key)
        found.set_result(Local(0, 0, 1))
        return found


def test_where_no_move_is_left_climbs_begin_anew_and_broader(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four climbs, and each begins with all the moves. A search with nothing to draw ends long before its budget."""
    monkeypatch.setattr(search, "MOST_DRAWS", 2)
    own = search_of(problem, executor := Sceptic())
    begun: list[int] = []
    begin = own._climb

    def climb() -> None:
        begin()
        begun.append(own.breadth)

    monkeypatch.setattr(own, "_climb", climb)
    own.reach = 3
    tuned = own.run(search._Clock(Budget(steps=10**6), lambda: 0.0), lambda *_: None)
    assert begun == [2, 4, 8] and own.breadth == search.MOST_BREADTH
    assert tuned == Tuned(FORMULA, own.before, own.before) and len(own.climbs) == search.MOST_CLIMBS
    assert {*executor.reaches} == {3}
    assert sum('"fetch_pace": 8' in name for name in executor.names) == search.MOST_CLIMBS  # moves of all layers


def test_the_fastest_climb_counts_and_of_equal_ones_the_first(problem: Problem) -> None:
    own = search_of(problem, Here())
    climbs = {number: (Choices(paces={number: 3}), Whole(cycles, (), ())) for number, cycles in enumerate((7, 5, 5, 6))}
    own.climbs = [climbs[number] for number in (0, 1, 2)]
    own.best, own.cycles = climbs[3]
    assert own._fastest == climbs[1]
    own.cycles = Whole(4, (), ())
    assert own._fastest == (own.best, own.cycles)


def test_layers_of_the_same_form_get_the_same_tiling_wherever_they_run() -> None:
    """Layers 0, 2 and 3 are alike; 3 has the tiling already. They run in another order."""
    order, forms, tilings = (1, 2, 3, 0), "abaa", "xyzt"
    layout: Any = SimpleNamespace(shapes=[SimpleNamespace(form=forms[number]) for number in order],
                                  plans=[SimpleNamespace(tiling=tilings[number]) for number in order])
    move: Any = Choices(tilings={0: "t"})  # type: ignore[dict-item]
    assert [each.tilings for each in alike(move, layout, order)] == [{2: "t"}]
    move = Choices(tilings={1: "z"})  # type: ignore[dict-item]
    assert not [*alike(move, layout, order)]


def test_parts_share_the_budget(problem: Problem) -> None:
    executor = Listening()
    judge.begin([problem, problem])
    tune([problem, problem], Budget(steps=20), executor, lambda *_: None)
    judged = [given[0] for given in executor.given if isinstance(given[-1], Choices) and len(given) == 4]
    assert (judged.count(0), judged.count(1)) == (10, 10)


# -- moves -------------------------------------------------------------------------------------------------------------
def neighbours_of(choices: Choices, loads: Collection[int] = (), layers: int = 12) -> Neighbours:
    """Of layers of which only that is known which of them load."""
    layout: Any = SimpleNamespace(shapes=[SimpleNamespace(loads=number in loads) for number in range(layers)])
    return Neighbours(choices, layout, [1.0] * layers, Search(), [frozenset()] * layers)


Move = Callable[[Neighbours, int, random.Random], Choices | None]


def drawn(move: Move, neighbours: Neighbours, number: int) -> list[Choices]:
    chance = random.Random(1)
    return [found for _ in range(100) if (found := move(neighbours, number, chance)) is not None]


@pytest.mark.parametrize(("move", "field", "choices", "there", "paces"), [
    (Neighbours.pace, "paces", FORMULA, 2 * SIMD_CYCLES, PACES),
    (Neighbours.pace, "paces", Choices(paces={1: 5}), 5, PACES),
    (Neighbours.fetch, "fetch_paces", FORMULA, 2, FETCH_PACES),
    (Neighbours.fetch, "fetch_paces", Choices(fetch_pace=8), 8, FETCH_PACES),
    (Neighbours.fetch, "fetch_paces", Choices(fetch_paces={1: 3}, fetch_pace=8), 3, FETCH_PACES)])
def test_a_pace_is_drawn_that_a_layer_has_not(move: Move, field: str, choices: Choices, there: int,
                                              paces: tuple[int, ...]) -> None:
    found = drawn(move, neighbours_of(choices), 1)
    assert {getattr(each, field)[1] for each in found} == {*paces} - {there}
    assert all(replace(each, **{field: getattr(choices, field)}) == choices for each in found)


def test_a_tensor_goes_where_it_is_not_and_a_resident_one_is_not_spread() -> None:
    a, b, c = (Var(name, 8, 4, 4) for name in "abc")
    layer = SimpleNamespace(inputs=(a, b), outputs=(c,))
    layout: Any = SimpleNamespace(local={"a"}, dram1={"b"}, shapes=[SimpleNamespace(layer=layer)])
    neighbours = Neighbours(FORMULA, layout, [1.0], Search(), [frozenset()])
    residents = [each.residents for each in drawn(Neighbours.resident, neighbours, 0)]
    spread = [each.spread for each in drawn(Neighbours.spread, neighbours, 0)]
    assert all({name: wanted} in residents for name, wanted in {"a": False, "b": True, "c": True}.items())
    assert {"b": False} in spread and {"c": True} in spread and len({*map(str, spread)}) == 2


def test_a_tiling_is_another_one_of_the_layer_wherever_it_runs() -> None:
    known: dict[str, list[str]] = {"first": ["p", "q"], "second": ["r", "s"], "third": []}
    layout: Any = SimpleNamespace(shapes=["second", "first", "third"],
                                  plans=[SimpleNamespace(tiling=each) for each in ("r", "p", "t")])
    search: Any = SimpleNamespace(fitting=lambda shape, *_: known[shape])
    neighbours = Neighbours(Choices(order={0: 1, 1: 0}), layout, [1.0] * 3, search, [frozenset()] * 3)
    for number, wanted in enumerate(("q", "s")):
        found = drawn(Neighbours.tiling, neighbours, number)
        assert found and all(str(each.tilings) == f"{{{number}: '{wanted}'}}" for each in found)
    assert not drawn(Neighbours.tiling, neighbours, 2)


def test_broader_moves_draw_more_tilings_and_dearer_ones() -> None:
    asked: list[tuple[int, float]] = []
    chance = random.Random(1)
    layout: Any = SimpleNamespace(shapes=["one"], plans=[SimpleNamespace(tiling=-1)])

    def fitting(_shape: Any, most: int, dearest: float) -> range:
        asked.append((most, dearest))
        return range(most)

    means = []
    for breadth in (1, 4):
        tilings: Any = SimpleNamespace(fitting=fitting)
        neighbours = Neighbours(FORMULA, layout, [1.0], tilings, [frozenset()], breadth)
        found: list[Any] = [neighbours.tiling(0, chance) for _ in range(400)]
        means.append(sum(each.tilings[0] for each in found) / 400)
    assert {*asked} == {(60, 1.3), (240, 2.2)}
    assert 7 < means[0] < 12 and 28 < means[1] < 48


def test_stripes_are_those_of_the_layer_or_of_the_next_that_loads_near_it() -> None:
    """No further behind than layers run together."""
    for number in range(12):
        found = drawn(Neighbours.stripes, neighbours_of(Choices(stripes={11: 3}), (2, 11)), number)
        last = next((place for place in (2, 11) if number <= place < number + MOST), None)
        assert {tuple(each.stripes) for each in found} == ({(11,)} if last == 11 else {(11, 2)} if last else set())
        assert last is None or {each.stripes[last] for each in found} == {*STRIPES} - {3 if last == 11 else None}


# -- what comes of it --------------------------------------------------------------------------------------------------
def test_programs_take_the_cycles_that_were_promised(network: Path, tuned: Tuned, tmp_path: Path) -> None:
    for choices, cycles in (((), tuned.before.cycles), ((tuned.choices,), tuned.after.cycles)):
        program = compiled(network, tmp_path, *choices).program_path.read_bytes()
        assert estimate(program, BASE).cycles == cycles


def test_choices_that_choose_nothing_change_nothing(network: Path, tmp_path: Path) -> None:
    plain, told = (compiled(network, tmp_path / folder, *choices)
                   for folder, choices in (("plain", ()), ("told", (FORMULA,))))
    assert plain.program_path.read_bytes() == told.program_path.read_bytes()


def test_what_was_tuned_computes_the_same(network: Path, tuned: Tuned, tmp_path: Path) -> None:
    models = [TModel.load(compiled(network, tmp_path / folder, *choices).model_path)
              for folder, choices in (("plain", ()), ("tuned", (tuned.choices,)))]
    plain, after = (run_golden(model, {"x": SAMPLES[0]}) for model in models)
    assert models[0].program != models[1].program
    assert all((plain[name] == after[name]).all() for name in plain)


@pytest.mark.slow
def test_rtl_of_a_tuned_network_equals_golden(network: Path, tmp_path: Path) -> None:
    arch = network_rule.ARCHS["lanes3"]
    request = Request(network, {"x": SAMPLES})
    tuned = found_by(problem_of(request, run_steps(request, arch), EXPECTED))
    assert tuned.after.cycles < tuned.before.cycles
    model = TModel.load(compiled(network, tmp_path, tuned.choices, arch=arch).model_path)
    result = Session(model).run({"x": SAMPLES[:1]}, on=RTL)
    assert result.comparison is not None
    result.comparison.insist()
    assert result.cycles == tuned.after.cycles


# -- the file ----------------------------------------------------------------------------------------------------------
def test_a_file_repeats_what_was_found(network: Path, tuned: Tuned, tmp_path: Path) -> None:
    file = tmp_path / "net.choices.json"
    write_choices(file, [tuned.choices], (tuned.before.cycles, tuned.after.cycles))
    chosen = read_choices(file)
    assert chosen.parts == (tuned.choices,)
    assert chosen.cycles == (tuned.before.cycles, tuned.after.cycles)
    direct = compiled(network, tmp_path / "direct", tuned.choices).program_path.read_bytes()
    assert compiled(network, tmp_path / "read", *chosen.parts).program_path.read_bytes() == direct


def _set(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        place: Any = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    return change


TILING = {"grain": [1, 4, None], "outputs": 1, "inputs": 1, "taps": 1, "buffers": 1, "weight_slots": 1,
          "outputs_outer": False}


@pytest.mark.parametrize(("change", "words"), [
    (_set("choices", value=1), "choices file"),
    (_set("more", value=1), "more"),
    (_set("cycles", value=[1]), "choices file"),
    (_set("parts", value=[]), "choices file"),
    (_set("parts", 0, "pace", value={}), "keys or values"),
    (_set("parts", 0, "tilings", value={"0": {**TILING, "more": 1}}), "keys or values"),
    (_set("parts", 0, "tilings", value={"0": {**TILING, "taps": "9"}}), "taps"),
    (_set("parts", 0, "tilings", value={"first": TILING}), "choices file"),
    (_set("parts", 0, "copy", value=1), "copy"),
], ids=lambda entry: entry if isinstance(entry, str) else "")
def test_a_damaged_file_is_refused(tuned: Tuned, tmp_path: Path, change: Callable[[dict[str, Any]], None],
                                   words: str) -> None:
    file = tmp_path / "net.choices.json"
    write_choices(file, [tuned.choices], (2, 1))
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    with pytest.raises(CompileError, match=words):
        read_choices(file)


def unbound(tuned: Tuned, **values: Any) -> Choices:
    """For any network, with other values."""
    return replace(tuned.choices, layers="", **values)


@pytest.mark.parametrize(("values", "words"), [
    ({"paces": {99: 3}}, "layer 99"), ({"paces": {-1: 3}}, "layer -1"), ({"paces": {0: 0}}, "pace of 0"),
    ({"stripes": {99: 3}}, "layer 99"), ({"stripes": {0: 3}}, "3 stripes of layer 0"),
    ({"residents": {"nothing": True}}, "tensor 'nothing'"), ({"spread": {"nothing": True}}, "tensor 'nothing'"),
])
def test_choices_that_a_network_has_not_are_refused(network: Path, tuned: Tuned, tmp_path: Path,
                                                    values: dict[str, Any], words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compiled(network, tmp_path, unbound(tuned, **values))


def test_choices_of_another_machine_or_network_are_refused(network: Path, tuned: Tuned, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="another network, machine"):
        compiled(network, tmp_path, tuned.choices, arch=BASE.replace(local_depth=1024))
    other = ModelMaker((1, 8, 12, 12))
    other.conv("x", 8, 8, (1, 1))
    with pytest.raises(CompileError, match="another network, machine"):
        compiled(other.save(tmp_path / "other.onnx"), tmp_path, tuned.choices)
    with pytest.raises(CompileError, match="those of 2 parts"):
        compiled(network, tmp_path, tuned.choices, tuned.choices)


def test_choices_that_do_not_fit_are_refused(network: Path, problem: Problem, tmp_path: Path) -> None:
    layout = Judge(problem).layout(FORMULA)
    assert layout is not None
    odd = replace(layout.plans[0].tiling, outputs=77)
    with pytest.raises(CompileError, match="tiling of layer 0"):
        compiled(network, tmp_path, Choices(tilings={0: odd}))
    name = max((life for life in problem.lives if not life.fixed), key=lambda life: life.var.vectors(8)).name
    small = BASE.replace(local_depth=72)
    with pytest.raises(CompileError, match="resident"):
        compiled(network, tmp_path, Choices(residents={name: True}), arch=small)


def test_what_is_kept_is_the_tools_own(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another compiler, estimator or format makes other programs, for which a search has to run again."""
    kept = tuning.search_digest([problem], STEPS)
    assert tuning.search_digest([problem], STEPS) == kept
    monkeypatch.setattr(tuning, "tool_digest", lambda: "another tool")
    assert tuning.search_digest([problem], STEPS) != kept


def test_what_is_kept_is_of_this_network_machine_memory_and_budget(problem: Problem) -> None:
    weights = replace(problem.consts, vectors=problem.consts.vectors + 1)
    arch = problem.arch.replace(dram1_depth=2 * problem.arch.dram1_depth)
    others = [replace(problem, consts=weights), replace(problem, arch=arch), replace(problem, dram=IdealDram(31)),
              replace(problem, layers=Layers(problem.layers[:-1]))]
    asked = [([problem], STEPS), ([problem, problem], STEPS), ([problem], replace(STEPS, seed=1)),
             ([problem], Budget(seconds=48)), *(([other], STEPS) for other in others)]
    assert len({tuning.search_digest(*each) for each in asked}) == len(asked)


def test_a_move_that_only_changes_paces_writes_no_operations_again(problem: Problem,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same before they are put in order."""
    calls: list[tuple[int, int]] = []

    def noted(numbers: Numbers, layout: MemoryPlan, arch: Arch, first: int, end: int, **rest: Any) -> Schedule:
        calls.append((first, end))
        return schedule_layers(numbers, layout, arch, first, end, **rest)

    monkeypatch.setattr(judge, "schedule_layers", noted)
    own = Judge(problem)
    for pace in (1, 3, 12):
        assert own.local(FORMULA, replace(FORMULA, fetch_pace=pace)) is not None
    assert len(calls) == 1


def test_drafts_of_other_tilings_and_places_change_no_operation(problem: Problem) -> None:
    """What an emitter found for one layout serves another one of the same layers."""
    own, chance, end = Judge(problem), random.Random(3), len(problem.layers)
    layout = own.layout(FORMULA)
    assert layout is not None
    neighbours = Neighbours(FORMULA, layout, [1.0] * end, own.search, problem.predecessors)
    drafts: dict[int, Drafts] = defaultdict(Drafts)
    layouts = [layout, *(other for _ in range(40)
                         if (drawn := neighbours.draw(chance, neighbours.drawn_layer(chance))) is not None
                         and (other := own.layout(drawn)) is not None), layout]
    for each in layouts:
        one = schedule_layers(problem.numbers, each, problem.arch, 0, end, drafts=drafts)
        assert one.operations == schedule_layers(problem.numbers, each, problem.arch, 0, end).operations
    assert len(layouts) > 10


def test_what_costs_cycles_is_estimated_no_further(problem: Problem) -> None:
    """A window's number below 0 says no more than that; a number above is exact, whatever was asked before."""
    slow = replace(FORMULA, fetch_pace=24)
    one, other = Judge(problem), Judge(problem)
    before, after = one.whole(FORMULA), one.whole(slow)
    assert before is not None and after is not None and after.cycles > before.cycles
    lost, gained = other.local(FORMULA, slow), other.local(slow, FORMULA)
    assert lost is not None and lost.saved < 0
    assert gained is not None and gained.saved == after.cycles - before.cycles


def test_places_of_tensors_cost_the_same_candidates_once(problem: Problem) -> None:
    """A judge's memory maps are those that each would be by itself."""
    own = Judge(problem)
    assert own.layout(FORMULA) is not None
    known = own.search.costed
    for copy in (True, False):
        choices = replace(FORMULA, copy=copy)
        layout = own.layout(choices)
        assert layout == plan_memory(problem.lives, problem.layers, problem.consts, problem.arch, choices)
    assert own.search.costed == known
