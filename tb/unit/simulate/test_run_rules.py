# SPDX-License-Identifier: Apache-2.0
"""What a simulated run does with registers, files, events and logs, without a simulator."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.golden.dram import Dram
from weft.hw.contract import csr
from weft.hw.contract.arch import Arch
from weft.hw.contract.system import page_address
from weft.simulate import (
    axil,
    build,
    job,
    leftovers,
    library,
    make,
    once,
    rtl,
    run_program,
    serve,
    simulation,
    toolchain,
)
from weft.simulate.axil import AxiLite, AxiLiteError
from weft.simulate.job import Job, JobResult, MemorySettings, ProgramRun
from weft.simulate.make import OWN_PROCESSOR, RUN_FAST
from weft.simulate.sim_top import MEMORIES
from weft.simulate.trace import _EVENT, Kind, read_operations


class Bus:
    """Registers by their byte address; what is written is kept in order."""

    def __init__(self, **values: int) -> None:
        self.values = {page_address(csr.SYSTEM_PAGE) + csr.SYSTEM_REGISTERS[name].offset if name.startswith("GROUP")
                       else csr.CONTROL_REGISTERS[name].offset: value for name, value in values.items()}
        self.written: list[tuple[int, int]] = []

    async def read(self, address: int) -> int:
        return self.values.get(address, 0)

    async def write(self, address: int, value: int) -> None:
        self.written.append((address, value))


def now(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def group_of(bus: Bus, *spans: tuple[int, int]) -> run_program.Group:
    first = spans[0]
    return run_program.Group(bus, {"group": list(spans) if len(spans) > 1 else [],  # type: ignore[arg-type]
                                   "address": first[0], "size": first[1]})


# -- registers ---------------------------------------------------------------------------------------------------------
def test_cores_that_rest_are_neither_started_nor_waited_for() -> None:
    bus = Bus()
    group = group_of(bus, (0, 8), (0, 0), (64, 4))
    assert group.programs == {0: (0, 8), 2: (64, 4)} and group.mask == 0b101
    assert [core.page for core in group.cores] == [0, 2]
    now(group.command(csr.Command.START))
    assert bus.written == [(page_address(csr.SYSTEM_PAGE) + csr.SYSTEM_REGISTERS["GROUP_START"].offset, 0b101)]


@pytest.mark.parametrize(("done", "error", "lacks"), [
    (0, 0, True), (0b001, 0, True), (0b101, 0, False), (0b001, 0b100, False), (0b010, 0b010, True), (0b110, 0, True)])
def test_a_group_is_over_when_each_of_its_cores_is_done_or_stopped(done: int, error: int, lacks: bool) -> None:
    group = group_of(Bus(GROUP_DONE=done, GROUP_ERROR=error), (0, 8), (0, 0), (64, 4))
    assert now(group.lack(csr.Status.DONE)) is lacks


@pytest.mark.parametrize(("idle", "lacks"), [(0b101, False), (0b100, True), (0b010, True)])
def test_a_group_is_idle_when_each_of_its_cores_is(idle: int, lacks: bool) -> None:
    """One that stopped with an error may still be busy."""
    group = group_of(Bus(GROUP_IDLE=idle, GROUP_ERROR=0b111), (0, 8), (0, 0), (64, 4))
    assert now(group.lack(csr.Status.IDLE)) is lacks


@pytest.mark.parametrize(("bits", "status", "lacks"), [
    ((), "DONE", True), (("DONE",), "DONE", False), (("ERROR",), "DONE", False), (("ERROR",), "IDLE", True),
    (("IDLE",), "IDLE", False), (("IDLE",), "DONE", True)])
def test_a_core_alone_is_over_by_its_own_status(bits: tuple[str, ...], status: str, lacks: bool) -> None:
    found = sum(1 << csr.Status[bit] for bit in bits)
    assert now(group_of(Bus(STATUS=found), (0, 8)).lack(csr.Status[status])) is lacks


def test_a_register_of_64_bits_is_two_words() -> None:
    assert now(run_program.Core(Bus(CYCLES_LOW=7, CYCLES_HIGH=3)).read("CYCLES")) == (3 << 32) + 7  # type: ignore[arg-type]


def test_a_program_is_started_at_its_address_with_both_interrupts() -> None:
    bus, address = Bus(), (5 << 32) + 64
    dut = SimpleNamespace(dram0_jitter=SimpleNamespace(value=0))
    program = {"memories": {"dram0": {"jitter": 3}}}
    now(run_program._start(dut, group_of(bus, (address, 96)), program))
    names = {csr.CONTROL_REGISTERS[name].offset: name for name in csr.CONTROL_REGISTERS}
    assert {names[at]: value for at, value in bus.written} == {
        "PROGRAM_ADDRESS_LOW": 64, "PROGRAM_ADDRESS_HIGH": 5, "PROGRAM_BYTES": 96,
        "INTERRUPT_ENABLE": 1 << csr.Status.DONE | 1 << csr.Status.ERROR, "CONTROL": 1 << csr.Command.START}
    assert names[bus.written[-1][0]] == "CONTROL" and dut.dram0_jitter.value == 3


def test_a_soft_reset_clears_every_interrupt() -> None:
    bus = Bus(STATUS=1 << csr.Status.IDLE)
    now(run_program._soft_reset(group_of(bus, (0, 8))))
    assert bus.written[-1] == (csr.CONTROL_REGISTERS["INTERRUPT_STATUS"].offset, (1 << csr.INTERRUPT_COUNT) - 1)


@pytest.mark.parametrize("response", range(4))
def test_every_answer_but_okay_is_an_error(response: int) -> None:
    if response:
        with pytest.raises(AxiLiteError, match=f"response {response}"):
            AxiLite._check("read", 4, response)
    else:
        AxiLite._check("read", 4, response)


@pytest.mark.parametrize("edges", [
    ["awready", "wready", "bvalid"], ["wready", "awready", "bvalid"], ["awready", "wready", "", "", "bvalid"],
    ["awready", "bvalid", "wready"]])
def test_a_write_ends_when_both_are_taken_and_the_answer_is_there(edges: list[str],
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """What the slave raises at each edge: a channel is offered until it is taken."""
    names = ("awvalid", "wvalid", "arvalid", "wstrb", "bready", "rready", "awaddr", "wdata", "awready", "wready",
             "bvalid", "bresp", "clk")
    dut = SimpleNamespace(**{name: SimpleNamespace(value=0) for name in names})
    left = list(edges)

    class Edge:
        def __init__(self, clock: object) -> None:
            pass

        def __await__(self) -> Any:
            for name in ("awready", "wready", "bvalid"):
                getattr(dut, name).value = 0
            if raised := left.pop(0):
                assert raised == "bvalid" or getattr(dut, raised.replace("ready", "valid")).value == 1
                getattr(dut, raised).value = 1
            yield from ()

    monkeypatch.setattr(axil, "RisingEdge", Edge)
    bus = axil.AxiLite(SimpleNamespace(clk=dut.clk, **{f"s_axil_{name}": getattr(dut, name) for name in names}))
    now(bus.write(8, 5))
    assert left == [] and (dut.awaddr.value, dut.wdata.value) == (8, 5)
    assert (dut.awvalid.value, dut.wvalid.value) == (0, 0)


def test_a_machine_runs_for_cycles_of_its_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main loop's clock has a period of 10 ns."""
    asked: list[tuple[object, ...]] = []

    class Passed:
        def __init__(self, *given: object) -> None:
            asked.append(given)

        def __await__(self) -> Any:
            yield from ()

    for name in ("First", "RisingEdge", "Timer"):
        monkeypatch.setattr(serve, name, Passed)
    now(serve._run(SimpleNamespace(interrupt=SimpleNamespace(value=0), clk=None), 7))
    assert (70, "ns") in asked


