# SPDX-License-Identifier: Apache-2.0
"""Models of boards on serial ports and on the network, in the place of those that the driver would open."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.runtime.driver import etherbone, uartbone
from weft.runtime.driver.etherbone import Etherbone
from weft.runtime.driver.shell_file import BUILT
from weft.runtime.driver.transport import LinkError
from weft.runtime.driver.uartbone import UartBone
from weft.tb.bench.link_models import Bus, UartLine, UartWire, UdpWire

BAUD = 3_000_000


class Nobody(UartLine):
    """A line on which everything that is written is lost."""

    def write(self, content: bytes) -> int:
        return len(content)


def plug_in(monkeypatch: pytest.MonkeyPatch, boards: Mapping[str, Bus | str], baud: int = BAUD,
            udp: Mapping[str, Bus] | None = None) -> None:
    """Let the driver find ``boards``: USB serial port -> what is behind it, or why it cannot be opened.

    Everything answers at ``baud`` alone. ``udp``: host -> board."""

    def open_serial(port: str, rate: int = BAUD) -> UartBone:
        board = boards.get(port, "serial port: found no such port; allowed: one; way out: plug it in")
        if isinstance(board, str):
            raise LinkError(board)
        wire = UartWire(board, baud=rate)
        return UartBone(f"serial:{port}", wire.open if rate == baud else lambda: Nobody(wire), sleep=wire.sleep)

    def open_udp(host: str, port: int) -> Etherbone:
        wire = UdpWire((udp or {})[host])
        return Etherbone(f"udp:{host}", wire, wire.sleep)

    ports = [SimpleNamespace(device=port, vid=0x0403) for port in boards]
    monkeypatch.setattr(uartbone, "open_serial", open_serial)
    monkeypatch.setattr(etherbone, "open_udp", open_udp)
    monkeypatch.setattr("serial.tools.list_ports.comports", lambda: [*ports, SimpleNamespace(device="/dev/ttyS0",
                                                                                          vid=None)])


def leave(description: dict[str, Any] | str, name: str) -> Path:
    """Write a ``shell.json`` where ``weft board build`` leaves that of board ``name``, in this folder."""
    path = BUILT / name / "shell.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(description if isinstance(description, str) else json.dumps(description))
    return path
