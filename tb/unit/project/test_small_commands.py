# SPDX-License-Identifier: Apache-2.0
"""Small functions behind commands, each by itself: what a break of them shows is not left to whole commands."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.boards import BOARDS
from weft.boards.standalone import project
from weft.cli import (
    board,
    compiling,
    console,
    cycle_table,
    devices,
    memory,
    onnx_backend,
    places,
    standalone,
    streams,
)
from weft.cli.main import exit_code
from weft.cli.tuning import print_tuned
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import LiteDram
from weft.runtime.driver import dram_start, targets
from weft.runtime.driver.links import LinkTarget
from weft.runtime.driver.needs import PAGE_BYTES
from weft.runtime.session import Loaded, Session
from weft.support.errors import WeftError
from weft.tb.hostile.case import good
from weft.tb.unit.driver.test_device import adder
from weft.tb.unit.runtime.models import TINY, echo


class Kept(io.StringIO):
    """A stream that counts how often it is flushed."""

    flushed = 0

    def flush(self) -> None:
        self.flushed += 1
        super().flush()


def test_a_flush_reaches_the_stream_below() -> None:
    raw = Kept()
    stream = streams.Stream(raw, "standard output")
    stream.write("milk")
    stream.flush()
    assert raw.flushed == 1 and raw.getvalue() == "milk"


@pytest.mark.parametrize(("nodes", "name"), [(["a"], "a"), (["a", "b"], "a .. b"), (["a", "b", "c", "d"], "a .. d"),
                                             (["x" * 40 + "first", "b"], "x" * 11 + "first .. b")])
def test_a_part_is_called_by_its_first_and_its_last_node(nodes: list[str], name: str) -> None:
    row = places._of_machine(3, [SimpleNamespace(node=node, macs=500) for node in nodes])  # type: ignore[misc]
    assert row == ("3", name, f"{len(nodes)} nodes", "machine", f"{500 * len(nodes):,} MACs")


def test_a_network_calibrates_by_its_own_inputs_if_none_are_given() -> None:
    sample = np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)
    found, = onnx_backend.WeftBackend.run_model(good(), [sample], arch=Arch.load("tiny"), host_alone=False)
    wanted = np.maximum(sample.sum(1, keepdims=True).repeat(2, 1), 0)
    assert np.abs(found - wanted).max() < 0.05


def test_a_preload_and_a_program_lie_where_the_driver_puts_them(tmp_path: Path) -> None:
    """Behind each other, each from a page on: what an estimate says of a board's memory is of these places."""
    made, dram = adder(tmp_path, consts_to_local=True), BOARDS["ulx3s"].dram
    session = Session(made)
    assert isinstance(dram, LiteDram)
    (preload, first), (_, second) = memory.placed(session, Loaded(made, made.arch), dram)
    assert 0 < len(preload) <= PAGE_BYTES
    assert first.program_address == memory.places_of(session, dram).machine("program")
    assert second.program_address == first.program_address + PAGE_BYTES


def test_rows_of_a_report_are_known_again_and_other_lists_are_not() -> None:
    """``weft compile --report`` replaces its own file, and no other list."""
    assert compiling.ROWS.name == "layers that --report wrote"
    own = json.dumps([{"name": "conv", "kind": "Conv"}], indent=1) + "\n"
    for text, known in ((own, True), ("[]\n", True), (json.dumps([1], indent=1) + "\n", False), ("milk", False)):
        assert compiling.ROWS.recognises(io.BytesIO(text.encode())) == known


def test_a_boot_image_is_told_by_board_and_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    made = {"image": "image.bin", "bytes": 4711, "flash_offset": 0x200000, "images": 2, "baud": 115200}
    monkeypatch.setattr(project, "write", lambda board, network, images, folder: made)
    model, shape = echo(tmp_path), (TINY.array_size, 2, 2)
    inputs = tuple(replace(port, shape=(1, *shape), layout=shape, point=8) for port in model.inputs)
    replace(model, inputs=inputs).save()
    np.savez(tmp_path / "x.npz", x=np.zeros((2, *shape), np.float32))
    standalone.standalone_command(tmp_path / "echo.tmodel", board="ulx3s", inputs=tmp_path / "x.npz",
                                  output=tmp_path / "boot", images=2)
    told = capsys.readouterr().out
    assert told.index("image.bin") < told.index("4711 bytes for offset 0x200000 of the flash, 2 images")
    assert told.splitlines()[0].split(":")[0].strip() in BOARDS["ulx3s"].name


@pytest.mark.parametrize(("on", "simulated"), [("rtl", True), ("sim", True), ("sim:ulx3s", True), ("sim?seed=1", True),
                                               ("golden", False), ("simple", False), ("serial:auto", False)])
