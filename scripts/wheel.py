# SPDX-License-Identifier: Apache-2.0
"""Build the wheel, with the estimator's machine code for any processor in it: a first estimate need not compile.

Beside it ``weft-runtime`` is built (runtime_wheel.py).

    python scripts/wheel.py [--folder DIR]

The machine code is of this Python and this numba; elsewhere the estimator compiles it once, as in a checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import runtime_wheel
import typer

ROOT = Path(__file__).resolve().parents[1]
PREBUILT = Path("cycles") / "prebuilt"
WARM_UP = """
import sys, tempfile
from weft.boards import BOARDS
from weft.boards.board import OnChip
from weft.cli.main import exit_code

def run(*words):
    if exit_code(words):
        sys.exit(f"failed: {' '.join(words)}")

with tempfile.TemporaryDirectory() as folder:
    for name in sorted({name for board in BOARDS.values() for name in (board.arch, *board.others)}):
        run("compile", "models/digits/digits.onnx", "-a", name, "-o", f"{folder}/{name}")
        run("estimate", f"{folder}/{name}/digits.tmodel")
    for board in BOARDS.values():
        if board.shell and not isinstance(board.shell.memory, OnChip):
            run("estimate", f"{folder}/{board.arch}/digits.tmodel", "--board", board.key)
"""
"""The program that compiles every kernel.

It estimates the demo network on each board's machines, and with each board's memory."""


def build(source: Path, folder: Path) -> Path:
    """Build the wheel of a project in ``source`` into ``folder``; return its path. ``source`` stays as it is."""
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work) / "source"
        copy.mkdir()
        for path in sorted(source.iterdir()):
            if not path.name.startswith(".") and path.name not in ("build", "dist") and path.suffix != ".egg-info":
                subprocess.run(["cp", "-rP", str(path), str(copy)], check=True)
        prebuild(copy, Path(work) / "cache")
        runtime_wheel.pip_wheel(copy, folder)
    return max(folder.glob("weft_accelerator-*.whl"), key=lambda path: path.stat().st_mtime)


def prebuild(source: Path, cache: Path) -> None:
    """Compile the estimator's kernels for any processor, in a process of its own, into ``source``."""
    given = {**os.environ, "WEFT_CACHE": str(cache), "NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    done = subprocess.run([sys.executable, "-c", WARM_UP], cwd=source, env=given, text=True, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        sys.exit(done.stderr)
    for kept, folder in (("estimator", PREBUILT), ("kernels", PREBUILT / "kernels")):
        shutil.copytree(cache / kept, source / folder, ignore=shutil.ignore_patterns("lock"))


def main(folder: Annotated[Path, typer.Option("--folder", metavar="DIR", help="Where the wheel goes.")] = Path("dist"),
         ) -> None:
    """Build the wheel of this checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    print(build(ROOT, folder))
    print(runtime_wheel.build(folder))


if __name__ == "__main__":
    typer.run(main)
