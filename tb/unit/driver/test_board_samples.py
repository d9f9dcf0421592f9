# SPDX-License-Identifier: Apache-2.0
"""Samples, flags and AxCACHE on boards: the driver against a model of registers and ring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import Status
from weft.hw.contract.host_link import (
    RING_BYTES,
    RING_COUNT_BITS,
    RING_SAMPLES,
    RING_TAKEN,
    RING_WORDS,
    RING_WRITTEN,
    ROOM_BYTES,
)
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.samples import COUNTER_BITS, FILLER
from weft.runtime.driver.device import Device
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.memory_map import LITEX_MEMORY, LITEX_REGISTERS
from weft.runtime.driver.sample_ring import SampleRing
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.driver.targets import open_target, read_device
from weft.runtime.driver.uartbone import UartBone
from weft.runtime.run_settings import RunSettings
from weft.runtime.samples import Samples
from weft.runtime.session import RunResult, Session
from weft.support.errors import WeftError
from weft.tb.bench.link_models import Faults, UartWire, Witnessed, flip_bits
from weft.tb.bench.register_model import RegisterModel, litex_model
from weft.tb.unit.driver.test_device import TINY, WITNESS, adder, inputs_for
from weft.tb.unit.runtime.models import SIZE, model
from weft.tmodel.manifest import TModel

RING = 0x9200_0000
BUSY = 1 << COUNTER_BITS | 1 << COUNTER_BITS + 1
"""Bits of a sample: its first handshake is taken."""


class Ringed:
    """A board with a ring: a program leaves a busy sample for each interval, and the machine at rest more of them."""

    def __init__(self, model: RegisterModel, after: int = 3, slower: int = 1) -> None:
        self.model, self.after, self.slower = model, after, slower
        self.words = np.zeros(RING_SAMPLES, np.uint64)
        self.taken = self.seen = self.written = self.lost = 0
        self.waiting: list[int] = []
        model._run = self._run  # type: ignore[method-assign]
        self.set: list[dict[Register, int]] = []

    def _run(self) -> None:
        RegisterModel._run(self.model)
        registers = self.model.machine.registers
        self.set.append({register: registers[register] for register in (
            Register.TIMEOUT, Register.TRACEPOINT, Register.DRAM0_CACHE, Register.DRAM1_CACHE,
            Register.SAMPLE_INTERVAL)})
        interval = registers[Register.SAMPLE_INTERVAL]
        self.model.values["CYCLES_LOW"] *= self.slower
        if interval:
            self.waiting += [BUSY | number for number in range(self.model.values["CYCLES_LOW"] // interval)]
            self.waiting += [self.model.machine.program_counter] * self.after + [FILLER]
        if registers[Register.TRACEPOINT] < self.model.machine.program_counter:
            self.model.values["INTERRUPT_STATUS"] |= 1 << Status.TRACEPOINT
        self._put()

    def _put(self) -> None:
        """The sampler offers one sample at a time and loses those that find the ring full."""
        while self.waiting and self.written - self.taken < RING_SAMPLES:
            self.words[self.written % RING_SAMPLES] = self.waiting.pop(0)
            self.written += 1
        self.lost += len(self.waiting)
        self.waiting = self.waiting[:1]

    def read(self, address: int) -> int:
        offset = address - RING
        if not 0 <= offset < RING_BYTES:
            return self.model.read(address)
        if offset >= RING_WORDS:
            number, half = divmod((offset - RING_WORDS) // 4, 2)
            return int(self.words[number] >> np.uint64(32 * half)) & 0xFFFF_FFFF
        return {RING_TAKEN: self.taken, RING_WRITTEN: self.seen}[offset] % (1 << RING_COUNT_BITS)

    def write(self, address: int, word: int) -> None:
        if address == RING + RING_TAKEN:
            self.taken += (word - self.taken) % (1 << RING_COUNT_BITS)
            self.seen = self.written
            self._put()
            if self.model.machine.registers[Register.SAMPLE_INTERVAL]:  # and the machine is at rest
                self.waiting += [self.model.machine.program_counter] * self.after
            self._put()
        else:
            self.model.write(address, word)


def test_a_count_that_comes_back_changed_puts_all_that_was_written_in_doubt() -> None:
    """The ring was told 0, and says 7 twice: each time what was written before may be lost too."""
    class Deaf:
        name, told, doubted = "deaf", [7, 7, 0], 0

        def command(self, address: int, word: int) -> None:
            assert (address, word) == (RING + RING_TAKEN, 0)

        def read(self, address: int, count: int) -> np.ndarray:
            return np.array([self.told.pop(0), *[5] * (count - 1)])

        def doubt(self) -> None:
            self.doubted += 1

    bridge = Deaf()
    assert SampleRing(bridge, RING)._waiting() == 5 and bridge.doubted == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(("written", "full"), [
    ([300, RING_SAMPLES - 1], False), ([300, RING_SAMPLES], True), ([300, 400, RING_SAMPLES], False),
    ([300, 400, 300 + RING_SAMPLES], True), ([RING_SAMPLES, RING_SAMPLES + 1], True)])
def test_a_ring_was_full_if_as_many_were_written_as_it_has_room_for(written: list[int], full: bool) -> None:
    """Counted from what it was told the time before: until it is told more, there is no more room."""
    class Told:
        name, taken, counts = "told", 0, [*written]

        def command(self, address: int, word: int) -> None:
            self.taken = word

        def read(self, address: int, count: int) -> np.ndarray:
            if address != RING + RING_TAKEN:
                return np.zeros(count, np.uint32)
            return np.array([self.taken, self.counts.pop(0)])

    ring = SampleRing(Told(), RING)  # type: ignore[arg-type]
    for _ in written:
        ring.drain()
    assert ring._was_full == full


def shell(**changed: Any) -> ShellFile:
    content = {"board": "ecpix5", "clock_hz": 75_000_000, "machine_base": LITEX_REGISTERS, "registers": {},
               "memory": {"base": LITEX_MEMORY, "bytes": 1 << 20}, "arch": {}, "witness": WITNESS, "samples": RING,
               "windows": {name: {"base": LITEX_MEMORY + at * (1 << 18), "bytes": 1 << 18}
                           for at, name in enumerate(("dram0", "dram1", "program"))}, **changed}
    return ShellFile.of(content)


def device_on(board: Ringed, settings: RunSettings, faults: Faults | None = None, **changed: Any) -> Device:
    """A device on a UART, with its witness."""
    uart = UartWire(Witnessed(board, WITNESS), faults, room=ROOM_BYTES)
    target = LinkTarget(UartBone("serial:model", uart.open, sleep=uart.sleep), board.model.map)
    target.watch(WITNESS)
    target.shell, target.settings = shell(**changed), settings
    return Device(target)


def run(device: Device, made: TModel, number: int = 0) -> RunResult:
    result = device.launch(inputs_for(made, number), raw=True).result()
    expected = Session(made).run(inputs_for(made, number), raw=True).outputs
    assert result.outputs["y"].tolist() == expected["y"].tolist()
    return result


def test_every_sample_of_a_program_comes_and_none_after_it(tmp_path: Path) -> None:
    made, board = adder(tmp_path), Ringed(litex_model(TINY))
    with device_on(board, RunSettings(sample_cycles=3)) as device:
        device.load(made)
        for number in range(3):
            result = run(device, made, number)
            words, = result.samples
            assert result.cycles and len(words) == result.cycles // 3
            assert Samples.decode(words).program_counter.tolist() == list(range(len(words)))
    assert not board.lost and board.set[-1][Register.SAMPLE_INTERVAL] == 3


def test_a_full_ring_loses_samples_and_ends_where_the_program_did(tmp_path: Path) -> None:
    """A cycle each: more than the ring holds. The machine at rest goes on, and somebody before left samples."""
    made = adder(tmp_path)
    board = Ringed(litex_model(TINY), after=40, slower=50)
    board.waiting = [BUSY] * (RING_SAMPLES + 1)
    board._put()
    with device_on(board, RunSettings(sample_cycles=1)) as device:
        device.load(made)
        result = run(device, made)
    words, = result.samples
    found = Samples.decode(words)
    assert found.program_counter.tolist() == list(range(len(words))) and found.taken[:, 0].all()
    assert result.cycles and RING_SAMPLES <= len(words) < result.cycles and board.lost


@pytest.mark.parametrize("seed", range(4))
def test_samples_come_whole_over_a_bad_link(seed: int, tmp_path: Path) -> None:
    made, board = adder(tmp_path), Ringed(litex_model(TINY))
    faults = Faults(seed, 60, 1500, flip_bits)
    with device_on(board, RunSettings(sample_cycles=2), faults) as device:
        device.load(made)
        for number in range(6):
            result = run(device, made, number)
            assert result.cycles and len(result.samples[0]) == result.cycles // 2
            assert Samples.decode(result.samples[0]).program_counter.tolist() == list(range(len(result.samples[0])))
    assert faults.left < 60, "no fault struck"


def test_what_a_device_sets_and_the_flags_it_saw(tmp_path: Path) -> None:
    made, board = adder(tmp_path), Ringed(litex_model(TINY))
    settings = RunSettings(timeout_cycles=7, tracepoint=2, dram0_cache=3, dram1_cache=15)
    with device_on(board, settings) as device:
        device.load(made)
        result = run(device, made)
    assert result.flags == ("tracepoint",) and result.samples == []
    assert board.set == [{Register.TIMEOUT: 7, Register.TRACEPOINT: 2, Register.DRAM0_CACHE: 3,
                          Register.DRAM1_CACHE: 15, Register.SAMPLE_INTERVAL: 0}]


def test_defaults_put_nothing_before_a_program(tmp_path: Path) -> None:
    made, board = adder(tmp_path), Ringed(litex_model(TINY))
    with device_on(board, RunSettings()) as device:
        device.load(made)
        assert run(device, made).flags == ()
        plain = device.backend._worked_out(made.program)  # type: ignore[attr-defined]
    moved_only = plain.before
    with device_on(Ringed(litex_model(TINY)), RunSettings(timeout_cycles=0)) as device:
        device.load(made)
        assert device.backend._worked_out(made.program).before == moved_only + 1  # type: ignore[attr-defined]


def test_a_program_that_sets_what_the_device_sets(tmp_path: Path) -> None:
    isa = Isa(TINY)
    made = model(tmp_path, TINY, [isa.configure(Register.TIMEOUT, 5)], [np.zeros((SIZE, 2), int)], "own", (2,))
    with device_on(Ringed(litex_model(TINY)), RunSettings(timeout_cycles=9)) as device:
        device.load(made)
        with pytest.raises(WeftError, match="Configure TIMEOUT; allowed: a program that leaves alone what the driver"):
            device.run(inputs_for(made), raw=True)


@pytest.mark.parametrize(("settings", "changed", "arch", "said"), [
    (RunSettings(sample_cycles=9), {"samples": None}, TINY, "no ring of samples in its shell; .*--on rtl --samples"),
    (RunSettings(sample_cycles=9), {}, TINY.replace(sampler=0), "a machine with sampler 0"),
    (RunSettings(dram0_cache=16), {}, TINY, "DRAM0_CACHE: found 16; allowed: 0 to 15")])
def test_what_cannot_be_set(settings: RunSettings, changed: dict[str, Any], arch: Arch, said: str,
                            tmp_path: Path) -> None:
    with device_on(Ringed(litex_model(arch)), settings, **changed) as device, pytest.raises(WeftError, match=said):
        device.load(adder(tmp_path, arch))


@pytest.mark.parametrize("where", ["sim", "serial:/dev/ttyUSB0", "udp:192.168.1.50", "mmio:pynq_z1"])
def test_options_of_devices(where: str) -> None:
    options = read_device(f"{where}?tracepoint=12&timeout_cycles=0&dram1_cache=0xf&sample_cycles=100")[2]
    assert (options["tracepoint"], options["timeout_cycles"], options["dram1_cache"], options["sample_cycles"]) == (
        12, 0, 15, 100)
    with pytest.raises(WeftError, match="device option dram0_cache: found '16'; allowed: a number from 0 to 15"):
        read_device(f"{where}?dram0_cache=16")


def test_simulated_hardware_sets_them_too() -> None:
    assert open_target("sim?tracepoint=12").settings.tracepoint == 12  # type: ignore[attr-defined]
