# SPDX-License-Identifier: Apache-2.0
"""Synthesize a machine: counts by block, against its part and against the committed baseline.

``make synth ARCH=arty``. It writes build/<arch>/synth.json; --update-baseline makes it the baseline."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from weft.boards import board_of
from weft.hw.contract.arch import Arch
from weft.hw.flow import synthesis
from weft.support.errors import run_script

ROOT = Path(__file__).resolve().parents[1]


def table(family: str, report: dict, baseline: dict | None) -> str:
    """Return one family's counts as a table, with the difference to the baseline if there is one."""
    def cell(found: int, before: int | None) -> str:
        change = "" if before is None or before == found else f" ({found - before:+})"
        return f"{found}{change}"

    columns = synthesis.COLUMNS
    rows = [["block", *columns]]
    before = (baseline or {}).get("blocks", {})
    for block, counts in {**report["blocks"], "total": report["total"]}.items():
        old = (baseline or {}).get("total") if block == "total" else before.get(block)
        rows.append([block, *(cell(counts[name], old[name] if old else None) for name in columns)])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(text.ljust(width) if k == 0 else text.rjust(width)
                       for k, (text, width) in enumerate(zip(row, widths, strict=True))) for row in rows]
    lines += [f"{name}: {used} of {most} ({100 * used / most:.0f} %)"
              for name, (used, most) in report["of_part"].items()]
    gone = sorted(set(before) - set(report["blocks"]))
    lines += [f"in the baseline, not here: {', '.join(gone)}"] if gone else []
    return "\n".join([f"{family}: {report['part']}", *lines])


def main() -> int:
    """Count, and print the tables; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--arch", default="arty", help="a preset or a .tarch file")
    parser.add_argument("--family", choices=synthesis.FAMILIES, action="append",
                        help="default: Xilinx, ECP5 and that of the board")
    parser.add_argument("--update-baseline", action="store_true", help="make these counts the committed baseline")
    arguments = parser.parse_args()
    arch, name = Arch.load(arguments.arch), Path(arguments.arch).stem
    folder = ROOT / "build" / name
    baseline_path = ROOT / "hw" / "flow" / "baseline" / f"synth_{name}.json"
    baseline = json.loads(baseline_path.read_text()) if baseline_path.exists() else {}
    board = board_of(arguments.arch)
    parts = {board.family: board.part} if board else {}
    report = {family: synthesis.report(arch, family, folder / "synth", parts.get(family))
              for family in arguments.family or dict.fromkeys((*synthesis.USUAL, *parts))}
    (folder / "synth.json").write_text(json.dumps(report, indent=2) + "\n")
    for family, found in report.items():
        print(table(family, found, baseline.get(family)) + "\n")
    if arguments.update_baseline:
        baseline_path.parent.mkdir(exist_ok=True)
        baseline_path.write_text(json.dumps({**baseline, **report}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    run_script(main)
