# SPDX-License-Identifier: Apache-2.0
"""Check the keys of a ``.tmodel`` against each other: places in memories, overlaps, sizes.

Every function raises ValueError, which says what was found; nothing large is made before. Outputs may lie over inputs,
and over each other: the original's programs write over an input that they have read, and one tensor may be two
outputs."""

from __future__ import annotations

import base64
import binascii
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.repeats import MOST_INSTRUCTIONS
from weft.hw.contract.schemes import SchemeKind
from weft.tmodel.model_set import is_plain
from weft.tmodel.ports import layer_runs, packing_of
from weft.tmodel.scales import SHIFTS
from weft.tmodel.schema import (
    ConstEntry,
    HostEntry,
    Manifest,
    NetworkEntry,
    PackingEntry,
    Parts,
    PortEntry,
    Program,
    ProgramEntry,
)

MOST_ELEMENTS = 1 << 25
"""The most elements of all inputs and outputs, with unused lanes; each takes 64 bits, several times over."""
MOST_TAPS = 1 << 16
"""The most taps of a kernel that the host packs, one after another."""
MOST_DATA_BYTES = 640 << 20
"""The most bytes of all files: the constants of VGG-16 in 32 bits are 553 MB."""
MOST_PROGRAM_BYTES = 32 << 20
"""The most bytes of one program, on every device; the compiler makes no longer one.

ResNet-50 at 8 lanes has 6 MB; the golden machine and the estimator take some hundred bytes an instruction."""

LONGEST_RUN = 24
"""The most characters of one run in ``instruction_layers``."""

Place = tuple[int, int, str]
"""A place in a memory: base and size in vectors, and the name of what lies there."""


def check(manifest: Manifest, arch: Arch) -> None:
    """Check everything about a manifest that can be checked without the other files."""
    _names(manifest)
    elements = sum(_port(f"{kind} {port.name!r}", port, arch)
                   for kind, ports in (("input", manifest.inputs), ("output", manifest.outputs)) for port in ports)
    if elements > MOST_ELEMENTS:
        raise ValueError(f"inputs and outputs of {elements} elements, more than {MOST_ELEMENTS}")
    _memories(manifest, arch)
    _sizes(manifest, arch)
    _instruction_layers(manifest, arch)
    _cores(manifest, arch)
    if manifest.host is not None:
        _host(manifest.host, {port.name for port in manifest.outputs})
    if manifest.network is not None:
        _network(manifest)


def check_parts(parts: Parts, arch: Arch) -> list[Manifest | HostEntry]:
    """Check a network in parts; return each program as a manifest, each host part as it is, in order."""
    found = [part.host or _alone(parts, part.program) for part in parts.parts]
    programs = [part for part in found if isinstance(part, Manifest)]
    if not programs:
        raise ValueError("parts without a program")
    for program in programs:
        check(program, arch)
    files = set().union(*map(file_names, programs))
    if set(parts.files) != files:
        raise ValueError(f"checksums of {sorted(parts.files)} for the files {sorted(files)}")
    if sum(entry.bytes for entry in parts.files.values()) > MOST_DATA_BYTES:
        raise ValueError(f"files of more than {MOST_DATA_BYTES} bytes")
    _bytes(parts.network)
    _unique("inputs", [tensor.name for tensor in parts.network.inputs])
    _unique("outputs", [tensor.name for tensor in parts.network.outputs])
    _flow(parts, found)
    return found


def _alone(parts: Parts, program: Program | None) -> Manifest:
    """Return one program of a network in parts as a manifest of its own."""
    assert program is not None, "one of the two"
    files = {name: parts.files[name] for name in file_names(program) if name in parts.files}
    return Manifest(name=parts.name, arch=parts.arch, files=files,
                    **{key: getattr(program, key) for key in Program.__struct_fields__})


def _flow(parts: Parts, found: Iterable[Manifest | HostEntry]) -> None:
    """Check that everything that a part reads was made before, once."""
    known = {tensor.name for tensor in parts.network.inputs}
    for number, part in enumerate(found):
        if isinstance(part, HostEntry):
            _host_entry(part)
            reads, makes = list(part.inputs), list(part.outputs)
        else:
            if any(port.shape is None for port in (*part.inputs, *part.outputs)):
                raise ValueError(f"parts[{number}] with an input or output without a shape")
            reads, makes = [port.name for port in part.inputs], [port.name for port in part.outputs]
        for name in reads:
            if name not in known:
                raise ValueError(f"parts[{number}] reads {name!r}, which nothing before it makes")
        _unique(f"outputs of parts[{number}]", makes)
        twice = known.intersection(makes)
        if twice:
            raise ValueError(f"parts[{number}] makes {min(twice)!r}, which is there before")
        known.update(makes)
    for tensor in parts.network.outputs:
        if tensor.name not in known:
            raise ValueError(f"network with the output {tensor.name!r}, which no part makes")


