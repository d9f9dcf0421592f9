# SPDX-License-Identifier: Apache-2.0
"""Check a LIR program before it is encoded.

Every range lies inside its memory, every vector was written before it is read, and no constant is overwritten. All
operations are looked at together, as arrays; the first wrong one is named. Programs of several cores that share the
DRAMs are looked at in the order of their turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import lir
from weft.compiler.errors import Fault
from weft.compiler.lir import ACCUMULATORS, DRAM0, DRAM1, LOCAL, Address
from weft.compiler.lir_accesses import accesses_of
from weft.compiler.lir_table import ABSENT, MEMORY_NUMBERS, UNKNOWN, LirTable
from weft.compiler.memory.allocation import Allocation
from weft.cycles.native import kernel, native
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import SimdOpcode
from weft.hw.contract.register_table import output_registers, tap_registers
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SchemeKind
from weft.hw.contract.system import System

IN, OUT, MULTIPLIED, COMPUTED = "moved in", "moved out", "multiplied", "computed"
ACTIVATED = "moved out with ReLU"
NOWHERE = "moved beside the accumulators"

SETTINGS: dict[SchemeKind, dict[str, tuple[str, ...]]] = {
    SchemeKind.FIXED_POINT: {IN: ("INPUT_SHIFT",), OUT: ("OUTPUT_SHIFT",), MULTIPLIED: ("INPUT_SHIFT",),
                             COMPUTED: ("INPUT_SHIFT", "OUTPUT_SHIFT"), NOWHERE: ()},
    SchemeKind.AFFINE: {IN: ("INPUT_ZERO_POINT", "INPUT_MULTIPLIER"), OUT: ("OUTPUT_SHIFT", "OUTPUT_ZERO_POINT"),
                        MULTIPLIED: ("ACTIVATION_ZERO_POINT",), COMPUTED: (), NOWHERE: ()},
}
"""The registers that each kind of operation must set, for each number scheme."""

_NAMES = [*MEMORY_NUMBERS]
_RIGHT, _BEYOND, _UNWRITTEN, _CONSTANT = range(4)


def verify(table: LirTable, arch: Arch, written: Sequence[Allocation], const_size: int) -> None:
    """Raise Fault at the first wrong operation.

    ``written``: Vars that are there before the program runs."""
    verify_together([Program(table)], [Turn(0, 0, table.count)], arch, written, const_size)


class Program(NamedTuple):
    """A core's operations. ``name`` stands before what is said of one, "core 1, " of several cores."""

    table: LirTable
    name: str = ""


class Turn(NamedTuple):
    """Operations ``first`` to before ``end`` of a core, which run before those of the turns behind."""

    core: int
    first: int
    end: int


def verify_together(programs: Sequence[Program], turns: Sequence[Turn], arch: Arch, written: Sequence[Allocation],
                    const_size: int) -> None:
    """Raise Fault at the first wrong operation of a core, of programs [cores] that run in ``turns``.

    All operations must be in a turn. ``written``: Vars that are there before."""
    checkers = [_Checker(program, arch) for program in programs]
    for checker in checkers:
        for check in checker.CHECKS:
            check(checker)
    _check_ranges(checkers, turns, arch, written, const_size)
    for checker in checkers:
        checker.finish()


