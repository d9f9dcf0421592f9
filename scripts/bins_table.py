# SPDX-License-Identifier: Apache-2.0
"""Count which bins of ``tb/random/bins.py`` random programs fall into, and write the table of docs/coverage.md.

    python scripts/bins_table.py [--programs N]

Programs are decoded, not run: some 5 ms each, more with Repeats. With ``--programs`` it only prints. A group
that falls below docs/data/bins.json is refused, and the file stays as it is."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from coverage_table import check, share
from tables import number, table

from weft.hw.contract.arch import Arch
from weft.support.errors import run_script
from weft.tb.random.bins import Bin, all_bins, bins
from weft.tb.random.lockstep import Case
from weft.tb.random.lockstep_archs import lockstep_archs

DATA = Path(__file__).resolve().parents[1] / "docs" / "data" / "bins.json"
COMMAND = "make coverage-bins"
PROGRAMS = {"lanes2": 5_000, "lanes3_every_step": 5_000, "lanes4_int8": 5_000, "lanes4_lut": 500,
            "lanes4_slices": 500}
"""Programs of each machine; those with Repeats take longer to draw."""
LISTED = 20
"""Empty bins of a machine that the page names; the file has all."""
WHAT = {"bins": ("there", "met")}
GROUPS = {
    "size": "instruction x flags x size class x stalls", "hazard": "two units x memory x kind of hazard",
    "register": "register of Configure x class of its value", "loop": "body x passes as k x depth + r",
    "output": "results of bytes: flow x table x rows"}
Counts = dict[str, dict[str, int]]


def counted(arch: Arch, programs: int) -> Counter[Bin]:
    """Return how often each bin occurs in the random programs of the first seeds."""
    total: Counter[Bin] = Counter()
    for seed in range(programs):
        total.update(bins(Case.of(arch, seed)))
    return total


def summary(arch: Arch, met: Counter[Bin]) -> tuple[Counts, list[str]]:
    """Return group -> how many bins there are and how many were met; and the bins that were not, in words."""
    every = all_bins(arch)
    counts = {group: {"there": sum(each[0] == group for each in every),
                      "met": sum(each[0] == group and met[each] > 0 for each in every)} for group in GROUPS}
    return ({group: each for group, each in counts.items() if each["there"]},
            [" ".join(each) for each in every if not met[each]])


# -- tables ------------------------------------------------------------------------------------------------------------
def measured() -> str:
    """Return the table of groups by machine, with what is empty below it."""
    data = json.loads(DATA.read_text())
    rows = [(GROUPS[group], *(f"{counts[group]['met']} of {counts[group]['there']}" if group in counts else ""
                              for counts in data["machines"].values())) for group in GROUPS]
    rows.append(("programs", *(number(data["programs"][name]) for name in data["machines"])))
    empty = [f"* `{name}`: {', '.join(each[:LISTED])}{f', {len(each) - LISTED} more' * (len(each) > LISTED)}."
             for name, each in data["empty"].items() if each]
    behind = "\nEmpty bins:\n\n" + "\n".join(empty) + "\n" if empty else ""
    return f"`{data['command']}`.\n\n" + table(("bins met", *(f"`{name}`" for name in data["machines"])), rows) + behind


TABLES: dict[str, Callable[[], str]] = {"bins": measured}


def main(
    programs: Annotated[int | None, typer.Option(help="of each machine, at most; default: as in the table")] = None,
) -> None:
    """Count; write docs/data/bins.json if no group fell."""
    data: dict[str, Any] = {"command": COMMAND, "programs": {}, "machines": {}, "empty": {}}
    for name, most in PROGRAMS.items():
        count, arch = min(most, programs or most), lockstep_archs()[name]
        data["machines"][name], data["empty"][name] = summary(arch, counted(arch, count))
        data["programs"][name] = count
        print(name, *(f"{group} {share(each, 'bins', WHAT)} %" for group, each in data["machines"][name].items()))
        print(*(f"  {each}" for each in data["empty"][name]), sep="\n")
    if programs is None:
        for name, before in (json.loads(DATA.read_text())["machines"] if DATA.exists() else {}).items():
            check(data["machines"][name], before, WHAT, f"{COMMAND} lists empty bins")
        DATA.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
