# SPDX-License-Identifier: Apache-2.0
"""A ``shell.json`` that is damaged in any field is refused by one message, or the board runs with what it says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.hw.contract.host_link import ROOM_BYTES
from weft.runtime.driver.checked_bridge import CheckedBridge
from weft.runtime.driver.links import litex_target
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.driver.targets import KINDS, read_device
from weft.runtime.driver.uartbone import UartBone
from weft.support.errors import WeftError
from weft.tb.bench.dram_model import BoardModel, board_description
from weft.tb.bench.link_models import UartWire, Witnessed
from weft.tb.unit.driver.test_device import TINY

BAD: tuple[Any, ...] = (-1, 1 << 32, 1 << 70, 1.5, "", "x\ny", "a" * 100_000, None, [], {}, [[]], True, {"base": -4})
SHELL = board_description(TINY, "ulx3s")
SHELL["registers"] = {name: SHELL["registers"][name] for name in sorted(SHELL["registers"])}
KEPT = 3
"""Registers that are damaged one by one: all are alike."""
Where = tuple[str | int, ...]


def leaves(value: Any, where: Where = ()) -> Iterator[Where]:
    """Every place in a shell file, whole objects too; a machine's parameters have tests of their own."""
    if where:
        yield where
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for number, (key, each) in enumerate(inner):
        if where != ("arch",) and (where != ("registers",) or number < KEPT):
            yield from leaves(each, (*where, key))


def damaged(where: Where, bad: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(SHELL))
    place = content
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = bad
    return content


def opened(content: dict[str, Any], folder: Path) -> None:
    """The board with such a file, as a user opens it. Raises WeftError."""
    file = folder / "shell.json"
    file.write_text(json.dumps(content))
    wire = UartWire(BoardModel(TINY, "ulx3s"))
    _, _, options = read_device(f"serial:x?shell={file}")
    litex_target(UartBone("serial:x", wire.open, sleep=wire.sleep), options).close()


def test_a_good_file_opens_the_board(tmp_path: Path) -> None:
    opened(SHELL, tmp_path)


@pytest.mark.parametrize("where", list(leaves(SHELL)), ids=lambda where: ".".join(map(str, where)))
def test_a_damaged_field(where: Where, tmp_path: Path) -> None:
    began, refused = time.monotonic(), 0
    for bad in BAD:
        try:
            opened(damaged(where, bad), tmp_path)
        except WeftError as error:
            refused += 1
            assert ": found " in str(error) and "; way out: " in str(error) and len(str(error)) < 5000
    free = where[-1] in ("kind", "what", "windows", "registers") or where == ("dram", "start")
    assert refused >= len(BAD) - (4 if free else 3)
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("change", "says"), [
    ({"memory": {"base": 0xFFFF_F000, "bytes": 1 << 20}}, "memory beyond"),
    ({"windows": {"dram0": {"base": 0, "bytes": 4096}}}, "a DRAM and on-chip memories"),
    ({"dram": None, "windows": {name: {"base": 0x4000_0000, "bytes": 4096} for name in ("dram0", "dram1", "program")}},
     "overlap"),
    ({"dram": None, "windows": {name: {"base": 4096 * at, "bytes": 4096}
                                for at, name in enumerate(("dram0", "dram1", "program"))}}, "outside memory"),
    ({"dram": None, "windows": {name: {"base": 0x4000_0000 + 4096 * at, "bytes": 4096}
                                for at, name in enumerate(("dram0", "dram1", "program", "more"))}}, "memory more"),
    ({"dram": {**SHELL["dram"], "read_phase": 5}}, "a phase")])
def test_fields_that_do_not_go_together(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        ShellFile.of({**SHELL, **change})


# -- the options of a device string ------------------------------------------------------------------------------------
NUMBERS = [(kind, name) for kind, spec in KINDS.items() for name, option in spec.options.items()
           if not isinstance(option, str)]


@pytest.mark.parametrize("bad", ["", "-1", "nan", "inf", "-inf", "1e400", "9" * 5000, "0x", "70 000", "1;2", "\x00",
                                 "0x1" + "0" * 30, "a" * 10_000, "None", "[]", "1,5"])
@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_a_number_out_of_its_bounds(kind: str, name: str, bad: str) -> None:
    place = "tiny" if kind == "sim" else "here"
    with pytest.raises(WeftError, match=f"device option {name}: found .*; allowed: a number from "):
        read_device(f"{kind}:{place}?{name}={bad}")


@pytest.mark.parametrize(("kind", "name"), NUMBERS)
def test_the_bounds_of_a_number(kind: str, name: str) -> None:
    option: Any = KINDS[kind].options[name]
    for good in (option.least, option.most, option.default or option.least):
        assert read_device(f"{kind}:here", {name: good})[2][name] == good
    for bad in (option.most * 2 + 1, option.least - 1):
        with pytest.raises(WeftError, match=f"device option {name}"):
            read_device(f"{kind}:here", {name: bad})


@pytest.mark.parametrize(("where", "says"), [
    ("udp:h?port=70000", "a number from 1 to 65535"), ("udp:h?port=1&port=2", "found port twice"),
    ("udp:h?port=3;4", "device option port"), ("serial:/dev/x?memory=2", "a multiple of 4"),
    ("udp:a\nb", "device: found 'udp:a"), ("serial:x\x1b[31m", "device: found"), ("udp:\udcff", "device: found"),
    ("serial:x?shell=a%0Ab", "device option shell"), ("serial:x?=3", "option of device serial:x")])
def test_odd_device_strings(where: str, says: str) -> None:
    with pytest.raises(WeftError) as raised:
        read_device(where)
    assert says in str(raised.value)


def test_a_path_keeps_its_letters() -> None:
    assert read_device("serial:x?shell=build/c++/shell.json")[2]["shell"] == "build/c++/shell.json"
    assert read_device("serial:x?shell=a%26b")[2]["shell"] == "a&b"


def test_a_shell_with_a_witness_is_driven_through_it(tmp_path: Path) -> None:
    file, witness = tmp_path / "shell.json", 0x9100_0000
    file.write_text(json.dumps({**SHELL, "witness": witness}))
    wire = UartWire(Witnessed(BoardModel(TINY, "ulx3s"), witness), room=ROOM_BYTES)
    target = litex_target(UartBone("serial:x", wire.open, sleep=wire.sleep), read_device(f"serial:x?shell={file}")[2])
    assert isinstance(target.bridge, CheckedBridge) and target.registers.bridge is target.bridge
    assert target.registers.read("SCRATCH") == target.bridge.mark
    target.close()
