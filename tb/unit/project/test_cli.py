# SPDX-License-Identifier: Apache-2.0
"""The command line: what it prints, what it writes, its exit codes."""

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.cli.console import print_columns
from weft.cli.examples import EXAMPLES
from weft.golden.dram import Dram
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.isa import Isa
from weft.hw.flow.reports import isa_text
from weft.simulate.trace import OPERATION

Weft = Callable[..., Any]
DIGITS = Path(__file__).parents[3] / "models" / "digits" / "digits.onnx"
VECTORS = np.arange(8, dtype=np.int16).reshape(4, 2) - 3


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, allow_pickle=False, **arrays)
    return path


# -- golden ------------------------------------------------------------------------------------------------------------
def test_raw_run_gives_vectors_back_under_the_output_s_name(weft: Weft, echo: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "y.npz"
    answer = weft("run", echo, "--input", save(tmp_path / "x.npz", **{"x:0": VECTORS}), "--raw", "--output", output)
    assert (answer.code, answer.err) == (0, "")
    found = np.load(output)
    assert found.files == ["y:0"] and found["y:0"].dtype == np.int16
    assert np.array_equal(found["y:0"], VECTORS)
    assert list(output.parent.iterdir()) == [output]


def test_lone_array_needs_no_name(weft: Weft, echo: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    for file in (tmp_path / "x.npy", save(tmp_path / "x.npz", other=VECTORS)):
        answer = weft("run", echo, "--input", file, "--raw", "--json")
        assert json.loads(answer.out)["outputs"]["y:0"] == VECTORS.tolist()


def test_batch_runs_every_image_in_a_window_of_its_own(weft: Weft, echo: Path, tmp_path: Path) -> None:
    batch = np.stack([VECTORS + image for image in range(5)])
    np.save(tmp_path / "x.npy", batch)
    answer = weft("run", echo, "--input", tmp_path / "x.npy", "--raw", "--json")
    assert json.loads(answer.out)["outputs"]["y:0"] == batch.tolist()
    answer = weft("run", echo, "--input", tmp_path / "x.npy", "--raw", "--json", "--images", 2)
    found = json.loads(answer.out)
    assert found["outputs"]["y:0"] == batch[:2].tolist() and found["images"] == 2


def test_json_is_one_object_with_the_promised_keys(weft: Weft, echo: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    found = json.loads(weft("run", echo, "--input", tmp_path / "x.npy", "--raw", "--json").out)
    assert {"cycles", "instructions", "macs", "utilization", "seconds", "outputs"} <= set(found)
    assert found["cycles"] is None and found["utilization"] is None and found["check"] is None
    assert found["instructions"] == 2 and found["seconds"] >= 0
    assert found["preload"] is None and found["checksums"] is False


def test_files_without_checksums_are_said_to_be_so(weft: Weft, echo: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    for command in (("run", echo, "--raw", "--input", tmp_path / "x.npy"), ("estimate", echo)):
        answer = weft(*command)
        assert answer.code == 0 and "no checksums in the .tmodel" in answer.out


def test_table_fits_60_columns(weft: Weft, echo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    np.save(tmp_path / "x.npy", VECTORS)
    answer = weft("run", echo, "--input", tmp_path / "x.npy", "--raw")
    assert answer.out.startswith("echo on golden") and max(map(len, answer.out.splitlines())) <= 60
    for arguments in (("archs",), ("estimate", echo), ("resources", "-a", "pynq"), ("board", "list"),
                      ("isa", "-a", "tiny"), ("inspect", DIGITS, "-a", "arty")):
        assert max(map(len, weft(*arguments).out.splitlines())) <= 60, arguments


def test_help_fits_60_columns_and_is_not_cut(weft: Weft, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    for name in ("", *EXAMPLES, "board", "ir"):
        said = weft(*name.split(), "--help").out
        assert max(map(len, said.splitlines())) <= 60, name
        assert "..." not in said.partition("Commands:")[2], name
    assert "accumulates of a network, and what would run where and why." in " ".join(
        weft("--help").out.split())


def test_columns_without_room_stand_below(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    print_columns([("name", "a" * 17, "b" * 17), ("x", "1", "2"), ("y", "3", "4")], right=True)
    assert capsys.readouterr().out.splitlines() == [
        f"name  {'a' * 17}", f"x     {'1':>17}", f"y     {'3':>17}", "",
        f"name  {'b' * 17}", f"x     {'2':>17}", f"y     {'4':>17}"]
    print_columns([("what", "found"), ("it", "word " * 12)])
    assert capsys.readouterr().out.splitlines() == ["what  found", "it    word word word word word word word",
                                                    "      word word word word word"]


def test_set_changes_the_machine(weft: Weft, echo: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", VECTORS)
    arguments = ("run", echo, "--input", tmp_path / "x.npy", "--raw")
    assert weft(*arguments, "--set", "mac_rounding=every_step", "--set", "local_banks=2").code == 0


# -- RTL, with a stand-in for the simulation ---------------------------------------------------------------------------
class StandIn:
    """``run_groups_on_rtl`` by way of the golden machine, which then may spoil the result."""

    def __init__(self) -> None:
        self.spoil: Callable[[Dram], None] = lambda dram0: None
        self.cause = Cause.NONE

    def __call__(self, arch: Arch, groups: list[list[bytes]], dram0: Dram, dram1: Dram,
                 **_: Any) -> list[list[types.SimpleNamespace]]:
        (program,), = groups
        Machine(arch, dram0, dram1).run(program)
        self.spoil(dram0)
        count = len(program) // Isa(arch).instruction_bytes
        return [[types.SimpleNamespace(cycles=100, instructions=count, seconds=0.5, error_cause=self.cause,
                                       error_program_counter=1, samples=None,
                                       operations=np.array([(1, 0, 4, 6, 9)], OPERATION))]]


@pytest.fixture
def rtl(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    stand_in = StandIn()
    module = types.ModuleType("weft.simulate.rtl")
    module.run_groups_on_rtl = stand_in  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "weft.simulate.rtl", module)
    return stand_in


@pytest.fixture
def on_rtl(echo: Path, tmp_path: Path) -> tuple[object, ...]:
    np.save(tmp_path / "x.npy", np.stack([VECTORS, VECTORS]))
    return "run", echo, "--on", "rtl", "--input", tmp_path / "x.npy", "--raw"


def test_rtl_run_says_how_many_words_are_equal(weft: Weft, rtl: StandIn, on_rtl: tuple[object, ...]) -> None:
    found = json.loads(weft(*on_rtl, "--json").out)
    assert found["cycles"] == 100 and found["check"]["equal"] == found["check"]["words"] >= 2 * 2 * 4 * 2
    assert "RTL equals golden" in weft(*on_rtl).out


def test_trace_is_written_for_perfetto(weft: Weft, rtl: StandIn, on_rtl: tuple[object, ...], tmp_path: Path) -> None:
    assert weft(*on_rtl, "--trace", tmp_path / "trace.json").code == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    bar, = (event for event in events if event["ph"] == "X" and event["pid"] == 1)
    assert (bar["name"], bar["ts"], bar["dur"]) == ("DataMove", 6, 4)
    assert len({event["pid"] for event in events}) == 2


def test_difference_names_address_lane_and_values_and_exits_2(weft: Weft, rtl: StandIn,
                                                              on_rtl: tuple[object, ...], arch: Arch) -> None:
    window = -(-arch.dram0_depth * arch.vector_bytes // 65536)
    rtl.spoil = lambda dram0: dram0.write(9, np.array([[-1, 55]]), window)
    answer = weft(*on_rtl)
    assert answer.code == 2
    assert "first at image 1, DRAM0 address 9, lane 1: RTL 55, golden 0" in answer.err
    assert "Traceback" not in answer.err
    assert weft(*on_rtl, "--no-check").code == 0


def test_write_outside_the_windows_is_found(weft: Weft, rtl: StandIn, on_rtl: tuple[object, ...]) -> None:
    rtl.spoil = lambda dram0: dram0.fill(dram0.size - 2, dram0.size, 1)
    assert weft(*on_rtl).code == 2


def test_stop_of_the_rtl_alone_exits_2(weft: Weft, rtl: StandIn, on_rtl: tuple[object, ...]) -> None:
    rtl.cause = Cause.LOCAL_RANGE
    answer = weft(*on_rtl)
    assert answer.code == 2
    assert "the RTL stopped at instruction 1 with cause LOCAL_RANGE; golden ran to the end" in answer.err


# -- ISA ---------------------------------------------------------------------------------------------------------------
def test_isa_prints_the_tables(weft: Weft, arch: Arch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert weft("isa", "-a", "tiny").out == isa_text(arch, 80)
    assert "LOOKUP" in weft("isa", "-a", "tiny", "--set", "simd_registers_depth=4", "--set", "lut_count=1").out


def test_disassembly_numbers_every_instruction(weft: Weft, echo: Path) -> None:
    assert weft("disassemble", echo.with_suffix(".tprog"), "-a", "tiny").out.splitlines() == [
        "     0  DataMove dram0_to_local local=0 far=0 size=4",
        "     1  DataMove local_to_dram0 local=0 far=8 size=4",
    ]


# -- estimate ----------------------------------------------------------------------------------------------------------
def test_estimate_says_cycles_and_bytes_and_writes_a_trace(weft: Weft, echo: Path, tmp_path: Path) -> None:
    answer = weft("estimate", echo, "--json", "--trace", tmp_path / "t.json")
    found = json.loads(answer.out)
    assert (answer.code, answer.err) == (0, "")
    assert found["cycles"] > 50 and found["layers"] == []
    assert found["dram0_bytes"] == 2 * VECTORS.size * 2  # in and out, 2 bytes each
    bars = [event for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if event["ph"] == "X"]
    assert [bar["args"]["program_counter"] for bar in sorted(bars, key=lambda bar: bar["ts"])] == [0, 1]
    assert f"{found['cycles']:,}" in weft("estimate", echo).out


def test_estimate_knows_slower_memory(weft: Weft, echo: Path) -> None:
    slow, fast = (json.loads(weft("estimate", echo, "--json", "--latency", latency).out)["cycles"]
                  for latency in (120, 20))
    assert slow - fast == 200  # one read, one write response


def test_estimate_knows_a_boards_memory(weft: Weft, echo: Path) -> None:
    """Wider chips take less; every cycle of the memory's bus is for something."""
    found = {board: json.loads(weft("estimate", echo, "--json", "--board", board).out)
             for board in ("ulx3s", "colorlight_i9")}
    assert found["ulx3s"]["cycles"] > found["colorlight_i9"]["cycles"] > 0
    use = found["ulx3s"]["dram"]
    assert set(use) == {"data", "program", "refresh", "turnaround", "rows", "idle"}
    assert sum(use.values()) >= found["ulx3s"]["cycles"] and use["data"] and use["program"]
    table = weft("estimate", echo, "--board", "ulx3s").out
    assert "turnaround" in table
    assert json.loads(weft("estimate", echo, "--json").out)["dram"] is None


@pytest.mark.parametrize(("options", "message"), [
    (["--board", "ulx3s", "--latency", "20"], "--board and --latency: found both"),
    (["--board", "tang_nano_20k"], "a board whose memory controller is not modelled; allowed: arty_a7_100, arty"),
    (["--board", "nothing"], "board: found nothing; allowed: arty_a7_100"),
])
@pytest.mark.parametrize("command", [["estimate"], ["report", "-o", "page.html"]])
def test_a_board_whose_memory_is_not_known_is_refused(weft: Weft, echo: Path, command: list[str], options: list[str],
                                                      message: str) -> None:
    answer = weft(command[0], echo, *command[1:], *options)
    assert answer.code == 1 and message in answer.err and not Path("page.html").exists()


def test_only_simulated_hardware_takes_a_boards_memory(weft: Weft, echo: Path, tmp_path: Path) -> None:
    samples = save(tmp_path / "x.npz", **{"x:0": VECTORS})
    answer = weft("run", echo, "--input", samples, "--raw", "--board", "ulx3s")
    assert answer.code == 1 and "--board: found --on golden; allowed: --on rtl" in answer.err
    answer = weft("run", echo, "--input", samples, "--raw", "--on", "rtl", "--board", "pynq_z1")
    assert answer.code == 1 and "use weft estimate --board" in answer.err


def test_processors_memory_is_told_as_a_spread(weft: Weft, echo: Path) -> None:
    found = json.loads(weft("estimate", echo, "--board", "zcu104", "--json").out)
    assert found["spread"]["best"] <= found["spread"]["typical"] == found["cycles"] < found["spread"]["worst"]
    assert "by parameters, not measured: best" in weft("estimate", echo, "--board", "zcu104").out
    assert "spread" not in json.loads(weft("estimate", echo, "--json").out)


def test_layers_need_the_hardware(weft: Weft, echo: Path, tmp_path: Path) -> None:
    answer = weft("run", echo, "--input", save(tmp_path / "x.npz", **{"x:0": VECTORS}), "--raw", "--layers")
    assert answer.code == 1 and "weft estimate" in answer.err
