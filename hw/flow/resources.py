# SPDX-License-Identifier: Apache-2.0
"""The prediction of what a machine takes of a chip: a linear model of each block, fitted to yosys' counts.

``scripts/fit_resources.py`` synthesises the blocks of several machines and writes ``resources.json``. Look-up tables
and flip-flops of a block are sums of the terms below, each times a fitted number. DSP blocks and block RAM follow
from the geometry alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.bus.segments import Geometry
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.packing import PAIR
from weft.hw.contract.schemes.fixed_point import SLOPE_WIDTH
from weft.hw.contract.schemes.int8 import MULTIPLIER_WIDTH, SCALED_WIDTH
from weft.hw.contract.timing import column_groups
from weft.hw.contract.units import Memory, accesses, clients, conflict, depths, dram_units, unit_names
from weft.hw.flow.memories import block_rams, rams, ultra_rams
from weft.hw.flow.parts import Part
from weft.hw.flow.parts import block_rams as count_blocks
from weft.support.errors import WeftError, explain

FITTED = ("lut", "ff")
COLUMNS = (*FITTED, "dsp", "bram36", "bram18")
MODEL = Path(__file__).with_name("resources.json")
SHELL = {"lut": 7_000, "ff": 7_000, "dsp": 0, "bram": 4, "uram": 0}
"""The resources of a usual board beside the machine: a memory controller for one DRAM, a host link, and their bus."""
SHELL_LUTS = {("xc7", "DDR3", False): 5_100, ("xc7", "DDR3", True): 8_200, ("ecp5", "SDR", False): 4_000,
              ("ecp5", "DDR3", False): 7_000, ("ecp5", "DDR3", True): 12_400, ("gowin", "on-chip", False): 2_000,
              ("nexus", "on-chip", False): 2_000}
"""The look-up tables of the shells that were counted: (family, kind of memory, whether with Ethernet) -> number."""
ROUTABLE = 0.9
"""The share of a chip's look-up tables above which routing gets hard."""

Terms = Callable[[Arch], float]


def _compared(arch: Arch) -> float:
    """Return the bits of addresses that a memory port compares between its cores, two by two, to join reads."""
    cores = arch.cores / arch.memory_ports
    return arch.joins_reads * cores * (cores - 1) / 2 * arch.axi_address_width


def _vector(arch: Arch) -> int:
    """Return the bits of a vector of scalars."""
    return arch.array_size * arch.number.width


def _sums(arch: Arch) -> int:
    """Return the bits of a vector of accumulator values."""
    return arch.array_size * arch.accumulator_bits


def _residues(arch: Arch) -> int:
    """Return the bits beside the cascades of elements that share their multipliers."""
    return arch.array_size**2 // PAIR * arch.residue_bits if arch.packing else 0


def _points(arch: Arch) -> bool:
    """Return whether programs choose by how much numbers are shifted into and out of the accumulators."""
    return arch.scheme.chooses_points


def _two_rows(arch: Arch) -> bool:
    """Return whether two rows of weights are loaded a cycle."""
    return arch.weight_load_rows == 2


def _tap_bits(arch: Arch) -> int:
    """Return the bits of the activations that all rows of taps meet."""
    return arch.depthwise_taps * arch.tap_rows * column_groups(arch) * arch.scheme.activation_width


def _further_rows(arch: Arch) -> int:
    """Return the rows of taps of a depthwise MatMul beyond the first."""
    return max(0, arch.kernel_rows - 1)


def _gearbox(arch: Arch) -> float:
    """Return the bits that a gearbox moves: units times their positions."""
    geometry = Geometry(arch)
    units = geometry.beat_units + geometry.vector_units - 1
    if 1 in (geometry.beat_units, geometry.vector_units):  # each unit of the longer one has one place in the shorter
        return (units - 1) * geometry.unit_width
    return units * geometry.unit_width * bits_to_count(units)


def _clients(arch: Arch, *, writes: bool) -> int:
    """Return the number of ports of local memory that read, or that write."""
    further = 0 if writes else _two_rows(arch) + _further_rows(arch)  # each has a port of its own
    return len(clients(arch, Memory.LOCAL, writes=writes)) + further