class _Checker:
    """The check of a program: ``problems`` has for wrong operations their number and what is wrong."""

    def __init__(self, program: Program, arch: Arch) -> None:
        self.table, self.name = program
        self.arch = arch
        self.depths = [memory.depth for memory in map(System(arch).memories_of(core=0).__getitem__, MEMORY_NUMBERS)]
        self.problems: list[tuple[int, str]] = []

    def finish(self) -> None:
        """Raise Fault for the first wrong operation; of its problems the one that was found first."""
        if self.problems:
            number, problem = min(self.problems, key=lambda found: found[0])
            what = f", {lir.text(self.table.operation(number))}" if number < self.table.count else ""
            raise Fault(f"{self.name}operation {number}{what}: {problem}")

    def need(self, right: np.ndarray, numbers: np.ndarray, problem: Callable[[int], str]) -> None:
        """Note the first of the operations ``numbers`` that is not ``right``; ``problem`` gets its place in both."""
        wrong = np.flatnonzero(~right)
        if len(wrong):
            self.problems.append((int(numbers[wrong[0]]), problem(int(wrong[0]))))

    # -- fields ----------------------------------------------------------------------------------------------------
    def memories(self) -> None:
        """Check in which memory each address is."""
        for kind, name, allowed in ((lir.MatMul, "local", (LOCAL,)), (lir.MatMul, "accumulator", (ACCUMULATORS,)),
                                    (lir.LoadWeight, "local", (LOCAL,)), (lir.DataMove, "local", (LOCAL,)),
                                    (lir.DataMove, "far", (DRAM0, DRAM1, ACCUMULATORS)),
                                    (lir.Simd, "read", (ACCUMULATORS,)), (lir.Simd, "write", (ACCUMULATORS,)),
                                    (lir.LoadLut, "local", (LOCAL,)), (lir.LoadScale, "local", (LOCAL,)),
                                    (lir.LoadActivationTable, "local", (LOCAL,)),
                                    (lir.Signal, "far", (DRAM0, DRAM1))):
            self._must_be_in(kind, name, allowed)

    def _must_be_in(self, kind: type, name: str, allowed: tuple[str, ...]) -> None:
        numbers, fields = self.table.of_kind(kind)
        found = getattr(fields, name).memory
        right = np.isin(found, [ABSENT, *(MEMORY_NUMBERS[memory] for memory in allowed)])
        self.need(right, numbers, lambda place: f"{getattr(self.table.operation(numbers[place]), name)} must be in "
                                                f"{' or '.join(allowed)}")

    def settings(self) -> None:
        """Check that operations set exactly the registers that operations of their kind need."""
        numbers, move = self.table.of_kind(lir.DataMove)
        inside = move.far.memory == MEMORY_NUMBERS[ACCUMULATORS]
        out = inside & (move.to_local != 0)
        for way, chosen in ((OUT, out & (move.relu == 0)), (ACTIVATED, out & (move.relu != 0)),
                            (IN, inside & (move.to_local == 0)), (NOWHERE, ~inside)):
            self._sets(way, numbers[chosen], move.settings[chosen])
        for way, kind in ((MULTIPLIED, lir.MatMul), (COMPUTED, lir.Simd)):
            numbers, fields = self.table.of_kind(kind)
            self._sets(way, numbers, fields.settings)

    def _sets(self, way: str, numbers: np.ndarray, settings: np.ndarray) -> None:
        """Check the settings of the operations ``numbers``, which are of the kind ``way``."""
        allowed = self._allowed(way)
        found = [tuple(register.name for register, _ in entry) for entry in self.table.settings]
        right = np.array([names == allowed for names in found], bool)[settings]
        self.need(right, numbers, lambda place: f"sets {', '.join(found[settings[place]]) or 'nothing'}; what is "
                                                f"{way} sets {', '.join(allowed) or 'nothing'}")

    def _allowed(self, way: str) -> tuple[str, ...]:
        """Return the registers that operations of the kind ``way`` set."""
        if way is ACTIVATED:
            return *self._allowed(OUT), *(register.name for register in output_registers(self.arch))
        allowed = SETTINGS[self.arch.scheme.kind][way]
        if way is MULTIPLIED and self.arch.depthwise_taps:
            return *allowed, *(register.name for register in tap_registers(self.arch))
        if way is OUT and self.arch.activation_tables:
            return *allowed, Register.ACTIVATION_TABLE.name
        return allowed

    def moves(self) -> None:
        """Check the flags of DataMoves, and that what leaves the accumulators has its scales and its table."""
        numbers, move = self.table.of_kind(lir.DataMove)
        inside, out = move.far.memory == MEMORY_NUMBERS[ACCUMULATORS], move.to_local != 0
        self.need(~((move.relu != 0) & ~(inside & out) | (move.accumulate != 0) & ~(inside & ~out)), numbers,
                  lambda _: "relu goes with moves out of the accumulators, accumulate with moves into them")
        if self.arch.scheme.per_lane:
            scaled = self.table.numbers[lir.LoadScale].min(initial=self.table.count)
            self.need(~(inside & out) | (numbers > scaled), numbers,
                      lambda _: "leaves the accumulators before a LoadScale")
        loads, load = self.table.of_kind(lir.LoadActivationTable)
        tables = self.table.setting(Register.ACTIVATION_TABLE)
        loaded = np.full(max(tables.max(initial=0), load.table.max(initial=0)) + 1, self.table.count)
        np.minimum.at(loaded, np.maximum(load.table, 0), loads)
        loaded[0] = -1
        self.need(loaded[tables[move.settings]] < numbers, numbers,
                  lambda _: "leaves the accumulators by a table that nothing loaded")

    def tables(self) -> None:
        """Check the tables that are loaded."""
        arch = self.arch
        numbers, lut = self.table.of_kind(lir.LoadLut)
        self.need((lut.table <= arch.lut_count) & (lut.size == arch.lut_depth), numbers,
                  lambda _: f"tables are 0..{arch.lut_count}, of {arch.lut_depth} entries")
        numbers, load = self.table.of_kind(lir.LoadActivationTable)
        self.need((load.table >= 1) & (load.table <= arch.activation_tables), numbers,
                  lambda _: f"tables are 1..{arch.activation_tables}")

    # -- the SIMD unit ---------------------------------------------------------------------------------------------
    def loops(self) -> None:
        """Check that each SIMD loop has its whole body."""
        numbers, head = self.table.of_kind(lir.SimdLoop)
        self.need((head.body >= 1) & (head.body <= self.arch.simd_loop_depth), numbers,
                  lambda place: f"a body of {head.body[place]}, allowed are 1..{self.arch.simd_loop_depth}")
        others = np.ones(self.table.count + 1, bool)
        others[self.table.numbers[lir.Simd]] = False
        others = np.flatnonzero(others)  # and the program's end
        ends = others[np.searchsorted(others, numbers, side="right")] if len(numbers) else numbers
        self.need(ends - numbers > head.body, ends, lambda place: "a loop body that is cut short"
                  if ends[place] < self.table.count else "the program ends inside a loop body")

    def registers(self) -> None:
        """Check that SIMD registers are there, and were written before they are read."""
        numbers, simd = self.table.of_kind(lir.Simd)
        depth = self.arch.simd_registers_depth
        last = simd.destination + np.where(simd.opcode == SimdOpcode.LOOKUP, self.arch.lut_count, 0)
        self.need(last <= depth, numbers, lambda place: f"writes SIMD register {last[place]} of {depth}")
        inside, _ = self.table.loops()
        heads = np.searchsorted(self.table.numbers[lir.SimdLoop], numbers)
        loop = np.where(inside, heads, 0)
        most = max(last.max(initial=0), simd.left.max(initial=0), simd.right.max(initial=0))
        known = np.arange(most + 1) == 0
        right = np.ones(len(last), bool)
        _written_registers(*map(np.ascontiguousarray, (simd.left, simd.right, simd.destination, last, loop)), known,
                           known.copy(), right)
        self.need(right, numbers, lambda _: "reads a SIMD register that nothing wrote")

    # -- ranges ----------------------------------------------------------------------------------------------------
    def dropped(self) -> None:
        """Check that results which a depthwise pass drops have accumulators too."""
        numbers, entry = self.table.of_kind(lir.MatMul)
        last = (entry.accumulator.offset + (entry.size - 1) * entry.accumulator_stride
                + (entry.rows - 1) * entry.accumulator_pitch)
        self.need(last < self.arch.accumulator_depth, numbers, lambda _: "drops results beyond the accumulators of "
                                                                         f"{self.arch.accumulator_depth} vectors")

    def signals(self) -> None:
        """Check that posts and waits are ordered with vectors that are there."""
        numbers, signal = self.table.of_kind(lir.Signal)
        depth = np.array([*self.depths, 0])[signal.far.memory]
        self.need((signal.size >= 1) & (signal.far.offset >= 0) & (signal.far.offset + signal.size <= depth), numbers,
                  lambda place: f"is ordered with {signal.size[place]} vectors, of {depth[place]}")

    def note(self, access: np.void, memory: str, wrong: int) -> None:
        """Note a problem of an access, one of _BEYOND, _UNWRITTEN and _CONSTANT."""
        last = access["base"] + (access["size"] - 1) * access["stride"] + (access["rows"] - 1) * access["pitch"]
        words = {_BEYOND: f"reaches {last}, beyond {memory} of {self.depths[MEMORY_NUMBERS[memory]]} vectors",
                 _UNWRITTEN: "reads a vector that nothing wrote", _CONSTANT: "overwrites a constant"}
        self.problems.append((int(access["operation"]), f"{Address(memory, access['base'])} {words[wrong]}"))

    CHECKS: tuple[Callable[[Any], None], ...] = (loops, memories, settings, moves, tables, dropped, signals, registers)


