# SPDX-License-Identifier: Apache-2.0
"""Build a simulation from Verilog, a program of Verilator's that cocotb drives; cached by content."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.config

from weft.simulate import coverage, toolchain
from weft.simulate.library import library, with_library
from weft.simulate.make import call, make, optimise
from weft.simulate.once import built_once
from weft.simulate.simulation import Simulation
from weft.support.cache import cache_directory

SV = Path(__file__).parent / "sv"
MAIN = SV / "main.cpp"
DRAM_SOURCES = [SV / "axi_dram.sv", SV / "dram.cpp"]
PACED_SOURCES = [SV / "axi_paced.sv", SV / "dram.cpp"]
TRACE_SOURCES = [SV / "trace.cpp"]


def build_simulation(verilog_text: str, *, top: str, sources: Sequence[Path] = (), includes: Sequence[Path] = (),
                     public_vlt: str = "", parameters: Mapping[str, int] | None = None,
                     trace: bool = False, random_start: bool = False) -> Simulation:
    """Return the simulation of module ``top``.

    It is made from ``verilog_text`` (may be empty) and the .v, .sv and .cpp ``sources``. ``public_vlt``: the body of a
    Verilator control file that names the signals cocotb may touch; all others are private, for speed. The
    main loop drives the input ``clk`` of ``top``. ``trace`` builds one in; a run asks for it.
    ``random_start``: what has no initial value begins random. Counters of coverage are built in as ``coverage.py``
    says. Equal content gives the same program without building."""
    toolchain.check_system_packages()
    covered = coverage.folder() is not None
    design = _Design(verilog_text, tuple(Path(path).resolve() for path in sources),
                     tuple(Path(path).resolve() for path in includes), public_vlt,
                     tuple(_verilator_flags(top, parameters or {}, trace, covered, random_start)),
                     is_plain=not trace and not covered)
    directory = cache_directory("simulation") / f"{top}-{design.digest()}"
    with built_once(directory) as work:
        if work is not None:
            design.build(work)
    return Simulation(directory / "simulation", top, trace, random_start, covered)


def _verilator_flags(top: str, parameters: Mapping[str, int], trace: bool,
                     covered: bool, random_start: bool) -> list[str]:
    """Return the command line options of Verilator."""
    libs = cocotb_tools.config.libs_dir
    flags = ["--cc", "--exe", "--vpi", "--no-timing", "--prefix", "Vtop", "--top-module", top, "-o", "simulation"]
    flags += ["-Wno-fatal", "-Wno-lint", "-Wno-style", "--timescale-override", "1ns/1ps", "-O3", "--x-assign", "fast"]
    flags += ["--x-initial", "unique" if random_start else "fast"]
    flags += ["--output-split", "8000", "--output-split-cfuncs", "20000"]
    flags += ["-LDFLAGS", f"-Wl,-rpath,{libs} -L{libs} -lcocotbvpi_verilator"]
    flags += ["-CFLAGS", "-DWEFT_CLOCK=clk", "-CFLAGS", "-DWEFT_HALF_PERIOD=5000"]
    if trace:
        flags += ["--trace-fst" if toolchain.trace_format() == "fst" else "--trace-vcd"]
    if covered:
        flags += coverage.FLAGS
    return flags + [f"-G{name}={value}" for name, value in parameters.items()]


@dataclass(frozen=True)
class _Design:
    """All that decides a simulation, beside the tools. ``is_plain``: it can use the library that designs share."""

    verilog: str
    sources: tuple[Path, ...]
    includes: tuple[Path, ...]
    public_vlt: str
    flags: tuple[str, ...]
    is_plain: bool

    def digest(self) -> str:
        """Return a digest that is equal for designs that give the same program."""
        headers = [path for folder in self.includes for path in sorted(folder.iterdir()) if path.is_file()]
        texts = [self.verilog, self.public_vlt, optimise(), *self.flags, toolchain.tool_versions(),
                 *map(str, self.includes), *(path.read_text() for path in (*self.sources, MAIN, *headers))]
        return hashlib.sha256(b"".join(hashlib.sha256(text.encode()).digest() for text in texts)).hexdigest()[:20]

    def build(self, work: Path) -> None:
        """Fill the folder ``work`` with the program ``simulation`` and build.log."""
        (work / "public.vlt").write_text("`verilator_config\n" + self.public_vlt)
        (work / "design.v").write_text(self.verilog)
        objects, log = work / "objects", work / "build.log"
        files = ["public.vlt", *(["design.v"] if self.verilog else []), *map(str, self.sources), str(MAIN)]
        command = [*toolchain.verilator(), *self.flags, "-Mdir", objects.name,
                   *(f"-I{path}" for path in self.includes), *files]
        call(command, work, log, {"VERILATOR_ROOT": str(toolchain.verilator_root())})
        variables = toolchain.make_variables(optimise())
        if self.is_plain:
            variables |= with_library(library(objects))
        make(objects, "simulation", variables, log)
        (objects / "simulation").rename(work / "simulation")
        shutil.rmtree(objects)
