# SPDX-License-Identifier: Apache-2.0
"""The report of a compilation: files, warnings, and a table of layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Load
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.partition import Partition
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.ranges import Calibration
from weft.compiler.tiling.costs import traffic
from weft.hw.contract.arch import Arch
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import BY_RANGES, ON_PURPOSE


@dataclass(frozen=True)
class CompileReport:
    """The result of a compilation.

    ``layers``: as in the ``.tmodel``, of all programs. ``modelled_vectors``: through the array, DRAM0 and DRAM1, by
    name. ``program_path`` and ``data_path`` are the first program's, ``files`` those of all."""

    name: str
    model_path: Path
    program_path: Path
    data_path: Path
    layers: tuple[dict[str, Any], ...]
    instructions: int
    macs: int
    modelled_vectors: dict[str, int]
    saturated: int
    warnings: tuple[str, ...]
    partition: Partition
    files: tuple[Path, ...]

    @property
    def host(self) -> HostPart | None:
        """The last subgraph of the host, None if it computes nothing."""
        return self.partition.hosts[-1] if self.partition.hosts else None


def layer_table(layers: Sequence[Layer], numbers: Numbers, calibration: Calibration, layout: MemoryPlan,
                instructions: Sequence[int], passed: Sequence[int], done: Sequence[int],
                narrowed: bool, arch: Arch) -> tuple[dict[str, Any], ...]:
    """Return one row of the report for each layer.

    ``passed``: vectors that its MatMuls send through the array. ``macs`` are those of the network as drawn,
    ``done_macs`` (from ``done``) those of them that the array does. ``narrowed``: whether ``--ranges`` left less than
    calibration saw. ``saturated`` counts calibration values beyond the range of the output's numbers. ``after``: see
    :func:`layers_before`."""
    rows, sources = [], layers_before(layers)
    for number, layer in enumerate(layers):
        shape, plan = layout.shapes[number], layout.plans[number]
        source, output = layer.core.input, layer.output
        seen = calibration.ranges[output.tensor]
        saturated = [calibration.ranges[var.tensor].beyond(numbers.tensor(var.root, arch).exponent)
                     for var in layer.outputs if var.root not in numbers.limited]
        meant = any(var.root in numbers.limited or var.name in numbers.limited for var in layer.made)
        moved = traffic(shape, plan.tiling)
        modelled = {"array": moved.array, "dram0": moved.dram0, "dram1": moved.dram1}
        rows.append({
            "name": layer.name, "kind": layer.kind, "macs": layer.macs, "done_macs": done[number],
            "instructions": instructions[number],
            "after": sources[number], "group": 1 if isinstance(layer.core, Load) else layer.core.group,
            "input": [source.channels, *source.size], "output": [output.channels, *output.size],
            "range": [float(f"{seen.low:.6g}"), float(f"{seen.high:.6g}")],
            **numbers.row(number, layer),
            "root_mean_square": float(f"{seen.root_mean_square:.6g}"),
            "table_error": numbers.table_errors.get(output.name),
            "saturated": sum(saturated), "saturates": ON_PURPOSE if meant else BY_RANGES if narrowed else None,
            "resident": not shape.streamed_outputs,
            "tiling": plan.tiling.to_json(), "modelled_vectors": modelled,
            "array_vectors": passed[number], "cost": round(plan.cost),
            "runner_up_cost": None if plan.runner_up is None else round(plan.runner_up),
        })
    return tuple(rows)


def layers_before(layers: Sequence[Layer]) -> list[list[int]]:
    """Return, for each layer, the numbers of the layers that made what it reads.

    The list is empty if it only reads inputs of the program. A tensor that is part of another, or has parts, is read
    with them."""
    makers: dict[str, list[tuple[str, int]]] = {}
    found = []
    for number, layer in enumerate(layers):
        found.append(sorted({maker for var in layer.inputs for name, maker in makers.get(var.root, ())
                             if var.root in (var.name, name) or name == var.name}))
        for var in layer.outputs:
            makers.setdefault(var.root, []).append((var.name, number))
    return found


def total_vectors(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Return the modelled vectors of all rows together."""
    return {key: sum(row["modelled_vectors"][key] for row in rows) for key in ("array", "dram0", "dram1")}
