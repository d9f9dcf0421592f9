# SPDX-License-Identifier: Apache-2.0
"""The schema of a ``.tmodel``: types and ranges of every key. ``checks.py`` checks keys against each other.

The original tools write ``name`` to ``load_consts_to_local``. The rest are additions that an old reader may ignore:

* ``format_version``: see ``FORMAT_VERSION``;
* inputs and outputs have ``shape`` (the user's), ``layout`` ([channels, height, width] in memory), and ``point`` or, on
INT8 machines, ``scale`` and ``zero``;
* if elements do not lie in order, ``strides`` or ``order`` say where in that layout each element of the user's array
  lies. ``strides`` has one for each axis of the array, as for TensorFlow's channels-last images, and ``order`` runs of
  [first, step, count];
* an input that a thin first layer reads has ``packing`` (``packing.py``): these places then count in ``source``
[channels, height, width], of which the host makes ``layout``;
* ``files``: length and SHA-256 of the program and of the constants;
* ``host``: a small ONNX model which runs behind the machine; ``macs``; ``layers`` (the report);
``instruction_layers``: the layer of each instruction, as text: LAYERxCOUNT for each run;
* ``cores`` of a program for a machine of several: how they share the work (``CoresEntry``);
* ``network``: name, type and shape of the inputs and outputs that the user sees.

A network that host and machine run in any other order has ``parts`` instead of a program (``Parts``). Each is a program
with its ports, or an ONNX model for the host; they run in this order, and pass tensors on by their names. An unknown
key is an error that names the known ones, because what it asks for would not happen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from weft.support import structs
from weft.support.structs import Meta

FORMAT_VERSION = 1
"""The version of ``.tmodel`` files that this Weft writes. It goes up when a reader of the version before would do
something else than the file says. Every Weft reads all versions up to its own; files without the key are version 1."""

Address = Annotated[int, Meta(ge=0, le=1 << 32)]
Size = Annotated[int, Meta(ge=0, le=1 << 32)]
Number = Annotated[int, Meta(ge=-(1 << 48), le=1 << 48)]
Dimension = Annotated[int, Meta(ge=1, le=1 << 32)]
Step = Annotated[int, Meta(ge=1, le=1 << 16)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Point = Annotated[int, Meta(ge=-1022, le=1023)]
"""A binary point: 2**point is a number in double precision."""
Scale = Annotated[float, Meta(ge=2.0 ** -126, lt=2.0 ** 127)]
"""A scale: a normal number in single precision."""
Byte = Annotated[int, Meta(ge=-128, le=127)]
Name = Annotated[str, Meta(min_length=1, max_length=4096)]
FileName = Annotated[str, Meta(min_length=1, max_length=255)]
Version = Annotated[int, Meta(ge=1, le=1 << 16)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Type = Literal["float32", "float16", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
               "uint64"]
Shape3 = tuple[Dimension, Dimension, Dimension]
Pair = tuple[Dimension, Dimension]
Axes = Meta(max_length=32)
Few = Meta(max_length=1024)
"""The limit for lists of files, inputs and outputs."""


class Keys(structs.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object with exactly these keys; any other key is an error."""


T = TypeVar("T", bound=Keys)


class ProgramEntry(Keys):
    """The program's file; ``size`` in bytes."""

    file_name: FileName
    size: Size


class ConstEntry(Keys):
    """A file of ``size`` vectors of constants for DRAM1 at ``base``.

    With ``memory`` "dram0" they are for DRAM0, in every image's window."""

    file_name: FileName
    base: Address
    size: Size
    memory: Literal["dram0", "dram1"] = "dram1"


class PackingEntry(Keys):
    """The host's packing of an input: the image before (``source``) and after, and the window that is packed."""

    source: Shape3
    size: Pair
    kernel: Pair
    strides: tuple[Step, Step]
    pads: tuple[Address, Address]
    dilations: tuple[Step, Step]


class PortEntry(Keys):
    """An input or output of a program: ``size`` vectors of DRAM0 from ``base``."""

    name: Name
    base: Address
    size: Dimension
    shape: Annotated[tuple[Dimension, ...], Axes] | None = None
    layout: Shape3 | None = None
    point: Point | None = None
    scale: Scale | None = None
    zero: Byte = 0
    strides: Annotated[tuple[Number, ...], Axes] | None = None
    order: tuple[tuple[Number, Number, Dimension], ...] | None = None
    packing: PackingEntry | None = None


class CoreEntry(Keys):
    """The program of one of several cores that work on one image."""

    prog: ProgramEntry
    instruction_layers: str | None = None


class CoresEntry(Keys):
    """The sharing of work between several cores.

    ``batch``: each core runs the whole program, on an image of its own, in a window of DRAM0 of its own. From one
    core's window to the next are ``window_bytes``. All share what lies in DRAM1, and none writes it. ``split``: all
    cores run an image together; the program is core 0's, ``others`` has those of the cores behind it."""

    mode: Literal["batch", "split"]
    window_bytes: Annotated[int, Meta(ge=1 << 16, le=1 << 40, multiple_of=1 << 16)]
    others: Annotated[tuple[CoreEntry, ...], Meta(max_length=15)] = ()


class FileEntry(Keys):
    """The length in bytes and the SHA-256 of a file."""

    bytes: Size
    sha256: Sha256


class HostEntry(Keys):
    """A subgraph of the host: an ONNX ``model`` in base64, and the tensors that it reads and makes."""

    model: str
    inputs: tuple[Name, ...]
    outputs: tuple[Name, ...]
    passes: tuple[Name, ...]
    operators: tuple[str, ...]
    nodes: tuple[str, ...] | None = None