# -- what all cores read and write -------------------------------------------------------------------------------------
def _check_ranges(checkers: Sequence[_Checker], turns: Sequence[Turn], arch: Arch, written: Sequence[Allocation],
                  const_size: int) -> None:
    """Note the first wrong walk: one beyond its memory, of vectors that nothing wrote, or over a constant.

    Memory m of core c has the number c * len(MEMORY_NUMBERS) + m; all cores have the DRAMs of core 0."""
    dram0, dram1 = MEMORY_NUMBERS[DRAM0], MEMORY_NUMBERS[DRAM1]
    own = [memory not in (dram0, dram1) for memory in MEMORY_NUMBERS.values()]
    depths = [*checkers[0].depths, *np.tile(np.where(own, checkers[0].depths, 0), len(checkers) - 1)]
    bases = np.cumsum([0, *depths])
    valid = np.zeros(bases[-1], np.bool_)
    valid[bases[dram1]:bases[dram1] + const_size] = True
    for place in written:
        valid[bases[dram0] + place.base:bases[dram0] + place.base + place.size] = True
    tables = [accesses_of(checker.table) for checker in checkers]
    tables = [accesses[accesses["memory"] < UNKNOWN] for accesses in tables]
    for core, accesses in enumerate(tables):
        accesses["memory"] += np.where(own, core * len(own), 0)[accesses["memory"]]
    spans = [(turn.core, *np.searchsorted(tables[turn.core]["operation"], (turn.first, turn.end))) for turn in turns]
    together = np.concatenate([tables[core][first:end] for core, first, end in spans])
    cores = np.repeat([core for core, _, _ in spans], [end - first for _, first, end in spans])
    wrong = np.zeros(1, np.int64)
    number = _first_wrong(together, bases, valid, dram1, const_size, wrong)
    if number >= 0:
        access = together[number]
        checkers[cores[number]].note(access, _NAMES[access["memory"] % len(own)], int(wrong[0]))


