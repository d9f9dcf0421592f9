# SPDX-License-Identifier: Apache-2.0
"""Small rules of the search for a machine, each without a network: keys, bounds, shares, what is asked next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.explore import measure, space
from weft.explore.measure import Network, Refused, digest_of
from weft.explore.results import CYCLES, LEAST, Results
from weft.explore.search import BOUNDED, Found, Search, _keys
from weft.explore.space import Point, machines, points, with_stream
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.flow.parts import PARTS
from weft.support.errors import WeftError
from weft.tmodel.window import Window

ARTY, MEMORY = Arch.load("arty"), IdealDram(50, 50)
ONE, TWO = (Network(Path(name), name) for name in ("one", "two"))


class Kept(Executor):
    """Tasks that are asked for and not run."""

    def __init__(self) -> None:
        self.tasks: list[tuple[Any, ...]] = []

    def submit(self, task: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        self.tasks.append((task, *given))
        return Future()


def point(index: int = 0, share: float = 0.5, luts: int = 1, arch: Arch = ARTY) -> Point:
    return Point(index, arch, {"lut": luts}, share, "lut", ())


def search(*networks: Network) -> Search:
    return Search(networks, [point(), point(1)], Kept(), 1, Results(), MEMORY)


# -- costs -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("most", "left", "found"), [
    (None, [None, None], 90), (100, [100, 60], 90), (70, [70, 30], None)])
def test_a_program_may_take_what_those_before_left(most: int | None, left: list[int | None], found: int | None,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int | None] = []
    taken = iter((40, 50))

    def within(content: bytes, arch: Arch, most: int | None, dram: Any, origin: Any) -> Any:
        asked.append(most)
        cycles = next(taken)
        return None if most is not None and cycles > most else SimpleNamespace(cycles=cycles)

    monkeypatch.setattr(measure, "estimate_within", within)
    assert measure.cycles([b"", b""], ARTY, IdealDram(), most) == found and asked == left


def test_a_bound_of_several_cores_is_rounded_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "constants", lambda network, arch: [None, None])
    monkeypatch.setattr(measure, "_least_vectors", lambda products: 5)
    three = SimpleNamespace(cores=3)
    monkeypatch.setattr(measure, "without", lambda arch, keys: arch)
    assert measure.least_cycles(ONE, three) == 4  # type: ignore[arg-type]
    monkeypatch.setattr(measure, "constants", lambda network, arch: (_ for _ in ()).throw(WeftError("no")))
    assert measure.least_cycles(ONE, three) == Refused("no")  # type: ignore[arg-type]


def test_results_are_of_this_compiler_and_of_these_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, samples = tmp_path / "model", tmp_path / "samples"
    model.write_bytes(b"a")
    samples.write_bytes(b"b")
    found = [digest_of(model), digest_of(model, samples)]
    for network, changed in ((Network(model, found[0]), model), (Network(model, found[1], samples), samples)):
        before = changed.read_bytes()
        assert network.request() if network.calibrate is None else True
        changed.write_bytes(b"c")
        with pytest.raises(WeftError, match="another content than where the search began"):
            network.request()
        changed.write_bytes(before)
    monkeypatch.setattr(measure, "tool_digest", lambda: "another")
    assert digest_of(model) not in found


def test_a_tile_meets_the_pixels_for_which_its_tap_falls_into_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel of 3 x 1 over 4 x 6 pixels has a row of padding above, so its first row misses one."""
    monkeypatch.setattr(measure, "Convolution", SimpleNamespace)
    core = SimpleNamespace(window=Window((3, 1), (1, 1), (1, 0)), size=(4, 6), input=SimpleNamespace(size=(4, 6)))
    for taps, vectors in (([(0, 0)], 18), ([(1, 0)], 24), ([(2, 0)], 18), ([(0, 0), (1, 0), (1, 0)], 66)):
        tiles = [SimpleNamespace(tap=tap, taps=()) for tap in taps]
        own: Any = SimpleNamespace(blocks=[SimpleNamespace(tiles=[tiles])])
        assert measure._of_layer(SimpleNamespace(core=core), own) == vectors  # type: ignore[arg-type]


# -- what is asked next ------------------------------------------------------------------------------------------------
def test_machines_share_results_where_they_take_the_same_cycles() -> None:
    plain = _keys(ARTY.replace(sampler=0), IdealDram(50, 50))
    assert plain == _keys(ARTY.replace(sampler=1), IdealDram(50, 50))
    for dram in (IdealDram(50, 60), IdealDram(50, 50, 8), IdealDram(60, 60)):
        other = _keys(ARTY.replace(sampler=0), dram)
        assert other.cycles != plain.cycles and other[:2] == plain[:2]


@pytest.mark.parametrize(("known", "found"), [
    ({}, None), ({(LEAST, "constants"): 5}, 5), ({(LEAST, "constants"): 5, (LEAST, "program"): 6}, 6),
    ({(LEAST, "program"): 6, (LEAST, "cycles"): 7}, 7), ({(LEAST, "cycles"): 7, (CYCLES, "cycles"): 8}, 8)])
