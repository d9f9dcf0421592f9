# SPDX-License-Identifier: Apache-2.0
"""Seeded random programs of several cores on the same ranges of DRAM, with just the Signals that put them in order.

Random programs are dealt out to cores in random pieces, one instruction at a time. Where an access would have no order
with an earlier one of another core, a post goes behind what that core has done so far, and a wait in front of the
access. Which accesses have an order is found here once more, in the simplest way: nothing of ``golden`` is asked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.tb.random.dump_program import default_offset_blocks, dump_program
from weft.tb.random.random_program import random_program
from weft.tb.random.random_system import OFFSETS, WINDOW_BLOCKS

FAR_FLOWS = 4
"""DataMoves of a lower flow are from or to a DRAM."""
NOISE = 0.06
"""The chance of a post and a wait that nobody asked for, before an instruction."""


@dataclass(frozen=True)
class _Access:
    """Vectors of a DRAM that an instruction of a core touches, with all between the first and the last of them."""

    core: int
    at: int
    dram1: bool
    writes: bool
    vectors: frozenset[int]

    @property
    def first(self) -> int:
        return min(self.vectors)

    @property
    def last(self) -> int:
        return max(self.vectors)


@dataclass(frozen=True)
class _Sent:
    """A Signal: its place in its core's program, its range, and how many Signals of each core it surely comes after."""

    at: int
    dram1: bool
    first: int
    last: int
    clock: tuple[int, ...]

    def meets(self, access: _Access) -> bool:
        return self.dram1 == access.dram1 and self.first <= access.last and access.first <= self.last


@dataclass(frozen=True)
class Link:
    """A post and the wait that it fills, each as core and place in its program."""

    post: tuple[int, int]
    wait: tuple[int, int]
    needed: bool


@dataclass
class SignalledPrograms:
    """A program for each core; ``links``: all posts and waits. Those that are ``needed`` order some two accesses."""

    programs: list[list[Instruction]]
    links: list[Link]

    def without(self, link: Link) -> list[list[Instruction]]:
        """Return the programs with a post and its wait left out."""
        gone = {link.post, link.wait}
        return [[each for at, each in enumerate(program) if (core, at) not in gone]
                for core, program in enumerate(self.programs)]


