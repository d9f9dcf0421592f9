# SPDX-License-Identifier: Apache-2.0
"""The order of layers as choices name it: who waits for whom, what is refused, and that outputs and cycles hold."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.cli.tuning import tuned_object
from weft.compiler.backend.report import CompileReport
from weft.compiler.choices import FORMULA, Choices, digest_of, read_choices, write_choices
from weft.compiler.errors import CompileError
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.sequence import first_broken, places, predecessors, sequence
from weft.compiler.layers.stages import Load, Save
from weft.compiler.layers.var import Part, Var
from weft.compiler.lir import Operation
from weft.compiler.pipeline import compile_model, run_parts, run_steps
from weft.compiler.quantize.consts import Consts, encode_consts
from weft.compiler.request import Request
from weft.compiler.tuning import judge
from weft.compiler.tuning.judge import Judge, Problem
from weft.compiler.tuning.moves import MOVES_OF_PLACES, Neighbours
from weft.compiler.tuning.network import problem_of
from weft.compiler.tuning.search import Budget, Tuned, tune
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.support.processes import Here
from weft.tb.compile.run_model import BASE, ModelMaker, run_golden
from weft.tmodel.manifest import TModel

SAMPLES = np.random.default_rng(0).standard_normal((2, 8, 10, 10)).astype(np.float32)
TABLES = BASE.replace(simd_registers_depth=3, lut_count=2, lut_depth=256)
MACHINES = {"fixed point": TABLES,
            "bytes": BASE.replace(data_type="INT8", simd_registers_depth=2, lut_count=1, lut_depth=256),
            "activation tables": BASE.replace(data_type="INT8", simd_registers_depth=2, activation_tables=1)}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Branches with two functions: which of them finds its table loaded depends on the order."""
    maker = ModelMaker((1, 8, 10, 10))
    stem = maker.node("Relu", maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1)))
    ends = []
    for function in ("Sigmoid", "Tanh"):
        weights = maker.random.standard_normal((8, 8, 1, 1)).astype(np.float32)
        for rows in (weights, weights[::-1]):  # the same range, so the same table
            ends.append(maker.node(function, maker.node("Conv", stem, maker.constant(rows), kernel_shape=(1, 1))))
    pooled = maker.node("MaxPool", stem, kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1))
    maker.conv(maker.node("Concat", *ends, pooled, axis=1), 40, 8, (1, 1))
    return maker.save(tmp_path_factory.mktemp("sequence") / "net.onnx")


@pytest.fixture(scope="module", params=[*MACHINES])
def problem(network: Path, request: pytest.FixtureRequest) -> Problem:
    asked = Request(network, {"x": SAMPLES})
    products, = run_parts(asked, MACHINES[request.param], last="consts")[1]
    return problem_of(asked, products, EXPECTED)


def compiled(network: Path, folder: Path, arch: Arch, *choices: Choices) -> CompileReport:
    return compile_model(network, arch, folder, calibration={"x": SAMPLES}, choices=choices)


def neighbours_of(problem: Problem, choices: Choices = FORMULA) -> Neighbours:
    own = Judge(problem)
    layout = own.layout(choices)
    assert layout is not None
    return Neighbours(choices, layout, [1.0] * len(problem.layers), own.search, problem.predecessors)


def orders(problem: Problem, count: int) -> list[Choices]:
    """Choices that each differ from those before in the places of layers, as moves find them."""
    found, chance = [FORMULA], random.Random(1)
    while len(found) <= count:
        neighbours = neighbours_of(problem, found[-1])
        move = chance.choice([*MOVES_OF_PLACES])
        drawn = move(neighbours, chance.randrange(len(problem.layers)), chance)
        if drawn is not None:
            found.append(drawn)
    return found[1:]


