"""The tables of the zoo in docs/ and in the README; ``take_over`` brings what ``make zoo`` left into docs/data/."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import zoo_table
from measured_tables import insist_on_rows
from tables import table
from weft.support.errors import WeftError, explain

from weft.boards import clock_hz, routing
from weft.compiler.quantize.quality import POOR_DECIBELS
from weft.hw.contract.arch import presets

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "docs" / "data" / "zoo.json"
ZOO_MADE = ROOT / "build" / "zoo" / "zoo.json"
NO_ZOO = "No numbers are committed. `make zoo` measures them, `make docs MEASURED=1` brings them here.\n"
IN_README = ("mlperf_tiny_resnet8", "resnet20v2", "yolo_fastest_1_1_coco_320", "mobilenetv2_1.0_224", "resnet50v2_224")
"""Networks of the README's table."""
ABOVE_README = """\
How fast that is: milliseconds an image at the clock that the build of each preset's board asks for, estimated (to the
cycle what the RTL takes), in brackets how much of the array's multipliers does work of the network. The second row says
what open tools made of it. [docs/zoo.md](docs/zoo.md) has all networks and all presets, with accuracy and look-up
tables; `make zoo` measures it.

"""


def zoo() -> str:
    if not ZOO.is_file():
        return NO_ZOO
    found = json.loads(ZOO.read_text())
    return (f"`make zoo` at commit `{found['commit']}`, {found['date']}, in {found['cpu_seconds']} CPU seconds.\n\n"
            + zoo_table.markdown(found["rows"], found["refused"]))


def zoo_in_readme() -> str:
    """Milliseconds of some networks on every preset that runs all of them; nothing where nothing was measured."""
    if not ZOO.is_file():
        return ""
    found = json.loads(ZOO.read_text())
    cells = {(row["network"], row["arch"]): _cell(row) for row in found["rows"]}
    machines = [name for name in presets() if all((network, name) in cells for network in IN_README)]
    rows = [("MHz asked", *(f"{clock_hz(name) / 1e6:g}" for name in machines)),
            ("place and route", *map(routing, machines)),
            *((network, *(cells[network, name] for name in machines)) for network in IN_README)]
    return ABOVE_README + table(("", *(f"`{name}`" for name in machines)), rows)


def _cell(row: zoo_table.Row) -> str:
    poor = row["signal_to_noise"] is not None and row["signal_to_noise"] < POOR_DECIBELS
    return f"{row['ms']:.2f} ({row['utilization']:.0%})" + (", poor numbers" if poor else "")


def take_over() -> bool:
    """build/zoo/ into the committed data, where it is there: whether it was."""
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


TABLES: dict[str, Callable[[], str]] = {"zoo": zoo, "zoo_in_readme": zoo_in_readme}