@dataclass
class _Maker:
    arch: Arch
    random: random.Random
    programs: list[list[Instruction]]
    sent: list[list[_Sent]]
    accesses: list[_Access] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.isa = Isa(self.arch)
        reset = {register: spec.reset for register, spec in self.isa.registers.items()}
        self.registers = [dict(reset) for _ in self.programs]

    def add(self, core: int, instruction: Instruction) -> None:
        """Append an instruction, in front of it whatever it needs to be in order with all accesses so far."""
        if self.random.random() < NOISE:
            other = self.random.choice([each for each in range(len(self.programs)) if each != core])
            first = self.random.randrange(self.arch.dram0_depth - 9)
            self.link(other, core, (False, first, first + 8), (False, first, first + 8), needed=False)
        access = self.access(core, instruction)
        if access:
            count = len(self.links)
            for other in range(len(self.programs)):
                earlier = [each for each in self.accesses if self.is_race(each, access) and each.core == other]
                if earlier:
                    ranges = [(access.dram1, min(each.first for each in found), max(each.last for each in found))
                              for found in (earlier, [access])]
                    self.link(other, core, *(self.some(*each) for each in ranges), needed=True)
                    assert not any(self.is_race(each, access) for each in earlier)
            # What a later one of these links brings may have made an earlier one needless.
            self.links[count:-1] = [replace(link, needed=False) for link in self.links[count:-1]]
            self.accesses.append(replace(access, at=len(self.programs[core])))
        if instruction.opcode == Opcode.CONFIGURE:
            self.registers[core][Register(instruction.operand0)] = instruction.operand1
        self.programs[core].append(instruction)

    def some(self, dram1: bool, first: int, last: int) -> tuple[bool, int, int]:
        """Return a range, or now and then a larger one."""
        depth = self.arch.dram1_depth if dram1 else self.arch.dram0_depth
        more = self.random.choice([0, 0, 1, 20])
        return dram1, max(0, first - more), min(depth - 1, last + more)

    def access(self, core: int, instruction: Instruction) -> _Access | None:
        if instruction.opcode != Opcode.DATA_MOVE or instruction.flags >= FAR_FLOWS:
            return None
        base, stride = self.isa.address(1, instruction.operand1)
        rows, pitch = (self.registers[core][register] for register in (Register.MOVE_ROWS, Register.MOVE_FAR_PITCH))
        vectors = frozenset(base + row * pitch + place * stride for row in range(rows + 1)
                            for place in range(instruction.operand2 + 1))
        flow = DataFlow(instruction.flags)
        return _Access(core, len(self.programs[core]), flow.far_memory == "dram1",
                       flow in (DataFlow.LOCAL_TO_DRAM0, DataFlow.LOCAL_TO_DRAM1), vectors)

    def is_race(self, earlier: _Access, access: _Access) -> bool:
        """Tell whether an access and one to be added next are in no order, though one writes what both touch."""
        if (earlier.core == access.core or earlier.dram1 != access.dram1
                or not (earlier.writes or access.writes) or not earlier.vectors & access.vectors):
            return False
        behind = [number for number, each in enumerate(self.sent[earlier.core])
                  if each.at > earlier.at and each.meets(earlier)]
        before = [each for each in self.sent[access.core] if each.meets(access)]
        return not behind or not before or before[-1].clock[earlier.core] <= behind[0]

    def link(self, poster: int, waiter: int, posted: tuple[bool, int, int], waited: tuple[bool, int, int], *,
             needed: bool) -> None:
        """Append a post to one core and the wait for it to another; each pair of cores has a counter of its own."""
        dram1, first, last = posted
        clock = self.clock(poster)
        self.sent[poster].append(_Sent(len(self.programs[poster]), dram1, first, last, clock))
        post = poster, len(self.programs[poster])
        self.programs[poster].append(self.isa.post(poster, [waiter], first, last - first + 1, dram1=dram1))
        dram1, first, last = waited
        joined = tuple(map(max, self.clock(waiter), clock))
        self.sent[waiter].append(_Sent(len(self.programs[waiter]), dram1, first, last, joined))
        self.links.append(Link(post, (waiter, len(self.programs[waiter])), needed))
        self.programs[waiter].append(self.isa.wait(poster, 1, first, last - first + 1, dram1=dram1))

    def clock(self, core: int) -> tuple[int, ...]:
        """Return the clock of a core's next Signal, as far as the core itself knows."""
        before = self.sent[core][-1].clock if self.sent[core] else (0,) * len(self.programs)
        return (*before[:core], len(self.sent[core]) + 1, *before[core + 1:])


def signalled_programs(arch: Arch, seed: int, length: int) -> SignalledPrograms:
    """Return programs of some ``length`` instructions for all cores, of a machine with a counter for each core.

    What each core holds at the end is in blocks of its own of DRAM1."""
    assert arch.sync_counters >= arch.cores > 1
    rng, isa = random.Random(seed), Isa(arch)
    left = [_units(isa, random_program(arch, seed * arch.cores + core, length)) for core in range(arch.cores)]
    maker = _Maker(arch, rng, [[] for _ in left], [[] for _ in left])
    going = list(range(arch.cores))
    while going:
        core = rng.choice(going)
        for _ in range(rng.randint(1, 6)):
            unit = next(left[core], None)
            if unit is None:
                going.remove(core)
                break
            for place, instruction in enumerate(unit):
                if place:
                    maker.programs[core].append(instruction)
                else:
                    maker.add(core, instruction)
    for core, program in enumerate(maker.programs):
        program += dump_program(arch, offset_blocks=default_offset_blocks(arch) + WINDOW_BLOCKS * core)
    return SignalledPrograms(maker.programs, maker.links)


def _units(isa: Isa, program: list[Instruction]) -> Iterator[list[Instruction]]:
    """Yield the instructions of a program, Repeats expanded, a SIMD loop with its body.

    Signals of its own and moves of windows are left out."""
    rows = iter([Instruction(*row) for row in isa.split(isa.assemble(program)).T.tolist()])
    for instruction in rows:
        if (instruction.opcode == Opcode.CONFIGURE and instruction.operand0 in OFFSETS
                or instruction.opcode == Opcode.SIGNAL):
            continue
        body = instruction.raw("body") + 1 if instruction.opcode == Opcode.SIMD_LOOP else 0
        yield [instruction, *(next(rows) for _ in range(body))]
