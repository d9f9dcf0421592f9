# SPDX-License-Identifier: Apache-2.0
"""The golden machine: the memory that a program leaves when its instructions run one after another.

This is the definition the hardware is compared with (docs/machine/README.md, docs/decisions/meaning-of-programs.md).
``EXECUTE`` names one small method per instruction. ``decode`` says what an instruction names, ``check`` whether it is
legal, ``simd`` and ``alu`` compute the SIMD unit's results, ``dram`` is the memory behind a DRAM port."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.golden import simd
from weft.golden.check import Checker, MachineStop
from weft.golden.decode import (
    Configure,
    DataMove,
    Decoder,
    Depthwise,
    LoadActivationTable,
    LoadLut,
    LoadScale,
    LoadWeight,
    MatMul,
    NoOp,
    Signal,
    Simd,
    SimdLoop,
)
from weft.golden.dram import Dram
from weft.golden.sync import SyncCounters
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction
from weft.hw.contract.isa import Isa
from weft.hw.contract.numerics import integer_dtype
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES, InputRescale, OutputRescale
from weft.hw.contract.walk import Walk
from weft.support.errors import WeftError, explain

PROGRESS_INSTRUCTIONS = 1000
PIECE_WORDS = 1 << 16
"""The words of a program that are taken apart at once; each takes some hundred bytes."""
PROGRAM_COUNTERS = 1 << 32


class Machine:
    """All state of one machine, zero after power-up. Memories are arrays [depth, lanes] of signed integers.

    ``weights`` row 0 is the bias, row 1 + i belongs to lane i of the input; ``luts`` table 0 holds the keys; ``scales``
    are the bytes of LoadScale, ``activation_tables`` [tables, entries, lanes] of LoadActivationTable, table 1 first.
    ``registers`` hold the decoded values of Configure registers. ``core``: which of several cores it is, ``sync`` their
    counters."""

    def __init__(self, arch: Arch, dram0: Dram | None = None, dram1: Dram | None = None, core: int = 0,
                 sync: SyncCounters | None = None) -> None:
        self.arch, self.isa, self.core, self.sync = arch, Isa(arch), core, sync or SyncCounters(arch)
        lanes = arch.array_size
        self.drams = {"dram0": dram0 or Dram(arch), "dram1": dram1 or Dram(arch)}
        self.local = np.zeros((arch.local_depth, lanes), np.int64)
        self.accumulators: np.ndarray = np.zeros((arch.accumulator_depth, lanes), integer_dtype(arch.accumulator_bits))
        self.weights = np.zeros((lanes + 1, lanes), np.int64)
        self._no_bias = arch.scheme.rescale_bias(self.weights[0], 0)
        self.simd_registers = np.zeros((arch.simd_registers_depth, lanes), np.int64)
        self.luts = np.zeros((arch.lut_count + 1, arch.lut_depth, lanes), np.int64)
        self.scales = np.zeros((SCALE_VECTORS, lanes), np.int64)
        self.activation_tables = np.zeros((arch.activation_tables, TABLE_ENTRIES, lanes), np.int64)
        self.registers: dict[Register, int] = {}
        self.program_counter = 0
        self.instruction_count = 0
        """Instructions that have run."""
        self.saturated: Counter[int] = Counter()
        """Numbers that saturated as they left the accumulators, by how many instructions had run before."""
        self.stopped: MachineStop | None = None
        self._loop: tuple[SimdLoop, list[Simd]] | None = None
        self._history = self.isa.history()
        self._checker = Checker(self.isa, Decoder(self.isa, self.registers))
        self._reset_registers()

    @property
    def dram0(self) -> Dram:
        """The memory behind DRAM port 0."""
        return self.drams["dram0"]

    @property
    def dram1(self) -> Dram:
        """The memory behind DRAM port 1."""
        return self.drams["dram1"]

    def soft_reset(self) -> None:
        """Clear registers, counters, an unfinished loop and the error; memories, weights, tables and scales stay."""
        self._reset_registers()
        self.simd_registers[...] = 0
        self.stopped = self._loop = None
        self._history = self.isa.history()
        self.program_counter = 0
        self.sync.values[self.core] = 0

    def _reset_registers(self) -> None:
        """Set all Configure registers to their reset values."""
        self.registers.update({register: spec.reset for register, spec in self.isa.registers.items()})

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, program: bytes, progress: Callable[[int, int], None] | None = None) -> None:
        """Run a ``.tprog``. ``progress(done, total)`` is called now and then.

        Raise MachineStop at an illegal instruction, and again until :meth:`soft_reset`. Raise IsaError, before anything
        runs, if Repeats make more instructions than tools take, WeftError at a wait that no other core can fill. A loop
        body may continue in the next program."""
        total = self.count(program)
        for done, ran in enumerate(self.steps(program)):
            if progress and done % PROGRESS_INSTRUCTIONS == 0:
                progress(done, total)
            if not ran:
                raise WeftError(explain(f"instruction {self.program_counter}", "a wait whose counter is not filled",
                                        "posts of other cores", "run the programs of all cores together"))
        if progress:
            progress(total, total)

    def count(self, program: bytes) -> int:
        """Return how many instructions the next program stands for; raise IsaError if they are more than tools take."""
        return int(self._history.counts(self.isa.words(program)).sum())

    def steps(self, program: bytes) -> Iterator[bool]:
        """Run the next program step by step: an instruction each, and True, or False where a wait is not filled."""
        for first in range(0, len(program), PIECE_WORDS * self.isa.instruction_bytes):
            piece = program[first:first + PIECE_WORDS * self.isa.instruction_bytes]
            for word in self.isa.words(piece).T.tolist():
                for instruction in self._history.expand(Instruction(*word)):
                    while not self.step(instruction):
                        yield False
                    yield True

    def step(self, instruction: Instruction) -> bool:
        """Check and run one instruction; a Repeat must have been expanded, or is refused.

        Tell whether it ran: False for a wait whose counter is not filled, which changes nothing."""
        if self.stopped:
            raise self.stopped
        operation = self._checker.check(instruction, self._loop[0].iterations if self._loop else None)
        if isinstance(operation, Cause):
            self.stopped = MachineStop(operation, self.program_counter, instruction_text(self.isa, instruction),
                                       self._checker.allowed(operation))
            raise self.stopped
        if isinstance(operation, Signal) and not self.sync.signal(self.core, operation):
            return False
        self.program_counter = (self.program_counter + 1) % PROGRAM_COUNTERS
        self.instruction_count += 1
        EXECUTE[type(operation)](self, operation)
        return True

    # -- ways into and out of the accumulators ---------------------------------------------------------------------
    def requantize(self, values: np.ndarray) -> np.ndarray:
        """Return accumulator values as int64 scalars, as the SIMD unit reads them."""
        return self.arch.scheme.requantize(values, self.registers[Register.OUTPUT_SHIFT]).astype(np.int64)

    def count_saturated(self, values: np.ndarray, scalars: np.ndarray, requantization: OutputRescale,
                        relu: bool = False) -> None:
        """Count the accumulator values that saturated when they became ``scalars``, for the current instruction."""
        number = self.arch.number
        inside = scalars.max(initial=0) < number.maximum and scalars.min(initial=0) > number.minimum
        if inside and requantization.table is None and not requantization.slope:
            return
        count = int(self.arch.scheme.is_cut(values, requantization, relu).sum())
        if count:
            self.saturated[self.instruction_count - 1] += count

    def rescale_input(self, scalars: np.ndarray) -> np.ndarray:
        """Return scalars as accumulator values, as the SIMD unit writes them."""
        return self.arch.scheme.rescale_input(scalars, self._register(Register.INPUT_SHIFT))

    def _register(self, register: Register, absent: int = 0) -> int:
        """Return a register's value, ``absent`` on machines without it."""
        return self.registers.get(register, absent)

    def store(self, where: slice | int | np.ndarray, values: np.ndarray, accumulate: bool) -> None:
        """Overwrite accumulators or add to them, with one saturation; ``where`` may name no address twice."""
        numbers = self.arch.scheme
        self.accumulators[where] = (numbers.accumulate(self.accumulators[where], values) if accumulate
                                    else numbers.store(values))

    # -- one method per instruction --------------------------------------------------------------------------------
    def no_op(self, operation: NoOp) -> None:
        """Do nothing."""
        pass

    def mat_mul(self, operation: MatMul) -> None:
        """Run a MatMul."""
        walk = operation.accumulator
        values = self._column_sums(operation.local, walk.size * walk.rows)
        parts = [*walk.parts()]
        for where, part in zip(parts, values.reshape(len(parts), -1, values.shape[1]), strict=True):
            self.store(where, part, operation.accumulate)

    def _column_sums(self, local: Walk | None, size: int) -> np.ndarray:
        """Return bias plus input times weights for each vector; the bias alone for zero input."""
        bias = self._bias()
        if local is None:
            return np.broadcast_to(bias, (size, len(bias)))
        parts = [self._activations(where) for where in local.parts()]
        activations = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self.arch.scheme.mac(activations, self.weights[1:], bias)

    def _bias(self) -> np.ndarray:
        """Return what the sums of columns start from: mostly zeros, which are so at any point."""
        bias = self.weights[0]
        if not bias.any():
            return self._no_bias
        return self.arch.scheme.rescale_bias(bias, self._register(Register.INPUT_SHIFT))

    def depthwise(self, operation: Depthwise) -> None:
        """Run a depthwise pass: each lane's sum over the taps of its neighbours.

        These lie in the row, and in the rows below it that count. Beyond a row neighbours are zero."""
        walk = operation.accumulator
        bias = self._bias()
        met = {row: source.slices() for row in operation.rows if (source := operation.met(row)) is not None}
        for where in walk.slices():
            rows = np.zeros((self.arch.kernel_rows, walk.size, len(bias)), np.int64)
            for row, sources in met.items():
                rows[row] = self._activations(next(sources))
            values = self._tap_sums(rows, operation.origin, bias)
            written = max(0, walk.size - operation.dropped)
            self.store(slice(where.start, where.start + written * walk.stride, walk.stride), values[:written],
                       operation.accumulate)

    def _tap_sums(self, rows: np.ndarray, origin: int, bias: np.ndarray) -> np.ndarray:
        """Return the sums [size, lanes] of what each row of taps meets, ``rows`` [kernel rows, size, lanes].

        A tap has ``tap_rows`` rows of weights, and each of as many adjacent lanes has one of them: all of them add to
        all of these lanes. The last tap's rows come first."""
        taps, sides, size = self.arch.row_taps, self.arch.tap_rows, rows.shape[1]
        beyond = np.pad(rows, ((0, 0), (origin, taps - 1 - origin), (0, 0)))
        sums = np.empty((size, len(bias)), bias.dtype)
        for lane in range(len(bias)):
            first = lane // sides * sides
            met = [row[tap:tap + size, first + side] for row in beyond
                   for tap in reversed(range(taps)) for side in range(sides)]
            sums[:, lane] = self.arch.scheme.mac(np.stack(met, axis=1), self.weights[1:1 + len(met), lane:lane + 1],
                                                 bias[lane:lane + 1])[:, 0]
        return sums

    def _activations(self, where: slice | np.ndarray) -> np.ndarray:
        """Return vectors of local memory as activations, without their zero point."""
        return self.arch.scheme.activations(self.local[where], self._register(Register.ACTIVATION_ZERO_POINT))

    def data_move(self, operation: DataMove) -> None:
        """Run a DataMove."""
        move = MOVE[operation.flow]
        for local, far in zip(operation.local.slices(), operation.far.slices(), strict=True):
            move(self, operation.flow, local, far)

    def _from_dram(self, flow: DataFlow, local: slice, far: slice) -> None:
        """Copy a row of vectors from a DRAM to local memory."""
        dram, offset = self._dram(flow)
        self.local[local] = dram.read(far.start, len(range(far.start, far.stop, far.step)), offset, far.step)

    def _to_dram(self, flow: DataFlow, local: slice, far: slice) -> None:
        """Copy a row of vectors from local memory to a DRAM."""
        dram, offset = self._dram(flow)
        dram.write(far.start, self.local[local], offset, far.step)

    def _dram(self, flow: DataFlow) -> tuple[Dram, int]:
        """Return the memory of a data flow, and the block where its window starts."""
        offset = Register.DRAM0_OFFSET if flow.far_memory == "dram0" else Register.DRAM1_OFFSET
        return self.drams[flow.far_memory], self.registers[offset]

    def _from_accumulators(self, flow: DataFlow, local: slice, far: slice) -> None:
        """Requantize a row of accumulators into local memory."""
        table = self._register(Register.ACTIVATION_TABLE)
        requantization = OutputRescale(
            self._register(Register.OUTPUT_SHIFT), self._register(Register.OUTPUT_ZERO_POINT), self.scales,
            self.activation_tables[table - 1] if table else None, self._register(Register.OUTPUT_SLOPE),
            self.registers.get(Register.OUTPUT_MAXIMUM))
        relu = flow is DataFlow.ACCUMULATOR_TO_LOCAL_RELU
        values = self.accumulators[far]
        scalars = self.arch.scheme.move_out(values, requantization, relu)
        self.count_saturated(values, scalars, requantization, relu)
        self.local[local] = scalars

    def _to_accumulators(self, flow: DataFlow, local: slice, far: slice) -> None:
        """Rescale a row of vectors of local memory into the accumulators."""
        rescaling = InputRescale(self._register(Register.INPUT_SHIFT), self._register(Register.INPUT_ZERO_POINT),
                            self._register(Register.INPUT_MULTIPLIER, 1))
        values = self.arch.scheme.move_in(self.local[local], rescaling)
        self.store(far, values, flow is DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE)

    def load_weight(self, operation: LoadWeight) -> None:
        """Run a LoadWeight: shift rows in from the bias' end, the lowest address last."""
        if operation.local is None:
            rows = np.zeros((min(operation.size, len(self.weights)), self.arch.array_size), np.int64)
        else:
            where, = operation.local.slices()
            rows = self.local[where]
        bias = [np.zeros((1, self.arch.array_size), np.int64)] if operation.zero_bias else []
        self.weights = np.concatenate([*bias, rows, self.weights])[:len(self.weights)]

    def simd(self, operation: Simd) -> None:
        """Run a SIMD instruction, or collect it if a loop's body is not complete."""
        if self._loop is None:
            simd.run_once(self, operation, self.simd_registers)
            return
        loop, body = self._loop
        body.append(operation)
        if len(body) == loop.body:
            simd.run_loop(self, loop.iterations, body)
            self._loop = None

    def simd_loop(self, operation: SimdLoop) -> None:
        """Begin a SIMD loop."""
        self._loop = operation, []

    def load_lut(self, operation: LoadLut) -> None:
        """Run a LoadLUT."""
        for where in operation.local.slices():
            self.luts[operation.table] = self.local[where]

    def load_scale(self, operation: LoadScale) -> None:
        """Run a LoadScale."""
        for where in operation.local.slices():
            self.scales = self.local[where].copy()

    def load_activation_table(self, operation: LoadActivationTable) -> None:
        """Run a LoadActivationTable."""
        for where in operation.local.slices():
            self.activation_tables[operation.table - 1] = self.local[where]

    def signal(self, operation: Signal) -> None:
        """Do nothing more: the counters have changed, and instructions of a core run in order anyway."""

    def configure(self, operation: Configure) -> None:
        """Run a Configure."""
        register = Register(operation.register)
        self.registers[register] = self.isa.registers[register].value(operation.value)
        if register is Register.PROGRAM_COUNTER:
            self.program_counter = operation.value


