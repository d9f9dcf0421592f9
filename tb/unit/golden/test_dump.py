# SPDX-License-Identifier: Apache-2.0
"""The dump program shows every bit of local memory, accumulators and weights in DRAM."""

from __future__ import annotations

import numpy as np
import pytest

from weft.golden.dram import differences
from weft.golden.machine import Machine
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.schemes.int8 import SCALED_WIDTH
from weft.tb.random.dump_program import default_offset_blocks, dump_program, dump_vectors
from weft.tb.unit.golden.machines import MACHINES, make_arch

WITH_REGISTERS = [name for name, arch in MACHINES.items() if arch.simd_registers_depth]


def dumped_bits(name: str) -> int:
    """Of an accumulator."""
    arch = MACHINES[name]
    return min(arch.accumulator_bits, SCALED_WIDTH) if arch.scheme.per_lane else arch.accumulator_bits


def filled(name: str) -> Machine:
    arch = MACHINES[name]
    machine, rng = Machine(arch), np.random.default_rng(3)
    machine.local[...] = rng.integers(arch.number.minimum, arch.number.maximum, machine.local.shape)
    machine.weights[...] = rng.integers(-3, 4, machine.weights.shape)
    machine.simd_registers[...] = 7
    width = dumped_bits(name)
    for address in np.ndindex(machine.accumulators.shape):
        value = int.from_bytes(rng.bytes(12), "little") % 2 ** width - 2 ** (width - 1)
        machine.accumulators[address] = value >> int(rng.integers(0, width))
    low, high = -(1 << (width - 1)), (1 << (width - 1)) - 1
    machine.accumulators[:4, 0] = [low, high, low + 1, high - 1]
    return machine


def dumped(machine: Machine) -> Machine:
    machine.run(machine.isa.assemble(dump_program(machine.arch)))
    return machine


@pytest.mark.parametrize("name", WITH_REGISTERS)
def test_a_change_of_any_accumulator_bit_shows(name: str) -> None:
    """Each bit of accumulators with extreme, large and small values, one at a time."""
    reference = dumped(filled(name))
    width = dumped_bits(name)
    for bit in range(width):
        changed = filled(name)
        address, lane = bit % 8, bit % 2
        value = int(changed.accumulators[address, lane]) ^ (1 << bit if bit < width - 1 else -(1 << bit))
        changed.accumulators[address, lane] = value
        assert differences(reference.dram1, dumped(changed).dram1), f"bit {bit} of accumulator {address} is not dumped"


@pytest.mark.parametrize("name", MACHINES)
def test_a_change_of_local_memory_or_of_a_weight_shows(name: str) -> None:
    reference = dumped(filled(name))
    first = int(MACHINES[name].scheme.per_lane)  # there the bias row has no effect
    for memory, address in (("local", (-1, -1)), ("weights", (first, 0)), ("weights", (-1, -1))):
        changed = filled(name)
        getattr(changed, memory)[address] ^= 1
        assert differences(reference.dram1, dumped(changed).dram1), memory


@pytest.mark.parametrize("name", MACHINES)
def test_the_dump_stays_in_its_area(name: str) -> None:
    machine = dumped(filled(name))
    start = default_offset_blocks(machine.arch) * DRAM_OFFSET_BYTES
    end = start + dump_vectors(machine.arch) * machine.arch.vector_bytes
    assert list(machine.dram0.extents()) == []
    for low, high in machine.dram1.extents():
        where = np.flatnonzero(machine.dram1.bytes[low:high]) + low
        assert start <= where.min() and where.max() < end


def test_the_dump_can_go_to_dram0_at_a_base() -> None:
    arch = MACHINES["tiny"]
    machine = filled("tiny")
    local = machine.local.tolist()
    machine.run(Isa(arch).assemble(dump_program(arch, dram=0, base=100, offset_blocks=3)))
    assert machine.dram0.read(100, arch.local_depth, 3).tolist() == local


def test_a_window_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="dram1_depth is 60"):
        dump_program(make_arch(dram1_depth=60))
