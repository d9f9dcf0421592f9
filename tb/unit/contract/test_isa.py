# SPDX-License-Identifier: Apache-2.0
"""hw/contract/isa.py and the tables beside it: layout, round trips, limits, text, and the published program."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import CAUSE_TEXTS, Cause
from weft.hw.contract.instructions import (
    MOVE_ACCUMULATE_BIT,
    OPERATIONS,
    RELU_BIT,
    DataFlow,
    Instruction,
    Opcode,
    SimdOpcode,
    SimdSub,
    flag_bit,
    operand_of,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.presets import presets
from weft.hw.contract.register_table import illegal_register_value
from weft.hw.contract.registers import Register
from weft.support.errors import ArchError, IsaError
from weft.tb.random.random_program import random_program
from weft.tb.shared import shared

ARTY = Isa(Arch.load("arty").replace(simd_registers_depth=1))
INT8 = Isa(Arch.load("arty").replace(data_type="INT8"))
ACTIVATION_TABLES = Isa(INT8.arch.replace(activation_tables=2))
SYNC = Isa(Arch.load("arty").replace(dram_ports="shared", cores=3, sync_counters=4))


@st.composite
def machines(draw: st.DrawFn) -> Isa:
    """Any machine that can be built, with memories small and large."""
    def depth(most: int) -> int:
        return draw(st.integers(2, most) | st.sampled_from([2, 3, 255, 256, 257, most]))

    def allowed(key: str) -> int:
        return draw(st.integers(KEYS[key].low, KEYS[key].high))

    registers = allowed("simd_registers_depth")
    keys = {"data_type": draw(st.sampled_from(["FP8BP4", "FP16BP8", "FP18BP10", "FP32BP16", "INT8"])),
            "array_size": allowed("array_size"), "dram0_depth": depth(1 << 32),
            "dram1_depth": depth(1 << 32), "local_depth": depth(1 << 16), "accumulator_depth": depth(1 << 16),
            "local_banks": 1, "accumulator_banks": 1, "axi_address_width": 64,
            "simd_registers_depth": registers, "lut_count": draw(st.integers(0, max(registers - 1, 0))),
            **{key: allowed(key) for key in ("stride0_depth", "stride1_depth", "simd_loop_depth")}}
    return Isa(Arch.from_dict(keys))


# -- layout --------------------------------------------------------------------------------------------------------
def test_the_eight_lane_preset_has_operands_of_16_24_and_16_bits_and_8_bytes() -> None:
    assert ARTY.operand_widths == (16, 24, 16)
    assert ARTY.instruction_bytes == 8


def test_the_fields_lie_where_the_design_says() -> None:
    """Arty: addresses of 13 and 20 bits with 3 bits of log2(stride) above; size stored as n-1; opcode on top."""
    instruction = ARTY.mat_mul(5, 6, 7, accumulate=True, local_stride=2, accumulator_stride=8)
    value = ARTY.encode(instruction)
    assert value == 1 << 60 | 1 << 56 | 6 << 40 | (3 << 20 | 6) << 16 | (1 << 13 | 5)
    assert ARTY.assemble([instruction]) == value.to_bytes(8, "little")


def test_flags_are_numbered_from_bit_0() -> None:
    flags = {
        ARTY.mat_mul(0, 0, 1, zeroes=True): 2, ARTY.load_weight(0, 1, zeroes=True): 1,
        ARTY.load_weight(0, 1, zero_bias=True): 2, ARTY.simd(SimdSub(SimdOpcode.ADD), read=1): 1,
        ARTY.simd(SimdSub(SimdOpcode.ADD), write=1): 2, ARTY.simd(SimdSub(SimdOpcode.ADD), accumulate=True): 4,
        ARTY.simd(SimdSub(SimdOpcode.ADD), hold=True): 8,
        ARTY.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 0, 0, 1): 15}
    assert all(instruction.flags == value for instruction, value in flags.items())


def test_flags_and_operands_by_name() -> None:
    """The numbers of the design, which every reader of the table goes by."""
    bits = {(Opcode.MAT_MUL, "accumulate"): 0, (Opcode.MAT_MUL, "zeroes"): 1, (Opcode.LOAD_WEIGHT, "zeroes"): 0,
            (Opcode.LOAD_WEIGHT, "zero_bias"): 1, (Opcode.SIMD, "read"): 0, (Opcode.SIMD, "write"): 1,
            (Opcode.SIMD, "accumulate"): 2, (Opcode.SIMD, "hold"): 3}
    assert {key: flag_bit(*key) for key in bits} == bits
    assert (RELU_BIT, MOVE_ACCUMULATE_BIT) == (1, 1)
    operands = {(Opcode.MAT_MUL, "local"): 0, (Opcode.MAT_MUL, "accumulator"): 1, (Opcode.MAT_MUL, "size"): 2,
                (Opcode.DATA_MOVE, "far"): 1, (Opcode.LOAD_WEIGHT, "size"): 1, (Opcode.SIMD, "write_address"): 0,
                (Opcode.SIMD, "read_address"): 1, (Opcode.SIMD, "sub"): 2, (Opcode.LOAD_LUT, "table"): 1,
                (Opcode.SIMD_LOOP, "iterations"): 0, (Opcode.SIMD_LOOP, "body"): 1, (Opcode.CONFIGURE, "value"): 1}
    assert {key: operand_of(*key) for key in operands} == operands
    instruction = ARTY.mat_mul(5, 6, 7, zeroes=True)
    assert (instruction.flag("accumulate"), instruction.flag("zeroes"), instruction.raw("size")) == (False, True, 6)
    for absent in (lambda: flag_bit(Opcode.MAT_MUL, "hold"), lambda: operand_of(Opcode.SIMD, "size")):
        with pytest.raises(ValueError, match="not in"):
            absent()


def test_the_sub_instruction_is_opcode_left_right_destination_from_the_top() -> None:
    assert ARTY.pack_sub(SimdSub(SimdOpcode.MULTIPLY, 1, 0, 1)) == 10 << 3 | 1 << 2 | 0 << 1 | 1
    with_tables = Isa(Arch.load("arty").replace(simd_registers_depth=3, lut_count=1))
    assert with_tables.pack_sub(SimdSub(SimdOpcode.LOOKUP, 3, 2, 1)) == 16 << 6 | 3 << 4 | 2 << 2 | 1


@given(machines())
@settings(max_examples=200)
def test_operands_are_whole_bytes_that_hold_every_field(isa: Isa) -> None:
    assert all(width % 8 == 0 for width in isa.operand_widths)
    assert isa.instruction_bytes * 8 == sum(isa.operand_widths) + 8
    for opcode in isa.opcodes():
        for field in OPERATIONS[opcode].fields:
            assert isa.field_width(field) <= isa.operand_widths[field.operand]
    arch = isa.arch
    assert 1 << isa.address_widths[0] >= max(arch.local_depth, arch.accumulator_depth)
    assert 1 << isa.address_widths[1] >= max(arch.local_depth, arch.accumulator_depth, arch.dram0_depth,
                                             arch.dram1_depth)
    assert 1 << isa.operand_widths[2] >= min(arch.local_depth, arch.accumulator_depth)


# -- round trips ---------------------------------------------------------------------------------------------------
@given(machines(), st.data())
@settings(max_examples=200)
def test_any_bits_decode_and_encode_to_themselves(isa: Isa, data: st.DataObject) -> None:
    value = data.draw(st.integers(0, 256 ** isa.instruction_bytes - 1))
    assert isa.encode(isa.decode(value)) == value
    program = value.to_bytes(isa.instruction_bytes, "little") * 3
    assert list(isa.disassemble(program)) == [isa.decode(value)] * 3
    assert isa.assemble(isa.disassemble(program)) == isa.assemble_words(isa.words(program)) == program


@given(machines(), st.integers(0, 1000))
@settings(max_examples=60)
def test_legal_instructions_round_trip_use_only_named_bits_and_have_a_text(isa: Isa, seed: int) -> None:
    program = random_program(isa.arch, seed, 30)
    assert list(isa.disassemble(isa.assemble(program))) == program
    for instruction in program:
        assert isa.encode(instruction) & (1 << isa.opcode_offset) - 1 & ~isa.used_mask(Opcode(instruction.opcode)) == 0
        assert instruction_text(isa, instruction).startswith(OPERATIONS[Opcode(instruction.opcode)].name)


@given(machines(), st.data())
@settings(max_examples=100)
def test_address_and_sub_instruction_come_back(isa: Isa, data: st.DataObject) -> None:
    for operand, depth in enumerate((isa.arch.stride0_depth, isa.arch.stride1_depth)):
        address = data.draw(st.integers(0, (1 << isa.address_widths[operand]) - 1))
        stride = 1 << data.draw(st.integers(0, depth - 1))
        strides: dict[str, Any] = {("local_stride", "accumulator_stride")[operand]: stride}
        instruction = isa.mat_mul(*((address, 0) if operand == 0 else (0, address)), 1, **strides)
        assert isa.address(operand, instruction.operands[operand]) == (address, stride)
    opcode = data.draw(st.sampled_from(isa.simd_opcodes()))
    registers = [data.draw(st.integers(0, isa.arch.simd_registers_depth)) for _ in range(3)]
    assert isa.unpack_sub(isa.pack_sub(SimdSub(opcode, *registers))) == (opcode, *registers)


def test_a_truncated_program_is_refused() -> None:
    with pytest.raises(IsaError, match="program: found 9 bytes; allowed: a multiple of 8.*way out"):
        ARTY.split(bytes(9))
    assert list(ARTY.disassemble(b"")) == []


def test_the_published_program_disassembles_and_assembles_to_itself() -> None:
    folder = shared("vectors/resnet20v2_zcu104")
    model = json.loads((folder / "resnet20v2_cifar_onnx_zcu104.tmodel").read_text())
    isa = Isa(Arch.from_dict(model["arch"]))
    program = (folder / model["prog"]["file_name"]).read_bytes()
    instructions = list(isa.disassemble(program))
    assert len(instructions) == 50171
    assert isa.assemble(instructions) == program
    assert {instruction.opcode for instruction in instructions} == {
        Opcode.MAT_MUL, Opcode.DATA_MOVE, Opcode.LOAD_WEIGHT, Opcode.SIMD}
    assert instruction_text(isa, instructions[2]) == "LoadWeight local=0 size=33"


# -- limits --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("build", [
    lambda: ARTY.mat_mul(8192, 0, 1), lambda: ARTY.mat_mul(-1, 0, 1), lambda: ARTY.mat_mul(0, 1 << 20, 1),
    lambda: ARTY.mat_mul(0, 0, 0), lambda: ARTY.mat_mul(0, 0, (1 << 16) + 1),
    lambda: ARTY.mat_mul(0, 0, 1, local_stride=3),
    lambda: ARTY.mat_mul(0, 0, 1, local_stride=256), lambda: ARTY.mat_mul(0, 0, 1, accumulator_stride=0),
    lambda: ARTY.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 1 << 20, 1), lambda: ARTY.load_weight(0, (1 << 24) + 1),
    lambda: ARTY.simd_loop(0, 1), lambda: ARTY.simd_loop(1, 0), lambda: ARTY.configure(Register.TRACEPOINT, 1 << 24),
    lambda: ARTY.configure(Register.TIMEOUT, -1), lambda: ARTY.simd(SimdSub(SimdOpcode.LOOKUP)),
    lambda: ARTY.simd(SimdSub(SimdOpcode.ADD, left=2)), lambda: ARTY.simd(SimdSub(SimdOpcode.ADD), read=1 << 20),
    lambda: ARTY.encode(Instruction(16)), lambda: ARTY.encode(Instruction(0, 16)),
    lambda: ARTY.encode(Instruction(0, 0, 1 << 16)), lambda: ARTY.encode(Instruction(0, 0, 0, 0, -1)),
    *(lambda row=row, value=value: ARTY.assemble_words(np.eye(5, 1, -row, np.uint64) * np.uint64(value))
      for row, value in enumerate((16, 16, 1 << 16, 1 << 24, 1 << 16))),
])
def test_a_value_that_does_not_fit_its_field_is_refused(build: object) -> None:
    with pytest.raises(IsaError, match="found .*; allowed: .*; way out: "):
        build()  # type: ignore[operator]


@pytest.mark.parametrize(("build", "good", "bad"), [
    (lambda values: ARTY.mat_mul(values, 0 * values, 0 * values + 1), 0, (-1, 1 << 30)),
    (lambda values: ARTY.mat_mul(0 * values, values, 0 * values + 1), 5, (-1, 1 << 30)),
    (lambda values: ARTY.mat_mul(0 * values, 0 * values, values), 1, (0, -1, 1 << 30)),
    (lambda values: ARTY.mat_mul(0 * values, 0 * values, 0 * values + 1, local_stride=values), 2, (0, -2, 3, 1 << 20)),
    (lambda values: ARTY.load_lut(0 * values, values), 1, (-1, 1 << 30))],
    ids=["local", "accumulator", "size", "stride", "table"])
def test_each_of_many_numbers_must_fit_as_a_single_one_must(build: Any, good: int, bad: tuple[int, ...]) -> None:
    build(np.array([good, good]))
    for value in bad:
        for values in ([good, value], [value, good], [value, value]):
            with pytest.raises(IsaError):
                build(np.array(values))


def test_the_largest_values_fit() -> None:
    ARTY.assemble_words(np.array([[15], [15], [(1 << 16) - 1], [(1 << 24) - 1], [(1 << 16) - 1]], np.uint64))
    ARTY.encode(ARTY.mat_mul(8191, (1 << 20) - 1, 1 << 16, local_stride=128, accumulator_stride=128))
    ARTY.encode(ARTY.load_weight(0, 1 << 24))
    ARTY.encode(ARTY.configure(Register.TRACEPOINT, (1 << 24) - 1))


def test_opcodes_follow_the_machine() -> None:
    arch = Arch.load("arty")
    assert Opcode.LOAD_LUT not in ARTY.opcodes() and Opcode.SIMD_LOOP in ARTY.opcodes()
    assert Opcode.SIMD_LOOP not in Isa(arch.replace(simd_loop_depth=0)).opcodes()
    assert Opcode.LOAD_LUT in Isa(arch.replace(lut_count=1, simd_registers_depth=2)).opcodes()
    assert Opcode.REPEAT not in ARTY.opcodes() and Opcode.REPEAT in Isa(arch.replace(repeat_depth=4)).opcodes()
    assert Opcode.SIGNAL not in ARTY.opcodes() and Opcode.SIGNAL in SYNC.opcodes()
    assert Opcode.LOAD_SCALE not in ARTY.opcodes() and Opcode.LOAD_SCALE in INT8.opcodes()
    assert Opcode.LOAD_ACTIVATION_TABLE not in INT8.opcodes()
    assert Opcode.LOAD_ACTIVATION_TABLE in ACTIVATION_TABLES.opcodes()


def test_signals_hold_counter_cores_and_amount_in_twenty_bits() -> None:
    assert SYNC.post(3, (0, 2), 5, 7) == Instruction(10, 0, 0x53, 5, 6)
    assert SYNC.wait(2, 255, 5, 7, dram1=True) == Instruction(10, 3, 0xFF2, 5, 6)
    for first, size in ((0, 1), (7, 65535), (7, 65536), (7, 65537), (0, 1 << 20), ((1 << 20) - 65537, 65537)):
        made = SYNC.wait(0, 1, first, size)
        base, stride = SYNC.address(1, made.operand1)
        assert base + (made.operand2 + 1) * stride - first in range(size, size + stride) and base <= first
        assert (stride == 1) == (size <= 65536) and (base == first or first + size == 1 << 20)
    for refused in (lambda: SYNC.post(4, (0,), 0, 1), lambda: SYNC.post(0, (3,), 0, 1), lambda: SYNC.wait(0, 256, 0, 1),
                    lambda: ARTY.post(0, (), 0, 1)):
        with pytest.raises(IsaError, match="allowed"):
            refused()


def test_legal_flags_are_those_of_the_table() -> None:
    legal = {opcode: set(ARTY.legal_flags(opcode)) for opcode in Opcode}
    assert legal == {Opcode.NO_OP: {0}, Opcode.MAT_MUL: {0, 1, 2, 3}, Opcode.DATA_MOVE: {0, 1, 2, 3, 12, 13, 14, 15},
                     Opcode.LOAD_WEIGHT: {0, 1, 2, 3}, Opcode.SIMD: set(range(8)), Opcode.LOAD_LUT: {0},
                     Opcode.SIMD_LOOP: {0}, Opcode.LOAD_SCALE: {0}, Opcode.LOAD_ACTIVATION_TABLE: {0},
                     Opcode.REPEAT: {0}, Opcode.SIGNAL: {0, 1, 2, 3}, Opcode.CONFIGURE: {0}}


# -- registers -----------------------------------------------------------------------------------------------------
def test_registers_have_the_widths_and_resets_of_the_seed() -> None:
    table = {register: (spec.width, spec.reset) for register, spec in ARTY.registers.items()}
    more = {Register.TAP_ORIGIN, Register.TAP_DROPPED, Register.TAP_ROWS, Register.TAP_PITCH, Register.OUTPUT_MAXIMUM,
            Register.OUTPUT_SLOPE}
    assert list(table) == [register for register in Register if register <= Register.OUTPUT_SHIFT and
                           register not in more]
    assert {key: value for key, value in table.items() if key < 0x10} == {
        0x00: (32, 0), 0x01: (4, 0), 0x04: (32, 0), 0x05: (4, 0), 0x08: (16, 100), 0x09: (32, 0xFFFFFFFF),
        0x0A: (32, 0), 0x0B: (16, 0)}
    assert all(table[Register(number)][1] == 0 for number in (0x10, 0x11, 0x12, 0x14, 0x15, 0x16))
    assert table[Register.INPUT_SHIFT] == table[Register.OUTPUT_SHIFT] == (5, 8)


def test_a_depthwise_machine_has_two_registers_more() -> None:
    for arch in (ARTY.arch, INT8.arch):
        table = Isa(arch.replace(depthwise_taps=3)).registers
        more = {number: (spec.width, spec.reset, spec.maximum) for number, spec in table.items()
                if number not in Isa(arch).registers}
        assert more == {0x0C: (2, 0, 3), 0x17: (2, 0, 3)}


def test_functions_on_output_have_a_register_each() -> None:
    """At reset they make a ReLU of a move with ReLU."""
    for key, register, spec in (("output_maximum", 0x0D, (15, 32767, 32767)), ("output_slope", 0x0E, (16, 0, 65535))):
        table = Isa(ARTY.arch.replace(**{key: 1})).registers
        more = {number: (found.width, found.reset, found.maximum) for number, found in table.items()
                if number not in ARTY.registers}
        assert more == {register: spec}
        with pytest.raises(ArchError, match=f"(?s){key}.*activation_tables"):
            INT8.arch.replace(**{key: 1})


def test_the_widest_register_of_a_small_machine_fits_a_configure() -> None:
    small = Arch.load("tiny").replace(dram0_depth=64, dram1_depth=64, local_depth=32, accumulator_depth=16,
                                      stride0_depth=1, stride1_depth=1, output_slope=1)
    assert Isa(small).configure(Register.OUTPUT_SLOPE, -1).operand1 == 0xFFFF


def test_a_machine_of_bytes_has_zero_points_and_a_factor_in_place_of_the_enter_shift() -> None:
    table = {register: (spec.width, spec.reset, spec.maximum, spec.signed) for register, spec in INT8.registers.items()}
    assert {key: value for key, value in table.items() if key >= 0x18} == {
        0x19: (6, 0, 42, False), 0x1A: (8, 0, 255, True), 0x1B: (8, 0, 255, True), 0x1C: (17, 1, (1 << 17) - 1, False),
        0x1D: (8, 0, 255, True)}
    assert list(table)[:-5] == list(ARTY.registers)[:-2]


def test_a_signed_register_takes_negative_values_and_keeps_them_as_eight_bits() -> None:
    for value, stored in ((-128, 0x80), (-1, 0xFF), (0, 0), (127, 0x7F), (128, 0x80)):
        assert INT8.configure(Register.OUTPUT_ZERO_POINT, value).operand1 == stored
    assert INT8.registers[Register.OUTPUT_ZERO_POINT].value(0x80) == -128
    assert INT8.registers[Register.INPUT_MULTIPLIER].value((1 << 17) - 1) == (1 << 17) - 1
    with pytest.raises(IsaError):
        INT8.configure(Register.OUTPUT_ZERO_POINT, -129)


@given(st.sampled_from([2, 3, 255]))
def test_a_configure_of_a_machine_of_bytes_holds_its_widest_factor(depth: int) -> None:
    isa = Isa(Arch.load("tiny").replace(data_type="INT8", dram0_depth=depth, dram1_depth=depth, stride1_depth=1))
    isa.encode(isa.configure(Register.INPUT_MULTIPLIER, (1 << 17) - 1))


def test_a_dram_window_must_stay_below_the_last_address() -> None:
    arch = Arch.load("arty")
    room = ((1 << 32) - 1048576 * 16) // 65536
    for register in (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET):
        assert not illegal_register_value(arch, register, room)
        assert illegal_register_value(arch, register, room + 1)


def test_shifts_are_limited_by_the_accumulator_and_fixed_with_every_step() -> None:
    once = Arch.load("arty")
    every_step = once.replace(mac_rounding="every_step")
    for register in (Register.INPUT_SHIFT, Register.OUTPUT_SHIFT):
        assert [illegal_register_value(once, register, value) for value in (0, 31, 32)] == [False, False, True]
        assert [illegal_register_value(every_step, register, value) for value in (7, 8, 9)] == [True, False, True]


# -- text ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("instruction", "text"), [
    (ARTY.no_op(), "NoOp"),
    (ARTY.mat_mul(3, 0, 49, accumulate=True, accumulator_stride=2),
     "MatMul accumulate local=3 accumulator=0:2 size=49"),
    (ARTY.data_move(DataFlow.ACCUMULATOR_TO_LOCAL_RELU, 1, 2, 3),
     "DataMove accumulator_to_local_relu local=1 far=2 size=3"),
    (ARTY.load_weight(7, 9, zero_bias=True), "LoadWeight zero_bias local=7 size=9"),
    (ARTY.simd(SimdSub(SimdOpcode.MAX, 0, 1), read=4, write=5),
     "SIMD read write write_address=5 read_address=4 max left=0 right=1 destination=0"),
    (ARTY.simd_loop(10, 2), "SIMDLoop iterations=10 body=2"),
    (ARTY.configure(Register.INPUT_SHIFT, 3), "Configure register=input_shift value=3"),
    (Instruction(Opcode.CONFIGURE, 0, 99, 1), "Configure register=99 value=1"),
    (SYNC.post(3, (0, 2), 5, 7), "Signal counter=3 cores=0+2 range=5 size=7"),
    (SYNC.post(1, (), 5, 1, dram1=True), "Signal dram1 counter=1 cores=none range=5 size=1"),
    (SYNC.wait(0, 2, 16, 1 << 17), "Signal wait counter=0 amount=2 range=16:2 size=65536"),
    (Instruction(11, 1, 2, 3, 4), "illegal opcode=11 flags=1 operands=(2, 3, 4)"),
    (Instruction(Opcode.DATA_MOVE, 5), "DataMove flow=5 local=0 far=0 size=1"),
    (Instruction(Opcode.MAT_MUL, 8), "MatMul flag3 local=0 accumulator=0 size=1"),
])
def test_text_of_an_instruction(instruction: Instruction, text: str) -> None:
    assert instruction_text(ARTY, instruction) == text


def test_text_of_a_machine_of_bytes() -> None:
    assert instruction_text(INT8, INT8.load_scale(5, local_stride=2)) == "LoadScale local=5:2"
    zero_point = INT8.configure(Register.INPUT_ZERO_POINT, -1)
    assert instruction_text(INT8, zero_point) == "Configure register=input_zero_point value=255"
    table = ACTIVATION_TABLES.load_activation_table(5, 2)
    assert instruction_text(ACTIVATION_TABLES, table) == "LoadActivationTable local=5 table=2"


def test_every_cause_has_a_text() -> None:
    assert set(CAUSE_TEXTS) == set(Cause)


@pytest.mark.parametrize("name", presets())
def test_every_preset_has_an_instruction_set(name: str) -> None:
    assert Isa(Arch.load(name)).instruction_bytes in range(5, 12)


def test_an_impossible_machine_has_none() -> None:
    with pytest.raises(ArchError):
        Isa(Arch.load("arty").replace(array_size=1))
