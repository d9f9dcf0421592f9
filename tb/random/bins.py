# SPDX-License-Identifier: Apache-2.0
"""Bins count what random programs ask of a machine; a bin that stays empty is something that nobody tried.

A program is only decoded, not run. Groups of bins:

* ``size``: instruction x flags x size class x whether buses stall.
* ``hazard``: earlier unit x later unit x memory x kind, where both name an address and may be under way together.
* ``register``: register of Configure x class of its value.
* ``loop``: body x passes of a loop's body in all, as k x depth + r of the SIMD pipeline.
* ``output``: how results leave an INT8 machine: flow x rows x activation table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np

from weft.cycles.program import MEMORIES, read_program
from weft.golden.legality import first_stop
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import OPERATIONS, DataFlow, Instruction, Kind, Opcode, operand_of
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import (
    LOCAL_READ_LATENCY,
    READ_STREAM_SPARE,
    SIMD_IN_FLIGHT,
    SIMD_SLOTS,
    WRITER_VECTORS_AHEAD,
)
from weft.hw.contract.units import UNIT_NAMES, accesses, unit_names
from weft.tb.random.lockstep import Case

Bin = tuple[str, ...]
NEAR = 8
"""Operations this far apart, or less, may be under way together: more than any unit's queues hold."""
SIZES = ("1", "2", "buffer - 1", "buffer", "buffer + 1", "most", "other")
BUFFERS = {Opcode.SIMD_LOOP: SIMD_SLOTS, DataFlow.LOCAL_TO_DRAM0: WRITER_VECTORS_AHEAD,
           DataFlow.LOCAL_TO_DRAM1: WRITER_VECTORS_AHEAD}
"""What an instruction's vectors wait in, if it is not the read stream or the array: how many it holds."""
ON_CHIP = READ_STREAM_SPARE + LOCAL_READ_LATENCY
"""Rows in a read stream of local memory."""
SHIFTS = (Register.INPUT_SHIFT, Register.OUTPUT_SHIFT)
"""Registers of which machines with a fixed shift allow that one value alone."""
ROWS = (Register.MAT_MUL_ROWS, Register.MOVE_ROWS)
"""Registers whose largest value has no bin: an operation of 65 536 rows is as long as thousands of programs."""
SIZED = (Opcode.MAT_MUL, Opcode.DATA_MOVE, Opcode.LOAD_WEIGHT, Opcode.SIMD_LOOP)
KINDS = {(False, True): "write after read", (True, False): "read after write", (True, True): "write after write"}
"""Whether the earlier and the later access write -> the kind of hazard."""


