# SPDX-License-Identifier: Apache-2.0
"""The decoder against the golden machine's decoding and checks, for the same configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import EVERY_STEP, SHARED
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import DECODE_LATENCY
from weft.hw.contract.units import UNIT_NAMES, unit_names
from weft.hw.control.decoder import Decoder
from weft.hw.control.issue import issue_layout
from weft.hw.parts.operations import window_width
from weft.tb.bench.block_bench import Bench
from weft.tb.bench.block_models import Cycles, Sink, Source, Watched
from weft.tb.bench.block_ports import RESET, Ports, from_bits
from weft.tb.bench.decode_reference import DecodeReference, Fields
from weft.tb.random.random_program import possible_causes, random_illegal, random_program
from weft.tb.random.random_words import RandomWords

TINY = Arch.load("tiny")
MACHINES = {
    "tiny": TINY,
    "arty": Arch.load("arty"),
    "lut": TINY.replace(array_size=8, local_depth=100, accumulator_depth=40, simd_registers_depth=5, lut_count=2,
                        lut_depth=8),
    "every_step": TINY.replace(mac_rounding=EVERY_STEP, array_size=3, local_depth=20, lut_count=1, lut_depth=64,
                               simd_registers_depth=3),
    "activation_tables": TINY.replace(data_type="INT8", local_depth=300, activation_tables=3),
    "int8": TINY.replace(data_type="INT8", array_size=3, local_depth=20, accumulator_depth=23),
    "odd": TINY.replace(array_size=3, local_depth=50, accumulator_depth=23, dram0_depth=1500, dram1_depth=99,
                        stride0_depth=3, stride1_depth=5, simd_registers_depth=2, simd_loop_depth=5,
                        dram_ports=SHARED),
    "least": TINY.replace(local_depth=2, accumulator_depth=2, dram0_depth=2, dram1_depth=2, stride0_depth=1,
                          stride1_depth=1, simd_registers_depth=0, simd_loop_depth=0, local_banks=1),
    "most": TINY.replace(array_size=2, data_type="FP8BP4", local_depth=1 << 16, accumulator_depth=1 << 16,
                         dram0_depth=1 << 32, dram1_depth=(1 << 32) - 5, axi_address_width=34, stride0_depth=16,
                         stride1_depth=16, simd_registers_depth=16, lut_count=15, simd_loop_depth=64),
    "cores": TINY.replace(local_depth=20, accumulator_depth=23, dram0_depth=1500, dram1_depth=99, stride1_depth=5,
                          dram_ports=SHARED, cores=3, sync_counters=5, simd_loop_depth=3),
    "taps": TINY.replace(array_size=9, local_depth=50, accumulator_depth=23, depthwise_taps=9),
    "output_functions": TINY.replace(local_depth=50, accumulator_depth=23, output_maximum=1, output_slope=1),
    "tables": TINY.replace(data_type="INT8", local_depth=20480, dram0_depth=1 << 21, decoder_multipliers=0),
}


class Program:
    """A sequence of raw instructions up to the first illegal one, and what the decoder must make of it."""

    def __init__(self, arch: Arch, words: list[int]) -> None:
        reference = DecodeReference(arch)
        self.words = words
        self.given: list[Fields] = []
        self.fault: tuple[Cause, int] | None = None
        self.legal = 0
        for word in words:
            result = reference.step(word)
            if isinstance(result, Cause):
                self.fault = result, reference.program_counter
                break
            self.legal += 1
            if result is not None:
                self.given.append(result)
        self.program_counter, self.registers = reference.program_counter, reference.registers


def window(arch: Arch, ports: Ports, dram: int) -> int:
    """Where this DRAM's is."""
    width = window_width(arch)
    return ports["windows"] >> width * dram & (1 << width) - 1


