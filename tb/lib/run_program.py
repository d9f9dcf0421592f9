"""The cocotb test that runs one program on `weft_sim`: job in, result out, both JSON (see job.py).

While the machine works, Python waits on its interrupt alone, so the simulator runs at full speed.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hw import csr
from weft.tb.lib.axil import AxiLite
from weft.tb.lib.sim_top import MEMORIES

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
    """Sets the memories up and pulls reset."""
    dut.rst.value = 1
    dut.seed.value = job["seed"]
    dut.cycle_limit.value = job["cycle_limit"]
    for memory, settings in job["memories"].items():
        for name, value in settings.items():
            getattr(dut, f"{memory}_{name}").value = value
    await ClockCycles(dut.clk, RESET_CYCLES)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def _start(bus: AxiLite, job: dict[str, Any]) -> None:
    """Checks that a weft answers, and starts the program; interrupts come for its end and for errors."""
    identity = await _read(bus, "IDENTITY")
    assert identity == csr.IDENTITY, f"IDENTITY reads {identity:#010x}, not {csr.IDENTITY:#010x}"
    address = job["program_address"]
    values = {
        "PROGRAM_ADDRESS_LOW": address & 0xFFFF_FFFF,
        "PROGRAM_ADDRESS_HIGH": address >> 32,
        "PROGRAM_BYTES": job["program_bytes"],
        "INTERRUPT_ENABLE": 1 << csr.Status.DONE | 1 << csr.Status.ERROR,
        "CONTROL": 1 << csr.Command.START,
    }
    for register, value in values.items():
        await bus.write(_offset(register), value)


async def _wait(dut: Any, bus: AxiLite) -> int:
    """Waits for the interrupt, then until the machine is idle; returns its STATUS. `cycle_limit` ends a hang."""
    if dut.interrupt.value == 0:
        await RisingEdge(dut.interrupt)
    while not (status := await _read(bus, "STATUS")) >> csr.Status.IDLE & 1:
        pass
    return status


@cocotb.test()
async def run_program(dut: Any) -> None:
    job = json.loads(Path(os.environ["WEFT_JOB"]).read_text())
    bus = AxiLite(dut)
    await _reset(dut, job)
    began = time.monotonic()
    await _start(bus, job)
    status = await _wait(dut, bus)
    result = {
        **{bit.name.lower(): bool(status >> bit & 1) for bit in csr.Status if bit < csr.INTERRUPT_COUNT},
        "simulation_cycles": int(dut.cycle.value),
        "wall_seconds": time.monotonic() - began,
        "sample_words": int(dut.sample_words.value),
        "memories": {
            memory: {name: int(getattr(dut, f"{memory}_{name}").value) for name in COUNTERS} for memory in MEMORIES
        },
    }
    for register in ("ERROR_CAUSE", "ERROR_PROGRAM_COUNTER", "PROGRAM_COUNTER", "CYCLES", "INSTRUCTIONS"):
        result[register.lower()] = await _read(bus, register)
    Path(job["result"]).write_text(json.dumps(result, indent=1))
