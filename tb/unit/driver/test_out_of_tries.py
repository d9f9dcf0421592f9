# SPDX-License-Identifier: Apache-2.0
"""Links on which nothing helps: each loop of tries ends with an error that says what was found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.runtime.driver import uartbone
from weft.runtime.driver.bridge import ATTEMPTS, REPAIRS, Bridge
from weft.runtime.driver.checked_bridge import CheckedBridge
from weft.runtime.driver.etherbone import MOST_FOREIGN, PATIENCE_SECONDS, Etherbone
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.register_machine import RUNS
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.sample_ring import SampleRing
from weft.runtime.driver.transport import LinkError, LinkFault
from weft.runtime.driver.uartbone import UartBone
from weft.tb.bench.link_models import Memory, UartLine, UartWire, UdpWire, Witnessed
from weft.tb.bench.register_model import litex_model
from weft.tb.unit.driver.test_device import TINY, WITNESS, adder, inputs_for, over
from weft.tb.unit.runtime.models import OUTPUT_BASE

OUTPUT = 0x4000_0000 + OUTPUT_BASE * TINY.vector_bytes


class Stubborn(Memory):
    """Memory that keeps nothing of what is written."""

    def write(self, address: int, word: int) -> None:
        pass


class Answers:
    """A transport that reads what a function of the number of readings says, and writes nothing."""

    name, most_words = "model", 4

    def __init__(self, answer: Callable[[int], int]) -> None:
        self.answer, self.readings = answer, 0

    def read(self, address: int, count: int) -> np.ndarray:
        self.readings += 1
        return np.full(count, self.answer(self.readings), np.uint32)

    def write(self, address: int, words: np.ndarray) -> None:
        pass

    def resynchronise(self) -> bool:
        return False

    def seconds(self) -> float:
        return 0

    def pause(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


def witnessed(memory: Memory) -> CheckedBridge:
    wire = UdpWire(Witnessed(memory, WITNESS))
    return CheckedBridge(Bridge(Etherbone("model", wire, wire.sleep)), WITNESS)


def test_readings_that_all_differ() -> None:
    transport = Answers(lambda number: number)
    with pytest.raises(LinkError, match=f"{ATTEMPTS} readings of address 0x40 that all differ"):
        Bridge(transport).read(0x40, 1)
    assert transport.readings == ATTEMPTS + 1


def test_writes_that_are_never_there() -> None:
    found = f"{ATTEMPTS} writes to address 0x40 that are not there"
    with pytest.raises(LinkError, match=found):
        Bridge(Answers(lambda number: 0)).write(0x40, np.ones(1, np.uint32))
    bridge = witnessed(Stubborn(0, 64))
    bridge.write(0x40, np.ones(1, np.uint32))
    assert bridge.read(0x40, 1).tolist() == [0]
    bridge.doubt()
    with pytest.raises(LinkError, match=found):
        bridge.settle()


def test_a_repair_that_is_disturbed_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge, puts = Bridge(Answers(lambda number: 0)), []
    bridge.write(0x40, np.zeros(1, np.uint32))

    def put(address: int, words: np.ndarray) -> None:
        puts.append(address)
        bridge.doubt()

    monkeypatch.setattr(bridge, "_put", put)
    bridge.doubt()
    with pytest.raises(LinkError, match=f"writes that go astray, {REPAIRS} rounds in a row"):
        bridge.settle()
    assert puts == [0x40] * REPAIRS


def test_a_witness_that_always_saw_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = witnessed(Memory(0, 64))
    monkeypatch.setattr(bridge._witness, "confirms", lambda *_: False)
    with pytest.raises(LinkError, match=f"no whole exchange, {ATTEMPTS} times, at last a witness that saw something"):
        bridge.read(0, 1)


def test_a_stray_within_a_flush_is_repaired_before_its_answer() -> None:
    """The far end loses its memory while a read is under way: what was written is there again at the next one."""
    memory = Memory(0, 64)
    bridge = witnessed(memory)
    bridge.write(0x40, np.array([7], np.uint32))
    assert bridge.read(0x40, 1).tolist() == [7]
    confirms = bridge._witness.confirms

    def lost(*arguments: object) -> bool:
        memory.words[:], bridge._witness.confirms = 0, confirms  # type: ignore[method-assign]
        bridge.strays += 1
        return False

    bridge._witness.confirms = lost  # type: ignore[method-assign, assignment]
    bridge.read(0, 1)
    assert memory.words[0x10] == 7


class Foreign:
    """A network on which only other people's packets, or an error of the system, come in."""

    def __init__(self, packet: bytes | OSError) -> None:
        self.packet, self.received, self.slept = packet, 0, 0.0

    def recv(self, size: int) -> bytes:
        self.received += 1
        if isinstance(self.packet, OSError):
            raise self.packet
        return self.packet

    def sleep(self, seconds: float) -> None:
        self.slept += seconds

    def send(self, packet: bytes) -> int:
        return len(packet)

    def settimeout(self, seconds: float | None) -> None:
        pass

    def close(self) -> None:
        pass


