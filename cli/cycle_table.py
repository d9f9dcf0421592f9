# SPDX-License-Identifier: Apache-2.0
"""Cycles of a compiled model by layer and unit, as data: by the estimator, or from a run on the simulated hardware."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.cli.console import print_columns, say
from weft.cycles.program import read_program
from weft.cycles.waits import CAUSES, NO_LAYER, Waits, analyse
from weft.hw.contract.arch import Arch
from weft.tmodel.manifest import TModel

WIDTHS = (32, 48, 80, 160)
"""Characters of a name in a table: the first that keeps different names apart."""


def waits_of(model: TModel, cycles: int, operations: np.ndarray) -> Waits:
    """Return the waits of a program; ``operations``: when each of its operations ran.

    If the model's file does not say which layer an instruction belongs to, all belong to one."""
    program = read_program(model.program, model.arch)
    known: np.ndarray = np.zeros(program.instructions, np.int64)
    if model.instruction_layers is not None:
        known = model.instruction_layers
    layers = np.full(program.instructions, NO_LAYER)
    layers[:len(known)] = known[:program.instructions]
    return analyse(program, operations, cycles, layers[program.work["instruction"]], model.arch)


def layer_rows(model: TModel, waits: Waits) -> list[dict[str, Any]]:
    """Return one object for each layer, for ``--json`` and tables.

    ``cycles``: those of its MatMuls, waits included; ``macs`` are those of the network as drawn, ``done_macs`` those of
    them that the array does; ``utilization``: done_macs per multiplier and cycle, null without cycles."""
    rows = []
    for number, layer in enumerate(model.layers[:len(waits.vectors)]):
        causes = dict(zip(CAUSES, map(int, waits.waits[number]), strict=True))
        cycles = int(waits.vectors[number]) + sum(causes.values())
        most = model.arch.array_size**2 * int(waits.vectors[number])
        done = min(layer.get("done_macs", layer["macs"]), most)
        rows.append({
            "name": layer["name"], "kind": layer["kind"], "cycles": cycles, "macs": layer["macs"], "done_macs": done,
            "utilization": done / (model.arch.array_size**2 * cycles) if cycles else None,
            "vectors": int(waits.vectors[number]), "waits": causes,
            "dram0_bytes": int(waits.dram_bytes[number, 0]), "dram1_bytes": int(waits.dram_bytes[number, 1]),
        })
    return rows


def cycles_object(model: TModel, waits: Waits) -> dict[str, Any]:
    """Return the object of a whole program: totals of ``layer_rows``, and the ``tail`` after the last MatMul."""
    rows = layer_rows(model, waits)
    done = sum(row["done_macs"] for row in rows)
    return {
        "cycles": waits.cycles, "macs": model.macs, "done_macs": done,
        "utilization": done / (model.arch.array_size**2 * waits.cycles) if model.macs and waits.cycles else None,
        "vectors": int(waits.vectors.sum()), "waits": dict(zip(CAUSES, map(int, waits.waits.sum(0)), strict=True)),
        "tail": waits.tail, "dram0_bytes": int(waits.dram_bytes[:, 0].sum()),
        "dram1_bytes": int(waits.dram_bytes[:, 1].sum()), "program_bytes": len(model.program), "layers": rows,
    }


def joined(objects: Sequence[dict[str, Any]], arch: Arch) -> dict[str, Any]:
    """Return one object for several programs, which run one after another."""
    if len(objects) == 1:
        return objects[0]
    totals = {key: sum(found[key] for found in objects)
              for key in ("cycles", "macs", "done_macs", "vectors", "tail", "dram0_bytes", "dram1_bytes",
                          "program_bytes")}
    most = arch.array_size**2 * totals["cycles"]
    used = totals["done_macs"] / most if totals["macs"] and most else None
    return {**totals, "utilization": used,
            "waits": {cause: sum(found["waits"][cause] for found in objects) for cause in CAUSES},
            "layers": [row for found in objects for row in found["layers"]]}


def node_rows(layers: Sequence[dict[str, Any]], arch: Arch) -> list[dict[str, Any]]:
    """Return one object for each node of the user's file, in the order of their first layers.

    ``layers`` are those of :func:`layer_rows`, named after the nodes that they compute. An object has the same keys,
    with sums, but ``layers``, their number, in place of ``kind``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in layers:
        found.setdefault(row["name"], []).append(row)
    return [_node_row(name, rows, arch) for name, rows in found.items()]


def _node_row(name: str, rows: Sequence[dict[str, Any]], arch: Arch) -> dict[str, Any]:
    """Return the object of a node, computed by the layers ``rows``."""
    sums = {key: sum(row[key] for row in rows)
            for key in ("cycles", "macs", "done_macs", "vectors", "dram0_bytes", "dram1_bytes")}
    most = arch.array_size**2 * sums["cycles"]
    return {"name": name, "layers": len(rows), **sums, "utilization": sums["done_macs"] / most if most else None,
            "waits": {cause: sum(row["waits"][cause] for row in rows) for cause in CAUSES}}


def short_names(names: Sequence[str]) -> list[str]:
    """Return the ends of names for a table, as short as WIDTHS allow without two different names alike.

    Of nodes that were joined, "a+b+c", the first is shown, with the number of the others."""
    short: list[str] = []
    for width in WIDTHS:
        short = [_short(name, width) for name in names]
        if len(set(short)) == len(set(names)):
            break
    return short


def _short(name: str, width: int) -> str:
    """Return a name in about ``width`` characters."""
    first, *others = name.split("+")
    return name if len(name) <= width else first[-width:] + (f" +{len(others)}" if others else "")


def print_cycles(found: dict[str, Any], by: str = "layers") -> None:
    """Print a row for each of ``found["layers"]`` or ``found["nodes"]``; the last row is the sum.

    Waits are in percent of all cycles."""
    total = max(found["cycles"], 1)
    causes = [cause for cause, cycles in found["waits"].items() if cycles]
    table = [(by.removesuffix("s"), *(["layers"] if by == "nodes" else []), "cycles", "MACs", "left out", "util %",
              *(f"{cause.replace('_', ' ')} %" for cause in causes), "DRAM0 KB", "DRAM1 KB")]
    rows = found[by]
    last = {**found, "name": "all", "layers": len(found["layers"])}
    for row, name in zip((*rows, last), (*short_names([row["name"] for row in rows]), "all"), strict=True):
        share = [f"{100 * row['waits'][cause] / total:.2f}" if row["waits"][cause] else "" for cause in causes]
        table.append((name, *([str(row["layers"])] if by == "nodes" else []), f"{row['cycles']:,}", f"{row['macs']:,}",
                      f"{row['macs'] - row['done_macs']:,}" if row["macs"] > row["done_macs"] else "",
                      "" if row["utilization"] is None else f"{100 * row['utilization']:.1f}", *share,
                      *(f"{row[key] / 1024:,.0f}" for key in ("dram0_bytes", "dram1_bytes"))))
    print_columns(table, right=True)
    say(f"tail {found['tail']:,} cycles, program {found['program_bytes']:,} bytes")
