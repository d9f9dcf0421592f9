# SPDX-License-Identifier: Apache-2.0
"""The memory that a model needs on a device, and the part of it that its program writes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from weft.golden.legality import dram_moves
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Opcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.runtime.driver.memory_map import OFFSETS, Places
from weft.runtime.programs import preload
from weft.support.errors import WeftError, explain
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

DRAMS = ("dram0", "dram1")
PAGE_BYTES = 256
"""The bytes of a page; each program begins on one of its own, which also holds what is put before it."""


def needs_of(network: Network, cores: int = 1) -> dict[str, int]:
    """Return the bytes of each memory for the program of the network that needs most; they run one after another.

    On several ``cores`` each has a program and a window of DRAM0."""
    each = [needs_of_cores(model, cores) for model in network.machines]
    return {memory: max(needs[memory] for needs in each) for memory in each[0]}


def needs_of_cores(model: TModel, cores: int) -> dict[str, int]:
    """Return the bytes of each memory for one program of the network on ``cores``."""
    alone, window = needs_of_one(model), model.window_bytes or model.arch.dram0_window_bytes
    return {**alone, "dram0": (cores - 1) * window + alone["dram0"], "program": cores * alone["program"]}


def needs_of_one(model: TModel) -> dict[str, int]:
    """Return the bytes of each memory that a driver fills, or that the program reaches, for one image."""
    arch, isa = model.arch, Isa(model.arch)
    programs = [preload(model, isa), max(model.programs, key=len)]
    ends = dict.fromkeys(DRAMS, 1)
    for memory, consts in (("dram0", model.dram0_consts), ("dram1", model.consts)):
        ends[memory] = max([ends[memory], *(base + len(vectors) for base, vectors in consts)])
    ends["dram0"] = max([ends["dram0"], *(port.base + port.size for port in (*model.inputs, *model.outputs))])
    for program in (programs[0], *model.programs):
        flows, _, last = dram_moves(program, arch)
        for memory in DRAMS:
            ends[memory] = max([ends[memory], *(last[_of(flows, memory)] + 1).tolist()])
    room = {memory: end * arch.vector_bytes for memory, end in ends.items()}
    prologues = 2 * PAGE_BYTES
    return {**room, "program": sum(len(program) + prologues for program in programs)}


def written(program: bytes, arch: Arch) -> list[tuple[str, int, int]]:
    """Return (memory, first, end) in vectors of the ranges that a program writes, without overlaps."""
    flows, first, last = dram_moves(program, arch)
    found = []
    for memory in DRAMS:
        stores = _of(flows, memory) & np.isin(flows, (DataFlow.LOCAL_TO_DRAM0, DataFlow.LOCAL_TO_DRAM1))
        found += [(memory, low, high) for low, high in _union(first[stores], last[stores] + 1)]
    return found


def _of(flows: np.ndarray, memory: str) -> np.ndarray:
    """Return which data flows concern a memory."""
    return np.isin(flows, [flow for flow in DataFlow if flow.far_memory == memory])


def _union(starts: np.ndarray, ends: np.ndarray) -> list[tuple[int, int]]:
    """Return the union of ranges [start, end); adjacent ones are joined."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(zip(starts.tolist(), ends.tolist(), strict=True)):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def own_window(isa: Isa, program: bytes) -> int | None:
    """Return the blocks by which a program of one of several cores moves the window of DRAM0 before all else.

    See Batch in programs.py. Return None if it does not."""
    if isa.arch.cores == 1 or not program:
        return None
    opcode, _, register, value, _ = (int(field[0]) for field in isa.words(program[:isa.instruction_bytes]))
    return value if (opcode, register) == (Opcode.CONFIGURE, Register.DRAM0_OFFSET) else None


def moved(isa: Isa, program: bytes, places: Places,
          settings: Mapping[Register, int] = MappingProxyType({})) -> tuple[bytes, int]:
    """Return the program for windows that do not begin at 0, and how many instructions precede it.

    The last of these makes the program counter count as without them. A core's own window moves along. ``settings``:
    other registers to set. Raise WeftError for a program that sets one of them, or the windows otherwise."""
    blocks = {register: places.blocks(memory) for memory, register in OFFSETS.items() if places.blocks(memory)}
    blocks |= settings
    if not blocks or not program:
        return program, 0
    window, replaced = own_window(isa, program), 0
    if window is not None:
        blocks[Register.DRAM0_OFFSET] = places.blocks("dram0") + window
        program, replaced = program[isa.instruction_bytes:], 1
    opcode, _, register, *_ = isa.words(program)  # a Repeat configures nothing that no word does
    own = [Register(known).name for known in blocks if ((opcode == Opcode.CONFIGURE) & (register == known)).any()]
    if own:
        raise WeftError(explain("program", f"Configure {own[0]}", "a program that leaves alone what the driver "
                                "sets: windows of DRAM, and the device's options", "run it on golden or rtl"))
    before = [isa.configure(known, value) for known, value in blocks.items()]
    before.append(isa.configure(Register.PROGRAM_COUNTER, replaced))
    return isa.assemble(before) + program, len(before) - replaced
