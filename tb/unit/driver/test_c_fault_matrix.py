# SPDX-License-Identifier: Apache-2.0
"""The C driver on a bus with one fault in one phase of a run: a right result, or an error; and then a right run."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint32
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.causes import Cause
from weft.hw.contract.csr import CONTROL_REGISTERS, Command, Status, parameter_values
from weft.hw.contract.isa import Isa
from weft.runtime.session import Session
from weft.tb.bench.c_driver import (
    BUSY,
    LOST,
    NO_MACHINE,
    NOT_WRITTEN,
    OK,
    OTHER_MACHINE,
    PLACES,
    REGISTERS,
    STOPPED,
    TIMEOUT,
    UNALIGNED,
    Board,
    Result,
    board_of,
    compiled,
)
from weft.tb.bench.register_model import NOTHING, RegisterModel, litex_model
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE
from weft.tmodel.manifest import TModel

CYCLES_HIGH = 5
"""The bits above 32 of the board's counter of cycles, in every run."""
LOOKS = 12
"""The looks after which a program counts as lost; an ordinary one ends at the third."""
NAMES = {REGISTERS + register.offset: name for name, register in CONTROL_REGISTERS.items()}
PROLOGUE = 3
"""The instructions that the driver puts before a program."""
Words = list[list[int]]