@pytest.mark.parametrize(("moved", "wanted"), [
    ({}, (0, 1, 2, 3)), ({0: 1, 1: 0}, (1, 0, 2, 3)), ({3: 0, 0: 1, 1: 2, 2: 3}, (3, 0, 1, 2)), ({2: 2}, (0, 1, 2, 3)),
    ({0: 2}, (1, 2, 0, 3)), ({3: 1, 0: 1}, (1, 0, 3, 2))])
def test_a_sequence_has_each_layer_at_its_place(moved: dict[int, int], wanted: Sequence[int]) -> None:
    assert sequence(4, moved) == wanted
    assert [places(wanted)[number] for number in wanted] == [0, 1, 2, 3]


def test_a_layer_stays_behind_what_it_reads(problem: Problem) -> None:
    """Branches that write other tiles of one tensor do not wait for each other."""
    layers, before = problem.layers, problem.predecessors
    assert before == predecessors(layers, problem.arch.array_size)
    for number, layer in enumerate(layers):
        read = {var.name for var in layer.inputs}
        makers = {other for other in range(number) if read & {var.name for var in layers[other].outputs}}
        assert makers <= before[number] < {*range(number + 1)}
    assert len(before[-1]) >= 5  # all that the Concat holds
    shared = [number for number, layer in enumerate(layers) if layer.output.part is not None]
    assert len(shared) >= 4
    assert not any(before[number] & {*shared} for number in shared)


WHOLE, FIRST, SECOND = (Var("t", channels, 4, 4, Part("r", tile, 0, 4, 1, 16)) for channels, tile in (
    (12, 0), (4, 0), (4, 1)))


@pytest.mark.parametrize(("before", "behind", "waits"), [
    (("u", WHOLE), (WHOLE, "v"), True), ((WHOLE, "v"), ("u", WHOLE), True), (("u", WHOLE), ("v", WHOLE), True),
    ((WHOLE, "u"), (WHOLE, "v"), False), (("u", FIRST), (SECOND, "v"), False), (("u", FIRST), ("v", SECOND), False),
    ((FIRST, "u"), ("v", SECOND), False), (("u", SECOND), (WHOLE, "v"), True), (("u", WHOLE), ("v", SECOND), True),
    (("u", Var("r", 12, 4, 4)), ("v", SECOND), True)])
def test_a_layer_waits_for_what_touches_memory_that_either_writes(before: tuple[Var | str, Var | str],
                                                                  behind: tuple[Var | str, Var | str],
                                                                  waits: bool) -> None:
    """What one writes the other one must not have read or written too late: parts of the same tiles of four."""
    layers = [Layer(str(number), Load(source), (Save(result),)) for number, (source, result) in enumerate(
        [each if isinstance(each, Var) else Var(f"{each}{number}", 4, 4, 4) for each in pair]
        for number, pair in enumerate((before, behind)))]
    assert predecessors(layers, 4) == (frozenset(), frozenset({0} if waits else ()))


def test_moves_keep_each_layer_behind_what_it_reads(problem: Problem) -> None:
    found = orders(problem, 40)
    assert len({each.sequence(len(problem.layers)) for each in found}) > 10
    for each in found:
        order = each.sequence(len(problem.layers))
        assert sorted(order) == [*range(len(problem.layers))]
        assert first_broken(order, problem.predecessors) is None


def test_a_move_says_all_that_makes_its_order_of_the_one_before(problem: Problem) -> None:
    """Also that a layer is back at the place of its number."""
    count, before = len(problem.layers), FORMULA
    for each in [*orders(problem, 20), FORMULA]:
        found = neighbours_of(problem, before)._in(each.sequence(count))
        assert found and before.plus(found.beyond(before)).sequence(count) == each.sequence(count)
        before = before.plus(found)


def test_a_window_has_all_layers_that_have_another_place(problem: Problem) -> None:
    own, count, before = Judge(problem), len(problem.layers), FORMULA
    for each in orders(problem, 12):
        old, new = before.sequence(count), each.sequence(count)
        moved = [place for place in range(count) if old[place] != new[place]]
        found = own.local(before, each)
        assert found and found.first <= max(moved[0] - 1, 0) and found.end >= min(moved[-1] + 2, count)
        before = each


