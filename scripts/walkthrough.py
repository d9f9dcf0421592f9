# SPDX-License-Identifier: Apache-2.0
"""Walk through README and docs/cli.md as a newcomer: a fresh clone, a fresh environment, their commands in order.

    python scripts/walkthrough.py [--folder DIR] [--only clone|wheel]

Then the wheel is tried alone. The script writes docs/data/walkthrough.json, from which `make docs` makes the table
of docs/walkthrough.md. What needs a board, another tool's files or many minutes (the suite, searches) is left out. A
command that fails is a row with its exit code, and the script's own is 1 then."""

from __future__ import annotations

import datetime
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.support.errors import WeftError, explain, run_script
from weft.support.outputs import Kind, write_text

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/cli.md")
DATA = ROOT / "docs" / "data" / "walkthrough.json"
MEASURED = Kind.of_head("what an earlier walk measured", r'\{\n "commit": ')
AWAY = ("serial:", "udp:", "model.pb", "model.tflite", "weft board", "weft explore", "make test",
        "make bitstream", "git clone")
"""The commands that need more than the repository, take long, or are done before."""
SAMPLES = """
import numpy as np
data = np.load('models/digits/held_out.npz')
np.savez('samples.npz', image=data['calibration'][:20])
"""
GIVEN = ["cp models/digits/digits.onnx model.onnx", "cp arch/tiny.tarch my.tarch",
         f'.venv/bin/python -c "{SAMPLES.strip()}"']
"""The reader's own files, which the pages speak of: here the demo's."""
LAST_LINES = 3

Row = dict[str, Any]


def typed() -> str:
    """Return the pages whose commands are typed, one behind the other."""
    return "\n".join((ROOT / page).read_text() for page in PAGES)


def commands(text: str) -> list[str]:
    """Return the commands of indented lines that run here, without comments; ``weft`` as the clone has it."""
    found = []
    for line in re.findall(r"^ {4,8}((?:make|weft|\.venv/bin/weft|env/bin/weft|python3 -m venv) ?.*)$", text, re.M):
        command = re.sub(r"^weft ", ".venv/bin/weft ", re.split(r"\s{2,}#", line)[0].strip())
        if not any(word in command for word in AWAY):
            found.append(command)
    return found


def from_clone(pages: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (command, folder) of what is typed in the clone."""
    yield f"git clone {ROOT} weft", str(folder)
    clone = str(folder / "weft")
    lines = [line for line in commands(pages) if not line.startswith("env/bin/weft")]
    lines = [line for line in lines if not line.startswith("python3 -m venv env")]
    own = next(number for number, line in enumerate(lines) if "model.onnx" in line)
    for command in [*lines[:own], *GIVEN, *lines[own:]]:
        yield command, clone


def from_wheel(pages: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (command, folder) of what is typed with the wheel alone.

    The wheel is made in the clone, and copied to a folder that has nothing else."""
    yield "make wheel", str(folder / "weft")
    alone = folder / "alone"
    (alone / "dist").mkdir(parents=True)
    yield f"cp {folder}/weft/dist/*.whl {alone}/dist/", str(folder)
    for command in commands(pages):
        if "env/bin/" in command and ".venv" not in command:
            yield command, str(alone)


def walked(steps: Iterator[tuple[str, str]], part: str, folder: Path) -> Iterator[Row]:
    """Run the commands of one part, and yield a row for each."""
    given = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    given |= {"WEFT_CACHE": str(folder / f"cache_{part}"), "PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": "80"}
    for command, where in steps:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=where, env=given, text=True, capture_output=True,
                              check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        said = (done.stdout if done.returncode == 0 else done.stderr or done.stdout).strip().splitlines()
        shown = command.replace(str(ROOT), "<this repository>").replace(str(folder), "..")
        yield {"part": part, "command": " ".join(shown.split()), "seconds": round(time.monotonic() - began, 1),
               "cpu_seconds": round(cpu, 1), "exit_code": done.returncode,
               "said": [line.replace(str(folder), "..") for line in said[-LAST_LINES:]]}


def walk(parts: Sequence[str], folder: Path) -> Iterator[Row]:
    """Yield the rows of these parts."""
    pages = typed()
    for part, steps in (("clone", from_clone(pages, folder)), ("wheel", from_wheel(pages, folder))):
        if part in parts:
            yield from walked(steps, part, folder)


def main(
    folder: Annotated[Path | None, typer.Option(help="an empty folder; default: one that goes at the end")] = None,
    only: Annotated[str, typer.Option(help="clone or wheel (of a clone that is in --folder)")] = "",
) -> None:
    """Walk, and write the rows; exit with code 1 if a command failed."""
    if only not in ("", "clone", "wheel"):
        raise WeftError(explain("--only", only, "clone, wheel", "name one of them"))
    asked = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    with tempfile.TemporaryDirectory() as temporary:
        place = (folder or Path(temporary)).resolve()
        place.mkdir(parents=True, exist_ok=True)
        kept = [row for row in json.loads(DATA.read_text())["rows"] if row["part"] != only] if only else []
        rows: list[Row] = []
        for row in walk([only] if only else ["clone", "wheel"], place):
            rows.append(row)
            print(f"{row['seconds']:7.1f} s  {row['exit_code']}  {row['command']}", file=sys.stderr, flush=True)
            content = {"commit": asked.stdout.strip(), "date": f"{datetime.date.today()}", "rows": [*kept, *rows]}
            write_text(DATA, json.dumps(content, indent=1) + "\n", MEASURED)
    failed = [row["command"] for row in rows if row["exit_code"]]
    if failed:
        raise WeftError(explain("README and docs/cli.md", f"{len(failed)} commands that fail, first {failed[0]}",
                                "commands that run", "look at docs/data/walkthrough.json"))


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
