# SPDX-License-Identifier: Apache-2.0
"""A board behind a link in virtual time: the real driver, a line as slow as the real one, and a program that lasts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import Status
from weft.hw.contract.host_link import ROOM_BYTES
from weft.hw.contract.isa import Isa
from weft.runtime.driver.device import Device
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.memory_map import MemoryMap
from weft.runtime.driver.uartbone import UartBone
from weft.tb.bench.link_models import UartWire, UdpWire, Witnessed
from weft.tb.bench.register_model import RegisterModel

WITNESS = 0x9100_0000
CLOCK_HZ = 75e6


class TimedBoard(RegisterModel):
    """A board of CLOCK_HZ on which each program takes so many seconds of ``wire``; nothing is computed."""

    wire: UartWire | UdpWire

    def __init__(self, arch: Arch, memory_map: MemoryMap, seconds: float) -> None:
        super().__init__(arch, memory_map)
        self.seconds, self.ends, self.late = seconds, 0.0, list[float]()

    def _register(self, name: str) -> int:
        """Return a register; the program has ended when its time is over."""
        self.looks = 0 if self.wire.now < self.ends else self.patience
        running = self.status
        found = super()._register(name)
        if self.status != running:
            self.late.append((self.wire.now - self.ends + self.seconds) / self.seconds)
        return self.status if name == "STATUS" else found

    def _command(self, word: int) -> None:
        super()._command(word)
        if self.status >> Status.RUNNING & 1:
            self.ends = self.wire.now + self.seconds

    def _run(self) -> None:
        start = self.values["PROGRAM_ADDRESS_LOW"]
        program = self.dram.bytes[start:start + self.values["PROGRAM_BYTES"]].tobytes()
        self.status = 1 << Status.IDLE | 1 << Status.DONE
        self._count(int(Isa(self.arch).counts(program).sum()))
        self.values |= {"CYCLES_LOW": round(self.seconds * CLOCK_HZ), "CYCLES_HIGH": 0}


@dataclass(frozen=True)
class LinkSpeed:
    """A link: seconds for a byte on the line, and for an answer besides its bytes."""

    kind: str
    byte_seconds: float
    turnaround: float


UART = LinkSpeed("UART 3 Mbaud", 10 / 3e6, 0.0)
SPEEDS = (UART, LinkSpeed("UART 3 Mbaud, 1 ms of USB", 10 / 3e6, 1e-3),
          LinkSpeed("Etherbone 100 Mbit/s, 200 us", 8 / 100e6, 200e-6),
          LinkSpeed("Etherbone 1 Gbit/s, 200 us", 8 / 1e9, 200e-6))


def timed(speed: LinkSpeed, board: TimedBoard, witnessed: bool,
          clock_hz: float | None = CLOCK_HZ) -> tuple[Device, UartWire | UdpWire, list[int]]:
    """Return the device, its wire, and a list to which the bytes of each piece on the line are added.

    ``clock_hz``: what the driver knows of the machine's clock."""
    bus = Witnessed(board, WITNESS) if witnessed else board
    carried: list[int] = []
    wire: UartWire | UdpWire
    transport: Any
    if speed.kind.startswith("UART"):
        wire = UartWire(bus, None, round(10 / speed.byte_seconds), ROOM_BYTES if witnessed else 0, speed.turnaround)
        carry = wire.carry
        wire.carry = lambda byte: carried.append(1) or carry(byte)  # type: ignore[method-assign, func-returns-value]
        board.wire = wire
        transport = UartBone("serial:model", wire.open, sleep=wire.sleep, seconds=wire.seconds)
    else:
        wire = UdpWire(bus, None, speed.byte_seconds, speed.turnaround)
        board.wire = wire
        send = wire.send
        wire.send = lambda content: carried.append(len(content)) or send(content)  # type: ignore[method-assign, func-returns-value]
        transport = Etherbone("udp:model", wire, wire.sleep, seconds=wire.seconds)
    target = LinkTarget(transport, board.map)
    target.clock_hz = clock_hz
    if witnessed:
        target.watch(WITNESS)
    return Device(target), wire, carried


def images_of(network: Any, count: int) -> Sequence[dict[str, np.ndarray]]:
    """Return random inputs of a network."""
    chance = np.random.default_rng(3)
    return [{tensor.name: chance.normal(0, 1, tensor.shape).astype(np.float32)
             for tensor in network.signature.inputs} for _ in range(count)]