class Runner(Watched):
    """Runs programs one after another, a reset between them, and compares."""

    def __init__(self, arch: Arch, programs: list[Program], rng: Random, give: float, take: float) -> None:
        super().__init__("o", rng, take)
        self.arch, self.layout, self.programs, self.give = arch, issue_layout(arch), iter(programs), give
        self.program: Program | None = None
        self.finished = False
        self._begin()

    def _begin(self) -> None:
        self.program = next(self.programs, None)
        self.finished = self.program is None
        self.source = Source("i", self.program.words if self.program else [], self.rng, self.give)
        self.found: list[Fields] = []
        self.accepted = self.retired = self.quiet = 0
        self.resetting = True
        self._held = None

    def drive(self, ports: Ports) -> None:
        super().drive(ports)
        self.source.drive(ports)
        if self.resetting:
            ports["i.valid"] = ports["o.ready"] = 0
        ports[RESET] = self.resetting
        ports["drained"] = self.rng.random() < 0.8

    def watch(self, ports: Ports) -> None:
        if self.resetting or self.program is None:
            self.resetting = False
            return
        super().watch(ports)
        self.source.watch(ports)
        self.accepted, self.retired = self.accepted + ports["accepted"], self.retired + ports["retired"]
        over = ports["fault"] or (self.source.finished and not ports["busy"])
        self.quiet = self.quiet + 1 if over else 0
        if self.quiet == (6 if self.program.fault else 2):
            self._compare(ports, self.program)
            self._begin()

    def on_taken(self, ports: Ports, item: int) -> None:
        found = from_bits(self.layout, item)
        flat = {f"{name}.{key}": each for name, value in found.items() if isinstance(value, dict)
                for key, each in value.items()}
        given = self.program.given if self.program else []
        expected = given[len(self.found)] if len(self.found) < len(given) else None
        unit = "+".join(name for name in UNIT_NAMES if found["unit"].get(name))
        dram = found.get("dram1", int(unit.startswith("dram1")))
        found = {**found, **flat, "unit": unit, "window": window(self.arch, ports, dram)}
        assert expected is not None, f"{found} after all that was expected"
        wrong = {name: (found[name], value) for name, value in expected.items() if found[name] != value}
        assert not wrong, f"(found, right): {wrong} in {expected}"
        self.found.append(found)

    def _compare(self, ports: Ports, program: Program) -> None:
        fault = (Cause(ports["cause"]), ports["fault_program_counter"]) if ports["fault"] else None
        assert fault == program.fault, f"words {[hex(word) for word in program.words[:program.legal + 1]]}"
        assert len(self.found) == len(program.given)
        assert self.retired == program.legal
        assert self.accepted == len(self.source.taken)
        if fault is None:
            assert ports["program_counter"] == program.program_counter
            for name in ("TIMEOUT", "TRACEPOINT", "SAMPLE_INTERVAL"):
                assert ports[name.lower()] == program.registers[Register[name]]


@cache
def bench(arch: Arch) -> Bench:
    return Bench(Decoder(arch))


def run(arch: Arch, programs: list[list[int]], seed: int, give: float = 0.9, take: float = 0.8) -> list[Program]:
    checked = [Program(arch, words) for words in programs]
    bench(arch).run(Runner(arch, checked, Random(seed), give, take))
    return checked


def words_until_illegal(arch: Arch, rng: Random, met: Counter[Cause], most: int = 30) -> list[int]:
    """Random words up to an illegal one, and some more that must have no effect. Rarely met causes are preferred."""
    words: list[int] = []
    reference, source = DecodeReference(arch), RandomWords(arch, rng)
    least = min(met[cause] for cause in possible_causes(arch))
    while len(words) < most:
        word = source.word(reference.loop is not None)
        result = reference.step(word)
        if isinstance(result, Cause) and met[result] > least + 3 and rng.random() < 0.95:
            continue  # an illegal word changes nothing in the reference
        words.append(word)
        if isinstance(result, Cause):
            met[result] += 1
            break
    return [*words, *(source.word() for _ in range(4))]


@pytest.mark.wide_cases("arty", "odd", "every_step", "tiny", "lut", "least", "int8", "activation_tables")
@pytest.mark.parametrize("name", MACHINES)
def test_random_words_are_judged_as_the_golden_machine_judges_them(name: str) -> None:
    arch, rng = MACHINES[name], Random(51)
    met: Counter[Cause] = Counter()
    programs = run(arch, [words_until_illegal(arch, rng, met) for _ in range(150)], 52)
    assert set(met) == set(possible_causes(arch)), "every cause that this machine has was met"
    units = {fields["unit"] for program in programs for fields in program.given}
    assert units == set(unit_names(arch))
    assert sum(program.legal for program in programs) > len(programs)


@pytest.mark.parametrize("name", ("tiny", "lut", "every_step", "odd", "activation_tables"))
def test_random_programs_reach_the_units_whole(name: str) -> None:
    arch = MACHINES[name]
    isa = Isa(arch)
    programs = run(arch, [[isa.encode(each) for each in random_program(arch, seed, 120)] for seed in range(2)], 53)
    assert all(program.fault is None for program in programs)


@pytest.mark.parametrize("name", ("tiny", "lut", "every_step", "odd", "least", "activation_tables"))
def test_illegal_programs_stop_at_the_faulty_instruction(name: str) -> None:
    arch = MACHINES[name]
    isa = Isa(arch)
    cases = [(cause, *random_illegal(arch, seed, cause)) for cause in possible_causes(arch) for seed in range(2)]
    programs = run(arch, [[isa.encode(each) for each in program] for _, program, _ in cases], 54)
    assert [program.fault for program in programs] == [(cause, counter) for cause, _, counter in cases]


