# SPDX-License-Identifier: Apache-2.0
"""The cocotb test that runs programs on `weft_sim`: job in, results out, both JSON (see job.py).

While the machine works, Python only waits for its interrupt, so the simulator runs at full speed."""

import json
import os
import time
from pathlib import Path
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, RisingEdge

from weft.hw.contract import csr
from weft.hw.contract.system import page_address
from weft.simulate.axil import AxiLite
from weft.simulate.sim_top import MEMORIES

RESET_CYCLES = 4
COUNTERS = ("read_beats", "write_beats", "first_cycle", "last_cycle")


class Core:
    """The registers of one core in ``page``, behind the port that all cores share."""

    def __init__(self, bus: AxiLite, page: int = 0) -> None:
        self.bus, self.page = bus, page

    async def read(self, register: str) -> int:
        """Return a register, or the 64 bits of <register>_LOW and _HIGH."""
        if register in csr.CONTROL_REGISTERS:
            return await self.bus.read(self._address(register))
        return await self.read(register + "_LOW") | await self.read(register + "_HIGH") << 32

    async def write(self, register: str, value: int) -> None:
        """Write a register."""
        await self.bus.write(self._address(register), value)

    def _address(self, register: str) -> int:
        """Return the byte address of a register."""
        return page_address(self.page) + csr.CONTROL_REGISTERS[register].offset


class Group:
    """The cores that run programs: a single one by its own registers, several by those of the system."""

    def __init__(self, bus: AxiLite, program: dict[str, Any]) -> None:
        self._bus, self._alone = bus, not program["group"]
        spans = program["group"] or [(program["address"], program["size"])]
        self.programs = {core: span for core, span in enumerate(spans) if self._alone or span[1]}
        self.cores = [Core(bus, page) for page in self.programs]
        self.mask = sum(1 << core for core in self.programs)

    async def command(self, command: csr.Command) -> None:
        """Start or reset all cores."""
        if self._alone:
            await self.cores[0].write("CONTROL", 1 << command)
            return
        register = {csr.Command.START: "GROUP_START", csr.Command.SOFT_RESET: "GROUP_RESET"}[command]
        await self._bus.write(self._address(register), self.mask)

    async def lack(self, status: csr.Status) -> bool:
        """Tell whether some core is not done or stopped (DONE), or not idle (IDLE)."""
        if self._alone:
            bits = await self.cores[0].read("STATUS")
            return not bits >> status & 1 and not (status is csr.Status.DONE and bits >> csr.Status.ERROR & 1)
        found = await self._bus.read(self._address(f"GROUP_{status.name}"))
        if status is csr.Status.DONE:
            found |= await self._bus.read(self._address("GROUP_ERROR"))
        return bool(self.mask & ~found)

    @staticmethod
    def _address(register: str) -> int:
        """Return the byte address of a register of the system."""
        return page_address(csr.SYSTEM_PAGE) + csr.SYSTEM_REGISTERS[register].offset


async def _reset(dut: Any, job: dict[str, Any]) -> None:
    """Pulse reset."""
    dut.rst.value = 1
    dut.seed.value = job["seed"]
    dut.cycle_limit.value = job["cycle_limit"]
    await ClockCycles(dut.clk, RESET_CYCLES)
    dut.rst.value = 0
    await RisingEdge(dut.clk)


async def _check_identity(bus: AxiLite) -> None:
    """Check the register IDENTITY."""
    identity = await Core(bus).read("IDENTITY")
    assert identity == csr.IDENTITY, f"IDENTITY reads {identity:#010x}, not {csr.IDENTITY:#010x}"


async def _start(dut: Any, group: Group, program: dict[str, Any]) -> None:
    """Set the memories up and start the program; interrupts come for its end and for errors."""
    for memory, settings in program["memories"].items():
        for name, value in settings.items():
            getattr(dut, f"{memory}_{name}").value = value
    for core, (address, size) in zip(group.cores, group.programs.values(), strict=True):
        values = {
            "PROGRAM_ADDRESS_LOW": address & 0xFFFF_FFFF, "PROGRAM_ADDRESS_HIGH": address >> 32,
            "PROGRAM_BYTES": size, "INTERRUPT_ENABLE": 1 << csr.Status.DONE | 1 << csr.Status.ERROR,
        }
        for register, value in values.items():
            await core.write(register, value)
    await group.command(csr.Command.START)


