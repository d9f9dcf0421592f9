# SPDX-License-Identifier: Apache-2.0
"""The Python interface: compile a network, and run it as onnxruntime would."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.cli.devices import check_device, is_simulated, opened
from weft.cli.options import HOST_FALLBACK, load, need_simulation
from weft.cli.poor import with_quality
from weft.hw.contract.arch import Arch
from weft.runtime import session
from weft.runtime.devices import GOLDEN, RTL, Backend
from weft.runtime.images import insist_on_names
from weft.support.errors import WeftError, explain
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network
from weft.tmodel.tensors import Tensor

if TYPE_CHECKING:
    import onnx

    from weft.compiler.backend.report import CompileReport
    from weft.compiler.products import Products, Step

Feeds = Mapping[str, np.ndarray]

Model: TypeAlias = "Path | str | bytes | onnx.ModelProto"
"""A network before it is compiled: its file, the content of an ONNX file, or an ONNX model."""


ARCH = "ultra96"
"""The machine where a caller of another library's interface names none."""

IGNORED = "{} of onnxruntime: ignored; `arch` says which machine computes, `device` where it runs"
"""The warning for arguments that a script for onnxruntime gives."""


def compile(model: Model, arch: Arch | Path | str, folder: Path | str | None = None, *,
            calibrate: Feeds | None = None, host_fallback: bool = HOST_FALLBACK, **options: Any) -> CompileReport:
    """Compile a model, its bytes or its file, into ``folder`` (default: build/NAME); return a report.

    The report's ``model_path`` is what :class:`Session` takes; its ``warnings`` and ``partition.machine_share`` say how
    well it went. ``arch``: a preset's name, a ``.tarch`` file or a machine. ``calibrate``: input name -> array
    [samples, ...]. ``host_fallback``: the host runs what the machine does not compute; without it that is an error.
    ``options`` are those of ``weft.compiler.pipeline.compile_model``. Raise WeftError for what the user can mend."""
    if calibrate is not None:
        insist_on_names(calibrate, "calibrate")
    machine = arch if isinstance(arch, Arch) else Arch.load(arch)
    if isinstance(model, Path | str):
        path = Path(model)
        return _compiled_and_measured(path, machine, Path(folder or Path("build") / path.stem), calibrate,
                                      {"host_fallback": host_fallback, **options})
    content = model if isinstance(model, bytes) else model.SerializeToString()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{options.setdefault('name', 'model')}.onnx"
        path.write_bytes(content)
        return _compiled_and_measured(path, machine, Path(folder or Path("build") / options["name"]), calibrate,
                                      {"host_fallback": host_fallback, **options})


def _compiled_and_measured(path: Path, arch: Arch, folder: Path, calibrate: Feeds | None,
                           options: Mapping[str, Any]) -> CompileReport:
    """Return the report of a compilation. With calibration inputs it warns of outputs that lost their signal."""
    from weft.compiler.pipeline import compile_model

    if calibrate is None:
        return compile_model(path, arch, folder, **options)
    from weft.compiler.check.quality import Quality

    quality, watch = Quality(), options.get("watch")

    def both(step: Step, products: Products) -> None:
        quality.after(step, products)
        if watch is not None:
            watch(step, products)

    report = compile_model(path, arch, folder, calibration=calibrate, **{**options, "watch": both})
    return with_quality(report, quality, arch)


def compiled(model: Model, arch: Arch | Path | str, **options: Any) -> tuple[Network, CompileReport]:
    """Return a network compiled as :func:`compile` does, with its ``options``, and the report; no file is left."""
    with tempfile.TemporaryDirectory() as folder:
        report = compile(model, arch, Path(folder), **options)
        return Network.load(report.model_path), report


class Session:
    """A compiled network on a device: with onnxruntime's ``run``, ``get_inputs``, ``get_outputs``.

    ``device``: whatever ``weft run --on`` takes, such as "golden", "rtl", "sim", "serial:PORT", "udp:HOST" and
    "mmio:BOARD". On all but "golden" the golden machine runs too, and Mismatch is raised if the results differ. A
    device behind a link is occupied until ``close``, or to the end of a ``with``."""

    def __init__(self, model: Path | str | Network | TModel, device: str = GOLDEN) -> None:
        """Open the device. Raise WeftError for a file that is no compiled network, and for an unknown device."""
        check_device(device)
        self.device = device
        self._runs = session.Session(load(Path(model)) if isinstance(model, Path | str) else model)
        self._on: str | Backend = device
        self._opened = None
        if is_simulated(device):
            need_simulation()
        if device not in (GOLDEN, RTL):
            self._opened = opened(device, self._runs)
            self._runs, self._on = self._opened.session, self._opened.backend

    def __enter__(self) -> Session:
        """Return the session."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the device."""
        self.close()

    def close(self) -> None:
        """Close the device, so that others can use it."""
        if self._opened is not None:
            self._opened.close()

    def get_inputs(self) -> list[Tensor]:
        """Return the inputs, each with ``name``, ``type`` and ``shape``."""
        return list(self._runs.network.signature.inputs)

    def get_outputs(self) -> list[Tensor]:
        """Return the outputs, each with ``name``, ``type`` and ``shape``."""
        return list(self._runs.network.signature.outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Feeds,
            run_options: object = None) -> list[np.ndarray]:
        """Return the outputs ``output_names`` (none: all, in the network's order) in the network's own types.

        Several inputs, [N, ...], run N times: outputs are joined along their leading 1, others stacked.
        ``run_options`` are those of onnxruntime and change nothing, which a warning says. Raise WeftError for unknown
        names and for arrays that do not fit."""
        if run_options is not None:
            warnings.warn(IGNORED.format("run_options"), stacklevel=2)
        known = [tensor.name for tensor in self.get_outputs()]
        wanted = list(output_names or known)
        for name in wanted:
            if name not in known:
                raise WeftError(explain("output", repr(name), ", ".join(map(repr, known)), "name one of them"))
        _check_feeds(self.get_inputs(), input_feed)
        result = self._runs.run(input_feed, on=self._on)
        if result.comparison is not None:
            result.comparison.insist()
        return [result.outputs[name] for name in wanted]


def _check_feeds(inputs: Sequence[Tensor], feeds: Feeds) -> None:
    """Raise WeftError for no dict, an unknown input, and an array of another rank than its input."""
    insist_on_names(feeds)
    by_name = {tensor.name: tensor for tensor in inputs}
    for name, array in feeds.items():
        if name not in by_name:
            raise WeftError(explain("input", repr(name), ", ".join(map(repr, by_name)), "name one of them"))
        shape, found = by_name[name].shape, np.shape(array)
        if shape is None:
            continue
        many = ("N", *(shape[1:] if shape[:1] == (1,) else shape))
        if len(found) not in (len(shape), len(many)):
            runs = f"{list(many)} for N runs".replace("'", "")
            raise WeftError(explain(f"input {name!r}", f"an array of {len(found)} dimensions, {list(found)}",
                                    f"{len(shape)} dimensions, {list(shape)}, or {runs}", "reshape the array"))
