"""Where results that can be made again are kept between runs: programs and machine code, which run when they are found.

So a folder that others may write is not used. A user is told so once, and a folder of this process stands in for it.
"""

from __future__ import annotations

import atexit
import contextlib
import grp
import os
import pwd
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from weft.support.errors import explain

VARIABLE = "WEFT_CACHE"
PROJECT = Path(__file__).resolve().parents[2]


def cache_directory(*names: str) -> Path:
    """Return the cache, or the folder ``names`` in it, made where it is missing: $WEFT_CACHE, or build/cache in a
    checkout, or ~/.cache/weft when installed. Where it cannot be made, whoever uses it meets the error."""
    return private(chosen(), *names)


def chosen() -> Path:
    """Return the folder that the user, or the place of the sources, asks for."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if (PROJECT / "pyproject.toml").exists() or (PROJECT / ".git").exists():
        return PROJECT / "build" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"


@lru_cache
def private(cache: Path, *names: str) -> Path:
    """Return the folder ``names`` of ``cache``, or of a folder that stands in for it."""
    folder = cache.joinpath(*names)
    with contextlib.suppress(OSError, ValueError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.mkdir(mode=0o700, exist_ok=True)
        problem = shared(cache)
        if not problem and names:
            folder.mkdir(parents=True, exist_ok=True)
            problem = shared(folder)
        if problem:
            if sys.stderr is not None:
                print(f"weft: {explain(f'cache {cache}', problem, 'a folder that only you may write', WAY_OUT)}",
                      file=sys.stderr)
            return private(_stand_in(), *names)
    return folder


WAY_OUT = f"take the permission away (chmod go-w), or export {VARIABLE}=$HOME/.cache/weft; this run keeps nothing"


def _stand_in() -> Path:
    """A new folder that goes at the end; processes that this one starts take it too."""
    folder = Path(tempfile.mkdtemp(prefix="weft-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[VARIABLE] = str(folder)
    return folder


# -- who may write -----------------------------------------------------------------------------------------------------
def shared(folder: Path) -> str:
    """Return why others may put files into ``folder`` or replace it, nothing where they may not. Raises OSError."""
    for path in _chain(folder):
        status = os.stat(path)
        if status.st_uid not in _trusted():
            return f"{path} belongs to user {status.st_uid}"
        replaceable = path == folder or not status.st_mode & stat.S_ISVTX  # of /tmp nobody removes what is not his
        if replaceable and _writable_by_others(status):
            return f"others may write {path}"
    return ""


def _chain(folder: Path) -> Iterator[Path]:
    """The folder and those above it, by its name and behind links; without those that hold our sources: who may write
    these needs no cache."""
    for place in dict.fromkeys((folder.absolute(), folder.resolve())):
        for path in (place, *place.parents):
            if not PROJECT.is_relative_to(path):
                yield path


def _trusted() -> set[int]:
    """Users whose files may run: root, we, and whose the sources are."""
    return {0, os.geteuid(), os.stat(__file__).st_uid}


def _writable_by_others(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _members(status.st_gid) <= _trusted()


def _members(group: int) -> set[int]:
    """Users of a group. Many systems give each user a group of his own, and folders that it may write."""
    found = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    with contextlib.suppress(KeyError):
        for name in grp.getgrgid(group).gr_mem:
            found.add(pwd.getpwnam(name).pw_uid)
    return found or {-1}