MOVE: dict[DataFlow, Callable[[Machine, DataFlow, slice, slice], None]] = {
    DataFlow.DRAM0_TO_LOCAL: Machine._from_dram,
    DataFlow.LOCAL_TO_DRAM0: Machine._to_dram,
    DataFlow.DRAM1_TO_LOCAL: Machine._from_dram,
    DataFlow.LOCAL_TO_DRAM1: Machine._to_dram,
    DataFlow.ACCUMULATOR_TO_LOCAL: Machine._from_accumulators,
    DataFlow.LOCAL_TO_ACCUMULATOR: Machine._to_accumulators,
    DataFlow.ACCUMULATOR_TO_LOCAL_RELU: Machine._from_accumulators,
    DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE: Machine._to_accumulators,
}

EXECUTE: dict[type, Callable[[Machine, Any], None]] = {
    NoOp: Machine.no_op,
    MatMul: Machine.mat_mul,
    Depthwise: Machine.depthwise,
    DataMove: Machine.data_move,
    LoadWeight: Machine.load_weight,
    Simd: Machine.simd,
    SimdLoop: Machine.simd_loop,
    LoadLut: Machine.load_lut,
    LoadScale: Machine.load_scale,
    LoadActivationTable: Machine.load_activation_table,
    Signal: Machine.signal,
    Configure: Machine.configure,
}
