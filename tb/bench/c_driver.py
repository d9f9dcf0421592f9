# SPDX-License-Identifier: Apache-2.0
"""The driver in C as a library that Python calls, and buses for it."""

from __future__ import annotations

import ctypes
import enum
import os
import shlex
import shutil
import subprocess
from ctypes import CFUNCTYPE, POINTER, Structure, byref, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS
from weft.hw.flow.reports import c_header
from weft.tb.bench.register_model import RegisterModel

SOURCE = Path(__file__).parents[2] / "boards" / "driver" / "c"
STRICT = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror", "-O1"]
REGISTERS = 0x9000_0000
PLACES = ((0x4000_0000, 0), (0x4002_0000, 0x2_0000), (0x4004_0000, 0x4_0000))
"""dram0, dram1 and program memory of one core behind ``litex_model``: address on the bus, and for the machine."""


class Result(enum.IntEnum):
    """The results of the driver's functions, a second time."""

    OK = 0
    NO_MACHINE = 1
    OTHER_MACHINE = 2
    BUSY = 3
    UNALIGNED = 4
    NOT_WRITTEN = 5
    SILENT = 6
    TIMEOUT = 7
    STOPPED = 8
    LOST = 9


OK, NO_MACHINE, OTHER_MACHINE, BUSY, UNALIGNED, NOT_WRITTEN, SILENT, TIMEOUT, STOPPED, LOST = Result

Read = CFUNCTYPE(c_uint32, c_void_p, c_uint64)
Write = CFUNCTYPE(None, c_void_p, c_uint64, c_uint32)
Pause = Barrier = CFUNCTYPE(None, c_void_p)
Bulk = CFUNCTYPE(None, c_void_p, c_uint64, c_void_p, c_size_t)
Range = CFUNCTYPE(None, c_void_p, c_uint64, c_size_t)


class CBus(Structure):
    _fields_ = [("read", Read), ("write", Write), ("pause", Pause), ("context", c_void_p), ("read_bulk", Bulk),
                ("write_bulk", Bulk), ("clean", Range), ("invalidate", Range), ("barrier", Barrier)]


class CPlace(Structure):
    _fields_ = [("bus", c_uint64), ("machine", c_uint64)]


class CDevice(Structure):
    _fields_ = [("bus", CBus), ("registers", c_uint64), ("dram0", CPlace), ("dram1", CPlace), ("program", CPlace),
                ("looks", c_uint32), ("status", c_uint32), ("cause", c_uint32), ("program_counter", c_uint32),
                ("cycles", c_uint64), ("instructions", c_uint64)]


class CSample(Structure):
    _fields_ = [("program_counter", c_uint32), ("valid", c_uint8), ("ready", c_uint8)]


class CProfile(Structure):
    _fields_ = [("samples", c_uint64), ("offered", c_uint64 * 8), ("taken", c_uint64 * 8)]


def compiled(folder: Path, arch: Arch) -> Any:
    """Return the driver for a machine as a library, compiled with the flags of CFLAGS besides."""
    (folder / "weft.h").write_text(c_header(arch))
    library = folder / "driver.so"
    compiler = shutil.which("gcc") or "cc"
    subprocess.run([compiler, *STRICT, *shlex.split(os.environ.get("CFLAGS", "")), "-shared", "-fPIC", f"-I{folder}",
                    f"-I{SOURCE}", "-o", library, SOURCE / "weft_driver.c"], check=True)
    return ctypes.CDLL(str(library))


