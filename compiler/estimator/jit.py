"""Compiles the estimator's inner functions to machine code, and keeps the result while their sources stay the same."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserProvidedCacheLocator

from weft.hw.contract import cache


def _digest() -> str:
    """Of the sources that the functions and their constants come from, this package and the contract: numba itself
    looks only at the file of the function that it is asked for, and would keep what other files have changed."""
    digest = hashlib.sha256()
    for folder in (Path(__file__).parent, Path(cache.__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]


_FOLDER = cache.cache_directory() / "estimator" / _digest()


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
    """Decorator of a function on numbers and numpy records."""
    numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    compiled: Any = numba.njit(error_model="numpy")(function)
    with contextlib.suppress(RuntimeError):  # the folder cannot be written
        compiled._cache = _Kept(function)
    return compiled
