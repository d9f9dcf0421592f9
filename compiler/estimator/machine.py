"""The numbers of a machine and of its DRAM that decide how long a program takes, as one record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.hw.contract import timing
from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa

MACHINE = np.dtype([(name, "i8") for name in (
    "array_size", "local_banks_mask", "accumulator_banks_mask", "vector_bytes", "beat_bytes", "max_burst",
    "instruction_bytes", "stream_bytes", "simd_loop_depth", "lut_count",
    "decode_latency", "issue_latency", "simd_issue_latency", "fetch_latency",
    "local_latency", "product_latency", "move_out_latency", "move_in_latency",
    "move_out_depth", "move_in_depth", "register_latency", "simd_latency", "simd_in_flight", "simd_block",
    "request_latency", "bursts_before_data", "writer_vectors", "dram_read_latency", "dram_write_latency",
    "dram_bursts", "patience", "slices",
)])
"""``*_banks_mask``: the bits of an address that choose the bank. ``product_latency``: MatMul's request to its sum;
``move_*_latency``: a request to its row on the read stream, which holds ``move_*_depth``; ``simd_latency``: issue to
the result in the SIMD unit's queue; ``simd_block``: iterations of a SIMD loop that run together."""


@dataclass(frozen=True)
class DramTiming:
    """How DRAM answers, in cycles: ``read_latency`` from an address taken to the first beat, ``write_latency`` from a
    burst's last beat to its response; ``bursts`` under way at most, each way, of the 32 that the machine would keep."""

    read_latency: int = timing.SIMULATED_DRAM_LATENCY
    write_latency: int = timing.SIMULATED_DRAM_LATENCY
    bursts: int = timing.SIMULATED_DRAM_BURSTS


def machine_record(arch: Arch, dram: DramTiming) -> np.void:
    """A record of MACHINE."""
    execute = timing.LOOKUP_LATENCY if arch.lut_count else timing.ALU_LATENCY
    rounded = timing.ACCUMULATOR_READ_LATENCY + timing.LEAVE_LATENCY
    values = {
        "array_size": arch.array_size, "local_banks_mask": arch.local_banks - 1,
        "accumulator_banks_mask": arch.accumulator_banks - 1,
        "vector_bytes": arch.vector_bytes, "beat_bytes": arch.axi_data_width // 8, "max_burst": arch.axi_max_burst,
        "instruction_bytes": Isa(arch).instruction_bytes, "stream_bytes": arch.stream_width // 8,
        "simd_loop_depth": arch.simd_loop_depth, "lut_count": arch.lut_count,
        "decode_latency": timing.DECODE_LATENCY, "issue_latency": timing.ISSUE_LATENCY,
        "simd_issue_latency": timing.SIMD_ISSUE_LATENCY, "fetch_latency": timing.FETCH_LATENCY,
        "local_latency": timing.LOCAL_READ_LATENCY,
        "product_latency": timing.LOCAL_READ_LATENCY + timing.array_latency(arch),
        "move_out_latency": rounded + timing.READ_STREAM_LATENCY,
        "move_in_latency": timing.LOCAL_READ_LATENCY + timing.READ_STREAM_LATENCY,
        "move_out_depth": rounded + timing.READ_STREAM_SPARE,
        "move_in_depth": timing.LOCAL_READ_LATENCY + timing.READ_STREAM_SPARE,
        "register_latency": execute + 1, "simd_latency": rounded + execute,
        "simd_in_flight": timing.SIMD_IN_FLIGHT, "simd_block": timing.SIMD_SLOTS - 1 if arch.simd_loop_depth else 1,
        "request_latency": timing.DRAM_REQUEST_LATENCY, "bursts_before_data": timing.BURSTS_BEFORE_DATA,
        "writer_vectors": timing.WRITER_VECTORS_AHEAD,
        "dram_read_latency": max(dram.read_latency, 2), "dram_write_latency": max(dram.write_latency, 2),
        "dram_bursts": dram.bursts, "patience": timing.PATIENCE,
        "slices": arch.register_slices,
    }
    record = np.zeros(1, MACHINE)
    for name, value in values.items():
        record[name] = value
    return record[0]
