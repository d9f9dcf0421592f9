# SPDX-License-Identifier: Apache-2.0
"""The registers of several cores behind one AXI4-Lite port: pages, the system's own registers, addresses in no page."""

from __future__ import annotations

from random import Random

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from weft.hw.bus import axi
from weft.hw.bus.csr_slave import CsrSlave
from weft.hw.bus.page_router import PageRouter
from weft.hw.bus.system_registers import SystemRegisters
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS, IDENTITY, SYSTEM_ADDRESS_WIDTH, SYSTEM_PAGE, SYSTEM_REGISTERS
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.system import page_address
from weft.tb.unit.bus.test_csr_slave import SLVERR, Master

CORES = 3
ARCH = Arch.load("tiny").replace(dram_ports=SHARED, cores=CORES, memory_ports=2)
OWN = {name: page_address(SYSTEM_PAGE) + register.offset for name, register in SYSTEM_REGISTERS.items()}
SCRATCH = CONTROL_REGISTERS["SCRATCH"].offset


class Registers(wiring.Component):
    """Router, system registers and the registers of each core, without the cores."""

    def __init__(self) -> None:
        group = {name: member for name, member in SystemRegisters(ARCH).signature.members.items() if name != "axil"}
        super().__init__({"axil": In(axi.Axi4Lite(SYSTEM_ADDRESS_WIDTH)), **group})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.pages, m.submodules.registers = pages, registers = PageRouter(CORES), SystemRegisters(ARCH)
        connect(m, flipped(self.axil), pages.axil)
        connect(m, pages.system, registers.axil)
        for k in range(CORES):
            m.submodules[f"core{k}"] = core = CsrSlave(ARCH)
            connect(m, getattr(pages, f"page{k}"), core.axil)
        for name, member in registers.signature.members.items():
            if name != "axil":
                ours, theirs = getattr(self, name), getattr(registers, name)
                m.d.comb += ours.eq(theirs) if member.flow is Out else theirs.eq(ours)
        return m


class Group(Master):
    """Counts the pulses of each core."""

    def watch(self, ports) -> None:
        for name in self.pulses:
            if ports[name]:
                self.seen.append((name, ports[name]))
        for channel in self.stable:
            channel.check(ports)

    def __init__(self, delay: int = 0) -> None:
        super().__init__(Registers(), Random(delay), delay)
        self.seen: list[tuple[str, int]] = []


@pytest.mark.parametrize("delay", [0, 3])
def test_each_core_has_a_page_of_its_own(delay: int) -> None:
    master = Group(delay)

    def steps(ports):
        for k in range(CORES):
            yield from master.write(ports, page_address(k) + SCRATCH, 100 + k)
        for k in range(CORES):
            assert (yield from master.read(ports, page_address(k) + SCRATCH)) == 100 + k
            assert (yield from master.read(ports, page_address(k))) == IDENTITY

    master.run(steps)


def test_the_systems_own_registers() -> None:
    master = Group()

    def steps(ports):
        ports["done"], ports["error"], ports["idle"] = 0b101, 0b010, 0b111
        expected = {"CORES": CORES, "MEMORY_PORTS": 2, "GROUP_START": 0, "GROUP_RESET": 0, "GROUP_DONE": 0b101,
                    "GROUP_ERROR": 0b010, "GROUP_IDLE": 0b111}
        assert set(expected) == set(OWN)
        for name, value in expected.items():
            assert (yield from master.read(ports, OWN[name])) == value, name
        for name, value in (("GROUP_START", 0b110), ("GROUP_RESET", 0b011), ("GROUP_DONE", 7), ("GROUP_START", 0)):
            yield from master.write(ports, OWN[name], value)
        yield from master.write(ports, OWN["GROUP_START"], 0b111, 0b1110)  # without the byte that has the cores

    master.run(steps)
    assert master.seen == [("start", 0b110), ("soft_reset", 0b011)]


@pytest.mark.parametrize("address", [page_address(CORES), page_address(CORES) + SCRATCH, page_address(15),
                                     page_address(SYSTEM_PAGE) + 0x100, page_address(SYSTEM_PAGE) + 0x1000 + 8,
                                     page_address(1) + 0xFFC])
def test_an_address_without_a_register_answers_an_error_and_does_nothing(address: int) -> None:
    master = Group(2)

    def steps(ports):
        yield from master.write(ports, address, 0xF, expect=SLVERR)
        assert (yield from master.read(ports, address, expect=SLVERR)) == 0
        assert (yield from master.read(ports, page_address(1))) == IDENTITY

    master.run(steps)
    assert master.seen == []
