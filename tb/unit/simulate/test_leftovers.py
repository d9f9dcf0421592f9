# SPDX-License-Identifier: Apache-2.0
"""A process that is killed while it builds or simulates leaves nothing for long: programs end, folders go."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.simulate.leftovers import OWNER, owned, remove_dead, run_group
from weft.simulate.once import WORK, built_once
from weft.tb.hostile.case import copy_good

WORKER = """
import sys
from pathlib import Path
from weft.cli.main import _interrupt
import signal
from weft.simulate.leftovers import run_group
from weft.simulate.once import built_once

signal.signal(signal.SIGTERM, _interrupt)
with built_once(Path(sys.argv[1])) as work:
    with open(work / "log", "w") as log:
        command = "sleep 1000 & echo $! > pid; mv pid process; wait"
        run_group(["sh", "-c", command], work, log, {"PATH": "/usr/bin:/bin"})
"""
"""Builds for ever: a program that has started another one."""


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(true: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path, int]]:
    """The builder, its folder, and the process that the builder's program has started."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(tmp_path / "design")])
    wait_for(lambda: list(tmp_path.glob(f"*{WORK}*/process")))
    file, = tmp_path.glob(f"*{WORK}*/process")
    grandchild = int(file.read_text())
    yield process, file.parent, grandchild
    process.kill()
    process.wait()
    if alive(grandchild):
        os.kill(grandchild, signal.SIGKILL)


def test_a_request_to_end_ends_all(worker: tuple[subprocess.Popen[bytes], Path, int]) -> None:
    process, folder, grandchild = worker
    process.terminate()
    process.wait(20)
    wait_for(lambda: not alive(grandchild))
    assert not folder.exists()


def test_the_next_build_removes_what_a_killed_one_left(worker: tuple[subprocess.Popen[bytes], Path, int]) -> None:
    process, folder, grandchild = worker
    process.kill()
    process.wait(20)
    assert alive(grandchild) and folder.exists()
    with built_once(folder.parent / "another") as work:
        assert work is not None and not folder.exists()
        wait_for(lambda: not alive(grandchild))
    assert (folder.parent / "another").is_dir()
    assert not [path for path in folder.parent.iterdir() if WORK in path.name]


def test_a_build_that_goes_on_is_left_alone(worker: tuple[subprocess.Popen[bytes], Path, int]) -> None:
    _, folder, grandchild = worker
    remove_dead(folder.parent, f"*{WORK}*")
    assert alive(grandchild) and folder.exists()


def test_only_what_an_owner_left_is_removed(tmp_path: Path) -> None:
    """Folders of failed runs have no owner and stay; so do links."""
    with owned(tmp_path, "run-") as kept:
        (kept / "log").write_text("failed")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / OWNER).write_text("")
    (tmp_path / "run-link").symlink_to("elsewhere")
    remove_dead(tmp_path, "run-*")
    assert (kept / "log").exists() and (tmp_path / "elsewhere" / OWNER).exists() and not (kept / OWNER).exists()


def test_a_time_limit_ends_the_whole_group(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as log, pytest.raises(subprocess.TimeoutExpired):
        run_group(["sh", "-c", "sleep 1000 & echo $! > process; wait"], tmp_path, log, dict(os.environ), 0.5)
    grandchild = int((tmp_path / "process").read_text())
    wait_for(lambda: not alive(grandchild))


@pytest.mark.wide
@pytest.mark.slow
def test_a_killed_run_on_rtl(tmp_path: Path) -> None:
    """The command line itself, killed while make runs: the next one cleans up and says what is wrong."""
    copy_good(tmp_path)
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text("#!/bin/sh\nsleep 1000 &\necho $! > pid\nmv pid process\nwait\n")
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{make.parent}:{os.environ['PATH']}", "WEFT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "weft.cli.main", "run", "echo.tmodel", "--input", "x.npy", "--raw", "--on", "rtl"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment)
    wait_for(lambda: list((tmp_path / "cache").rglob("process")), 600)
    file, = (tmp_path / "cache").rglob("process")
    grandchild = int(file.read_text())
    process.kill()
    process.wait()
    assert alive(grandchild)
    make.write_text("#!/bin/sh\nexit 1\n")
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("weft: ")
    wait_for(lambda: not alive(grandchild))
    assert not list((tmp_path / "cache").rglob(f"*{WORK}*"))
