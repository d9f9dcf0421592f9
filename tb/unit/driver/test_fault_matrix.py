# SPDX-License-Identifier: Apache-2.0
"""Each link x each fault x each phase of a run: a right result; or an error in time, and then a right one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from weft.hw.contract.csr import CONTROL_REGISTERS, Command, Status
from weft.hw.contract.host_link import ROOM_BYTES
from weft.hw.contract.isa import Isa
from weft.runtime.driver.device import Device
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.register_machine import DeviceTimeout
from weft.runtime.driver.transport import LinkError, Read, Write
from weft.runtime.driver.uartbone import UartBone
from weft.runtime.session import Session
from weft.tb.bench.faulty_links import FAULTS, FOREVER, OFF_SECONDS, Fault, FaultyUart, FaultyUdp
from weft.tb.bench.link_models import Witnessed
from weft.tb.bench.register_model import litex_model
from weft.tb.unit.driver.test_device import LINKS, TINY, WITNESS, adder, inputs_for
from weft.tb.unit.runtime.models import OUTPUT_BASE
from weft.tmodel.manifest import TModel

PHASES = ("identify", "load", "start", "poll", "read back", "counters", "repair")
CYCLES_HIGH = 5
"""The bits above 32 of the board's counter of cycles, in every run."""
MOST_SECONDS = 70
"""The longest that a run with a fault may take by the clock of the link: the time-out of a program, and the link's."""
OUTPUT = 0x4000_0000 + OUTPUT_BASE * TINY.vector_bytes
CONSTS = 0x4000_0000 + (1 << 16)


def at(name: str) -> int:
    """The address of a register on the bus."""
    return 0x9000_0000 + CONTROL_REGISTERS[name].offset


class Rig:
    """A device behind a link with one fault, in the one exchange that belongs to ``phase``."""

    def __init__(self, link: str, phase: str, fault: Fault) -> None:
        self.board, self.phase, self.fault = litex_model(TINY), phase, fault
        count = self.board._count

        def counted(instructions: int) -> None:
            count(instructions)
            self.board.values["CYCLES_HIGH"] = CYCLES_HIGH

        self.board._count = counted  # type: ignore[method-assign]
        self.witnessed, self.serial = link.startswith("witnessed"), link.endswith("serial")
        self.bus = Witnessed(self.board, WITNESS) if self.witnessed else self.board
        self.repairs = self.started = False
        self.skipped = 0  # exchanges of the phase before the one with the fault
        self.wire = (FaultyUart(self.bus, fault, ROOM_BYTES if self.witnessed else 0) if self.serial
                     else FaultyUdp(self.bus, fault))
        fault.armed = phase == "identify"

    def open(self) -> Device:
        """Return the device, whose exchanges arm the fault from now on."""
        transport = (UartBone("model", self.wire.open, sleep=self.wire.sleep, seconds=self.wire.seconds)
                     if isinstance(self.wire, FaultyUart)
                     else Etherbone("model", self.wire, self.wire.sleep, self.wire.seconds))
        self.wire.plugged = True
        exchange, write = transport.exchange, transport.write

        def watched(writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
            self._look(writes, reads)
            return exchange(writes, reads)

        def written(address: int, words: np.ndarray) -> None:
            self._look([(address, words)], [])
            write(address, words)

        transport.exchange, transport.write = watched, written  # type: ignore[method-assign]
        target = LinkTarget(transport, self.board.map)
        if self.witnessed:
            target.watch(WITNESS)
        repair = target.bridge.repair

        def repaired() -> None:
            self.repairs = True
            repair()
            self.repairs = False

        target.bridge.repair = repaired  # type: ignore[method-assign]
        return Device(target)

    def _look(self, writes: Sequence[Write], reads: Sequence[Read]) -> None:
        """Arm the fault if an exchange is the first of the phase."""
        starts = any(address == at("CONTROL") and int(words[0]) >> Command.START & 1 for address, words in writes)
        now = {"load": any(address >= CONSTS and address < at("IDENTITY") for address, _ in writes), "start": starts,
               "poll": self.started and (at("STATUS"), 1) in reads, "repair": self.repairs and bool(reads),
               "counters": any(address == at("CYCLES_LOW") for address, _ in reads),
               "read back": self.started and any(address == OUTPUT for address, _ in reads)}
        self.started |= starts
        if now.get(self.phase) and not self.fault.struck:
            self.fault.armed = self.skipped <= 0
            self.skipped -= 1

    def power_off(self) -> None:
        """Lose everything that the board holds."""
        self.board.power_on()
        if isinstance(self.bus, Witnessed):
            self.bus.crcs = {True: 0, False: 0}


def check(device: Device, made: TModel, number: int) -> None:
    """A run is right in every word, and its counters in all of their bits."""
    before = device.counters.cycles, device.counters.instructions
    expected = Session(made).run(inputs_for(made, number), raw=True).outputs["y"]
    assert device.run(inputs_for(made, number), raw=True)["y"].tolist() == expected.tolist()
    count = len(made.program) // Isa(TINY).instruction_bytes
    assert device.counters.instructions - before[1] == count
    assert (device.counters.cycles - before[0]) >> 32 == CYCLES_HIGH


def work(rig: Rig, made: TModel) -> None:
    """Open, load, run twice, the second time with a repair."""
    with rig.open() as device:
        device.load(made)
        check(device, made, 1)
        assert isinstance(device.target, LinkTarget)
        device.target.bridge.doubt()
        check(device, made, 2)


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(1, 5))])
def test_one_fault_in_one_phase(link: str, fault: str, phase: str, seed: int, tmp_path: Path) -> None:
    """The fault strikes a question, or an answer; all the same, every result is right."""
    for in_answer in (False, True):
        struck = Fault(fault, in_answer, seed)
        rig = Rig(link, phase, struck)
        work(rig, adder(tmp_path))
        assert struck.struck == 1
        assert rig.wire.now < MOST_SECONDS


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("fault", ["silent", "unplugged"])
@pytest.mark.parametrize("link", LINKS)
def test_a_link_that_does_not_come_back(link: str, fault: str, phase: str, tmp_path: Path) -> None:
    """It is said in bounded time; after the board had no power and is plugged in again, the next run is right."""
    made, broken = adder(tmp_path), Fault(fault, off_seconds=FOREVER)
    rig = Rig(link, phase, broken)
    broken.power = rig.power_off
    with pytest.raises(LinkError, match="link model: found no whole"):
        work(rig, made)
    assert broken.struck == 1 and rig.wire.now < MOST_SECONDS
    broken.off_until = rig.wire.now
    with rig.open() as device:
        device.load(made)
        check(device, made, 3)


