# SPDX-License-Identifier: Apache-2.0
"""Build the wheel ``weft-runtime``: what runs compiled models on a board, with numpy alone.

    python scripts/runtime_wheel.py [--folder DIR]

It has the modules that the driver loads and no other, as Python: one wheel for all processors. Its package is ``weft``
too, so either it or ``weft-accelerator`` is installed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Annotated

import typer

ROOT = Path(__file__).resolve().parents[1]
LOADED = """
import importlib, sys
sys.modules["msgspec"] = None
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted(name for name in sys.modules if name.partition(".")[0] == "weft"), sep="\\n")
"""
"""The program that prints which modules the ones of ROOTS load, where msgspec is not installed."""
ROOTS = ("weft.runtime.driver.device", "weft.runtime.driver.links", "weft.runtime.driver.serial_ports",
         "weft.runtime.driver.etherbone", "weft.runtime.driver.memory_mapped", "weft.runtime.driver.pynq_board",
         "weft.runtime.layouts", "weft.runtime.samples", "weft.runtime.arrays", "weft.runtime.streaming",
         "weft.golden.system", "weft.golden.races", "weft.tmodel.onnx_engine")
"""The modules that users load, and those that others load when they are asked for something."""
FIRST_SECOND = 315_532_800
"""1980-01-01, in seconds since 1970."""
PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "weft-runtime"
version = "{version}"
description = "Run models that Weft compiled, on boards: with numpy alone"
license = "Apache-2.0"
license-files = ["LICENSE"]
requires-python = "{python}"
dependencies = ["{numpy}"]

[project.optional-dependencies]
board = {board}
host = ["{onnx}", "{onnxruntime}"]

[tool.setuptools.packages.find]
include = ["weft", "weft.*"]
"""


def build(folder: Path) -> Path:
    """Build the wheel into ``folder``; return its path."""
    with tempfile.TemporaryDirectory() as work:
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        needed = {name: next(each for each in project["dependencies"] if each.startswith(f"{name}>"))
                  for name in ("numpy", "onnx", "onnxruntime")}
        (Path(work) / "pyproject.toml").write_text(PROJECT.format(
            version=project["version"], python=project["requires-python"],
            board=project["optional-dependencies"]["board"], **needed))
        (Path(work) / "LICENSE").write_bytes((ROOT / "LICENSE").read_bytes())
        for name in modules():
            place = Path(*name.split("."))
            file = place / "__init__.py" if (ROOT / place).is_dir() else place.with_suffix(".py")
            (Path(work) / file).parent.mkdir(parents=True, exist_ok=True)
            (Path(work) / file).write_bytes((ROOT / file).read_bytes())
        pip_wheel(Path(work), folder)
    return max(folder.glob("weft_runtime-*.whl"), key=lambda path: path.stat().st_mtime)


def pip_wheel(source: Path, folder: Path) -> None:
    """Build the wheel of the project in ``source`` into ``folder``: the same bytes for the same sources.

    The archive's files have the time of SOURCE_DATE_EPOCH, the first that such an archive can say if it is not set."""
    given = {"SOURCE_DATE_EPOCH": str(FIRST_SECOND), **os.environ}
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder),
                    str(source)], check=True, env=given)


def modules() -> list[str]:
    """Return the names of the modules in the wheel."""
    return subprocess.run([sys.executable, "-c", LOADED, *ROOTS], cwd=ROOT, check=True, capture_output=True,
                          text=True).stdout.split()


def main(folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where the wheel goes.")] = Path("dist"),
         ) -> None:
    """Build the wheel of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    print(build(folder))


if __name__ == "__main__":
    typer.run(main)
