# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/ that say what was measured, from docs/data/.

``take_over`` brings what the benchmarks left in build/bench/ there."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import board_pages
from tables import number, table

from weft.boards import clock_hz
from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "data"
DATA = FOLDER / "bench.json"
SHARED = FOLDER / "networks.json"
LAUNCH = FOLDER / "launch.json"
FRONT = FOLDER / "front.json"
WALK = FOLDER / "walkthrough.json"
TWINS = FOLDER / "twins.json"
ZOO = FOLDER / "zoo.json"
BENCH = ROOT / "build" / "bench"
BASELINE = ROOT / "hw" / "flow" / "baseline"

PARTS = {"networks": ("results.json", "make bench", ("network", "arch")),
         "scaling": ("scaling.json", "make bench-scaling", ("axis", "value")),
         "units": ("units.json", "make bench-units", ("machine", "case"))}
"""Part of the data -> its file in build/bench/, the command that writes it, and the keys that name a row."""


@cache
def data() -> dict[str, Any]:
    """Return the committed measurements."""
    return json.loads(DATA.read_text())


def origin(part: str) -> str:
    """Return the line above a table: command, commit, and further remarks."""
    found = data()[part]
    return f"`{found['command']}` at commit `{found['commit']}`. {found['note']}".rstrip() + "\n\n"


def networks() -> str:
    """Return the table of networks.

    Cycles and equality are those of the benchmark. The array's work, which no value changes, is as the zoo counts
    it. Times are at the clock that the board's build asks for today."""
    work = {(row["network"], row["arch"]): row for row in json.loads(ZOO.read_text())["rows"]}
    rows = []
    for row in data()["networks"]["rows"]:
        cycles, hz = row["cycles_rtl"] or row["cycles_estimated"], clock_hz(row["arch"])
        does = work[row["network"], row["arch"]]
        used = does["done_macs"] / (Arch.load(row["arch"]).array_size ** 2 * cycles)
        rows.append((row["network"], f"`{row['arch']}`", number(row["cycles_rtl"]), number(row["cycles_estimated"]),
                     f"{used:.1%}", f"{1 - does['done_macs'] / does['macs']:.1%}", f"{1e3 * cycles / hz:.2f}",
                     f"{hz / cycles:.1f}", {True: "yes", False: "**no**", None: ""}[row["bit_exact"]]))
    return origin("networks") + table(("network", "machine", "cycles in RTL", "estimated", "of the array", "left out",
                                       "ms", "frames/s", "RTL equals golden"), rows)


def shared_networks() -> str:
    """Return the table of the shared networks."""
    found = json.loads(SHARED.read_text())
    rows = [(row["network"] + " *" * row["earlier"], f"{100 * row['share']:.1f} %",
             ", ".join(f"{count} {name}" for name, count in row["host"].items()), row["decibels"], row["answer"],
             row["seconds"], number(row["cycles"])) for row in found["rows"]]
    stars = "; rows with a star at an earlier one" if any(row["earlier"] for row in found["rows"]) else ""
    return f"On `{found['arch']}` at commit `{found['commit']}`{stars}.\n\n" + table(
        ("network", "on the machine", "on the host", "dB", "answers", "compile s", "cycles"), rows)


def twins() -> str:
    """Return the table of networks in bytes against onnxruntime's."""
    rows = [(row["network"], number(row["bytes"]), number(row["off"]), f"{100 - 100 * row['off'] / row['bytes']:.3f} %",
             row["most"], "" if row["equal"] is None else f"{row['equal']} of {row['images']}",
             "equal" if row["decibels"] is None else f"{row['decibels']:.1f}") for row in json.loads(TWINS.read_text())]
    return table(("network", "bytes of layers", "off", "equal", "off by at most", "top-1 equal", "dB"), rows)


def scaling() -> str:
    """Return the table of utilisation against the machine."""
    rows: dict[str, list[tuple[int, str]]] = {}
    for row in data()["scaling"]["rows"]:
        share = "does not fit" if row["utilization"] is None else f"{100 * row['utilization']:.0f} %"
        rows.setdefault(row["axis"], []).append((row["value"], share))
    lines = "".join(table((f"`{axis}`", *(value for value, _ in found)),
                          [("of the array", *(share for _, share in found))]) + "\n" for axis, found in rows.items())
    return origin("scaling") + lines.rstrip("\n") + "\n"


def unit_cycles() -> str:
    """Return the table of the units' cycles."""
    if "units" not in data():
        return "No numbers are committed. `make bench-units` measures them, `make docs MEASURED=1` brings them here.\n"
    rows = [(row["machine"], row["case"], number(row["cycles"]), number(row["best"] or None),
             f"{row['best'] / row['cycles']:.1%}" if row["best"] else "",
             "" if row["bar"] is None else number(round(row["bar"]))) for row in data()["units"]["rows"]]
    return origin("units") + table(("machine", "case", "cycles", "least possible", "of it", "most allowed"), rows)


