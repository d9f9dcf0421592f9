# SPDX-License-Identifier: Apache-2.0
"""The ONNX backend: ``prepare``, ``run_model``, ``is_compatible``, ``supports_device``, as ``onnx.backend`` has them.

Importing it costs nothing; onnx is loaded when one of its names is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.cli.onnx_backend import HostRep, WeftBackend, WeftRep, is_compatible, prepare, run_model, supports_device

__all__ = ["HostRep", "WeftBackend", "WeftRep", "is_compatible", "prepare", "run_model", "supports_device"]


def __getattr__(name: str) -> Any:
    """Return a public name, imported when it is first asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("weft.cli.onnx_backend"), name)
