"""``.tmodel``, ``.tprog`` and ``.tdata``: a compiled model on disk, and packing of its inputs and outputs.

The keys of compiler.md, "File formats", and additions that an old reader may ignore: of inputs and outputs ``shape``
(the user's), ``layout`` ([channels, height, width] in memory), ``point``, and where elements do not lie in order either
``strides``, one for each axis of the user's array, such as those of TensorFlow's channels-last images, or ``order``,
runs of [first, step, count]: they say where in that layout each element of the user's array lies; ``packing`` of an
input that a thin first layer reads (``packing.py``): these places count in ``source`` [channels, height, width], of
which the host makes ``layout``; ``host`` (a small ONNX model which runs behind the machine); ``macs``; ``layers`` (the
report); ``instruction_layers``: which of these each instruction belongs to, as text: LAYERxCOUNT for each run. Files of
the original tools have none of them and load too.

In memory a tensor is channel tiles x height x width vectors; lanes beyond the last channel must be zero.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.runtime.elements import gather, pack, positions, scatter, strides_of, unpack
from weft.runtime.errors import refuse
from weft.runtime.host_part import HostPart
from weft.runtime.packing import Packing

COMPILE_AGAIN = "compile the model again, and keep its files together"


@dataclass(frozen=True)
class Port:
    """An input or output: ``size`` vectors of DRAM0 from ``base``. The additions are None in the original's files."""

    name: str
    base: int
    size: int
    shape: tuple[int, ...] | None = None
    layout: tuple[int, int, int] | None = None
    point: int | None = None
    order: tuple[int, ...] | None = None
    packing: Packing | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "base": self.base, "size": self.size, "shape": self.shape, "layout": self.layout,
                "point": self.point, **self._order_to_json(),
                **({} if self.packing is None else {"packing": self.packing.to_json()})}

    def _order_to_json(self) -> dict[str, Any]:
        if self.order is None or self.shape is None:
            return {}
        strides = strides_of(np.array(self.order).reshape(self.shape))
        return {"order": runs(self.order)} if strides is None else {"strides": strides}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Port:
        shape, layout = (tuple(values[key]) if values.get(key) is not None else None for key in ("shape", "layout"))
        order: tuple[int, ...] | None = None
        if values.get("strides") is not None and shape is not None:
            order = tuple(positions(shape, values["strides"]).ravel().tolist())
        elif values.get("order") is not None:
            order = tuple(first + step * number for first, step, count in values["order"] for number in range(count))
        packing = Packing.from_json(values["packing"]) if values.get("packing") is not None else None
        return cls(values["name"], values["base"], values["size"], shape, layout, values.get("point"), order, packing)


@dataclass(frozen=True)
class ConstFile:
    """``size`` vectors for DRAM1 at ``base``; with ``memory`` "dram0" for DRAM0, in every image's window."""

    file_name: str
    base: int
    size: int
    memory: str = "dram1"

    def to_json(self) -> dict[str, Any]:
        """As the original's, unless it is for DRAM0."""
        return {key: value for key, value in vars(self).items() if key != "memory" or value != "dram1"}