# -- classes -----------------------------------------------------------------------------------------------------------
def burst_vectors(arch: Arch) -> int:
    """Return the vectors of the longest burst, at least one."""
    return max(1, arch.axi_max_burst * arch.axi_data_width // 8 // arch.vector_bytes)


def buffer_of(arch: Arch, opcode: Opcode, flags: int) -> int:
    """Return how many vectors, or iterations, of an instruction are under way at most."""
    if opcode in (Opcode.MAT_MUL, Opcode.LOAD_WEIGHT):
        return arch.array_size
    if opcode is Opcode.SIMD_LOOP:
        return BUFFERS[opcode]
    flow = DataFlow(flags)
    return burst_vectors(arch) if flow in (DataFlow.DRAM0_TO_LOCAL, DataFlow.DRAM1_TO_LOCAL) else BUFFERS.get(
        flow, ON_CHIP)


def most_of(isa: Isa, opcode: Opcode, flags: int) -> int:
    """Return the largest size that an instruction can have, with one row."""
    arch = isa.arch
    size = next(field for field in OPERATIONS[opcode].fields if field.kind is Kind.SIZE)
    fits = 1 << isa.operand_widths[size.operand]
    depths = {Opcode.MAT_MUL: (arch.local_depth, arch.accumulator_depth), Opcode.LOAD_WEIGHT: (arch.local_depth,),
              Opcode.SIMD_LOOP: (arch.accumulator_depth,)}
    if opcode is Opcode.DATA_MOVE:
        return min(fits, arch.local_depth, getattr(arch, f"{DataFlow(flags).far_memory}_depth"))
    return min(fits, *depths[opcode])


def size_classes(size: int, buffer: int, most: int) -> list[str]:
    """Return all classes that a size belongs to."""
    named = {"1": 1, "2": 2, "buffer - 1": buffer - 1, "buffer": buffer, "buffer + 1": buffer + 1, "most": most}
    return [name for name, value in named.items() if size == value] or ["other"]


def value_class(value: int, most: int) -> str:
    """Return the class of a register's value."""
    return "most" if value == most else "0" if value == 0 else "other"


def loop_class(passes: int) -> str:
    """Return a number of passes as k x depth + r, with everything in the middle of k and r put together."""
    k, r = divmod(passes, SIMD_IN_FLIGHT)
    last = SIMD_IN_FLIGHT - 1
    return f"{k if k < 3 else 'more'} x depth + {r if r < 2 else 'depth - 1' if r == last else 'some'}"


def body_class(body: int, depth: int) -> str:
    """Return the class of a loop's length."""
    return "1" if body == 1 else "most" if body == depth else "some"


# -- bins of a program -------------------------------------------------------------------------------------------------
def bins(case: Case) -> Counter[Bin]:
    """Return how often each bin occurs in what a case runs: up to its first illegal instruction."""
    isa = Isa(case.arch)
    program = isa.assemble(case.program)
    stop = first_stop(program, case.arch)
    if stop is not None:
        return Counter()
    rows = [Instruction(*row) for row in isa.split(program).T.tolist()]
    stalls = {memory: any(getattr(settings, f"stall_{channel}") for channel in ("ar", "r", "aw", "w", "b"))
              for memory, settings in case.settings().items()}
    return Counter([*_sizes(isa, rows, stalls), *_registers(isa, rows), *_loops(case.arch, rows),
                    *_outputs(case.arch, rows), *_hazards(case.arch, program)])


def _sizes(isa: Isa, rows: list[Instruction], stalls: dict[str, bool]) -> Iterator[Bin]:
    for row in rows:
        opcode = Opcode(row.opcode)
        if opcode not in SIZED:
            yield "size", OPERATIONS[opcode].name, str(row.flags), "any", _stalled(any(stalls.values()))
            continue
        field = next(field for field in OPERATIONS[opcode].fields if field.kind is Kind.SIZE)
        size = row.operands[field.operand] + 1
        far = DataFlow(row.flags).far_memory if opcode is Opcode.DATA_MOVE else ""
        stalled = stalls[far] if far in stalls else any(stalls.values())
        for each in size_classes(size, buffer_of(isa.arch, opcode, row.flags), most_of(isa, opcode, row.flags)):
            yield "size", OPERATIONS[opcode].name, str(row.flags), each, _stalled(stalled)


def _stalled(stalled: bool) -> str:
    return "stalls" if stalled else "no stalls"


def _registers(isa: Isa, rows: list[Instruction]) -> Iterator[Bin]:
    for row in rows:
        if row.opcode == Opcode.CONFIGURE:
            register = Register(row.raw("register"))
            yield "register", register.name, value_class(row.raw("value"), most_value(isa, register))


def most_value(isa: Isa, register: Register) -> int:
    """Return the largest value that a Configure can give a register."""
    width = isa.operand_widths[operand_of(Opcode.CONFIGURE, "value")]
    return min(isa.registers[register].maximum, (1 << width) - 1)


def _loops(arch: Arch, rows: list[Instruction]) -> Iterator[Bin]:
    for row in rows:
        if row.opcode == Opcode.SIMD_LOOP:
            body = row.raw("body") + 1
            yield "loop", body_class(body, arch.simd_loop_depth), loop_class(body * (row.raw("iterations") + 1))


def _outputs(arch: Arch, rows: list[Instruction]) -> Iterator[Bin]:
    table, height = 0, 1
    for row in rows:
        if row.opcode == Opcode.CONFIGURE and row.raw("register") == Register.ACTIVATION_TABLE:
            table = row.raw("value")
        if row.opcode == Opcode.CONFIGURE and row.raw("register") == Register.MOVE_ROWS:
            height = row.raw("value") + 1
        if arch.activation_tables and row.opcode == Opcode.DATA_MOVE and row.flags in (
                DataFlow.ACCUMULATOR_TO_LOCAL, DataFlow.ACCUMULATOR_TO_LOCAL_RELU):
            yield "output", DataFlow(row.flags).name, *_output(table, height, arch)


def _output(table: int, rows: int, arch: Arch) -> tuple[str, str]:
    which = "no table" if not table else "last table" if table == arch.activation_tables else "a table"
    return which, "one row" if rows == 1 else "two rows" if rows == 2 else "more rows"


def _hazards(arch: Arch, program: bytes) -> Iterator[Bin]:
    """Yield pairs of operations, at most NEAR apart, whose ranges meet; each range goes from its first to its last."""
    work = read_program(program, arch).work
    work = work[work["loop"] == 0]
    for apart in range(1, NEAR + 1):
        early, late = work[:-apart], work[apart:]
        for ours, theirs in product((0, 1), repeat=2):
            memory = early[f"memory{ours}"]
            meet = ((memory >= 0) & (memory == late[f"memory{theirs}"]) & (early["unit"] != late["unit"])
                    & (early[f"first{ours}"] <= late[f"last{theirs}"])
                    & (late[f"first{theirs}"] <= early[f"last{ours}"])
                    & ((early[f"writes{ours}"] | late[f"writes{theirs}"]) != 0))
            for k in np.flatnonzero(meet):
                kind = KINDS[bool(early[f"writes{ours}"][k]), bool(late[f"writes{theirs}"][k])]
                yield ("hazard", UNIT_NAMES[early["unit"][k]], UNIT_NAMES[late["unit"][k]], MEMORIES[memory[k]].value,
                       kind)


# -- all bins ----------------------------------------------------------------------------------------------------------
def all_bins(arch: Arch) -> list[Bin]:
    """Return every bin that some program of a machine can fall into."""
    return list(dict.fromkeys([*_all_sizes(arch), *_all_hazards(arch), *_all_registers(arch), *_all_loops(arch),
                               *_all_outputs(arch)]))


def _all_sizes(arch: Arch) -> Iterator[Bin]:
    isa = Isa(arch)
    for opcode, stalled in product(isa.opcodes(), (False, True)):
        for flags in _all_flags(isa, opcode):
            sizes = {"any"}
            if opcode in SIZED:
                buffer, most = buffer_of(arch, opcode, flags), most_of(isa, opcode, flags)
                sizes = {name for size in range(1, most + 1) for name in size_classes(size, buffer, most)}
            for size in sorted(sizes):
                yield "size", OPERATIONS[opcode].name, str(flags), size, _stalled(stalled)


def _all_flags(isa: Isa, opcode: Opcode) -> list[int]:
    """Return the legal flags of an opcode, those of a loop's body included."""
    if opcode is Opcode.SIMD and isa.arch.simd_loop_depth:
        return list(range(1 << len(OPERATIONS[opcode].flags)))
    return sorted(isa.legal_flags(opcode))


def _all_hazards(arch: Arch) -> Iterator[Bin]:
    for early, late in product(unit_names(arch), repeat=2):
        for ours, theirs in product(accesses(arch, early), accesses(arch, late)):
            if early != late and ours.memory is theirs.memory and (ours.writes or theirs.writes):
                yield "hazard", early, late, ours.memory.value, KINDS[ours.writes, theirs.writes]


def _all_registers(arch: Arch) -> Iterator[Bin]:
    isa = Isa(arch)
    for register in isa.registers:
        most, fixed = most_value(isa, register), arch.scheme.fixed_shift
        values = (fixed,) if register in SHIFTS and fixed is not None else (0, 1, most)
        for value in values[:2] if register in ROWS else values:
            yield "register", register.name, value_class(value, most)


def _all_loops(arch: Arch) -> Iterator[Bin]:
    isa = Isa(arch)
    if not arch.simd_loop_depth:
        return
    most = min(arch.accumulator_depth, 1 << isa.operand_widths[operand_of(Opcode.SIMD_LOOP, "iterations")])
    for body, iterations in product(range(1, arch.simd_loop_depth + 1), range(1, most + 1)):
        yield "loop", body_class(body, arch.simd_loop_depth), loop_class(body * iterations)


def _all_outputs(arch: Arch) -> Iterator[Bin]:
    for flow, table, rows in product((DataFlow.ACCUMULATOR_TO_LOCAL, DataFlow.ACCUMULATOR_TO_LOCAL_RELU),
                                     range(arch.activation_tables + 1), (1, 2, 3)):
        if arch.activation_tables:
            yield "output", flow.name, *_output(table, rows, arch)
