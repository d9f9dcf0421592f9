"""Builds and runs Verilator simulations driven by cocotb.

``build_simulation`` turns Verilog into a program, cached by content; ``run_simulation`` runs a cocotb test module
on it and raises ``SimulationError`` with the log's tail, the seed and the command to repeat, unless all tests passed.
"""

import contextlib
import fcntl
import hashlib
import os
import random
import shlex
import shutil
import subprocess
import sys
import xml.etree.ElementTree
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.config

from weft.hw.contract.cache import cache_directory
from weft.simulate import toolchain
from weft.simulate.leftovers import discard, owned, remove_dead, run_group

__all__ = [
    "DRAM_SOURCES",
    "TRACE_SOURCES",
    "BuildError",
    "RunResult",
    "Simulation",
    "SimulationError",
    "build_simulation",
    "run_simulation",
]

SV = Path(__file__).parent / "sv"
DRAM_SOURCES = [SV / "axi_dram.sv", SV / "dram.cpp"]
TRACE_SOURCES = [SV / "trace.cpp"]

RUN_FAST = "-O2 -fno-tree-pre"
"""What partial redundancies cost to find and to keep in registers, in functions as large as Verilator's, is more than
they are: without, simulations are a fiftieth faster."""
BUILD_FAST = "-O1 --param sccvn-max-alias-queries-per-access=8"
"""For short runs, such as those of tests: g++ takes half as long, and the program runs an eighth slower. The parameter
bounds the search for equal loads (1000 by default), which in functions as large as Verilator's is a third of -O1."""
LIBRARY_FAST = "-O0"
"""Of Verilator's own library beside BUILD_FAST: to optimise it takes 12 s, more than short runs win by it."""
RUNTIME_HEADERS = ("verilated", "verilated_dpi", "verilated_vpi")
HEADERS = "runtime.h"
"""Includes all of them."""
RUNTIME_RULES = f"""
libverilated.a: $(VK_GLOBAL_OBJS)
\t$(AR) rcs $@ $^
weft_runtime: libverilated.a {HEADERS}.fast.gch {HEADERS}.slow.gch
"""
LOG_TAIL_LINES = 60
WORK = ".work-"
"""In the name of a folder that is being filled."""


def optimise() -> str:
    """Flags of g++: RUN_FAST, unless the environment variable WEFT_SIMULATOR_FLAGS says others."""
    return os.environ.get("WEFT_SIMULATOR_FLAGS", RUN_FAST)


class BuildError(Exception):
    """Verilator or the C++ compiler refused the design; the message holds the tail of what they said."""


class SimulationError(Exception):
    """A test failed, the simulator stopped early, or the watchdog fired. `result` says where everything is."""

    def __init__(self, reason: str, result: "RunResult") -> None:
        lines = result.log_file.read_text(errors="replace").splitlines()
        self.reason, self.result, self.log_tail = reason, result, "\n".join(lines[-LOG_TAIL_LINES:])
        super().__init__(
            f"{reason}\n{self.log_tail}\nseed {result.seed}, log {result.log_file}\nrepeat with: {result.command}"
        )


@dataclass(frozen=True)
class Simulation:
    """A built simulation: a program, and the top module it simulates."""

    program: Path
    top: str
    traceable: bool


@dataclass(frozen=True)
class RunResult:
    """One run: where it ran, what it printed, and how to have it again."""

    directory: Path
    log_file: Path
    seed: int
    command: str


def build_simulation(
    verilog_text: str,
    *,
    top: str,
    sources: Sequence[Path] = (),
    includes: Sequence[Path] = (),
    public_vlt: str = "",
    clock: str | None = "clk",
    parameters: Mapping[str, int] | None = None,
    trace: bool = False,
    coverage: bool = False,
) -> Simulation:
    """The simulation of module `top`, made from `verilog_text` (may be empty) and the .v, .sv and .cpp `sources`.

    `public_vlt`: the body of a Verilator control file that names the signals cocotb may touch; all else is private,
    for speed. `clock`: the input of `top` which the main loop drives, None to leave all clocks to cocotb. `trace`
    and `coverage` build these in; a run asks for its trace. Equal content gives the same program without building.
    """
    toolchain.check_system_packages()
    sources, includes = [Path(path).resolve() for path in sources], [Path(path).resolve() for path in includes]
    flags = _verilator_flags(top, clock, parameters or {}, trace, coverage)
    digest = hashlib.sha256()
    texts = [verilog_text, public_vlt, optimise(), *flags, toolchain.tool_versions(), *map(str, includes)]
    headers = [path for folder in includes for path in sorted(Path(folder).iterdir()) if path.is_file()]
    texts += [Path(path).read_text() for path in (*sources, SV / "main.cpp", *headers)]
    for text in texts:
        digest.update(hashlib.sha256(text.encode()).digest())
    directory = cache_directory() / "simulation" / f"{top}-{digest.hexdigest()[:20]}"
    with _built_once(directory) as work:
        if work is not None:
            _build(work, flags, verilog_text, public_vlt, sources, includes, trace, coverage)
    return Simulation(directory / "simulation", top, trace)