# -- memories ----------------------------------------------------------------------------------------------------------
def test_a_memory_has_its_content_and_zeros_behind(tmp_path: Path) -> None:
    (tmp_path / "memory").write_bytes(b"\xff" * 9000)
    (tmp_path / "content").write_bytes(b"abc")
    run_program._replace(tmp_path / "memory", tmp_path / "content")
    assert (tmp_path / "memory").read_bytes() == b"abc" + bytes(8997)


def test_a_snapshot_is_the_memory_with_its_holes(tmp_path: Path) -> None:
    size, places = 1 << 20, {0: b"first", 300_000: b"second", (1 << 20) - 4: b"last"}
    with open(tmp_path / "memory", "wb") as file:
        file.truncate(size)
        for place, content in places.items():
            file.seek(place)
            file.write(content)
    run_program._copy(tmp_path / "memory", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "memory").read_bytes()


def test_each_memory_behaves_as_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / name for name in MEMORIES}
    asked = {MEMORIES[0]: MemorySettings(jitter=1), MEMORIES[-1]: MemorySettings(jitter=3)}
    monkeypatch.setattr(job, "run_simulation", lambda *_, **options: (tmp_path / "result.json").write_text("[]"))
    job.run_groups(SimpleNamespace(), Job(programs=[ProgramRun(size=8, memories=asked)]),  # type: ignore[arg-type]
                   directory=tmp_path, files=files)
    found = json.loads((tmp_path / "job.json").read_text())["programs"][0]["memories"]
    assert {name: found[name]["jitter"] for name in MEMORIES} == {
        name: {MEMORIES[0]: 1, MEMORIES[-1]: 3}.get(name, 0) for name in MEMORIES}
    plain = MemorySettings()
    assert plain.read_latency == plain.write_latency > 0