def test_only_answers_to_other_questions() -> None:
    """They are neither waited for nor dropped without end."""
    wire = Foreign(b"somebody's")
    link = Etherbone("model", wire, wire.sleep)
    with pytest.raises(LinkFault, match="answers to other questions"):
        link.read(0, 1)
    assert wire.received == MOST_FOREIGN
    assert not link.resynchronise() and wire.received == 2 * MOST_FOREIGN


def test_a_system_that_refuses_to_receive() -> None:
    wire = Foreign(ConnectionRefusedError(111, "Connection refused"))
    with pytest.raises(LinkFault, match="connection refused"):
        Etherbone("model", wire, wire.sleep).read(0, 1)
    assert wire.slept == PATIENCE_SECONDS


@pytest.mark.parametrize("fails", ["open", "clear"])
def test_a_line_that_is_lost_again_while_it_is_opened(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try says why; when the line is there again, it is used."""
    memory = Memory(0, 64)
    memory.words[:] = 5
    wire = UartWire(memory)
    link = UartBone("model", wire.open, sleep=wire.sleep)
    assert link._line is not None
    link._lost(link._line, OSError(5, "Input/output error"))
    with pytest.raises(LinkFault, match="input/output error"):
        link.read(0, 1)

    def lost(*_: object) -> None:
        raise LinkError("no such port") if fails == "open" else OSError(6, "No such device")

    with monkeypatch.context() as patch:
        if fails == "open":
            patch.setattr(link, "_open_line", lost)
        else:
            patch.setattr(UartLine, "reset_input_buffer", lost)
        assert link.resynchronise() == (fails == "clear")
    with pytest.raises(LinkFault, match="no such port" if fails == "open" else "no such device"):
        link.read(0, 1)
    assert link.resynchronise() and link.read(0, 2).tolist() == [5, 5]
    link.close()
    link.close()
    assert link._line is None


def test_an_answer_that_nobody_waits_for_is_not_the_next_one() -> None:
    memory = Memory(0, 64)
    memory.words[:] = range(64)
    wire = UartWire(memory)
    link = UartBone("model", wire.open, sleep=wire.sleep)
    assert link._line is not None
    link._line.write(uartbone._head(uartbone.READ, 0, 1))
    wire.sleep(1)
    with pytest.raises(LinkFault, match="bytes that nobody asked for"):
        link.read(4, 1)
    assert not link.resynchronise() and link.read(4, 1).tolist() == [1]


def test_a_ring_that_does_not_take_what_was_taken() -> None:
    ring = SampleRing(Bridge(Answers(lambda number: 3)), 0)
    ring._taken = 5
    with pytest.raises(LinkError, match="3 samples taken.*5, as it was told"):
        ring.drain()


@pytest.mark.parametrize("during", ["run", "read"])
def test_faults_in_every_run(during: str, tmp_path: Path) -> None:
    """A link that disturbs each run, or each reading of its results, does not run the program for ever."""
    board, made = litex_model(TINY), adder(tmp_path)
    with over("udp", board) as device:
        device.load(made)
        assert isinstance(device.target, LinkTarget)
        bridge, run = device.target.bridge, board._run
        read = bridge.read

        def ran() -> None:
            run()
            bridge.strays += 1

        def look(address: int, count: int) -> np.ndarray:
            bridge.strays += address == OUTPUT
            return read(address, count)

        if during == "run":
            board._run = ran  # type: ignore[method-assign]
        else:
            bridge.read = look  # type: ignore[method-assign]
        with pytest.raises(DeviceError, match=f"faults in each of {RUNS} runs"):
            device.run(inputs_for(made), raw=True)
        assert board.programs == RUNS + (during == "read")
