# SPDX-License-Identifier: Apache-2.0
"""What values of options mean, and what commands make of their parts, each without a network."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from weft import runtime
from weft.boards import BOARDS
from weft.cli import api, estimate, estimating, exploring, memory, tuning
from weft.cli.app import application
from weft.cli.devices import opened
from weft.cli.options import ends, fixed_inputs, input_shapes, override, state_pairs
from weft.cli.places import share_text
from weft.cli.streams import abandon
from weft.cli.tuning import Asked, percent
from weft.cli.values import insist_on_values
from weft.explore import space
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram
from weft.runtime import Device
from weft.runtime.driver.needs import PAGE_BYTES
from weft.support.errors import Mismatch, WeftError


@pytest.mark.parametrize(("given", "found"), [
    (["x:1,3,8"], {"x": (1, 3, 8)}), (["a:b:2"], {"a:b": (2,)}), (["N=4"], {"N": 4}), (["N=0"], None), (["N=-1"], None),
    (["x:1", "x:2"], None), (["N=1", "N=2"], None), (["x:0"], None), ([":1"], None), (["x:1,,2"], None),
    (["x:" + ",".join("1" * 32)], {"x": (1,) * 32}), (["x:" + ",".join("1" * 33)], None), (["x: 1, 2"], {"x": (1, 2)})])
def test_sizes_of_inputs(given: list[str], found: dict[str, Any] | None) -> None:
    if found is None:
        with pytest.raises(WeftError, match="--shape: found"):
            input_shapes(given)
    else:
        assert input_shapes(given) == found


@pytest.mark.parametrize(("given", "found"), [
    (["x=1"], {"x": [1]}), (["x=1,2.5"], {"x": [1, 2.5]}), (["a=b=2"], {"a=b": [2]}), (["x=true"], {"x": [True]}),
    (["x="], None), (["=1"], None), (["x=1", "x=2"], None), (["x=milk"], None), (["x"], None)])
def test_inputs_that_always_have_a_value(given: list[str], found: dict[str, Any] | None) -> None:
    if found is None:
        with pytest.raises(WeftError, match="--fix: found"):
            fixed_inputs(given)
    else:
        assert fixed_inputs(given) == found


@pytest.mark.parametrize(("given", "found"), [
    (["h:x"], {"h": "x"}), (["h:x", "c:x"], {"h": "x", "c": "x"}), (["h:x", "h:y"], None), ([":x"], None),
    (["h:"], None), (["h"], None)])
def test_outputs_that_are_read_again(given: list[str], found: dict[str, str] | None) -> None:
    if found is None:
        with pytest.raises(WeftError, match="--state: found"):
            state_pairs(given, False)
    else:
        assert state_pairs(given, False) == found
        with pytest.raises(WeftError, match="leave --raw out"):
            state_pairs(given, True)


@pytest.mark.parametrize(("given", "found"), [
    ("a", ("a",)), (" a , b,", ("a", "b")), ("", ()), (" ", None), (",", None)])
def test_names_of_ends(given: str, found: tuple[str, ...] | None) -> None:
    if found is None:
        with pytest.raises(WeftError, match="--end: found"):
            ends(given)
    else:
        assert ends(given) == found


@pytest.mark.parametrize("setting", ["milk", "=1", ""])
def test_a_setting_has_a_key_and_a_value(setting: str) -> None:
    with pytest.raises(WeftError, match="--set: found"):
        override(Arch.load("tiny"), [setting])
    assert override(Arch.load("tiny"), ["array_size=4", "mac_rounding=every_step"]).mac_rounding == "every_step"


@pytest.mark.parametrize(("words", "wrong"), [
    (["run", "m.tmodel", "--on", "golden", "--json"], None), (["run", "m.tmodel", "--on", "--json"], "--on"),
    (["run", "m.tmodel", "--json=yes"], "--json"), (["run", "m.tmodel", "--on=--json"], None),
    (["run", "m.tmodel", "--images", "-1"], None), (["board", "build", "ulx3s", "--folder", "--json"], "--folder")])
def test_an_option_is_no_value_of_another(words: list[str], wrong: str | None) -> None:
    """A number below zero is one, and so is what stands behind the sign of equality."""
    program: Any = typer.main.get_command(application())
    if wrong is None:
        insist_on_values(program, words)
    else:
        with pytest.raises(WeftError, match=f"^{wrong}: found "):
            insist_on_values(program, words)


# -- memories ----------------------------------------------------------------------------------------------------------
def test_the_memory_is_the_board_s_unless_a_latency_is_given() -> None:
    board = BOARDS["ulx3s"].dram
    assert [exploring._memory(*given) for given in ((None, None), (None, 30), ("ulx3s", None), ("ulx3s", 30))] == [
        EXPECTED, IdealDram(30, 30), board, IdealDram(30, 30)]
    assert memory.memory_of("ulx3s", None) == board
    spread = BOARDS["pynq_z1"].spread
    assert spread is not None and memory.memory_of("pynq_z1", None) == spread.typical
    for wrong in (("ulx3s", 30), ("tang_nano_20k", None)):
        with pytest.raises(WeftError):
            memory.memory_of(*wrong)


def test_uses_of_the_bus_are_added() -> None:
    assert memory.use_object([{"a": 1, "b": 2}, {"a": 3, "b": 4}]) == {"a": 4, "b": 6}
    assert memory.use_object([]) is None and memory.use_object([{}]) is None


def test_a_program_begins_on_the_page_behind_its_preload(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the driver puts them."""
    dram = BOARDS["ulx3s"].dram
    monkeypatch.setattr(memory, "places_of", lambda session, dram: SimpleNamespace(machine=lambda name: 8 * PAGE_BYTES))
    monkeypatch.setattr(memory, "moved", lambda isa, program, places: (program, None))
    sizes = (1, PAGE_BYTES, PAGE_BYTES + 1)
    for size in sizes:
        machine: Any = SimpleNamespace(arch=Arch.load("tiny"), preload=bytes(size), model=SimpleNamespace(program=b"p"))
        session: Any = None
        first, second = (origin for _, origin in memory.placed(session, machine, dram))
        pages = 2 if size > PAGE_BYTES else 1
        assert (first, second) == (memory.Origin(8 * PAGE_BYTES), memory.Origin((8 + pages) * PAGE_BYTES))


