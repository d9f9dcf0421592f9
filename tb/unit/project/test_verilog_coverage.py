# SPDX-License-Identifier: Apache-2.0
"""Coverage of the Verilog: counts are added up, points are told apart from what yosys adds, waivers hold for misses."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from weft.hw.contract.arch import Arch
from weft.simulate import coverage, toolchain
from weft.simulate.build import _verilator_flags
from weft.support.errors import WeftError

ROOT = Path(__file__).parents[3]
VERILOG = """module \\weft_top.core (clk);
  assign \\$9  = full ? 8'h7f : sum;
    if (\\$auto$verilog_backend.cc:2505:dump_module$1 ) begin end
      casez (address)
      4'h1:
          /* empty */;
      4'h2:
          hit = 1'h1;
"""
MODULE = "weft_top.core"


def point(line: int, kind: str, what: str, module: str = MODULE) -> str:
    """As Verilator writes it."""
    pairs = {"f": "design.v", "l": str(line), "n": "3", "t": kind, "page": f"v_{kind}/{module}", "o": what, "h": "top"}
    return "".join(f"\1{name}\2{value}" for name, value in pairs.items())


COUNTS = {
    point(2, "branch", "cond_then"): 0, point(2, "branch", "cond_else"): 4, point(3, "branch", "if"): 0,
    point(5, "line", "case"): 0, point(7, "line", "case"): 2, point(1, "toggle", "sum___05Fx[3]:0->1"): 0,
    point(1, "toggle", "__0249[0]:0->1"): 0, point(1, "toggle", "fields__02ea[0]:0->1"): 0,
    point(9, "branch", "if", "axi_dram"): 0}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("verilog_coverage")


def text(counts: coverage.Counts) -> str:
    return "# SystemC::Coverage-3\n" + "".join(f"C '{each}' {count}\n" for each, count in counts.items())


def test_counts_of_runs_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(coverage.VARIABLE, str(tmp_path / "all"))
    for _ in range(3):
        run = tmp_path / coverage.OF_A_RUN
        run.write_text(text(COUNTS))
        coverage.add(run, "design")
        assert not run.exists()
    assert coverage.read(tmp_path / "all" / "design.dat") == {each: 3 * count for each, count in COUNTS.items()}
    assert sorted(each.name for each in (tmp_path / "all").iterdir()) == ["design.dat", "design.npy"]


def test_nothing_is_counted_unless_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(coverage.VARIABLE, raising=False)
    assert coverage.folder() is None
    plain, covered = (_verilator_flags("top", {}, False, each, False) for each in (False, True))
    assert set(covered) - set(plain) == set(coverage.FLAGS)


def test_a_folder_that_cannot_be_made_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(coverage.VARIABLE, str(tmp_path / "file" / "folder"))
    with pytest.raises(WeftError, match="WEFT_COVERAGE: found .*file/folder"):
        coverage.folder()


def test_what_yosys_adds_and_other_modules_are_no_points(script: ModuleType) -> None:
    found = list(script.points(COUNTS, VERILOG.splitlines(), {MODULE: "hw/simd"}))
    assert [(each.what, each.unit, each.met) for each in found] == [
        ("branches", "hw/simd", False), ("branches", "hw/simd", True), ("lines", "hw/simd", True),
        ("toggles", "hw/simd", False)]
    assert str(found[0]) == r"branches weft_top.core: assign \$9  = full ? 8'h7f : sum; (cond_then)"
    assert str(found[-1]) == "toggles weft_top.core: sum__x[3]:0->1"


def test_a_waiver_takes_points_that_were_not_met_and_no_others(script: ModuleType) -> None:
    rules = [script.Waiver("branches", MODULE, ".*full.*", "because")]
    unmet: list[Any] = []
    total: dict[str, dict[str, int]] = {}
    script.summed(script.points(COUNTS, VERILOG.splitlines(), {MODULE: "hw/simd"}), rules, unmet, total)
    assert rules[0].waived == 1
    assert [each.what for each in unmet] == ["toggles"]
    counts = total["hw/simd"]
    assert [script.share(counts, what, script.WHAT) for what in script.WHAT] == [100.0, 100.0, 0.0]
    assert [counts[there] for there, _ in script.WHAT.values()] == [1, 1, 1]


def test_every_module_belongs_to_the_folder_that_it_is_written_in(script: ModuleType) -> None:
    toolchain.setup()
    found = script.units(Arch.load("tiny"))
    top = "weft_top.machine"
    assert {found[top], found[f"{top}.csr"], found[f"{top}.core.matrix.array"]} == {"hw", "hw/bus", "hw/array"}
    assert found[f"{top}.core.fetch.beats.fifo"] == "hw/parts", "a FIFO of Amaranth's counts where it is used"
    assert all((ROOT / folder).is_dir() for folder in found.values())


def test_every_waiver_has_a_reason(script: ModuleType) -> None:
    rules = tomllib.loads(script.WAIVERS.read_text())["waiver"]
    assert all(len(each["reason"]) > 20 and each["what"] in script.WHAT for each in rules)