def _verilator_flags(
    top: str, clock: str | None, parameters: Mapping[str, int], trace: bool, coverage: bool
) -> list[str]:
    libs = cocotb_tools.config.libs_dir
    flags = ["--cc", "--exe", "--vpi", "--no-timing", "--prefix", "Vtop", "--top-module", top, "-o", "simulation"]
    flags += ["-Wno-fatal", "-Wno-lint", "-Wno-style", "--timescale-override", "1ns/1ps", "-O3", "--x-assign", "fast"]
    flags += ["--x-initial", "fast", "--output-split", "8000", "--output-split-cfuncs", "20000"]
    flags += ["-LDFLAGS", f"-Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator"]
    if clock:
        flags += ["-CFLAGS", f"-DWEFT_CLOCK={clock}", "-CFLAGS", "-DWEFT_HALF_PERIOD=5000"]
    if trace:
        flags += ["--trace-fst" if toolchain.trace_format() == "fst" else "--trace-vcd"]
    if coverage:
        flags += ["--coverage"]
    return flags + [f"-G{name}={value}" for name, value in parameters.items()]


def _build(
    work: Path,
    flags: Sequence[str],
    verilog_text: str,
    public_vlt: str,
    sources: Sequence[Path],
    includes: Sequence[Path],
    trace: bool,
    coverage: bool,
) -> None:
    """Fills the directory `work` with the program `simulation` and build.log."""
    (work / "public.vlt").write_text("`verilator_config\n" + public_vlt)
    (work / "design.v").write_text(verilog_text)
    objects = work / "objects"
    log = work / "build.log"
    files = ["public.vlt", *(["design.v"] if verilog_text else []), *map(str, sources), str(SV / "main.cpp")]
    command = [*toolchain.verilator(), *flags, "-Mdir", "objects", *(f"-I{path}" for path in includes), *files]
    _call(command, work, log, {"VERILATOR_ROOT": str(toolchain.verilator_root())})
    variables = toolchain.make_variables(optimise())
    if not trace and not coverage:
        variables |= _with_runtime(_runtime(objects))
    _make(objects, "simulation", variables, log)
    (objects / "simulation").rename(work / "simulation")
    shutil.rmtree(objects)


def _runtime(objects: Path) -> Path:
    """A folder with Verilator's own C++ library and its headers precompiled, for optimised code and for the rest: the
    same for every design, half of what g++ takes for a small one, built once.

    Traced and covered designs need other variants of both and compile their own.
    """
    name = hashlib.sha256(f"{toolchain.tool_versions()}, {optimise()}".encode()).hexdigest()[:12]
    directory = cache_directory() / "verilated" / name
    with _built_once(directory) as work:
        if work is not None:
            (objects / HEADERS).write_text("".join(f'#include "{name}.h"\n' for name in RUNTIME_HEADERS))
            (objects / "runtime.mk").write_text((objects / "Vtop.mk").read_text() + RUNTIME_RULES)
            variables = toolchain.make_variables(optimise())
            if optimise() == BUILD_FAST:
                variables["OPT_GLOBAL"] = LIBRARY_FAST
            _make(objects, "weft_runtime", variables, work / "build.log", "runtime.mk")
            for made in ("libverilated.a", f"{HEADERS}.fast.gch", f"{HEADERS}.slow.gch"):
                (objects / made).rename(work / made)
    return directory


def _with_runtime(folder: Path) -> dict[str, str]:
    """Variables of make for a design that takes library and headers from there instead of compiling its own."""
    fast, slow = (f"-include {folder / HEADERS}.{speed} -Winvalid-pch" for speed in ("fast", "slow"))
    return {"VM_GLOBAL_FAST": "", "VM_GLOBAL_SLOW": "", "USER_LDLIBS": str(folder / "libverilated.a"),
            "CFG_CXXFLAGS_PCH_I": "", "VK_PCH_H": str(folder / HEADERS), "VK_PCH_I_FAST": "", "VK_PCH_I_SLOW": "",
            "OPT_FAST": f"{optimise()} {fast}", "OPT_SLOW": slow}


