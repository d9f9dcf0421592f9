"""Fits the model of ``weft resources`` to what yosys counts, block by block, over several machines.

    python scripts/fit_resources.py [--family xc7] [--machine NAME ...] [--check]

Each block is synthesised once for each content: counts are kept in build/fit/counts.json by a digest of the block's
RTLIL and of the flow, so that a run that was broken off goes on, and a block that nobody touched costs nothing. Then
writes hw/flow/resources.json. ``--check``: fits nothing, shows the committed model's errors.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

import weft.hw.flow.synthesis
from weft.hw.contract.arch import SEPARATE, SHARED, Arch
from weft.hw.flow import resources
from weft.hw.flow.synthesis import FAMILIES, block_texts, synthesize_block

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "fit"
RIDGE = 1e-4
"""Keeps a number small that the machines do not tell from others."""

SMALL = Arch.load("arty").replace(array_size=4, local_depth=2048, accumulator_depth=512, dram_ports=SHARED)
FITTED: dict[str, Arch] = {
    "tiny": Arch.load("tiny"),
    "lanes2": SMALL.replace(array_size=2, dram_ports=SEPARATE, accumulator_banks=1, simd_registers_depth=0),
    "lanes3_every_step": SMALL.replace(array_size=3, mac_rounding="every_step", local_banks=1, stream_width=32),
    "lanes4": SMALL,
    "lanes4_slices": SMALL.replace(register_slices=1, local_banks=2, simd_registers_depth=2, dram_ports=SEPARATE),
    "lanes4_lut": SMALL.replace(data_type="FP18BP10", lut_count=2, simd_registers_depth=3, axi_data_width=32,
                                accumulator_banks=4),
    "lanes5": SMALL.replace(array_size=5, local_depth=16384, accumulator_depth=4096, simd_registers_depth=2,
                            axi_data_width=128),
    "lanes6_8bit": SMALL.replace(array_size=6, data_type="FP8BP4", local_depth=4096, local_banks=2, simd_loop_depth=0),
    "lanes6_slices": SMALL.replace(array_size=6, register_slices=1, dram0_depth=1 << 24),
    "arty": Arch.load("arty"),
    "pynq": Arch.load("pynq"),
}
"""Name -> machine: small ones tell what depends on what, large ones how it grows."""
CHECKED: dict[str, Arch] = {
    "lanes4_banks": SMALL.replace(local_banks=2, simd_registers_depth=2, local_depth=4096),
    "lanes7": SMALL.replace(array_size=7, dram_ports=SEPARATE, axi_data_width=128),
    "ecpix5": Arch.load("ecpix5"),
    "ultra96": Arch.load("ultra96"),
}
"""Machines that are not fitted: they tell the error."""

Counts = dict[str, dict[str, int]]
"""Kind of block -> column -> number, of one block of that kind."""


class Counter:
    """Counts by content, kept in a file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._kept: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.is_file() else {}
        self._flow = Path(weft.hw.flow.synthesis.__file__).read_bytes()

    def count(self, arch: Arch, family: str, tell: Console) -> Counts:
        """Of every kind of block of a machine."""
        counts: Counts = {}
        for name, text in block_texts(arch).items():
            kind = resources.kind_of(name)
            if kind not in counts:
                counts[kind] = self._block(kind, text.replace(f"core.{name}", f"core.{kind}"), arch, family, tell)
        return counts

    def _block(self, kind: str, text: str, arch: Arch, family: str, tell: Console) -> dict[str, int]:
        key = hashlib.sha256(self._flow + family.encode() + text.encode()).hexdigest()[:20]
        if key not in self._kept:
            self._kept[key] = synthesize_block(text, arch.number.width, family, FOLDER / "work")
            self._file.write_text(json.dumps(self._kept))
            tell.print(f"  {kind}: {self._kept[key]}")
        return self._kept[key]


def fit(machines: dict[str, Arch], counts: dict[str, Counts]) -> dict[str, dict[str, list[float]]]:
    """Column -> kind of block -> a number for each of its terms: least squares of the relative error."""
    found: dict[str, dict[str, list[float]]] = {column: {} for column in resources.FITTED}
    for column, kinds in found.items():
        for kind in resources.BLOCKS:
            matrix = np.array([resources.values(arch, kind) for arch in machines.values()])
            wanted = np.array([counts[name][kind][column] for name in machines], float)
            kinds[kind] = [float(f"{value:.6g}") for value in solve(matrix, wanted)]
    return found


def solve(matrix: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Numbers that are not negative, so that what was not seen grows as what was: terms that want to be are left out
    one by one, the most negative first."""
    weight = 1 / np.maximum(wanted, 1)
    weighted = matrix * weight[:, None]
    scale = np.maximum(np.abs(weighted).max(0), 1e-12)
    scaled = weighted / scale
    used, result = np.abs(matrix).max(0) > 0, np.zeros(matrix.shape[1])
    while used.any():
        chosen = scaled[:, used]
        gram = chosen.T @ chosen + RIDGE * np.eye(chosen.shape[1])
        part = np.linalg.solve(gram, chosen.T @ (wanted * weight))
        if part.min() >= 0:
            result[used] = part / scale[used]
            return result
        used[np.flatnonzero(used)[part.argmin()]] = False
    return result


def errors(arch: Arch, family: str, counts: Counts, model: dict[str, Any]) -> dict[str, float]:
    """Column -> percent of the whole machine that the model is off."""
    predicted, copies = resources.predict(arch, family, model), resources.blocks_of(arch)
    found = {column: sum(block.get(column, 0) for block in predicted.values()) for column in resources.COLUMNS}
    right = {column: sum(copies[kind] * counts[kind][column] for kind in copies) for column in resources.COLUMNS}
    return {column: round(100 * (found[column] - right[column]) / max(1, right[column]), 2) for column in found}


def main(
    family: Annotated[list[str] | None, typer.Option(help="xc7, ecp5; default both")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="of FITTED; default all")] = None,
    check: Annotated[bool, typer.Option("--check", help="show the committed model's errors, fit nothing")] = False,
) -> None:
    console = Console(stderr=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    counter = Counter(FOLDER / "counts.json")
    written: dict[str, Any] = {"families": {}, "error": {}}
    if resources.MODEL.is_file():
        written = json.loads(resources.MODEL.read_text())
    fitted = {name: arch for name, arch in FITTED.items() if not machine or name in machine}
    for each in family or FAMILIES:
        counts = {}
        for name, arch in ({} if check else fitted).items():
            console.print(f"{each}: {name}")
            counts[name] = counter.count(arch, each, console)
        if not check:
            written["families"][each] = fit(fitted, counts)
        seen = {}
        for name, arch in CHECKED.items():
            console.print(f"{each}: {name}, not fitted")
            seen[name] = errors(arch, each, counter.count(arch, each, console), written["families"])
        written["error"][each] = seen
        print(json.dumps({each: seen}, indent=1))
        if not check:
            resources.MODEL.write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
