"""A part of a network that the host runs, with onnxruntime."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.runtime.checks import host_model
from weft.runtime.errors import refuse
from weft.runtime.model_set import COMPILE_AGAIN
from weft.runtime.schema import HostEntry


@dataclass(frozen=True)
class HostPart:
    """A small ONNX model between tensors of the network.

    ``passes``: where it runs behind a single program, the machine's outputs that are the network's too. ``operators``
    and the names of their ``nodes`` are for people.
    """

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passes: tuple[str, ...]
    operators: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    def text(self) -> str:
        """Its nodes, and the tensors that they read."""
        return f"{named(self.nodes, self.operators)}; reads {', '.join(map(repr, self.inputs))}"

    @classmethod
    def from_entry(cls, entry: HostEntry) -> HostPart:
        """Of an entry that ``checks.py`` has checked."""
        return cls(host_model(entry), entry.inputs, entry.outputs, entry.passes, entry.operators,
                   entry.operators if entry.nodes is None else entry.nodes)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "model": base64.b64encode(self.model).decode()}

    def run(self, values: Mapping[str, np.ndarray], owner: str) -> dict[str, np.ndarray]:
        """Its outputs, of its inputs among ``values``. Raises ModelError where the model of ``owner`` does not run."""
        from weft.runtime.onnx_engine import run_model  # onnxruntime is needed only here

        feed = {name: _single(values[name]) for name in self.inputs}
        try:
            return run_model(self.model, feed)
        except Exception as error:  # its errors have no common type
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise refuse(f"host part of model {owner}", f"an ONNX model that does not run ({reason})",
                         "what the compiler writes", COMPILE_AGAIN) from None


def _single(value: np.ndarray) -> np.ndarray:
    """The host computes in single precision; integers and truth values stay what they are."""
    return value.astype(np.float32) if value.dtype.kind == "f" else value


def named(nodes: Sequence[str], operators: Sequence[str]) -> str:
    return ", ".join(f"{name!r} ({op})" for name, op in zip(nodes, operators, strict=True))
