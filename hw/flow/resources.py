"""What a machine takes of a chip, predicted at once: a linear model of each block, fitted to yosys' counts.

``scripts/fit_resources.py`` synthesises the blocks of several machines and writes ``resources.json``. Look-up tables
and flip-flops of a block are sums of the terms below, each times a fitted number. DSP blocks and block RAM follow from
the geometry alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.bus.segments import Geometry
from weft.hw.contract.arch import Arch, bits_to_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import Memory, accesses, clients, conflict, depths, dram_units, unit_names
from weft.hw.flow.memories import block_rams, rams, ultra_rams
from weft.hw.flow.parts import Part
from weft.hw.flow.parts import block_rams as count_blocks

FITTED = ("lut", "ff")
COLUMNS = (*FITTED, "dsp", "bram36", "bram18")
MODEL = Path(__file__).with_name("resources.json")
SHELL = {"lut": 7_000, "ff": 7_000, "dsp": 0, "bram": 4, "uram": 0}
"""What a board needs beside the machine, about: a memory controller for one DRAM, a host link, and what joins them."""
ROUTABLE = 0.9
"""Of a chip's look-up tables, above which routing gets hard."""

Terms = Callable[[Arch], float]


def _vector(arch: Arch) -> int:
    return arch.array_size * arch.number.width


def _sums(arch: Arch) -> int:
    return arch.array_size * arch.accumulator_bits


def _gearbox(arch: Arch) -> float:
    """Bits that a gearbox moves: units times their positions."""
    geometry = Geometry(arch)
    units = geometry.beat_units + geometry.vector_units - 1
    return 0 if units == 1 else units * geometry.unit_width * bits_to_count(units)


def _local_ports(arch: Arch) -> int:
    return sum(len(clients(arch, Memory.LOCAL, writes=writes)) for writes in (False, True))


def _address(arch: Arch, memory: Memory) -> int:
    widths = {Memory.LOCAL: arch.local_address_width, Memory.ACCUMULATORS: arch.accumulator_address_width}
    return widths.get(memory, arch.dram_address_width)


def _places(arch: Arch) -> int:
    """Operations that may be outstanding."""
    return sum(depths(arch, unit).outstanding for unit in unit_names(arch))


def _place_bits(arch: Arch) -> int:
    """Of the addresses of all that may be outstanding."""
    return sum(depths(arch, unit).outstanding * _address(arch, access.memory)
               for unit in unit_names(arch) for access in accesses(arch, unit))


def _comparisons(arch: Arch) -> int:
    """Bits compared between what an operation of any unit touches and all that it may conflict with."""
    return sum(depths(arch, other).outstanding * _address(arch, held.memory)
               for unit in unit_names(arch) for access in accesses(arch, unit)
               for other in unit_names(arch) if other != unit
               for held in accesses(arch, other) if conflict(access, held))


def _split(arch: Arch) -> int:
    """Bits of an instruction that lies in two beats of the stream, or beside others in one."""
    instruction = 8 * Isa(arch).instruction_bytes
    return instruction if arch.stream_width != instruction else 0


TERMS: dict[str, Terms] = {
    "one": lambda arch: 1,
    "slices": lambda arch: arch.register_slices,
    "lanes": lambda arch: arch.array_size,
    "elements": lambda arch: arch.array_size**2,
    "element bits": lambda arch: arch.array_size * _vector(arch),
    "elements, every step": lambda arch: arch.array_size * _vector(arch) * arch.numbers.code,
    "vector": _vector,
    "vector, slices": lambda arch: _vector(arch) * arch.register_slices,
    "sums": _sums,
    "sums x banks": lambda arch: _sums(arch) * arch.accumulator_banks,
    "vector x banks": lambda arch: _vector(arch) * arch.local_banks,
    "vector x ports": lambda arch: _vector(arch) * len(clients(arch, Memory.LOCAL, writes=True)) * arch.local_banks,
    "ports x banks": lambda arch: _local_ports(arch) * arch.local_banks,
    "address x banks": lambda arch: arch.local_address_width * arch.local_banks * _local_ports(arch),
    "sum address x banks": lambda arch: arch.accumulator_address_width * arch.accumulator_banks,
    "on-chip address": lambda arch: arch.local_address_width + arch.accumulator_address_width,
    "local address": lambda arch: arch.local_address_width,
    "far address": lambda arch: sum(Isa(arch).address_widths),
    "dram address": lambda arch: arch.dram_address_width,
    "products": lambda arch: arch.local_address_width * sum(Isa(arch).address_widths),
    "places": _places,
    "place bits": _place_bits,
    "comparisons": _comparisons,
    "units": lambda arch: len(unit_names(arch)),
    "bus": lambda arch: arch.axi_data_width,
    "gearbox": _gearbox,
    "stream": lambda arch: arch.stream_width,
    "instruction": lambda arch: 8 * Isa(arch).instruction_bytes,
    "split instruction": _split,
    "registers": lambda arch: _vector(arch) * arch.simd_registers_depth,
    "tables": lambda arch: _vector(arch) * arch.lut_count,
    "has tables": lambda arch: _vector(arch) * bool(arch.lut_count),
    "has loops": lambda arch: bool(arch.simd_loop_depth),
    "has registers": lambda arch: bool(arch.simd_registers_depth),
}
"""What a block's size can depend on, in terms of the architecture."""

