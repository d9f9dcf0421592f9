# SPDX-License-Identifier: Apache-2.0
"""A compiled model: the content of its ``.tmodel`` and of the files named there, and packing of inputs and outputs.

``schema.py`` and ``checks.py`` say what a ``.tmodel`` may hold, ``model_set.py`` reads and writes the files. In memory
a tensor is channel tiles x height x width vectors; lanes beyond the last channel must hold the real 0."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError
from weft.support.strict_json import read_object
from weft.support.structs import to_builtins
from weft.tmodel.checks import check, check_program, file_sizes
from weft.tmodel.elements import gather, pack, scatter, unpack
from weft.tmodel.errors import ModelError, refuse
from weft.tmodel.host_part import HostPart
from weft.tmodel.model_set import COMPILE_AGAIN, file_entry, read_file, write_set
from weft.tmodel.ports import ConstFile, Port, layers_from_text, layers_to_text
from weft.tmodel.schema import FORMAT_VERSION, Manifest, Parts, convert_any
from weft.tmodel.tensors import Signature

AS_WRITTEN = "a .tmodel as the compiler writes it"
ON_PURPOSE, BY_RANGES = "on purpose", "by ranges"
"""The reasons in a layer's row of the report why its results may saturate.

On purpose: nothing that reads them tells them apart, or a quantised file says so. By ranges: they exceed the range that
``--ranges`` left of what calibration saw."""
OUTPUTS_DECIBELS = "outputs_decibels"
"""Key of the row of a network's last layer: signal to noise of the worst output, in decibels."""


def read_manifest(path: Path) -> tuple[Manifest | Parts, Arch]:
    """Return the content of a ``.tmodel`` and its architecture. Raise ModelError for wrong keys or types.

    Whether keys fit each other is not checked here."""
    try:
        values = read_object(path, "model file", AS_WRITTEN, "check the path, or compile the model first")
    except WeftError as error:
        raise ModelError(str(error)) from None
    try:
        manifest = convert_any(values)
        return manifest, Arch.from_dict(manifest.arch)
    except (ValueError, WeftError) as error:
        raise unreadable(path, error) from None


def unreadable(path: Path, error: Exception) -> ModelError:
    """Return the error for a ``.tmodel`` with content that no compiler writes."""
    return refuse(f"model file {path}", f"something unreadable ({error})", AS_WRITTEN, COMPILE_AGAIN)


@dataclass(frozen=True)
class CoreProgram:
    """The program of one of several cores that work on one image: its file, and [instructions] of layers."""

    program_file: str
    instruction_layers: np.ndarray | None = None

    def to_json(self, size: int) -> dict[str, Any]:
        """Return the entry in a ``.tmodel``; ``size``: the program's bytes."""
        prog = {"file_name": self.program_file, "size": size}
        return {"prog": prog, **({} if self.instruction_layers is None else
                                 {"instruction_layers": layers_to_text(self.instruction_layers)})}


