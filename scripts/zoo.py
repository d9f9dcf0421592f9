"""Every network on every preset: cycles, accuracy and resources, as JSON, as a table in Markdown and as a page.

    python scripts/zoo.py [--rtl] [--only NETWORK] [--arch PRESET] [--output DIR]

Networks are the demo's, the benchmark's and those of ../shared where these are. A network that a preset cannot run has
a row that says why. Rows are written as they come, so that a run that was broken off leaves what it had.
"""

from __future__ import annotations

import datetime
import html
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import bench
import typer

from weft.boards import board_of
from weft.cli.check.signals import output_signal
from weft.compiler.request import Request
from weft.hw.contract.arch import presets
from weft.hw.contract.errors import WeftError, explain, run_script
from weft.hw.flow.parts import PARTS
from weft.hw.flow.resources import counted, fits
from weft.runtime.files import write_text

DEMO = {"digits": bench.ROOT / "models" / "digits" / "digits.onnx"}
COLUMNS: dict[str, Callable[[dict[str, Any]], object]] = {
    "network": lambda row: row["network"], "machine": lambda row: row["arch"],
    "cycles, estimated": lambda row: _number(row["cycles_estimated"]),
    "cycles in RTL": lambda row: _number(row["cycles_rtl"]),
    "ms": lambda row: f"{row['ms']:.3f}", "of the array": lambda row: f"{row['utilization']:.1%}",
    "SNR of outputs, dB": lambda row: "exact" if row["signal_to_noise"] is None else f"{row['signal_to_noise']:.1f}",
    "LUT": lambda row: _number(row["lut"]),
    "fits its board": lambda row: {True: "yes", False: "no"}.get(row["fits"], ""),
}
"""Column of the tables -> its text."""
STYLE = ("body{font:15px/1.5 system-ui,sans-serif;margin:1.5rem;color:#1a1a1a}table{border-collapse:collapse}"
         "div{overflow-x:auto}th,td{padding:.3rem .7rem;border-bottom:1px solid #ccc;text-align:right}"
         "th:first-child,td:first-child,th:nth-child(2),td:nth-child(2){text-align:left}")


@dataclass(frozen=True)
class Zoo:
    """``rows``: what was measured; ``refused``: network, machine and why."""

    rows: list[dict[str, Any]]
    refused: list[tuple[str, str, str]]


def networks() -> dict[str, Path | None]:
    """Name -> file, None where it is neither shared nor built here."""
    shared = {path.stem: path for path in sorted(bench.SHARED.glob("*.onnx"))}
    taken = {bench.SHARED_NAMES.get(name, name) for name in (*bench.NETWORKS, *bench.WITHOUT_BAR)}
    found: dict[str, Path | None] = dict(DEMO)
    found |= {name: bench.network_file(name) for name in (*bench.NETWORKS, *bench.WITHOUT_BAR)}
    return {**found, **{name: path for name, path in shared.items() if name not in taken}}


def measured(name: str, path: Path, preset: str, *, on_rtl: bool) -> dict[str, Any]:
    """One row: what the benchmark measures, accuracy on its input, and what the machine takes of its board's chip.
    Raises WeftError where the network does not run on it."""
    found = vars(bench.measure(name, path, preset, on_rtl=on_rtl))
    arch, board = bench.machine(name, preset), board_of(preset)
    request = Request(path, {key: value[None] for key, value in bench.sample(path).items()}, host_fallback=True)
    taken = fits(arch, PARTS[board.part]) if board and counted(arch, board.family) else None
    return {**found, "signal_to_noise": output_signal(request, arch), "lut": taken and taken["total"]["lut"],
            "fits": taken and taken["fits"]}


def collect(names: dict[str, Path | None], machines: list[str], *, on_rtl: bool) -> Iterator[Zoo]:
    """What is known after each network and machine."""
    zoo = Zoo([], [])
    for name, path in names.items():
        if path is None:
            zoo.refused.append((name, "all", f"needs {bench.SHARED}"))
            continue
        for preset in machines:
            try:
                zoo.rows.append(measured(name, path, preset, on_rtl=on_rtl))
            except WeftError as error:
                zoo.refused.append((name, preset, str(error)))
            yield zoo


def markdown(zoo: Zoo) -> str:
    head = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
    lines = [f"| {' | '.join(str(text(row)) for text in COLUMNS.values())} |" for row in zoo.rows]
    left = [f"* {name} on {preset}: {why}" for name, preset, why in zoo.refused]
    return head + "\n".join(lines) + "\n" + ("\nNot measured:\n\n" + "\n".join(left) + "\n" if left else "")


def page(zoo: Zoo, title: str) -> str:
    """Needs nothing from elsewhere; every name is escaped."""
    def cells(tag: str, texts: list[object]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(text))}</{tag}>" for text in texts) + "</tr>"

    rows = "".join(cells("td", [text(row) for text in COLUMNS.values()]) for row in zoo.rows)
    left = "".join(f"<li>{html.escape(f'{name} on {preset}: {why}')}</li>" for name, preset, why in zoo.refused)
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{html.escape(title)}</title><style>{STYLE}</style><h1>{html.escape(title)}</h1><div><table>"
            f"{cells('th', list(COLUMNS))}{rows}</table></div>{f'<h2>Not measured</h2><ul>{left}</ul>' if left else ''}"
            "</html>\n")


def write(zoo: Zoo, folder: Path, commit: str) -> None:
    """The zoo as data, as a table and as a page."""
    title = f"Networks on presets, commit {commit[:12]}, {datetime.date.today()}"
    content = {"commit": commit, "rows": zoo.rows, "refused": zoo.refused}
    for name, text in (("zoo.json", json.dumps(content, indent=1) + "\n"), ("zoo.md", markdown(zoo)),
                       ("zoo.html", page(zoo, title))):
        write_text(folder / name, text)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"


def main(
    rtl: Annotated[bool, typer.Option("--rtl", help="in RTL too")] = False,
    only: Annotated[str, typer.Option(help="one network")] = "",
    arch: Annotated[str, typer.Option(help="one preset")] = "",
    output: Annotated[Path, typer.Option(help="folder")] = bench.ROOT / "build" / "zoo",
) -> None:
    known, machines = networks(), list(presets())
    for found, allowed, what in ((only, list(known), "--only"), (arch, machines, "--arch")):
        if found and found not in allowed:
            raise WeftError(explain(what, found, ", ".join(allowed), "name one of them"))
    chosen = {name: path for name, path in known.items() if only in ("", name)}
    asked = subprocess.run(["git", "rev-parse", "HEAD"], cwd=bench.ROOT, capture_output=True, text=True, check=False)
    output.mkdir(parents=True, exist_ok=True)
    for zoo in collect(chosen, [arch] if arch else machines, on_rtl=rtl):
        write(zoo, output, asked.stdout.strip() or "unknown")
        done = len(zoo.rows) + len(zoo.refused)
        print(f"{done}: {(zoo.rows or [{'network': ''}])[-1]['network']}", file=sys.stderr, flush=True)
    print(output / "zoo.html")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
