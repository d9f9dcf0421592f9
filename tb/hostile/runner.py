# SPDX-License-Identifier: Apache-2.0
"""Runs hostile cases and judges what came: a child of this process for each, so that imports are paid once."""

from __future__ import annotations

import fcntl
import os
import re
import resource
import signal
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from weft.tb.hostile import (
    architectures,
    arrays,
    command_lines,
    commands,
    contributed_files,
    damaged,
    host_parts,
    large_networks,
    manifests,
    models,
    odd_kinds,
    onnx_files,
    onnx_names,
    onnx_numbers,
    operator_table,
    strange_files,
    strange_networks,
    strange_tflite,
    tflite_files,
    writers,
)
from weft.tb.hostile.case import ESTIMATE, FORGED_LINE, Case, compiled, good_and

MEMORY_BYTES = 2 << 30
LOOKS_A_SECOND = 100
PATIENCE = 3
"""A case may wait so many times longer than it may compute: other tests run beside it."""

PIPE_BYTES = 1 << 20
MOST_COMPARED = 64 << 20

READERS = (architectures, arrays, onnx_files, onnx_numbers, onnx_names, large_networks, operator_table, tflite_files,
           contributed_files, models, manifests, host_parts, commands, command_lines, writers, damaged,
           odd_kinds, strange_networks, strange_files, strange_tflite)

RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""What must not reach a terminal."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case. ``problem`` is empty if it was dealt with as it must be."""

    case: Case
    problem: str
    code: int | None
    seconds: float
    bytes: int
    said: str


def all_cases() -> list[Case]:
    """Return every case, names all different."""
    cases = [case for module in READERS for case in module.cases()]
    assert len({case.name for case in cases}) == len(cases)
    return cases


def prepare() -> None:
    """Import what commands need, and make the good files, before any child."""
    import weft.cli.cycle_table
    import weft.cli.main
    import weft.compiler.check.checker
    import weft.cycles.replay
    import weft.hw.flow.reports
    import weft.hw.flow.verilog
    import weft.simulate.toolchain  # noqa: F401

    compiled()
    warm = Case("estimate", "", good_and(ESTIMATE), code=0, seconds=600)
    assert not run_case(warm).problem  # the estimator's machine code, made once


def run_case(case: Case) -> Outcome:
    """Run a case in a folder of its own; return its outcome."""
    with tempfile.TemporaryDirectory(prefix="hostile-case-") as name:
        folder = Path(name) / "here"
        (folder / "tmp").mkdir(parents=True)
        arguments = case.recipe(folder)
        before = _files(folder)
        (out_end, out_start), (said_end, said_start) = _pipe(), _pipe()
        child = os.fork()
        if child == 0:
            _command(case, arguments, folder, out_start, said_start)
        code, seconds, largest = _wait(child, case.seconds)
        out, said = _content(out_end, out_start), _content(said_end, said_start)
        after = _files(folder)
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        problem = _problem(case, code, seconds, largest, said, out, changed)
        return Outcome(case, problem, code, seconds, largest, said.decode(errors="replace"))


def _pipe() -> tuple[int, int]:
    """Return both ends of a pipe that holds all that a command prints.

    Files would be cut by a limit for a full disk."""
    ends = os.pipe()
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return ends


def _content(end: int, start: int) -> bytes:
    os.close(start)
    with os.fdopen(end, "rb") as file:
        return file.read()


def _files(folder: Path) -> dict[str, object]:
    """Return path -> what tells whether it is still the same, for all but folders: an empty one does no harm."""
    found = [os.path.join(root, file) for root, _, files in os.walk(folder) for file in files if "cache" not in root]
    return {path: _state(path) for path in found}