def _local_ports(arch: Arch) -> int:
    """Return the number of ports of local memory."""
    return sum(_clients(arch, writes=writes) for writes in (False, True))


def _address(arch: Arch, memory: Memory) -> int:
    """Return the bits of a memory's addresses."""
    widths = {Memory.LOCAL: arch.local_address_width, Memory.ACCUMULATORS: arch.accumulator_address_width}
    return widths.get(memory, arch.dram_address_width)


def _places(arch: Arch) -> int:
    """Return the number of operations that may be outstanding."""
    return sum(depths(arch, unit).outstanding for unit in unit_names(arch))


def _place_bits(arch: Arch) -> int:
    """Return the bits of the addresses of all operations that may be outstanding."""
    return sum(depths(arch, unit).outstanding * _address(arch, access.memory)
               for unit in unit_names(arch) for access in accesses(arch, unit))


def _comparisons(arch: Arch) -> int:
    """Return the bits compared between the ranges of a new operation of any unit and all that it may conflict with."""
    return sum(depths(arch, other).outstanding * _address(arch, held.memory)
               for unit in unit_names(arch) for access in accesses(arch, unit)
               for other in unit_names(arch) if other != unit
               for held in accesses(arch, other) if conflict(access, held))


def _split(arch: Arch) -> int:
    """Return the bits of an instruction, if it does not fill exactly a beat of the stream; else 0."""
    instruction = 8 * Isa(arch).instruction_bytes
    return instruction if arch.stream_width != instruction else 0


TERMS: dict[str, Terms] = {
    "one": lambda arch: 1,
    "slices": lambda arch: arch.register_slices,
    "lanes": lambda arch: arch.array_size,
    "element bits": lambda arch: arch.array_size * _vector(arch),
    "activation bits": lambda arch: arch.array_size * column_groups(arch) * arch.scheme.activation_width,
    "elements, every step": lambda arch: arch.array_size * _vector(arch) * arch.scheme.order_matters,
    "vector": _vector,
    "vector, slices": lambda arch: _vector(arch) * arch.register_slices,
    "vector, every step": lambda arch: _vector(arch) * arch.scheme.order_matters,
    "vector, points": lambda arch: _vector(arch) * _points(arch),
    "sums": _sums,
    "sums, points": lambda arch: _sums(arch) * _points(arch),
    "sums x banks": lambda arch: _sums(arch) * arch.accumulator_banks,
    "vector x banks": lambda arch: _vector(arch) * arch.local_banks,
    "vector x readers": lambda arch: _vector(arch) * _clients(arch, writes=False),
    "vector x writers x banks": lambda arch: _vector(arch) * _clients(arch, writes=True) * arch.local_banks,
    "ports x banks": lambda arch: _local_ports(arch) * arch.local_banks,
    "address x banks": lambda arch: arch.local_address_width * arch.local_banks * _local_ports(arch),
    "sum address x banks": lambda arch: arch.accumulator_address_width * arch.accumulator_banks,
    "on-chip address": lambda arch: arch.local_address_width + arch.accumulator_address_width,
    "local address": lambda arch: arch.local_address_width,
    "far address": lambda arch: sum(Isa(arch).address_widths),
    "dram address": lambda arch: arch.dram_address_width,
    "products": lambda arch: arch.local_address_width * sum(Isa(arch).address_widths),
    "products in tables": lambda arch: (arch.local_address_width * sum(Isa(arch).address_widths)
                                        * (not arch.decoder_multipliers)),
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
    "lanes, tables": lambda arch: arch.array_size * arch.lut_count,
    "has tables": lambda arch: bool(arch.lut_count),
    "has loops": lambda arch: bool(arch.simd_loop_depth),
    "has registers": lambda arch: bool(arch.simd_registers_depth),
    "has scales": lambda arch: arch.scheme.per_lane,
    "residues": _residues,
    "two rows": _two_rows,
    "vector, two rows": lambda arch: _vector(arch) * _two_rows(arch),
    "local address, two rows": lambda arch: arch.local_address_width * _two_rows(arch),
    "lanes, scales": lambda arch: arch.array_size * arch.scheme.per_lane,
    "has taps": lambda arch: bool(arch.depthwise_taps),
    "bits in rows of taps": _tap_bits,
    "bits in rows of taps, packed": lambda arch: _tap_bits(arch) * bool(arch.packing),
    "bits between taps": lambda arch: ((arch.depthwise_taps - arch.kernel_rows) * arch.tap_rows * (1 + arch.tap_rows)
                                       * column_groups(arch) * arch.scheme.activation_width),
    "vector, further rows": lambda arch: _vector(arch) * _further_rows(arch),
    "vector, maximum": lambda arch: _vector(arch) * arch.output_maximum,
    "vector, slope": lambda arch: _vector(arch) * arch.output_slope,
    "has activation tables": lambda arch: bool(arch.activation_tables),
    "lanes, activation tables": lambda arch: arch.array_size * bool(arch.activation_tables),
    "cores": lambda arch: arch.cores,
    "has signals": lambda arch: bool(arch.sync_counters),
    "counters": lambda arch: arch.sync_counters,
    "counters, cores": lambda arch: arch.sync_counters * arch.cores,
    "cores of a port": lambda arch: arch.cores / arch.memory_ports,
    "addresses compared": _compared,
    "bus, cores of a port": lambda arch: arch.axi_data_width * arch.cores / arch.memory_ports,
}
"""The numbers that a block's size can depend on, in terms of the architecture."""