@dataclass(frozen=True, kw_only=True)
class TModel:
    """A compiled model of one program, perhaps with a host part.

    ``contents``: file name -> bytes of the files named in the ``.tmodel``. ``macs`` and ``layers`` are 0 and empty if
    they are not recorded."""

    name: str
    folder: Path
    arch: Arch
    program_file: str
    const_files: tuple[ConstFile, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    contents: Mapping[str, bytes]
    checksums: bool = True
    """Whether the ``.tmodel`` has checksums of the other files; those of the original tools have not."""
    consts_to_local: bool = False
    """Whether the driver copies DRAM1's constants to the same addresses of local memory on loading."""
    host: HostPart | None = None
    network: Signature | None = None
    """The inputs and outputs that the user sees; None for files of the original tools."""
    macs: int = 0
    layers: tuple[dict[str, Any], ...] = ()
    instruction_layers: np.ndarray | None = None
    """[instructions]: indices into ``layers``."""
    window_bytes: int | None = None
    """Bytes from one core's window of DRAM0 to the next, in a program for several cores.

    None where the file does not say it."""
    others: tuple[CoreProgram, ...] = ()
    """The programs of the cores behind core 0 that work on the same image."""

    @property
    def done_macs(self) -> int:
        """Multiply-accumulates that the array does; those as drawn if the file does not say it."""
        return sum(row.get("done_macs", row["macs"]) for row in self.layers) if self.layers else self.macs

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def load(cls, path: Path | str) -> TModel:
        """Read a ``.tmodel`` and the files it names.

        Raise ModelError if one is missing, damaged, of another compilation, or says what no compiler writes."""
        path = Path(path)
        manifest, arch = read_manifest(path)
        if not isinstance(manifest, Manifest):
            raise refuse(f"model file {path}", f"a network in {len(manifest.parts)} parts, of host and machine",
                         "a single program, and a host's part behind it", "load it with weft.runtime.Network.load")
        try:
            check(manifest, arch)
        except ValueError as error:
            raise unreadable(path, error) from None
        return cls.of(manifest, arch, path)

    @classmethod
    def of(cls, manifest: Manifest, arch: Arch, path: Path) -> TModel:
        """Return the model of a manifest that ``checks.py`` has checked, with the files that it names.

        Raise ModelError if one cannot be read."""
        sums = manifest.files or {}
        contents = {name: read_file(path.parent, name, size, sums.get(name), path.name)
                    for name, size in file_sizes(manifest, arch).items()}
        others = manifest.cores.others if manifest.cores else ()
        cores = [CoreProgram(prog.file_name, None if layers is None else layers_from_text(layers))
                 for prog, layers in ((manifest.prog, manifest.instruction_layers),
                                      *((core.prog, core.instruction_layers) for core in others))]
        for core in cores:
            if core.instruction_layers is not None:
                try:
                    check_program(core.instruction_layers, contents[core.program_file], arch)
                except ValueError as error:
                    raise unreadable(path, error) from None
        return cls(
            name=manifest.name, folder=path.parent, arch=arch, program_file=manifest.prog.file_name,
            const_files=tuple(ConstFile(entry.file_name, entry.base, entry.size, entry.memory)
                              for entry in manifest.consts),
            inputs=tuple(map(Port.from_entry, manifest.inputs)), outputs=tuple(map(Port.from_entry, manifest.outputs)),
            contents=contents, checksums=manifest.files is not None, consts_to_local=manifest.load_consts_to_local,
            host=None if manifest.host is None else HostPart.from_entry(manifest.host),
            network=None if manifest.network is None else Signature.from_entry(manifest.network), macs=manifest.macs,
            layers=manifest.layers, instruction_layers=cores[0].instruction_layers,
            window_bytes=None if manifest.cores is None else manifest.cores.window_bytes, others=tuple(cores[1:]))

    def save(self) -> None:
        """Write ``folder``/NAME.tmodel and the files it names; a kill leaves the old files or these.

        Raise ModelError if they cannot be written."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_set(self.folder, f"{self.name}.tmodel", self.contents, text.encode())

    @cached_property
    def program(self) -> bytes:
        """The ``.tprog`` bytes."""
        return self.contents[self.program_file]

    @cached_property
    def programs(self) -> tuple[bytes, ...]:
        """The programs of an image: of each core that works on it, core 0's first."""
        return self.program, *(self.contents[core.program_file] for core in self.others)

    def of_core(self, core: int) -> TModel:
        """Return the model with the program that a core runs, which is the only one if each has its own image."""
        if not self.others or not core:
            return self
        return replace(self, program_file=self.others[core - 1].program_file,
                       instruction_layers=self.others[core - 1].instruction_layers, others=())

    @property
    def program_size(self) -> int:
        """The bytes of the program."""
        return len(self.program)

    @cached_property
    def consts(self) -> tuple[tuple[int, np.ndarray], ...]:
        """The content of DRAM1: (base, vectors [size, lanes] of stored scalars)."""
        return self._vectors("dram1")

    @cached_property
    def dram0_consts(self) -> tuple[tuple[int, np.ndarray], ...]:
        """The constants in DRAM0: (base, vectors [size, lanes] of stored scalars)."""
        return self._vectors("dram0")

    def _vectors(self, memory: str) -> tuple[tuple[int, np.ndarray], ...]:
        """Return the constants of ``memory``: (base, vectors [size, lanes])."""
        storage = self.arch.number.storage_dtype
        return tuple((entry.base, np.frombuffer(self.contents[entry.file_name], storage)
                      .reshape(-1, self.arch.array_size))
                     for entry in self.const_files if entry.memory == memory)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the ``.tmodel``."""
        program = self.program_json()
        places = {key: program.pop(key) for key in ("prog", "consts", "inputs", "outputs")}
        values: dict[str, Any] = {"name": self.name, **places, "arch": self.arch.to_dict(),
                                  "format_version": FORMAT_VERSION, "load_consts_to_local": self.consts_to_local,
                                  "files": files_json(self.contents)}
        if self.host is not None:
            values["host"] = self.host.to_json()
        if self.network is not None:
            values["network"] = self.network.to_json()
        return {**values, **program}

    def program_json(self) -> dict[str, Any]:
        """Return the part of the ``.tmodel`` about the program."""
        values: dict[str, Any] = {
            "prog": {"file_name": self.program_file, "size": self.program_size},
            "consts": [entry.to_json() for entry in self.const_files],
            "inputs": [port.to_json() for port in self.inputs],
            "outputs": [port.to_json() for port in self.outputs],
            "macs": self.macs,
        }
        if self.instruction_layers is not None:
            values["instruction_layers"] = layers_to_text(self.instruction_layers)
        if self.window_bytes is not None:
            others = [core.to_json(len(content)) for core, content in zip(self.others, self.programs[1:], strict=True)]
            values["cores"] = {"mode": "split" if others else "batch", "window_bytes": self.window_bytes,
                               **({"others": others} if others else {})}
        return {**values, "layers": self.layers}

    # -- inputs and outputs ----------------------------------------------------------------------------------------
    def input(self, name: str) -> Port:
        """Return an input by name. Raise ModelError if there is none."""
        return self._port("input", self.inputs, name)

    def output(self, name: str) -> Port:
        """Return an output by name. Raise ModelError if there is none."""
        return self._port("output", self.outputs, name)

    def _port(self, kind: str, ports: tuple[Port, ...], name: str) -> Port:
        """Return a port by name. Raise ModelError if there is none."""
        for port in ports:
            if port.name == name:
                return port
        raise refuse(f"{kind} of model {self.name}", repr(name), ", ".join(repr(port.name) for port in ports),
                     f"use the {kind}'s name")

    def pack_input(self, name: str, array: np.ndarray) -> np.ndarray:
        """Return one sample, with or without its batch of 1, as int64 vectors [size, lanes] for the input's base.

        If the file does not say the shape, the array must be the vectors themselves, as real numbers. Raise ModelError
        for another shape or type."""
        port, array = self.input(name), np.asarray(array)
        shape = (port.size, self.arch.array_size) if port.shape is None else port.shape
        if array.shape not in (shape, shape[1:] if port.shape and shape[0] == 1 else shape):
            raise refuse(f"shape of input {name!r}", list(array.shape), f"{list(shape)}, the batch may be left out",
                         "give one sample in the shape the model was compiled for")
        if array.dtype.kind not in "fiub":
            raise refuse(f"type of input {name!r}", array.dtype, "real numbers", "convert it to float32")
        numbers, lanes = port.numbers(self.arch.number), self.arch.array_size
        scalars = numbers.quantize(array)
        if port.layout is None:
            return scalars
        distance = scalars - numbers.zero  # what is filled in is the real 0
        if port.packing is None:
            return pack(scatter(distance, port.order, port.layout), lanes) + numbers.zero
        return pack(port.packing.pack(scatter(distance, port.order, port.packing.source)), lanes) + numbers.zero

    def unpack_output(self, name: str, vectors: np.ndarray) -> np.ndarray:
        """Return vectors [size, lanes], read at the output's base, as float64 in the output's shape.

        Raise ModelError for other vectors."""
        port, vectors = self.output(name), np.asarray(vectors)
        if vectors.shape != (port.size, self.arch.array_size):
            raise refuse(f"vectors of output {name!r}", list(vectors.shape), f"[{port.size}, {self.arch.array_size}]",
                         "read the output's size from DRAM0 at its base")
        values = port.numbers(self.arch.number).dequantize(vectors)
        if port.layout is None or port.shape is None:
            return values
        return gather(unpack(values, port.layout), port.order, port.shape)

    def run_host(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the network's outputs, given the machine's: those passed on, and those of the host part."""
        if self.host is None:
            return dict(outputs)
        made = self.host.run({name: np.asarray(outputs[name]) for name in self.host.inputs}, self.name)
        return {**{name: outputs[name] for name in self.host.passes}, **made}


def files_json(contents: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the length and checksum of every file."""
    return {name: to_builtins(file_entry(content)) for name, content in contents.items()}