@pytest.mark.parametrize("name", ("tiny", "arty", "odd", "most", "tables"))
def test_an_operation_may_reach_a_memory_s_end_and_no_further(name: str) -> None:
    """Rows and pitches whose product is a power of two, so that the address's own bits see little or nothing of it."""
    arch, rng = MACHINES[name], Random(58)
    isa, programs = Isa(arch), []

    def reach(register: Register) -> tuple[int, int]:
        """Rows - 1 and a pitch: powers of two."""
        rows_m1, pitch = (1 << rng.randrange(isa.registers[each].width) for each in (Register.MOVE_ROWS, register))
        return rows_m1, pitch

    for _ in range(200):
        register = rng.choice((Register.MOVE_LOCAL_PITCH, Register.MOVE_FAR_PITCH))
        rows_m1, pitch = reach(register)
        flow = rng.choice(list(DataFlow))
        depth = arch.local_depth if register is Register.MOVE_LOCAL_PITCH else {
            "dram0": arch.dram0_depth, "dram1": arch.dram1_depth}.get(flow.far_memory, arch.accumulator_depth)
        base = max(depth - rows_m1 * pitch - rng.randrange(2), 0) % depth
        local, far = (base, 0) if register is Register.MOVE_LOCAL_PITCH else (0, base)
        other = ({Register.MOVE_LOCAL_PITCH, Register.MOVE_FAR_PITCH} - {register}).pop()
        programs.append([isa.encode(each) for each in (
            isa.configure(Register.MOVE_ROWS, rows_m1), isa.configure(other, 0), isa.configure(register, pitch),
            isa.data_move(flow, local, far, 1))])
    done = run(arch, programs, 59)
    legal = sum(program.fault is None for program in done)
    assert 20 < legal < len(done) - 20


def test_rows_of_taps_may_reach_local_memory_s_end_and_no_further() -> None:
    """The last row of taps that counts lies so many pitches behind the first one that does."""
    arch, rng = MACHINES["taps"], Random(60)
    isa, programs, legal = Isa(arch), [], []
    for _ in range(200):
        mask, pitch, origin, size = rng.randrange(8), rng.randrange(20), rng.randrange(4), rng.randint(1, 5)
        counted = [row for row in range(3) if mask >> row & 1] if origin else []
        reach = size - 1 + (counted[-1] - counted[0]) * pitch if counted else size - 1
        beyond = rng.randrange(2)
        programs.append([isa.encode(each) for each in (
            isa.configure(Register.TAP_ORIGIN, origin), isa.configure(Register.TAP_ROWS, mask),
            isa.configure(Register.TAP_PITCH, pitch), isa.mat_mul(arch.local_depth - 1 - reach + beyond, 0, size))])
        legal.append(not beyond)
    assert [program.fault is None for program in run(arch, programs, 61)] == legal


def isa_words(build: Callable[[Isa], list[Instruction]], arch: Arch = TINY) -> list[int]:
    isa = Isa(arch)
    return [isa.encode(each) for each in build(isa)]


def test_one_instruction_a_cycle_and_the_stated_latency() -> None:
    """NoOp, Configure, moves, SIMD in and out of a loop: none takes more than its cycle."""
    def build(isa: Isa) -> list[Instruction]:
        add = isa.simd(SimdSub(SimdOpcode.ADD), read=1, write=2)
        return [isa.no_op(), isa.mat_mul(1, 2, 3), isa.configure(Register.MOVE_ROWS, 1), isa.load_weight(0, 3),
                isa.data_move(DataFlow.LOCAL_TO_DRAM1, 3, 4, 5), add, isa.simd_loop(3, 2), add, add] * 8

    words, rng = isa_words(build), Random(0)
    handed_on = [k for k, word in enumerate(words)
                 if Isa(TINY).decode(word).opcode not in (Opcode.NO_OP, Opcode.CONFIGURE)]
    source, sink = Source("i", words, rng), Sink("o", rng, len(handed_on))
    bench(TINY).run(source, sink)
    assert source.taken == list(range(len(words)))
    assert sink.taken == [cycle + DECODE_LATENCY for cycle in handed_on]


def test_configure_counts_for_what_follows_it_only() -> None:
    """Change every register between two instructions that use it, at full rate."""
    def build(isa: Isa) -> list[Instruction]:
        use = [isa.mat_mul(0, 0, 1), *(isa.data_move(flow, 0, 0, 1) for flow in DataFlow)]
        sets = [isa.configure(register, value) for register in register_table(isa.arch) for value in (1, 0, 2)]
        return [each for configure in sets for each in (*use, configure)] + use

    programs = run(MACHINES["odd"], [isa_words(build, MACHINES["odd"])], 55, 1.0, 1.0)
    assert programs[0].fault is None


