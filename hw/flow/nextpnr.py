# SPDX-License-Identifier: Apache-2.0
"""nextpnr as a Python package, one for each family of chips."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from weft.support.errors import WeftError, explain


def run(folder: Path, package: str, options: Sequence[str], tell: Callable[[str], None]) -> dict:
    """Run ``yowasp_nextpnr_<package>`` in ``folder`` and return its report; its log is left in pnr.log.

    ``tell`` is called every second with the log's last line. Raise WeftError if nextpnr fails."""
    call = f"import sys, yowasp_nextpnr_{package} as it; sys.exit(it.run_nextpnr_{package}(sys.argv[1:]))"
    log = folder / "pnr.log"
    run_logged([sys.executable, "-c", call, *options, "--report", "pnr_report.json", "--log", log.name, "--quiet"],
               log, tell)
    return json.loads((folder / "pnr_report.json").read_text())


def run_logged(command: Sequence[str], log: Path, tell: Callable[[str], None]) -> None:
    """Run nextpnr in the folder of its log. Raise WeftError if it fails or cannot be started.

    ``tell`` is called every second with the log's last line."""
    log.unlink(missing_ok=True)
    try:
        returned, errors = _run(command, log, tell)
    except OSError as error:
        raise WeftError(explain(command[0], error.strerror, "a program that runs", "install it again")) from None
    if returned:
        said = "\n".join(errors.splitlines()[-5:]) or f"nextpnr ended by {returned}, without a word"
        raise WeftError(explain("place and route", said, "a routed design",
                                f"ask for fewer MHz or another seed, or read {log}"))


def _run(command: Sequence[str], log: Path, tell: Callable[[str], None]) -> tuple[int, str]:
    """Run a command in the log's folder; return its exit code and what it wrote to standard error.

    If this process is interrupted, the command is killed too."""
    with subprocess.Popen(command, cwd=log.parent, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                          text=True) as process:
        try:
            while True:
                try:
                    _, errors = process.communicate(timeout=1)
                    return process.returncode, errors
                except subprocess.TimeoutExpired:
                    lines = log.read_text().split("\n") if log.exists() else []
                    tell(next((line for line in reversed(lines) if line), ""))
        finally:
            process.kill()
