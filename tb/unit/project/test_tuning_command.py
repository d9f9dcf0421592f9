# SPDX-License-Identifier: Apache-2.0
"""``weft compile`` with --tune, --tune-steps and --choices."""

import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

DIGITS = Path(__file__).parents[3] / "models" / "digits" / "digits.onnx"

Weft = Callable[..., Any]


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One process judges, and nothing is known from another run but the estimator's machine code."""
    importlib.import_module("weft.cycles.replay")
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))


def test_what_tuning_found_is_repeated_by_its_file(weft: Weft, tmp_path: Path) -> None:
    tuned, again, plain = (tmp_path / name for name in ("tuned", "again", "plain"))
    answer = weft("compile", DIGITS, "-a", "pynq", "-o", tuned, "--tune-steps", 32, "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["tuned"]
    assert found["after"] < found["before"]
    assert [row["name"] for row in found["layers"]]
    choices = tuned / "digits.choices.json"
    assert json.loads(choices.read_text())["cycles"] == [found["before"], found["after"]]
    assert weft("compile", DIGITS, "-a", "pynq", "-o", again, "--choices", choices).code == 0
    assert weft("compile", DIGITS, "-a", "pynq", "-o", plain).code == 0
    programs = [(folder / "digits.tprog").read_bytes() for folder in (tuned, again, plain)]
    assert programs[0] == programs[1] != programs[2]
    for folder, cycles in ((again, found["after"]), (plain, found["before"])):
        assert json.loads(weft("estimate", folder / "digits.tmodel", "--json").out)["cycles"] == cycles


def test_a_program_that_each_core_runs_is_tuned(weft: Weft, tmp_path: Path) -> None:
    """By the cycles of one core alone; this is the way out of --cores split."""
    tuned, again = tmp_path / "tuned", tmp_path / "again"
    machine = ("-a", "ecpix5_2x4", "--set", "sync_counters=2", "--cores", "batch")
    answer = weft("compile", DIGITS, *machine, "-o", tuned, "--tune-steps", 32, "--json")
    assert answer.code == 0, answer.err
    found = json.loads(answer.out)["tuned"]
    assert found["after"] < found["before"]
    assert weft("compile", DIGITS, *machine, "-o", again, "--choices", tuned / "digits.choices.json").code == 0
    assert (tuned / "digits.tprog").read_bytes() == (again / "digits.tprog").read_bytes()


def test_a_table_shows_the_layers_that_changed(weft: Weft, tmp_path: Path) -> None:
    answer = weft("compile", DIGITS, "-a", "pynq", "-o", tmp_path / "tuned", "--tune-steps", 32)
    assert answer.code == 0, answer.err
    table = answer.out.partition("tuned:\n")[2].splitlines()
    assert table[0].split() == ["layer", "cycles", "before", "after", "%", "fewer"]
    assert table[-1].split()[0] == "all"
    assert len(table) > 2


@pytest.mark.parametrize(("options", "words"), [
    (("--tune", 1, "--tune-steps", 1), "--tune and --tune-steps: found both"),
    (("--tune-steps", 1, "--choices", "x.json"), "--tune-steps and --choices: found both"),
    (("--board", "ulx3s", "--choices", "x.json"), "--board and --choices: found both"),
    (("--board", "nowhere"), "nowhere"),
    (("--choices", "nowhere.json"), "no such file"),
    (("--tune", -1), "--tune"),
])
def test_options_that_do_not_go_together_are_refused(weft: Weft, tmp_path: Path, options: tuple[object, ...],
                                                     words: str) -> None:
    answer = weft("compile", DIGITS, "-a", "pynq", "-o", tmp_path / "made", *options)
    assert answer.code == 1
    assert words in answer.err
    assert not (tmp_path / "made" / "digits.tmodel").exists()
