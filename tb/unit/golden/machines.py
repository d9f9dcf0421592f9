# SPDX-License-Identifier: Apache-2.0
"""Machines and helpers that the tests of the golden machine share."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.key_values import EVERY_STEP

BASE = {"dram0_depth": 2048, "dram1_depth": 1500, "stride0_depth": 3, "stride1_depth": 4}


def make_arch(data_type: str = "FP16BP8", lanes: int = 2, local: int = 32, accumulators: int = 16, registers: int = 1,
              **keys: object) -> Arch:
    return Arch.from_dict({**BASE, "data_type": data_type, "array_size": lanes, "local_depth": local,
                           "accumulator_depth": accumulators, "simd_registers_depth": registers, **keys})


MACHINES = {
    "tiny": make_arch(),
    "tiny_every_step": make_arch(mac_rounding=EVERY_STEP),
    "three_lanes_fp8": make_arch("FP8BP4", 3, 50, 23, 2),
    "three_lanes_fp18_every_step": make_arch("FP18BP10", 3, 41, 64, 0, mac_rounding=EVERY_STEP, simd_loop_depth=4),
    "eight_lanes_lut": make_arch("FP16BP8", 8, 100, 40, 5, lut_count=2, lut_depth=8),
    "fp32": make_arch("FP32BP16", 3, 37, 20, 3, lut_count=1, lut_depth=4),
    "fp32_every_step": make_arch("FP32BP16", 2, 64, 20, 2, mac_rounding=EVERY_STEP),
    "fp18_wide_accumulators": make_arch("FP18BP10", 2, 40, 37, 3, accumulator_width=63),
    "fp8_every_step_lut": make_arch("FP8BP4", 8, 64, 32, 4, mac_rounding=EVERY_STEP, lut_count=3, lut_depth=6),
    "no_loop_no_registers": make_arch("FP16BP8", 3, 33, 17, 0, simd_loop_depth=0, stride0_depth=1, stride1_depth=1),
    "int8": make_arch("INT8", 4, 60, 30, 1),
    "int8_lut_narrow_accumulators": make_arch("INT8", 3, 70, 24, 3, lut_count=1, lut_depth=16, accumulator_width=24,
                                              simd_loop_depth=3),
    "int8_activation_tables": make_arch("INT8", 2, 300, 20, 1, activation_tables=2),
    "int8_no_registers": make_arch("INT8", 2, 20, 20, 0, accumulator_width=26),
    "repeats": make_arch("FP8BP4", 2, 40, 30, 2, lut_count=1, lut_depth=4, simd_loop_depth=4, repeat_depth=16),
    "int8_far_repeats": make_arch("INT8", 3, 60, 24, 1, repeat_depth=128),
    "taps": make_arch("FP16BP8", 3, 50, 30, 1, depthwise_taps=3),
    "taps_every_step": make_arch("FP8BP4", 4, 60, 40, 1, depthwise_taps=3, mac_rounding=EVERY_STEP),
    "int8_taps": make_arch("INT8", 6, 60, 40, 1, depthwise_taps=3),
    "taps9": make_arch("FP16BP8", 9, 70, 30, 1, depthwise_taps=9),
    "taps9_every_step": make_arch("FP8BP4", 10, 60, 40, 1, depthwise_taps=9, mac_rounding=EVERY_STEP),
    "int8_taps9": make_arch("INT8", 18, 60, 40, 1, depthwise_taps=9),
    "output_functions": make_arch("FP12BP6", 3, 40, 30, 1, output_maximum=1, output_slope=1),
    "output_maximum": make_arch("FP16BP8", 2, 40, 30, 1, output_maximum=1),
    "output_slope_every_step": make_arch("FP8BP4", 3, 40, 30, 1, output_slope=1, mac_rounding=EVERY_STEP),
    "cores": make_arch("FP16BP8", 3, 50, 30, 1, cores=3, sync_counters=5, dram_ports="shared", repeat_depth=8),
    "narrow_accumulators": make_arch("FP12BP6", 2, 20, 48, 16, accumulator_width=13, stride0_depth=8),
}
"""Lanes 2, 3, 8; both roundings; 8 to 32 bits; with and without tables; depths that are no powers of two."""


def run(machine: Machine, *instructions: Instruction | Iterable[Instruction]) -> Machine:
    """Assemble and run; returns the machine."""
    flat = [each for item in instructions for each in ([item] if isinstance(item, Instruction) else item)]
    machine.run(machine.isa.assemble(flat))
    return machine


def to_local(machine: Machine, vectors: list[list[int]], address: int = 0) -> None:
    """Place vectors in local memory through DRAM0."""
    machine.dram0.write(0, np.array(vectors))
    run(machine, machine.isa.data_move(DataFlow.DRAM0_TO_LOCAL, address, 0, len(vectors)))


def to_accumulators(machine: Machine, vectors: list[list[int]], address: int = 0) -> None:
    """Place raw accumulator values."""
    machine.accumulators[address:address + len(vectors)] = vectors


def rows(memory: np.ndarray, *addresses: int) -> list[list[int]]:
    """The vectors at some addresses, as lists."""
    return memory[list(addresses)].tolist()