class TensorEntry(Keys):
    """An input or output of the network.

    With ``scale`` its bytes mean (byte - ``zero``) * ``scale``; 128 is subtracted from unsigned bytes first."""

    name: Name
    type: Type
    shape: Annotated[tuple[Dimension, ...], Axes]
    scale: Scale | None = None
    zero: Byte = 0


class NetworkEntry(Keys):
    """The inputs and outputs that the user sees."""

    inputs: Annotated[tuple[TensorEntry, ...], Few]
    outputs: Annotated[tuple[TensorEntry, ...], Few]


class LayerEntry(structs.Struct):
    """The keys that are read of a row of the report; its other keys are for people."""

    name: str
    kind: str
    macs: Count
    done_macs: Count = 0


class Program(Keys):
    """One program of the machine: its file, constants, ports and report; keys are explained at the top of the file."""

    prog: ProgramEntry
    consts: Annotated[tuple[ConstEntry, ...], Few]
    inputs: Annotated[tuple[PortEntry, ...], Few]
    outputs: Annotated[tuple[PortEntry, ...], Few]
    macs: Count = 0
    instruction_layers: str | None = None
    cores: CoresEntry | None = None
    layers: tuple[dict[str, Any], ...] = ()


class Manifest(Program, kw_only=True, forbid_unknown_fields=True):
    """A whole ``.tmodel`` of one program. The architecture itself checks ``arch``."""

    name: Name
    arch: dict[str, Any]
    format_version: Version = 1
    load_consts_to_local: bool = False
    files: dict[FileName, FileEntry] | None = None
    host: HostEntry | None = None
    network: NetworkEntry | None = None


class PartEntry(Keys):
    """A part of a network: either a program or a subgraph of the host."""

    program: Program | None = None
    host: HostEntry | None = None


class Parts(Keys):
    """A whole ``.tmodel`` of several parts."""

    name: Name
    arch: dict[str, Any]
    network: NetworkEntry
    parts: Annotated[tuple[PartEntry, ...], Few]
    files: dict[FileName, FileEntry]
    format_version: Version = 1


PROGRAM: dict[str, type[Keys]] = {
    "": Program, ".prog": ProgramEntry, ".consts[]": ConstEntry, ".inputs[]": PortEntry, ".outputs[]": PortEntry,
    ".inputs[].packing": PackingEntry, ".outputs[].packing": PackingEntry, ".cores": CoresEntry,
    ".cores.others[]": CoreEntry, ".cores.others[].prog": ProgramEntry,
}
STRUCTS: dict[str, type[Keys]] = {
    **{f"${where}": kind for where, kind in PROGRAM.items()},
    **{f"$.parts[].program{where}": kind for where, kind in PROGRAM.items()},
    "$": Manifest, "$.files[...]": FileEntry, "$.host": HostEntry, "$.parts[]": PartEntry, "$.parts[].host": HostEntry,
    "$.network": NetworkEntry, "$.network.inputs[]": TensorEntry, "$.network.outputs[]": TensorEntry,
}
"""Path in a ``.tmodel`` -> the object that stands there."""


def convert(values: Mapping[str, Any]) -> Manifest:
    """Return the checked content of a ``.tmodel`` of one program. Raise ValueError, which says what was found where."""
    return _converted(values, Manifest)


def convert_parts(values: Mapping[str, Any]) -> Parts:
    """Return the checked content of a ``.tmodel`` of several parts. Raise ValueError for wrong content."""
    parts = _converted(values, Parts)
    for number, part in enumerate(parts.parts):
        if (part.program is None) == (part.host is None):
            raise ValueError(f"parts[{number}] with both or neither of program and host")
    return parts


def convert_any(values: Mapping[str, Any]) -> Manifest | Parts:
    """Return the checked content of a ``.tmodel`` of one program or several parts.

    Raise ValueError for wrong content, and for a file of a later version, whose keys this Weft does not know."""
    version = values.get("format_version", 1)
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise ValueError(f"format_version {version}, of a later Weft; this one reads 1 to {FORMAT_VERSION}; update "
                         "Weft, or compile the network again with this one")
    return convert_parts(values) if "parts" in values else convert(values)


def _converted(values: Mapping[str, Any], kind: type[T]) -> T:
    """Return the content as an object of class ``kind``. Raise ValueError for wrong content."""
    try:
        found = structs.convert(values, kind)
        programs = [found] if isinstance(found, Program) else [part.program for part in getattr(found, "parts", ())]
        for program in filter(None, programs):
            for number, row in enumerate(program.layers):
                _layer(number, row)
    except structs.ValidationError as error:
        raise ValueError(_with_known_keys(str(error), kind)) from None
    return found


def _layer(number: int, row: Mapping[str, Any]) -> None:
    """Raise ValueError if a row of the report has wrong keys or types."""
    try:
        structs.convert(row, LayerEntry)
    except structs.ValidationError as error:
        raise ValueError(f"layers[{number}]: {error}") from None


def _with_known_keys(text: str, whole: type[Keys]) -> str:
    """Return an error text, with the known keys appended if it is about an unknown key."""
    if "unknown field" not in text:
        return text
    _, _, path = text.partition(" - at `")
    where = re.sub(r"\[\d+\]", "[]", path.rstrip("`"))
    struct = STRUCTS[where] if where else whole
    return f"{text}; known are {', '.join(struct.__struct_fields__)}"
