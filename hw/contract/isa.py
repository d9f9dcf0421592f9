# SPDX-License-Identifier: Apache-2.0
"""The instruction set of one machine: how wide its operands are; constructors, encode, decode.

An instruction is a little-endian integer of whole bytes, from the top: opcode (4), flags (4), operand 2, operand 1,
operand 0. ``instructions.py`` has the flags and fields of each opcode, ``registers.py`` the registers that Configure
sets, ``causes.py`` the reasons why a machine refuses an instruction, ``assembly.py`` instructions as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import (
    COUNT_WIDTH,
    COUNTER_WIDTH,
    OPERATIONS,
    PARAMETER_LOADS,
    SUB_REGISTERS,
    TARGET_WIDTH,
    DataFlow,
    Field,
    Instruction,
    Kind,
    Opcode,
    SimdOpcode,
    SimdSub,
    flag_bit,
)
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.register_table import output_registers, register_table
from weft.hw.contract.registers import Register, RegisterSpec
from weft.hw.contract.repeats import History, counts, expand
from weft.hw.contract.walk import encodable
from weft.support.errors import IsaError, explain


def _round_up_to_byte(bits: int) -> int:
    """Return ``bits`` rounded up to a multiple of 8."""
    return (bits + 7) // 8 * 8


class Isa:
    """The instruction set of one machine: widths, constructors, encode, decode."""

    def __init__(self, arch: Arch) -> None:
        self.arch = arch
        local, accumulator = arch.local_address_width, arch.accumulator_address_width
        dram0, dram1 = bits_to_count(arch.dram0_depth), bits_to_count(arch.dram1_depth)
        self.simd_opcode_width = 5 if arch.lut_count else 4
        self.simd_register_width = bits_to_count(arch.simd_registers_depth + 1)
        self.sub_width = self.simd_opcode_width + 3 * self.simd_register_width
        self.address_widths = (max(local, accumulator), max(local, dram0, dram1, accumulator))
        self.stride_widths = (bits_to_count(arch.stride0_depth), bits_to_count(arch.stride1_depth))
        self.size_width = max(min(local, accumulator), min(local, dram0), min(local, dram1))
        self.operand_widths = (
            _round_up_to_byte(max(self.address_widths[0] + self.stride_widths[0],
                                  TARGET_WIDTH if arch.sync_counters else 0)),
            _round_up_to_byte(max(self.address_widths[1] + self.stride_widths[1], self._parameter_width())),
            _round_up_to_byte(max(self.size_width, self.sub_width)),
        )
        self.operand_offsets = (0, self.operand_widths[0], self.operand_widths[0] + self.operand_widths[1])
        self.flags_offset = sum(self.operand_widths)
        self.opcode_offset = self.flags_offset + 4
        self.instruction_bytes = (self.opcode_offset + 4) // 8

    def _parameter_width(self) -> int:
        """Return the bits that the widest register of quantization parameters takes in a Configure."""
        parameters = {**self.arch.scheme.registers(self.arch.activation_tables), **output_registers(self.arch)}
        return max(spec.width for spec in parameters.values())

    # -- fields ----------------------------------------------------------------------------------------------------
    @cached_property
    def registers(self) -> dict[Register, RegisterSpec]:
        """The Configure registers of this machine, each with its row of the table."""
        return register_table(self.arch)

    def field_width(self, field: Field) -> int:
        """Return the bits of a field within its operand, those of its stride included."""
        if field.kind is Kind.ADDRESS:
            return self.address_widths[field.operand] + self.stride_widths[field.operand]
        widths = {Kind.SUB: self.sub_width, Kind.TARGET: TARGET_WIDTH}
        return widths.get(field.kind, self.operand_widths[field.operand])

    def used_mask(self, opcode: Opcode) -> int:
        """Return a mask of the instruction's bits that have a meaning for ``opcode``: opcode, flags, fields."""
        mask = 0xFF << self.flags_offset
        for field in OPERATIONS[opcode].fields:
            mask |= ((1 << self.field_width(field)) - 1) << self.operand_offsets[field.operand]
        return mask

    def legal_flags(self, opcode: Opcode) -> frozenset[int]:
        """Return the flag values that a stand-alone instruction of an opcode may have.

        ``hold`` is not among them: it is legal only in a loop body."""
        if opcode is Opcode.DATA_MOVE:
            return frozenset(int(flow) for flow in DataFlow)
        names = OPERATIONS[opcode].flags
        return frozenset(range(1 << len([name for name in names if name != "hold"])))

    def opcodes(self) -> tuple[Opcode, ...]:
        """Return the opcodes that this machine has."""
        absent = PARAMETER_LOADS - set(self.arch.parameter_loads)
        absent |= {Opcode.LOAD_LUT} if not self.arch.lut_count else set()
        absent |= {Opcode.SIMD_LOOP} if not self.arch.simd_loop_depth else set()
        absent |= {Opcode.REPEAT} if not self.arch.repeat_depth else set()
        absent |= {Opcode.SIGNAL} if not self.arch.sync_counters else set()
        return tuple(opcode for opcode in Opcode if opcode not in absent)

    def simd_opcodes(self) -> tuple[SimdOpcode, ...]:
        """Return the SIMD operations that this machine has: those whose number fits its field."""
        return tuple(opcode for opcode in SimdOpcode if opcode < 1 << self.simd_opcode_width)

    def address(self, operand: int, raw: int) -> tuple[int, int]:
        """Return the address and the stride [vectors] that raw operand 0 or 1 encodes."""
        width = self.address_widths[operand]
        return raw & ((1 << width) - 1), 1 << (raw >> width & ((1 << self.stride_widths[operand]) - 1))

    # -- constructors ----------------------------------------------------------------------------------------------
    # Each takes numbers, or arrays with a number for each of many instructions; then operands and flags are arrays.
    def _fit(self, what: str, value: int, width: int) -> int:
        """Return ``value`` if it fits ``width`` unsigned bits, else raise IsaError that names ``what``."""
        if isinstance(value, np.ndarray):
            for extreme in (value.min(initial=0), value.max(initial=0)):
                self._fit(what, int(extreme), width)
            return value
        if not 0 <= value < 1 << width:
            raise IsaError(explain(what, value, f"0..{(1 << width) - 1} ({width} bits)",
                                   "split the operation or enlarge the memory that sets this width"))
        return int(value)

    def _address(self, what: str, operand: int, address: int, stride: int) -> int:
        """Return the raw operand of an address with its stride. Raise IsaError if either cannot be encoded."""
        return self._fit(what, address, self.address_widths[operand]) | (
            self._stride(what, operand, stride) << self.address_widths[operand])

    def _stride(self, what: str, operand: int, stride: int) -> int:
        """Return the code of a stride. Raise IsaError if it has none."""
        if isinstance(stride, np.ndarray):
            values, places = np.unique(stride, return_inverse=True)
            return np.array([self._stride(what, operand, value) for value in values.tolist()], np.int64)[places]
        depth = (self.arch.stride0_depth, self.arch.stride1_depth)[operand]
        if not encodable(stride, depth):
            raise IsaError(explain(f"stride of {what}", stride, f"a power of two, 1..{1 << (depth - 1)}",
                                   f"use another stride or raise stride{operand}_depth"))
        return stride.bit_length() - 1

    def _size(self, what: str, operand: int, size: int) -> int:
        """Return the raw operand of a size, ``size`` - 1. Raise IsaError if it does not fit."""
        width = self.operand_widths[operand]
        if isinstance(size, np.ndarray):
            for extreme in (size.min(initial=1), size.max(initial=1)):
                self._size(what, operand, int(extreme))
        elif not 1 <= size <= 1 << width:
            raise IsaError(explain(what, size, f"1..{1 << width}", "split the operation"))
        return size - 1

    @staticmethod
    def _flags(opcode: Opcode, **flags: bool) -> int:
        """Return the flag bits of an opcode from a truth value for each flag's name."""
        return sum(value << flag_bit(opcode, name) for name, value in flags.items())

    def no_op(self) -> Instruction:
        """Return a NoOp, which does nothing."""
        return Instruction(Opcode.NO_OP)

    def mat_mul(self, local: int, accumulator: int, size: int, *, accumulate: bool = False, zeroes: bool = False,
                local_stride: int = 1, accumulator_stride: int = 1) -> Instruction:
        """Return a MatMul of ``size`` vectors from local memory into the accumulators, by the loaded weights.

        With ``accumulate`` results are added to the accumulators. With ``zeroes`` activations are zero, and none is
        read."""
        return Instruction(Opcode.MAT_MUL, self._flags(Opcode.MAT_MUL, accumulate=accumulate, zeroes=zeroes),
                           self._address("MatMul local", 0, local, local_stride),
                           self._address("MatMul accumulator", 1, accumulator, accumulator_stride),
                           self._size("MatMul size", 2, size))

    def data_move(self, flow: DataFlow, local: int, far: int, size: int, *, local_stride: int = 1,
                  far_stride: int = 1) -> Instruction:
        """Return a DataMove of ``size`` vectors between ``local``, in local memory, and ``far``.

        ``far`` is an address in DRAM0, DRAM1 or the accumulators, as the flow says."""
        return Instruction(Opcode.DATA_MOVE, +flow,
                           self._address("DataMove local", 0, local, local_stride),
                           self._address("DataMove far", 1, far, far_stride),
                           self._size("DataMove size", 2, size))

    def load_weight(self, local: int, size: int, *, zeroes: bool = False, zero_bias: bool = False,
                    local_stride: int = 1) -> Instruction:
        """Return a LoadWeight, which shifts ``size`` vectors into the array, the last address first.

        The bias row comes from ``local`` itself. With ``zeroes`` all rows are zero, with ``zero_bias`` the bias row
        is."""
        return Instruction(Opcode.LOAD_WEIGHT, self._flags(Opcode.LOAD_WEIGHT, zeroes=zeroes, zero_bias=zero_bias),
                           self._address("LoadWeight local", 0, local, local_stride),
                           self._size("LoadWeight size", 1, size))

    def simd(self, sub: SimdSub, *, read: int | None = None, write: int | None = None, accumulate: bool = False,
             hold: bool = False, read_stride: int = 1, write_stride: int = 1) -> Instruction:
        """Return a SIMD instruction that does ``sub``.

        ``read`` and ``write`` are accumulator addresses, None for no access. Strides count only in a loop."""
        flags = self._flags(Opcode.SIMD, read=read is not None, write=write is not None, accumulate=accumulate,
                            hold=hold)
        return Instruction(Opcode.SIMD, flags,
                           self._address("SIMD write address", 0, 0 if write is None else write, write_stride),
                           self._address("SIMD read address", 1, 0 if read is None else read, read_stride),
                           self.pack_sub(sub))

    def load_lut(self, local: int, table: int, *, local_stride: int = 1) -> Instruction:
        """Return a LoadLUT, which reads lookup table ``table`` of the SIMD unit from local memory."""
        return Instruction(Opcode.LOAD_LUT, 0, self._address("LoadLUT local", 0, local, local_stride),
                           self._fit("LoadLUT table", table, self.operand_widths[1]))

    def load_scale(self, local: int, *, local_stride: int = 1) -> Instruction:
        """Return a LoadScale, which reads a multiplier and a bias for each lane from local memory.

        DataMoves out of the accumulators that follow use them. It reads ``SCALE_VECTORS`` vectors."""
        return Instruction(Opcode.LOAD_SCALE, 0, self._address("LoadScale local", 0, local, local_stride))

    def load_activation_table(self, local: int, table: int, *, local_stride: int = 1) -> Instruction:
        """Return a LoadActivationTable, which reads an activation table from local memory.

        ``table``: 1..activation_tables, the number that register ACTIVATION_TABLE takes. It reads ``TABLE_ENTRIES``
        vectors."""
        return Instruction(Opcode.LOAD_ACTIVATION_TABLE, 0,
                           self._address("LoadActivationTable local", 0, local, local_stride),
                           self._fit("LoadActivationTable table", table, self.operand_widths[1]))

    def simd_loop(self, iterations: int, body: int) -> Instruction:
        """Return a SIMDLoop, which runs the ``body`` SIMD instructions that follow ``iterations`` times."""
        return Instruction(Opcode.SIMD_LOOP, 0, self._size("SIMDLoop iterations", 0, iterations),
                           self._size("SIMDLoop body", 1, body))

    def configure(self, register: Register, value: int) -> Instruction:
        """Return a Configure that sets ``register`` to ``value``; a signed register takes negative values.

        Raise IsaError if the value does not fit the operand."""
        spec = self.registers.get(register)
        if spec and spec.signed:
            value = value + (((value < 0) & (value >= -1 << spec.width - 1)) << spec.width)
        return Instruction(Opcode.CONFIGURE, 0, self._fit("Configure register", register, self.operand_widths[0]),
                           self._fit(f"Configure {Register(register).name}", value, self.operand_widths[1]))

    def repeat(self, distance: int, count: int) -> Instruction:
        """Return a Repeat, which stands for ``count`` instructions.

        They go on as the instructions did that begin ``distance`` before this one (``repeats.py``)."""
        return Instruction(Opcode.REPEAT, 0, self._size("Repeat distance", 0, distance),
                           self._size("Repeat count", 1, count))

    # -- signals between cores -------------------------------------------------------------------------------------
    def post(self, counter: int, cores: Iterable[int], first: int, size: int, *, dram1: bool = False) -> Instruction:
        """Return a Signal that adds 1 to a counter of each of ``cores``.

        It comes after every earlier access of this core to vectors ``first``..``first`` + ``size`` - 1 of DRAM0, or
        with ``dram1`` of DRAM1. No cores: it only keeps that order."""
        mask = sum(1 << self._of("core of a post", core, self.arch.cores) for core in set(cores))
        return self._signal(counter, mask, first, size, self._flags(Opcode.SIGNAL, dram1=dram1))

    def wait(self, counter: int, amount: int, first: int, size: int, *, dram1: bool = False) -> Instruction:
        """Return a Signal that waits until a counter of this core holds ``amount``, and takes that from it.

        It comes before every later access of this core to the range, as in :meth:`post`. An amount of 0 waits for
        nothing, but comes after the Signals before it."""
        return self._signal(counter, self._fit("amount of a wait", amount, COUNT_WIDTH), first, size,
                            self._flags(Opcode.SIGNAL, wait=True, dram1=dram1))

    def _signal(self, counter: int, value: int, first: int, size: int, flags: int) -> Instruction:
        """Return a Signal. A range too long for the size field counts in strides, and may then be a little longer."""
        target = value << COUNTER_WIDTH | self._of("counter", counter, self.arch.sync_counters)
        stride = 1
        while -(-size // stride) > 1 << self.operand_widths[2] and encodable(2 * stride, self.arch.stride1_depth):
            stride *= 2
        strides = -(-size // stride)
        if stride > 1:  # at the end of the memory it begins sooner instead
            depth = self.arch.dram1_depth if flags >> flag_bit(Opcode.SIGNAL, "dram1") & 1 else self.arch.dram0_depth
            first = min(first, max(depth - strides * stride, 0))
        return Instruction(Opcode.SIGNAL, flags, target, self._address("Signal range", 1, first, stride),
                           self._size("Signal size", 2, strides))

    def _of(self, what: str, number: int, count: int) -> int:
        """Return ``number`` if it is one of 0..``count`` - 1, else raise IsaError that names ``what``."""
        if not 0 <= number < count:
            raise IsaError(explain(what, number, f"0..{count - 1}" if count else "none: the machine has no counters",
                                   "use another one, or a machine with more (sync_counters, cores)"))
        return number

    # -- SIMD sub-instruction --------------------------------------------------------------------------------------
    def pack_sub(self, sub: SimdSub) -> int:
        """Return the operand of a SIMD sub-instruction; from the top: opcode, left, right, destination."""
        width = self.simd_register_width
        value = self._fit("SIMD opcode", sub.opcode, self.simd_opcode_width)
        for name in reversed(SUB_REGISTERS):
            value = value << width | self._fit(f"SIMD {name}", getattr(sub, name), width)
        return value

    def unpack_sub(self, value: int) -> tuple[int, int, int, int]:
        """Return opcode, left, right and destination of a raw sub-instruction, not checked."""
        width = self.simd_register_width
        mask = (1 << width) - 1
        return (value >> 3 * width & ((1 << self.simd_opcode_width) - 1), value >> 2 * width & mask,
                value >> width & mask, value & mask)

    # -- integers and bytes ----------------------------------------------------------------------------------------
    def encode(self, instruction: Instruction) -> int:
        """Return an instruction as an integer of ``instruction_bytes`` bytes.

        Raise IsaError if an operand is too wide."""
        value = self._fit("opcode", instruction.opcode, 4) << 4 | self._fit("flags", instruction.flags, 4)
        for operand in (2, 1, 0):
            width = self.operand_widths[operand]
            value = value << width | self._fit(f"operand {operand}", instruction.operands[operand], width)
        return value

    def decode(self, value: int) -> Instruction:
        """Return the raw instruction that an integer encodes, legal or not."""
        operands = [value >> self.operand_offsets[i] & ((1 << self.operand_widths[i]) - 1) for i in range(3)]
        return Instruction(value >> self.opcode_offset & 15, value >> self.flags_offset & 15, *operands)

    def assemble(self, program: Iterable[Instruction]) -> bytes:
        """Return the ``.tprog`` bytes of a program."""
        size = self.instruction_bytes
        return b"".join(self.encode(instruction).to_bytes(size, "little") for instruction in program)

    def assemble_words(self, words: np.ndarray) -> bytes:
        """Return the ``.tprog`` bytes of a program's words, uint64 [5, n]: opcode, flags, operand 0, 1, 2.

        They are the bytes of :meth:`assemble`, made at once. Raise IsaError if a value is too wide."""
        opcode, flags, *operands = words
        table = np.empty((words.shape[1], self.instruction_bytes), np.uint8)
        table[:, -1] = self._fit("opcode", opcode, 4) << np.uint64(4) | self._fit("flags", flags, 4)
        for number, values in enumerate(operands):
            first, width = self.operand_offsets[number] // 8, self.operand_widths[number]
            self._fit(f"operand {number}", values, width)
            of_bytes = values.astype("<u8")[:, None].view(np.uint8)
            table[:, first:first + width // 8] = of_bytes[:, :width // 8]
        return table.tobytes()

    def words(self, program: bytes) -> np.ndarray:
        """Return the words of a ``.tprog``, uint64 [5, n]: opcode, flags, operand 0, 1, 2.

        A Repeat is one word, not expanded. Raise IsaError if the program is truncated."""
        size = self.instruction_bytes
        if len(program) % size:
            raise IsaError(explain("program", f"{len(program)} bytes", f"a multiple of {size}, the bytes of one "
                                   "instruction", "check that the file is whole and made for this architecture"))
        table = np.frombuffer(program, np.uint8).reshape(-1, size)

        def number(offset: int, width: int) -> np.ndarray:
            columns = range(offset // 8, (offset + width) // 8)
            return sum((table[:, c].astype(np.uint64) << np.uint64(8 * k) for k, c in enumerate(columns)),
                       np.zeros(len(table), np.uint64))

        head = number(self.flags_offset, 8)
        operands = [number(self.operand_offsets[i], self.operand_widths[i]) for i in range(3)]
        return np.stack([head >> np.uint64(4), head & np.uint64(15), *operands])

    def split(self, program: bytes) -> np.ndarray:
        """Return the instructions that a ``.tprog`` runs, uint64 [5, n]: opcode, flags, operand 0, 1, 2.

        Repeats are expanded. Raise IsaError if the program is truncated, or stands for more than MOST_INSTRUCTIONS."""
        return _expanded(program, self.arch) if self.arch.repeat_depth else self.words(program)

    def counts(self, program: bytes) -> np.ndarray:
        """Return int64 [n]: how many instructions each word of a ``.tprog`` stands for after a reset."""
        if not self.arch.repeat_depth:
            return np.ones(len(program) // self.instruction_bytes, np.int64)
        return counts(self.words(program), self.arch.repeat_depth)

    def history(self) -> History:
        """Return the record, still empty, of earlier instructions, by which a machine expands Repeats."""
        return History(self.arch.repeat_depth, self.operand_widths[:2])

    def disassemble(self, program: bytes) -> Iterator[Instruction]:
        """Yield the instructions of a ``.tprog``, Repeats not expanded.

        Raise IsaError if the program is truncated."""
        for row in self.words(program).T.tolist():
            yield Instruction(*row)


@lru_cache(maxsize=1)
def _expanded(program: bytes, arch: Arch) -> np.ndarray:
    """Return ``Isa.split`` of a program on a machine that has Repeats.

    The latest result is kept, since several readers look at the same program."""
    isa = Isa(arch)
    table = expand(isa.words(program), arch.repeat_depth, isa.operand_widths[:2])
    table.setflags(write=False)
    return table