# -- names -------------------------------------------------------------------------------------------------------------
def file_names(manifest: Program) -> set[str]:
    """Return the names of the programs' files and of the constants' files."""
    return {*(entry.file_name for entry in program_files(manifest)), *(entry.file_name for entry in manifest.consts)}


def _names(manifest: Manifest) -> None:
    """Check the names of files and ports."""
    for name in sorted(file_names(manifest)):
        if not is_plain(name):
            raise ValueError(f"the file name {name!r}, which is not a plain name in the model's own folder")
    for kind, ports in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        _unique(kind, [port.name for port in ports])
    if manifest.files is not None and set(manifest.files) != file_names(manifest):
        raise ValueError(f"checksums of {sorted(manifest.files)} for the files {sorted(file_names(manifest))}")


def _unique(kind: str, names: Sequence[str]) -> None:
    """Check that there is at least one name, and each only once."""
    if not names:
        raise ValueError(f"no {kind}")
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise ValueError(f"{count} {kind} of the name {name!r}")


# -- memories ----------------------------------------------------------------------------------------------------------
def _memories(manifest: Manifest, arch: Arch) -> None:
    """Check that inputs, outputs and constants lie within their memories and do not overlap."""
    inputs = [(port.base, port.size, f"input {port.name!r}") for port in manifest.inputs]
    outputs = [(port.base, port.size, f"output {port.name!r}") for port in manifest.outputs]
    dram0, dram1 = (_const_places(manifest.consts, memory) for memory in ("dram0", "dram1"))
    _within([*inputs, *outputs, *dram0], "DRAM0", arch.dram0_depth)
    _within(dram1, "DRAM1", arch.dram1_depth)
    _apart([*inputs, *dram0])
    _apart(dram1)
    for output in outputs:
        for const in dram0:
            _apart([output, const])
    if manifest.load_consts_to_local:
        _within(dram1, "local memory (load_consts_to_local)", arch.local_depth)


def _const_places(consts: Iterable[ConstEntry], memory: str) -> list[Place]:
    """Return the places of constants in ``memory``, "dram0" or "dram1"."""
    return [(entry.base, entry.size, f"constants {entry.file_name!r} of {memory}") for entry in consts
            if entry.memory == memory and entry.size]


def _within(places: Iterable[Place], memory: str, depth: int) -> None:
    """Check that places lie within a memory of ``depth`` vectors."""
    for base, size, name in places:
        if base + size > depth:
            raise ValueError(f"{name} at vectors {base}..{base + size - 1} of {memory}, which has 0..{depth - 1}")


def _apart(places: Iterable[Place]) -> None:
    """Check that places do not overlap."""
    for (base, size, name), (other_base, _, other) in pairwise(sorted(places)):
        if base + size > other_base:
            raise ValueError(f"{other} at vector {other_base}, over {name} at {base}..{base + size - 1}")


def _sizes(manifest: Manifest, arch: Arch) -> None:
    """Check the lengths of files; each file must have a single length."""
    sizes = file_sizes(manifest, arch)
    for entry in program_files(manifest):
        if entry.size > MOST_PROGRAM_BYTES:
            raise ValueError(f"a program of {entry.size} bytes, more than {MOST_PROGRAM_BYTES}")
    if sum(sizes.values()) > MOST_DATA_BYTES:
        raise ValueError(f"files of {sum(sizes.values())} bytes, more than {MOST_DATA_BYTES}")
    said = [(entry.file_name, entry.size) for entry in program_files(manifest)]
    said += [(entry.file_name, entry.size * arch.vector_bytes) for entry in manifest.consts]
    said += [(name, entry.bytes) for name, entry in (manifest.files or {}).items()]
    for name, size in said:
        if size != sizes[name]:
            raise ValueError(f"{sizes[name]} bytes and {size} bytes for the length of {name!r}")
    for entry in program_files(manifest):
        if entry.size % Isa(arch).instruction_bytes:
            raise ValueError(f"a program of {entry.size} bytes, of instructions of {Isa(arch).instruction_bytes}")


