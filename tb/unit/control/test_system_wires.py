# SPDX-License-Identifier: Apache-2.0
"""Test what joins the cores of a system, without any core: starts, errors and posts of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from amaranth.hdl import Module, Signal, unsigned
from amaranth.lib import stream
from amaranth.sim import Simulator

from weft.hw.contract.isa import Isa
from weft.hw.contract.units import UNIT_NAMES, dram_units
from weft.hw.core import Core
from weft.hw.system import System
from weft.tb.random.lockstep_archs import lockstep_archs


def simulate(m: Module, bench: Any) -> None:
    simulator = Simulator(m)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def test_cores_are_together_until_all_of_them_rest_again() -> None:
    """Also if one rests before the others; they still rest in the cycle in which they start."""
    m, registers = Module(), SimpleNamespace(start=Signal(2), idle=Signal(2, init=0b11))
    system: Any = SimpleNamespace(_arch=SimpleNamespace(cores=2))
    members = System._members(system, m, registers)  # type: ignore[arg-type]

    async def bench(ctx: Any) -> None:
        found = []
        for start, idle in ((0, 3), (3, 3), (0, 3), (0, 0), (0, 1), (0, 0), (0, 2), (0, 3), (0, 3), (2, 3), (0, 1),
                            (0, 3)):
            ctx.set(registers.start, start)
            ctx.set(registers.idle, idle)
            await ctx.tick()
            found.append(ctx.get(members))
        assert found == [0, 3, 3, 3, 3, 3, 3, 0, 0, 2, 2, 0]

    simulate(m, bench)


def test_an_error_is_told_once_and_a_post_to_those_that_it_names() -> None:
    def core() -> Any:
        return SimpleNamespace(
            status={"error": Signal()}, other_error=Signal(), post=SimpleNamespace(
                valid=Signal(), cores=Signal(3), counter=Signal(4)),
            posted=[SimpleNamespace(valid=Signal(), counter=Signal(4)) for _ in range(3)])

    m, cores = Module(), [core() for _ in range(3)]
    System._signal(None, m, cores)  # type: ignore[arg-type]

    async def bench(ctx: Any) -> None:
        told = []
        for errors in (0b000, 0b010, 0b010, 0b110, 0b110, 0b000, 0b001):
            for number, each in enumerate(cores):
                ctx.set(each.status["error"], errors >> number & 1)
            told.append([ctx.get(each.other_error) for each in cores])
            await ctx.tick()
        assert told == [[each] * 3 for each in (0, 1, 0, 1, 0, 0, 1)]
        ctx.set(cores[1].post.valid, 1)
        ctx.set(cores[1].post.cores, 0b101)
        ctx.set(cores[1].post.counter, 7)
        ctx.set(cores[2].post.cores, 0b111)
        found = {(to, source) for to, each in enumerate(cores) for source, post in enumerate(each.posted)
                 if ctx.get(post.valid)}
        assert found == {(0, 1), (2, 1)} and ctx.get(cores[0].posted[1].counter) == 7

    simulate(m, bench)


class Wires:
    """A block whose every port is a signal of a byte."""

    def __getattr__(self, name: str) -> Any:
        """Return a port, made when it is asked for."""
        wire = Signal(8, name=name)
        setattr(self, name, wire)
        return wire


@pytest.mark.parametrize("name", ["lanes2", "lanes4_int8"])
def test_a_machine_executes_while_a_unit_a_bus_or_the_array_does(name: str) -> None:
    """Weights on their way into the columns count, and on machines of bytes what a scaled move has under way."""
    arch = lockstep_archs()[name]
    m, supervisor, interlock = Module(), Wires(), Wires()
    core: Any = Wires()
    units = {unit: Wires() for unit in UNIT_NAMES}
    busy = {unit: units[unit].busy for unit in (*dram_units(arch), "load_weight", "move_out")}
    core._arch = arch
    Core._supervise(core, m, supervisor, Wires(), Wires(), Signal(), Wires(), interlock, units,  # type: ignore[arg-type]
                    [SimpleNamespace(request=Wires())])

    async def bench(ctx: Any) -> None:
        ctx.set(interlock.idle, 0xff)
        assert not ctx.get(supervisor.executing)
        for unit, wire in busy.items():
            ctx.set(wire, 1)
            assert bool(ctx.get(supervisor.executing)) == (unit != "move_out" or arch.scheme.per_lane), unit
            ctx.set(wire, 0)
        ctx.set(interlock.idle, 0)
        assert ctx.get(supervisor.executing)

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()


def test_a_repeat_counts_as_being_fetched_until_its_last_instruction_and_a_stop_ends_it() -> None:
    arch = lockstep_archs()["lanes4_lut"]
    isa, m = Isa(arch), Module()
    words = stream.Signature(unsigned(8 * isa.instruction_bytes)).create()
    fetch: Any = SimpleNamespace(busy=Signal(), instruction=words)
    program: Any = SimpleNamespace(busy=Signal())
    supervisor: Any = SimpleNamespace(stop=Signal())
    core: Any = SimpleNamespace(_arch=arch)
    o, fetching = Core._expand(core, m, program, fetch, supervisor)
    repeated = 6

    async def bench(ctx: Any) -> None:
        for busy in (fetch.busy, program.busy):
            ctx.set(busy, 1)
            assert ctx.get(fetching)
            ctx.set(busy, 0)
        assert not ctx.get(fetching)
        for stops in (False, True):
            ctx.set(o.ready, 1)
            for instruction in (isa.no_op(), isa.repeat(1, repeated)):
                ctx.set(words.valid, 1)
                ctx.set(words.payload, isa.encode(instruction))
                await ctx.tick().until(words.ready)
            ctx.set(words.valid, 0)
            seen = 0
            while ctx.get(fetching):
                seen += ctx.get(o.valid)
                ctx.set(supervisor.stop, stops and seen == 2)
                await ctx.tick()
                assert not ctx.get(supervisor.stop) or not ctx.get(fetching)
            assert seen == (2 if stops else repeated)

    simulate(m, bench)


def test_an_error_is_of_the_operation_at_its_port_or_of_the_next_instruction() -> None:
    arch = lockstep_archs()["lanes2"]
    m, supervisor, interlock, decoder = Module(), Wires(), Wires(), Wires()
    core: Any = Wires()
    core._arch = arch
    Core._supervise(core, m, supervisor, Wires(), Wires(), Signal(), decoder, interlock,  # type: ignore[arg-type]
                    {unit: Wires() for unit in UNIT_NAMES}, [SimpleNamespace(request=Wires())])

    async def bench(ctx: Any) -> None:
        ctx.set(interlock.faulting_program_counter, 5)
        ctx.set(decoder.program_counter, 9)
        for faulting, expected in ((0, 9), (1, 5), (4, 5)):
            ctx.set(supervisor.faulting, faulting)
            assert ctx.get(supervisor.faulting_program_counter) == expected
            assert ctx.get(interlock.faulting) == faulting

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
