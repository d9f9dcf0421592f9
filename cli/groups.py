# SPDX-License-Identifier: Apache-2.0
"""Cycles by core and unit when several cores each run a program at the same time, as data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.cli.console import print_columns, say
from weft.cli.cycle_table import cycles_object, waits_of
from weft.cycles.system import SystemEstimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.system import System
from weft.tmodel.manifest import TModel

OF_CORE = ("cycles", "utilization", "waits", "tail")
OF_PORT = ("read_beats", "write_beats")


def group_object(model: TModel, arch: Arch, found: SystemEstimate) -> dict[str, Any]:
    """Return the object of ``cycles_object`` of the core that takes longest, with the figures of the whole group.

    ``images``: one a core, or one for all; ``cycles_an_image``: ``cycles`` over them; ``cores``: what each waited for;
    ``ports``: the beats that each memory port carried, of data and programs, and its ``cores``."""
    each = [cycles_object(model.of_core(number), waits_of(model.of_core(number), core.cycles, core.operations))
            for number, core in enumerate(found.cores)]
    images = 1 if model.others else len(each)
    slowest, system = max(each, key=lambda one: int(one["cycles"])), System(arch)
    ports = [{"port": port, "cores": list(system.cores_of(port)), **{key: getattr(use, key) for key in OF_PORT}}
             for port, use in enumerate(found.ports)]
    cores = [{"core": core, "port": system.port_of(core), **{key: one[key] for key in OF_CORE}}
             for core, one in enumerate(each)]
    return {**slowest, "images": images, "cycles_an_image": slowest["cycles"] / images, "cores": cores, "ports": ports}


def joined_groups(objects: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures that ``group_object`` adds, for several programs that all cores run one after another."""
    first = objects[0]
    if len(objects) == 1:
        return {key: first[key] for key in ("images", "cycles_an_image", "cores", "ports")}
    cores = [{**row, "cycles": sum(found["cores"][core]["cycles"] for found in objects), "utilization": None,
              "waits": {cause: sum(found["cores"][core]["waits"][cause] for found in objects)
                        for cause in row["waits"]},
              "tail": sum(found["cores"][core]["tail"] for found in objects)}
             for core, row in enumerate(first["cores"])]
    ports = [{**row, **{key: sum(found["ports"][port][key] for found in objects) for key in OF_PORT}}
             for port, row in enumerate(first["ports"])]
    return {"images": first["images"], "cycles_an_image": sum(found["cycles_an_image"] for found in objects),
            "cores": cores, "ports": ports}


def print_group(found: dict[str, Any]) -> None:
    """Print a row for each core, in percent of the group's cycles what it waited for, and how busy each port was."""
    total = max(found["cycles"], 1)
    images = "an image on all cores" if found["images"] == 1 else f"{found['images']} images, one a core"
    say(f"{images}: {found['cycles']:,} cycles, {found['cycles_an_image']:,.0f} an image")
    causes = [cause for cause in found["waits"] if any(row["waits"][cause] for row in found["cores"])]
    table = [("core", "port", "cycles", "util %", *(f"{cause.replace('_', ' ')} %" for cause in causes), "tail")]
    table += [(str(row["core"]), str(row["port"]), f"{row['cycles']:,}",
               "" if row["utilization"] is None else f"{100 * row['utilization']:.1f}",
               *(f"{100 * row['waits'][cause] / total:.2f}" for cause in causes), f"{row['tail']:,}")
              for row in found["cores"]]
    print_columns(table, right=True)
    print_columns([("port", "cores", "read beats", "busy %", "write beats", "busy %"),
                   *((str(row["port"]), ", ".join(map(str, row["cores"])),
                      *(text for key in OF_PORT for text in (f"{row[key]:,}", f"{100 * row[key] / total:.1f}")))
                     for row in found["ports"])], right=True)
    say("layers, of the core that takes longest:")