def program_files(manifest: Program) -> list[ProgramEntry]:
    """Return the entries of all programs' files, core 0's first."""
    return [manifest.prog, *(core.prog for core in (manifest.cores.others if manifest.cores else ()))]


def file_sizes(manifest: Manifest, arch: Arch) -> dict[str, int]:
    """Return the bytes of each file that belongs to a ``.tmodel``."""
    sizes = {entry.file_name: entry.size * arch.vector_bytes for entry in manifest.consts}
    return {**sizes, **{entry.file_name: entry.size for entry in program_files(manifest)}}


def _cores(manifest: Manifest, arch: Arch) -> None:
    """Check that each of several cores has room for its window, and the window for what a driver places there.

    Raise ValueError."""
    if manifest.cores is None:
        return
    if arch.cores == 1:
        raise ValueError(f"cores with the mode {manifest.cores.mode!r}, of a machine of one core")
    others = len(manifest.cores.others)
    if others != (arch.cores - 1 if manifest.cores.mode == "split" else 0):
        raise ValueError(f"cores with the mode {manifest.cores.mode!r} and {others} other programs, of a machine of "
                         f"{arch.cores} cores")
    window, most = manifest.cores.window_bytes, arch.dram0_window_bytes
    if window > most:
        raise ValueError(f"cores with windows of {window} bytes, of a DRAM0 of {most}")
    ends = [port.base + port.size for port in (*manifest.inputs, *manifest.outputs)]
    ends += [entry.base + entry.size for entry in manifest.consts if entry.memory == "dram0"]
    needed = max(ends) * arch.vector_bytes
    if needed > window:
        raise ValueError(f"cores with windows of {window} bytes, and {needed} bytes of each in use")


