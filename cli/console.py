# SPDX-License-Identifier: Apache-2.0
"""Output for people: progress bars on standard error, tables on standard output, and the object of ``--json``."""

from __future__ import annotations

import contextlib
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.cli.places import places_object, print_places
from weft.cli.poor import poor, recorded, saturations
from weft.support.errors import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from weft.compiler.backend.report import CompileReport
    from weft.compiler.check.checker import Verdict
    from weft.runtime.devices import Progress as Tell
    from weft.runtime.session import RunResult
    from weft.tmodel.network import Network


NO_CHECKSUMS = "no checksums in the .tmodel: it does not say which program and constants belong to it"
"""The note about files of the original tools."""
SCHEMA = 1
"""The version of every object that --json prints; it changes when a key goes or changes its meaning."""
WANTED_DECIBELS, WANTED_OF_BYTES = 45, 20
"""The signal to noise below which a report gives advice."""


@contextlib.contextmanager
def progress() -> Iterator[Tell]:
    """Show a bar with the current stage on standard error, if that is a terminal; it disappears at the end."""
    error = getattr(sys.stderr, "raw", sys.stderr)  # a bar is control characters
    if error is None or not error.isatty():
        yield lambda stage, done, total: None
        return
    from weft.cli.bars import bar  # rich, for which output into a file need not wait

    with bar(error) as tell:
        yield tell


@contextlib.contextmanager
def working(stage: str) -> Iterator[None]:
    """Show a bar for one thing whose end is not known."""
    with progress() as tell:
        tell(stage, 0, 0)
        yield


def plain_console(width: int = 40) -> Console:
    """Return a console for tables, at least ``width`` wide, without markup and colours."""
    from rich.console import Console

    return Console(width=max(shutil.get_terminal_size().columns, width), markup=False, emoji=False, highlight=False,
                   color_system=None)


def print_table(title: str, rows: dict[str, str]) -> None:
    """Print two columns as wide as the terminal; the second wraps."""
    width = max(shutil.get_terminal_size().columns, 40)
    rows = {one_line(name): one_line(value) for name, value in rows.items()}
    indent = max(map(len, rows)) + 2
    print(one_line(title))
    for name, value in rows.items():
        lines = textwrap.wrap(value, max(width - indent, 20)) or [""]
        print(name.ljust(indent) + f"\n{' ' * indent}".join(lines))


# -- a run -------------------------------------------------------------------------------------------------------------
def as_object(result: RunResult) -> dict[str, Any]:
    """Return the object that ``weft run --json`` prints; ``cycles`` and ``utilization`` are null on golden."""
    check = result.comparison
    return {
        "schema": SCHEMA,
        "cycles": result.cycles,
        "instructions": result.instructions,
        "macs": result.macs,
        "done_macs": result.done_macs,
        "utilization": result.utilization,
        "seconds": round(result.seconds, 6),
        "images": result.images,
        "outputs": {name: array.tolist() for name, array in result.outputs.items()},
        "saturated": result.saturated and result.saturated.beyond,
        "saturated_by_ranges": result.saturated and result.saturated.narrowed,
        "saturated_inputs": result.saturated_inputs,
        **({"flags": list(result.flags)} if result.flags else {}),
        "preload": {"instructions": result.preload_instructions, "cycles": result.preload_cycles}
        if result.preload_instructions else None,
        "check": None if check is None else {"words": check.words, "equal": check.equal,
                                             "first_difference": str(check.first) if check.first else None},
    }