def scheduled(own: Judge, choices: Choices) -> Sequence[Operation]:
    """The operations of a judge's program before they are put in order."""
    arranged = own._arranged(choices)
    assert arranged is not None
    layout = own._layout(arranged)
    assert layout is not None
    return own._scheduled(arranged, layout, 0, len(arranged.order)).operations


def test_what_a_judge_remembers_of_a_layer_goes_where_the_layer_goes(tmp_path: Path) -> None:
    """Branches of one form, whose numbers have other sizes, and so other registers."""
    maker, ends = ModelMaker((1, 8, 10, 10)), []
    for scale in (1, 300, 0.02, 20):
        weights, bias = scale * maker.random.standard_normal((8, 8, 3, 3)), np.full(8, scale)
        ends.append(maker.node("Conv", "x", *(maker.constant(each.astype(np.float32)) for each in (weights, bias)),
                               kernel_shape=(3, 3)))
    maker.node("Concat", *ends, axis=1)
    asked = Request(maker.save(tmp_path / "net.onnx"), {"x": SAMPLES})
    products, = run_parts(asked, BASE, last="consts")[1]
    own = problem_of(asked, products, EXPECTED)
    experienced, before = Judge(own), list[Sequence[Operation]]()
    for each in [FORMULA, *orders(own, 4)]:
        found = scheduled(experienced, each)
        assert found == scheduled(Judge(own), each) and found not in before
        before.append(found)