async def _soft_reset(group: Group) -> None:
    """Reset the cores, memories apart, and clear pending interrupts."""
    await group.command(csr.Command.SOFT_RESET)
    for core in group.cores:
        while await core.read("STATUS") != 1 << csr.Status.IDLE:
            pass
        await core.write("INTERRUPT_STATUS", (1 << csr.INTERRUPT_COUNT) - 1)


async def _wait(dut: Any, group: Group, *, reset: bool, after: int) -> None:
    """Wait for the interrupts of all cores, then until the machine is idle. `cycle_limit` ends a hang.

    With ``reset`` wait for the first interrupt, with ``after`` for so many cycles, then reset."""
    if after:
        await ClockCycles(dut.clk, after)
        await _soft_reset(group)
        return
    if dut.interrupt.value == 0:
        await RisingEdge(dut.interrupt)
    if reset:
        await _soft_reset(group)
    while not reset and len(group.cores) > 1 and await group.lack(csr.Status.DONE):
        for core in group.cores:
            await core.write("INTERRUPT_STATUS", await core.read("INTERRUPT_STATUS"))
        # An interrupt may come while registers are read, so it is looked at last.
        if await group.lack(csr.Status.DONE) and dut.interrupt.value == 0:
            await RisingEdge(dut.interrupt)
    while await group.lack(csr.Status.IDLE):
        pass


def _replace(memory: Path, content: Path) -> None:
    """Fill a memory's file, which the simulator has mapped, with ``content`` followed by zeros."""
    size = memory.stat().st_size
    os.truncate(memory, 0)
    os.truncate(memory, size)
    with memory.open("r+b") as file:
        file.write(content.read_bytes())


def _copy(memory: Path, snapshot: Path) -> None:
    """Copy a memory's file sparsely: only what is not a hole."""
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


async def _run(dut: Any, bus: AxiLite, program: dict[str, Any]) -> list[dict[str, Any]]:
    """Run one program on a reset machine; return a JobResult for each core that it started."""
    began, first_cycle, group = time.monotonic(), int(dut.cycle.value), Group(bus, program)
    await _start(dut, group, program)
    await _wait(dut, group, reset=program["reset_at_end"], after=program["reset_after"])
    common = {
        "simulation_cycles": int(dut.cycle.value) - first_cycle,
        "wall_seconds": time.monotonic() - began,
        "sample_words": int(dut.sample_words.value),
        "memories": {
            memory: {name: int(getattr(dut, f"{memory}_{name}").value) for name in COUNTERS} for memory in MEMORIES
        },
    }
    return [{**common, **await _registers(core)} for core in group.cores]


async def _registers(core: Core) -> dict[str, Any]:
    """Return the registers of a core about its program."""
    status = await core.read("STATUS")
    result: dict[str, Any] = {
        bit.name.lower(): bool(status >> bit & 1) for bit in csr.Status if bit < csr.INTERRUPT_COUNT}
    for register in ("ERROR_CAUSE", "ERROR_PROGRAM_COUNTER", "PROGRAM_COUNTER", "CYCLES", "INSTRUCTIONS"):
        result[register.lower()] = await core.read(register)
    return result


@cocotb.test()
async def run_programs(dut: Any) -> None:
    """Run all programs of the job."""
    job = json.loads(Path(os.environ["WEFT_JOB"]).read_text())
    bus = AxiLite(dut)
    await _reset(dut, job)
    await _check_identity(bus)
    if job["start_cycles"]:
        await ClockCycles(dut.clk, job["start_cycles"])
    results: list[list[dict[str, Any]]] = []
    for program in job["programs"]:
        if results and program["reset"]:
            await _soft_reset(Group(bus, program))
        for memory, content in program["content"].items():
            _replace(Path(job["files"][memory]), Path(content))
        results.append(await _run(dut, bus, program))
        for memory, snapshot in program["snapshots"].items():
            _copy(Path(job["files"][memory]), Path(snapshot))
    Path(job["result"]).write_text(json.dumps(results, indent=1))