BLOCKS: dict[str, Sequence[str]] = {
    "accumulators": ("one", "sums", "sums x banks", "sum address x banks"),
    "array": ("one", "lanes", "vector, points", "element bits", "activation bits", "elements, every step",
              "lanes, scales", "residues", "vector, two rows", "bits in rows of taps",
              "bits in rows of taps, packed", "bits between taps", "has taps"),
    "csr": ("one",),
    "decoder": ("one", "far address", "products", "has scales", "has activation tables", "products in tables",
                "has taps", "has signals"),
    "dram_read": ("one", "vector", "vector, slices", "bus", "gearbox", "dram address", "slices"),
    "dram_write": ("one", "vector", "vector, slices", "bus", "gearbox", "dram address", "slices"),
    "input_rescaler": ("one", "vector, points", "sums, points", "vector, every step", "on-chip address", "has scales",
              "lanes, scales"),
    "fetch": ("one", "stream", "instruction", "split instruction"),
    "interlock": ("one", "units", "places", "place bits", "comparisons"),
    "requantizer": ("one", "vector, points", "sums, points", "vector, every step", "has scales", "lanes, scales"),
    "load_weight": ("one", "local address", "two rows", "vector, two rows", "local address, two rows"),
    "local": ("one", "vector", "vector x readers", "vector x banks", "vector x writers x banks", "address x banks",
              "vector, slices"),
    "mat_mul": ("one", "on-chip address", "has scales", "lanes, scales", "has taps", "vector, further rows"),
    "move_in": ("one", "vector", "on-chip address", "vector, slices", "has scales"),
    "move_out": ("one", "vector", "on-chip address", "vector, slices", "has scales", "lanes, scales",
                 "has activation tables", "lanes, activation tables", "vector, maximum", "vector, slope"),
    "page_router": ("one", "cores"),
    "port_arbiter": ("one", "cores of a port", "bus", "bus, cores of a port", "addresses compared"),
    "program_reader": ("one", "stream"),
    "sampler": ("one",),
    "simd": ("one", "vector, points", "sums, points", "vector, every step", "registers", "has registers", "tables",
             "lanes, tables", "has tables", "has loops", "slices", "lanes, scales"),
    "supervisor": ("one", "has signals"),
    "sync": ("one", "counters", "counters, cores"),
    "system_registers": ("one", "cores"),
}
"""Block -> the terms of its look-up tables and flip-flops.

The DRAM units of both windows are alike, and so are ports: one of fewer cores than others counts as their mean."""
OF_SYSTEM = {"pages": "page_router", "registers": "system_registers"}
"""Block -> kind, of what a system has once."""
SHARED = ("port_arbiter", *OF_SYSTEM.values())
"""Kinds of what cores share; one core has nothing of it."""
ONLY_OF_CORES = (*SHARED, "sync")
"""Kinds that only systems of several cores may have."""


