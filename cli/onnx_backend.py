# SPDX-License-Identifier: Apache-2.0
"""The ONNX backend interface: ``prepare``, ``run_model``, ``supports_device``.

A device is "CPU" for the golden machine, or what ``weft run --on`` takes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from weft.cli.api import ARCH, Session, compiled
from weft.cli.devices import check_device
from weft.compiler.errors import CompileError
from weft.runtime.devices import GOLDEN
from weft.support.errors import WeftError
from weft.tmodel.network import Network
from weft.tmodel.onnx_engine import runner

CPU = "CPU"
"""The device name that callers of any backend use."""


def input_names(model: onnx.ModelProto) -> list[str]:
    """Return the names of a model's inputs, without its constants."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value.name for value in model.graph.input if value.name not in weights]


def by_name(names: Sequence[str], inputs: Any) -> dict[str, Any]:
    """Return inputs by name, given by position, by name, or as a lone array."""
    inputs = [inputs] if isinstance(inputs, np.ndarray) else inputs
    return dict(inputs if isinstance(inputs, Mapping) else zip(names, inputs, strict=True))


class WeftRep(BackendRep):
    """A compiled model; ``run`` takes inputs by position or by name and gives the outputs in the model's order."""

    def __init__(self, network: Network, device: str, names: Sequence[str]) -> None:
        self._session, self._names = Session(network, device), list(names)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs in the model's order."""
        given = [tensor.name for tensor in self._session.get_inputs()]
        feeds = by_name(given, inputs)
        return tuple(self._session.run(self._names, {name: np.asarray(feeds[name]) for name in given}))


class HostRep(BackendRep):
    """A model of which the machine computes nothing, run by onnxruntime."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._names, self._run = input_names(model), runner(model)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return the outputs in the model's order."""
        return tuple(self._run(by_name(self._names, inputs)).values())


class WeftBackend(Backend):
    """The backend; its methods are also functions of the module."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", arch: Any = ARCH,
                calibrate: Mapping[str, np.ndarray] | None = None, host_alone: bool = True,
                **kwargs: Any) -> BackendRep:
        """Compile the model for ``arch`` with ``calibrate`` as its calibration inputs, random ones without.

        With ``host_alone`` a model that does not compile runs on the host, with a warning that says why. Raise
        WeftError, and the errors of ``onnx.checker``."""
        onnx.checker.check_model(model)
        try:
            network, _ = compiled(model, arch, calibrate=calibrate)
        except CompileError as error:
            if not host_alone:
                raise
            warnings.warn(f"nothing of this model runs on the machine: {error}", stacklevel=2)
            return HostRep(model)
        return WeftRep(network, GOLDEN if device == CPU else device, [value.name for value in model.graph.output])

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Compile and run a model; the inputs are the calibration inputs too."""
        feeds = by_name(input_names(model), inputs)
        kwargs.setdefault("calibrate", feeds)
        return cls.prepare(model, device, **kwargs).run(feeds)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Tell whether a model compiles, so that the machine computes at least a part."""
        try:
            cls.prepare(model, device, host_alone=False, **kwargs)
        except WeftError:
            return False
        return True

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether a string names a device."""
        try:
            check_device(GOLDEN if device == CPU else device)
        except WeftError:
            return False
        return True


prepare = WeftBackend.prepare
run_model = WeftBackend.run_model
is_compatible = WeftBackend.is_compatible
supports_device = WeftBackend.supports_device
