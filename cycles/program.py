# SPDX-License-Identifier: Apache-2.0
"""Decode the bytes of a program into a table of its units' operations: sizes, walks and address ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.cycles.errors import refuse
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import (
    COUNTER_WIDTH,
    KEY_ENTRIES,
    DataFlow,
    Opcode,
    SimdOpcode,
    flag_bit,
    operand_of,
    simd_argument_count,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.hw.contract.register_table import tap_registers, tap_span
from weft.hw.contract.registers import MODIFIABLE, Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.units import UNIT_NAMES, UNIT_OF_FLOW, UNIT_OF_OPCODE, UNITS, Memory, unit_of_flow
from weft.hw.contract.walk import Walk

MEMORIES = tuple(Memory)
NO_MEMORY = -1
LOCAL, ACCUMULATORS = MEMORIES.index(Memory.LOCAL), MEMORIES.index(Memory.ACCUMULATORS)
DRAM1 = MEMORIES.index(Memory.DRAM1)
NO_UNIT = -1

OPERAND = [("memory", "i1"), ("writes", "i1"), ("base", "i4"), ("stride", "i4"), ("pitch", "i4"),
           ("first", "i4"), ("last", "i4")]

WORK = np.dtype([
    ("instruction", "i4"), ("unit", "i1"), ("size", "i4"), ("rows", "i4"),
    *((f"{name}{operand}", kind) for operand in (0, 1) for name, kind in OPERAND),
    ("accumulate", "i1"), ("zeroes", "i1"), ("zero_bias", "i1"), ("swap", "i1"), ("enters", "i1"),
    ("lag", "i1"), ("dropped", "i1"), ("tap_rows", "i1"), ("tap_pitch", "i4"),
    ("turn", "i4"),
    ("loop", "i1"), ("table", "i1"), ("body", "i4"), ("in_loop", "i1"), ("body_left", "i4"),
    ("window", "i8"), ("joins", "i1"), ("lookup", "i1"), ("left", "i1"), ("right", "i1"), ("destination", "i1"),
    ("waits", "i1"), ("counter", "i1"), ("above", "i4"),
])
"""One operation. Row r, vector k of operand n (0, 1) is at base + r x pitch + k x stride; all addresses lie in
first..last of ``memory`` (NO_MEMORY: it names none). ``zeroes``: reads nothing. ``turn``: of a MatMul that swaps how
many LoadWeights, of a LoadWeight how many of those MatMuls come before it. ``lag``: of a depthwise MatMul how many
vectors its results lie behind those that are read, ``dropped``: how many at the end of each row are not written;
``tap_rows``: which of several rows of taps count, 0 where there are not several; they meet rows ``tap_pitch`` apart,
each a vector behind the one before.
``loop``: a SIMD loop's header with a
``body`` of instructions; ``in_loop``: one of them, ``body_left`` counts down to 0. ``table``: LoadLUT. ``lookup``, and
the registers of the arguments (0: none, or not a register) and of the destination: SIMD. A LoadScale or
LoadActivationTable is an operation of move_out without a memory of operand 1; its range counts as one that is written,
as in the interlock. ``window``: where the window of DRAM that operand 1 lies in begins, in bytes; ``joins``:
that is DRAM1, and its reads may be joined with other cores'. ``waits``,
``counter``, ``above``: of a Signal, which passes no vectors, whether it is a wait, and its target."""


@dataclass(frozen=True)
class DecodedProgram:
    """A decoded program: ``work`` [operations] of WORK in program order, and more about its instructions.

    ``program_counters`` [operations]: what the machine's counter shows. ``instructions``: how many there are.
    ``drains``: indices of the Configures that wait until the machine is empty. ``repeats`` [words of the program]: how
    many instructions a Repeat stands for, 0 for other words."""

    work: np.ndarray
    program_counters: np.ndarray
    instructions: int
    drains: np.ndarray
    repeats: np.ndarray


def read_program(program: bytes, arch: Arch) -> DecodedProgram:
    """Return a legal program decoded, with its Repeats expanded.

    Raise IsaError if it is truncated or stands for too many instructions, EstimateError if it ends within a SIMD
    loop."""
    isa = Isa(arch)
    opcode, flags, *operands = isa.split(program).astype(np.int64)
    unit = _units(arch, opcode, flags)
    register = _registers(isa, opcode, operands)
    work = np.zeros(len(opcode), WORK)
    work["instruction"], work["unit"] = np.arange(len(opcode)), unit
    _loops(work, opcode, operands)
    _sizes(work, arch, opcode, flags, operands, register)
    _operands(work, isa, opcode, flags, operands, register)
    _details(work, isa, opcode, flags, operands)
    _signals(work, opcode, flags, operands)
    drains = np.flatnonzero(_sets(opcode, operands, Register.DRAM0_OFFSET)
                            | _sets(opcode, operands, Register.DRAM1_OFFSET))
    work = np.ascontiguousarray(work[unit != NO_UNIT])
    work["swap"] = _swaps(work)
    work["turn"] = _turns(work)
    if arch.depthwise_taps:
        _taps(work, arch, register)
    work["window"] = _windows(work, register)
    work["joins"] = (work["memory1"] == DRAM1) & (register[Register.DRAM1_CACHE][work["instruction"]] & MODIFIABLE != 0)
    work["enters"] = work["swap"]
    if Register.INPUT_SHIFT in register:
        work["enters"] |= _other_shifts(work, register[Register.INPUT_SHIFT])
    return DecodedProgram(work, program_counters_of(opcode, operands)[work["instruction"]], len(opcode), drains,
                          _repeats(isa, program))


def _repeats(isa: Isa, program: bytes) -> np.ndarray:
    """Return how many instructions each word stands for if it is a Repeat, else 0."""
    counts = isa.counts(program)
    return np.where(isa.words(program)[0] == Opcode.REPEAT, counts, 0) if isa.arch.repeat_depth else counts * 0


def _flag(opcode: Opcode, name: str, flags: np.ndarray) -> np.ndarray:
    """Return a flag of ``opcode``, 0 or 1, from the ``flags`` of instructions."""
    return flags >> flag_bit(opcode, name) & 1


def _field(opcode: Opcode, name: str, operands: list[np.ndarray]) -> np.ndarray:
    """Return the operand that holds a field of ``opcode``."""
    return operands[operand_of(opcode, name)]


def _sets(opcode: np.ndarray, operands: list[np.ndarray], register: Register) -> np.ndarray:
    """Tell whether each instruction configures ``register``."""
    return (opcode == Opcode.CONFIGURE) & (_field(Opcode.CONFIGURE, "register", operands) == register)


def _units(arch: Arch, opcode: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Return the unit of each instruction, NO_UNIT for those that end in the decoder."""
    by_opcode, by_flow = (np.full(16, NO_UNIT, np.int64) for _ in range(2))
    for code, name in UNIT_OF_OPCODE.items():
        by_opcode[code] = UNIT_NAMES.index(name)
    for flow, name in unit_of_flow(arch).items():
        by_flow[flow] = UNIT_NAMES.index(name)
    return np.where(opcode == Opcode.DATA_MOVE, by_flow[flags], by_opcode[opcode])