def print_run(model: Network, on: str, result: RunResult) -> None:
    """Print the result of a run as a table."""
    rows = {"images": str(result.images), "instructions": f"{result.instructions:,}"}
    if result.macs is not None:
        left = result.macs - (result.done_macs or 0)
        rows["MACs"] = f"{result.macs:,}" + (f", of which {left:,} are left out" if left > 0 else "")
    if result.cycles is not None:
        rows["cycles"] = f"{result.cycles:,}" + (f" ({result.cycles // result.images:,} an image)"
                                                 if result.images > 1 else "")
    if result.utilization is not None:
        rows["utilization"] = f"{100 * result.utilization:.1f} %"
    rows["seconds"] = f"{result.seconds:.2f}"
    if result.preload_instructions:
        rows["preload"] = preload_text(result.preload_instructions, result.preload_cycles)
    for output, array in result.outputs.items():
        shape = "x".join(map(str, array.shape))
        rows[f"output {output}"] = f"{shape} {array.dtype}, {array.min():.6g} .. {array.max():.6g}"
    if result.comparison:
        name = "RTL" if on == "rtl" else on
        rows[f"{name} equals golden"] = f"{result.comparison.equal:,} of {result.comparison.words:,} words"
    if result.flags:
        rows["flags"] = " and ".join(result.flags)
    if not model.checksums:
        rows["files"] = NO_CHECKSUMS
    if result.saturated is not None:
        rows["saturated"] = f"{result.saturated.beyond:,} numbers"
        if result.saturated.narrowed:
            rows["saturated"] += f", {result.saturated.narrowed:,} beyond the narrower ranges of --ranges"
    print_table(f"{model.name} on {on}", rows)
    for line in (*saturations(result, model.arch), *poor(recorded(model), model.arch)):
        print(f"warning: {one_line(line)}")


def samples_object(model: Network, result: RunResult) -> dict[str, Any]:
    """Return the performance samples as an object: of units and, if possible, of layers.

    Layers need one image of one program that knows its layers."""
    from weft.runtime.samples import Samples

    found = Samples.decode(np.concatenate(result.samples))
    program = model.machines[0] if len(model.machines) == 1 and result.images == 1 else None
    layers = [] if program is None or program.instruction_layers is None else found.layers(
        program.instruction_layers, [row["name"] for row in program.layers])
    return {"count": len(found.program_counter), "units": found.units(), "layers": layers}


def print_samples(sampled: dict[str, Any]) -> None:
    """Print the performance samples as tables."""
    print(f"{sampled['count']:,} samples")
    rows = [(row["unit"], *(f"{100 * row[key]:.1f} %" for key in ("taken", "waits", "idle")))
            for row in sampled["units"]]
    print_columns([("unit", "taken", "waits", "idle"), *rows])
    if sampled["layers"]:
        rows = [(row["layer"][-32:], f"{row['samples']:,}", f"{100 * row['share']:.1f} %") for row in sampled["layers"]]
        print_columns([("layer", "samples", "time"), *rows])


def preload_text(instructions: int, cycles: int | None) -> str:
    """Return the cost of the program that copies constants to local memory, in words."""
    counted = f"{instructions:,} instructions" + ("" if cycles is None else f", {cycles:,} cycles")
    return counted + ", once when the model is loaded, not counted with the program"


def print_compiled(report: CompileReport) -> None:
    """Print the result of ``weft compile``: files and their sizes; warnings on standard error."""
    for warning in report.warnings:
        print(f"weft: warning: {one_line(warning)}", file=sys.stderr)
    print_table(report.name, {
        "layers": str(len(report.layers)),
        "MACs": f"{report.macs:,}",
        "instructions": f"{report.instructions:,}",
        **{path.name[len(report.name) + 1:]: str(path) for path in (report.model_path, *report.files)},
    })
    print_places(report.partition)


def print_layers(rows: Sequence[dict[str, Any]]) -> None:
    """Print a line for each layer with the results of ``--report``, and advice where a layer loses most."""
    held = "scale, zero" if any("scales" in row for row in rows) else "point"
    table = [("layer", "kind", "range", held, "saturations", "SNR dB")]
    for row in rows:
        decibels = row["signal_to_noise"]
        table.append((row["name"][-32:], row["kind"], "{:.4g}..{:.4g}".format(*row["range"]),
                      _held(row), str(row["saturations"]),
                      "exact" if decibels is None else f"{decibels:.1f}"))
    print_columns(table)
    for text in advice(rows):
        print(text)


def _held(row: Mapping[str, Any]) -> str:
    """Return a layer's binary point or scale and zero point as text."""
    return "{:.4g}, {}".format(*row["scales"]["output"]) if "scales" in row else str(row["points"]["output"])


GAP, LEAST_TEXT = 2, 20
"""Spaces between the columns of a table, and the least room in which the last column's text is wrapped."""