def test_programs_lie_in_pages_of_their_own(tmp_path: Path) -> None:
    programs = [b"a" * 5000, b"b" * rtl.PAGE_BYTES, b"c" * 8]
    settings = [{"dram0": MemorySettings(jitter=number)} for number in range(3)]
    runs = rtl._lay_out(Arch.load("tiny"), [[program] for program in programs], settings, tmp_path / "program")
    content = (tmp_path / "program").read_bytes()
    assert [content[run.address:run.address + run.size] for run in runs] == programs
    assert all(run.address % rtl.PAGE_BYTES == 0 and not run.group for run in runs)
    pages = [(run.address // rtl.PAGE_BYTES, (run.address + run.size - 1) // rtl.PAGE_BYTES) for run in runs]
    assert all(last < first for (_, last), (first, _) in zip(pages, pages[1:], strict=False))


# -- events and samples ------------------------------------------------------------------------------------------------
def test_events_become_operations_of_each_program_and_core(tmp_path: Path) -> None:
    """The port's count is a cycle behind; an operation that has not started or ended has no cycle for that."""
    begin, issued, started, finished = Kind.BEGIN, Kind.ISSUED, Kind.STARTED, Kind.FINISHED
    rows = [(0, 0, begin, 0, 0), (1, 4, issued, 2, 0), (1, 9, issued, 2, 1), (2, 0, started, 2, 0),
            (3, 5, issued, 2, 0), (5, 0, finished, 2, 0), (5, 6, issued, 1, 0), (6, 0, started, 2, 0),
            (9, 0, begin, 0, 1), (11, 0, begin, 0, 0), (12, 7, issued, 2, 0)]
    np.array(rows, _EVENT).tofile(tmp_path / "events")
    first, second = read_operations(tmp_path / "events")
    assert first["program_counter"].tolist() == [4, 5, 6] and first["issue_cycle"].tolist() == [2, 4, 6]
    never = first["finish_cycle"][2]
    assert first["start_cycle"].tolist() == [3, 7, never] and first["finish_cycle"].tolist() == [6, never, never]
    assert second["program_counter"].tolist() == [7] and second["start_cycle"].tolist() == [never]
    assert [len(table) for table in read_operations(tmp_path / "events", 1)] == [0]


def test_a_program_has_the_samples_that_came_while_it_ran(tmp_path: Path) -> None:
    np.arange(7, dtype="<u8").tofile(tmp_path / "samples")
    results: Any = [SimpleNamespace(sample_words=count) for count in (3, 3, 7)]
    found = rtl._split_samples(tmp_path / "samples", results)
    assert [part.tolist() for part in found] == [[0, 1, 2], [], [3, 4, 5, 6]]


def test_operations_are_those_of_the_core_that_ran_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rtl, "read_operations", lambda file, core: [f"{core} first", f"{core} second"])
    assert rtl._operations(tmp_path, [[b"", b""], [b"", b""]]) == [["0 first", "1 first"], ["0 second", "1 second"]]


def test_a_run_gives_the_memory_back_and_samples_to_core_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the simulator: both cores count, and the memory's first bytes change."""
    arch = Arch.load("pynq_3x8")

    def run(simulation: Any, job: Job, *, files: Any, samples: Path, **_: Any) -> list[list[JobResult]]:
        np.arange(3, dtype="<u8").tofile(samples)
        with files["dram0"].open("r+b") as file:
            file.write(b"done")
        made: dict[str, Any] = {"done": True, "error": False, "timeout": False, "tracepoint": False, "error_cause": 0,
                                "error_program_counter": 0, "program_counter": 0, "instructions": 1,
                                "simulation_cycles": 1, "wall_seconds": 0.0, "sample_words": 3, "memories": {}}
        return [[JobResult(cycles=cycles, **made) for cycles in (5, 6)]]

    monkeypatch.setattr(rtl, "run_groups", run)
    drams = Dram(arch), Dram(arch)
    drams[0].bytes[:4] = np.frombuffer(b"todo", np.uint8)
    (first, second), = rtl._run_in(
        tmp_path, arch=arch, simulation=None, groups=[[b"a", b"b"]], drams=drams,  # type: ignore[arg-type]
        memories=[MemorySettings()], job=Job(programs=()), timeout_seconds=1, trace=False, trace_operations=False,
        samples=True, bases=None)
    assert (first.cycles, second.cycles) == (5, 6) and bytes(drams[0].bytes[:4]) == b"done"
    assert first.samples is not None and first.samples.tolist() == [0, 1, 2] and second.samples is None
    assert [path.name for path in tmp_path.iterdir()] == ["samples.bin"]


# -- runs --------------------------------------------------------------------------------------------------------------
PASSED = '<testsuites><testsuite><testcase name="a"/></testsuite></testsuites>'


@pytest.mark.parametrize(("log", "results", "code", "why"), [
    ("", PASSED, 0, None), ("", PASSED, 3, "exit code 3"), ("", None, 0, "without results"),
    ("", "<testsuites/>", 0, "no test ran"), ("a\n%Error: b\n", PASSED, 0, "%Error: b"),
    ("%Fatal: c\n", PASSED, 0, "%Fatal: c"),
    ("", PASSED.replace("/>", "><failure message=\"f\"/></testcase>"), 0, "a failed: f"),
    ("", PASSED.replace("/>", "><error error_msg=\"e\"/></testcase>"), 0, "a failed: e")])
def test_why_a_run_has_not_passed(log: str, results: str | None, code: int, why: str | None, tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(log)
    if results is not None:
        (tmp_path / "results.xml").write_text(results)
    found = simulation._failure(code, simulation.RunResult(tmp_path, tmp_path / "run.log", 1, ""))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("seed", "asked"), [(0, 1), (7, 8), (simulation.MOST_SEED - 1, simulation.MOST_SEED),
                                             (simulation.MOST_SEED, 1)])
def test_a_random_start_has_a_seed_that_verilator_takes(seed: int, asked: int, monkeypatch: pytest.MonkeyPatch,
                                                        tmp_path: Path) -> None:
    """And results of an earlier run are gone; the test that is asked for is the one of its whole name."""
    commands: list[Any] = []

    def run(command: Any, directory: Path, log: Any, extra: Any, _: Any) -> int:
        commands.append((command, extra))
        assert not (tmp_path / "results.xml").exists()
        (tmp_path / "results.xml").write_text(PASSED)
        return 0

    (tmp_path / "results.xml").write_text("old")
    monkeypatch.setattr(simulation, "run_group", run)
    design: Any = SimpleNamespace(top="top", program="program", random_start=True, covered=False)
    simulation.run_simulation(design, "tests", directory=tmp_path, seed=seed, testcase="works")
    (command, extra), = commands
    assert f"+verilator+seed+{asked}" in command and extra["COCOTB_TEST_FILTER"] == r"\.works$"


# -- builds ------------------------------------------------------------------------------------------------------------
def test_a_program_is_of_all_that_it_is_built_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "tool_versions", lambda: "tools")
    (tmp_path / "a.sv").write_text("a")
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "h.svh").write_text("h")

    def digest(verilog: str = "one", public: str = "two", flags: tuple[str, ...] = ("three",)) -> str:
        return build._Design(verilog, (tmp_path / "a.sv",), (tmp_path / "include",), public, flags, True).digest()

    found = [digest(), digest("onet", "wo"), digest(public="2"), digest(flags=("3",)), digest("onetwo", "")]
    (tmp_path / "include" / "h.svh").write_text("i")
    found.append(digest())
    (tmp_path / "a.sv").write_text("b")
    found.append(digest())
    monkeypatch.setattr(toolchain, "tool_versions", lambda: "others")
    found.append(digest())
    monkeypatch.setenv("WEFT_SIMULATOR_FLAGS", "-O9")
    found.append(digest())
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(("trace", "covered", "plain"), [(False, False, True), (True, False, False),
                                                         (False, True, False)])
