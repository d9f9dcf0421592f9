# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's ``InferenceSession``: a script that makes one of its own runs on the machine as it stands."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.cli.api import ARCH, IGNORED, Feeds, Model, Session, compiled
from weft.hw.contract.arch import Arch
from weft.runtime.devices import GOLDEN
from weft.runtime.images import insist_on_names
from weft.support.errors import WeftError, explain
from weft.tmodel.tensors import Tensor

PROVIDER = "WeftExecutionProvider"
"""The provider that a session says it has."""

_TYPES = {"float32": "float", "float64": "double"}
"""numpy's name of a type -> onnxruntime's, where they differ."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output as onnxruntime describes it; ``type`` is such as "tensor(float)"."""

    name: str
    shape: list[int]
    type: str


class InferenceSession:
    """A network on a machine, with the constructor and the methods of ``onnxruntime.InferenceSession``.

    The model is compiled when the session is made, or was before, as a ``.tmodel``. What the compiler warns of is a
    warning of Python. A device behind a link is occupied until ``close``, or to the end of a ``with``."""

    def __init__(self, path_or_bytes: Model, sess_options: object = None, providers: Sequence[Any] | None = None,
                 provider_options: Sequence[Any] | None = None, *, arch: Arch | Path | str | None = None,
                 device: str = GOLDEN, calibrate: Feeds | None = None, **options: Any) -> None:
        """Compile a file, the bytes of an ONNX file or an ONNX model for ``arch``, or load a ``.tmodel``.

        ``arch``: a preset's name, a ``.tarch`` file or a machine; default: ARCH. ``calibrate``: input name -> array
        [samples, ...]. ``device``: as :class:`weft.Session` has it. ``options`` are those of
        ``weft.compiler.pipeline.compile_model``. What is onnxruntime's alone changes nothing, which one warning says.
        Raise WeftError for what the user can mend."""
        given = {"sess_options": sess_options, "providers": providers, "provider_options": provider_options}
        ignored = [name for name, value in given.items() if value is not None]
        if ignored:
            warnings.warn(IGNORED.format(", ".join(ignored)), stacklevel=2)
        if isinstance(path_or_bytes, Path | str) and Path(path_or_bytes).suffix == ".tmodel":
            _need_nothing(arch=arch, calibrate=calibrate, **options)
            self._session = Session(path_or_bytes, device)
        else:
            network, report = compiled(path_or_bytes, arch or ARCH, calibrate=calibrate, **options)
            for text in report.warnings:
                warnings.warn(text, stacklevel=2)
            self._session = Session(network, device)
        self._inputs = self._session.get_inputs()

    def __enter__(self) -> InferenceSession:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the device."""
        self.close()

    def close(self) -> None:
        """Close the device, so that others can use it."""
        self._session.close()

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs in the model's order."""
        return list(map(_described, self._inputs))

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs in the model's order."""
        return list(map(_described, self._session.get_outputs()))

    def get_providers(self) -> list[str]:
        """Return the name of the one provider that there is."""
        return [PROVIDER]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any],
            run_options: object = None) -> list[np.ndarray]:
        """Return the outputs, as :meth:`weft.Session.run`; lists of numbers are taken as arrays.

        Raise WeftError also for an array of another type than its input, as onnxruntime does."""
        insist_on_names(input_feed)
        types = {tensor.name: tensor.type for tensor in self._inputs}
        feeds = {name: _typed(name, value, types.get(name)) for name, value in input_feed.items()}
        return self._session.run(output_names, feeds, run_options)


def _need_nothing(**given: object) -> None:
    """Raise WeftError for an argument of the compiler beside a network that is compiled."""
    for name in (name for name, value in given.items() if value is not None):
        raise WeftError(explain(f"argument {name}", "a .tmodel, which is compiled", f"{name} beside a model that "
                                "is not compiled", f"leave {name} out, or give the .onnx file"))


def _described(tensor: Tensor) -> NodeArg:
    """Return a tensor as onnxruntime describes it. Raise WeftError if its file does not say type and shape."""
    if tensor.type is None or tensor.shape is None:
        raise WeftError(explain(f"tensor {tensor.name!r}", "no type and shape (made by the original tools)",
                                "a .tmodel that says them", "compile the network again, or use weft run --raw"))
    return NodeArg(tensor.name, list(tensor.shape), f"tensor({_TYPES.get(tensor.type, tensor.type)})")


def _typed(name: str, value: Any, kind: str | None) -> np.ndarray:
    """Return a user's value as an array of the type ``kind``, if one is known. Raise WeftError for another type."""
    if not isinstance(value, np.ndarray | np.generic):
        try:
            return np.asarray(value, kind)
        except (TypeError, ValueError, OverflowError):
            raise WeftError(explain(f"input {name!r}", f"a {type(value).__name__} that is no array of {kind}",
                                    "an array, or lists of numbers of one length", "give it as numpy.array")) from None
    array = np.asarray(value)
    if kind is not None and array.dtype != np.dtype(kind):
        raise WeftError(explain(f"input {name!r}", f"an array of {array.dtype}", kind,
                                f"convert it: array.astype(numpy.{kind})"))
    return array