def _newest(sets: np.ndarray) -> np.ndarray:
    """Return the index of the last true element so far, -1 if there is none."""
    return np.maximum.accumulate(np.where(sets, np.arange(len(sets)), -1)) if len(sets) else np.arange(0)


def program_counters_of(opcode: np.ndarray, operands: list[np.ndarray]) -> np.ndarray:
    """Return int64 [instructions]: what the machine's program counter shows at each instruction.

    It counts instructions from 0 on, Repeats expanded, modulo 2**32. A Configure of PROGRAM_COUNTER says what it shows
    at the instruction behind it."""
    index = np.arange(len(opcode))
    sets = _sets(opcode, operands, Register.PROGRAM_COUNTER)
    newest = np.concatenate([[-1], _newest(sets)])[:len(opcode)]  # before each
    value = _field(Opcode.CONFIGURE, "value", operands)
    return np.where(newest < 0, index, value[newest] + index - newest - 1) % (1 << 32)


def _registers(isa: Isa, opcode: np.ndarray, operands: list[np.ndarray]) -> dict[Register, np.ndarray]:
    """Return the value of each Configure register that shapes operations, at every instruction."""
    shaping = (Register.MAT_MUL_ROWS, Register.MAT_MUL_LOCAL_PITCH, Register.MAT_MUL_ACCUMULATOR_PITCH,
               Register.MOVE_ROWS, Register.MOVE_LOCAL_PITCH, Register.MOVE_FAR_PITCH,
               Register.INPUT_SHIFT, *tap_registers(isa.arch),
               Register.DRAM0_OFFSET, Register.DRAM1_OFFSET, Register.DRAM1_CACHE)
    values = {}
    value = _field(Opcode.CONFIGURE, "value", operands)
    for number in set(shaping) & set(isa.registers):
        newest = _newest(_sets(opcode, operands, number))
        values[number] = np.where(newest < 0, isa.registers[number].reset, value[newest])
    return values


