# SPDX-License-Identifier: Apache-2.0
"""The parameters of a machine and of its DRAM that decide how long a program takes, as one record."""

from __future__ import annotations

import numpy as np

from weft.cycles.state import NONE
from weft.hw.contract import timing
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import IdealDram
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import UNIT_NAMES

MACHINE = np.dtype([(name, "i8") for name in (
    "local_banks", "accumulator_banks", "vector_bytes", "beat_bytes", "max_burst", "instruction_bytes",
    "stream_bytes", "lut_count", "product_latency", "bias_interval", "register_latency", "simd_latency", "simd_block",
    "dram_read_latency", "dram_write_latency", "dram_bursts", "slices", "decode_latency", "writer_vectors",
    "shared_dram", "move_out_latency", "weight_load_rows", "kernel_rows", "places", "upper_places",
    "first_writer", "repeats", "sync_counters", "bus_share", "join_cycles",
)])
"""Numbers that differ from machine to machine, and the replay's initial state; numbers common to every machine are
read from ``timing.py`` where they are used.

``product_latency``: MatMul's request to its sum;
``simd_latency``: issue to the result in the SIMD unit's queue; ``simd_block``: iterations of a SIMD loop that run
together; ``move_out_latency``: a move-out's request to its row; ``slices``: 1 with register slices; ``shared_dram``:
1 where both windows share a port; ``kernel_rows``: of a depthwise MatMul;
``places`` of the column of weights, and those of its upper part;
``first_writer``: a unit, or NONE; ``repeats``: 1 where Repeats are expanded; ``sync_counters`` of each core;
``bus_share``: bytes that all ports move together in a cycle, in parts of SHARES, 0 without such a limit;
``join_cycles``: for which a read waits at its memory port to be joined with other cores'."""

SHARES = 1024
"""The parts of a byte in which ``bus_share`` is counted."""


def machine_record(arch: Arch, dram: IdealDram) -> np.void:
    """Return the record of MACHINE of an architecture and its DRAM."""
    first = arch.scheme.writes_first
    values = {
        "local_banks": arch.local_banks, "accumulator_banks": arch.accumulator_banks,
        "vector_bytes": arch.vector_bytes, "beat_bytes": arch.axi_data_width // 8, "max_burst": arch.axi_max_burst,
        "instruction_bytes": Isa(arch).instruction_bytes, "stream_bytes": arch.stream_width // 8,
        "lut_count": arch.lut_count, "product_latency": timing.product_latency(arch),
        "bias_interval": timing.bias_interval(arch),
        "register_latency": timing.register_latency(arch),
        "simd_latency": timing.ROUNDED_READ_LATENCY + timing.execute_latency(arch),
        "simd_block": timing.SIMD_SLOTS - 1 if arch.simd_loop_depth else 1,
        "dram_read_latency": max(dram.read_latency, 2), "dram_write_latency": max(dram.write_latency, 2),
        "dram_bursts": dram.bursts, "slices": arch.register_slices,
        "decode_latency": timing.DECODE_LATENCY, "writer_vectors": timing.WRITER_VECTORS_AHEAD,
        "shared_dram": arch.shared_dram, "move_out_latency": timing.move_out_latency(arch),
        "weight_load_rows": arch.weight_load_rows, "kernel_rows": arch.kernel_rows, "places": arch.array_size + 1,
        "upper_places": timing.upper_places(arch),
        "first_writer": NONE if first is None else UNIT_NAMES.index(first),
        "repeats": arch.repeat_depth > 0, "sync_counters": arch.sync_counters,
        "join_cycles": arch.join_cycles if arch.joins_reads else 0, "bus_share": round(dram.bus_bytes * SHARES),
    }
    record = np.zeros(1, MACHINE)
    for name, value in values.items():
        record[name] = value
    return record[0]
