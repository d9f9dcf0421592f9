"""Fits the model of ``weft resources`` to what yosys counts, block by block, over several machines.

    python scripts/fit_resources.py [--family xc7] [--machine NAME ...] [--check] [--known]

Each block is synthesised once for each content: counts are kept in build/fit/counts.json by a digest of the block's
RTLIL and of the flow, so that a run that was broken off goes on, and a block that nobody touched costs nothing. What
`make synth` left in hw/flow/baseline/ is not synthesised again. Then writes hw/flow/resources.json, which names the
machines. A family of which fewer than ENOUGH machines are known has xc7's fit, each block scaled to what is known.
``--check``: fits nothing, shows the committed model's errors. ``--known``: only machines that are counted already.
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
BASELINE = ROOT / "hw" / "flow" / "baseline"
ENOUGH = 4
"""Machines that a fit of a family of its own needs."""
RIDGE = 1e-4
"""Keeps a number small that the machines do not tell from others."""

SMALL = Arch.load("arty").replace(array_size=4, local_depth=2048, accumulator_depth=512, dram_ports=SHARED)
FITTED: dict[str, Arch] = {
    "tiny": Arch.load("tiny"),
    "lanes2_deep": SMALL.replace(array_size=2, deep_queues=1, sampler=0, local_depth=512, accumulator_depth=256),
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

Fit = dict[str, dict[str, list[float]]]
Counts = dict[str, dict[str, int]]
"""Kind of block -> column -> number, of one block of that kind."""


class NotCounted(Exception):
    """A block that would have to be synthesised."""


class Counter:
    """Counts by content, kept in a file. ``known``: nothing is synthesised; NotCounted is raised instead."""

    def __init__(self, file: Path, known: bool = False) -> None:
        self._file, self._only_known = file, known
        self._kept: dict[str, dict[str, int]] = json.loads(file.read_text()) if file.is_file() else {}
        self._flow = Path(weft.hw.flow.synthesis.__file__).read_bytes()

    def count(self, arch: Arch, family: str, tell: Console) -> Counts:
        """Of every kind of block of a machine."""
        if found := baseline(arch, family):
            return found
        counts: Counts = {}
        for name, text in block_texts(arch).items():
            kind = resources.kind_of(name)
            if kind not in counts:
                counts[kind] = self._block(kind, text.replace(f"core.{name}", f"core.{kind}"), arch, family, tell)
        return counts

    def _block(self, kind: str, text: str, arch: Arch, family: str, tell: Console) -> dict[str, int]:
        key = hashlib.sha256(self._flow + family.encode() + text.encode()).hexdigest()[:20]
        if key not in self._kept:
            if self._only_known:
                raise NotCounted(kind)
            self._kept[key] = synthesize_block(text, arch.number.width, family, FOLDER / "work")
            self._file.write_text(json.dumps(self._kept))
            tell.print(f"  {kind}: {self._kept[key]}")
        return self._kept[key]


def baseline(arch: Arch, family: str) -> Counts:
    """What `make synth` counted of this very machine; empty where it did not."""
    for path in sorted(BASELINE.glob("synth_*.json")):
        if Arch.load(path.stem.removeprefix("synth_")) == arch:
            blocks = json.loads(path.read_text()).get(family, {}).get("blocks", {})
            return {kind: counts for name, counts in blocks.items()
                    if (kind := resources.kind_of(name)) in resources.BLOCKS}
    return {}


def fit(machines: dict[str, Arch], counts: dict[str, Counts]) -> Fit:
    """Column -> kind of block -> a number for each of its terms: least squares of the relative error."""
    found: Fit = {column: {} for column in resources.FITTED}
    for column, kinds in found.items():
        for kind in resources.BLOCKS:
            having = [name for name in machines if kind in counts[name]]
            matrix = np.array([resources.values(machines[name], kind) for name in having])
            wanted = np.array([counts[name][kind][column] for name in having], float)
            kinds[kind] = [rounded(value) for value in solve(matrix, wanted)]
    return found


def scaled(other: Fit, machines: dict[str, Arch], counts: dict[str, Counts]) -> Fit:
    """Another family's fit, each block as much larger as it is on the machines that were counted."""
    found: Fit = {column: {} for column in resources.FITTED}
    for column, kinds in found.items():
        for kind, numbers in other[column].items():
            predicted = sum(float(np.dot(resources.values(arch, kind), numbers)) for arch in machines.values())
            ratio = sum(counts[name][kind][column] for name in machines) / max(predicted, 1)
            kinds[kind] = [rounded(ratio * value) for value in numbers]
    return found


def rounded(value: float) -> float:
    return float(f"{value:.6g}")


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
    right = {column: sum(many * counts[kind][column] for kind, many in copies.items() if many)
             for column in resources.COLUMNS}
    return {column: round(100 * (found[column] - right[column]) / max(1, right[column]), 2) for column in found}


def main(
    family: Annotated[list[str] | None, typer.Option(help="xc7, ecp5; default both")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="of FITTED; default all")] = None,
    check: Annotated[bool, typer.Option("--check", help="show the committed model's errors, fit nothing")] = False,
    known: Annotated[bool, typer.Option("--known", help="only machines that are counted already")] = False,
) -> None:
    console = Console(stderr=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    counter = Counter(FOLDER / "counts.json", known)
    written: dict[str, Any] = {"families": {}, "error": {}, "fitted": {}}
    if resources.MODEL.is_file():
        written |= json.loads(resources.MODEL.read_text())
    for each in family or FAMILIES:
        fitted = {} if check else {name: arch for name, arch in FITTED.items() if not machine or name in machine}
        counts = counted(counter, fitted, each, console)
        if not check:
            machines = {name: FITTED[name] for name in counts}
            written["families"][each] = (fit(machines, counts) if len(machines) >= ENOUGH else
                                         scaled(written["families"]["xc7"], machines, counts))
            written["fitted"][each] = list(counts)
        seen = counted(counter, CHECKED, each, console)
        written["error"][each] = {name: errors(CHECKED[name], each, found, written["families"])
                                  for name, found in seen.items()}
        print(json.dumps({each: written["error"][each]}, indent=1))
        if not check:
            resources.MODEL.write_text(json.dumps(written, indent=1) + "\n")


def counted(counter: Counter, machines: dict[str, Arch], family: str, tell: Console) -> dict[str, Counts]:
    """Of those machines that can be counted."""
    found: dict[str, Counts] = {}
    for name, arch in machines.items():
        try:
            tell.print(f"{family}: {name}")
            found[name] = counter.count(arch, family, tell)
        except NotCounted as block:
            tell.print(f"  left out, {block} is not counted")
    return found


if __name__ == "__main__":
    typer.run(main)
