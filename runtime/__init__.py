# SPDX-License-Identifier: Apache-2.0
"""A compiled model on any machine: its files, the packing of inputs and outputs, a session on golden or RTL.

The public names load what they need when they are first asked for. So importing this package costs nothing, and no name
brings onnx, onnxruntime, amaranth or numba with it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.runtime.devices import GOLDEN, RTL
    from weft.runtime.driver.device import Device
    from weft.runtime.session import RunResult, Session
    from weft.support.errors import Mismatch
    from weft.tmodel.errors import ModelError
    from weft.tmodel.manifest import TModel
    from weft.tmodel.network import Network

__all__ = ["GOLDEN", "RTL", "Device", "Mismatch", "ModelError", "Network", "RunResult", "Session", "TModel"]

_HOMES = {"GOLDEN": "weft.runtime.devices", "RTL": "weft.runtime.devices", "Device": "weft.runtime.driver.device",
          "Mismatch": "weft.support.errors", "ModelError": "weft.tmodel.errors", "Network": "weft.tmodel.network",
          "TModel": "weft.tmodel.manifest", "RunResult": "weft.runtime.session", "Session": "weft.runtime.session"}


def __getattr__(name: str) -> Any:
    """Return a public name, imported when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