def table_width() -> int:
    """Return the width for tables: the terminal's, or no limit for a file or a pipe."""
    return max(shutil.get_terminal_size((100_000, 24)).columns, 40)


def say(text: str) -> None:
    """Print a sentence, wrapped to the terminal's width."""
    print(textwrap.fill(one_line(text), table_width(), subsequent_indent=" " * GAP, break_on_hyphens=False))


def print_columns(table: Sequence[Sequence[str]], *, right: bool = False) -> None:
    """Print a table, each column as wide as its widest text; ``right`` aligns all but the first for numbers.

    If the terminal is too narrow, further columns follow below, again with the first one."""
    table = [[one_line(text) for text in line] for line in table]
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for number, block in enumerate(_blocks(widths, table_width())):
        if number:
            print()
        for line in table:
            _print_line([line[column] for column in block], [widths[column] for column in block], right)


def _blocks(widths: Sequence[int], width: int) -> list[list[int]]:
    """Return the columns that fit side by side, each block with the first column.

    A long text in the last column does not start another block."""
    blocks = [[0]]
    for column in range(1, len(widths)):
        room = width - sum(widths[other] + GAP for other in blocks[-1])
        wraps = column == len(widths) - 1 and widths[column] > 2 * LEAST_TEXT and room >= LEAST_TEXT
        if widths[column] > room and not wraps and len(blocks[-1]) > 1:
            blocks.append([0])
        blocks[-1].append(column)
    return blocks


def _print_line(texts: Sequence[str], widths: Sequence[int], right: bool) -> None:
    """Print a line of a table."""
    *first, last = (text.rjust(width) if right and column else text.ljust(width)
                    for column, (text, width) in enumerate(zip(texts, widths, strict=True)))
    indent = sum(widths[:-1]) + GAP * len(first)
    room = max(table_width() - indent, LEAST_TEXT)
    lines = textwrap.wrap(last, room) if len(last.rstrip()) > room else [last]
    print((" " * GAP).join([*first, lines[0]]).rstrip())
    for line in lines[1:]:
        print(" " * indent + line)


def print_check(verdicts: Sequence[Verdict]) -> None:
    """Print a line for each step with the results of ``--check``."""
    table = [("step", "what ran", "SNR dB to the step before", "allowed", "verdict")]
    for verdict in verdicts:
        decibels = "equal" if verdict.decibels is None else f"{verdict.decibels:.1f}"
        table.append((verdict.step, verdict.runs, decibels, verdict.allowed, "DIFFERS" if verdict.problem else "ok"))
    print_columns(table)


def compiled_object(report: CompileReport, rows: Sequence[dict[str, Any]],
                    verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the object that ``weft compile --json`` prints; ``check`` is null without ``--check``."""
    first = next((verdict.step for verdict in verdicts if verdict.problem), None)
    check = {"first_difference": first, "steps": [verdict.to_json() for verdict in verdicts]}
    places = places_object(report.partition)
    return {
        "schema": SCHEMA, "name": report.name, **places, "macs": report.macs, "instructions": report.instructions,
        "files": [str(path) for path in (report.model_path, *report.files)],
        "warnings": report.warnings, "layers": rows,
        "check": check if verdicts else None,
    }


def advice(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return sentences on the layers that lose most exactness: saturation, and too little signal to noise.

    ``rows``: the report's layers. Each sentence ends with what would help."""
    found = []
    saturated = [row["name"] for row in rows if row["saturations"]]
    if saturated:
        found.append(f"{len(saturated)} layers saturate, first {saturated[0]!r}: give calibration inputs that show "
                     "their whole range")
    noisy = [row for row in rows if row["signal_to_noise"] is not None]
    worst = min(noisy, key=lambda row: float(row["signal_to_noise"]), default=None)
    wanted = WANTED_OF_BYTES if worst is not None and "scales" in worst else WANTED_DECIBELS
    if worst is not None and worst["signal_to_noise"] < wanted:
        found.append(f"layer {worst['name']!r} has {worst['signal_to_noise']:.1f} dB, less than {wanted}: a "
                     "wider data type would help")
    return found
