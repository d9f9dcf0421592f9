# SPDX-License-Identifier: Apache-2.0
"""Check a LIR program before it is encoded.

Every range lies inside its memory, every vector was written before it is read, and no constant is overwritten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weft.compiler import lir
from weft.compiler.errors import Fault
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.compiler.memory.places import Allocation
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.register_table import tap_registers
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES, SchemeKind
from weft.hw.contract.system import System
from weft.hw.contract.walk import Walk

IN, OUT, MULTIPLIED, COMPUTED = "moved in", "moved out", "multiplied", "computed"
NOWHERE = "moved beside the accumulators"

SETTINGS: dict[SchemeKind, dict[str, tuple[str, ...]]] = {
    SchemeKind.FIXED_POINT: {IN: ("INPUT_SHIFT",), OUT: ("OUTPUT_SHIFT",), MULTIPLIED: ("INPUT_SHIFT",),
                             COMPUTED: ("INPUT_SHIFT", "OUTPUT_SHIFT"), NOWHERE: ()},
    SchemeKind.AFFINE: {IN: ("INPUT_ZERO_POINT", "INPUT_MULTIPLIER"), OUT: ("OUTPUT_SHIFT", "OUTPUT_ZERO_POINT"),
                        MULTIPLIED: ("ACTIVATION_ZERO_POINT",), COMPUTED: (), NOWHERE: ()},
}
"""The registers that each kind of operation must set, for each number scheme."""


def verify(operations: Sequence[lir.Operation], arch: Arch, written: Sequence[Allocation], const_size: int) -> None:
    """Raise Fault at the first wrong operation. ``written``: Vars that are there before the program runs."""
    checker = Verifier(arch, written, const_size)
    for number, operation in enumerate(operations):
        checker.check(number, operation)
    checker.finish(len(operations))


class Verifier:
    """The check of one core's program, operation by operation, with what it knows.

    ``valid``: by memory, which vectors were written so far. Cores that share a DRAM share its flags."""

    def __init__(self, arch: Arch, written: Sequence[Allocation], const_size: int) -> None:
        self.valid = {name: np.zeros(memory.depth, bool) for name, memory in System(arch).memories_of(core=0).items()}
        self.arch = arch
        self.const_size = const_size
        self.valid[DRAM1][:const_size] = True
        for place in written:
            self.valid[DRAM0][place.base:place.base + place.size] = True
        self.allowed = SETTINGS[arch.scheme.kind]
        if arch.depthwise_taps:
            taps = tuple(register.name for register in tap_registers(arch))
            self.allowed = {**self.allowed, MULTIPLIED: (*self.allowed[MULTIPLIED], *taps)}
        if arch.activation_tables:
            self.allowed = {**self.allowed, OUT: (*self.allowed[OUT], Register.ACTIVATION_TABLE.name)}
        self.activation_tables = {0}
        self.scaled = not arch.scheme.per_lane
        self.registers = {0}
        self.before_loop = frozenset(self.registers)
        self.loop = 0
        self.iterations = 1
        self.number = 0
        self.operation: lir.Operation

    def check(self, number: int, operation: lir.Operation) -> None:
        """Check an operation, the ``number``-th of the program."""
        self.number, self.operation = number, operation
        if self.loop and not isinstance(operation, lir.Simd):
            raise self._error("a loop body that is cut short")
        self.CHECKS[type(operation)](self, operation)

    def finish(self, count: int) -> None:
        """Raise Fault if the program ends inside a loop body."""
        if self.loop:
            raise Fault(f"operation {count}: the program ends inside a loop body")

    def _error(self, problem: str) -> Fault:
        """Return the Fault for a problem of the current operation."""
        return Fault(f"operation {self.number}, {lir.text(self.operation)}: {problem}")

    # -- ranges ----------------------------------------------------------------------------------------------------
    def _vectors(self, memory: str, walk: Walk) -> np.ndarray:
        """Return the flags of a walk's vectors, as a view [rows, size]. Raise Fault beyond the memory."""
        flags = self.valid[memory]
        if walk.size < 1 or walk.rows < 1 or walk.base < 0 or walk.last >= len(flags):
            raise self._error(f"{Address(memory, walk.base)} reaches {walk.last}, beyond {memory} of {len(flags)} "
                              "vectors")
        return np.ndarray((walk.rows, walk.size), bool, flags, walk.base, (walk.pitch, walk.stride))

    def _read(self, memory: str, walk: Walk) -> None:
        """Raise Fault if a walk reads a vector that nothing wrote."""
        if not self._vectors(memory, walk).all():
            raise self._error(f"{Address(memory, walk.base)} reads a vector that nothing wrote")

    def _write(self, memory: str, walk: Walk) -> None:
        """Mark a walk's vectors as written. Raise Fault if it overwrites a constant."""
        if memory == DRAM1 and walk.base < self.const_size:
            raise self._error(f"{Address(memory, walk.base)} overwrites a constant")
        self._vectors(memory, walk)[...] = True

    def _must_be_in(self, address: Address | None, *allowed: str) -> None:
        if address is not None and address.memory not in allowed:
            raise self._error(f"{address} must be in {' or '.join(allowed)}")

    def _settings(self, settings: lir.Settings, way: str) -> None:
        """Raise Fault unless settings have exactly the registers that the kind of operation ``way`` needs."""
        found, allowed = tuple(register.name for register, _ in settings), self.allowed[way]
        if found != allowed:
            raise self._error(f"sets {', '.join(found) or 'nothing'}; what is {way} sets "
                              f"{', '.join(allowed) or 'nothing'}")

    # -- operations ------------------------------------------------------------------------------------------------
    def _mat_mul(self, operation: lir.MatMul) -> None:
        """Check a MatMul."""
        self._must_be_in(operation.local, LOCAL)
        self._must_be_in(operation.accumulator, ACCUMULATORS)
        self._settings(operation.settings, MULTIPLIED)
        for walk in operation.read_walks:
            self._read(LOCAL, walk)
        if operation.accumulate:
            self._read(ACCUMULATORS, operation.written_walk)
        self._write(ACCUMULATORS, operation.written_walk)
        if operation.accumulator_walk.last >= self.arch.accumulator_depth:
            raise self._error(f"drops results beyond the accumulators of {self.arch.accumulator_depth} vectors")

    def _load_weight(self, operation: lir.LoadWeight) -> None:
        """Check a LoadWeight."""
        self._must_be_in(operation.local, LOCAL)
        self._read(operation.local.memory, Walk(operation.local.offset, operation.size))

    def _data_move(self, operation: lir.DataMove) -> None:
        """Check a DataMove."""
        self._must_be_in(operation.local, LOCAL)
        self._must_be_in(operation.far, DRAM0, DRAM1, ACCUMULATORS)
        inside = operation.far.memory == ACCUMULATORS
        self._settings(operation.settings, (OUT if operation.to_local else IN) if inside else NOWHERE)
        if (operation.relu and not (inside and operation.to_local)
                or operation.accumulate and not (inside and not operation.to_local)):
            raise self._error("relu goes with moves out of the accumulators, accumulate with moves into them")
        near, far = (operation.local.memory, operation.local_walk), (operation.far.memory, operation.far_walk)
        source, target = (far, near) if operation.to_local else (near, far)
        if inside and operation.to_local and not self.scaled:
            raise self._error("leaves the accumulators before a LoadScale")
        if dict(operation.settings).get(Register.ACTIVATION_TABLE, 0) not in self.activation_tables:
            raise self._error("leaves the accumulators by a table that nothing loaded")
        self._read(*source)
        if operation.accumulate:
            self._read(*target)
        self._write(*target)

    def _simd(self, operation: lir.Simd) -> None:
        """Check a SIMD operation."""
        self._settings(operation.settings, COMPUTED)
        self._must_be_in(operation.read, ACCUMULATORS)
        self._must_be_in(operation.write, ACCUMULATORS)
        count = self.iterations if self.loop else 1
        if operation.read is not None:
            self._read(operation.read.memory,
                       Walk(operation.read.offset, 1 if operation.hold else count, operation.read_stride))
        if not {operation.left, operation.right} <= self.registers:
            raise self._error("reads a SIMD register that nothing wrote")
        if operation.write is not None:
            self._write(operation.write.memory, Walk(operation.write.offset, count, operation.write_stride))
        last = operation.destination + (self.arch.lut_count if operation.opcode is SimdOpcode.LOOKUP else 0)
        if last > self.arch.simd_registers_depth:
            raise self._error(f"writes SIMD register {last} of {self.arch.simd_registers_depth}")
        self.registers.update(range(operation.destination, last + 1))
        if self.loop:
            self.loop -= 1
            if not self.loop:
                self.registers = set(self.before_loop)

    def _simd_loop(self, operation: lir.SimdLoop) -> None:
        """Check the header of a SIMD loop."""
        if not 1 <= operation.body <= self.arch.simd_loop_depth:
            raise self._error(f"a body of {operation.body}, allowed are 1..{self.arch.simd_loop_depth}")
        self.loop, self.iterations = operation.body, operation.iterations
        self.before_loop = frozenset(self.registers)

    def _load_lut(self, operation: lir.LoadLut) -> None:
        """Check a LoadLUT."""
        self._must_be_in(operation.local, LOCAL)
        if operation.table > self.arch.lut_count or operation.size != self.arch.lut_depth:
            raise self._error(f"tables are 0..{self.arch.lut_count}, of {self.arch.lut_depth} entries")
        self._read(operation.local.memory, Walk(operation.local.offset, operation.size))

    def _load_scale(self, operation: lir.LoadScale) -> None:
        """Check a LoadScale."""
        self._must_be_in(operation.local, LOCAL)
        self._read(operation.local.memory, Walk(operation.local.offset, SCALE_VECTORS))
        self.scaled = True

    def _load_activation_table(self, operation: lir.LoadActivationTable) -> None:
        """Check a LoadActivationTable."""
        self._must_be_in(operation.local, LOCAL)
        if not 1 <= operation.table <= self.arch.activation_tables:
            raise self._error(f"tables are 1..{self.arch.activation_tables}")
        self._read(operation.local.memory, Walk(operation.local.offset, TABLE_ENTRIES))
        self.activation_tables.add(operation.table)

    def _signal(self, operation: lir.Signal) -> None:
        """Check a Signal."""
        self._must_be_in(operation.far, DRAM0, DRAM1)
        self._vectors(operation.far.memory, operation.far_walk)

    CHECKS: dict[type, Callable[..., None]] = {
        lir.MatMul: _mat_mul, lir.LoadWeight: _load_weight, lir.DataMove: _data_move, lir.Simd: _simd,
        lir.SimdLoop: _simd_loop, lir.LoadLut: _load_lut, lir.LoadScale: _load_scale,
        lir.LoadActivationTable: _load_activation_table, lir.Signal: _signal,
    }