class Counting(RegisterModel):
    """A board whose counters count on while a program runs, and are beyond 32 bits at its end."""

    def read(self, address: int) -> int:
        if "_LOW" in NAMES.get(address, "") and self.status >> Status.RUNNING & 1:
            self._count(NOTHING // 7 + self.looks)
        return super().read(address)

    def _count(self, instructions: int) -> None:
        super()._count(instructions)
        self.values["CYCLES_HIGH"] += CYCLES_HIGH


class Rig:
    """A device on a bus. At access ``number`` of ``phase`` the fault strikes; ``seen`` counts the phase's accesses."""

    def __init__(self, library: Any, made: TModel, expected: list[Words], bulk: bool) -> None:
        self.model, self.made, self.expected = Counting(TINY, litex_model(TINY).map), made, expected
        self.phase, self.fault, self.number = "", "", -1
        self.now, self.seen, self.times = "", 0, 1
        self.bulk_reads = 1 << 20  # that work before the others do nothing
        self.answer: int | None = None
        """The words of a bus on which nothing answers any more."""
        hooks = {"read_bulk": self.read_bulk, "write_bulk": self.write_bulk} if bulk else {}
        self.board = Board(library, self.read, self.write, **hooks)

    # -- the bus ---------------------------------------------------------------------------------------------------
    def read(self, address: int) -> int:
        return int(self._words(address, 1)[0])

    def read_bulk(self, address: int, content: int, size: int) -> None:
        self.bulk_reads -= 1
        if self.bulk_reads >= 0:
            ctypes.memmove(content, self._words(address, size // 4).tobytes(), size)

    def write(self, address: int, word: int) -> None:
        self._put(address, [word])

    def write_bulk(self, address: int, content: int, size: int) -> None:
        self._put(address, np.frombuffer(ctypes.string_at(content, size), "<u4").tolist())

    def _words(self, address: int, count: int) -> np.ndarray:
        self._access(address, False)
        places = range(address, address + 4 * count, 4)
        return np.array([self.model.read(at) if self.answer is None else self.answer for at in places], "<u4")

    def _put(self, address: int, words: list[int]) -> None:
        self._access(address, True)
        for _ in range(self.times if self.answer is None else 0):
            for at, word in enumerate(words):
                self.model.write(address + 4 * at, word)

    def _access(self, address: int, writes: bool) -> None:
        """Count an access, and strike."""
        if self.now == "poll" and writes:
            self.now = "counters"
        self.times = 1
        if self.now == self.phase and (writes or not self.fault.startswith("write")):
            if self.seen == self.number:
                FAULTS[self.fault](self)
            self.seen += 1

    # -- a user ----------------------------------------------------------------------------------------------------
    def work(self, *numbers: int) -> str:
        """Open, load, and run images; return the first error, and where if not in ``phase``, or ``right``."""
        base, vectors = self.made.consts[0]
        steps: list[tuple[str, Callable[[], int]]] = [
            ("identify", self.open), ("load", partial(self.put, "dram1", base, vectors)), ("load", self.load)]
        for number in numbers:
            steps += [("next load", partial(self.put, "dram0", 0, inputs_for(self.made, number)["x"])),
                      ("start", lambda: self.board.start(self.size)), ("poll", self.board.wait),
                      ("read back", partial(self.read_back, self.expected[number]))]
        for name, step in steps:
            self.now = name
            result = step()
            if result != OK:
                return Result(result).name + (f" at {name}" if self.now != self.phase else "")
        return "right"

    def open(self) -> int:
        result = self.board.open(REGISTERS, *PLACES)
        self.board.device.looks = LOOKS
        return result

    def put(self, memory: str, address: int, content: np.ndarray) -> int:
        stored = content.astype(TINY.number.storage_dtype).tobytes()
        return self.board.call("weft_write", memory, address, stored, len(content))

    def load(self) -> int:
        result, self.size = self.board.load(self.made.program)
        return result

    def read_back(self, expected: Words) -> int:
        """Return the result of reading; if it is OK, all words and counters are right."""
        answer = ctypes.create_string_buffer(SIZE * TINY.vector_bytes)
        result = self.board.call("weft_read", "dram0", OUTPUT_BASE, answer, SIZE)
        if result == OK:
            device, count = self.board.device, len(self.made.program) // Isa(TINY).instruction_bytes + PROLOGUE
            assert np.frombuffer(answer.raw, TINY.number.storage_dtype).reshape(SIZE, -1).tolist() == expected
            assert device.instructions == count and device.cycles == 7 * count + (CYCLES_HIGH << 32)
        return result

    def mend(self) -> None:
        """Plug in again what did not answer, without what it held, and let programs end."""
        if self.answer is not None:
            self.answer = None
            self.model.power_on()
        self.number, self.model.hangs = -1, False


FAULTS: dict[str, Callable[[Rig], None]] = {
    "all ones": lambda rig: setattr(rig, "answer", NOTHING),
    "all zeros": lambda rig: setattr(rig, "answer", 0),
    "power": lambda rig: rig.model.power_on(),
    "reset": lambda rig: rig.model._command(1 << Command.SOFT_RESET),
    "endless": lambda rig: setattr(rig.model, "hangs", True),
    "write lost": lambda rig: setattr(rig, "times", 0),
    "write twice": lambda rig: setattr(rig, "times", 2),
}
"""From that access on nothing answers; no power for a moment; a soft reset by somebody else; no program ends; and a
write that does not come, or comes twice."""
DEAD = {"identify": "NO_MACHINE, OTHER_MACHINE, NOT_WRITTEN", "load": "NOT_WRITTEN", "next load": "NOT_WRITTEN",
        "poll": "LOST", "counters": "LOST", "read back": "LOST"}
LATE, LATER = "TIMEOUT at poll", "right, TIMEOUT at poll"
OUTCOMES = {
    "all ones": {**DEAD, "start": "LOST, LOST at poll, NOT_WRITTEN, SILENT"},
    "all zeros": {**DEAD, "start": "LOST, NOT_WRITTEN, SILENT"},
    "power": {"identify": "right, NOT_WRITTEN", "load": "NOT_WRITTEN, LOST at start",
              "next load": "NOT_WRITTEN, LOST at start", "start": "LOST, LOST at poll, NOT_WRITTEN, SILENT",
              "poll": "LOST", "counters": "LOST", "read back": "LOST"},
    "reset": {"identify": "right", "load": "right", "next load": "right", "start": "right", "poll": "LOST",
              "counters": "right", "read back": "right"},
    "endless": {"identify": LATE, "load": LATE, "next load": LATE, "start": LATE, "poll": "TIMEOUT", "counters": LATER,
                "read back": LATER},
    "write lost": {"identify": "NOT_WRITTEN", "load": "right, NOT_WRITTEN", "next load": "NOT_WRITTEN",
                   "start": "right, NOT_WRITTEN", "counters": "right"},
    "write twice": {"identify": "right", "load": "right", "next load": "right", "start": "right", "counters": "right"},
}
"""Fault -> phase -> all that comes out, whichever access is struck. ``next load`` is the input of each of two images.
A write of zeros that is lost where zeros are is right."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return compiled(tmp_path_factory.mktemp("c"), TINY)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> TModel:
    return adder(tmp_path_factory.mktemp("adder"))


@pytest.fixture(scope="module")
def expected(made: TModel) -> list[Words]:
    """The words of the outputs for images 0 to 3."""
    return [Session(made).run(inputs_for(made, number), raw=True).outputs["y"].tolist() for number in range(4)]


@pytest.mark.parametrize("bulk", [False, True], ids=["words", "bulk"])
@pytest.mark.parametrize(("fault", "phase"), [(fault, phase) for fault, row in OUTCOMES.items() for phase in row])
def test_one_fault_in_one_phase(fault: str, phase: str, bulk: bool, tiny: Any, made: TModel,
                                expected: list[Words]) -> None:
    """The fault strikes each access of the phase in turn; afterwards the next run is right."""
    def rig(number: int) -> Rig:
        found = Rig(tiny, made, expected, bulk)
        found.fault, found.phase, found.number = fault, phase, number
        return found

    ordinary, found = rig(-1), set[str]()
    assert ordinary.work(1, 2) == "right"
    for number in range(ordinary.seen):
        one = rig(number)
        found.add(one.work(1, 2))
        one.mend()
        result = one.work(3)
        if result.startswith(BUSY.name):  # a program runs that was started before the device was lost
            assert one.board.stop() == OK
            result = one.work(3)
        assert result == "right"
    assert found == set(OUTCOMES[fault][phase].split(", "))


@pytest.mark.parametrize("bit", [0, 15, 31])
@pytest.mark.parametrize("register", parameter_values(TINY))
def test_another_machine_is_refused_whatever_differs(register: str, bit: int, tiny: Any) -> None:
    """Each bit of what a machine says of itself counts, the high half of ARCH_HASH among them."""
    model = litex_model(TINY)
    model.values[register] ^= 1 << bit
    board = board_of(tiny, model)
    assert board.open(REGISTERS, *PLACES) == (NO_MACHINE if register == "IDENTITY" else OTHER_MACHINE)
    model.values[register] ^= 1 << bit
    assert board.open(REGISTERS, *PLACES) == OK


@pytest.mark.parametrize("cause", [each for each in Cause if each])
def test_every_cause_is_told_and_the_next_run_is_right(cause: Cause, tiny: Any, made: TModel,
                                                       expected: list[Words]) -> None:
    rig = Rig(tiny, made, expected, bulk=False)
    assert rig.work() == "right" and rig.put("dram0", 0, inputs_for(made, 1)["x"]) == OK
    rig.model.hangs = True
    assert rig.board.start(rig.size) == OK and rig.board.poll() == BUSY
    rig.model.status = 1 << Status.RUNNING | 1 << Status.ERROR | 1 << Status.DONE
    assert rig.board.poll() == BUSY, "it ended, but drains"
    rig.model.values |= {"ERROR_CAUSE": cause, "ERROR_PROGRAM_COUNTER": 0x8000_0001}
    rig.model.status = 1 << Status.IDLE | 1 << Status.ERROR
    assert rig.board.wait() == STOPPED
    device = rig.board.device
    assert (device.cause, device.program_counter) == (cause, 0x8000_0001)
    rig.mend()
    assert rig.work(2) == "right" and (device.cause, device.program_counter) == (0, 0)


def test_nothing_of_the_run_before_is_told_of_a_run_without_an_end(tiny: Any, made: TModel,
                                                                   expected: list[Words]) -> None:
    """As many looks as are allowed, and then what is known of this run; the next one is right without a new open."""
    rig = Rig(tiny, made, expected, bulk=False)
    device = rig.board.device
    assert rig.work(1) == "right" and device.cycles and device.instructions
    rig.model.hangs = True
    assert rig.board.start(rig.size) == OK
    rig.model.values["PROGRAM_COUNTER"] = 4
    for looks in (0, 1, 5):
        device.looks, rig.model.looks = looks, 0
        assert rig.board.wait() == TIMEOUT and rig.model.looks == looks
    assert (device.cycles, device.instructions, device.cause, device.program_counter) == (0, 0, 0, 4)
    rig.mend()
    assert rig.put("dram0", 0, inputs_for(made, 2)["x"]) == OK
    device.looks = LOOKS
    assert rig.board.run(rig.size) == OK and rig.read_back(expected[2]) == OK


def test_a_machine_between_running_and_done_is_waited_for(tiny: Any, made: TModel, expected: list[Words]) -> None:
    """In one cycle of a run STATUS shows neither: it did not forget its program."""
    rig = Rig(tiny, made, expected, bulk=False)
    register = rig.model._register

    def between(name: str) -> int:
        before, found = rig.model.programs, register(name)
        return found if name != "STATUS" or rig.model.programs == before else 1 << Status.IDLE

    rig.model._register = between  # type: ignore[method-assign]
    assert rig.work(1, 2) == "right" and rig.model.programs == 2


def test_uses_out_of_order(tiny: Any, made: TModel, expected: list[Words]) -> None:
    rig = Rig(tiny, made, expected, bulk=False)
    board = rig.board
    assert rig.work() == "right"
    assert board.poll() == LOST and board.wait() == LOST, "no program was started"
    assert rig.put("dram0", 0, inputs_for(made, 1)["x"]) == OK
    rig.model.patience = 1000
    assert board.start(rig.size) == OK and board.poll() == BUSY
    assert rig.open() == BUSY, "somebody's program"
    assert board.stop() == OK and rig.model.status == 1 << Status.IDLE and rig.model.programs == 0
    assert rig.open() == OK
    assert board.start(rig.size) == OK and board.poll() == BUSY
    rig.model.patience = 3
    assert board.start(rig.size) == OK, "from reset, while the first one runs and nobody looked"
    assert board.wait() == OK and rig.model.programs == 1 and rig.read_back(expected[1]) == OK


def test_damage_at_rest_is_mended_by_writing_again(tiny: Any, made: TModel, expected: list[Words]) -> None:
    """An instruction that does not exist stops the machine; constants look like others, until they are written."""
    rig = Rig(tiny, made, expected, bulk=False)
    memory = rig.model.dram.bytes
    assert rig.work(1) == "right"
    at = PLACES[2][1] + PROLOGUE * Isa(TINY).instruction_bytes
    memory[at:at + Isa(TINY).instruction_bytes] ^= 0xFF
    assert rig.board.run(rig.size) == STOPPED and rig.board.device.cause and rig.board.device.program_counter == 0
    memory[PLACES[1][1]:PLACES[1][1] + 256] ^= 0xFF
    assert rig.work(1) == "right"


def test_memory_that_is_too_small(tiny: Any, made: TModel, expected: list[Words]) -> None:
    """A bus without the last word of a program, or registers without the address bits that it needs."""
    rig = Rig(tiny, made, expected, bulk=True)
    ordinary, size = rig.model.region, len(made.program) + PROLOGUE * Isa(TINY).instruction_bytes
    assert size % 4 == 0
    rig.model.region = replace(ordinary, size=PLACES[2][0] - PLACES[0][0] + size - 4)
    assert rig.work() == "NOT_WRITTEN at load"
    rig.model.region = replace(ordinary, size=PLACES[2][0] - PLACES[0][0] + size)
    assert rig.work(1) == "right"
    rig.board.device.program.machine += 1 << 40
    write = rig.model.write
    high = REGISTERS + CONTROL_REGISTERS["PROGRAM_ADDRESS_HIGH"].offset
    rig.model.write = lambda address, word: write(address, word & (0 if address == high else NOTHING))  # type: ignore[method-assign]
    assert rig.board.start(rig.size) == NOT_WRITTEN
    assert rig.work(2) == "right"


def test_addresses_and_sizes_that_the_driver_refuses(tiny: Any, made: TModel, expected: list[Words]) -> None:
    rig = Rig(tiny, made, expected, bulk=False)
    for odd in (1, 2, 3):
        assert rig.board.open(REGISTERS + odd, *PLACES) == UNALIGNED
    assert rig.work(1) == "right"
    tiny.weft_load.argtypes, step = None, Isa(TINY).instruction_bytes
    rig.board.device.program.bus = 0x7000_0000  # where nothing is: a size that is taken ends there
    for size in (1 << 32, step * ((NOTHING - PROLOGUE * step) // step + 1), step * (1 << 34)):
        assert tiny.weft_load(byref(rig.board.device), None, c_size_t(size), byref(c_uint32())) == UNALIGNED
    rig.board.device.program.bus = PLACES[2][0]
    for memory in ("dram0", "dram1"):
        place = getattr(rig.board.device, memory)
        place.machine += 1 << 60
        assert rig.board.load(made.program)[0] == UNALIGNED
        place.machine -= 1 << 60
    content, answer = ctypes.create_string_buffer(bytes(range(17))), ctypes.create_string_buffer(18)
    for odd in (1, 2, 3):  # the host's buffers lie where they like
        assert rig.board.call("weft_write", "dram0", 0, ctypes.addressof(content) + odd, 3) == OK
        assert rig.board.call("weft_read", "dram0", 0, ctypes.addressof(answer) + odd, 3) == OK
        assert answer.raw[odd:odd + 12] == content.raw[odd:odd + 12]


def test_a_bulk_read_that_does_nothing_does_not_pass_for_the_words_before(tiny: Any, made: TModel,
                                                                          expected: list[Words]) -> None:
    """Equal words in each piece that is read back."""
    rig = Rig(tiny, made, expected, bulk=True)
    zeros = np.zeros((1024, TINY.array_size))
    assert rig.work() == "right" and rig.put("dram0", 0, zeros) == OK
    rig.bulk_reads = 1
    assert rig.put("dram0", 0, zeros) == NOT_WRITTEN