def _loops(work: np.ndarray, opcode: np.ndarray, operands: list[np.ndarray]) -> None:
    """Fill the columns about SIMD loops. Raise EstimateError if the program ends within a loop."""
    headers = np.flatnonzero(opcode == Opcode.SIMD_LOOP)
    bodies = _field(Opcode.SIMD_LOOP, "body", operands)[headers] + 1
    if len(headers) and headers[-1] + bodies[-1] >= len(opcode):
        behind = len(opcode) - headers[-1] - 1
        raise refuse(f"SIMDLoop at instruction {headers[-1]}", f"{behind} instructions behind it",
                     f"its body of {bodies[-1]}", "end the program behind the loop")
    iterations = _field(Opcode.SIMD_LOOP, "iterations", operands)[headers] + 1
    work["loop"][headers], work["body"][headers] = 1, bodies
    behind = np.arange(bodies.sum()) - np.repeat(np.cumsum(bodies) - bodies, bodies)
    inside = np.repeat(headers + 1, bodies) + behind
    work["in_loop"][inside], work["body_left"][inside] = 1, np.repeat(bodies - 1, bodies) - behind
    work["size"][inside] = np.repeat(iterations, bodies)


def _sizes(work: np.ndarray, arch: Arch, opcode: np.ndarray, flags: np.ndarray, operands: list[np.ndarray],
           register: dict[Register, np.ndarray]) -> None:
    """Fill the columns ``size`` and ``rows``."""
    mat_mul, load = (opcode == code for code in (Opcode.MAT_MUL, Opcode.LOAD_WEIGHT))
    move, signal = opcode == Opcode.DATA_MOVE, opcode == Opcode.SIGNAL
    rows = _field(Opcode.LOAD_WEIGHT, "size", operands) + 1
    column = np.where(_flag(Opcode.LOAD_WEIGHT, "zeroes", flags), np.minimum(rows, arch.array_size + 1), rows)
    work["size"] = np.select(
        [mat_mul, move | signal, load, opcode == Opcode.LOAD_LUT, opcode == Opcode.LOAD_SCALE,
         opcode == Opcode.LOAD_ACTIVATION_TABLE, opcode == Opcode.SIMD_LOOP,
         work["in_loop"] == 1],
        [_field(Opcode.MAT_MUL, "size", operands) + 1, _field(Opcode.DATA_MOVE, "size", operands) + 1, column,
         np.full_like(opcode, arch.lut_depth), np.full_like(opcode, SCALE_VECTORS),
         np.full_like(opcode, TABLE_ENTRIES),
         _field(Opcode.SIMD_LOOP, "iterations", operands) + 1, work["size"]], 1)
    work["rows"] = np.select([mat_mul, move], [register[Register.MAT_MUL_ROWS] + 1, register[Register.MOVE_ROWS] + 1],
                             1)


def _operands(work: np.ndarray, isa: Isa, opcode: np.ndarray, flags: np.ndarray, operands: list[np.ndarray],
              register: dict[Register, np.ndarray]) -> None:
    """Fill the columns of both operands: memory, walk and range."""
    mat_mul = opcode == Opcode.MAT_MUL
    pitches = ((Register.MAT_MUL_LOCAL_PITCH, Register.MOVE_LOCAL_PITCH),
               (Register.MAT_MUL_ACCUMULATOR_PITCH, Register.MOVE_FAR_PITCH))
    writes = _write_table()
    # Isa.address and Walk compute elementwise too.
    size: Any = work["size"].astype(np.int64)
    rows: Any = work["rows"].astype(np.int64)
    moves: Any = 1 - ((opcode == Opcode.SIMD) & _flag(Opcode.SIMD, "hold", flags))
    for index, (memory, pitch) in enumerate(zip(_memories(opcode, flags), pitches, strict=True)):
        raw: Any = operands[index]
        base, stride = isa.address(index, raw)
        if index == operand_of(Opcode.SIMD, "read_address"):
            stride = stride * moves
        pitched: Any = np.where(mat_mul, register[pitch[0]], register[pitch[1]])
        walk = Walk(base, size, stride, rows, pitched)
        work[f"memory{index}"], work[f"writes{index}"] = memory, writes[work["unit"], index, memory]
        work[f"base{index}"], work[f"stride{index}"], work[f"pitch{index}"] = walk.base, walk.stride, walk.pitch
        work[f"first{index}"], work[f"last{index}"] = walk.base, walk.last
    load = opcode == Opcode.LOAD_WEIGHT  # walks down from its last address
    work["base0"][load], work["stride0"][load] = work["last0"][load], -work["stride0"][load]