def launch_times() -> str:
    """Return the table of what scripts/launch_timeline.py measured."""
    found = json.loads(LAUNCH.read_text())
    phases = ("pack", "write", "read", "unpack", "driver", "run")
    return table(("device", "pack", "write", "read", "unpack", "driver in all", "the machine's run"),
                 [(f"`{device}`", *(f"{times[phase]:.2f}" for phase in phases)) for device, times in found.items()])


def walkthrough() -> str:
    """Return the table of the walkthrough's commands."""
    if not WALK.exists():
        return "No walk is committed. `scripts/walkthrough.py` walks.\n"
    found = json.loads(WALK.read_text())
    rows = [(row["part"], f"`{row['command']}`".replace("|", "\\|"), row["seconds"], row["cpu_seconds"],
             row["exit_code"]) for row in found["rows"]]
    return f"Commit `{found['commit'][:12]}`, {found['date']}.\n\n" + table(
        ("from", "command", "seconds", "CPU seconds", "exit code"), rows)


def bitstreams() -> str:
    """Return the table of bitstreams."""
    if not board_pages.reports():
        return ("No numbers are committed. `make bitstream BOARD=` makes a bitstream, `make docs MEASURED=1` brings "
                "its numbers here.\n")
    return table(board_pages.HEAD, board_pages.summary())


def counts() -> str:
    """Return the table of what yosys counts of presets with a baseline; block RAMs in blocks of 36 Kbit."""
    rows = []
    for file in sorted(BASELINE.glob("synth_*.json")):
        for family, found in json.loads(file.read_text()).items():
            total = found["total"]
            rows.append((f"`{file.stem.removeprefix('synth_')}`", family, number(total["lut"]), number(total["ff"]),
                         total["dsp"], total["bram36"] + total["bram18"] // 2))
    return table(("machine", "family", "LUT", "flip-flops", "DSP", "block RAM"), rows)


def front() -> str:
    """Return the table of a search's predictions against what was found."""
    if not FRONT.is_file():
        return "No numbers are committed. `scripts/check_front.py --write` measures them, `make docs` has them here.\n"

    def cell(predicted: int, seen: int) -> str:
        return f"{number(seen)} ({100 * (predicted - seen) / max(1, seen):+.1f} %)"

    found = json.loads(FRONT.read_text())
    rows = [(", ".join(f"{key} {value}" for key, value in row["searched"].items()),
             *(cell(*pair) for pair in row["pairs"].values())) for row in found["rows"]]
    return (f"{found['model']} on {found['part']}, of {found['front']} machines on the front, at commit "
            f"`{found['commit']}`; in brackets how far the prediction is off.\n\n"
            + table(("machine", *found["rows"][0]["pairs"]), rows))


def take_over() -> None:
    """Take build/bench/ over into the committed data, each part with the commit that is checked out."""
    if git("status", "--porcelain", "--", ".", ":!docs"):
        raise WeftError(explain("what was measured", "changes that are in no commit", "a committed state",
                                "commit, run the benchmark, then this again"))
    new = json.loads(DATA.read_text())
    taken = [part for part in PARTS if (BENCH / PARTS[part][0]).is_file()]
    if not taken:
        raise WeftError(explain("build/bench", "no results", ", ".join(name for name, _, _ in PARTS.values()),
                                "run make bench first"))
    for part in taken:
        new[part] = checked(part, new.get(part, {}).get("rows", []))
    DATA.write_text(json.dumps(new, indent=1) + "\n")


def checked(part: str, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return one part of build/bench/: measured at this commit, and no less of it than there was.

    Raise WeftError otherwise."""
    name, command, keys = PARTS[part]
    file = BENCH / name
    if file.stat().st_mtime < int(git("log", "-1", "--format=%ct")):
        raise WeftError(explain(str(file), "results older than the commit", "results of this commit",
                                f"run {command} again, or remove the file"))
    rows = json.loads(file.read_text())
    insist_on_rows(file, command, keys, before, rows)
    return {"commit": git("rev-parse", "HEAD"), "command": command, "note": "", "rows": rows}


def insist_on_rows(file: Path, command: str, keys: Sequence[str], before: Sequence[dict[str, Any]],
                   rows: Sequence[dict[str, Any]]) -> None:
    """Raise WeftError if a row of ``before`` is gone."""
    known = {tuple(row[key] for key in keys) for row in rows}
    if gone := [row for row in before if tuple(row[key] for key in keys) not in known]:
        raise WeftError(explain(str(file), f"no row for {' '.join(str(gone[0][key]) for key in keys)}",
                                "all rows that docs/data has", f"run {command} in full"))


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


TABLES: dict[str, Callable[[], str]] = {
    "networks": networks, "scaling": scaling, "unit_cycles": unit_cycles, "bitstreams": bitstreams,
    "launch": launch_times, "front": front, "walkthrough": walkthrough, "shared_networks": shared_networks,
    "twins": twins, "counts": counts,
}