def kind_of(block: str) -> str:
    """Return the kind of a block: ``dram_read`` for ``dram0_read``, ``port_arbiter`` for ``port0``, else its name."""
    return OF_SYSTEM.get(block) or re.sub("^port[0-9]+$", "port_arbiter", re.sub("^dram[01]_", "dram_", block))


def blocks_of(arch: Arch) -> dict[str, int]:
    """Return kind of block -> how many of them the machine has, in all its cores."""
    engines = [kind_of(name) for name in dram_units(arch)]
    core = {kind: engines.count(kind) if kind in engines else 1 for kind in BLOCKS} | {
        "sampler": arch.sampler, "sync": int(arch.sync_counters > 0)}
    shared = dict.fromkeys(SHARED, int(arch.cores > 1))
    shared["port_arbiter"] *= arch.memory_ports
    return {kind: arch.cores * count for kind, count in core.items()} | shared


def values(arch: Arch, kind: str) -> np.ndarray:
    """Return the values [terms] of the terms of a kind of block."""
    return np.array([TERMS[name](arch) for name in BLOCKS[kind]], float)


@cache
def model() -> dict[str, Any]:
    """Return the committed fit.

    ``families``: family -> column -> kind of block -> a number for each of its terms, None if no machine had that
    term. ``numbers``: family -> the number schemes of the machines ``fitted``. ``error``: family -> machine that was
    not fitted -> column -> error in percent of the whole machine. ``left_out``: the same for each machine that was
    fitted, by a fit without it."""
    found: dict[str, Any] = json.loads(MODEL.read_text())
    return found


def largest_error(family: str) -> dict[str, float] | None:
    """Return column -> the largest error in percent on machines that were not fitted; None if there is none.

    If no such machine was counted, the errors of fits that each leave out one machine stand for them."""
    seen = (model()["error"].get(family) or model()["left_out"].get(family, {})).values()
    return {column: max(abs(error[column]) for error in seen) for column in FITTED} if seen else None


def of_block(arch: Arch, kind: str, numbers: Sequence[float | None]) -> float:
    """Return a block's look-up tables or flip-flops; a term without a fitted number counts nothing."""
    return float(np.dot(values(arch, kind), [number or 0.0 for number in numbers]))


def unknown(arch: Arch, family: str, fitted: dict[str, Any] | None = None) -> list[str]:
    """Return "block: term" for each term that the machine has and no fitted machine had. These terms count nothing."""
    numbers = (fitted or model()["families"])[family]["lut"]
    return [f"{kind}: {term}" for kind, copies in blocks_of(arch).items() if copies
            for term, value, number in zip(BLOCKS[kind], values(arch, kind), numbers[kind], strict=True)
            if value and number is None]


def counted(arch: Arch, family: str) -> bool:
    """Return whether a machine with this number scheme was counted on the family."""
    return arch.scheme.name in model()["numbers"].get(family, ())


def check_counted(arch: Arch, family: str) -> None:
    """Raise WeftError for a number scheme of which no machine was counted."""
    if not counted(arch, family):
        raise WeftError(explain(
            f"resources on {family}", f"data_type {arch.data_type}, mac_rounding {arch.mac_rounding}",
            f"numbers of machines that were counted: {', '.join(model()['numbers'].get(family, ())) or 'none yet'}",
            "choose another data_type or mac_rounding, or count this machine: make synth ARCH=..."))


