# SPDX-License-Identifier: Apache-2.0
"""A Zynq under PYNQ: its bitstream is loaded by an Overlay, and ``pynq.allocate`` gives the memory.

    from weft.runtime.driver.pynq_board import open_overlay

    with open_overlay("pynq_z2.bit", "pynq_z2", 64 << 20) as device:
        device.load("model.tmodel")

Elsewhere a Zynq's memory is a device of u-dma-buf (``mmio:BOARD``)."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.runtime.driver.device import Device
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.memory_mapped import MemoryMapped, registers_bytes
from weft.runtime.driver.registers import check_board
from weft.runtime.driver.transport import PROGRAM_SECONDS, LinkError
from weft.support.errors import explain

REGISTERS = 0x43C0_0000
"""The place of the machine's registers in the block designs of ``weft board build``."""


class PynqMemory(MemoryMapped):
    """Registers and a buffer that PYNQ allocated, whose caches are flushed and invalidated around each access.

    The machine's ports do not look into the processors' caches, and PYNQ's buffers are cached unless they are asked to
    be coherent. ``memory``: (address, words); PYNQ's ``flush`` and ``invalidate`` of a slice of the words are of that
    slice alone. ``buffer``: the whole of it, which is given back."""

    def __init__(self, name: str, registers: tuple[int, np.ndarray], memory: tuple[int, np.ndarray],
                 buffer: Any) -> None:
        super().__init__(name, [registers, memory])
        self._buffer, self._start, self._size = buffer, memory[0], memory[1].nbytes

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words, as memory has them."""
        self._cached(address, count, "invalidate")
        return np.array(super().read(address, count), subok=False)

    def write(self, address: int, words: np.ndarray) -> None:
        """Write words, through to memory.

        The first and the last line of the cache also hold words beside them, which the machine may have written since
        they were cached. So these lines are fetched again before, or flushing would undo that."""
        self._cached(address, len(words), "invalidate")
        super().write(address, words)
        self._cached(address, len(words), "flush")

    def _cached(self, address: int, count: int, action: str) -> None:
        """Flush or invalidate the cache of some words; nothing happens outside of the buffer."""
        window: Any = self._window(address, count)
        if window is not None and self._start <= address < self._start + self._size:
            getattr(window, action)()

    def close(self) -> None:
        """Give the buffer back."""
        super().close()
        self._buffer.freebuffer()


def open_overlay(bitstream: Path | str, board: str, size: int, *, registers: int = REGISTERS, cores: int = 1,
                 seconds: float = PROGRAM_SECONDS) -> Device:
    """Load a bitstream with PYNQ, allocate ``size`` bytes for programs and data, and return the device.

    Raise LinkError without PYNQ and where it refuses; DeviceError if the bitstream is of another board."""
    try:
        pynq = importlib.import_module("pynq")
    except ModuleNotFoundError:
        raise LinkError(explain(f"overlay {bitstream}", "no package pynq", "an image with PYNQ",
                                f"load the bitstream by other means, and open mmio:{board}")) from None
    try:
        pynq.Overlay(str(bitstream))
        control = pynq.MMIO(registers, registers_bytes(cores)).array.view("<u4")
        buffer = pynq.allocate(shape=((size + DRAM_OFFSET_BYTES) // 4,), dtype=np.uint32)
    except (OSError, RuntimeError, ValueError, MemoryError) as error:
        raise LinkError(explain(f"overlay {bitstream}", str(error) or type(error).__name__,
                                "a bitstream with its .hwh beside it, and so much contiguous memory",
                                "look at the files' names, or ask for less memory")) from None
    start = -(-buffer.physical_address // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES
    words = buffer[(start - buffer.physical_address) // 4:][:size // 4]
    memory_map = MemoryMap.shared(registers, Region(bus=start, machine=start, size=words.nbytes))
    transport = PynqMemory(f"pynq:{board}", (registers, control), (start, words), buffer)
    target = LinkTarget(transport, memory_map, seconds)
    try:
        check_board(target.registers, board, target.name)
    except BaseException:
        target.close()
        raise
    return Device(target)
