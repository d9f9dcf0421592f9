"""Compiles the estimator's inner functions to machine code, and keeps the result while their sources stay the same."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator
from weft.support import cache


def _digest() -> str:
    """Of the sources that the functions and their constants come from, this package and the contract: numba itself
    looks only at the file of the function that it is asked for, and would keep what other files have changed."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(cache.__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


_FOLDER = cache.cache_directory("estimator", _digest())


class _OurFolder(CompileResultCacheImpl):
    """numba would keep results beside the sources too, where they would outlive a change of another file."""

    _locator_classes = [UserProvidedCacheLocator]


class _Kept(FunctionCache):
    """What cannot be kept, because the disk is full, or not be read any more, is compiled again."""

    _impl_class = _OurFolder

    def save_overload(self, sig: Any, data: Any) -> None:
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever pickle makes of half a file
            with contextlib.suppress(OSError):
                self.flush()
            return None


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function on numbers and numpy records, called by other kernels alone: what Python would need to
    call it is left out, a third of the time that compiling takes. Python calls are refused with a TypeError."""
    compiled = _compiled(function, no_cpython_wrapper=True)

    def refuse(*_: Any, **__: Any) -> None:
        raise TypeError(f"{function.__name__} is a kernel that only kernels call; make it an entry")

    # numba would go on with what it left out, and end the process
    compiled._insert, compiled._compile_for_args = (lambda *_: None), refuse
    return compiled


def entry(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a kernel that Python calls. One process compiles it; others that want it meanwhile wait for that."""
    compiled = _compiled(function)
    make = compiled.compile

    def once(signature: Any) -> Any:
        with _alone():
            return make(signature)

    compiled.compile = once
    return compiled


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    njit: Any = numba.njit  # its types do not know all of its options
    compiled = njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function)
    find = compiled.get_call_template
    # numba would compile a function anew for each constant that it is called with, such as the number of a unit
    compiled.get_call_template = lambda given, named: find(tuple(map(types.unliteral, given)), named)
    with contextlib.suppress(RuntimeError):  # the folder cannot be written
        compiled._cache = _Kept(function)
    return compiled


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """No other process that works on the same folder is in here. Where it cannot be written, all are."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            _FOLDER.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(open(_FOLDER / "lock", "w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
