# SPDX-License-Identifier: Apache-2.0
"""The machines of a search: every choice of some architecture keys, on a base that has all the others."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.contract.keys import Affects
from weft.hw.flow.parts import Part
from weft.hw.flow.resources import COLUMNS, SHELL, check_counted, counted, fits, room
from weft.support.errors import ArchError, WeftError, explain

Value = int | str
Axes = Mapping[str, Sequence[Value]]

AXES: dict[str, tuple[Value, ...]] = {
    "data_type": ("FP16BP8", "FP8BP4", "INT8"),
    "array_size": (4, 6, 8, 12, 16, 24, 32),
    "local_depth": (1024, 2048, 4096, 8192),
    "accumulator_depth": (512, 1024, 2048),
    "local_banks": (2, 4),
    "accumulator_banks": (1, 2),
    "axi_data_width": (64, 128),
    "dram_ports": (SHARED, SEPARATE),
    "deep_queues": (0, 1),
}
"""Key -> its default values, 2 688 machines of each data type.

Types whose resources are not known on the chip are left out."""
SETTLED: dict[str, Value] = {"sampler": 0}
"""Keys that cost look-up tables and never a cycle."""
MOST_MACHINES = 200_000
FREE_OF_CONSTANTS = tuple(name for name, row in KEYS.items() if row.affects < Affects.CONSTANTS)
"""Keys on which a network's constants, and all that the compiler makes before, do not depend."""
FREE_OF_PROGRAM = tuple(name for name, row in KEYS.items() if row.affects < Affects.PROGRAM)
"""Keys on which no program depends, only how long it takes."""


@dataclass(frozen=True)
class Point:
    """A machine of the space.

    ``index`` in the order of the space, ``counts`` of its resources. ``share``: the largest part that it takes of what
    a chip has left for it, 1 if it just fits; ``short`` names what is too little."""

    index: int
    arch: Arch
    counts: Mapping[str, int]
    share: float
    largest: str
    short: tuple[str, ...]

    @property
    def rank(self) -> tuple[float, int, int]:
        """The key by which machines are sorted, cheaper ones first: share of the chip, LUTs, index."""
        return self.share, self.counts["lut"], self.index


def default_axes(base: Arch, part: Part) -> dict[str, Sequence[Value]]:
    """Return ``AXES`` with the data types that were counted on the part's family.

    Raise WeftError if the base has none of them."""
    def known(data_type: Value) -> bool:
        try:
            return counted(base.replace(data_type=data_type), part.family)
        except ArchError:
            return False

    types = tuple(filter(known, AXES["data_type"]))
    if not types:
        check_counted(base, part.family)
    return {**AXES, "data_type": types or (base.data_type,)}


def machines(base: Arch, axes: Axes) -> Iterator[Arch]:
    """Yield every choice that can be built, in the order of the axes. Raise WeftError for too many."""
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST_MACHINES:
        raise WeftError(explain("--axis", f"{count} machines", f"at most {MOST_MACHINES}", "give fewer values"))
    for values in itertools.product(*axes.values()):
        try:
            yield base.replace(**with_stream(base, dict(zip(axes, values, strict=True))))
        except ArchError:
            continue


def with_stream(base: Arch, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return the values; for several cores with the stream's width, which their memory ports settle.

    A width among the values stays."""
    both = {**base.to_dict(), **values}
    return {"stream_width": both["axi_data_width"], **values} if both["cores"] != 1 else dict(values)


def points(base: Arch, axes: Axes, part: Part, around: Mapping[str, int] = SHELL) -> list[Point]:
    """Return all machines with what they take of ``part``, in the order of the space.

    The rest of a board takes ``around``."""
    found = []
    for index, arch in enumerate(machines(base, axes)):
        fitting = fits(arch, part, around=around)
        rooms = {column: room(part, column, around) for column in fitting["of_part"]}
        used = {column: entry[0] / rooms[column] if rooms[column] > 0 else float("inf")
                for column, entry in fitting["of_part"].items()}
        largest = max(used, key=lambda column: used[column])
        found.append(Point(index, arch, {name: fitting["total"][name] for name in COLUMNS}, used[largest], largest,
                           tuple(fitting["short"])))
    return found


def without(arch: Arch, keys: Sequence[str]) -> Arch:
    """Return the machine that stands for all that differ from it only in ``keys``.

    It can be built: several cores keep the keys that their memory ports settle."""
    neutral, bus = {key: KEYS[key].neutral for key in keys}, _bus(arch)
    settled = {"stream_width": bus, "dram_ports": arch.dram_ports} if arch.cores > 1 else {}
    return arch.replace(**{**neutral, "axi_data_width": bus, **settled})


def _bus(arch: Arch) -> int:
    """Return the narrowest bus on which a vector takes as long."""
    width = 32
    while width < min(arch.axi_data_width, 8 * arch.vector_bytes):
        width *= 2
    return width


def digest(arch: Arch) -> str:
    """Return a digest of every key with its value."""
    return hashlib.sha256(json.dumps(arch.to_dict(), sort_keys=True).encode()).hexdigest()[:20]

