# SPDX-License-Identifier: Apache-2.0
"""The Configure registers that a machine has: width, value after reset, and what each is for."""

from __future__ import annotations

from functools import cache

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES, MOST_KERNEL_ROWS
from weft.hw.contract.registers import Register, RegisterSpec
from weft.hw.contract.schemes.fixed_point import SLOPE_POINT, SLOPE_WIDTH


@cache
def register_table(arch: Arch) -> dict[Register, RegisterSpec]:
    """Return every Configure register of this machine with its width, reset value and meaning.

    Registers of rows hold rows - 1, and pitches count vectors."""
    full = RegisterSpec.unsigned

    def offset(depth: int, meaning: str) -> RegisterSpec:
        room = (1 << arch.axi_address_width) - depth * arch.vector_bytes
        return RegisterSpec(32, 0, min(room // DRAM_OFFSET_BYTES, (1 << 32) - 1), meaning)

    local, accumulator = arch.local_address_width, arch.accumulator_address_width
    far = max(accumulator, arch.dram_address_width)
    return {
        Register.DRAM0_OFFSET: offset(arch.dram0_depth, "DRAM0 window's start, in blocks of 64 KiB"),
        Register.DRAM0_CACHE: full(4, 0, "AxCACHE of the DRAM0 port"),
        Register.DRAM1_OFFSET: offset(arch.dram1_depth, "DRAM1 window's start, in blocks of 64 KiB"),
        Register.DRAM1_CACHE: full(4, 0, "AxCACHE of the DRAM1 port"),
        Register.TIMEOUT: full(16, 0x0064, "cycles without progress before the timeout flag, 0 for never"),
        Register.TRACEPOINT: full(32, 0xFFFF_FFFF, "program counter that raises the tracepoint flag"),
        Register.PROGRAM_COUNTER: full(32, 0, "number of the next instruction"),
        Register.SAMPLE_INTERVAL: full(16, 0, "cycles between performance samples, 0 for none"),
        Register.MAT_MUL_ROWS: full(local, 0, "MatMul: rows - 1"),
        Register.MAT_MUL_LOCAL_PITCH: full(local, 0, "MatMul: vectors from row to row in local memory"),
        Register.MAT_MUL_ACCUMULATOR_PITCH: full(accumulator, 0, "MatMul: vectors from row to row in accumulators"),
        Register.MOVE_ROWS: full(local, 0, "DataMove: rows - 1"),
        Register.MOVE_LOCAL_PITCH: full(local, 0, "DataMove: vectors from row to row in local memory"),
        Register.MOVE_FAR_PITCH: full(far, 0, "DataMove: vectors from row to row in accumulators or DRAM"),
        **tap_registers(arch), **output_registers(arch),
        **arch.scheme.registers(arch.activation_tables),
    }


def tap_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    """Return the registers of depthwise MatMuls that this machine has."""
    return {**(_taps() if arch.depthwise_taps else {}), **(_kernel_rows(arch) if arch.kernel_rows > 1 else {})}


def _taps() -> dict[Register, RegisterSpec]:
    """Return the Configure registers of machines with ``depthwise_taps``."""
    return {
        Register.TAP_ORIGIN: RegisterSpec.unsigned(
            2, 0, "MatMul: 0 for all lanes into each; else depthwise, tap number TAP_ORIGIN (from 1) meets the vector "
                  "itself"),
        Register.TAP_DROPPED: RegisterSpec.unsigned(
            2, 0, "depthwise MatMul: results at the end of each row that are not written"),
    }


def output_registers(arch: Arch) -> dict[Register, RegisterSpec]:
    """Return the registers of functions on output that this machine has."""
    width = arch.number.width - 1
    maximum = {Register.OUTPUT_MAXIMUM: RegisterSpec.unsigned(
        width, (1 << width) - 1, "DataMove with ReLU: the largest scalar that leaves the accumulators")}
    slope = {Register.OUTPUT_SLOPE: RegisterSpec(
        SLOPE_WIDTH, 0, (1 << SLOPE_WIDTH) - 1,
        f"DataMove with ReLU: the factor of scalars below zero, in units of 2^-{SLOPE_POINT}", signed=True)}
    return {**(maximum if arch.output_maximum else {}), **(slope if arch.output_slope else {})}


def counted_rows(mask: int) -> tuple[int, ...]:
    """Return the rows of taps that count by a value of TAP_ROWS, ascending."""
    return tuple(row for row in range(MOST_KERNEL_ROWS) if mask >> row & 1)


def tap_span(masks: np.ndarray) -> np.ndarray:
    """Return by how many rows of taps the last one that counts lies behind the first one, by values of TAP_ROWS."""
    spans = [rows[-1] - rows[0] if rows else 0 for rows in map(counted_rows, range(1 << MOST_KERNEL_ROWS))]
    return np.asarray(np.array(spans)[masks % len(spans)])


def _kernel_rows(arch: Arch) -> dict[Register, RegisterSpec]:
    """Return the Configure registers of machines that apply several rows of taps at once."""
    return {
        Register.TAP_ROWS: RegisterSpec.unsigned(
            arch.kernel_rows, 1, "depthwise MatMul: which rows of taps count, a bit each, bit 0 the first; the first "
                                 "that counts meets the row at the local address"),
        Register.TAP_PITCH: RegisterSpec.unsigned(
            arch.local_address_width, 0, "depthwise MatMul: vectors from what a row of taps meets to what the next one "
                                         "does, in local memory"),
    }


def illegal_register_value(arch: Arch, register: Register, value: int) -> bool:
    """Tell whether Configure must refuse ``value``, as stored, for ``register``.

    Number schemes with a fixed shift allow the input and output shift one value only."""
    if arch.scheme.fixed_shift is not None and register in (Register.INPUT_SHIFT, Register.OUTPUT_SHIFT):
        return value != arch.number.point
    return value > register_table(arch)[register].maximum