@dataclass(frozen=True)
class TModel:
    """A compiled model. ``folder`` holds its files; ``macs`` and ``layers`` are 0 and empty when not recorded."""

    name: str
    folder: Path
    arch: Arch
    program_file: str
    program_size: int
    const_files: tuple[ConstFile, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    host: HostPart | None = None
    macs: int = 0
    layers: tuple[dict[str, Any], ...] = ()
    instruction_layers: np.ndarray | None = None
    """[instructions]: indices into ``layers``."""

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def load(cls, path: Path | str) -> TModel:
        """Read a ``.tmodel``. Raises CompileError when it, or a file it names, is missing, broken or truncated."""
        path = Path(path)
        try:
            values = json.loads(path.read_text())
            model = cls(values["name"], path.parent, Arch.from_dict(values["arch"]), values["prog"]["file_name"],
                        values["prog"]["size"], tuple(ConstFile(**entry) for entry in values["consts"]),
                        tuple(map(Port.from_json, values["inputs"])), tuple(map(Port.from_json, values["outputs"])),
                        _host_from_json(values.get("host")), values.get("macs", 0), tuple(values.get("layers", ())),
                        _layers_from_text(values.get("instruction_layers")))
        except FileNotFoundError:
            raise refuse(f"model file {path}", "no such file", "an existing .tmodel file",
                         "check the path, or compile the model first") from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise refuse(f"model file {path}", f"something unreadable ({type(error).__name__}: {error})",
                         "a .tmodel as the compiler writes it", COMPILE_AGAIN) from None
        model._check_sizes()
        return model

    def _check_sizes(self) -> None:
        expected = {self.program_file: self.program_size}
        expected |= {entry.file_name: entry.size * self.arch.vector_bytes for entry in self.const_files}
        for name, size in expected.items():
            path = self.folder / name
            if not path.is_file():
                raise refuse(f"file {path}, named by {self.name}.tmodel", "no such file", "an existing file",
                             COMPILE_AGAIN)
            if path.stat().st_size != size:
                raise refuse(f"size of {path}", f"{path.stat().st_size} bytes", f"{size} bytes, as the .tmodel says",
                             COMPILE_AGAIN)

    @cached_property
    def program(self) -> bytes:
        """The ``.tprog`` bytes."""
        return (self.folder / self.program_file).read_bytes()

    @cached_property
    def consts(self) -> tuple[tuple[int, np.ndarray], ...]:
        """(base, int64 vectors [size, lanes]) of what DRAM1 holds."""
        return self._vectors("dram1")

    @cached_property
    def dram0_consts(self) -> tuple[tuple[int, np.ndarray], ...]:
        """The same of DRAM0."""
        return self._vectors("dram0")

    def _vectors(self, memory: str) -> tuple[tuple[int, np.ndarray], ...]:
        storage = self.arch.number.storage_dtype
        return tuple((entry.base, np.fromfile(self.folder / entry.file_name, storage)
                      .reshape(-1, self.arch.array_size).astype(np.int64))
                     for entry in self.const_files if entry.memory == memory)

    def to_json(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "name": self.name,
            "prog": {"file_name": self.program_file, "size": self.program_size},
            "consts": [entry.to_json() for entry in self.const_files],
            "inputs": [port.to_json() for port in self.inputs],
            "outputs": [port.to_json() for port in self.outputs],
            "arch": self.arch.to_dict(),
            "load_consts_to_local": False,
            "macs": self.macs,
        }
        if self.host is not None:
            values["host"] = {"model": base64.b64encode(self.host.model).decode(), "inputs": self.host.inputs,
                              "outputs": self.host.outputs, "passes": self.host.passes,
                              "operators": self.host.operators, "nodes": self.host.nodes}
        if self.instruction_layers is not None:
            values["instruction_layers"] = _layers_to_text(self.instruction_layers)
        return {**values, "layers": self.layers}

    # -- inputs and outputs ----------------------------------------------------------------------------------------
    def input(self, name: str) -> Port:
        return self._port("input", self.inputs, name)

    def output(self, name: str) -> Port:
        return self._port("output", self.outputs, name)

    def _port(self, kind: str, ports: tuple[Port, ...], name: str) -> Port:
        for port in ports:
            if port.name == name:
                return port
        raise refuse(f"{kind} of model {self.name}", repr(name), ", ".join(repr(port.name) for port in ports),
                     f"use the {kind}'s name")

    def pack_input(self, name: str, array: np.ndarray) -> np.ndarray:
        """One sample, with or without its batch of 1 -> int64 vectors [size, lanes] for DRAM0 at the input's base.

        Where the file does not say the shape, the array must be the vectors themselves, as real numbers.
        """
        port, array = self.input(name), np.asarray(array)
        shape = (port.size, self.arch.array_size) if port.shape is None else port.shape
        if array.shape not in (shape, shape[1:] if port.shape and shape[0] == 1 else shape):
            raise refuse(f"shape of input {name!r}", list(array.shape), f"{list(shape)}, the batch may be left out",
                         "give one sample in the shape the model was compiled for")
        if array.dtype.kind not in "fiub":
            raise refuse(f"type of input {name!r}", array.dtype, "real numbers", "convert it to float32")
        scalars = self.arch.number.quantize(array, port.point)
        if port.layout is None:
            return scalars
        if port.packing is None:
            return pack(scatter(scalars, port.order, port.layout), self.arch.array_size)
        return pack(port.packing.pack(scatter(scalars, port.order, port.packing.source)), self.arch.array_size)

    def unpack_output(self, name: str, vectors: np.ndarray) -> np.ndarray:
        """int vectors [size, lanes] from DRAM0 at the output's base -> float64 array in the output's shape."""
        port, vectors = self.output(name), np.asarray(vectors)
        if vectors.shape != (port.size, self.arch.array_size):
            raise refuse(f"vectors of output {name!r}", list(vectors.shape), f"[{port.size}, {self.arch.array_size}]",
                         "read the output's size from DRAM0 at its base")
        values = self.arch.number.dequantize(vectors, port.point)
        if port.layout is None or port.shape is None:
            return values
        return gather(unpack(values, port.layout), port.order, port.shape)

    def run_host(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs of the machine -> outputs of the network: what the machine made, and what the host's part makes."""
        from weft.runtime.onnx_engine import run_model  # onnxruntime is needed only here

        if self.host is None:
            return dict(outputs)
        feed = {name: np.asarray(outputs[name], np.float32) for name in self.host.inputs}
        return {**{name: outputs[name] for name in self.host.passes}, **run_model(self.host.model, feed)}


def runs(order: Sequence[int]) -> list[list[int]]:
    """A list of positions as [first, step, count] each."""
    found: list[list[int]] = []
    for value in order:
        if found and found[-1][2] == 1:
            found[-1] = [found[-1][0], value - found[-1][0], 2]
        elif found and value == found[-1][0] + found[-1][1] * found[-1][2]:
            found[-1][2] += 1
        else:
            found.append([value, 0, 1])
    return found


def _layers_to_text(layers: np.ndarray) -> str:
    """[2, 2, 5] -> "2x2 5x1"."""
    firsts = np.flatnonzero(np.diff(layers, prepend=-1))
    counts = np.diff(firsts, append=len(layers))
    return " ".join(f"{layer}x{count}" for layer, count in zip(layers[firsts], counts, strict=True))


def _layers_from_text(text: str | None) -> np.ndarray | None:
    if text is None:
        return None
    pairs = np.array([run.split("x") for run in text.split()], np.int64).reshape(-1, 2)
    return np.repeat(pairs[:, 0], pairs[:, 1])


def _host_from_json(values: Mapping[str, Any] | None) -> HostPart | None:
    if values is None:
        return None
    return HostPart(base64.b64decode(values["model"]), tuple(values["inputs"]), tuple(values["outputs"]),
                    tuple(values["passes"]), tuple(values["operators"]),
                    tuple(values.get("nodes", values["operators"])))


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files under temporary names, then rename them in order, so that none is ever seen half written."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = {name: folder / f".{name}.{os.getpid()}.tmp" for name in contents}
    try:
        for name, content in contents.items():
            temporary[name].write_bytes(content)
        for name in contents:
            temporary[name].replace(folder / name)
    finally:
        for path in temporary.values():
            path.unlink(missing_ok=True)
