# SPDX-License-Identifier: Apache-2.0
"""One DRAM port's memory: a byte-addressed, sparse space of 2**axi_address_width bytes, zero at first.

Vector v of a window which starts at block ``offset_blocks`` lies at byte offset_blocks * 64 KiB + v * vector_bytes.
Scalars are little-endian. They are sign-extended when written, and cut to the type's width when read."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.support.errors import WeftError, explain

MOST_ADDRESS_BITS = 40
"""The most address bits of a memory, the most that every kernel maps; larger spaces are cut."""
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
CHUNK_BYTES = 1 << 20


class Dram:
    """The memory behind a DRAM port.

    Its content lives in a sparse file mapped MAP_SHARED. With ``path`` it is that file (created or extended when
    needed), so that a simulator which maps it sees the same memory; otherwise an anonymous one in RAM."""

    def __init__(self, arch: Arch, path: Path | None = None) -> None:
        self.number = arch.number
        self.lanes = arch.array_size
        self.vector_bytes = arch.vector_bytes
        self.size = 1 << min(arch.axi_address_width, MOST_ADDRESS_BITS)
        self._file = os.memfd_create("dram") if path is None else os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        if os.fstat(self._file).st_size < self.size:
            os.truncate(self._file, self.size)
        self._map = mmap.mmap(self._file, self.size, flags=mmap.MAP_SHARED | NO_RESERVE)
        self.bytes = np.frombuffer(self._map, np.uint8)
        """The whole space; reading a hole gives zeros."""

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            os.close(self._file)

    # -- vectors ---------------------------------------------------------------------------------------------------
    def read(self, address: int, size: int, offset_blocks: int = 0, stride: int = 1) -> np.ndarray:
        """Return the vectors address, address + stride, ... as int64 [size, lanes]."""
        stored = self._vectors(address, size, offset_blocks, stride)
        return self.number.truncate(stored.astype(np.int64))

    def write(self, address: int, values: np.ndarray, offset_blocks: int = 0, stride: int = 1) -> None:
        """Write int64 [size, lanes] to the vectors address, address + stride, ..."""
        self._vectors(address, len(values), offset_blocks, stride)[...] = values

    def gather(self, addresses: np.ndarray, offset_blocks: int = 0) -> np.ndarray:
        """Return the vectors at any addresses, int64 [len(addresses), lanes]."""
        stored = self._vectors(0, int(np.max(addresses)) + 1, offset_blocks, 1)[addresses]
        return self.number.truncate(stored.astype(np.int64))

    def scatter(self, addresses: np.ndarray, values: np.ndarray, offset_blocks: int = 0) -> None:
        """Write vectors to any addresses; among equal addresses the last value stays."""
        self._vectors(0, int(np.max(addresses)) + 1, offset_blocks, 1)[addresses] = values

    def _vectors(self, address: int, size: int, offset_blocks: int, stride: int) -> np.ndarray:
        """Return a view [size, lanes] of stored scalars. Raise WeftError beyond the memory."""
        start = offset_blocks * DRAM_OFFSET_BYTES + address * self.vector_bytes
        end = start + ((size - 1) * stride + 1) * self.vector_bytes
        if start < 0 or end > self.size:
            raise WeftError(explain("DRAM access", f"bytes {start}..{end - 1}", f"0..{self.size - 1}",
                                    "lower the DRAM offset or raise axi_address_width"))
        return self.bytes[start:end].view(self.number.storage_dtype).reshape(-1, self.lanes)[::stride]

    # -- bytes -----------------------------------------------------------------------------------------------------
    def load_bytes(self, address: int, content: bytes) -> None:
        """Place bytes, such as a ``.tdata`` file, at a byte address."""
        self.bytes[address:address + len(content)] = np.frombuffer(content, np.uint8)

    def fill(self, start: int, end: int, value: int) -> None:
        """Set the bytes start..end-1 to ``value``, for example to guard words."""
        self.bytes[start:end] = value

    def extents(self) -> Iterator[tuple[int, int]]:
        """Yield ascending byte ranges (start, end) outside of which everything is zero."""
        end = 0
        while end < self.size:
            try:
                start = os.lseek(self._file, end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole follows
                return
            if start >= self.size:
                return
            end = min(os.lseek(self._file, start, os.SEEK_HOLE), self.size)
            yield start, end


def differences(a: Dram, b: Dram, limit: int | None = None) -> list[tuple[int, int, int]]:
    """Return (byte address, byte of a, byte of b) where two memories differ, ascending, at most ``limit``."""
    found: list[tuple[int, int, int]] = []
    for start, end in _chunks([*a.extents(), *b.extents()], min(a.size, b.size)):
        left, right = a.bytes[start:end], b.bytes[start:end]
        if not np.array_equal(left, right):
            where = np.flatnonzero(left != right)
            found += zip((where + start).tolist(), left[where].tolist(), right[where].tolist(), strict=True)
        if limit is not None and len(found) >= limit:
            return found[:limit]
    return found


def _chunks(extents: list[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yield the union of byte ranges, in pieces of at most CHUNK_BYTES."""
    done = 0
    for start, end in sorted(extents):
        for low in range(max(start, done), min(end, size), CHUNK_BYTES):
            yield low, min(low + CHUNK_BYTES, end, size)
        done = max(done, end)