def _make(directory: Path, target: str, variables: Mapping[str, str], log: Path, makefile: str = "Vtop.mk") -> None:
    jobs = len(os.sched_getaffinity(0))
    assignments = [f"{name}={value}" for name, value in variables.items()]
    _call(["make", f"-j{jobs}", "-f", makefile, *assignments, target], directory, log, {"MAKEFLAGS": ""})


def _call(command: Sequence[str], directory: Path, log: Path, environment: Mapping[str, str]) -> None:
    with log.open("a") as output:
        output.write(shlex.join(command) + "\n")
        output.flush()
        code = run_group(command, directory, output, {**os.environ, **environment})
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(f"building a simulation failed with exit code {code}:\n{tail}")


@contextlib.contextmanager
def _built_once(directory: Path) -> Iterator[Path | None]:
    """Yields a fresh directory to fill, which then becomes `directory`, or None when that is there already.

    Only one process at a time fills it; the others wait and find it. What fails leaves nothing behind.
    """
    if directory.exists():
        yield None
        return
    directory.parent.mkdir(parents=True, exist_ok=True)
    with open(directory.with_name(directory.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if directory.exists():
            yield None
            return
        remove_dead(directory.parent, f"*{WORK}*")  # of other designs
        with owned(directory.parent, f"{directory.name}{WORK}") as work:
            try:
                yield work
            except BaseException:
                discard(work)
                raise
        work.rename(directory)


def run_simulation(
    simulation: Simulation,
    test_module: str,
    *,
    directory: Path,
    environment: Mapping[str, str] | None = None,
    plusargs: Sequence[str] = (),
    python_path: Sequence[Path] = (),
    testcase: str | None = None,
    seed: int | None = None,
    timeout_seconds: float = 600,
    trace: bool = False,
) -> RunResult:
    """Runs the cocotb tests of `test_module` (all, or `testcase`) in `directory`; returns when all have passed.

    The test finds `environment` in os.environ, modules in `python_path` besides the running interpreter's, and
    `seed` (chosen when None) in cocotb.RANDOM_SEED. `directory` gets run.log, results.xml, repeat.sh and the trace.
    """
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    seed = random.getrandbits(31) if seed is None else seed
    extra = {
        **toolchain.simulation_environment(),
        **(environment or {}),
        "COCOTB_TOPLEVEL": simulation.top,
        "COCOTB_TEST_MODULES": test_module,
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_RESULTS_FILE": str(directory / "results.xml"),
        "PYTHONPATH": os.pathsep.join([*map(str, python_path), *filter(None, sys.path)]),
    }
    if testcase:
        extra["COCOTB_TEST_FILTER"] = rf"\.{testcase}$"
    command = [str(simulation.program), *plusargs, *(["+weft_trace"] if trace else [])]
    script = directory / "repeat.sh"
    exports = [f"export {name}={shlex.quote(text)}" for name, text in extra.items() if os.environ.get(name) != text]
    script.write_text("\n".join([f"cd {shlex.quote(str(directory))}", *exports, f"exec {shlex.join(command)}", ""]))
    result = RunResult(directory, directory / "run.log", seed, f"sh {script}")
    (directory / "results.xml").unlink(missing_ok=True)
    with result.log_file.open("w") as log:
        try:
            code = run_group(command, directory, log, extra, timeout_seconds)
        except subprocess.TimeoutExpired:
            raise SimulationError(f"no end after {timeout_seconds} s: stopped by the watchdog", result) from None
    if reason := _failure(code, result):
        raise SimulationError(reason, result)
    return result


def _failure(exit_code: int, result: RunResult) -> str | None:
    """Why the run does not count as passed: the simulator's own message first, then the first failed test."""
    for line in result.log_file.read_text(errors="replace").splitlines():
        if "%Fatal" in line or "%Error" in line:
            return line
    if not (results := result.directory / "results.xml").exists():
        return f"the simulator ended with exit code {exit_code} and without results"
    cases = list(xml.etree.ElementTree.parse(results).iter("testcase"))
    for case in cases:
        for failure in (*case.iter("failure"), *case.iter("error")):
            return f"{case.get('name')} failed: {failure.get('message') or failure.get('error_msg') or ''}"
    if not cases:
        return "no test ran"
    return f"the simulator ended with exit code {exit_code}" if exit_code else None