def _memories(opcode: np.ndarray, flags: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the memory of each of the two operands."""
    far = np.full(16, NO_MEMORY, np.int64)
    for flow in DataFlow:
        accesses = UNITS[UNIT_OF_FLOW[flow]].accesses
        far[flow] = next(MEMORIES.index(access.memory) for access in accesses if access.operand == 1)
    is_simd, move = opcode == Opcode.SIMD, opcode == Opcode.DATA_MOVE
    mat_mul, load = opcode == Opcode.MAT_MUL, opcode == Opcode.LOAD_WEIGHT
    zeroes = _zeroes(opcode, flags) == 1
    reads_local = (((mat_mul | load) & ~zeroes) | move | (opcode == Opcode.LOAD_LUT) | (opcode == Opcode.LOAD_SCALE)
                   | (opcode == Opcode.LOAD_ACTIVATION_TABLE))
    reads, writes = (is_simd & (_flag(Opcode.SIMD, name, flags) == 1) for name in ("read", "write"))
    first = np.select([reads_local, writes], [LOCAL, ACCUMULATORS], NO_MEMORY)
    signal = np.where(_flag(Opcode.SIGNAL, "dram1", flags), MEMORIES.index(Memory.DRAM1), MEMORIES.index(Memory.DRAM0))
    second = np.select([mat_mul | reads, move, opcode == Opcode.SIGNAL], [ACCUMULATORS, far[flags], signal], NO_MEMORY)
    return first, second


def _zeroes(opcode: np.ndarray, flags: np.ndarray) -> np.ndarray:
    """Tell whether a MatMul or LoadWeight takes zeros instead of local memory."""
    return np.select([opcode == code for code in (Opcode.MAT_MUL, Opcode.LOAD_WEIGHT)],
                     [_flag(code, "zeroes", flags) for code in (Opcode.MAT_MUL, Opcode.LOAD_WEIGHT)], 0)


def _write_table() -> np.ndarray:
    """Return [unit, operand, memory]: whether the unit writes the memory of the operand."""
    table = np.zeros((len(UNIT_NAMES), 2, len(MEMORIES) + 1), np.int8)
    for number, name in enumerate(UNIT_NAMES):
        for access in UNITS[name].accesses:
            table[number, access.operand, MEMORIES.index(access.memory)] = access.writes
    return table


def _details(work: np.ndarray, isa: Isa, opcode: np.ndarray, flags: np.ndarray, operands: list[np.ndarray]) -> None:
    """Fill the columns of flags and of SIMD arguments."""
    mat_mul, load, simd = (opcode == code for code in (Opcode.MAT_MUL, Opcode.LOAD_WEIGHT, Opcode.SIMD))
    enters = opcode == Opcode.DATA_MOVE
    work["accumulate"] = np.select(
        [mat_mul, simd, enters],
        [_flag(Opcode.MAT_MUL, "accumulate", flags), _flag(Opcode.SIMD, "accumulate", flags),
         flags == DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE], 0)
    work["zeroes"] = _zeroes(opcode, flags)
    work["zero_bias"] = load & (_flag(Opcode.LOAD_WEIGHT, "zero_bias", flags) == 1)
    work["table"] = opcode == Opcode.LOAD_LUT
    work["size"][(opcode == Opcode.LOAD_LUT) & (_field(Opcode.LOAD_LUT, "table", operands) == 0)] = KEY_ENTRIES
    sub: Any = _field(Opcode.SIMD, "sub", operands)  # unpack_sub computes elementwise too
    code, left, right, destination = isa.unpack_sub(sub)
    arguments = _argument_counts()[code]
    work["lookup"] = simd & (code == SimdOpcode.LOOKUP)
    work["left"], work["right"] = np.where(simd & (arguments > 0), left, 0), np.where(simd & (arguments > 1), right, 0)
    work["destination"] = np.where(simd & (code != SimdOpcode.NO_OP), destination, 0)


def _signals(work: np.ndarray, opcode: np.ndarray, flags: np.ndarray, operands: list[np.ndarray]) -> None:
    """Fill the columns of Signals, whose ranges are known; they pass no vectors."""
    signal, target = opcode == Opcode.SIGNAL, _field(Opcode.SIGNAL, "target", operands)
    work["size"][signal] = work["rows"][signal] = 0
    work["last1"][signal] += work["stride1"][signal] - 1  # all of the last stride
    work["waits"] = signal & (_flag(Opcode.SIGNAL, "wait", flags) == 1)
    work["counter"] = np.where(signal, target & (1 << COUNTER_WIDTH) - 1, 0)
    work["above"] = np.where(signal, target >> COUNTER_WIDTH, 0)


def _argument_counts() -> np.ndarray:
    """Return how many arguments each SIMD opcode has, 0 for numbers without an opcode."""
    counts = np.zeros(32, np.int64)
    for code in SimdOpcode:
        counts[code] = simd_argument_count(code)
    return counts


def _other_shifts(work: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """Tell whether a MatMul has another input shift than the MatMul before it. ``shift``: of every instruction."""
    mat_mul = np.flatnonzero(work["unit"] == UNIT_NAMES.index("mat_mul"))
    shifts = shift[work["instruction"][mat_mul]]
    others: np.ndarray = np.zeros(len(work), bool)
    others[mat_mul[1:]] = shifts[1:] != shifts[:-1]
    return others


def _windows(work: np.ndarray, register: dict[Register, np.ndarray]) -> np.ndarray:
    """Return where the DRAM window of each DataMove begins, in bytes. ``register``: of every instruction."""
    blocks = [register[number][work["instruction"]] for number in (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET)]
    windows = (MEMORIES.index(Memory.DRAM0), DRAM1)
    return DRAM_OFFSET_BYTES * np.select([work["memory1"] == each for each in windows], blocks, 0).astype(np.int64)


def _swaps(work: np.ndarray) -> np.ndarray:
    """Tell whether a MatMul takes over weights: the first, and each after a LoadWeight."""
    matters = np.flatnonzero((work["unit"] == UNIT_NAMES.index("mat_mul"))
                             | (work["unit"] == UNIT_NAMES.index("load_weight")))
    loads = work["unit"][matters] == UNIT_NAMES.index("load_weight")
    swaps: np.ndarray = np.zeros(len(work), bool)
    swaps[matters] = ~loads & np.concatenate([[True], loads[:-1]])[:len(loads)]
    return swaps


def _taps(work: np.ndarray, arch: Arch, register: dict[Register, np.ndarray]) -> None:
    """Fill the columns ``lag`` and ``dropped`` of depthwise passes. ``register``: of every instruction."""
    origin, dropped = (np.where(work["unit"] == UNIT_NAMES.index("mat_mul"), register[each][work["instruction"]], 0)
                       for each in (Register.TAP_ORIGIN, Register.TAP_DROPPED))
    depthwise = origin > 0
    work["lag"], work["dropped"] = (arch.row_taps - origin) * depthwise, dropped * depthwise
    if arch.kernel_rows > 1:
        _tap_rows(work, arch, depthwise, *(np.where(depthwise, register[each][work["instruction"]], 0)
                                           for each in (Register.TAP_ROWS, Register.TAP_PITCH)))


def _tap_rows(work: np.ndarray, arch: Arch, depthwise: np.ndarray, rows: np.ndarray, pitch: np.ndarray) -> None:
    """Fill the columns ``tap_rows`` and ``tap_pitch``, and let others allow for several rows of taps.

    ``rows`` and ``pitch`` [operations] are what TAP_ROWS and TAP_PITCH hold for ``depthwise`` MatMuls, else 0."""
    work["zeroes"] |= depthwise & (rows == 0)
    work["tap_rows"], work["tap_pitch"] = np.where(work["zeroes"] == 1, 0, rows), pitch
    work["last0"] += tap_span(rows) * pitch
    work["lag"] += depthwise * (arch.kernel_rows - 1)


def passed_vectors(work: np.ndarray) -> np.ndarray:
    """Return [operations]: the least cycles that each takes, one for each vector."""
    return np.asarray(work["size"].astype(np.int64) * work["rows"] + work["lag"])


def _turns(work: np.ndarray) -> np.ndarray:
    """Return the column ``turn``, given the column ``swap``."""
    loads, swaps = work["unit"] == UNIT_NAMES.index("load_weight"), work["swap"] != 0
    return np.select([loads, swaps], [np.cumsum(swaps), np.cumsum(loads)], 0)
