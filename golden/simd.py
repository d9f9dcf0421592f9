# SPDX-License-Identifier: Apache-2.0
"""SIMD instructions and SIMD loops on the accumulators."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from weft.golden import alu
from weft.golden.decode import Simd
from weft.hw.contract.instructions import SimdOpcode, simd_argument_count
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import OutputRescale

if TYPE_CHECKING:
    from weft.golden.machine import Machine


def run_once(machine: Machine, simd: Simd, registers: np.ndarray, iteration: int = 0) -> None:
    """Run one instruction, as in iteration ``iteration`` of a loop; registers [simd_registers_depth, lanes]."""
    input = np.zeros(machine.arch.array_size, np.int64)
    if simd.read is not None:
        input = read(machine, simd, simd.read + iteration * simd.read_stride)
    result = compute(machine, simd, input, registers)
    if simd.write is not None:
        machine.store(simd.write + iteration * simd.write_stride, machine.rescale_input(result), simd.accumulate)


def read(machine: Machine, simd: Simd, where: int | np.ndarray) -> np.ndarray:
    """Return accumulators as scalars, and count saturated ones of maxima.

    A limit or a table gives about the same for a saturated number as for the number itself, so only those count that a
    maximum keeps."""
    values = machine.accumulators[where]
    scalars = machine.requantize(values)
    if simd.opcode == SimdOpcode.MAX:
        machine.count_saturated(values, scalars, OutputRescale(machine.registers[Register.OUTPUT_SHIFT]))
    return scalars


def compute(machine: Machine, simd: Simd, input: np.ndarray, registers: np.ndarray) -> np.ndarray:
    """Return the output of an instruction; registers [simd_registers_depth, ..., lanes] change in place."""
    number, opcode, destination = machine.arch.number, SimdOpcode(simd.opcode), simd.destination
    sources = (simd.left, simd.right)[:simd_argument_count(opcode)] or (0,)
    arguments = [input if source == 0 else registers[source - 1] for source in sources]
    if opcode is SimdOpcode.LOOKUP:
        result, *values = alu.lookup(number, machine.luts, arguments[0])
        registers[destination:destination + len(values)] = values
    else:
        result = alu.OPERATIONS[opcode](number, *arguments)
    if destination and opcode is not SimdOpcode.NO_OP:
        registers[destination - 1] = result
    return result


def run_loop(machine: Machine, iterations: int, body: list[Simd]) -> None:
    """Run a SIMD loop.

    Each iteration works on a copy of the registers, so that the loop leaves them unchanged; accumulators keep the
    sequential meaning."""
    if iterations_are_independent(iterations, body):
        run_iterations_together(machine, iterations, body)
        return
    for iteration in range(iterations):
        registers = machine.simd_registers.copy()
        for simd in body:
            run_once(machine, simd, registers, iteration)


def run_iterations_together(machine: Machine, iterations: int, body: list[Simd]) -> None:
    """Run each instruction for all iterations before the next instruction.

    Registers become [simd_registers_depth, iterations, lanes]."""
    registers = np.repeat(machine.simd_registers[:, None], iterations, axis=1)
    step = np.arange(iterations)
    for simd in body:
        input = np.zeros((iterations, machine.arch.array_size), np.int64)
        if simd.read is not None:
            input = read(machine, simd, simd.read + step * simd.read_stride)
        result = compute(machine, simd, input, registers)
        if simd.write is not None:
            machine.store(simd.write + step * simd.write_stride, machine.rescale_input(result), simd.accumulate)


def iterations_are_independent(iterations: int, body: list[Simd]) -> bool:
    """Tell whether no iteration touches what another one writes.

    Each write sequence must be identical with or disjoint from every other sequence. Strides of writes are 1 or more,
    so that a sequence never meets itself."""
    step = np.arange(iterations)
    writes = {(simd.write, simd.write_stride) for simd in body if simd.write is not None}
    reads = {(simd.read, simd.read_stride) for simd in body if simd.read is not None}
    pairs = [*combinations(writes, 2), *((write, read) for write in writes for read in reads if write != read)]
    return not any(np.intersect1d(a + step * a_stride, b + step * b_stride, assume_unique=False).size
                   for (a, a_stride), (b, b_stride) in pairs)
