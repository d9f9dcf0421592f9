# SPDX-License-Identifier: Apache-2.0
"""Control registers and samples on the simulated machine, as a host sees them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from weft.golden.dram import Dram
from weft.hw.contract.csr import ADDRESS_WIDTH, CONTROL_REGISTERS, Access, parameter_values, stored_widths
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.samples import COUNTER_BITS, FILLER
from weft.simulate.rtl import run_many_on_rtl
from weft.simulate.serve import NOTHING
from weft.simulate.served import ServedMachine
from weft.tb.random.lockstep_archs import lockstep_archs

ARCHS = lockstep_archs()
NAMES = ("lanes2", "lanes4_int8", "lanes3_every_step", "lanes4_lut", "lanes4_slices")
SAMPLING = tuple(name for name in NAMES if ARCHS[name].sampler)
PATTERNS = (0xFFFF_FFFF, 0xA5A5_5A5A, 0)
IDLE = 1 << 5
REST = 50
"""Instructions behind those while a block is filled up."""


@pytest.fixture
def machine(name: str) -> Iterator[ServedMachine]:
    served = ServedMachine(ARCHS[name])
    yield served
    served.close()


@pytest.mark.wide_cases(*NAMES[1:])
@pytest.mark.parametrize("name", NAMES)
def test_every_register_reads_what_the_contract_says_and_keeps_only_what_it_may(
        name: str, machine: ServedMachine) -> None:
    """Of a machine at rest. INTERRUPT_STATUS has nothing to clear, CONTROL is left out: its bits act.

    Every other address of the page answers with an error, and changes nothing."""
    after_reset = {**dict.fromkeys(CONTROL_REGISTERS, 0), "STATUS": IDLE, **parameter_values(ARCHS[name])}
    widths = stored_widths(ARCHS[name])
    for each, register in CONTROL_REGISTERS.items():
        assert machine.read(register.offset) == after_reset[each], each
        for pattern in PATTERNS if register.access is not Access.COMMAND else ():
            machine.write(register.offset, pattern)
            kept = pattern & (1 << widths[each]) - 1 if register.access is Access.READ_WRITE else after_reset[each]
            assert machine.read(register.offset) == kept, each
    offsets = {register.offset for register in CONTROL_REGISTERS.values()}
    for offset in sorted(set(range(0, 0x100, 4)) - offsets) + [(1 << ADDRESS_WIDTH) - 4]:
        machine.write(offset, 0xFFFF_FFFF)
        assert machine.read(offset) == NOTHING, hex(offset)
    for each, value in after_reset.items():
        assert machine.read(CONTROL_REGISTERS[each].offset) == value, each


@pytest.mark.wide_cases(*(f"*-{name}" for name in SAMPLING[1:]), "7-*")
@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("interval", [1, 3, 7])
def test_samples_come_at_their_interval_in_whole_blocks(interval: int, name: str) -> None:
    arch, isa = ARCHS[name], Isa(ARCHS[name])
    rest = arch.sample_block_size + REST
    size = min(arch.local_depth, 100)
    moves = [isa.data_move(flow, 0, 0, size) for flow in (DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1)] * 3
    program = [isa.configure(Register.SAMPLE_INTERVAL, interval), *moves,
               isa.mat_mul(0, 0, min(size, arch.accumulator_depth)),
               isa.data_move(DataFlow.DRAM1_TO_LOCAL, 0, 0, 1), *[isa.no_op()] * 50,
               isa.configure(Register.SAMPLE_INTERVAL, 0), *[isa.no_op()] * rest]
    (result,) = run_many_on_rtl(arch, [isa.assemble(program)], Dram(arch), Dram(arch), samples=True)
    words = result.samples
    assert words is not None and len(words) and len(words) % arch.sample_block_size == 0
    samples = words[words != FILLER]
    assert np.all(words[len(samples):] == FILLER), "fillers stand behind all samples"
    counters = (samples & np.uint64((1 << COUNTER_BITS) - 1)).astype(int)
    assert np.all(np.diff(counters) >= 0) and counters[0] >= 1 and counters[-1] < len(program) - rest
    cycles_each = max(1, 8 * isa.instruction_bytes / arch.stream_width)
    expected = (result.cycles - rest * cycles_each) / interval
    assert 0.9 * expected < len(samples) <= expected + 1