# -- ports -------------------------------------------------------------------------------------------------------------
def _port(what: str, port: PortEntry, arch: Arch) -> int:
    """Check a port, and return its elements in memory or for the user, whichever is more."""
    stored = port.size * arch.array_size
    _numbers(what, port, arch)
    if (port.shape is None) != (port.layout is None):
        raise ValueError(f"{what} with only one of shape and layout")
    if port.shape is None or port.layout is None:
        extra = [key for key in ("strides", "order", "packing") if getattr(port, key) is not None]
        if extra:
            raise ValueError(f"{what} with {extra[0]}, without a shape")
        return stored
    channels, height, width = port.layout
    needed = -(-channels // arch.array_size) * height * width
    if needed != port.size:
        raise ValueError(f"{what} of {port.size} vectors with the layout {list(port.layout)}, which takes {needed}")
    source = math.prod(port.layout) if port.packing is None else _packed(what, port.packing, port.layout)
    _places(what, port, port.shape, source)
    return max(stored, source, math.prod(port.shape))


def _numbers(what: str, port: PortEntry, arch: Arch) -> None:
    """Check that a port's binary point or scale fits the machine's data type."""
    if port.scale is None and port.zero:
        raise ValueError(f"{what} with a zero, without a scale")
    if port.scale is not None and (port.point is not None or arch.scheme.kind is not SchemeKind.AFFINE):
        raise ValueError(f"{what} with a scale, and {'a point' if port.point is not None else arch.data_type}")
    if port.scale is None and port.shape is not None and arch.scheme.kind is SchemeKind.AFFINE:
        raise ValueError(f"{what} without a scale, of {arch.data_type}")


def _packed(what: str, packing: PackingEntry, layout: tuple[int, int, int]) -> int:
    """Check a port's packing, and return the elements of the image that the host packs."""
    if math.prod(packing.kernel) > MOST_TAPS:
        raise ValueError(f"{what} packed by a kernel of {list(packing.kernel)}, more than {MOST_TAPS} taps")
    found = packing_of(packing).layout
    if found != layout:
        raise ValueError(f"{what} with the layout {list(layout)}, packed to {list(found)}")
    return math.prod(packing.source)


def _places(what: str, port: PortEntry, shape: tuple[int, ...], source: int) -> None:
    """Check that a port has a place for each element of the user's array, each within 0..source-1."""
    if port.strides is not None and port.order is not None:
        raise ValueError(f"{what} with strides and order")
    if port.strides is not None:
        if len(port.strides) != len(shape):
            raise ValueError(f"{what} with {len(port.strides)} strides for {len(shape)} axes")
        ends = [stride * (size - 1) for stride, size in zip(port.strides, shape, strict=True)]
        _inside(what, sum(min(end, 0) for end in ends), sum(max(end, 0) for end in ends), source)
        return
    places = source if port.order is None else sum(length for _, _, length in port.order)
    for first, step, length in port.order or ():
        low, high = sorted((first, first + step * (length - 1)))
        _inside(what, low, high, source)
    if places != math.prod(shape):
        raise ValueError(f"{what} of the shape {list(shape)} with {places} places for its elements")


def _inside(what: str, low: int, high: int, source: int) -> None:
    """Check that positions ``low``..``high`` lie within 0..source-1."""
    if low < 0 or high >= source:
        raise ValueError(f"{what} with elements at {low}..{high} of a tensor that has 0..{source - 1}")


# -- the rest ----------------------------------------------------------------------------------------------------------
def _instruction_layers(manifest: Manifest, arch: Arch) -> None:
    """Check the size and the layer numbers of ``instruction_layers``, of every program."""
    _layers_of(manifest.instruction_layers, manifest.prog, len(manifest.layers), arch)
    for core in manifest.cores.others if manifest.cores else ():
        _layers_of(core.instruction_layers, core.prog, len(manifest.layers), arch)


def _layers_of(text: str | None, program: ProgramEntry, layers: int, arch: Arch) -> None:
    """Check the layers of one program's instructions, of so many ``layers``."""
    if text is None:
        return
    words = program.size // Isa(arch).instruction_bytes
    most = MOST_INSTRUCTIONS if arch.repeat_depth else words
    if len(text) > LONGEST_RUN * (most + 1):
        raise ValueError(f"instruction_layers longer than {most} instructions need")
    known = layer_runs(text)
    total = sum(count for _, count in known)
    if not words <= total <= most:
        raise ValueError(f"instruction_layers of {total} instructions in a program of {words}")
    if any(layer >= layers for layer, _ in known):
        raise ValueError(f"instruction_layers with a layer beyond the {layers} of layers")


def check_program(layers: np.ndarray, program: bytes, arch: Arch) -> None:
    """Raise ValueError unless ``layers`` [instructions] has one entry for each instruction of the program.

    A program's size alone does not tell that if it has Repeats."""
    instructions = int(Isa(arch).counts(program).sum())
    if len(layers) != instructions:
        raise ValueError(f"instruction_layers of {len(layers)} instructions in a program of {instructions}")


def _host(host: HostEntry, outputs: set[str]) -> None:
    """Check the host part that follows a single program; ``outputs``: the names of the program's outputs."""
    _host_entry(host)
    _unique("outputs of machine and host", (*host.passes, *host.outputs))
    for name in (*host.inputs, *host.passes):
        if name not in outputs:
            raise ValueError(f"host with {name!r}, which is no output of the machine")


def _host_entry(host: HostEntry) -> None:
    """Check the entry of a host part, wherever it stands; its model is checked when it is to run."""
    host_model(host)
    if host.inputs:
        _unique("inputs of the host", host.inputs)
    _unique("outputs of the host", host.outputs)
    if host.nodes is not None and len(host.nodes) != len(host.operators):
        raise ValueError(f"host with {len(host.nodes)} nodes and {len(host.operators)} operators")


def _bytes(network: NetworkEntry) -> None:
    """Check that only byte tensors of the network have scales."""
    for tensor in (*network.inputs, *network.outputs):
        if tensor.scale is not None and tensor.type not in SHIFTS:
            raise ValueError(f"network with a scale of {tensor.name!r}, of {tensor.type}")


def _network(manifest: Manifest) -> None:
    """Check that the network's inputs and outputs are those of the ports and of the host part, in any order."""
    assert manifest.network is not None
    _bytes(manifest.network)
    made = [port.name for port in manifest.outputs] if manifest.host is None else [*manifest.host.passes,
                                                                                  *manifest.host.outputs]
    for kind, tensors, there in (("input", manifest.network.inputs, [port.name for port in manifest.inputs]),
                                 ("output", manifest.network.outputs, made)):
        if sorted(tensor.name for tensor in tensors) != sorted(there):
            raise ValueError(f"network with {kind}s {[tensor.name for tensor in tensors]}, of a model with {there}")


def host_model(host: HostEntry) -> bytes:
    """Return the ONNX model of a host part, in bytes. Raise ValueError if it is not base64."""
    try:
        return base64.b64decode(host.model, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("host with a model that is not base64") from None
