# SPDX-License-Identifier: Apache-2.0
"""The wheel holds every sub-package and every data file, and works without the checkout."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.hw.contract.presets import presets
from weft.support.packages import DISTRIBUTION
from weft.tb.unit.project.test_pages_run import RUN_HERE, page_commands, prepared, seconds

ROOT = Path(__file__).parents[3]
ROOMS = sorted(link.name for link in (ROOT / "weft").iterdir()
               if link.is_symlink() and link.name not in ("tb", "presets", "models"))
TOPS = {**{top: f"weft/{top}" for top in ROOMS}, "arch": "weft/presets", "models": "weft/models"}
NOT_SHIPPED = ("hw/flow/baseline/",)
"""Counts that only scripts compare."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As ``make wheel`` builds it, from a copy, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "wheel.py"), "--folder", str(folder)],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not (ROOT / "cycles" / "prebuilt").exists()
    return next(folder.glob(f"{DISTRIBUTION.replace('-', '_')}-*.whl"))


def shipped(name: str) -> bool:
    """Of a file's path in the checkout. What Python and numba leave behind does not count."""
    page_of_a_room = name.endswith("README.md") and name.count("/") == 1
    return not name.startswith(NOT_SHIPPED) and not page_of_a_room and "__pycache__" not in name


@pytest.mark.wide
def test_wheel_holds_every_module_and_every_data_file(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [path.relative_to(ROOT) for top in TOPS for path in (ROOT / top).rglob("*") if path.is_file()]
    expected = {f"{TOPS[path.parts[0]]}/{path.relative_to(path.parts[0])}" for path in files
                if shipped(str(path))}
    assert expected - names == set()
    assert {"weft/presets/pynq.tarch", "weft/simulate/sv/axi_dram.sv", "weft/report/page/page.js",
            "weft/hw/flow/resources.json", "weft/models/digits/digits.onnx",
            "weft/boards/driver/c/weft_driver.h"} <= names
    assert any(name.startswith("weft/cycles/prebuilt/") and name.endswith(".nbc") for name in names)


@pytest.mark.wide
def test_wheel_holds_nothing_of_other_people(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tops == {"weft", f"{DISTRIBUTION.replace('-', '_')}-{version}.dist-info"}


# -- installed ---------------------------------------------------------------------------------------------------------
Installed = Callable[..., str]


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Runs ``weft`` of an environment of its own, in a folder far from the checkout. It takes the packages that weft
    needs from this environment, but not the checkout's weft: paths of an editable installation are not followed."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "env", with_pip=True)
    program = folder / "env" / "bin"
    own = ("PYTHONPATH", "WEFT_CACHE")  # the cache is the user's, not the checkout's
    given = {name: value for name, value in os.environ.items() if name not in own}
    tools = {"PATH": f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"}  # of the packages: yosys
    subprocess.run([program / "python", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
                    "--disable-pip-version-check", str(wheel)], env=given, check=True)
    packages, = (folder / "env" / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(*arguments: object, program: Path = program / "weft", where: Path = folder,
            cache: Path = folder / "cache" / "weft") -> str:
        done = subprocess.run([program, *map(str, arguments)], cwd=where, text=True, capture_output=True, check=False,
                              env={**given, **tools, "XDG_CACHE_HOME": str(cache.parent)})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    where = run("-c", "import weft, sys; print(weft.__file__)", program=program / "python")
    assert where.startswith(str(folder)), where
    return run


@pytest.mark.wide
def test_installed_wheel_knows_its_machines_and_what_it_lacks(installed: Installed) -> None:
    assert set(json.loads(installed("archs", "--json"))["archs"]) == set(presets())
    assert json.loads(installed("resources", "-a", "pynq", "--json"))["fits"]
    found = json.loads(installed("doctor", "--json"))["findings"]
    assert {row["what"]: row["state"] for row in found}["packages"] == "ok"


@pytest.mark.wide
def test_installed_wheel_compiles_runs_estimates_and_reports(installed: Installed, tmp_path: Path) -> None:
    digits = ROOT / "models" / "digits"
    held_out = np.load(digits / "held_out.npz")
    np.savez(tmp_path / "calibration.npz", image=held_out["calibration"])
    np.savez(tmp_path / "x.npz", image=held_out["image"][:20])
    model = tmp_path / "out" / "digits.tmodel"
    installed("compile", digits / "digits.onnx", "-a", "pynq", "-o", tmp_path / "out", "--calibrate",
              tmp_path / "calibration.npz")
    installed("run", model, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz")
    logits = np.load(tmp_path / "y.npz")["logits"]
    assert np.sum(logits.argmax(1) == held_out["label"][:20]) >= 19
    cache = tmp_path / "cache" / "weft"
    assert json.loads(installed("estimate", model, "--json", cache=cache))["cycles"] > 0
    assert (cache / "estimator").is_dir() and not list(cache.rglob("*.nbc")), "the wheel's machine code does not serve"
    installed("report", model, "-o", tmp_path / "page.html")
    assert "plotly.js" in (tmp_path / "page.html").read_text()


@pytest.mark.long
def test_installed_wheel_runs_its_demo_in_rtl(installed: Installed) -> None:
    said = installed("demo", "--images", "2")
    assert "RTL equals golden" in said and "accuracy, RTL" in said


@pytest.mark.long
@pytest.mark.parametrize("page", RUN_HERE)
def test_installed_wheel_runs_what_a_page_tells_to_type(page: str, installed: Installed, tmp_path: Path) -> None:
    prepared(tmp_path)
    for line in seconds(page_commands(page), False):
        installed(*shlex.split(line, comments=True)[1:], where=tmp_path)
