"""What may stand in a ``.tmodel``: one schema of types and ranges, for every key. ``checks.py`` has what keys allow
each other.

The original tools write ``name`` to ``load_consts_to_local``. The rest are additions that an old reader may ignore:

* of inputs and outputs ``shape`` (the user's), ``layout`` ([channels, height, width] in memory), ``point`` or, on
  INT8 machines, ``scale`` and ``zero``, and where
  elements do not lie in order either ``strides``, one for each axis of the user's array, such as those of TensorFlow's
  channels-last images, or ``order``, runs of [first, step, count]: they say where in that layout each element of the
  user's array lies; ``packing`` of an input that a thin first layer reads (``packing.py``): these places count in
  ``source`` [channels, height, width], of which the host makes ``layout``;
* ``files``: length and SHA-256 of the program and of the constants;
* ``host``: a small ONNX model which runs behind the machine; ``macs``; ``layers`` (the report);
  ``instruction_layers``: which of these each instruction belongs to, as text: LAYERxCOUNT for each run;
* ``network``: name, type and shape of the inputs and outputs that the user sees.

A network that host and machine run in any other order has ``parts`` instead of a program (``Parts``). Each is a program
with its ports, or an ONNX model for the host; they run in this order, and hand on tensors by their names.

An unknown key is an error that names the known ones: what it asks for would not happen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

Address = Annotated[int, Meta(ge=0, le=1 << 32)]
Size = Annotated[int, Meta(ge=0, le=1 << 32)]
Number = Annotated[int, Meta(ge=-(1 << 48), le=1 << 48)]
Dimension = Annotated[int, Meta(ge=1, le=1 << 32)]
Step = Annotated[int, Meta(ge=1, le=1 << 16)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Point = Annotated[int, Meta(ge=-1022, le=1023)]
"""2**point is a number in double precision."""
Scale = Annotated[float, Meta(ge=2.0 ** -126, lt=2.0 ** 127)]
"""A normal number in single precision."""
Byte = Annotated[int, Meta(ge=-128, le=127)]
Name = Annotated[str, Meta(min_length=1, max_length=4096)]
FileName = Annotated[str, Meta(min_length=1, max_length=255)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Type = Literal["float32", "float16", "float64", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
               "uint64"]
Shape3 = tuple[Dimension, Dimension, Dimension]
Pair = tuple[Dimension, Dimension]
Axes = Meta(max_length=32)
Few = Meta(max_length=1024)
"""Files, inputs, outputs."""


class Keys(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An object in which no other keys may stand."""


T = TypeVar("T", bound=Keys)


class ProgramEntry(Keys):
    """``size`` in bytes."""

    file_name: FileName
    size: Size


class ConstEntry(Keys):
    """``size`` vectors of a file for DRAM1 at ``base``; with ``memory`` "dram0" for DRAM0, in every image's window."""

    file_name: FileName
    base: Address
    size: Size
    memory: Literal["dram0", "dram1"] = "dram1"


class PackingEntry(Keys):
    source: Shape3
    size: Pair
    kernel: Pair
    strides: tuple[Step, Step]
    pads: tuple[Address, Address]
    dilations: tuple[Step, Step]


class PortEntry(Keys):
    """``size`` vectors of DRAM0 from ``base``."""

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


class FileEntry(Keys):
    """What a file must hold: ``bytes``, and their SHA-256."""

    bytes: Size
    sha256: Sha256


class HostEntry(Keys):
    """``model`` in base64."""

    model: str
    inputs: tuple[Name, ...]
    outputs: tuple[Name, ...]
    passes: tuple[Name, ...]
    operators: tuple[str, ...]
    nodes: tuple[str, ...] | None = None


class TensorEntry(Keys):
    """An input or output of the network; with ``scale`` its bytes mean (byte - ``zero``) * ``scale``, of unsigned ones
    128 less."""

    name: Name
    type: Type
    shape: Annotated[tuple[Dimension, ...], Axes]
    scale: Scale | None = None
    zero: Byte = 0