def test_the_nearest_result_is_taken(known: dict[tuple[str, str], int], found: int | None) -> None:
    """Cycles before a bound, and the bound of a machine before those of all that share its program or constants."""
    own = search(ONE)
    keys = own._keys[0]
    for (what, key), value in known.items():
        own.results.add((what, ONE.key, getattr(keys, key)), value)
    assert own._known(ONE, point()) == found
    assert len(own.executor.tasks) == (found is None)  # type: ignore[attr-defined]


def with_bounds(first: int, second: int, beat: int | None) -> Search:
    own = search(ONE, TWO)
    for network, least in ((ONE, first), (TWO, second)):
        own.results.add((LEAST, network.key, own._keys[0].constants), least)
        own._programs[network.key, own._keys[0].program] = [b""]
    if beat is not None:
        own._enter(Found(point(1, 0.4), (beat,)))
    return own


@pytest.mark.parametrize(("beat", "allowed"), [(None, None), (100, 50), (80, 30)])
def test_a_network_may_take_what_the_bounds_of_the_others_leave(beat: int | None, allowed: int | None) -> None:
    """Of 30 and 50 at least; one that is only as fast may still be the better of equals."""
    own = with_bounds(30, 50, beat)
    assert not own._decide(point())
    (task, *given), = own.executor.tasks  # type: ignore[attr-defined]
    assert task is measure.cycles and given[-1] == allowed


def test_a_machine_that_cannot_be_as_fast_is_not_measured() -> None:
    own = with_bounds(30, 50, 79)
    assert own._decide(point()) and own.states[0] == BOUNDED
    assert own.executor.tasks == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(("made", "known"), [(None, (LEAST, 51)), (40, (CYCLES, 40)), (Refused("no"), (LEAST, "no"))])
def test_an_answer_is_noted_as_what_it_is(made: Any, known: tuple[str, int | str]) -> None:
    """None: it takes more than the 50 that were allowed."""
    own, key = search(ONE), "k"
    own._ask(CYCLES, ONE, key, measure.cycles, most=50)
    own._ask(CYCLES, ONE, key, measure.cycles, most=50)
    arrived, = own._running.values()
    arrived(made)
    assert {what: own.results.get((what, ONE.key, key)) for what in (LEAST, CYCLES)} == {
        LEAST: None, CYCLES: None, **dict([known])}
    own._ask(CYCLES, ONE, key, measure.cycles, most=60)
    assert len(own._running) == 2, "it may be asked for again"


# -- the space ---------------------------------------------------------------------------------------------------------
def test_cheaper_machines_come_first() -> None:
    given = [point(1, 0.5, 8), point(0, 0.5, 8), point(2, 0.5, 7), point(3, 0.4, 9)]
    assert [each.index for each in sorted(given, key=lambda each: each.rank)] == [3, 2, 0, 1]


def test_a_chip_without_room_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    fitting = {"of_part": {"lut": (5, 10), "dsp": (3, 4)}, "total": dict.fromkeys(space.COLUMNS, 5), "short": ["dsp"]}
    monkeypatch.setattr(space, "fits", lambda *_, **__: fitting)
    monkeypatch.setattr(space, "room", lambda part, column, around: {"lut": 20, "dsp": 0}[column])
    found, = points(ARTY, {"array_size": (4,)}, PARTS["XC7A35T"])
    assert (found.share, found.largest, found.short) == (float("inf"), "dsp", ("dsp",))
    monkeypatch.setattr(space, "room", lambda part, column, around: {"lut": 20, "dsp": 4}[column])
    found, = points(ARTY, {"array_size": (4,)}, PARTS["XC7A35T"])
    assert (found.share, found.largest) == (0.75, "dsp")


def test_the_stream_of_several_cores_is_as_wide_as_their_bus() -> None:
    """Whether cores are an axis or the base has them."""
    several = Arch.load("pynq_3x8")
    assert with_stream(several, {"axi_data_width": 128}) == {"stream_width": 128, "axi_data_width": 128}
    assert with_stream(ARTY, {"cores": 2})["stream_width"] == ARTY.axi_data_width
    assert with_stream(ARTY, {"axi_data_width": 128}) == {"axi_data_width": 128}
    assert with_stream(several, {"stream_width": 32})["stream_width"] == 32


@pytest.mark.parametrize(("width", "lanes", "bus"), [
    (128, 2, 32), (128, 4, 64), (128, 8, 128), (64, 8, 64), (128, 3, 64)])
def test_a_bus_wider_than_a_vector_is_as_fast_as_the_narrowest_that_holds_it(width: int, lanes: int, bus: int) -> None:
    """Of scalars of 16 bits; a width is a power of two."""
    assert space._bus(SimpleNamespace(axi_data_width=width, vector_bytes=2 * lanes)) == bus  # type: ignore[arg-type]


def test_the_most_machines_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(space, "MOST_MACHINES", 4)
    assert len(list(machines(ARTY, {"array_size": (4, 8), "local_banks": (2, 4)}))) == 4
    with pytest.raises(WeftError, match="--axis: found 6 machines; allowed: at most 4"):
        list(machines(ARTY, {"array_size": (4, 8, 12), "local_banks": (2, 4)}))
