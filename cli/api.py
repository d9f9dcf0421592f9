# SPDX-License-Identifier: Apache-2.0
"""The Python interface: compile a network, and run it as onnxruntime would."""

from __future__ import annotations

import inspect
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from weft.cli.arguments import check_options, machine, model_or_path, names_of, path_of, samples
from weft.cli.devices import check_device, is_simulated, opened
from weft.cli.options import HOST_FALLBACK, load, need_simulation
from weft.cli.poor import poor, recorded, saturations, with_quality
from weft.hw.contract.arch import Arch
from weft.runtime import session
from weft.runtime.devices import GOLDEN, RTL, Backend
from weft.runtime.images import given_array, insist_on_names
from weft.support.errors import WeftError, explain
from weft.support.files import file_name
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
    from weft.compiler.pipeline import compile_model

    known = inspect.signature(compile_model).parameters.values()
    check_options(options, [each.name for each in known if each.kind is each.KEYWORD_ONLY
                            and each.name not in ("calibration", "host_fallback")])
    given = None if calibrate is None else samples(calibrate)
    content, target = model_or_path(model), machine(arch)
    into = None if folder is None or folder == "" else path_of(folder, "folder")
    options = {"host_fallback": host_fallback, **options}
    if isinstance(content, Path):
        return _compiled_and_measured(content, target, into or Path("build") / content.stem, given, options)
    name = file_name(options.get("name") or "model", "--name")
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / f"{name}.onnx"
        path.write_bytes(content)
        return _compiled_and_measured(path, target, into or Path("build") / name, given, options)


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
        self._has_warned = False
        if isinstance(model, Path | str):
            for text in poor(recorded(self._runs.network), self._runs.arch):
                warnings.warn(text, stacklevel=2)
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
        wanted = names_of(output_names, [tensor.name for tensor in self.get_outputs()])
        result = self._runs.run(_checked(self.get_inputs(), input_feed), on=self._on)
        if result.comparison is not None:
            result.comparison.insist()
        self._warn(result)
        return [result.outputs[name] for name in wanted]

    def _warn(self, result: session.RunResult) -> None:
        """Warn once of values beyond what calibration saw."""
        for text in () if self._has_warned else saturations(result, self._runs.arch):
            self._has_warned = True
            warnings.warn(text, stacklevel=3)


def _checked(inputs: Sequence[Tensor], feeds: Feeds) -> dict[str, np.ndarray]:
    """Return a user's inputs as arrays.

    Raise WeftError for no dict, an unknown input, and an array of another rank than its input."""
    insist_on_names(feeds)
    by_name, arrays = {tensor.name: tensor for tensor in inputs}, {}
    for name, value in feeds.items():
        if name not in by_name:
            raise WeftError(explain("input", repr(name), ", ".join(map(repr, by_name)), "name one of them"))
        arrays[name] = given_array(f"input {name!r}", value)
        shape, found = by_name[name].shape, arrays[name].shape
        if shape is None:
            continue
        many = ("N", *(shape[1:] if shape[:1] == (1,) else shape))
        if len(found) not in (len(shape), len(many)):
            runs = f"{list(many)} for N runs".replace("'", "")
            raise WeftError(explain(f"input {name!r}", f"an array of {len(found)} dimensions, {list(found)}",
                                    f"{len(shape)} dimensions, {list(shape)}, or {runs}", "reshape the array"))
    return arrays