def test_a_core_between_running_and_done_is_waited_for(tmp_path: Path) -> None:
    """In one cycle of a run STATUS shows neither: it did not forget its program."""
    rig = Rig("witnessed udp", "poll", Fault("lost"))  # without a witness two readings must agree
    register = rig.board._register

    def between(name: str) -> int:
        before, found = rig.board.programs, register(name)
        return found if name != "STATUS" or rig.board.programs == before else 1 << Status.IDLE

    rig.board._register = between  # type: ignore[method-assign]
    with rig.open() as device:
        device.load(adder(tmp_path))
        check(device, adder(tmp_path), 1)
        assert rig.board.programs == 1


def test_a_pause_of_the_link_is_no_length_of_a_program(tmp_path: Path) -> None:
    """A run during which the link was silent does not make the next ones wait as long as it took."""
    made, fault = adder(tmp_path), Fault("silent")
    rig = Rig("udp", "poll", fault)
    rig.skipped, rig.board.patience = 6, 20
    with rig.open() as device:
        device.load(made)
        check(device, made, 1)
        assert fault.struck and rig.wire.now > fault.off_seconds
        began = rig.wire.now
        check(device, made, 2)
        assert rig.wire.now - began < fault.off_seconds / 2


def test_a_time_out_is_no_length_of_a_program(tmp_path: Path) -> None:
    """A program that hung once is not waited for as long in the next run."""
    made, rig = adder(tmp_path), Rig("udp", "identify", Fault("lost"))
    with rig.open() as device:
        device.load(made)
        rig.board.hangs = True
        with pytest.raises(DeviceTimeout):
            device.run(inputs_for(made), raw=True)
        rig.board.hangs, began = False, rig.wire.now
        check(device, made, 1)
        assert rig.wire.now - began < 1


@pytest.mark.parametrize("phase", PHASES[1:])
@pytest.mark.parametrize("link", LINKS)
def test_a_board_that_loses_its_power_with_its_cable(link: str, phase: str, tmp_path: Path) -> None:
    """All that the board held is written again, the program runs again, and the same device runs the next one."""
    made, cut = adder(tmp_path), Fault("unplugged")
    rig = Rig(link, phase, cut)
    cut.power = rig.power_off
    with rig.open() as device:
        device.load(made)
        for number in range(3):
            if number:
                device.target.bridge.doubt()  # type: ignore[attr-defined]
            check(device, made, number)
        assert cut.struck == 1 and rig.wire.now < 10 * OFF_SECONDS