class Board:
    """The C driver's device, on words that ``read`` and ``write`` reach; ``hooks``: those that the bus has besides."""

    def __init__(self, library: Any, read: Any, write: Any, pause: Any = lambda: None, **hooks: Any) -> None:
        self.library, self.device = library, CDevice()
        kinds = {field[0]: field[1] for field in CBus._fields_}
        self._bus = CBus(Read(lambda _, address: read(address)), Write(lambda _, address, word: write(address, word)),
                         Pause(lambda _: pause()), None,
                         **{name: kinds[name](lambda _, *rest, hook=hook: hook(*rest)) for name, hook in hooks.items()})

    def open(self, registers: int, *places: tuple[int, int]) -> int:
        library = self.library
        library.weft_open.argtypes = [POINTER(CDevice), POINTER(CBus), c_uint64, CPlace, CPlace, CPlace]
        return library.weft_open(byref(self.device), byref(self._bus), registers, *(CPlace(*place) for place in places))

    def call(self, name: str, memory: str, address: int, content: Any, count: int) -> int:
        function = getattr(self.library, name)
        function.argtypes = [POINTER(CDevice), POINTER(CPlace), c_uint64, c_void_p, c_size_t]
        return function(byref(self.device), byref(getattr(self.device, memory)), address, content, count)

    def load(self, program: bytes) -> tuple[int, int]:
        size = c_uint32()
        self.library.weft_load.argtypes = [POINTER(CDevice), c_void_p, c_size_t, POINTER(c_uint32)]
        return self.library.weft_load(byref(self.device), program, len(program), byref(size)), size.value

    def run(self, size: int) -> int:
        return self.library.weft_run(byref(self.device), c_uint32(size))

    def start(self, size: int) -> int:
        return self.library.weft_start(byref(self.device), c_uint32(size))

    def stop(self) -> int:
        return self.library.weft_stop(byref(self.device))

    def poll(self) -> int:
        return self.library.weft_poll(byref(self.device))

    def wait(self) -> int:
        return self.library.weft_wait(byref(self.device))


def board_of(library: Any, model: RegisterModel) -> Board:
    return Board(library, model.read, model.write)


class CachedBus:
    """A processor's view of a model's memory, through a write-back cache of words that nothing keeps coherent.

    ``log``: what was called, in order; registers are not cached."""

    def __init__(self, model: RegisterModel) -> None:
        self.model, self.lines, self.dirty, self.log = model, dict[int, int](), set[int](), list[str]()
        self.bulk_bytes = 0

    def cached(self, address: int) -> bool:
        return self.model._offset(address) is not None

    def read(self, address: int) -> int:
        if not self.cached(address):
            return self.model.read(address)
        return self.lines.setdefault(address, self.model.read(address))

    def write(self, address: int, word: int) -> None:
        if self.cached(address):
            self.lines[address] = word
            self.dirty.add(address)
        else:
            self.log += ["start"] if address == REGISTERS + CONTROL_REGISTERS["CONTROL"].offset and word == 1 else []
            self.model.write(address, word)

    def read_bulk(self, address: int, content: int, size: int) -> None:
        words = [self.read(address + at) for at in self.pieces(address, size)]
        ctypes.memmove(content, np.array(words, "<u4").tobytes(), size)

    def write_bulk(self, address: int, content: int, size: int) -> None:
        words = np.frombuffer(ctypes.string_at(content, size), "<u4")
        for at, word in zip(self.pieces(address, size), words.tolist(), strict=True):
            self.write(address + at, word)

    def pieces(self, address: int, size: int) -> range:
        assert address % 4 == 0 and size % 4 == 0 and size
        self.bulk_bytes += size
        return range(0, size, 4)

    def clean(self, address: int, size: int) -> None:
        for place in self.places(address, size) & self.dirty:
            self.model.write(place, self.lines[place])
            self.dirty.remove(place)

    def invalidate(self, address: int, size: int) -> None:
        places = self.places(address, size)
        assert not places & self.dirty, "what is dropped is lost"
        for place in places & set(self.lines):
            del self.lines[place]

    def places(self, address: int, size: int) -> set[int]:
        assert address % 4 == 0 and size % 4 == 0 and size
        return set(range(address, address + size, 4))

    def barrier(self) -> None:
        assert not self.dirty
        self.log.append("barrier")
