# SPDX-License-Identifier: Apache-2.0
"""Measure which lines, branches and bits of the Verilog the simulated tests reach; write the table of docs/coverage.md.

    python scripts/verilog_coverage.py [--summary] [--single]

It runs random programs and tests of ``tb/system`` on MACHINES, built with Verilator's counters. ``--summary`` sums up
what build/coverage/verilog/ holds already; ``--single`` leaves the machine of several cores out of the sum. Points that
nothing reached are in build/coverage/verilog/unmet.txt. A unit that falls below docs/data/verilog_coverage.json is
refused, and the file stays as it is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated

import typer
from amaranth.back import rtlil
from coverage_table import Rooms, check, share
from tables import number, table

from weft.hw.contract.arch import Arch
from weft.hw.flow.verilog import TOP_NAME
from weft.hw.system import with_ports
from weft.simulate import coverage, toolchain
from weft.simulate.make import BUILD_FAST
from weft.simulate.rtl import build_rtl
from weft.support.errors import WeftError, explain, run_script
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.random.signals_rule import SYSTEMS

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "docs" / "data" / "verilog_coverage.json"
WAIVERS = ROOT / "docs" / "data" / "verilog_waivers.toml"
FOLDER = ROOT / "build" / "coverage" / "verilog"
COMMAND = "make coverage-verilog"
UNMET = f"{COMMAND} leaves build/coverage/verilog/unmet.txt"
BARS = {"lines": 98, "branches": 98, "toggles": 90}
"""The percent that is to be reached in all units together."""
WHAT = {what: (f"{what}_there", f"{what}_met") for what in BARS}
"""The things that are counted -> the names for how many there are and how many were met."""
KINDS = {"line": "lines", "branch": "branches", "toggle": "toggles"}
"""Verilator's kind of a point -> what it counts for."""
MACHINES = ("lanes2", "lanes3_every_step", "lanes4_lut", "lanes4_slices", "lanes4_int8")
"""Machines of lockstep_archs.py that together have every option of one core and are small."""
CORES = "three on two ports"
"""The machine of several cores in signals_rule.py."""
PROGRAMS = 60
"""Random programs of each machine."""
TESTS = tuple(f"tb/system/test_{name}.py" for name in (
    "errors", "error_matrix", "signals", "estimator_directed", "registers_and_samples", "saturation"))


# -- measuring ---------------------------------------------------------------------------------------------------------
def machines() -> dict[str, Arch]:
    """Return name -> machine that is measured."""
    return {**{name: lockstep_archs()[name] for name in MACHINES}, CORES: SYSTEMS[CORES]}


def run() -> None:
    """Run the programs and tests, with their counts into FOLDER. Raise CalledProcessError if one fails."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    archs = [word for name in MACHINES for word in ("--arch", name)]
    for command in (["scripts/random_programs.py", *archs, "--count", str(PROGRAMS)],
                    ["-m", "pytest", "-q", "--numprocesses", "auto", "-m", "not long", *TESTS]):
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True)


# -- points ------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Point:
    """A place of a design that a test can reach.

    ``what`` of WHAT; ``unit``: its folder in hw/; ``text``: the line of Verilog and the way that it takes, or the bit
    and how it turns."""

    what: str
    unit: str
    module: str
    text: str
    met: bool

    def __str__(self) -> str:
        """Return the point in words, by which waivers know it."""
        return f"{self.what} {self.module}: {self.text}"


@dataclass
class Waiver:
    """A rule by which points do not count: regular expressions for all of their module and text, and why."""

    what: str
    module: str
    text: str
    reason: str
    waived: int = 0

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The rule as one expression, for a point in words."""
        return re.compile(f"{self.what} (?:{self.module}): (?:{self.text})", re.DOTALL)


_MODULE = re.compile(r'^attribute \\src "([^"]*):\d+"\nmodule \\(\S+)$', re.MULTILINE)
_ESCAPE = re.compile(r"__0([0-9A-F]{2})", re.IGNORECASE)
_NO_SIGNAL = re.compile(r"[$.]")
_YOSYS = "$auto$verilog_backend"
_EMPTY = "/* empty */"


def units(arch: Arch) -> dict[str, str]:
    """Return module -> the folder of hw/ that it is written in; Amaranth's own count for the module around them."""
    module, ports = with_ports(arch, trace=True)
    found = {TOP_NAME: "hw"}
    for file, name in _MODULE.findall(rtlil.convert(module, name=TOP_NAME, ports=ports)):
        _, inside, path = file.rpartition("/hw/")
        found[name] = f"hw/{path}".rpartition("/")[0] if inside else found[name.rpartition(".")[0]]
    return found


def points(counts: coverage.Counts, verilog: list[str], of_module: Mapping[str, str]) -> Iterator[Point]:
    """Yield the points of a machine: those of weft_top in its Verilog.

    What yosys adds is left out: a condition that is never true in each block, arms of a case that do nothing, and
    signals for expressions, connections and fields of a signal, whose names have a $ or a dot."""
    for point, count in counts.items():
        fields = coverage.fields(point)
        kind, _, module = fields["page"].removeprefix("v_").partition("/")
        if module not in of_module:
            continue
        line, text = int(fields["l"]), decoded(fields["o"])
        if kind == "toggle":
            if _NO_SIGNAL.search(text):
                continue
        elif _YOSYS in verilog[line - 1] or text == "case" and _EMPTY in verilog[line]:
            continue
        else:
            text = f"{verilog[line - 1].strip()} ({text})"
        yield Point(KINDS[kind], of_module[module], module, text, count > 0)