BLOCKS: dict[str, Sequence[str]] = {
    "accumulators": ("one", "sums", "sums x banks", "sum address x banks"),
    "array": ("one", "lanes", "elements", "element bits", "elements, every step"),
    "csr": ("one",),
    "decoder": ("one", "far address", "products"),
    "dram_read": ("one", "vector", "vector, slices", "bus", "gearbox", "dram address", "slices"),
    "dram_write": ("one", "vector", "vector, slices", "bus", "gearbox", "dram address", "slices"),
    "enter": ("one", "vector", "sums", "on-chip address"),
    "fetch": ("one", "stream", "instruction", "split instruction"),
    "interlock": ("one", "units", "places", "place bits", "comparisons"),
    "leave": ("one", "vector", "sums"),
    "load_weight": ("one", "local address"),
    "local": ("one", "vector", "vector x banks", "vector x ports", "address x banks", "vector, slices"),
    "mat_mul": ("one", "on-chip address"),
    "move_in": ("one", "vector", "sums", "on-chip address", "vector, slices"),
    "move_out": ("one", "vector", "sums", "on-chip address", "vector, slices"),
    "program_reader": ("one", "stream"),
    "sampler": ("one",),
    "simd": ("one", "vector", "sums", "registers", "has registers", "tables", "has tables", "has loops", "slices"),
    "supervisor": ("one",),
}
"""Block -> the terms of its look-up tables and flip-flops. DRAM engines of both windows are alike."""


def kind_of(block: str) -> str:
    """``dram_read`` for ``dram0_read``; other blocks are kinds of their own."""
    return re.sub("^dram[01]_", "dram_", block)


def blocks_of(arch: Arch) -> dict[str, int]:
    """Kind of block -> how many of them the machine has."""
    engines = [kind_of(name) for name in dram_units(arch)]
    return {kind: engines.count(kind) if kind in engines else 1 for kind in BLOCKS} | {"sampler": arch.sampler}


def values(arch: Arch, kind: str) -> np.ndarray:
    """[terms] of a kind of block."""
    return np.array([TERMS[name](arch) for name in BLOCKS[kind]], float)


@cache
def model() -> dict[str, Any]:
    """The committed fit: ``families`` -> column -> kind of block -> a number for each of its terms; ``error`` ->
    family -> machine that was not fitted -> column -> percent of the whole machine."""
    found: dict[str, Any] = json.loads(MODEL.read_text())
    return found


def largest_error(family: str) -> dict[str, float] | None:
    """Column -> percent: the largest on the machines that were not fitted; None where none was looked at."""
    seen = model()["error"].get(family, {}).values()
    return {column: max(abs(error[column]) for error in seen) for column in FITTED} if seen else None


def predict(arch: Arch, family: str, fitted: dict[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Kind of block -> ``lut``, ``ff``, ``dsp``, ``bram18``, ``bram36`` of all blocks of that kind."""
    numbers = (fitted or model()["families"])[family]
    counts: dict[str, dict[str, int]] = {}
    for kind, copies in blocks_of(arch).items():
        found = {column: float(np.dot(values(arch, kind), numbers[column][kind])) for column in FITTED}
        counts[kind] = {column: max(0, round(copies * value)) for column, value in found.items()}
    for kind, number in (("array", arch.array_size**2), ("simd", arch.array_size)):
        counts[kind]["dsp"] = number * multiplier_blocks(arch.number.width, family)
    # Rows x pitch of both operands, no wider than an address: what is beyond a block's bits are look-up tables.
    counts["decoder"]["dsp"] = 2 * multiplier_blocks(arch.local_address_width, family)
    for ram in rams(arch):
        counts[ram.block].update(block_rams(ram, family))
    return counts


def multiplier_blocks(width: int, family: str) -> int:
    """DSP blocks that a product of two numbers takes: one has 25 x 18 bits, an ECP5's 18 x 18. A product of up to 8
    bits is made of look-up tables."""
    if width <= 4:
        return 0
    return (1 if width <= 18 else 2) * (1 if width <= (25 if family == "xc7" else 18) else 2)


def room(part: Part, column: str) -> int:
    """What a part has for the machine, beside the rest of a board."""
    whole = int(ROUTABLE * part.lut) if column == "lut" else getattr(part, column)
    return int(whole - SHELL[column])


def fits(arch: Arch, part: Part, fitted: dict[str, Any] | None = None) -> dict[str, Any]:
    """The prediction for a part: ``blocks``, ``total``, ``of_part`` (column -> what the machine takes, what the rest of
    a board needs, what the part has), ``fits``, and ``short``: the columns that do not. ``uram`` is a column where the
    local memory lies in UltraRAM."""
    counts = predict(arch, part.family, fitted)
    ultra = ultra_rams(arch, part)
    if ultra:
        counts["local"] |= {"bram36": 0, "bram18": 0}
    found = {column: sum(block.get(column, 0) for block in counts.values()) for column in COLUMNS}
    used = {"lut": found["lut"], "ff": found["ff"], "dsp": found["dsp"], "bram": count_blocks(found, part.family),
            **({"uram": ultra} if ultra else {})}
    short = [column for column, number in used.items() if number > room(part, column)]
    return {"part": part.name, "blocks": counts, "total": {name: found[name] for name in COLUMNS},
            "of_part": {column: [number, SHELL[column], getattr(part, column)] for column, number in used.items()},
            "fits": not short, "short": short}