class NetworkEntry(Keys):
    inputs: Annotated[tuple[TensorEntry, ...], Few]
    outputs: Annotated[tuple[TensorEntry, ...], Few]


class LayerEntry(msgspec.Struct):
    """What is read of a row of the report; the rest is for people."""

    name: str
    kind: str
    macs: Count
    done_macs: Count = 0


class Program(Keys):
    """What one program of the machine needs; see above."""

    prog: ProgramEntry
    consts: Annotated[tuple[ConstEntry, ...], Few]
    inputs: Annotated[tuple[PortEntry, ...], Few]
    outputs: Annotated[tuple[PortEntry, ...], Few]
    macs: Count = 0
    instruction_layers: str | None = None
    layers: tuple[dict[str, Any], ...] = ()


class Manifest(Program, kw_only=True, forbid_unknown_fields=True):
    """A whole ``.tmodel`` of one program. ``arch`` is checked by the architecture itself."""

    name: Name
    arch: dict[str, Any]
    load_consts_to_local: bool = False
    files: dict[FileName, FileEntry] | None = None
    host: HostEntry | None = None
    network: NetworkEntry | None = None


class PartEntry(Keys):
    """One of the two."""

    program: Program | None = None
    host: HostEntry | None = None


class Parts(Keys):
    """A whole ``.tmodel`` of several parts."""

    name: Name
    arch: dict[str, Any]
    network: NetworkEntry
    parts: Annotated[tuple[PartEntry, ...], Few]
    files: dict[FileName, FileEntry]


PROGRAM: dict[str, type[Keys]] = {
    "": Program, ".prog": ProgramEntry, ".consts[]": ConstEntry, ".inputs[]": PortEntry, ".outputs[]": PortEntry,
    ".inputs[].packing": PackingEntry, ".outputs[].packing": PackingEntry,
}
STRUCTS: dict[str, type[Keys]] = {
    **{f"${where}": kind for where, kind in PROGRAM.items()},
    **{f"$.parts[].program{where}": kind for where, kind in PROGRAM.items()},
    "$": Manifest, "$.files[...]": FileEntry, "$.host": HostEntry, "$.parts[]": PartEntry, "$.parts[].host": HostEntry,
    "$.network": NetworkEntry, "$.network.inputs[]": TensorEntry, "$.network.outputs[]": TensorEntry,
}
"""Where in a ``.tmodel`` which object stands."""


def convert(values: Mapping[str, Any]) -> Manifest:
    """The checked content of a ``.tmodel`` of one program. Raises ValueError, which says what was found where."""
    return _converted(values, Manifest)


def convert_parts(values: Mapping[str, Any]) -> Parts:
    """The same of several parts."""
    parts = _converted(values, Parts)
    for number, part in enumerate(parts.parts):
        if (part.program is None) == (part.host is None):
            raise ValueError(f"parts[{number}] with both or neither of program and host")
    return parts


def convert_any(values: Mapping[str, Any]) -> Manifest | Parts:
    """Of either kind."""
    return convert_parts(values) if "parts" in values else convert(values)


def _converted(values: Mapping[str, Any], kind: type[T]) -> T:
    try:
        found = msgspec.convert(values, kind)
        programs = [found] if isinstance(found, Program) else [part.program for part in getattr(found, "parts", ())]
        for program in filter(None, programs):
            for number, row in enumerate(program.layers):
                _layer(number, row)
    except msgspec.ValidationError as error:
        raise ValueError(_with_known_keys(str(error), kind)) from None
    return found


def _layer(number: int, row: Mapping[str, Any]) -> None:
    try:
        msgspec.convert(row, LayerEntry)
    except msgspec.ValidationError as error:
        raise ValueError(f"layers[{number}]: {error}") from None


def _with_known_keys(text: str, whole: type[Keys]) -> str:
    """An unknown key is told which ones are known."""
    if "unknown field" not in text:
        return text
    _, _, path = text.partition(" - at `")
    where = re.sub(r"\[\d+\]", "[]", path.rstrip("`"))
    struct = STRUCTS[where] if where else whole
    return f"{text}; known are {', '.join(struct.__struct_fields__)}"
