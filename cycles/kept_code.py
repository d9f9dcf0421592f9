# SPDX-License-Identifier: Apache-2.0
"""The cache of the kernels' machine code, in the user's cache folder. The wheel brings some for any processor.

What is kept is found by content. The cache's folder is named after the sources that kernels are made of. A file in it
fits a function as long as the function's own file is the same. So machine code that one computer made serves others.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.runtime import rtsys

from weft.support.cache import cache_directory
from weft.support.sources import sources_digest

# Kernels and their constants come from these packages. But numba looks only at the file of the function that it is
# asked for, and would keep what other files have changed.
DIGEST = sources_digest("weft.cycles", "weft.hw.contract")
FOLDER = cache_directory("estimator", DIGEST)
PREBUILT = Path(__file__).parent / "prebuilt" / DIGEST
"""Machine code that the wheel brings (scripts/wheel.py). A checkout has none."""
ANY_PROCESSOR = "generic", ""
"""The processor and its features for which that code is made, as numba spells them."""


class _ByContent(_CacheLocator):
    """Tells numba the folder and the digest of a function's file. ``folder`` is one for each package."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self.package = function.__module__.rpartition(".")[0]
        self.digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        self.line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(FOLDER / self.package)

    def get_source_stamp(self) -> str:
        return self.digest

    def get_disambiguator(self) -> str:
        return str(self.line)

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _ByContent | None:
        return cls(function, file) if Path(file).is_file() else None


class _KeptResult(CompileResultCacheImpl):
    """numba would keep results beside the sources too, where they would outlive a change of another file."""

    _locator_classes = [_ByContent]


class KeptCode(FunctionCache):
    """numba's cache of a function. Code that cannot be written or read is compiled again."""

    _impl_class = _KeptResult

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code in the cache, or do without if the file cannot be written."""
        with contextlib.suppress(OSError):
            super().save_overload(sig, data)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled function for argument types ``sig`` from the cache, else from the wheel, else None.

        numba would first load all that its compiler knows, for 0.2 s. Machine code only needs numba's allocator; where
        none is found, the compiler loads the rest."""
        rtsys.initialize(target_context)
        try:
            found = self._load_overload(sig, target_context)
        except Exception:  # whatever pickle makes of half a file
            with contextlib.suppress(OSError):
                self.flush()
            found = None
        return found or self._load_prebuilt(sig, target_context)

    def _load_prebuilt(self, sig: Any, target_context: Any) -> Any:
        locator = self._impl.locator
        file = IndexDataCacheFile(str(PREBUILT / locator.package), self._impl.filename_base, locator.get_source_stamp())
        triple, *_ = target_context.codegen().magic_tuple()
        _, _, code = self._index_key(sig, target_context.codegen())
        data = file.load((sig, (triple, *ANY_PROCESSOR), code))
        return None if data is None else self._impl.rebuild(target_context, data)
