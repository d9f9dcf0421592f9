# SPDX-License-Identifier: Apache-2.0
"""A cache that others may write is not used: programs and pickles in it would run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from weft.support import cache

ROOT = Path(__file__).parents[3]
OTHER = 12345
"""A user who is not us."""
ROOT_ONLY = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who may give files away")


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    cache.private.cache_clear()


def used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WEFT_CACHE", str(folder))
    return cache.cache_directory()


def test_a_new_cache_is_ours_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = used(tmp_path / "a" / "cache", monkeypatch)
    assert found == tmp_path / "a" / "cache" and stat.S_IMODE(found.stat().st_mode) == 0o700


def test_the_cache_is_in_the_checkout_or_with_the_users_other_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEFT_CACHE", raising=False)
    assert cache.chosen() == ROOT / "build" / "cache"
    monkeypatch.setattr(cache, "is_checkout", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/else/where")
    assert cache.chosen() == Path("/else/where/weft")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.chosen() == Path.home() / ".cache" / "weft"


def test_a_cache_that_others_may_only_read_stays_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    assert used(tmp_path / "cache", monkeypatch) == tmp_path / "cache"
    (tmp_path / "cache" / "simulation").mkdir()
    (tmp_path / "cache" / "simulation").chmod(0o777)
    assert cache.cache_directory("simulation").parent != tmp_path / "cache"


def writable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)


def sticky(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o1777)


def below_a_writable_one(folder: Path) -> None:
    folder.mkdir()
    folder.parent.chmod(0o777)


def of_a_group(folder: Path) -> None:
    folder.mkdir()
    os.chown(folder, -1, OTHER)
    folder.chmod(0o770)


def of_another_user(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    os.chown(folder, OTHER, OTHER)


def linked(folder: Path) -> None:
    writable(folder.with_name("far"))
    folder.symlink_to("far")


@pytest.mark.parametrize("make", [writable, sticky, below_a_writable_one, linked,
                                  pytest.param(of_a_group, marks=ROOT_ONLY),
                                  pytest.param(of_another_user, marks=ROOT_ONLY)])
def test_a_cache_of_others_is_left_alone(make: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "shared" / "cache"
    folder.parent.mkdir()
    make(folder)
    found = used(folder, monkeypatch)
    said = capfd.readouterr().err
    assert found != folder and found.resolve() != folder.resolve() and not list(folder.iterdir())
    assert stat.S_IMODE(found.stat().st_mode) == 0o700 and found.stat().st_uid == os.getuid()
    assert said.count("\n") == 1 and said.startswith(f"weft: cache {folder}: found ") and "way out: " in said
    assert cache.cache_directory() == found and capfd.readouterr().err == ""
    assert os.environ["WEFT_CACHE"] == str(found)  # workers take the same


def test_a_group_of_one_is_no_group_of_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's and Red Hat's users have a group of their own, and folders that it may write."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o770)
    monkeypatch.setattr(cache, "_members", lambda group: {os.getuid()})
    assert used(tmp_path / "cache", monkeypatch) == tmp_path / "cache"
    cache.private.cache_clear()
    monkeypatch.setattr(cache, "_members", lambda group: {os.getuid(), OTHER})
    (tmp_path / "cache").chmod(0o770)
    assert used(tmp_path / "cache", monkeypatch) != tmp_path / "cache"


def test_what_stands_in_for_a_cache_goes_at_the_end(tmp_path: Path) -> None:
    writable(tmp_path / "cache")
    text = "from weft.support.cache import cache_directory\nprint(cache_directory())\n"
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, text=True, check=True,
                          env={**os.environ, "WEFT_CACHE": str(tmp_path / "cache")})
    assert done.stdout.strip() and not Path(done.stdout.strip()).exists() and done.stderr.count("\n") == 1


def test_nothing_of_a_cache_that_others_may_write_runs(tmp_path: Path) -> None:
    """The estimator's machine code is kept as pickles: one that somebody else put there is not read."""
    command = [sys.executable, "-c", "from weft.cycles import jit, kept_code\n"
               "print(jit.entry(lambda number: 2 * number)(21), kept_code.FOLDER)"]
    writable(tmp_path / "cache")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True,
                          env={**os.environ, "WEFT_CACHE": str(tmp_path / "cache")})
    assert done.stdout.startswith("42 ") and str(tmp_path / "cache") not in done.stdout
    assert not list((tmp_path / "cache").rglob("*")) and "found " in done.stderr


def test_a_group_has_its_own_users_and_those_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    users = [SimpleNamespace(pw_uid=10, pw_gid=7), SimpleNamespace(pw_uid=11, pw_gid=8)]
    monkeypatch.setattr(cache.pwd, "getpwall", lambda: users)
    monkeypatch.setattr(cache.pwd, "getpwnam", lambda name: SimpleNamespace(pw_uid={"guest": 12}[name]))
    monkeypatch.setattr(cache.grp, "getgrgid", lambda group: SimpleNamespace(gr_mem=["guest"] if group == 7 else []))
    assert (cache._members(7), cache._members(8), cache._members(9)) == ({10, 12}, {11}, {-1})
