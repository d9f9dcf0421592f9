"""A compiled model on any machine: its files, the packing of inputs and outputs, a session on golden or RTL.

The public names load what they need when they are first asked for: importing this package costs nothing, and neither
onnx, onnxruntime, amaranth nor numba come with any of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.support.errors import Mismatch
    from weft.tmodel.errors import ModelError
    from weft.tmodel.manifest import TModel
    from weft.tmodel.network import Network

    from weft.runtime.devices import GOLDEN, RTL
    from weft.runtime.driver.device import Device
    from weft.runtime.session import RunResult, Session

__all__ = ["GOLDEN", "RTL", "Device", "Mismatch", "ModelError", "Network", "RunResult", "Session", "TModel"]

_HOMES = {"GOLDEN": "devices", "RTL": "devices", "Device": "driver.device", "Mismatch": "errors",
          "ModelError": "errors", "Network": "network", "TModel": "manifest", "RunResult": "session",
          "Session": "session"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
