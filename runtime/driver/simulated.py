# SPDX-License-Identifier: Apache-2.0
"""The simulated machine as the far end of a bridge: registers by its AXI4-Lite port, memories in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.golden.dram import Dram
from weft.hw.contract.arch import Arch
from weft.runtime.driver.memory_map import MEMORIES, MemoryMap, Region
from weft.runtime.driver.transport import WORD_BYTES
from weft.support.errors import Mismatch, WeftError

REACH_BITS = 42
"""The address bits between two memories on the host's side, so that each has the whole space of a port."""
CYCLES_OF_A_SECOND = 50_000_000
MOST_CYCLES = 200_000
"""The most cycles of one pause, so that the simulator answers within some seconds."""


class SimulatedTransport:
    """A transport to the Verilog under Verilator. Opening it raises WeftError if it cannot be built."""

    most_words = 1 << 20

    def __init__(self, arch: Arch) -> None:
        from weft.simulate.make import BuildError
        from weft.simulate.served import ServedMachine
        from weft.simulate.simulation import SimulationError
        from weft.simulate.toolchain import ToolchainError

        self.name = "sim"
        try:
            self._machine = ServedMachine(arch)
        except (BuildError, ToolchainError, SimulationError) as error:
            raise WeftError(str(error)) from None
        size = self._machine.memories["program"].size
        regions = {name: Region((index + 1) << REACH_BITS, 0, size) for index, name in enumerate(MEMORIES)}
        self.memory_map = MemoryMap(0, regions)
        self._broken = SimulationError

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words."""
        memory, offset = self._memory(address)
        if memory is None:
            return np.array([self._ask(self._machine.read, offset + WORD_BYTES * word) for word in range(count)],
                            np.uint32)
        return memory.bytes[offset:offset + count * WORD_BYTES].view("<u4").copy()

    def write(self, address: int, words: np.ndarray) -> None:
        """Write words."""
        memory, offset = self._memory(address)
        if memory is None:
            for index, word in enumerate(words.tolist()):
                self._ask(self._machine.write, offset + WORD_BYTES * index, word)
        else:
            memory.bytes[offset:offset + words.nbytes] = words.astype("<u4").view(np.uint8)

    def _memory(self, address: int) -> tuple[Dram | None, int]:
        """Return the memory at an address (None: the registers), and the offset in it."""
        number, offset = divmod(address, 1 << REACH_BITS)
        return (self._machine.memories[MEMORIES[number - 1]], offset) if number else (None, offset)

    def pause(self, seconds: float) -> None:
        """Let the simulation run."""
        self._ask(self._machine.run, min(int(seconds * CYCLES_OF_A_SECOND) + 1, MOST_CYCLES))

    def _ask(self, request: Callable[..., Any], *values: int) -> Any:
        """Return the simulator's answer to a request. Raise Mismatch if the simulation failed."""
        try:
            return request(*values)
        except self._broken as error:
            raise Mismatch(f"the simulation failed: {error}") from None

    def resynchronise(self) -> bool:
        """Return False: the simulator cannot lose its place."""
        return False

    def seconds(self) -> float:
        """Return the time."""
        return time.monotonic()

    def close(self) -> None:
        """End the simulation."""
        self._machine.close()
