# SPDX-License-Identifier: Apache-2.0
"""A Zynq: registers and a contiguous buffer in files that stand for /dev/mem, UIO and u-dma-buf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.hw.contract.csr import CONTROL_REGISTERS, Access, board_code
from weft.runtime.driver import memory_mapped
from weft.runtime.driver.device import Device
from weft.runtime.driver.memory_map import MemoryMap, Region
from weft.runtime.driver.memory_mapped import Mapped, MemoryMapped
from weft.runtime.driver.registers import DeviceError
from weft.runtime.driver.transport import LinkError
from weft.runtime.session import Session
from weft.tb.bench.register_model import RegisterModel
from weft.tb.unit.driver.test_device import TINY, adder, inputs_for

REGISTERS, PHYSICAL, SIZE = 0x43C0_0000, 0x1000_8000, 1 << 19
ALIGNED = 0x1001_0000
"""The first block of 64 KiB within the buffer."""
CONTROL = CONTROL_REGISTERS["CONTROL"].offset // 4


class Zynq:
    """Files, and a machine that looks at them after each write."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory, self.buffer = folder / "mem", folder / "udmabuf0"
        self._file(self.memory, REGISTERS + 4096)
        self._file(self.buffer, SIZE)
        sys = folder / "sys" / "udmabuf0"
        sys.mkdir(parents=True)
        (sys / "phys_addr").write_text(f"{PHYSICAL:#x}\n")
        (sys / "size").write_text(f"{SIZE}\n")
        monkeypatch.setattr(memory_mapped, "SYS", folder / "sys")
        region = Region(bus=ALIGNED, machine=ALIGNED, size=PHYSICAL + SIZE - ALIGNED)
        self.model = RegisterModel(TINY, MemoryMap.shared(REGISTERS, region), patience=0)
        self.registers = Mapped(str(self.memory), REGISTERS, 4096, "registers").words
        self.words = Mapped(str(self.buffer), 0, SIZE, "buffer").words
        self._show()
        write = MemoryMapped.write

        def watched(transport: MemoryMapped, address: int, words: np.ndarray) -> None:
            write(transport, address, words)
            self._look()

        monkeypatch.setattr(MemoryMapped, "write", watched)

    @staticmethod
    def _file(path: Path, size: int) -> None:
        with path.open("wb") as file:
            file.truncate(size)

    def _look(self) -> None:
        command = int(self.registers[CONTROL])
        if not command:
            return
        for name, register in CONTROL_REGISTERS.items():
            if register.access is Access.READ_WRITE:
                self.model.values[name] = int(self.registers[register.offset // 4])
        memory = self.model.dram.bytes[PHYSICAL:PHYSICAL + SIZE].view("<u4")
        memory[:] = self.words
        self.model.write(REGISTERS + 4 * CONTROL, command)
        self.model._register("STATUS")
        self.words[:] = memory
        self._show()

    def _show(self) -> None:
        for name, register in CONTROL_REGISTERS.items():
            self.registers[register.offset // 4] = self.model._register(name)

    @property
    def where(self) -> str:
        return f"mmio:pynq_z1?device={self.memory}&buffer={self.buffer}"


def test_a_bitstream_for_another_zynq(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Zynq(tmp_path, monkeypatch)
    board.model.values["BOARD"] = board_code("zcu104")
    board._show()
    with pytest.raises(DeviceError, match="BOARD of device mmio:pynq_z1"):
        Device.open(board.where)


def test_a_zynq_computes_what_golden_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, board = adder(tmp_path), Zynq(tmp_path, monkeypatch)
    with Device.open(board.where) as device:
        device.load(made)
        for number in range(3):
            expected = Session(made).run(inputs_for(made, number), raw=True).outputs
            assert device.run(inputs_for(made, number), raw=True)["y"].tolist() == expected["y"].tolist()
        assert not device.backend.bridge.faults  # type: ignore[attr-defined]
    assert not self_words_before(board).any(), "what lies before the first block of 64 KiB is not ours"


def self_words_before(board: Zynq) -> np.ndarray:
    return board.words[:(ALIGNED - PHYSICAL) // 4]


def test_registers_by_uio_and_reserved_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """UIO maps the registers at 0; reserved memory is a part of /dev/mem."""
    board = Zynq(tmp_path, monkeypatch)
    uio = tmp_path / "uio0"
    uio.write_bytes(board.registers.astype("<u4").tobytes())
    where = f"mmio:pynq?device={uio}&buffer={board.memory}&address={ALIGNED:#x}&bytes=0x20000"
    with Device.open(where) as device:
        region = device.target.memory_map.regions["dram0"]  # type: ignore[attr-defined]
        assert (region.machine, region.size) == (ALIGNED, 0x20000)


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Zynq(tmp_path, monkeypatch)
    with pytest.raises(LinkError, match=r"registers in .*none: found no such file .* way out: load the bitstream"):
        Device.open(f"mmio:pynq?device={tmp_path}/none")
    with pytest.raises(LinkError, match="contiguous buffer .*udmabuf9, described by .*phys_addr: found no such file"):
        Device.open(f"mmio:pynq?device={board.memory}&buffer={tmp_path}/udmabuf9")
    board.registers[0] = 0
    with pytest.raises(Exception, match="0x00000000 in IDENTITY"):
        Device.open(board.where)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(memory_mapped.os, "open", refuse)
    with pytest.raises(LinkError, match="registers in /dev/mem: found no permission to open it; .* run as root"):
        Device.open("mmio:pynq")


def test_nobody_at_an_address() -> None:
    transport = MemoryMapped("mmio:x", [(0x1000, np.arange(4, dtype=np.uint32))])
    assert transport.read(0x1008, 2).tolist() == [2, 3]
    assert transport.read(0x100C, 2).tolist() == transport.read(0xFFC, 2).tolist() == [0xFFFFFFFF] * 2
    transport.write(0x1010, np.ones(1, np.uint32))


def test_mapped_memory_waits_and_does_not_lose_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(memory_mapped.time, "sleep", slept.append)
    transport = MemoryMapped("mmio:x", [(0x1000, np.arange(4, dtype=np.uint32))])
    transport.pause(0.25)
    assert slept == [0.25] and not transport.resynchronise()
