# SPDX-License-Identifier: Apache-2.0
"""Run one block in Amaranth's simulator, cycle by cycle, from plain Python.

``simulate`` calls, in every cycle, ``drive`` of each model (which sets inputs), then ``watch`` (which reads outputs,
settled, before the clock edge). So what a model drives depends on earlier cycles only, like the output of a
register; what it sets in ``watch`` is driven from the next cycle on. Models are in ``block_models.py``, ports in
``block_ports.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from amaranth.hdl import ClockDomain, Module, ResetInserter, Signal, Value, signed
from amaranth.sim import Simulator

from weft.tb.bench.block_models import Cycles, Script
from weft.tb.bench.block_ports import RESET, Ports


class Bench:
    """A block built and compiled once, to be run many times, each time from power-up."""

    def __init__(self, dut: Any) -> None:
        self._dut = dut
        self._models: tuple[Any, ...] = ()
        self._cycles, self._used = 0, False
        ports = self._ports = Ports(dut)
        top = Module()
        top.domains.sync = ClockDomain()
        top.submodules.dut = ResetInserter(ports.inputs[RESET])(dut)
        self._simulator = Simulator(top)
        self._simulator.add_clock(1e-6)
        self._simulator.add_testbench(self._bench)

    async def _bench(self, ctx: Any) -> None:
        models, ports = self._models, self._ports
        waiting = awaited(models)
        while not all(model.finished for model in waiting):
            assert ports.cycle < self._cycles, f"no end after {self._cycles} cycles"
            for model in models:
                model.drive(ports)
            await ports.apply(ctx)
            for model in models:
                model.watch(ports)
            await ctx.tick()
            ports.next_cycle()

    def run(self, *models: Any, cycles: int = 100_000) -> int:
        """Run until all models that are :func:`awaited` are finished; return the cycles it took.

        Raise AssertionError after ``cycles``."""
        self._models, self._cycles = models, cycles
        self._ports.restart()
        if self._used:
            self._simulator.reset()
        self._used = True
        self._simulator.run()
        return self._ports.cycle


def awaited(models: Iterable[Any]) -> list[Any]:
    """Return the models with whose end a run ends.

    They are those of type ``Cycles`` or ``Script``, or else all that have ``finished``."""
    found = [model for model in models if isinstance(model, (Cycles, Script))] or [
        model for model in models if hasattr(model, "finished")]
    assert found, "nothing says when to stop"
    return found


def simulate(dut: Any, *models: Any, cycles: int = 100_000) -> int:
    """Build and run once; see :meth:`Bench.run`."""
    return Bench(dut).run(*models, cycles=cycles)


def evaluate(function: Callable[..., Any], shapes: Iterable[Any], arguments: Iterable[tuple[int, ...]]) -> list[int]:
    """Return the signed results of a combinational function of signals, for each tuple of arguments."""
    inputs = [Signal(shape) for shape in shapes]
    result = Value.cast(function(*inputs))
    output = Signal(signed(len(result)))
    top = Module()
    top.d.comb += output.eq(result)
    found: list[int] = []

    async def bench(ctx: Any) -> None:
        for values in arguments:
            for signal, value in zip(inputs, values, strict=True):
                ctx.set(signal, value)
            found.append(ctx.get(output))

    simulator = Simulator(top)
    simulator.add_testbench(bench)
    simulator.run()
    return found
