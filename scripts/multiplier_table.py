# SPDX-License-Identifier: Apache-2.0
"""Useful MACs over all products, on presets with a depthwise mode and on their twins without it.

    python scripts/multiplier_table.py [--write] [NETWORK ...]

Cycles are estimated, of an image, with a DRAM that answers as expected. The limit of the array counts what its
structure makes of a layer; the share of the multipliers counts every product that they could have made. ``--write``
puts the rows into docs/data/multipliers.json, from which ``make docs`` makes the table; rows of other networks stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import zoo
import zoo_cells
from zoo_docs import MULTIPLIERS as DATA

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError, explain, run_script

TWINS = {"zcu104_int8_taps9": "zcu104_int8", "ultra96_int8_taps9": "ultra96_int8", "pynq_int8_taps3": "pynq_int8",
         "ultra96_taps9": "ultra96", "zcu104_taps9": "zcu104"}
"""Preset with a depthwise mode -> the preset without it."""
USUAL = ("mobilenetv2_1.0_224", "yolo_fastest_1_1_coco_320", "mlperf_tiny_vww_mobilenetv1_025", "ppocrv4_det_96x192",
         "ppocr_cls_48x192", "squeezenet_v1_0_dc", "mlperf_tiny_resnet8", "resnet20v2")

Row = dict[str, Any]


def measured(network: str, path: Path, preset: str) -> Row:
    """Return the row of a network on a preset with a depthwise mode, and on its twin."""
    machines = {"before": Arch.load(TWINS[preset]), "after": Arch.load(preset)}
    found = {when: zoo_cells.Family(zoo_cells.request(path)).found(arch) for when, arch in machines.items()}
    return {"network": network, "arch": preset,
            **{f"{name}_{when}": value for when, one in found.items()
               for name, value in (("cycles", one.cycles), ("share", round(share(machines[when], one), 4)))}}


def share(arch: Arch, found: zoo_cells.Found) -> float:
    """Return useful MACs over all products that the multipliers of the array could have made."""
    return found.done_macs / (arch.array_size**2 * found.cycles)


def kept() -> list[Row]:
    """Return the committed rows."""
    found: list[Row] = json.loads(DATA.read_text()) if DATA.is_file() else []
    return found


def write(rows: list[Row]) -> None:
    """Write rows, and those that are there of other networks and presets, in the order of USUAL and TWINS."""
    places = {(row["network"], row["arch"]): row for row in (*kept(), *rows)}
    names, presets = [*USUAL, *(name for name, _ in places)], [*TWINS]
    order = sorted(places, key=lambda place: (names.index(place[0]), presets.index(place[1])))
    DATA.write_text("[" + ",\n".join(json.dumps(places[place]) for place in order) + "]\n")


def main(names: Annotated[list[str] | None, typer.Argument()] = None,
         keep: Annotated[bool, typer.Option("--write", help="put the rows into docs/data/")] = False) -> None:
    """Measure the networks, and print a row for each machine."""
    files = zoo.networks()
    for network in names or USUAL:
        path = files.get(network)
        if path is None:
            raise WeftError(explain("network", network, ", ".join(name for name, file in files.items() if file),
                                    "name one of them"))
        for preset in TWINS:
            row = measured(network, path, preset)
            print(json.dumps(row), flush=True)
            if keep:
                write([row])


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