# -- what is told ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("before", "after", "saved"), [(200, 150, "25.00"), (100, 110, "-10.00"), (0, 0, "0.00"),
                                                       (100, 0, "100.00")])
def test_what_tuning_saves_is_a_share_of_before(before: int, after: int, saved: str) -> None:
    assert percent(before, after) == saved


def asked(**given: Any) -> Asked:
    return Asked(**{"seconds": None, "steps": None, "seed": 0, "board": None, "choices": None, **given})


@pytest.mark.parametrize(("given", "option"), [
    ({}, None), ({"seconds": 1.0}, "--tune"), ({"steps": 0}, "--tune-steps"), ({"choices": Path("c")}, "--choices"),
    ({"board": "ulx3s", "steps": 1}, "--tune-steps")])
def test_tuning_is_asked_for_in_one_way(given: dict[str, Any], option: str | None) -> None:
    found = asked(**given)
    assert found.option == option and found.searches == (option in ("--tune", "--tune-steps"))


@pytest.mark.parametrize("given", [
    {"seconds": 1.0, "steps": 1}, {"seconds": 0.0, "choices": Path("c")}, {"board": "ulx3s", "choices": Path("c")}])
def test_ways_of_tuning_exclude_each_other(given: dict[str, Any]) -> None:
    with pytest.raises(WeftError, match="found both"):
        asked(**given)


