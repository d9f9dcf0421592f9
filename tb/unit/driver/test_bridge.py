# SPDX-License-Identifier: Apache-2.0
"""The bridge over links that lose, double, flip and are cut: no wrong memory that is not noticed, and it goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import Status
from weft.hw.contract.host_link import ROOM_BYTES
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.runtime.driver.bridge import Bridge, read_bytes, write_bytes
from weft.runtime.driver.checked_bridge import CheckedBridge
from weft.runtime.driver.etherbone import Etherbone, _records
from weft.runtime.driver.register_machine import RegisterMachine
from weft.runtime.driver.transport import LinkError, LinkFault, Read, Write
from weft.runtime.driver.uartbone import UartBone
from weft.tb.bench.link_models import Faults, Memory, UartWire, UdpWire, Witnessed, flip_bits

BASE, WORDS = 0x4000_0000, 512
WITNESS = 0x9100_0000
FAULTS = 1000
APART = {"uart": 2200, "udp": 12, "witnessed uart": 2200, "witnessed udp": 12}
"""Kind of link -> bytes or packets between two faults."""
KINDS = list(APART)

Wire = UartWire | UdpWire


def link(kind: str, memory: Memory, faults: Faults | None = None) -> tuple[Bridge, Wire]:
    witnessed = kind.startswith("witnessed")
    bus = Witnessed(memory, WITNESS) if witnessed else memory
    wire: Wire
    transport: UartBone | Etherbone
    if kind.endswith("uart"):
        wire = UartWire(bus, faults, room=ROOM_BYTES if witnessed else 0)
        transport = UartBone("model", wire.open, sleep=wire.sleep)
    else:
        wire = UdpWire(bus, faults)
        transport = Etherbone("model", wire, wire.sleep)
    bridge = Bridge(transport)
    return CheckedBridge(bridge, WITNESS) if witnessed else bridge, wire


class Host:
    """Does random work through a bridge, and knows what memory must hold."""

    def __init__(self, bridge: Bridge, memory: Memory, seed: int) -> None:
        self.bridge, self.memory, self.random = bridge, memory, random.Random(f"work {seed}")
        self.expected = memory.words.copy()
        self.ours = np.zeros(WORDS, bool)
        self.noticed = 0

    def step(self) -> None:
        size = self.random.choice([1, 2, 7, 60, 280])
        first = self.random.randrange(WORDS - size)
        if self.random.random() < 0.4:
            found = self.bridge.read(BASE + 4 * first, size)
            self._look()
            assert found.tolist() == self.expected[first:first + size].tolist()
            return
        self.expected[first:first + size] = self._words(first, size)
        self.ours[first:first + size] = True
        self.bridge.write(BASE + 4 * first, self.expected[first:first + size])
        self.bridge.settle()
        self._look()

    def _words(self, first: int, size: int) -> np.ndarray:
        """Random words, and such as hide faults: zeros, small numbers that look like commands, what is there."""
        kind = self.random.randrange(4)
        words = np.frombuffer(self.random.randbytes(4 * size), np.uint32).copy()
        if kind == 1:
            words[:] = 0
        elif kind == 2:
            words &= 0x0303_0303
        elif kind == 3:
            keep = words & 1 == 0
            words[keep] = self.expected[first:first + size][keep]
        return words

    def _look(self) -> None:
        """All that we wrote is there; the rest may differ only when the bridge says so."""
        if self.bridge.strays != self.noticed:
            self.noticed = self.bridge.strays
            self.expected[~self.ours] = self.memory.words[~self.ours]
        wrong = np.flatnonzero(self.expected != self.memory.words)
        assert not len(wrong), f"words {wrong[:8]} are wrong, and nobody noticed"


@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_faults(kind: str) -> None:
    memory = Memory(BASE, WORDS)
    faults = Faults(1, FAULTS, APART[kind], flip_bits)
    bridge, _ = link(kind, memory, faults)
    host = Host(bridge, memory, 1)
    while faults.left:
        host.step()
    for _ in range(5):
        host.step()
    assert sum(faults.seen.values()) == FAULTS and min(faults.seen.values()) > 100
    assert bridge.faults > FAULTS / 4 and bridge.strays > 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2, 6))
def test_each_kind_of_fault_alone(kind: str, seed: int) -> None:
    """Faults of one kind, so that none hides behind another."""
    for fault in ("drop", "flip", "duplicate", "cut"):
        memory = Memory(BASE, WORDS)
        faults = Faults(seed, 15, APART[kind], flip_bits, [fault])
        bridge, _ = link(kind, memory, faults)
        host = Host(bridge, memory, seed)
        while faults.left:
            host.step()


def test_without_faults_nothing_is_repeated() -> None:
    for kind in KINDS:
        memory = Memory(BASE, WORDS)
        bridge, _ = link(kind, memory)
        host = Host(bridge, memory, 9)
        for _ in range(40):
            host.step()
        assert bridge.faults == bridge.strays == 0


@pytest.mark.parametrize("kind", KINDS)
def test_unplugged_and_plugged_again(kind: str) -> None:
    memory = Memory(BASE, WORDS)
    bridge, wire = link(kind, memory)
    words = np.arange(1, 201, dtype=np.uint32)
    bridge.write(BASE, words)
    wire.plugged, strays = False, bridge.strays
    began = wire.now
    for _ in range(2):
        with pytest.raises(LinkError, match="no whole answer"):
            bridge.read(BASE, 4)
        with pytest.raises(LinkError):
            bridge.write(BASE + 1024, words)
            bridge.settle()
    assert wire.now - began < 20, "the host hung"
    wire.plugged = True
    memory.words[:] = 0  # it was without power
    assert bridge.read(BASE, 2).tolist() == [0, 0]
    assert bridge.strays > strays, "the bridge knows that memory may be lost"
    bridge.settle()
    assert memory.words[:200].tolist() == memory.words[256:456].tolist() == words.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_there(kind: str) -> None:
    bridge, wire = link(kind, Memory(BASE, WORDS))
    wire.faults = Faults(1, 10**9, 1, flip_bits, ["cut"], 1e9)
    with pytest.raises(LinkError, match="link model: found no whole answer, 12 times.*way out: look at cable"):
        bridge.read(BASE, 1)
    assert wire.now < 10


@pytest.mark.parametrize("kind", ["uart", "witnessed uart"])
def test_released_words_are_left_alone(kind: str) -> None:
    memory = Memory(BASE, WORDS)
    bridge, _ = link(kind, memory)
    bridge.write(BASE, np.arange(10, dtype=np.uint32))
    bridge.settle()
    bridge.release(BASE + 8, 2)
    memory.words[:5] = 99
    bridge.repair()
    assert memory.words[:6].tolist() == [0, 1, 99, 99, 4, 5]


@pytest.mark.parametrize(("address", "size"), [(0, 1), (1, 2), (3, 2), (2, 9), (4, 8), (5, 0), (4, 0)])
def test_bytes_at_any_address(address: int, size: int) -> None:
    memory = Memory(BASE, WORDS)
    memory.words[:] = 0x11223344
    bridge, _ = link("udp", memory)
    before = memory.words.tobytes()
    content = bytes(range(1, size + 1))
    write_bytes(bridge, BASE + address, content)
    assert memory.words.tobytes() == before[:address] + content + before[address + size:]
    assert read_bytes(bridge, BASE + address, size) == content


@pytest.mark.parametrize("kind", ["udp", "witnessed udp"])
def test_what_was_lost_meanwhile_is_written_again(kind: str) -> None:
    """Words that a write finds kept are not believed where anything may be wrong."""
    memory = Memory(BASE, WORDS)
    bridge, _ = link(kind, memory)
    words = np.arange(50, dtype=np.uint32)
    bridge.write(BASE, words)
    bridge.settle()
    memory.words[:] = 7
    bridge.write(BASE, words)
    assert memory.words[0] == 7, "nothing said that it was lost"
    bridge.doubt()
    bridge.write(BASE, words)
    bridge.settle()
    assert memory.words[:50].tolist() == words.tolist()


ATTACK = np.array([5, 0x0101_1000, 0x0064_DEAD, 0xBEEF_0000, 0, 0, 0, 0], np.uint32)
"""From the second word on these are the bytes of a command that writes 0xDEADBEEF to word 100."""


def shortened_once(bridge: Bridge, wire: UartWire) -> None:
    """Damage the length of the first write of eight words: the far end takes seven of them for commands."""
    sent, transport = [], bridge.transport
    write = transport.write

    def damaged(byte: int) -> list[int]:
        sent.append(byte)
        return [1] if len(sent) == 2 and byte == 8 else [byte]

    def watched(address: int, words: np.ndarray) -> None:
        wire.carry = damaged  # type: ignore[method-assign]
        write(address, words)

    transport.write = watched  # type: ignore[method-assign]


def test_a_write_that_went_elsewhere_is_seen_though_most_words_were_there() -> None:
    """Were all eight words sent, seven of them would be right before and after: a look would see nothing wrong."""
    memory = Memory(BASE, WORDS)
    bridge, wire = link("uart", memory)
    assert isinstance(wire, UartWire)
    memory.words[:8] = ATTACK
    memory.words[0] = 4
    shortened_once(bridge, wire)
    bridge.write(BASE, ATTACK)
    assert memory.words[:8].tolist() == ATTACK.tolist()
    assert memory.words[100] == 0 or bridge.strays


def test_what_a_stray_write_damaged_is_put_right() -> None:
    memory = Memory(BASE, WORDS)
    bridge, wire = link("uart", memory)
    assert isinstance(wire, UartWire)
    bridge.write(BASE + 400, np.array([77], np.uint32))
    memory.words[:8] = 1
    shortened_once(bridge, wire)
    bridge.write(BASE, ATTACK)
    assert bridge.strays == 1
    assert memory.words[100] == 77 and memory.words[:8].tolist() == ATTACK.tolist()


# -- with a witness ----------------------------------------------------------------------------------------------------
def counted(wire: Wire) -> list[int]:
    """The bytes that the wire carries to the far end from now on."""
    sent: list[int] = []
    if isinstance(wire, UartWire):
        carry = wire.carry
        wire.carry = lambda byte: sent.append(1) or carry(byte)  # type: ignore[method-assign, func-returns-value]
    else:
        send = wire.send
        wire.send = lambda content: sent.append(len(content)) or send(content)  # type: ignore[method-assign, func-returns-value]
    return sent


@pytest.mark.parametrize("kind", ["witnessed uart", "witnessed udp"])
def test_a_load_goes_over_the_link_once(kind: str) -> None:
    """At most 1.1 times its bytes, heads of commands and packets among them."""
    memory = Memory(BASE, 1 << 15)
    bridge, wire = link(kind, memory)
    words = np.random.default_rng(1).integers(0, 1 << 32, len(memory.words), np.uint32)
    sent = counted(wire)
    bridge.write(BASE, words)
    bridge.settle()
    assert memory.words.tolist() == words.tolist()
    assert sum(sent) < 1.1 * words.nbytes


@pytest.mark.parametrize("kind", ["witnessed uart", "witnessed udp"])
def test_writes_and_reads_share_one_exchange(kind: str) -> None:
    """Registers are set, a command is given, and something is read: one answer is waited for."""
    memory = Memory(BASE, WORDS)
    bridge, wire = link(kind, memory)
    exchanges, exchange = [], bridge.transport.exchange  # type: ignore[attr-defined]

    def watched(*all_: Any) -> list[np.ndarray]:
        exchanges.append(all_)
        return exchange(*all_)

    bridge.transport.exchange = watched  # type: ignore[attr-defined]
    for number in range(5):
        bridge.write(BASE + 16 * number, np.array([number + 1], np.uint32))
    bridge.command(BASE + 400, 7)
    assert not exchanges
    assert bridge.read(BASE, 101).tolist()[::4] == [1, 2, 3, 4, 5, *[0] * 20, 7]
    assert len(exchanges) == 1 and bridge.faults == 0


def test_windows_are_filled_to_their_last_word_and_leave_room_for_the_witness() -> None:
    """Ten words of a window, four reads of which the witness is one."""
    bridge = object.__new__(CheckedBridge)
    bridge.transport = SimpleNamespace(window_words=10, most_reads=4)
    sizes = 4, 6, 1, 10, 3, 7, 1
    windows = bridge._windows([(0, np.zeros(size, np.uint32)) for size in sizes])
    assert [[len(words) for _, words in window] for window in windows] == [[4, 6], [1], [10], [3, 7], [1]]
    assert [[size for _, size in window] for window in bridge._read_windows([(0, size) for size in sizes])] == [
        [4, 6], [1], [10], [3, 7], [1]]
    assert [len(window) for window in bridge._read_windows([(0, 1)] * 7)] == [3, 3, 1]
    assert list(bridge._windows([])) == bridge._read_windows([]) == []


@pytest.mark.parametrize("kind", ["witnessed uart", "witnessed udp"])
def test_what_waits_is_sent_before_a_pause(kind: str) -> None:
    """A far end that is to work meanwhile has been told to."""
    memory = Memory(BASE, WORDS)
    bridge, _ = link(kind, memory)
    seen, pause = list[int](), bridge.transport.pause
    bridge.transport.pause = lambda seconds: (seen.append(int(memory.words[3])), pause(seconds))  # type: ignore
    bridge.command(BASE + 12, 7)
    bridge.pause(0.01)
    assert seen == [7]


def test_as_many_reads_are_sent_together_as_the_far_end_has_room_for() -> None:
    """While it answers the first one, which is long, the others wait there."""
    memory = Memory(BASE, WORDS)
    memory.words[:] = np.arange(WORDS)
    bridge, _ = link("witnessed uart", memory)
    transport: Any = bridge.transport
    reads = [(BASE, 250), *[(BASE + 4 * 300, 1)] * transport.most_reads]
    assert np.concatenate(transport.exchange([], reads[:-1])).tolist() == [
        *range(250), *[300] * (transport.most_reads - 1)]
    with pytest.raises(LinkFault):
        transport.exchange([], reads)


def test_records_are_filled_to_their_last_word() -> None:
    """By writes that follow each other in memory; a record has at most 255 words."""
    sizes, at, writes = (100, 155, 200, 56, 255, 1), BASE, []
    for size in sizes:
        writes.append((at, np.full(size, size, np.uint32)))
        at += 4 * size
    records = _records(writes)
    assert [len(record.words) for record in records] == [255, 200, 56, 255, 1]
    assert np.concatenate([record.words for record in records]).tolist() == [
        size for size in sizes for _ in range(size)]
    assert [record.base for record in records] == [BASE + 4 * first for first in (0, 255, 455, 511, 766)]
    apart = [(BASE, writes[0][1]), (BASE + 4 * 101, writes[0][1])]
    assert [record.base for record in _records(apart)] == [BASE, BASE + 404]


def test_questions_are_numbered_on_from_zero_behind_the_last_number() -> None:
    memory = Memory(BASE, WORDS)
    memory.words[:] = np.arange(WORDS)
    bridge, _ = link("udp", memory)
    transport: Any = bridge.transport
    transport._number = (1 << 32) - 2
    assert [transport.read(BASE + 4 * number, 2).tolist() for number in range(4)] == [
        [number, number + 1] for number in range(4)]


@pytest.mark.parametrize("seed", range(3))
def test_what_a_machine_takes_to_be_there_is_there(seed: int) -> None:
    """Constants that never change, put again and again where others overlap them: memory has what was put last."""
    rng, memory = random.Random(seed), Memory(BASE, 64)
    bridge, wanted = link("udp", memory)[0], bytearray(256)
    machine: Any = object.__new__(RegisterMachine)
    machine.bridge, machine._there = bridge, {}
    sources = []
    for number in range(6):
        first = rng.randrange(0, 180)
        content = np.frombuffer(rng.randbytes(rng.choice((4, 31, 64))), np.uint8)  # nobody can write to it
        sources.append((first, content if number else content.copy()))  # but to the first one
    for _ in range(60):
        first, content = rng.choice(sources)
        if content.flags.writeable:
            content[:] = rng.randrange(256)
        machine._put(BASE + first, content, content.tobytes, len(content))
        wanted[first:first + len(content)] = content.tobytes()
        bridge.settle()
        assert memory.words.astype("<u4").tobytes() == wanted


def test_each_program_begins_with_a_page() -> None:
    """A page has 256 bytes, a whole number of beats of any machine."""
    machine: Any = object.__new__(RegisterMachine)
    machine.places = SimpleNamespace(bus=lambda memory: BASE, machine=lambda memory: 0x10000)
    put = list[tuple[int, int]]()
    machine._worked_out = lambda program: SimpleNamespace(content=program)
    machine._put = lambda start, source, content, size: put.append((start, size))
    placed = machine._place([[bytes(49), bytes(5000)], [bytes(4096), bytes(1)]])
    assert [[each.address - 0x10000 for each in group] for group in placed] == [[0, 0x100], [0x1500, 0x2500]]
    assert put == [(BASE, 49), (BASE + 0x100, 5000), (BASE + 0x1500, 4096), (BASE + 0x2500, 1)]


@pytest.mark.parametrize(("first", "size"), [(0, 1), (1, 1), (3, 2), (4, 4), (5, 7)])
def test_all_words_that_a_program_may_write_in_part_are_released(first: int, size: int) -> None:
    """Vectors of three bytes."""
    machine: Any = object.__new__(RegisterMachine)
    machine.arch = Arch.load("tiny").replace(data_type="INT8", array_size=3)
    machine.isa, machine._programs, machine._registers_set = Isa(machine.arch), {}, {}
    machine.places = SimpleNamespace(bus=lambda memory: BASE, blocks=lambda memory: 0)
    program = machine.isa.assemble([machine.isa.data_move(DataFlow.LOCAL_TO_DRAM1, 0, first, size)])
    (start, words), = machine._worked_out(program).written
    assert (start, start + 4 * words) == (BASE + 3 * first // 4 * 4, BASE - (-3 * (first + size) // 4 * 4))


def test_flags_of_an_earlier_program_are_taken_back() -> None:
    machine: Any = object.__new__(RegisterMachine)
    machine._command, told = lambda *command: None, list[tuple[str, int]]()
    machine._reset([SimpleNamespace(command=lambda name, word: told.append((name, word)))] * 2)
    assert told == [("INTERRUPT_STATUS", 0b1111)] * 2


def waiting_machine(ends: Sequence[float], expected: Sequence[float]) -> tuple[Any, list[Any], list[Any], list[float]]:
    """A machine, its cores and their programs, each of which ends at a second of ``ends``; and the pauses it takes."""
    now, pauses = [0.0], list[float]()
    machine: Any = object.__new__(RegisterMachine)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    machine.bridge = SimpleNamespace(transport=SimpleNamespace(seconds=lambda: now[0]), faults=0, pause=pause)
    machine.ring, machine.seconds, machine._look_seconds = None, 60.0, 0.0
    machine._expected = lambda program: program.expected
    cores = [SimpleNamespace(read=lambda name, end=end: 1 << (Status.DONE if now[0] >= end else Status.RUNNING))
             for end in ends]
    return machine, cores, [SimpleNamespace(program=SimpleNamespace(expected=each)) for each in expected], pauses


def test_a_group_is_left_alone_until_its_longest_program_is_expected_to_end() -> None:
    machine, cores, group, pauses = waiting_machine([1.0, 3.0], [1.0, 3.0])
    assert machine._wait(cores, group, 0.0) == [1 << Status.DONE] * 2 and pauses == [3.0]


def test_the_core_that_does_not_end_is_told_with_its_own_program() -> None:
    machine, cores, group, _ = waiting_machine([1.0, 1e9], [0.0, 0.0])

    def told(core: int, placed: Any, status: int) -> Exception:
        assert core == 1 and placed is group[1] and status == 1 << Status.RUNNING
        return TimeoutError()

    machine._timeout = told
    with pytest.raises(TimeoutError):
        machine._wait(cores, group, 0.0)


def test_samples_are_those_of_the_first_core() -> None:
    machine: Any = object.__new__(RegisterMachine)
    cores = [SimpleNamespace(counters=lambda: (50, 9)) for _ in range(2)]
    machine.registers, machine.settings = cores[0], SimpleNamespace(sample_cycles=5, watched=False)
    machine.ring = SimpleNamespace(ended=lambda cycles, interval: [cycles, interval])
    group = [SimpleNamespace(program=SimpleNamespace(count=9, before=2, cycles=0))] * 2
    assert [done.samples for done in machine._done(cores, group, 1.0)] == [[50, 5], None]


def test_a_lost_packet_is_no_stray() -> None:
    """The witness says how far the writes came: the rest is sent again, and nothing is read."""
    memory = Memory(BASE, 1 << 12)
    bridge, wire = link("witnessed udp", memory, Faults(3, 6, 8, flip_bits, ["drop"]))
    words = np.arange(1, 1 + len(memory.words), dtype=np.uint32)
    sent = counted(wire)
    bridge.write(BASE, words)
    bridge.settle()
    assert memory.words.tolist() == words.tolist()
    assert bridge.faults and not bridge.strays
    assert sum(sent) < 2 * words.nbytes


class Counted(Memory):
    """Memory that knows which addresses were written."""

    def __init__(self, base: int, size: int) -> None:
        super().__init__(base, size)
        self.given: list[int] = []

    def write(self, address: int, word: int) -> None:
        self.given.append(address)
        super().write(address, word)


@pytest.mark.parametrize("kind", ["witnessed uart", "witnessed udp"])
def test_a_command_is_carried_out_once_or_not_at_all(kind: str) -> None:
    """Or the bridge says that anything may have happened."""
    for seed in range(40):
        memory = Counted(BASE, WORDS)
        bridge, _ = link(kind, memory, Faults(seed, 1, 20 if "uart" in kind else 3, flip_bits))
        for number in range(4):
            bridge.command(BASE + 4 * number, 1)
            bridge.read(BASE + 100, 3)
        assert bridge.strays or memory.given == [BASE, BASE + 4, BASE + 8, BASE + 12], seed


def test_late_answers_are_known() -> None:
    """An answer to an earlier question of the same length is not taken for that to this one."""
    memory = Memory(BASE, WORDS)
    wire = UdpWire(memory)
    transport = Etherbone("model", wire, wire.sleep)
    memory.words[:2] = 1, 2
    assert transport.read(BASE, 1).tolist() == [1]
    wire._input.append(wire._answers(bytes.fromhex("4e6f104400000000000f0001") + (1).to_bytes(4, "big")
                                     + BASE.to_bytes(4, "big"))[0])
    assert transport.read(BASE + 4, 1).tolist() == [2]


@pytest.mark.parametrize(("failing", "strays"), [(2, 0), (3, 1)])
def test_a_far_end_may_have_been_off_after_three_attempts(failing: int, strays: int) -> None:
    """An answer to the fourth counts as a stray, even if the link says nothing of it."""
    bridge, _ = link("udp", Memory(BASE, WORDS))
    left = iter([True] * failing)

    def exchange() -> np.ndarray:
        if next(left, False):
            raise LinkFault("nothing")
        return np.zeros(1, np.uint32)

    bridge._recover = lambda: None  # type: ignore[method-assign]
    bridge._persist(exchange)
    assert bridge.strays == strays


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("witnessed")])
def test_what_waits_is_what_was_given(kind: str) -> None:
    """The caller may use its array again before anything is sent."""
    memory = Memory(BASE, WORDS)
    bridge, _ = link(kind, memory)
    words = np.arange(5, dtype=np.uint32)
    bridge.write(BASE, words)
    words[...] = 77
    assert bridge.read(BASE, 5).tolist() == memory.words[:5].tolist() == [0, 1, 2, 3, 4]


def test_a_witness_does_not_make_sure_what_was_in_doubt() -> None:
    """Words that a plain bridge wrote are looked at again, if anything went astray."""
    memory = Memory(BASE, WORDS)
    wire = UdpWire(Witnessed(memory, WITNESS), None)
    plain = Bridge(Etherbone("model", wire, wire.sleep))
    plain.write(BASE, np.arange(5, dtype=np.uint32))
    memory.words[2] = 9
    plain.doubt()
    bridge = CheckedBridge(plain, WITNESS)
    bridge.write(BASE, np.arange(5, dtype=np.uint32))
    bridge.settle()
    assert memory.words[:5].tolist() == [0, 1, 2, 3, 4]


def test_commands_behind_a_stray_are_not_carried_out() -> None:
    """Each is in a window of its own, and the first one goes astray."""
    bridge, _ = link("witnessed udp", Memory(BASE, WORDS))
    assert isinstance(bridge, CheckedBridge)
    carried: list[int] = []

    def carry(writes: Sequence[Write], reads: Sequence[Read]) -> list[np.ndarray]:
        carried.append(len(writes))
        bridge.strays += len(carried) == 1
        return []

    bridge._carry = carry  # type: ignore[method-assign]
    bridge._windows = lambda writes: iter([[each] for each in writes])  # type: ignore[method-assign]
    for word in range(4):
        bridge.command(BASE, word)
    bridge._flush([])
    assert carried[0] == 1 and sum(carried) == 1


def test_a_write_of_what_is_kept_repairs_what_is_in_doubt() -> None:
    memory = Memory(BASE, WORDS)
    bridge, _ = link("uart", memory)
    for first in (0, 100):
        bridge.write(BASE + 4 * first, np.arange(3, dtype=np.uint32) + first)
    memory.words[1] = memory.words[101] = 9
    bridge.doubt()
    bridge.write(BASE, np.arange(3, dtype=np.uint32))
    assert memory.words[[1, 101]].tolist() == [1, 101]
