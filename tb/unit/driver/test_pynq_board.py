# SPDX-License-Identifier: Apache-2.0
"""A Zynq under PYNQ, with a stand-in for its package: a buffer with a cache that must be flushed and invalidated."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from weft.boards.vivado.zynq import KINDS
from weft.hw.contract.csr import CONTROL_REGISTERS, Access, board_code
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.memory_mapped import NOTHING
from weft.runtime.driver.pynq_board import REGISTERS, PynqMemory, open_overlay
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.transport import LinkError
from weft.runtime.session import Session
from weft.tb.bench.register_model import RegisterModel
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for

PHYSICAL, SIZE = 0x1000_8000, 1 << 18
START = 0x1001_0000
"""The first block of 64 KiB in the buffer."""


LINE_WORDS = 8
"""Words in a line of the cache."""


class Buffer(np.ndarray):
    """What the processor sees of a buffer or a slice of it, in its cache; memory itself is the machine's.

    Whole lines go between the two."""

    zynq: Zynq
    whole: np.ndarray
    physical_address = PHYSICAL
    freed = False

    def __array_finalize__(self, other: Any) -> None:
        if isinstance(other, Buffer) and hasattr(other, "zynq"):
            self.zynq, self.whole = other.zynq, other.whole

    def _lines(self) -> slice:
        first = (self.ctypes.data - self.whole.ctypes.data) // 4
        return slice(first // LINE_WORDS * LINE_WORDS, -(-(first + self.size) // LINE_WORDS) * LINE_WORDS)

    def flush(self) -> None:
        self.zynq.memory[self._lines()] = self.whole[self._lines()]
        self.zynq.flushed += self.size

    def invalidate(self) -> None:
        self.whole[self._lines()] = self.zynq.memory[self._lines()]

    def freebuffer(self) -> None:
        type(self).freed = True


class Registers(np.ndarray):
    """Registers: the machine acts when one is written."""

    zynq: Zynq

    def view(self, *_: Any) -> Registers:  # type: ignore[override]
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)

    def __getitem__(self, key: Any) -> Any:
        self.zynq.show(self)
        found = np.asarray(self)[key]
        return Window(self.zynq, self, key) if isinstance(key, slice) else found


class Window:
    """A slice of the registers, as the transport takes it."""

    def __init__(self, zynq: Zynq, registers: Registers, key: slice) -> None:
        self.zynq, self.registers, self.key = zynq, registers, key

    def copy(self) -> np.ndarray:
        return np.asarray(self.registers)[self.key].copy()

    def __setitem__(self, _: Any, words: np.ndarray) -> None:
        for number, word in enumerate(words.tolist()):
            self.zynq.act(self.key.start + number, word)


class Zynq(ModuleType):
    """The package ``pynq``, and the board behind it."""

    def __init__(self, board: str = "pynq_z2") -> None:
        super().__init__("pynq")
        region = Region(bus=START, machine=START, size=PHYSICAL + SIZE + (1 << 16) - START)
        self.model = RegisterModel(TINY, MemoryMap.shared(REGISTERS, region), patience=0)
        self.model.values["BOARD"] = board_code(board)
        self.loaded: list[str] = []
        self.flushed = 0

    @property
    def memory(self) -> np.ndarray:
        return self.model.dram.bytes[PHYSICAL:PHYSICAL + SIZE + (1 << 16)].view("<u4")

    def Overlay(self, bitstream: str) -> None:  # noqa: N802 - PYNQ's name
        if not Path(bitstream).exists():
            raise OSError(f"{bitstream} does not exist")
        self.loaded.append(bitstream)

    def MMIO(self, address: int, size: int) -> Any:  # noqa: N802 - PYNQ's name
        assert address == REGISTERS
        registers = np.zeros(size // 4, "<u4").view(Registers)
        registers.zynq = self
        holder = ModuleType("mmio")
        holder.array = registers  # type: ignore[attr-defined]
        return holder

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> Buffer:
        assert shape == ((SIZE + (1 << 16)) // 4,) and dtype is np.uint32
        buffer = np.zeros(shape, dtype).view(Buffer)
        buffer.zynq, buffer.whole = self, np.asarray(buffer)
        return buffer

    def show(self, registers: Registers) -> None:
        for name, register in CONTROL_REGISTERS.items():
            np.asarray(registers)[register.offset // 4] = self.model._register(name)

    def act(self, index: int, word: int) -> None:
        name = next(name for name, register in CONTROL_REGISTERS.items() if register.offset == 4 * index)
        assert CONTROL_REGISTERS[name].access is not Access.READ_ONLY
        self.model.write(REGISTERS + 4 * index, word)


@pytest.fixture
def zynq(monkeypatch: pytest.MonkeyPatch) -> Zynq:
    board = Zynq()
    monkeypatch.setitem(sys.modules, "pynq", board)
    monkeypatch.setattr(Buffer, "freed", False)
    return board


def test_an_overlay_computes_what_golden_computes(zynq: Zynq, tmp_path: Path) -> None:
    made, bitstream = adder(tmp_path), tmp_path / "pynq_z2.bit"
    bitstream.touch()
    with open_overlay(bitstream, "pynq_z2", SIZE) as device:
        device.load(made)
        for number in range(3):
            expected = Session(made).run(inputs_for(made, number), raw=True).outputs
            assert device.run(inputs_for(made, number), raw=True)["y"].tolist() == expected["y"].tolist()
    assert zynq.loaded == [str(bitstream)] and Buffer.freed
    assert not zynq.memory[:(START - PHYSICAL) // 4].any(), "what lies before the first block of 64 KiB is not ours"


def memory_of(zynq: Zynq) -> PynqMemory:
    """A transport to a buffer, whose addresses begin at START."""
    buffer = zynq.allocate(((SIZE + (1 << 16)) // 4,), np.uint32)
    registers = np.zeros(16, np.uint32)
    return PynqMemory("pynq", (REGISTERS, registers), (START, buffer[(START - PHYSICAL) // 4:]), buffer)


def test_only_what_is_written_is_flushed(zynq: Zynq) -> None:
    memory = memory_of(zynq)
    memory.write(START, np.arange(100, dtype=np.uint32))
    assert zynq.flushed == 100
    assert memory.read(START + 40, 4).tolist() == [10, 11, 12, 13]
    memory.write(REGISTERS, np.ones(1, np.uint32))
    assert zynq.flushed == 100


def test_words_beside_the_ones_that_are_written_stay_the_machines(zynq: Zynq) -> None:
    memory = memory_of(zynq)
    memory.read(START, LINE_WORDS)
    zynq.memory[(START - PHYSICAL) // 4 + 1] = 77
    memory.write(START + 8, np.array([5], np.uint32))
    assert memory.read(START, 3).tolist() == [0, 77, 5]


def test_a_buffer_that_was_given_back_is_not_touched(zynq: Zynq) -> None:
    memory = memory_of(zynq)
    memory.write(START, np.ones(4, np.uint32))
    memory.close()
    memory.write(START, np.zeros(4, np.uint32))
    assert memory.read(START, 4).tolist() == [NOTHING] * 4
    assert zynq.memory[(START - PHYSICAL) // 4:][:4].tolist() == [1] * 4


def test_registers_are_where_the_block_design_has_them() -> None:
    assert KINDS["zynq7"].registers == REGISTERS


def test_the_bitstream_of_another_board(zynq: Zynq, tmp_path: Path) -> None:
    zynq.model.values["BOARD"] = board_code("zcu104")
    bitstream = tmp_path / "pynq_z2.bit"
    bitstream.touch()
    with pytest.raises(DeviceError, match="BOARD of device pynq:pynq_z2"):
        open_overlay(bitstream, "pynq_z2", SIZE)
    assert Buffer.freed


def test_a_bitstream_that_is_not_there(zynq: Zynq, tmp_path: Path) -> None:
    with pytest.raises(LinkError, match=r"overlay .*none.bit: found .*does not exist; allowed: a bitstream with its"):
        open_overlay(tmp_path / "none.bit", "pynq_z2", SIZE)


def test_without_pynq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynq", None)
    with pytest.raises(LinkError, match="no package pynq; allowed: an image with PYNQ; way out: .*mmio:pynq_z2"):
        open_overlay("x.bit", "pynq_z2", SIZE)