def test_only_plain_designs_share_the_library(trace: bool, covered: bool, plain: bool, tmp_path: Path,
                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """A design with random begins asks Verilator for them."""
    made: list[Any] = []
    monkeypatch.setattr(toolchain, "check_system_packages", lambda: None)
    monkeypatch.setattr(toolchain, "trace_format", lambda: "vcd")
    monkeypatch.setattr(toolchain, "tool_versions", lambda: "tools")
    monkeypatch.setattr(build.coverage, "folder", lambda: tmp_path if covered else None)
    monkeypatch.setattr(build, "cache_directory", lambda *names: tmp_path)
    monkeypatch.setattr(build._Design, "build", lambda design, work: made.append(design))
    build.build_simulation("text", top="top", trace=trace, random_start=trace)
    assert made[0].is_plain is plain
    assert made[0].flags[made[0].flags.index("--x-initial") + 1] == ("unique" if trace else "fast")


def test_who_waited_for_a_build_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process ends its build while this one waits for the lock."""
    flock = once.fcntl.flock

    def waited(lock: Any, how: int) -> None:
        (tmp_path / "built").mkdir(exist_ok=True)
        flock(lock, how)

    monkeypatch.setattr(once.fcntl, "flock", waited)
    with once.built_once(tmp_path / "built") as work:
        assert work is None


def test_a_folder_that_is_moved_has_no_owner(tmp_path: Path) -> None:
    with leftovers.owned(tmp_path, "work-") as folder:
        assert (folder / leftovers.OWNER).exists()
    assert folder.exists() and not list(folder.iterdir())


def test_only_folders_of_our_own_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link may lead to anybody's folder; another user's is his."""
    (tmp_path / "far").mkdir()
    (tmp_path / "work-link").symlink_to("far")
    (tmp_path / "work-own").mkdir()
    looked: list[Path] = []
    monkeypatch.setattr(leftovers, "_remove_if_dead", looked.append)
    leftovers.remove_dead(tmp_path, "work-*")
    assert looked == [tmp_path / "work-own"]
    uid = os.getuid()
    monkeypatch.setattr(leftovers.os, "getuid", lambda: uid + 1)
    leftovers.remove_dead(tmp_path, "work-*")
    assert looked == [tmp_path / "work-own"]


def test_a_library_is_of_its_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "tool_versions", lambda: "tools")
    monkeypatch.setattr(library, "cache_directory", lambda *names: tmp_path)
    monkeypatch.setattr(library, "_fill", lambda work, objects: None)
    found = []
    for flags in ("-O1", "-O2"):
        monkeypatch.setenv("WEFT_SIMULATOR_FLAGS", flags)
        found.append(library.library(tmp_path))
    assert found[0] != found[1]


