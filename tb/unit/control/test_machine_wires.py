# SPDX-License-Identifier: Apache-2.0
"""Tests of what stands around cores, without any core: soft reset, starts, interrupts, whose port is whose."""

from __future__ import annotations

from typing import Any

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.sim import Simulator

from weft.hw import system, top
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import SYSTEM_PAGE, SYSTEM_REGISTERS
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.system import page_address
from weft.hw.core import Core
from weft.hw.top import Top

ARCH = Arch.load("tiny").replace(array_size=2, dram_ports=SHARED)
CORES = ARCH.replace(cores=3, memory_ports=2)


def hollow(kind: Any, made: list[Any]) -> Any:
    """A class with the ports of ``kind`` and nothing behind them but a count of cycles since its reset."""
    class Hollow(wiring.Component):
        def __init__(self, *given: Any, **named: Any) -> None:
            model = kind(*given, **named)
            model._MustUse__silence = True  # Amaranth warns of what is made and not used
            super().__init__(model.signature)
            self.cycles = Signal(16)
            made.append(self)

        def elaborate(self, platform: object) -> Module:
            m = Module()
            m.d.sync += self.cycles.eq(self.cycles + 1)
            return m

    return Hollow


def simulate(dut: Any, bench: Any) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


@pytest.mark.parametrize("wait", [0, 1, 5])
def test_a_core_is_reset_for_one_cycle_when_it_is_quiet(wait: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then it is told to stop, and from then on it is not idle; a second request meanwhile is the same one."""
    made: list[Any] = []
    monkeypatch.setattr(top, "Core", hollow(Core, made))
    dut: Any = Top(ARCH, grouped=True)

    async def bench(ctx: Any) -> None:
        core, = made
        ctx.set(core.idle, 1)
        ctx.set(core.quiet, 0)
        for request in range(2):
            await ctx.tick().repeat(3)
            assert ctx.get(dut.status.idle) and not ctx.get(core.abort)
            ctx.set(dut.group_reset, 1)
            await ctx.tick()
            ctx.set(dut.group_reset, 0)
            for cycle in range(wait):
                assert ctx.get(core.abort) and not ctx.get(dut.status.idle)
                ctx.set(dut.group_reset, cycle == 1)
                await ctx.tick()
            ctx.set(dut.group_reset, 0)
            before = ctx.get(core.cycles)
            ctx.set(core.quiet, 1)
            found = []
            for _ in range(5):
                found.append((ctx.get(core.abort), ctx.get(dut.status.idle), ctx.get(core.cycles)))
                await ctx.tick()
            assert found == [(1, 0, before), (1, 0, before + 1), (0, 1, 0), (0, 1, 1), (0, 1, 2)], request
            ctx.set(core.quiet, 0)

    simulate(dut, bench)


def test_a_group_starts_a_core_beside_its_own_register(monkeypatch: pytest.MonkeyPatch) -> None:
    """And only in a machine of several cores."""
    made: list[Any] = []
    monkeypatch.setattr(top, "Core", hollow(Core, made))
    dut: Any = Top(ARCH, grouped=True)
    alone = hollow(Top, [])(ARCH)
    alone._MustUse__silence = True
    assert not {"group_start", "group_reset", "status"} & {*alone.signature.members}

    async def bench(ctx: Any) -> None:
        core = made[0]
        for start in (0, 1, 0):
            ctx.set(dut.group_start, start)
            assert ctx.get(core.start) == start
            await ctx.tick()
        for name in ("idle", "quiet"):
            ctx.set(getattr(core, name), 0)
        assert not ctx.get(dut.status.idle)

    simulate(dut, bench)


async def write(ctx: Any, axil: Any, address: int, value: int) -> None:
    """One write of a register, all strobes set."""
    ctx.set(axil.aw.payload.addr, address)
    ctx.set(axil.w.payload.data, value)
    ctx.set(axil.w.payload.strb, 15)
    ctx.set(axil.b.ready, 1)
    ctx.set(axil.aw.valid, 1)
    ctx.set(axil.w.valid, 1)
    await ctx.tick().until(axil.aw.ready)
    ctx.set(axil.aw.valid, 0)
    await ctx.tick().until(axil.w.ready)
    ctx.set(axil.w.valid, 0)


def test_cores_are_joined_to_their_ports_pages_and_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three cores on two memory ports: core k is behind port k mod 2."""
    made: list[Any] = []
    monkeypatch.setattr(system, "Top", hollow(Top, made))
    dut: Any = system.System(CORES)
    own = {name: page_address(SYSTEM_PAGE) + register.offset for name, register in SYSTEM_REGISTERS.items()}

    async def bench(ctx: Any) -> None:
        assert len(made) == 3
        for k, core in enumerate(made):
            ctx.set(core.interrupt, 1)
            assert ctx.get(dut.interrupt)
            ctx.set(core.interrupt, 0)
            assert not ctx.get(dut.interrupt)
            stream, samples = getattr(dut, f"stream{k}"), getattr(dut, f"samples{k}")
            ctx.set(stream.valid, 1)
            assert [ctx.get(other.stream.valid) for other in made] == [int(other is core) for other in made]
            ctx.set(stream.valid, 0)
            ctx.set(core.samples.valid, 1)
            assert [ctx.get(getattr(dut, f"samples{other}").valid) for other in range(3)] == [
                int(other == k) for other in range(3)]
            ctx.set(core.samples.valid, 0)
            assert ctx.get(samples.valid) == 0
        for name, pulse in (("GROUP_START", "group_start"), ("GROUP_RESET", "group_reset")):
            for bits in (0b001, 0b110):
                await write(ctx, dut.axil, own[name], bits)
                seen = []
                for _ in range(4):
                    seen.append(sum(ctx.get(getattr(core, pulse)) << k for k, core in enumerate(made)))
                    await ctx.tick()
                assert [each for each in seen if each] == [bits]
        for port in ("data", "program"):
            for k, core in enumerate(made):
                read = core.dram.ar if port == "data" else core.program.ar
                ctx.set(read.payload.addr, 64 * (k + 1))
                ctx.set(read.valid, 1)
                for _ in range(4):
                    await ctx.tick()
                there = [(ctx.get(memory.ar.valid), ctx.get(memory.ar.payload.addr) == 64 * (k + 1))
                         for memory in (dut.memory0, dut.memory1)]
                assert there[k % 2] == (1, True) and there[1 - k % 2][0] == 0, (port, k)
                ctx.set(read.valid, 0)
                for memory in (dut.memory0, dut.memory1):
                    ctx.set(memory.ar.ready, 1)
                await ctx.tick().repeat(8)
                for memory in (dut.memory0, dut.memory1):
                    ctx.set(memory.ar.ready, 0)

    simulate(dut, bench)
