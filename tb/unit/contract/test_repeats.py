# SPDX-License-Identifier: Apache-2.0
"""hw/contract/repeats.py: what a Repeat stands for, which ones are refused, and how many instructions a program has."""

import time

import numpy as np
import pytest

from weft.hw.contract import repeats
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.support.errors import ArchError, IsaError

ISA = Isa(Arch.load("arty").replace(repeat_depth=8))
PLAIN = Isa(Arch.load("arty"))


def meant(*program: Instruction, isa: Isa = ISA) -> list[Instruction]:
    return [Instruction(*row) for row in isa.split(isa.assemble(program)).T.tolist()]


def test_steps_go_on_from_the_latest_of_each_kind() -> None:
    """Two kinds in turn, and one between them that does not come again."""
    load, product = ISA.load_weight, ISA.mat_mul
    found = meant(load(10, 4), product(0, 7, 3), load(14, 4), product(32, 9, 3), ISA.data_move(DataFlow(0), 1, 2, 3),
                  ISA.repeat(3, 2), ISA.repeat(2, 3))
    assert found[5:] == [load(18, 4), product(64, 11, 3), load(22, 4), product(96, 13, 3), load(26, 4)]


def test_flows_are_kinds_of_their_own_and_other_flags_are_not() -> None:
    to, back = DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0
    found = meant(ISA.data_move(to, 10, 20, 1), ISA.data_move(back, 500, 600, 1), ISA.data_move(to, 11, 22, 1),
                  ISA.mat_mul(1, 1, 1), ISA.mat_mul(2, 3, 1, accumulate=True), ISA.repeat(3, 3))
    assert found[5:] == [ISA.data_move(to, 12, 24, 1), ISA.mat_mul(3, 4, 1), ISA.mat_mul(4, 6, 1, accumulate=True)]


def test_every_flow_and_every_other_opcode_is_a_kind() -> None:
    flows = [repeats.kind_of(Opcode.DATA_MOVE, flow) for flow in DataFlow]
    others = [{repeats.kind_of(opcode, flags) for flags in range(16)}
              for opcode in Opcode if opcode is not Opcode.DATA_MOVE]
    assert all(len(kinds) == 1 for kinds in others)
    kinds = [*flows, *set().union(*others)]
    assert len(set(kinds)) == len(kinds) == len(DataFlow) + len(Opcode) - 1
    assert all(0 <= kind < repeats.KINDS for kind in kinds)


def test_configure_is_repeated_as_it_is() -> None:
    sets = [ISA.configure(Register.MAT_MUL_ROWS, rows) for rows in (3, 0)]
    assert meant(*sets, ISA.repeat(2, 5))[2:] == [*sets, *sets, sets[0]]


def test_operands_count_modulo_their_widths() -> None:
    """Down, and with the stride above the address."""
    first, second = ISA.mat_mul(10, 5, 2, local_stride=2), ISA.mat_mul(7, 9, 2, local_stride=2)
    assert meant(first, second, ISA.repeat(1, 1))[2] == ISA.mat_mul(4, 13, 2, local_stride=2)
    assert meant(ISA.mat_mul(0, 1, 1), ISA.repeat(1, 3))[-1] == ISA.mat_mul(0, 4, 1)  # the first steps from 0


def test_a_repeat_reaches_what_repeats_made() -> None:
    assert [each.operand0 for each in meant(ISA.load_weight(0, 1), ISA.load_weight(3, 1), ISA.repeat(1, 4),
                                            ISA.load_weight(13, 1), ISA.repeat(2, 3))] == [0, 3, 6, 9, 12, 15, 13, 16,
                                                                                           14, 17]


@pytest.mark.parametrize(("repeat", "before"), [
    (ISA.repeat(3, 1), 2), (ISA.repeat(1, 1), 0), (ISA.repeat(9, 4), 20), (ISA.repeat(1, 4)._replace(flags=1), 5),
    (ISA.repeat(1, 4)._replace(operand2=1 << 15), 5)])
def test_an_illegal_repeat_stands_for_itself_and_so_does_what_follows(repeat: Instruction, before: int) -> None:
    program = [*[ISA.no_op()] * before, repeat, ISA.no_op(), ISA.repeat(1, 7)]
    assert meant(*program) == program
    assert ISA.counts(ISA.assemble(program)).tolist() == [1] * len(program)


@pytest.mark.parametrize("before", range(8, 27))
def test_the_whole_depth_is_within_reach(before: int) -> None:
    """Wherever the list of steps loses its front."""
    program = [*[ISA.load_weight(number, 1) for number in range(before)], ISA.repeat(8, 30)]
    assert ISA.counts(ISA.assemble(program)).tolist() == [1] * before + [30]
    assert len(meant(*program)) == before + 30


def test_a_machine_without_repeats_takes_words_as_they_are() -> None:
    program = [PLAIN.no_op(), Instruction(9, 0, 0, 3)]
    assert meant(*program, isa=PLAIN) == program
    assert PLAIN.counts(PLAIN.assemble(program)).tolist() == [1, 1]


def test_a_program_in_pieces_means_what_it_means_as_one() -> None:
    rng = np.random.default_rng(1)
    program = [ISA.load_weight(0, 1)] * 8
    for _ in range(60):
        program.append(ISA.repeat(int(rng.integers(1, 9)), int(rng.integers(1, 30))) if rng.random() < 0.5
                       else ISA.mat_mul(int(rng.integers(99)), int(rng.integers(99)), 3))
    history, found = ISA.history(), []
    for piece in (program[:20], program[20:21], program[21:]):
        words = ISA.words(ISA.assemble(piece))
        counted = history.counts(words).tolist()
        each = [list(history.expand(word)) for word in piece]
        assert counted == [len(instructions) for instructions in each]
        found += [instruction for instructions in each for instruction in instructions]
    assert found == meant(*program)


def test_what_stands_for_too_much_is_refused_before_it_is_made() -> None:
    bomb = ISA.assemble([ISA.no_op(), *[ISA.repeat(1, 1 << 24)] * 100_000])
    began = time.process_time()
    with pytest.raises(IsaError, match=f"make 1677721600001 instructions of 100001; allowed: at most "
                                       f"{repeats.MOST_INSTRUCTIONS}"):
        ISA.split(bomb)
    with pytest.raises(IsaError, match="at most"):
        ISA.counts(bomb)
    assert time.process_time() - began < 5


def test_depths_are_powers_of_two() -> None:
    for depth in (1, 2, 512, 4096):
        assert Arch.load("arty").replace(repeat_depth=depth).repeat_depth == depth
    for depth in (-1, 3, 8192):
        with pytest.raises(ArchError, match="repeat_depth"):
            Arch.load("arty").replace(repeat_depth=depth)