def test_where_no_layer_is_free_the_moves_are_those_without_places(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    maker = ModelMaker((1, 8, 10, 10))
    maker.conv(maker.conv("x", 8, 8, (3, 3)), 8, 8, (3, 3))
    asked = Request(maker.save(tmp_path / "net.onnx"), {"x": SAMPLES})
    products, = run_parts(asked, BASE, last="consts")[1]
    neighbours = neighbours_of(problem_of(asked, products, EXPECTED))

    def drawn() -> list[Choices | None]:
        chance = random.Random(0)
        return [neighbours.draw(chance, neighbours.drawn_layer(chance)) for _ in range(30)]

    found = drawn()
    monkeypatch.setattr("weft.compiler.tuning.moves.MOVES_OF_PLACES", {})
    assert found == drawn()


def test_another_order_computes_the_same_in_the_cycles_that_were_judged(problem: Problem, network: Path,
                                                                        tmp_path: Path) -> None:
    own, programs = Judge(problem), set()
    plain = TModel.load(compiled(network, tmp_path, problem.arch).model_path)
    wanted = run_golden(plain, {"x": SAMPLES[0]})
    for choices in orders(problem, 4):
        judged = own.whole(choices)
        model = TModel.load(compiled(network, tmp_path, problem.arch, choices).model_path)
        assert judged is not None
        assert estimate(model.program, problem.arch, EXPECTED).cycles == judged.cycles
        found = run_golden(model, {"x": SAMPLES[0]})
        assert all(np.array_equal(wanted[name], found[name]) for name in wanted)
        programs.add(model.program)
    assert len(programs - {plain.program}) > 2


def test_tables_are_fresh_as_in_layers_that_were_built_in_this_order(problem: Problem, network: Path) -> None:
    made = run_steps(Request(network, {"x": SAMPLES}), problem.arch)
    for choices in orders(problem, 6):
        order = choices.sequence(len(problem.layers))
        found = problem.reordered(order)
        encoded = encode_consts(found.layers, made[Graph].constants, found.numbers, problem.arch)
        assert [own.fresh for own in found.consts.layers] == [own.fresh for own in encoded.layers]
    same = made[Consts].reordered(range(len(problem.layers)), problem.layers, problem.arch)
    assert same.layers == made[Consts].layers


def test_windows_of_all_layers_say_what_the_whole_program_says(problem: Problem) -> None:
    own, count = Judge(problem), len(problem.layers)
    before = own.whole(FORMULA)
    for choices in orders(problem, 6):
        after, local = own.whole(choices), own.local(FORMULA, choices)
        assert before is not None and after is not None
        if local is not None and (local.first, local.end) == (0, count):
            assert local.saved == before.cycles - after.cycles or local.saved < 0 <= after.cycles - before.cycles
        assert len(after.spent) == count


def test_a_search_of_places_alone_finds_what_the_compiler_makes(problem: Problem, network: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.compiler.tuning.moves.MOVES", {})
    monkeypatch.setattr(Neighbours, "openings", lambda _: [])
    found = []
    for _ in range(2):
        judge.begin([problem])
        found.append(tune([problem], Budget(steps=32), Here(), lambda *_: None)[0])
    assert found[0] == found[1]
    assert found[0].after.cycles <= found[0].before.cycles
    model = TModel.load(compiled(network, tmp_path, problem.arch, found[0].choices).model_path)
    assert estimate(model.program, problem.arch, EXPECTED).cycles == found[0].after.cycles
    assert (found[0].choices.order == {}) == (found[0].after.cycles == found[0].before.cycles)


def test_what_a_layer_takes_stands_beside_its_own_name(problem: Problem, network: Path, tmp_path: Path) -> None:
    choices = orders(problem, 3)[-1]
    own = Judge(problem)
    before, after = own.whole(FORMULA), own.whole(choices)
    assert before is not None and after is not None
    report = compiled(network, tmp_path, problem.arch, choices)
    names = [row["name"] for row in report.layers]
    assert names == [problem.layers[number].name for number in choices.sequence(len(problem.layers))]
    rows = tuned_object([Tuned(choices, before, after)], names)["layers"]
    by_name = {layer.name: number for number, layer in enumerate(problem.layers)}
    assert all(row["before"] == before.spent[by_name[row["name"]]] for row in rows)
    assert all(row["after"] == after.spent[by_name[row["name"]]] for row in rows)


def test_a_file_keeps_the_order_and_the_digest_of_the_formulas(problem: Problem, network: Path, tmp_path: Path) -> None:
    choices = Choices(order=orders(problem, 2)[-1].order, layers=digest_of(problem.layers, problem.arch))
    file = tmp_path / "net.choices.json"
    write_choices(file, [choices], (2, 1))
    assert read_choices(file).parts == (choices,)
    own = Choices(order=choices.order)
    direct, read = (compiled(network, tmp_path / folder, problem.arch, each).program_path.read_bytes()
                    for folder, each in (("direct", own), ("read", read_choices(file).parts[0])))
    assert direct == read


@pytest.mark.parametrize(("order", "words"), [
    ({99: 0}, "layer 99"), ({0: 99}, "layer 99"), ({1: -1}, "layer -1"), ({0: 1}, "layer 1, .*before layer 0")])
def test_orders_that_a_network_has_not_are_refused(network: Path, tmp_path: Path, order: dict[int, int],
                                                   words: str) -> None:
    with pytest.raises(CompileError, match=words):
        compiled(network, tmp_path, TABLES, Choices(order=order))
    assert not [*tmp_path.iterdir()]


def test_other_choices_follow_the_layers_that_they_name(problem: Problem) -> None:
    """Paces and tilings are those of a number, wherever the layer runs."""
    count = len(problem.layers)
    choices = Choices(paces={0: 3, count - 2: 5}, order=orders(problem, 3)[-1].order)
    order, moved = choices.sequence(count), choices.by_place(count)
    assert {order[place]: pace for place, pace in moved.paces.items()} == choices.paces
    assert Layers(problem.layers[number] for number in order) == problem.reordered(order).layers
