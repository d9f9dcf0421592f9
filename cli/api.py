"""What a Python program does with a network: compile it, and run it as onnxruntime would."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.cli.options import load
from weft.hw.contract.arch import Arch
from weft.hw.contract.errors import WeftError, explain
from weft.runtime import session
from weft.runtime.devices import GOLDEN, RTL
from weft.runtime.manifest import TModel
from weft.runtime.network import Network
from weft.runtime.tensors import Tensor

if TYPE_CHECKING:
    import onnx

    from weft.compiler.backend.report import CompileReport

Feeds = Mapping[str, np.ndarray]


def compile(model: Path | str | onnx.ModelProto, arch: Arch | Path | str, folder: Path | str | None = None, *,
            calibrate: Feeds | None = None, host_fallback: bool = True, **options: Any) -> CompileReport:
    """Compile a model, or the file of one, into ``folder`` (default: build/NAME); ``model_path`` of the result is what
    :class:`Session` takes, its ``warnings`` and ``division.machine_share`` say how well it went.

    ``arch``: a preset's name, a ``.tarch`` file or a machine. ``calibrate``: input name -> array [samples, ...].
    ``options`` are those of ``weft.compiler.pipeline.compile_model``. Raises WeftError for what is the user's to mend.
    """
    from weft.compiler.pipeline import compile_model

    machine = arch if isinstance(arch, Arch) else Arch.load(arch)
    if isinstance(model, Path | str):
        path = Path(model)
        return compile_model(path, machine, Path(folder or Path("build") / path.stem), calibration=calibrate,
                             host_fallback=host_fallback, **options)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{options.setdefault('name', 'model')}.onnx"
        path.write_bytes(model.SerializeToString())
        return compile_model(path, machine, Path(folder or Path("build") / options["name"]), calibration=calibrate,
                             host_fallback=host_fallback, **options)


class Session:
    """A compiled network on a device, "golden" or "rtl": with onnxruntime's ``run``, ``get_inputs``, ``get_outputs``.

    On "rtl" the golden machine runs too; Mismatch is raised where a word of DRAM differs.
    """

    def __init__(self, model: Path | str | Network | TModel, device: str = GOLDEN) -> None:
        """Raises WeftError for a file that is no compiled network, and for an unknown device."""
        if device not in (GOLDEN, RTL):
            raise WeftError(explain("device", repr(device), f"{GOLDEN!r} or {RTL!r}", "choose one of them"))
        self.device = device
        self._runs = session.Session(load(Path(model)) if isinstance(model, Path | str) else model)

    def get_inputs(self) -> list[Tensor]:
        """Each with ``name``, ``type`` and ``shape``."""
        return list(self._runs.network.signature.inputs)

    def get_outputs(self) -> list[Tensor]:
        return list(self._runs.network.signature.outputs)

    def run(self, names: Sequence[str] | None, feeds: Feeds) -> list[np.ndarray]:
        """The outputs ``names`` (None: all, in the network's order) of the inputs ``feeds``, in the network's own
        types. Several inputs one behind the other, [N, ...], run N times. Raises WeftError for names that the network
        has not and for arrays that do not fit."""
        known = [tensor.name for tensor in self._runs.network.signature.outputs]
        wanted = known if names is None else list(names)
        for name in wanted:
            if name not in known:
                raise WeftError(explain("output", repr(name), ", ".join(map(repr, known)), "name one of them"))
        result = self._runs.run(feeds, on=self.device)
        if result.comparison is not None:
            result.comparison.insist()
        return [result.outputs[name] for name in wanted]
