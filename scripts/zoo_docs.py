# SPDX-License-Identifier: Apache-2.0
"""The tables of the zoo in docs/ and in the README; ``take_over`` brings what ``make zoo`` left into docs/data/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import zoo_table
from measured_tables import insist_on_rows
from tables import number, table

from weft.boards import clock_hz, routing
from weft.compiler.quantize.quality import POOR_DECIBELS
from weft.hw.contract.presets import presets
from weft.support.errors import WeftError, explain

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "docs" / "data" / "zoo.json"
ZOO_MADE = ROOT / "build" / "zoo" / "zoo.json"
MULTIPLIERS = ROOT / "docs" / "data" / "multipliers.json"
"""What ``scripts/multiplier_table.py`` measured: useful MACs over all products, with a depthwise mode and without."""
NO_ZOO = "No numbers are committed. `make zoo` measures them, `make docs MEASURED=1` brings them here.\n"
IN_README = {"mlperf_tiny_resnet8": "ResNet-8", "resnet20v2": "ResNet-20", "yolo_fastest_1_1_coco_320": "YOLO-Fastest",
             "mobilenetv2_1.0_224": "MobileNetV2", "resnet50v2_224": "ResNet-50"}
"""Network of the README's table -> what people call it."""
ABOVE_README = """\
Milliseconds an image at the clock that each board's build asks for, and in brackets how much of the array's multipliers
does work of the network. Cycles are estimated, to the cycle what the RTL takes; [docs/zoo.md](docs/zoo.md) has all
networks and presets, with accuracy. MobileNetV2 and YOLO-Fastest are depthwise, which leaves lanes idle; presets with a
depthwise mode, such as `zcu104_int8_taps9`, halve their cycles
([docs/decisions/depthwise.md](docs/decisions/depthwise.md#what-it-gives)).

"""


def zoo() -> str:
    """Return the tables of the zoo, and the line above them."""
    if not ZOO.is_file():
        return NO_ZOO
    found = json.loads(ZOO.read_text())
    return (f"`make zoo` at commit `{found['commit']}`, {found['date']}, in {found['cpu_seconds']} CPU seconds.\n\n"
            + zoo_table.markdown(found["rows"], found["refused"]))


def zoo_in_readme() -> str:
    """Return milliseconds of some networks on every preset that runs all of them; nothing if nothing was measured."""
    if not ZOO.is_file():
        return ""
    found = json.loads(ZOO.read_text())
    cells = {(row["network"], row["arch"]): _cell(row) for row in found["rows"]}
    machines = [name for name in presets() if all((network, name) in cells for network in IN_README)]
    rows = [(f"`{name}`", f"{clock_hz(name) / 1e6:g}", routing(name), *(cells[network, name] for network in IN_README))
            for name in machines]
    return ABOVE_README + table(("machine", "MHz", "place and route", *IN_README.values()), rows)


def multipliers() -> str:
    """Return the table of presets with a depthwise mode beside their twins without."""
    return table(("network", "machine", "cycles without", "cycles with", "", "multipliers without", "with"), [
        (row["network"], f"`{row['arch']}`", number(row["cycles_before"]), number(row["cycles_after"]),
         f"{row['cycles_before'] / row['cycles_after']:.2f}", f"{row['share_before']:.1%}", f"{row['share_after']:.1%}")
        for row in json.loads(MULTIPLIERS.read_text())])


def _cell(row: zoo_table.Row) -> str:
    """Return a cell of the README's table."""
    poor = row["signal_to_noise"] is not None and row["signal_to_noise"] < POOR_DECIBELS
    return f"{row['ms']:.2f} ({row['utilization']:.0%})" + (", poor numbers" if poor else "")


def take_over() -> bool:
    """Take build/zoo/ over into the committed data if it is there; return whether it was."""
    if not ZOO_MADE.is_file():
        return False
    new = json.loads(ZOO_MADE.read_text())
    if new["commit"].endswith("-dirty"):
        raise WeftError(explain(str(ZOO_MADE), f"commit {new['commit']}", "a committed state",
                                "commit, run make zoo, then this again"))
    before = json.loads(ZOO.read_text())["rows"] if ZOO.is_file() else []
    insist_on_rows(ZOO_MADE, "make zoo", ("network", "arch"), before, new["rows"])
    ZOO.write_text(ZOO_MADE.read_text())
    return True


TABLES: dict[str, Callable[[], str]] = {"zoo": zoo, "zoo_in_readme": zoo_in_readme, "multipliers": multipliers}