def test_how_far_a_search_is_is_told_in_percent(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.compiler.tuning import network

    told: list[tuple[str, int, int]] = []

    def tune(request: Any, machine: Any, dram: Any, budget: Any, jobs: int, tell: Any) -> list[Any]:
        tell(0.25, 200, 150)
        return []

    monkeypatch.setattr(network, "tune_network", tune)
    search: Any = tuning.chosen(asked(steps=1), None, None, lambda *given: told.append(given))  # type: ignore[arg-type]
    assert search == ((), []) and told[-1] == ("tuning: 150 cycles, 25.00 % fewer", 25, 100)


@pytest.mark.parametrize(("cycles", "slowest"), [((5, 9, 7), 1), ((9, 5, 9), 0), ((3,), 0)])
def test_the_slowest_core_is_the_first_of_those_that_take_longest(cycles: tuple[int, ...], slowest: int) -> None:
    cores: Any = tuple(SimpleNamespace(cycles=each) for each in cycles)
    assert estimate.Estimated(cores, {}, None).slowest == slowest


def test_the_last_preload_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([(1, 2), (3, 4), None])
    monkeypatch.setattr(estimate, "estimated_program", lambda *_: estimate.Estimated((), {}, next(found)))
    monkeypatch.setattr(estimate, "joined", lambda objects, arch: {"layers": []})
    monkeypatch.setattr(estimate, "node_rows", lambda layers, arch: [])
    session: Any = SimpleNamespace(machines=[None] * 3, arch=SimpleNamespace(cores=1),
                                   network=SimpleNamespace(checksums=True))
    _, where = estimate.estimated(session, EXPECTED, lambda *_: None)
    assert where["preload"] == {"instructions": 3, "cycles": 4}


@pytest.mark.parametrize(("parts", "macs", "said"), [
    (1, 1000, "on the machine: 50.0 % of 1,000 multiply-accumulates, in 1 part"),
    (2, 0, "on the machine: 50.0 % of 4 nodes, in 2 parts")])
def test_the_machine_s_share_in_words(parts: int, macs: int, said: str) -> None:
    partition: Any = SimpleNamespace(machine_share=0.5, macs=macs, places=[None] * 4, graphs=[None] * parts)
    assert share_text(partition) == said


def test_a_device_that_cannot_load_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    def load(*_: object) -> None:
        raise WeftError("no room")

    monkeypatch.setattr(Device, "open", lambda where, **options: SimpleNamespace(load=load,
                                                                                close=lambda: closed.append(True)))
    session: Any = SimpleNamespace(network=None, arch=None)
    with pytest.raises(WeftError, match="no room"):
        opened("sim", session)
    assert closed == [True]


@pytest.mark.parametrize("by", ["node", "layer"])
def test_rows_are_those_that_are_asked_for(by: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    monkeypatch.setattr(estimating, "load", lambda path: SimpleNamespace(arch=Arch.load("tiny")))
    monkeypatch.setattr(runtime, "Session", lambda network, arch: None)
    monkeypatch.setattr(estimate, "estimated", lambda *_: ([], {}))
    monkeypatch.setattr(estimate, "print_estimate", lambda where, rows: told.append(rows))
    estimating.estimate_command(tmp_path / "net.tmodel", by=by)
    assert told == [f"{by}s"]


@pytest.mark.parametrize(("least", "says"), [(20.0, "reached"), (20.1, "--least-snr: found FP16BP8 20.0 dB")])
def test_a_type_with_just_the_least_signal_is_searched(least: float, says: str, monkeypatch: pytest.MonkeyPatch,
                                                       tmp_path: Path) -> None:
    def reached(*_: object) -> None:
        raise WeftError("reached")

    monkeypatch.setattr(exploring, "_signals", lambda *_: {"FP16BP8": 20.0})
    monkeypatch.setattr(space, "points", reached)
    (tmp_path / "net.onnx").write_bytes(b"")
    with pytest.raises(WeftError, match=says):
        exploring.explore_command([tmp_path / "net.onnx"], part="xc7a35t", results=tmp_path / "results", least=least,
                                  axis=["array_size=4"])


def test_in_python_too_a_difference_to_the_golden_machine_is_an_error() -> None:
    def insist() -> None:
        raise Mismatch("they differ")

    session: Any = api.Session.__new__(api.Session)
    result = SimpleNamespace(comparison=SimpleNamespace(insist=insist), outputs={})
    session._runs = SimpleNamespace(run=lambda feeds, on: result,
                                    network=SimpleNamespace(signature=SimpleNamespace(inputs=(), outputs=())))
    session._on = "rtl"
    with pytest.raises(Mismatch, match="they differ"):
        session.run(None, {})


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_what_cannot_be_written_is_dropped(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of a pipe has gone; afterwards the stream leads nowhere."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as stream:
        stream.write("lost")
        monkeypatch.setattr(sys, name, stream)
        abandon()
        stream.flush()
        assert os.fstat(stream.fileno()).st_rdev == os.stat(os.devnull).st_rdev
        monkeypatch.undo()