def test_a_simulated_device_is_told_by_its_name(on: str, simulated: bool) -> None:
    assert devices.is_simulated(on) == simulated


@pytest.mark.parametrize("layers", [[], [{"layer": "conv", "samples": 1200, "share": 0.75}]])
def test_samples_are_told_of_units_and_of_layers_where_they_are_known(layers: list[dict[str, Any]],
                                                                      capsys: pytest.CaptureFixture[str]) -> None:
    units = [{"unit": "array", "taken": 0.5, "waits": 0.25, "idle": 0.125}]
    console.print_samples({"count": 1600, "units": units, "layers": layers})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    of_layers = ["layer samples time", "conv 1,200 75.0 %"] if layers else []
    assert lines == ["1,600 samples", "unit taken waits idle", "array 50.0 % 25.0 % 12.5 %", *of_layers]


class Linked(LinkTarget):
    """A board behind a link that notes what is done to it."""

    def __init__(self, leveled: bool, dram: bool) -> None:
        self.done: list[str] = []
        self.leveling, self.bridge = "the map" if leveled else None, None  # type: ignore[assignment]
        self.shell: Any = SimpleNamespace(board="ulx3s", dram=dram, places=[SimpleNamespace(base=0x40, bytes=1 << 20)])

    def start(self, shell: Any) -> None:
        self.done.append("start")
        self.leveling = "a new map"  # type: ignore[assignment]

    def close(self) -> None:
        self.done.append("close")


@pytest.mark.parametrize(("leveled", "dram", "done", "told"), [
    (True, True, ["test"], ["the map"]), (False, True, ["start", "test"], ["a new map"]), (False, False, ["test"], [])])
@pytest.mark.parametrize("faulty", [False, True])
def test_a_boards_memory_is_started_once_and_its_link_closed(
        leveled: bool, dram: bool, done: list[str], told: list[str], faulty: bool, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """Memory that was started before is started again for its map; on-chip memory has none."""
    target = Linked(leveled, dram)

    def check(_: Any, base: int, size: int) -> None:
        assert (base, size) == (0x40, 1 << 20)
        target.done.append("test")
        if faulty:
            raise WeftError("milk")

    monkeypatch.setattr(targets, "open_target", lambda *_: target)
    monkeypatch.setattr(dram_start, "check_memory", check)
    with pytest.raises(WeftError, match="milk") if faulty else contextlib.nullcontext():
        board.memory("serial:auto")
    assert target.done == [*done, "close"]
    assert capsys.readouterr().out.splitlines()[:len(told)] == told


def test_cycles_are_told_of_each_layer_and_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    def row(name: str, cycles: int, waits: int) -> dict[str, Any]:
        return {"name": name, "cycles": cycles, "macs": 1500, "done_macs": 1000, "utilization": 0.125,
                "waits": {"dram": waits, "never": 0}, "dram0_bytes": 2048, "dram1_bytes": 0}

    cycle_table.print_cycles({**row("sum", 4000, 1000), "layers": [row("a", 1000, 0), row("b", 3000, 1000)], "tail": 7,
                              "program_bytes": 9})
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[:4] == ["layer cycles MACs left out util % dram % DRAM0 KB DRAM1 KB", "a 1,000 1,500 500 12.5 2 0",
                         "b 3,000 1,500 500 12.5 25.00 2 0", "all 4,000 1,500 500 12.5 25.00 2 0"]


# -- wrong arguments ---------------------------------------------------------------------------------------------------
def test_a_setting_without_a_machine_is_not_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspect", str(tmp_path / "net.onnx"), "--set", "array_size=x"]) == 1
    assert "--set: found 'array_size=x' without a machine; allowed: --set with -a;" in capsys.readouterr().err


def test_a_missing_value_is_told_of_its_own_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["inspect", "net.onnx", "-a"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("weft: command weft inspect: found Option '-a'") and "way out: weft inspect --help" in said


def test_of_tuned_layers_those_are_shown_that_take_more_or_less(capsys: pytest.CaptureFixture[str]) -> None:
    """By a thousandth of all cycles at least; the last row is of all."""
    rows = [("less", 5000, 4990), ("more", 100, 110), ("hardly", 4900, 4909), ("same", 0, 0)]
    print_tuned({"before": 10_000, "after": 10_009,
                 "layers": [{"name": name, "before": before, "after": after} for name, before, after in rows]})
    shown = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert shown == [["less", "5,000", "4,990", "0.20"], ["more", "100", "110", "-10.00"],
                     ["all", "10,000", "10,009", "-0.09"]]
