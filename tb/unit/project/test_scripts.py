# SPDX-License-Identifier: Apache-2.0
"""Scripts end with a line and an exit code, whatever ends them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.support.errors import USER_ERROR, WeftError, run_script

SCRIPTS = Path(__file__).parents[3] / "scripts"


def _raise(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize(("error", "said", "code"), [
    (WeftError("what: found this"), "what: found this\n", 1),
    (KeyboardInterrupt(), "interrupted\n", 130)])
def test_mistake_and_interrupt(error: BaseException, said: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SystemExit, KeyboardInterrupt)) as end:  # an interrupt let through would end pytest itself
        run_script(_raise(error))
    assert isinstance(end.value, SystemExit) and end.value.code == code
    assert capsys.readouterr().err == said


@pytest.mark.slow
@pytest.mark.parametrize(("options", "said"), [
    (["--arch", "nope"], "found any network on nope; allowed: "),
    (["--only", "nope"], "found nope on any preset; allowed: ")])
def test_a_benchmark_of_nothing_is_a_mistake(options: list[str], said: str) -> None:
    done = subprocess.run([sys.executable, SCRIPTS / "bench.py", *options], capture_output=True, text=True, check=False)
    assert done.returncode == USER_ERROR
    assert said in done.stderr and "Traceback" not in done.stderr and done.stdout == ""