def decoded(name: str) -> str:
    """Return a name as it stands in the Verilog."""
    return _ESCAPE.sub(lambda code: chr(int(code[1], 16)), name)


# -- summing up --------------------------------------------------------------------------------------------------------
def waivers() -> list[Waiver]:
    """Return the rules of WAIVERS."""
    return [Waiver(**each) for each in tomllib.loads(WAIVERS.read_text())["waiver"]]


def summed(found: Iterator[Point], rules: list[Waiver], unmet: list[Point], total: Rooms) -> None:
    """Add points to ``total``, unit -> counts, and those that count and were not met to ``unmet``.

    A waiver holds for points that were not met, and counts them."""
    for point in found:
        rule = None if point.met else next((each for each in rules if each.pattern.fullmatch(str(point))), None)
        counts = total.setdefault(point.unit, dict.fromkeys([name for pair in WHAT.values() for name in pair], 0))
        if rule:
            rule.waived += 1
            continue
        there, met = WHAT[point.what]
        counts[there] += 1
        counts[met] += point.met
        if not point.met:
            unmet.append(point)


def summary(measured: Mapping[str, Arch]) -> tuple[Rooms, list[Waiver]]:
    """Return unit -> counts over all machines, and the waivers with what they waived; write unmet.txt.

    Raise WeftError if a machine was not run."""
    total: Rooms = {}
    rules, lines = waivers(), []
    toolchain.setup()
    for name, arch in measured.items():
        directory = build_rtl(arch).program.parent
        counts = FOLDER / f"{directory.name}.dat"
        if not counts.exists():
            raise WeftError(explain("coverage", f"no counts of {name}", "a run of every machine", COMMAND))
        unmet: list[Point] = []
        verilog = (directory / "design.v").read_text().splitlines()
        summed(points(coverage.read(counts), verilog, units(arch)), rules, unmet, total)
        lines += [f"{name} {point}" for point in unmet]
    (FOLDER / "unmet.txt").write_text("\n".join([*lines, ""]))
    return dict(sorted(total.items())), rules


def all_of(found: Rooms) -> dict[str, int]:
    """Return the counts of all units together."""
    return {name: sum(counts[name] for counts in found.values()) for pair in WHAT.values() for name in pair}


# -- tables ------------------------------------------------------------------------------------------------------------
def measured() -> str:
    """Return the table of units, under what was run."""
    data = json.loads(DATA.read_text())
    rows = []
    for unit, counts in [*((f"`{unit}`", counts) for unit, counts in data["units"].items()),
                         ("all", all_of(data["units"]))]:
        rows.append((unit, *(text for what, (there, _) in WHAT.items()
                             for text in (number(counts[there]), f"{share(counts, what, WHAT)} %"))))
    rows.append(("bar", *(text for bar in BARS.values() for text in ("", f"{bar} %"))))
    head = f"`{data['command']}` at commit `{data['commit']}`, machines {', '.join(data['machines'])}."
    return head + "\n\n" + table(("unit", *(text for what in WHAT for text in (what, "met"))), rows)


def waived() -> str:
    """Return the table of waivers."""
    return table(("what", "points", "why they do not count"),
                 [(each["what"], number(each["points"]), each["reason"])
                  for each in json.loads(DATA.read_text())["waivers"]])


TABLES: dict[str, Callable[[], str]] = {"verilog_coverage": measured, "verilog_waivers": waived}


def main(
    only: Annotated[bool, typer.Option("--summary", help="sum up what was counted before")] = False,
    single: Annotated[bool, typer.Option("--single", help="without the machine of several cores")] = False,
) -> None:
    """Measure; write docs/data/verilog_coverage.json if no unit fell. Other machines than those before start anew."""
    os.environ |= {coverage.VARIABLE: str(FOLDER), "WEFT_SIMULATOR_FLAGS": BUILD_FAST}
    if not only:
        run()
    chosen = {name: arch for name, arch in machines().items() if not (single and name == CORES)}
    found, rules = summary(chosen)
    for unit, counts in [*found.items(), ("all", all_of(found))]:
        print(f"{unit:12} " + ", ".join(f"{what} {share(counts, what, WHAT):5} %" for what in WHAT))
    if unused := [rule for rule in rules if not rule.waived]:
        raise WeftError(explain("a waiver", f"{unused[0].pattern.pattern}, which waives nothing",
                                "a waiver of points that nothing meets", f"take it out of {WAIVERS.name}"))
    before = json.loads(DATA.read_text()) if DATA.exists() else {}
    check(found, before["units"] if before.get("machines") == list(chosen) else {}, WHAT, UNMET)
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT, text=True, capture_output=True,
                            check=True).stdout.strip()
    reasons = [{"what": rule.what, "points": rule.waived, "reason": rule.reason} for rule in rules]
    DATA.write_text(json.dumps({"command": COMMAND, "commit": commit, "machines": list(chosen), "units": found,
                                "waivers": reasons}, indent=1) + "\n")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