def test_a_build_s_own_variables_count_and_its_last_lines_are_told(tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEFLAGS", "outside")
    log = tmp_path / "log"
    make.call(["sh", "-c", "echo flags $MAKEFLAGS"], tmp_path, log, {"MAKEFLAGS": "inside"})
    assert log.read_text().splitlines()[-1] == "flags inside"
    with pytest.raises(make.BuildError, match="exit code 3:\n") as told:
        make.call(["sh", "-c", "seq 100; exit 3"], tmp_path, log, {})
    assert str(told.value).splitlines()[1:] == [str(number) for number in range(41, 101)]


# -- tools -------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("lacks", ["g++", "make"])
def test_a_tool_of_the_system_that_lacks_is_named(lacks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.shutil, "which", lambda tool: None if tool == lacks else tool)
    monkeypatch.setattr(toolchain.find_libpython, "find_libpython", lambda: "there")
    assert toolchain._missing_packages() == [lacks]


def test_a_yosys_that_is_named_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YOSYS", "/own/yosys")
    toolchain.setup()
    assert os.environ["YOSYS"] == "/own/yosys"


def test_a_built_program_is_of_these_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.importlib.metadata, "version", lambda name: f"{name}-version")
    monkeypatch.setattr(toolchain.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="12.2.0\nx86_64\n"))
    monkeypatch.setattr(toolchain, "processor", lambda: "with-wings")
    found = toolchain.tool_versions.__wrapped__()
    assert all(each in found for each in ("verilator-version", "cocotb-version", "12.2.0", "x86_64", "with-wings"))


def test_long_runs_use_all_instructions_of_the_processor_that_the_compiler_knows(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Those are told apart, since a program for one processor may not run on another."""
    answers = {"one": (0, b"-mone"), "other": (0, b"-mother"), "unknown": (1, b"")}
    found = {}
    for name, (code, text) in answers.items():
        done = SimpleNamespace(returncode=code, stdout=text)
        monkeypatch.setattr(toolchain.subprocess, "run", lambda *_, done=done, **__: done)
        found[name] = toolchain.processor.__wrapped__()
    assert len({*found.values()}) == 3 and not found["unknown"]
    monkeypatch.delenv("WEFT_SIMULATOR_FLAGS", raising=False)
    for processor, flags in (("one", f"{RUN_FAST} {OWN_PROCESSOR}"), ("", RUN_FAST)):
        monkeypatch.setattr(toolchain, "processor", lambda processor=processor: processor)
        assert make.optimise() == flags
    monkeypatch.setenv("WEFT_SIMULATOR_FLAGS", "")
    assert make.optimise() == ""
