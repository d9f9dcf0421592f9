# SPDX-License-Identifier: Apache-2.0
"""The package: one link for each room of the project, and what a Python program needs first.

``compile(model, arch)`` makes a ``.tmodel``, ``Session(path).run(names, feeds)`` runs it as onnxruntime would.
``InferenceSession(model)`` is both in one, as a script for onnxruntime calls it, and ``backend`` is the ONNX backend.
They load what they need when they are first asked for: importing weft costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import backend
    from weft.cli.api import Session, compile
    from weft.cli.inference_session import InferenceSession

__all__ = ["InferenceSession", "Session", "backend", "compile"]

_HOMES = {"InferenceSession": ("weft.cli.inference_session", "InferenceSession"),
          "Session": ("weft.cli.api", "Session"), "backend": ("weft.backend", ""),
          "compile": ("weft.cli.api", "compile")}
"""Public name -> its module, and its name there; the module itself where that is empty."""


def __getattr__(name: str) -> Any:
    """Return a public name, imported when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, inside = _HOMES[name]
    module = importlib.import_module(home)
    return getattr(module, inside) if inside else module
