# SPDX-License-Identifier: Apache-2.0
"""A compiled network: programs of the machine and parts of the host, in the order in which they run.

A ``.tmodel`` of one program, alone or with a host part behind it, is a network too. Parts pass tensors on by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.hw.contract.arch import Arch
from weft.tmodel.checks import check, check_parts
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel, files_json, read_manifest, unreadable
from weft.tmodel.model_set import write_set
from weft.tmodel.schema import FORMAT_VERSION, HostEntry, Manifest
from weft.tmodel.tensors import Signature, Tensor


@dataclass(frozen=True, kw_only=True)
class Network:
    """A compiled network; ``checksums``: whether its file has checksums of the files that it names."""

    name: str
    folder: Path
    arch: Arch
    signature: Signature
    parts: tuple[TModel | HostPart, ...]
    checksums: bool = True

    @property
    def machines(self) -> tuple[TModel, ...]:
        """The programs of the machine."""
        return tuple(part for part in self.parts if isinstance(part, TModel))

    @property
    def hosts(self) -> tuple[HostPart, ...]:
        """The parts of the host."""
        return tuple(part for part in self.parts if isinstance(part, HostPart))

    @property
    def macs(self) -> int:
        """Return the multiply-accumulates for one image that the network has as drawn, in all programs of the machine.

        It is 0 if they are not recorded."""
        return sum(machine.macs for machine in self.machines)

    @property
    def done_macs(self) -> int:
        """Return how many useful multiply-accumulates the array does for one image, in all programs of the machine.

        Pixels that nobody reads, taps on padding, lanes without a channel and weight tiles of zeros do not count. A
        program whose file does not say this number counts as drawn."""
        return sum(machine.done_macs for machine in self.machines)

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def load(cls, path: Path | str) -> Network:
        """Read a ``.tmodel`` of one program or several parts, and the files that it names.

        Raise ModelError as TModel.load does."""
        path = Path(path)
        manifest, arch = read_manifest(path)
        try:
            if isinstance(manifest, Manifest):
                check(manifest, arch)
                return cls.of(TModel.of(manifest, arch, path))
            parts = check_parts(manifest, arch)
        except ValueError as error:
            raise unreadable(path, error) from None
        return cls(name=manifest.name, folder=path.parent, arch=arch, signature=Signature.from_entry(manifest.network),
                   parts=tuple(HostPart.from_entry(part) if isinstance(part, HostEntry) else TModel.of(part, arch, path)
                               for part in parts))

    @classmethod
    def of(cls, model: TModel) -> Network:
        """Return the network of a single program, with the host part that it may have."""
        alone = dataclasses.replace(model, host=None, network=None)
        parts = (alone,) if model.host is None else (alone, model.host)
        return cls(name=model.name, folder=model.folder, arch=model.arch,
                   signature=model.network or _guessed(model), parts=parts, checksums=model.checksums)

    def save(self) -> Path:
        """Write ``folder``/NAME.tmodel and the files it names; return its path. A kill leaves the old files or these.

        Raise ModelError if they cannot be written."""
        contents = {name: content for machine in self.machines for name, content in machine.contents.items()}
        text = json.dumps(self.to_json(contents), indent=1) + "\n"
        write_set(self.folder, f"{self.name}.tmodel", contents, text.encode())
        return self.folder / f"{self.name}.tmodel"

    def to_json(self, contents: Mapping[str, bytes]) -> dict[str, Any]:
        """Return the content of the ``.tmodel``.

        A single program, alone or before the host part, is written in the form that older readers know."""
        single = self._single()
        if single is not None:
            return single.to_json()
        parts = [{"host": part.to_json()} if isinstance(part, HostPart) else {"program": part.program_json()}
                 for part in self.parts]
        return {"name": self.name, "arch": self.arch.to_dict(), "format_version": FORMAT_VERSION,
                "files": files_json(contents),
                "network": self.signature.to_json(), "parts": parts}

    def _single(self) -> TModel | None:
        """Return the network as one program with a host part at its end, or None if it has another form."""
        model, *rest = self.parts
        if not isinstance(model, TModel) or len(rest) > 1 or [tensor.name for tensor in self.signature.inputs] != [
                port.name for port in model.inputs]:
            return None
        made, outputs = [port.name for port in model.outputs], [tensor.name for tensor in self.signature.outputs]
        if not rest:
            return dataclasses.replace(model, network=self.signature) if made == outputs else None
        host, = rest
        if not isinstance(host, HostPart) or not set(host.inputs) <= set(made):
            return None
        passes = [name for name in outputs if name in made]
        if {*passes, *host.outputs} != set(outputs):
            return None
        return dataclasses.replace(model, host=dataclasses.replace(host, passes=tuple(passes)), network=self.signature)


def _guessed(model: TModel) -> Signature:
    """Return the inputs and outputs of a file that does not state them: names, and the shapes of ports."""
    outputs = tuple(map(Tensor.of_port, model.outputs))
    if model.host is not None:
        passed = {tensor.name: tensor for tensor in outputs}
        outputs = (*(passed[name] for name in model.host.passes), *map(Tensor, model.host.outputs))
    return Signature(tuple(map(Tensor.of_port, model.inputs)), outputs)