def predict(arch: Arch, family: str, fitted: dict[str, Any] | None = None) -> dict[str, dict[str, int]]:
    """Return kind of block -> ``lut``, ``ff``, ``dsp``, ``bram18``, ``bram36`` of all blocks of that kind."""
    numbers = (fitted or model()["families"])[family]
    counts: dict[str, dict[str, int]] = {}
    for kind, copies in blocks_of(arch).items():
        if not copies and kind in ONLY_OF_CORES:
            continue
        found = {column: of_block(arch, kind, numbers[column][kind]) for column in FITTED}
        counts[kind] = {column: max(0, round(copies * value)) for column, value in found.items()}
    for kind, number in dsp_blocks(arch, family).items():
        counts[kind]["dsp"] = number
    for ram in rams(arch):
        counts[ram.block].update(block_rams(ram, family))
    return counts


def dsp_blocks(arch: Arch, family: str) -> dict[str, int]:
    """Return kind of block -> its DSP blocks, those of all cores."""
    width, lanes, wide = arch.number.width, arch.array_size, arch.scheme.activation_width
    found = {"array": lanes * column_groups(arch) * multiplier_blocks(wide, width, family),
             "simd": lanes * multiplier_blocks(width, width, family),
             # Rows x pitch of both operands, no wider than an address: what is beyond a block's bits are tables.
             "decoder": 2 * arch.decoder_multipliers * multiplier_blocks(arch.local_address_width,
                                                                         arch.local_address_width, family)}
    if arch.output_slope:
        found["move_out"] = lanes * multiplier_blocks(max(width, SLOPE_WIDTH), min(width, SLOPE_WIDTH), family)
    if arch.scheme.per_lane:
        found |= {"input_rescaler": lanes * multiplier_blocks(wide, MULTIPLIER_WIDTH + 1, family),
                  "move_out": lanes * sum(multiplier_blocks(SCALED_WIDTH, bits + 1, family)
                                          for bits in _multiplier_parts(arch))}
    return {kind: arch.cores * number for kind, number in found.items()}


def _multiplier_parts(arch: Arch) -> tuple[int, ...]:
    """Return the bits of each part of a requantizer's multiplier: a part has a product of its own."""
    above = arch.multiplier_width - MULTIPLIER_WIDTH
    return (MULTIPLIER_WIDTH, above) if above else (MULTIPLIER_WIDTH,)


def multiplier_blocks(wide: int, narrow: int, family: str) -> int:
    """Return the DSP blocks that a product of two signed numbers takes.

    A block has 25 x 18 bits, an ECP5's or Gowin's 18 x 18. A product of up to 8 bits is made of look-up tables."""
    if wide + narrow <= 8:
        return 0
    return -(-narrow // 18) * (1 if wide <= (25 if family == "xc7" else 18) else 2)


def room(part: Part, column: str, around: Mapping[str, int] = SHELL) -> int:
    """Return the resources of a part that are left for the machine; the rest of the board takes ``around``."""
    whole = int(ROUTABLE * part.lut) if column == "lut" else getattr(part, column)
    return int(whole - around[column])


def fits(arch: Arch, part: Part, fitted: dict[str, Any] | None = None,
         around: Mapping[str, int] = SHELL) -> dict[str, Any]:
    """Return the prediction for a part.

    ``blocks``, ``total``; ``of_part``: column -> [what the machine takes, what the rest of a board needs, what the
    part has]; ``fits``; ``short``: the columns that do not fit; ``unknown``: see :func:`unknown`. ``uram`` is a
    column if the local memory lies in UltraRAM. Raise WeftError for numbers of which no machine was counted."""
    check_counted(arch, part.family)
    counts = predict(arch, part.family, fitted)
    ultra = ultra_rams(arch, part)
    if ultra:
        counts["local"] |= {"bram36": 0, "bram18": 0}
    found = {column: sum(block.get(column, 0) for block in counts.values()) for column in COLUMNS}
    used = {"lut": found["lut"], "ff": found["ff"], "dsp": found["dsp"], "bram": count_blocks(found, part.family),
            **({"uram": ultra} if ultra else {})}
    short = [column for column, number in used.items() if number > room(part, column, around)]
    return {"part": part.name, "blocks": counts, "total": {name: found[name] for name in COLUMNS},
            "of_part": {column: [number, around[column], getattr(part, column)] for column, number in used.items()},
            "fits": not short, "short": short, "unknown": unknown(arch, part.family, fitted)}