@pytest.mark.parametrize("register", (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET))
def test_a_dram_offset_moves_only_when_everything_is_drained(register: Register) -> None:
    def build(isa: Isa) -> list[Instruction]:
        port0 = register is Register.DRAM0_OFFSET
        move = isa.data_move(DataFlow.DRAM0_TO_LOCAL if port0 else DataFlow.LOCAL_TO_DRAM1, 0, 0, 1)
        return [move, isa.configure(register, 3), move, isa.configure(Register.TIMEOUT, 9), move]

    rng, drained_from, windows, dram = Random(0), 30, [], int(register is Register.DRAM1_OFFSET)

    class Drain(Watched):
        def drive(self, ports: Ports) -> None:
            super().drive(ports)
            ports["drained"] = ports.cycle < 2 or ports.cycle >= drained_from

        def on_taken(self, ports: Ports, item: int) -> None:
            windows.append((ports.cycle, window(TINY, ports, dram)))

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            assert window(TINY, ports, dram) == 3 * (ports.cycle > drained_from), "what is outstanding still uses it"

    source = Source("i", isa_words(build), rng)
    bench(TINY).run(source, Drain("o", rng), Cycles(50))
    assert [window for _, window in windows] == [0, 3, 3]
    assert windows[0][0] == DECODE_LATENCY
    assert windows[1][0] == drained_from + DECODE_LATENCY, "it is read in the cycle after the register is set"
    assert source.taken[:2] == [0, 1] and source.taken[2] == drained_from


def test_program_counter_wraps_and_can_be_set() -> None:
    def build(isa: Isa) -> list[Instruction]:
        return [isa.configure(Register.PROGRAM_COUNTER, 0xFFFF_FFFE), *[isa.mat_mul(0, 0, 1)] * 4,
                isa.configure(Register.PROGRAM_COUNTER, 7), isa.mat_mul(0, 0, 1), Instruction(9)]

    arch = MACHINES["most"]
    program, = run(arch, [isa_words(build, arch)], 56)
    assert [fields["program_counter"] for fields in program.given] == [0xFFFF_FFFE, 0xFFFF_FFFF, 0, 1, 7]
    assert program.fault == (Cause.OPCODE, 8)


def test_halt_stops_at_once_and_forgets_what_is_inside() -> None:
    words = isa_words(lambda isa: [isa.mat_mul(0, 0, 1)] * 40)
    rng, halted = Random(0), 12

    class Halt(Watched):
        def drive(self, ports: Ports) -> None:
            super().drive(ports)
            ports["halt"] = ports.cycle >= halted

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            if ports.cycle >= halted:
                assert not ports["o.valid"] and not ports["i.ready"] and not ports["retired"]
            if ports.cycle > halted:
                assert not ports["busy"]

    bench(TINY).run(Source("i", words, rng), Halt("o", rng), Cycles(30))


def test_what_is_legal_before_a_fault_is_given_though_the_machine_stops() -> None:
    """The interlock takes it late, when the supervisor has long halted the decoder because of the fault."""
    words = isa_words(lambda isa: [isa.mat_mul(0, 0, 1), Instruction(7)])
    rng, taken = Random(0), list[int]()

    class Late(Watched):
        stopped = 0

        def drive(self, ports: Ports) -> None:
            super().drive(ports)
            ports["halt"], ports["o.ready"] = self.stopped, ports.cycle >= 20

        def watch(self, ports: Ports) -> None:
            super().watch(ports)
            self.stopped = ports["fault"]

        def on_taken(self, ports: Ports, item: int) -> None:
            taken.append(ports.cycle)

    bench(TINY).run(Source("i", words, rng), Late("o", rng), Cycles(30))
    assert taken == [20]


def test_swap_marks_the_first_mat_mul_after_a_load_or_a_reset() -> None:
    """A reset keeps the weights that were loaded and not yet taken over."""
    def build(isa: Isa) -> list[Instruction]:
        load, mul = isa.load_weight(0, 3), isa.mat_mul(0, 0, 1)
        return [mul, load, load, isa.no_op(), mul, mul, load, isa.configure(Register.TIMEOUT, 5), mul, mul]

    program, = run(TINY, [isa_words(build)], 57, 1.0, 0.6)
    assert [fields["swap"] for fields in program.given if fields["unit"] == "mat_mul"] == [1, 1, 0, 1, 0]
