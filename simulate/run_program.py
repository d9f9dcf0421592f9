"""The cocotb test that runs programs on `weft_sim`: job in, results out, both JSON (see job.py).

While the machine works, Python waits on its interrupt alone, so the simulator runs at full speed.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hw.contract import csr
from weft.simulate.axil import AxiLite
from weft.simulate.sim_top import MEMORIES

RESET_CYCLES = 4
COUNTERS = ("read_beats", "write_beats", "first_cycle", "last_cycle")


def _offset(register: str) -> int:
    return csr.CONTROL_REGISTERS[register].offset


async def _read(bus: AxiLite, register: str) -> int:
    """A register, or the 64 bits of <register>_LOW and _HIGH."""
    if register in csr.CONTROL_REGISTERS:
        return await bus.read(_offset(register))
    return await bus.read(_offset(register + "_LOW")) | await bus.read(_offset(register + "_HIGH")) << 32


async def _reset(dut: Any, job: dict[str, Any]) -> None:
    """Pulls reset."""
    dut.rst.value = 1
    dut.seed.value = job["seed"]
    dut.cycle_limit.value = job["cycle_limit"]
    await ClockCycles(dut.clk, RESET_CYCLES)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def _check_identity(bus: AxiLite) -> None:
    identity = await _read(bus, "IDENTITY")
    assert identity == csr.IDENTITY, f"IDENTITY reads {identity:#010x}, not {csr.IDENTITY:#010x}"


async def _start(dut: Any, bus: AxiLite, program: dict[str, Any]) -> None:
    """Sets the memories up and starts the program; interrupts come for its end and for errors."""
    for memory, settings in program["memories"].items():
        for name, value in settings.items():
            getattr(dut, f"{memory}_{name}").value = value
    values = {
        "PROGRAM_ADDRESS_LOW": program["address"] & 0xFFFF_FFFF,
        "PROGRAM_ADDRESS_HIGH": program["address"] >> 32,
        "PROGRAM_BYTES": program["size"],
        "INTERRUPT_ENABLE": 1 << csr.Status.DONE | 1 << csr.Status.ERROR,
        "CONTROL": 1 << csr.Command.START,
    }
    for register, value in values.items():
        await bus.write(_offset(register), value)


async def _soft_reset(bus: AxiLite) -> None:
    """Back to the state after reset, memories apart, with no interrupt pending."""
    await bus.write(_offset("CONTROL"), 1 << csr.Command.SOFT_RESET)
    while await _read(bus, "STATUS") & ~(1 << csr.Status.IDLE):
        pass
    await bus.write(_offset("INTERRUPT_STATUS"), (1 << csr.INTERRUPT_COUNT) - 1)


async def _wait(dut: Any, bus: AxiLite, *, reset: bool) -> int:
    """Waits for the interrupt (``reset``: soft reset then), then until the machine is idle; returns its STATUS.

    `cycle_limit` ends a hang."""
    if dut.interrupt.value == 0:
        await RisingEdge(dut.interrupt)
    if reset:
        await _soft_reset(bus)
    while not (status := await _read(bus, "STATUS")) >> csr.Status.IDLE & 1:
        pass
    return status


def _replace(memory: Path, content: Path) -> None:
    """The memory's file, mapped by the simulator, as ``content`` followed by zeros."""
    size = memory.stat().st_size
    os.truncate(memory, 0)
    os.truncate(memory, size)
    with memory.open("r+b") as file:
        file.write(content.read_bytes())


def _copy(memory: Path, snapshot: Path) -> None:
    """A sparse copy: what is not a hole."""
    with memory.open("rb") as source, snapshot.open("wb") as target:
        target.truncate(memory.stat().st_size)
        end = 0
        while True:
            try:
                start = os.lseek(source.fileno(), end, os.SEEK_DATA)
            except OSError:  # only a hole follows
                return
            end = os.lseek(source.fileno(), start, os.SEEK_HOLE)
            target.seek(start)
            target.write(os.pread(source.fileno(), end - start, start))


async def _run(dut: Any, bus: AxiLite, program: dict[str, Any]) -> dict[str, Any]:
    """One program from a reset machine; its JobResult."""
    began, first_cycle = time.monotonic(), int(dut.cycle.value)
    await _start(dut, bus, program)
    status = await _wait(dut, bus, reset=program["reset_at_end"])
    result = {
        **{bit.name.lower(): bool(status >> bit & 1) for bit in csr.Status if bit < csr.INTERRUPT_COUNT},
        "simulation_cycles": int(dut.cycle.value) - first_cycle,
        "wall_seconds": time.monotonic() - began,
        "sample_words": int(dut.sample_words.value),
        "memories": {
            memory: {name: int(getattr(dut, f"{memory}_{name}").value) for name in COUNTERS} for memory in MEMORIES
        },
    }
    for register in ("ERROR_CAUSE", "ERROR_PROGRAM_COUNTER", "PROGRAM_COUNTER", "CYCLES", "INSTRUCTIONS"):
        result[register.lower()] = await _read(bus, register)
    return result


@cocotb.test()
async def run_programs(dut: Any) -> None:
    job = json.loads(Path(os.environ["WEFT_JOB"]).read_text())
    bus = AxiLite(dut)
    await _reset(dut, job)
    await _check_identity(bus)
    results: list[dict[str, Any]] = []
    for program in job["programs"]:
        if results and program["reset"]:
            await _soft_reset(bus)
        for memory, content in program["content"].items():
            _replace(Path(job["files"][memory]), Path(content))
        results.append(await _run(dut, bus, program))
        for memory, snapshot in program["snapshots"].items():
            _copy(Path(job["files"][memory]), Path(snapshot))
    Path(job["result"]).write_text(json.dumps(results, indent=1))
