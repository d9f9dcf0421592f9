# SPDX-License-Identifier: Apache-2.0
"""The cache folder, which keeps results between runs that can be made again: programs and machine code.

Cached code runs when it is found, so a folder that others may write is not used. The user is told so once, and a
temporary folder of this process stands in for it."""

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
from weft.support.sources import CHECKOUT, is_checkout

VARIABLE = "WEFT_CACHE"


def cache_directory(*names: str) -> Path:
    """Return the cache folder, or the folder ``names`` in it, made if it is missing.

    It is $WEFT_CACHE, or build/cache in a checkout, or ~/.cache/weft when installed. If it cannot be made, no error is
    raised here: whoever uses the folder meets it."""
    return private(chosen(), *names)


def chosen() -> Path:
    """Return the cache folder that the user's environment or the place of the sources asks for, not yet made."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if is_checkout():
        return CHECKOUT / "build" / "cache"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft"


@lru_cache
def private(cache: Path, *names: str) -> Path:
    """Return the folder ``names`` of ``cache``, made, or of a temporary folder if others may write ``cache``."""
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
    """Return a new temporary cache folder, which is deleted when the process ends.

    The environment variable is set to it, so that processes started by this one use it too."""
    folder = Path(tempfile.mkdtemp(prefix="weft-cache-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[VARIABLE] = str(folder)
    return folder


# -- who may write -----------------------------------------------------------------------------------------------------
def shared(folder: Path) -> str:
    """Return the reason why other users may write ``folder`` or replace it; empty if they may not.

    Raise OSError if the folder cannot be looked at."""
    for path in _chain(folder):
        status = os.stat(path)
        if status.st_uid not in _trusted():
            return f"{path} belongs to user {status.st_uid}"
        replaceable = path == folder or not status.st_mode & stat.S_ISVTX  # of /tmp nobody removes what is not his
        if replaceable and _writable_by_others(status):
            return f"others may write {path}"
    return ""


def _chain(folder: Path) -> Iterator[Path]:
    """Yield ``folder`` and the folders above it, both by its name and by what links resolve to.

    Folders that hold this project's sources are left out: who may write these needs no cache."""
    for place in dict.fromkeys((folder.absolute(), folder.resolve())):
        for path in (place, *place.parents):
            if not CHECKOUT.is_relative_to(path):
                yield path


def _trusted() -> set[int]:
    """Return the user ids whose files may run: root, this user, and the owner of the sources."""
    return {0, os.geteuid(), os.stat(__file__).st_uid}


def _writable_by_others(status: os.stat_result) -> bool:
    """Tell whether a file's mode lets users write it whom ``_trusted`` does not name."""
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _members(status.st_gid) <= _trusted()


def _members(group: int) -> set[int]:
    """Return the user ids that belong to a group.

    Many systems give each user a group of his own, which may write his folders."""
    found = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    with contextlib.suppress(KeyError):
        for name in grp.getgrgid(group).gr_mem:
            found.add(pwd.getpwnam(name).pw_uid)
    return found or {-1}
