# SPDX-License-Identifier: Apache-2.0
"""The estimator's memory ports do what a line of Python says: bursts and beats of programs, turns, joined reads."""

from __future__ import annotations

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.cycles.board_dram import next_burst
from weft.cycles.jit import entry
from weft.cycles.litedram_state import READ_TIME
from weft.cycles.machine import machine_record
from weft.cycles.program import read_program
from weft.cycles.replay import estimate
from weft.cycles.state import PROGRAM
from weft.cycles.system import estimate_system
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, IdealDram, LiteDram
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.registers import MODIFIABLE, Register
from weft.tb.bench.asked_litedram import COLUMNS, modelled
from weft.tb.random.lockstep_archs import lockstep_archs

ALONE = lockstep_archs()["lanes2"]
TOGETHER = ALONE.replace(dram_ports=SHARED, cores=2, local_depth=512)


@entry
def list_bursts(program, machine, found):
    """Write (address, beats) of one burst of the program after another, and return how many there are."""
    for number in range(len(found)):
        next_burst(program, machine)
        if not program.address_valid:
            return number
        found[number, 0], found[number, 1] = program.address, program.address_beats
    return len(found)


@pytest.mark.parametrize(("first", "last", "most"), [(0, 0, 16), (0, 15, 16), (3, 40, 16), (30, 64, 8), (5, 9, 1)])
def test_a_programs_bursts_end_where_their_length_divides_the_address(first: int, last: int, most: int) -> None:
    machine, beats = machine_record(ALONE, EXPECTED), range(first, last + 1)
    program, found = np.zeros(1, PROGRAM)[0], np.zeros((100, 2), np.int64)
    program["beat"], program["last_beat"], program["max_burst"] = first, last, most
    count = list_bursts(program, machine, found)
    starts = [beat for beat in beats if beat == first or beat % most == 0]
    assert found[:count, 0].tolist() == [beat * ALONE.stream_width // 8 for beat in starts]
    assert found[:count, 1].tolist() == np.diff([*starts, last + 1]).tolist()


def test_a_write_waits_for_other_banks_reads_only_so_long() -> None:
    """Two masters read without a pause, and one writes, each in a bank: soon after READ_TIME the bus turns."""
    dram, begun = BOARDS["ulx3s"].dram, 60
    assert isinstance(dram, LiteDram)
    wires = np.zeros((2400, 3, len(COLUMNS)), np.int64)
    columns = {name: number for number, name in enumerate(COLUMNS)}
    wires[:, :, columns["r_ready"]] = 1
    for reader in range(2):
        wires[begun - 40, reader, columns["ar_valid"]:columns["ar_taken"]] = 1, reader * dram.row_bytes, 200
    wires[begun, 2, columns["aw_valid"]:columns["aw_taken"]] = 1, 2 * dram.row_bytes, 1
    wires[begun, 2, [columns["w_valid"], columns["w_last"]]] = 1
    found = modelled(wires, dram, (64, 64, 64))
    answered, read = np.flatnonzero(found[:, 2, columns["b_taken"]]), found[:, :2, columns["r_taken"]]
    assert answered.tolist() and answered[0] < begun + 3 * READ_TIME
    assert read.sum() == 400 and read[begun + 20 * READ_TIME:].any()


@pytest.mark.parametrize("length", range(1, 18))
def test_every_begun_beat_of_a_program_is_read(length: int) -> None:
    """Of instructions of seven bytes, so that any number of bytes fills the last beat of eight."""
    program = Isa(TOGETHER).assemble([Isa(TOGETHER).no_op()] * length)
    assert len(program) == 7 * length
    beats = -(-len(program) * 8 // TOGETHER.stream_width)
    assert sum(port.read_beats for port in estimate_system([program, program], TOGETHER).ports) == 2 * beats


@pytest.mark.parametrize(("join_cycles", "times"), [(0, 2), (200, 1)])
def test_a_machine_joins_reads_by_its_key_alone(join_cycles: int, times: int) -> None:
    """Both cores read the same vectors, as constants that nobody writes, at the same time."""
    arch = TOGETHER.replace(join_cycles=join_cycles)
    isa, vectors = Isa(arch), 64
    program = isa.assemble([isa.configure(Register.DRAM1_CACHE, MODIFIABLE),
                            isa.data_move(DataFlow.DRAM1_TO_LOCAL, 0, 0, vectors)])
    data = sum(port.read_beats for port in estimate_system([program, program], arch).ports) - 2 * (
        -(-len(program) * 8 // arch.stream_width))
    assert data == times * vectors * arch.vector_bytes * 8 // arch.axi_data_width


@pytest.mark.parametrize("cores", [1, 2])
def test_a_port_counts_every_beat_that_cores_write(cores: int) -> None:
    """Behind each other through the beats that wait for the memory; only programs are read."""
    isa, vectors = Isa(TOGETHER), 64
    program = isa.assemble([isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 0, vectors)])
    port, = estimate_system([program] * cores + [b""] * (TOGETHER.cores - cores), TOGETHER).ports
    assert port.write_beats == cores * vectors * TOGETHER.vector_bytes * 8 // TOGETHER.axi_data_width
    assert port.read_beats == cores * -(-len(program) * 8 // TOGETHER.stream_width)


@pytest.mark.parametrize("vectors", [32, 64, 128])
def test_a_write_ends_when_all_of_its_beats_have_moved(vectors: int) -> None:
    """At half a byte a cycle each byte takes a cycle more than at one, those of the program among them."""
    isa = Isa(TOGETHER)
    program = isa.assemble([isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, 0, vectors)])
    slow, quick = (estimate_system([program, b""], TOGETHER, IdealDram(bus_bytes=share)).cycles for share in (0.5, 1.0))
    fetched = -(-len(program) * 8 // TOGETHER.stream_width) * TOGETHER.stream_width // 8
    assert slow - quick == vectors * TOGETHER.vector_bytes + fetched


def test_a_signal_has_a_counter_and_an_amount() -> None:
    """A post's amount is the mask of its cores."""
    arch = TOGETHER.replace(sync_counters=4)
    isa = Isa(arch)
    program = isa.assemble([isa.post(3, [1], 0, 8), isa.wait(2, 5, 0, 8), isa.no_op(), isa.wait(0, 0, 0, 8)])
    work = read_program(program, arch).work
    assert work[["waits", "counter", "above"]].tolist() == [(0, 3, 0b10), (1, 2, 5), (1, 0, 0)]


def test_a_register_slice_delays_operations_and_does_not_slow_them() -> None:
    """A move within the core: as many vectors more take as many cycles more, with slices and without."""
    for name in ("lanes2", "lanes8_int8"):
        arch: Arch = lockstep_archs()[name]
        isa = Isa(arch)
        assert name == "lanes2" or arch.register_slices
        short, long = (estimate(isa.assemble([isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 0, 0, size)]), arch,
                                IdealDram()).cycles for size in (10, 30))
        assert long - short == 20, name
