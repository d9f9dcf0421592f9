# SPDX-License-Identifier: Apache-2.0
"""A subgraph of a network that the host runs, with onnxruntime."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.support.errors import WeftError
from weft.support.files import reason
from weft.support.packages import HOST, need_package
from weft.tmodel.checks import host_model
from weft.tmodel.errors import refuse
from weft.tmodel.model_set import COMPILE_AGAIN
from weft.tmodel.schema import HostEntry


@dataclass(frozen=True)
class HostPart:
    """A small ONNX model of the host, between tensors of the network.

    ``passes``: if it runs behind a single program, the machine's outputs that are the network's too. ``operators`` and
    the names of their ``nodes`` are for people."""

    model: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    passes: tuple[str, ...]
    operators: tuple[str, ...]
    nodes: tuple[str, ...] = ()

    def text(self) -> str:
        """Return its nodes, and the tensors that they read, as text."""
        return f"{named(self.nodes, self.operators)}; reads {', '.join(map(repr, self.inputs))}"

    @classmethod
    def from_entry(cls, entry: HostEntry) -> HostPart:
        """Return the host part that an entry of a ``.tmodel`` describes. ``checks.py`` has checked the entry."""
        return cls(host_model(entry), entry.inputs, entry.outputs, entry.passes, entry.operators,
                   entry.operators if entry.nodes is None else entry.nodes)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the part in a ``.tmodel``."""
        return {**dataclasses.asdict(self), "model": base64.b64encode(self.model).decode()}

    def run(self, values: Mapping[str, np.ndarray], owner: str) -> dict[str, np.ndarray]:
        """Return the part's outputs by name; ``values`` has its inputs.

        ``owner`` names the model in errors. Raise WeftError if the ONNX model is not what the file says, needs more
        work than a host may be asked for, or does not run."""
        for package in ("onnx", "onnxruntime"):
            need_package(f"host part of model {owner}", package, HOST)
        from weft.tmodel.onnx_engine import runner_of  # onnxruntime is needed only here
        from weft.tmodel.onnx_runnable import check_bytes

        known, what = check_bytes(self.model), f"host part of model {owner}"
        for kind, names, there in (("inputs", self.inputs, known.inputs), ("outputs", self.outputs, known.outputs)):
            if set(names) != there.keys():
                raise refuse(what, f"an ONNX model with the {kind} {', '.join(map(repr, there))}",
                             f"{', '.join(map(repr, names))}, as its file says", COMPILE_AGAIN)
        feed = {name: _single(values[name]) for name in self.inputs}
        _fits(what, "input", feed, known.inputs)
        try:
            made = runner_of(self.model)(feed)
        except WeftError:
            raise
        except Exception as error:  # its errors have no common type
            raise refuse(what, f"an ONNX model that does not run ({reason(error)})", "what the compiler writes",
                         COMPILE_AGAIN) from None
        _fits(what, "output", made, known.outputs)
        return made


def _fits(what: str, kind: str, values: Mapping[str, np.ndarray],
          known: Mapping[str, tuple[np.dtype, tuple[int, ...]]]) -> None:
    """Raise ModelError for a tensor whose type or shape differs from the part's model."""
    for name, value in values.items():
        if (value.dtype, value.shape) != known[name]:
            dtype, shape = known[name]
            raise refuse(f"{what}, {kind} {name!r}", f"{value.dtype} {list(value.shape)}", f"{dtype} {list(shape)}",
                         COMPILE_AGAIN)


def _single(value: np.ndarray) -> np.ndarray:
    """Return an array in single precision, in which the host computes; integers and truth values stay.

    A scalar becomes an array, the only form in which onnxruntime takes it."""
    return np.asarray(value, np.float32 if value.dtype.kind == "f" else None)


def named(nodes: Sequence[str], operators: Sequence[str]) -> str:
    """Return nodes and their operators as text."""
    return ", ".join(f"{name!r} ({op})" for name, op in zip(nodes, operators, strict=True))