@kernel
def _wrong(access, bases, valid, constants, const_size):  # type: ignore
    """Return the faults of an access, and mark the vectors that it writes."""
    memory, size, rows, base = access["memory"], access["size"], access["rows"], access["base"]
    if access["writes"] and memory == constants and base < const_size:
        return _CONSTANT
    last = base + (size - 1) * access["stride"] + (rows - 1) * access["pitch"]
    if size < 1 or rows < 1 or base < 0 or last >= bases[memory + 1] - bases[memory]:
        return _BEYOND
    for row in range(rows):
        vector = bases[memory] + base + row * access["pitch"]
        for _ in range(size):
            if access["writes"]:
                valid[vector] = True
            elif not valid[vector]:
                return _UNWRITTEN
            vector += access["stride"]
    return _RIGHT


@native
def _first_wrong(accesses, bases, valid, constants, const_size, wrong):  # type: ignore
    """Return the number of the first wrong access, or -1; write what is wrong to ``wrong[0]``.

    ``valid`` has a flag for each vector of all memories, which begin at ``bases``: whether it was written. Memory
    number ``constants`` begins with ``const_size`` constants."""
    for place in range(len(accesses)):
        access = accesses[place]
        wrong[0] = _wrong(access, bases, valid, constants, const_size)
        if wrong[0] != _RIGHT:
            return place
    return -1


@native
def _written_registers(left, right, first, last, loop, known, before, found):  # type: ignore
    """Write to ``found`` for each SIMD operation whether the registers that it reads were written.

    It reads ``left`` and ``right`` and writes ``first`` to ``last``. ``loop`` is 0 outside of loops and else the loop's
    number; what a body writes counts only in it. ``known`` [registers] has at first those that the machine sets;
    ``before`` is as long."""
    within = 0
    for place in range(len(left)):
        if loop[place] != within:
            if within:
                for register in range(len(known)):
                    known[register] = before[register]
            within = loop[place]
            for register in range(len(known)):
                before[register] = known[register]
        found[place] = known[left[place]] and known[right[place]]
        known[first[place]:last[place] + 1] = True
