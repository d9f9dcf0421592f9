# SPDX-License-Identifier: Apache-2.0
"""The benchmark: its networks are those of the published topologies, its results what was measured."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from weft.compiler.backend.limit import limit_cycles
from weft.compiler.frontend.reader import read_model
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.tb.compile.run_model import BASE

SCRIPTS = Path(__file__).parents[2] / "scripts"


def script(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """A script as a module; scripts import each other by name."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    specification = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, name, module)
    specification.loader.exec_module(module)
    return module


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return script(monkeypatch, "bench")


@pytest.mark.parametrize(("name", "lanes", "limit"), [
    ("resnet20v2", 8, 962_144), ("resnet20v2", 32, 78_768), ("yolov4_tiny_192", 8, 10_498_976),
    ("yolov4_tiny_192", 16, 2_624_744)])
def test_networks_built_here_need_the_known_number_of_vectors(
        scripts: ModuleType, tmp_path: Path, name: str, lanes: int, limit: int) -> None:
    """Those of the trained ResNet-20; of YOLOv4-tiny what 0.736 G multiply-accumulates come to, tile by tile."""
    path = tmp_path / f"{name}.onnx"
    scripts.NETWORKS[name](path)
    assert limit_cycles(read_model(path), BASE.replace(array_size=lanes)) == limit


@pytest.mark.wide
@pytest.mark.slow
def test_result_is_what_was_measured(scripts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts, "OUTPUT", tmp_path)
    path = SCRIPTS.parent / "models" / "digits" / "digits.onnx"
    result = scripts.measure("digits", path, "pynq", on_rtl=True)
    assert result.bit_exact is True
    assert result.cycles_estimated == result.cycles_rtl
    assert result.limit_cycles == limit_cycles(read_model(path), Arch.load("pynq"))
    assert re.fullmatch(r"[a-z ]+\d?[a-z ]* \d+\.\d%(, most in \w+ \(\d+\.\d%\))?", result.largest_loss)
    assert result.fps == pytest.approx(1000 / result.ms)
    assert result.program_bytes == (tmp_path / "digits_pynq" / "digits.tprog").stat().st_size
    scripts.show([result])
    scripts.write("results", [scripts.asdict(result)])
    assert (tmp_path / "results.json").is_file()


def test_cases_are_those_asked_for(scripts: ModuleType) -> None:
    assert [arch for _, arch in scripts.cases("", True, "")] == ["arty", "pynq", "ultra96", "zcu104"]
    assert list(scripts.cases("yolov4_tiny_192", False, "pynq")) == [("yolov4_tiny_192", "pynq")]
    assert list(scripts.cases("yolov4_tiny_192", False, "pynq_int8")) == [("yolov4_tiny_192", "pynq_int8")]
    assert {arch for name, arch in scripts.cases("", False, "") if arch.endswith("_int8")} == {*scripts.BYTE_PRESETS}
    assert {name for name, _ in scripts.cases("", False, "")} == {*scripts.NETWORKS, *scripts.WITHOUT_BAR}


def test_every_case_of_the_units_runs_on_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """On golden: a preset with less memory must not leave the benchmark with addresses beyond it."""
    units = script(monkeypatch, "bench_units")
    for _, arch, cases in units.machines(quick=False):
        for case in cases:
            Machine(arch, Dram(arch), Dram(arch)).run(Isa(arch).assemble(case.program))
