# SPDX-License-Identifier: Apache-2.0
"""What scripts do with their options and their results, each without the work that takes minutes."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from weft.hw.flow import synthesis
from weft.support.errors import WeftError
from weft.support.processes import Here

SCRIPTS = Path(__file__).resolve().parents[3] / "scripts"
Script = Callable[[str], Any]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """A script as a module of its own."""
    monkeypatch.syspath_prepend(str(SCRIPTS))

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"{name}_script", SCRIPTS / f"{name}.py")
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    return load


# -- soak --------------------------------------------------------------------------------------------------------------
def job(start: int) -> Any:
    return SimpleNamespace(name="networks lanes3", kind="networks", machine="lanes3", seeds=range(start, start + 2))


def test_a_run_without_time_tries_one_job_and_keeps_its_place(script: Script, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    soak = script("soak")

    def jobs(kinds: list[str], next_seed: dict[str, int], only: list[str]) -> Any:
        while True:
            start = next_seed.get("networks lanes3", 10)
            next_seed["networks lanes3"] = start + 2
            yield job(start)

    monkeypatch.setattr(soak, "jobs", jobs)
    monkeypatch.setattr(soak, "run", lambda job: ["it differs"] if job.seeds.start == 10 else [])
    console = SimpleNamespace(print=lambda *_, **__: None)
    (tmp_path / "failures").mkdir()
    for failed in (1, 0):
        found = soak.soak(Here(), 1, ["networks"], [], tmp_path, 0, console)
        assert found == (Counter({"networks": 2}), Counter({"networks": failed} if failed else {}))
    state = (tmp_path / "next_seeds.json").read_text()
    assert "14" in state and [path.name for path in (tmp_path / "failures").iterdir()] == ["networks_lanes3_10.txt"]


@pytest.mark.parametrize(("failed", "code"), [(0, 0), (1, 2)])
def test_hours_are_given_as_seconds_and_a_failure_as_a_code(failed: int, code: int, script: Script, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    soak, asked = script("soak"), []

    def run(*given: Any) -> tuple[Counter[str], Counter[str]]:
        asked.append(given)
        (tmp_path / "next_seeds.json").write_text("{}")
        return Counter({"networks": 2}), Counter({"networks": failed} if failed else {})

    monkeypatch.setattr(soak, "soak", run)
    monkeypatch.setattr(soak, "ProcessPoolExecutor", lambda *_, **__: Here())
    with pytest.raises(SystemExit) as end:
        soak.main(hours=2, kind=["networks"], machine=["lanes3"], jobs=3, folder=tmp_path, scheduler=None, tls=None)
    (_, count, kinds, machines, folder, seconds, _), = asked
    assert (count, kinds, machines, folder, seconds) == (3, ["networks"], ["lanes3"], tmp_path, 7200)
    assert end.value.code == code


# -- place and route, counts -------------------------------------------------------------------------------------------
@pytest.mark.parametrize("placed", [False, True])
def test_place_and_route_is_asked_for_as_the_options_say(placed: bool, script: Script,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """Late paths are those longer than a period, in nanoseconds."""
    pnr, asked = script("pnr"), []
    monkeypatch.setattr(sys, "argv", ["pnr.py", "--arch", "ecpix5", "--mhz", "80", "--seed", "3",
                                      *(["--placed"] if placed else [])])
    monkeypatch.setattr(pnr.synthesis, "synthesize", lambda *given, **options: asked.append(given[1]))
    monkeypatch.setattr(pnr.ecp5, "place_and_route", lambda *given, **options: asked.append((given[2], options)))
    monkeypatch.setattr(pnr.ecp5, "summary", lambda found: "")
    monkeypatch.setattr(pnr.static_timing, "long_paths", lambda file, period: asked.append(period))
    monkeypatch.setattr(pnr.static_timing, "summary", lambda found: "")
    assert pnr.main() == 0
    family, (mhz, options), period = asked
    assert (family, mhz, options["seed"], options["route"], period) == ("ecp5", 80, 3, not placed, 12.5)


def test_a_table_of_counts_has_the_difference_to_the_baseline(script: Script) -> None:
    first, *others = synthesis.COLUMNS
    counts = {first: 10, **{name: 20 + number for number, name in enumerate(others)}}
    before = {first: 7, **{name: 20 + number for number, name in enumerate(others)}}
    report = {"part": "P", "blocks": {"a": counts}, "total": counts, "of_part": {first: (10, 40)}}
    text = script("synth").table("xc7", report, {"blocks": {"a": before, "gone": before}, "total": before})
    lines = text.splitlines()
    assert lines[0] == "xc7: P" and lines[2].split()[:3] == ["a", "10", "(+3)"] and text.count("(+") == 2
    assert lines[-2] == f"{first}: 10 of 40 (25 %)" and lines[-1] == "in the baseline, not here: gone"


# -- wheels, locks, pages ----------------------------------------------------------------------------------------------
def test_a_wheel_without_machine_code_is_not_built(script: Script, tmp_path: Path,
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = script("wheel")
    monkeypatch.setattr(wheel.subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=1, stderr="no kernel"))
    with pytest.raises(SystemExit, match="no kernel"):
        wheel.prebuild(tmp_path, tmp_path / "cache")


def test_each_new_package_is_in_one_lock(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an extra's own if nothing else takes it."""
    lock = script("lock")
    for name in lock.HEADS:
        (tmp_path / name).write_text("known==1 --hash=sha256:0\n" if name == lock.MAIN else "")
    monkeypatch.setattr(lock, "ROOT", tmp_path)
    there = [SimpleNamespace(name=name, version="2") for name in ("known", "both", "fuzzer")]
    extras = {"fuzz": {"both", "fuzzer"}}
    monkeypatch.setattr(lock.metadata, "distributions", lambda: there)
    monkeypatch.setattr(lock.metadata, "metadata", lambda name: SimpleNamespace(get_all=lambda key: ["fuzz", "sim"]))
    monkeypatch.setattr(lock, "needed", lambda asked: set().union(*(extras.get(each, {"both"}) for each in asked)))
    found = lock.versions()
    assert found[lock.MAIN] == {"known": "2", "both": "2"} and found["lock-fuzz.txt"] == {"fuzzer": "2"}


def test_a_page_that_is_not_current_is_told_and_written(script: Script, tmp_path: Path,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    docs = script("docs")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    old, same = tmp_path / "old", tmp_path / "same"
    old.write_text("old")
    same.write_text("same")
    monkeypatch.setattr(docs, "pages", lambda: {old: "new", same: "same"})
    with pytest.raises(WeftError, match="found old, not current"):
        docs.main(check=True)
    docs.main()
    docs.main(check=True)
    assert old.read_text() == "new" and len(list(tmp_path.iterdir())) == 2


def test_tables_are_made_between_their_marks(script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = script("docs")
    text = "<!-- generated: own -->\nold\n<!-- end -->\n"
    (tmp_path / "README.md").write_text(text)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "plain.md").write_text("plain")
    (tmp_path / "docs" / "table.md").write_text(f"before\n{text}behind\n")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    monkeypatch.setattr(docs, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(docs, "TABLES", {"own": lambda: "new\n"})
    for module in (docs.block_pages, docs.board_pages):
        monkeypatch.setattr(module, "pages", dict)
    monkeypatch.setattr(docs.units_picture, "text", lambda: "")
    made = {path.name: text for path, text in docs.pages().items() if path != docs.units_picture.FILE}
    new = text.replace("old", "new")
    assert made == {"README.md": new, "table.md": f"before\n{new}behind\n"}
