# SPDX-License-Identifier: Apache-2.0
"""Registers and memory that this processor sees: a Zynq, through /dev/mem or UIO and one contiguous buffer.

The buffer is one of u-dma-buf (its physical address and size are in /sys), or reserved memory whose address and size
are given. Both mappings are uncached, because the machine's ports do not look into the caches."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.csr import ADDRESS_WIDTH, SYSTEM_ADDRESS_WIDTH
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.transport import WORD_BYTES, LinkError
from weft.support.errors import explain
from weft.support.files import reason

SYS = Path("/sys/class/u-dma-buf")
NOTHING = 0xFFFF_FFFF


class Mapped:
    """``size`` bytes of a file from ``offset``, mapped as words; the offset may lie within a page.

    Creating it raises LinkError if the file cannot be mapped."""

    def __init__(self, path: str, offset: int, size: int, what: str) -> None:
        start = offset - offset % mmap.ALLOCATIONGRANULARITY
        try:
            handle = os.open(path, os.O_RDWR | os.O_SYNC)
            try:
                self._map = mmap.mmap(handle, offset - start + size, offset=start)
            finally:
                os.close(handle)
        except (OSError, ValueError, OverflowError) as error:
            raise LinkError(_refused(f"{what} {path}", error)) from None
        first = (offset - start) // WORD_BYTES
        self.words = np.frombuffer(self._map, "<u4")[first:first + size // WORD_BYTES]


def _refused(what: str, error: Exception) -> str:
    """Return the message for a file that cannot be mapped."""
    if isinstance(error, PermissionError):
        return explain(what, "no permission to open it", "a file that this user may read and write",
                       "run as root, or give the right with a udev rule")
    return explain(what, reason(error), "memory of this processor", "load the bitstream and the driver of the buffer "
                   "(u-dma-buf), and look at the addresses")


class MemoryMapped:
    """A transport to mapped words: ``windows`` are (address, words)."""

    most_words = 1 << 18

    def __init__(self, name: str, windows: list[tuple[int, np.ndarray]]) -> None:
        self.name, self._windows = name, windows

    def read(self, address: int, count: int) -> np.ndarray:
        """Return ``count`` words; all ones outside of the windows."""
        window = self._window(address, count)
        return np.full(count, NOTHING, np.uint32) if window is None else window.copy()

    def write(self, address: int, words: np.ndarray) -> None:
        """Write words; nothing happens outside of the windows."""
        window = self._window(address, len(words))
        if window is not None:
            window[:] = words

    def _window(self, address: int, count: int) -> np.ndarray | None:
        """Return the words at an address, as a view, or None outside of the windows."""
        for start, words in self._windows:
            first = (address - start) // WORD_BYTES
            if first >= 0 and first + count <= len(words):
                return words[first:first + count]
        return None

    def resynchronise(self) -> bool:
        """Return False: mapped memory cannot lose its place."""
        return False

    def pause(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def seconds(self) -> float:
        """Return the time."""
        return time.monotonic()

    def close(self) -> None:
        """Drop the mappings."""
        self._windows = []


def registers_bytes(cores: int) -> int:
    """Return the bytes of the registers of a machine of so many cores."""
    return 1 << (ADDRESS_WIDTH if cores == 1 else SYSTEM_ADDRESS_WIDTH)


def open_mmio(board: str, options: dict[str, Any]) -> tuple[MemoryMapped, MemoryMap]:
    """Return the transport and memory map of a machine beside this processor.

    ``registers``: their physical address; with a UIO ``device`` they are its first mapping. ``buffer``: a device of
    u-dma-buf, or, if ``address`` and ``bytes`` are given, any that has the memory at that offset, such as /dev/mem.
    Raise LinkError if one cannot be mapped."""
    registers, buffer = options["registers"], options["buffer"]
    offset = 0 if "uio" in Path(options["device"]).name else registers
    control = Mapped(options["device"], offset, registers_bytes(options["cores"]), "registers in")
    physical, size, within = options["address"], options["bytes"], options["address"]
    if not size:
        physical, size, within = _sys_number(buffer, "phys_addr"), _sys_number(buffer, "size"), 0
    start = -(-physical // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES
    size -= start - physical
    memory = Mapped(buffer, within + start - physical, size, "buffer")
    transport = MemoryMapped(f"mmio:{board}", [(registers, control.words), (start, memory.words)])
    return transport, MemoryMap.shared(registers, Region(bus=start, machine=start, size=size))


def _sys_number(buffer: str, name: str) -> int:
    """Return a number that the buffer's driver states in /sys. Raise LinkError if there is none."""
    path = SYS / Path(buffer).name / name
    try:
        return int(path.read_text(), 0)
    except (OSError, ValueError) as error:
        raise LinkError(_refused(f"contiguous buffer {buffer}, described by {path}", error)) from None