def _state(path: str) -> object:
    """Return kind, permissions and size; the content of a file, the target of a link."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path)
    small = stat.S_ISREG(status.st_mode) and status.st_size <= MOST_COMPARED
    return status.st_mode, status.st_size, Path(path).read_bytes() if small else None


def _command(case: Case, arguments: list[str], folder: Path, out: int, said: int) -> NoReturn:
    """Run, in the child, the command line as a process of its own would run it."""
    import sys

    from weft.cli.main import main

    code = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.environ |= {"TMPDIR": str(folder / "tmp"), **case.environment}
        tempfile.tempdir = None
        if case.cache is not None:
            _other_cache(case.cache)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        os.dup2(os.open(case.stdout, os.O_WRONLY) if case.stdout else out, 1)
        os.dup2(said, 2)
        sys.stdin, sys.stdout, sys.stderr = (open(number, mode, closefd=False)  # noqa: SIM115
                                             for number, mode in ((0, "r"), (1, "w"), (2, "w")))
        sys.stderr.reconfigure(errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]
        if case.most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (case.most_bytes, resource.RLIM_INFINITY))
        main(arguments)
    except SystemExit as end:
        code = int(end.code or 0)
        sys.stdout.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _other_cache(folder: str) -> None:
    """Let the estimator choose its folder anew, as it does when it is imported."""
    import sys

    os.environ["WEFT_CACHE"] = folder
    for name in [name for name in sys.modules if name.startswith(("weft.cycles", "weft.cli.cycle_table"))]:
        del sys.modules[name]


def _wait(child: int, most_seconds: float) -> tuple[int | None, float, int]:
    """Return (exit code, None if it was stopped; seconds; the most memory it had).

    The seconds are those of the processor, or of waiting if it did nothing else."""
    largest, began = 0, time.monotonic()
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, largest
        largest = max(largest, _most_resident(child))
        waited = (time.monotonic() - began) / PATIENCE
        if max(waited, _busy(child)) > most_seconds or largest > MEMORY_BYTES:
            os.killpg(child, signal.SIGKILL)
            *_, used = os.wait4(child, 0)
            return None, max(waited, used.ru_utime + used.ru_stime), largest
        time.sleep(1 / LOOKS_A_SECOND)


def _busy(process: int) -> float:
    """Return the seconds of the processor so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _most_resident(process: int) -> int:
    """Return the most bytes that a process has held."""
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process}/status").read_text())
    except OSError:
        return 0
    return 1024 * int(found[1]) if found else 0


def _problem(case: Case, code: int | None, seconds: float, largest: int, said: bytes, out: bytes,
             changed: list[str]) -> str:
    if code is None:
        return f"stopped after {seconds:.1f} s with {largest >> 20} MB"
    text, printed = said.decode(errors="replace"), (said + out).decode(errors="surrogateescape")
    if "Traceback" in text or "Exception ignored" in text:
        return "a traceback: " + (text.strip().splitlines() or [""])[-1]
    if code not in ((0, 1) if case.code is None else (case.code,)):
        return f"exit code {code} instead of {case.code}"
    if found := RAW.search(printed):
        return f"the control character {found[0]!r} in what it prints"
    if any("\udc80" <= letter <= "\udcff" for letter in printed):
        return "no UTF-8 in what it prints"
    if any(line.lstrip().startswith(FORGED_LINE) for line in printed.splitlines()):
        return "a line that a name made"
    if not text.startswith(("Usage: ", "Error: ")) and (strange := [line for line in text.splitlines()
                                                                    if not line.startswith("weft: ")]):
        return f"a line of its own on standard error: {strange[0][:200]!r}"
    return "" if code == 0 else _wrong_message(text, changed)


def _wrong_message(text: str, changed: list[str]) -> str:
    if not text.startswith(("weft: ", "Usage: ", "Error: ")):
        return f"no message of weft: {text[:80]!r}"
    if text.startswith("weft: ") and not all(word in text for word in ("found ", "; allowed: ", "; way out: ")):
        return f"a message without found, allowed, way out: {text[:200]!r}"
    if "report it with the model" in text:
        return "a fault of the compiler"
    if len(text) > 20_000:
        return f"a message of {len(text)} characters"
    return f"files changed or left: {', '.join(changed)}" if changed else ""
