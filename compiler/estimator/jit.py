"""Compiles the estimator's inner functions to machine code, and keeps the result while their sources stay the same."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

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


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of a function on numbers and numpy records."""
    numba.config.CACHE_DIR = str(_FOLDER)  # type: ignore[attr-defined]
    return numba.njit(cache=True, error_model="numpy")(function)
