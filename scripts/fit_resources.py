# SPDX-License-Identifier: Apache-2.0
"""Fit the model of ``weft resources`` to what yosys counts, block by block, over several machines.

    python scripts/fit_resources.py [--family xc7] [--machine NAME ...] [--known] [--check]

After a change of the hardware run it without options: a block whose RTLIL is as it was keeps its counts, the others
are synthesised again, several in one yosys. Counts go into hw/flow/baseline/blocks.jsonl after every batch, so that
a run that was broken off goes on. Then it writes hw/flow/resources.json: numbers, machines and errors. A family of
which fewer than ENOUGH machines are known has xc7's fit, each block scaled to what is known. ``--known``: nothing is
synthesised, the file's counts are fitted. ``--check``: nothing is fitted, the committed model's errors are shown."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import identity
from weft.hw.contract.key_values import SEPARATE, SHARED
from weft.hw.contract.packing import NO_PACKING
from weft.hw.flow import resources
from weft.hw.flow.parts import PARTS
from weft.hw.flow.synthesis import DEFAULT_PARTS, USUAL, BlockText, block_texts, digest_of_block, synthesize_blocks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "fit"
COUNTED = ROOT / "hw" / "flow" / "baseline" / "blocks.jsonl"
ENOUGH = 4
"""The machines that a fit of a family of its own needs."""
BATCH = 4
"""The blocks in one yosys, after which their counts are kept."""
RIDGE = 1e-4
"""The weight of a term's own size, which keeps numbers small that the machines do not tell apart."""

OPTIONS = ("depthwise_taps", "join_cycles", "output_maximum", "output_slope", "sync_counters")
"""Keys by which some of the machines below differ from another one, and no more."""

PACKED6 = Arch.load("ultra96_int8").replace(array_size=6, local_depth=4096, accumulator_depth=1024, activation_tables=0)
PACKED8 = Arch.load("pynq_int8").replace(array_size=8, activation_tables=0)
SMALL = Arch.load("arty").replace(array_size=4, local_depth=2048, accumulator_depth=512, dram_ports=SHARED)
LANES5 = SMALL.replace(array_size=5, local_depth=16384, accumulator_depth=4096, simd_registers_depth=2,
                       axi_data_width=128)
WIDE = LANES5.replace(stream_width=128)
FITTED: dict[str, Arch] = {
    "tiny": Arch.load("tiny"),
    "lanes2_deep": SMALL.replace(array_size=2, deep_queues=1, sampler=0, local_depth=512, accumulator_depth=256),
    "lanes2": SMALL.replace(array_size=2, dram_ports=SEPARATE, accumulator_banks=1, simd_registers_depth=0),
    "lanes3_every_step": SMALL.replace(array_size=3, mac_rounding="every_step", local_banks=1, stream_width=32),
    "lanes3_rows": SMALL.replace(array_size=3, local_depth=512, weight_load_rows=2),
    "lanes4": SMALL,
    "lanes4_tables": SMALL.replace(decoder_multipliers=0),
    "lanes4_slices": SMALL.replace(register_slices=1, local_banks=2, simd_registers_depth=2, dram_ports=SEPARATE),
    "lanes4_lut": SMALL.replace(data_type="FP18BP10", lut_count=2, simd_registers_depth=3, axi_data_width=32,
                                accumulator_banks=4),
    "lanes5": LANES5,
    "lanes6_8bit": SMALL.replace(array_size=6, data_type="FP8BP4", local_depth=4096, local_banks=2, simd_loop_depth=0),
    "lanes6_slices": SMALL.replace(array_size=6, register_slices=1, dram0_depth=1 << 24),
    "lanes2_int8": SMALL.replace(array_size=2, data_type="INT8", local_depth=512),
    "lanes4_int8": SMALL.replace(data_type="INT8", local_banks=2, dram_ports=SEPARATE),
    "lanes6_int8_banks": SMALL.replace(array_size=6, data_type="INT8", local_depth=4096, local_banks=2,
                                       accumulator_banks=1),
    "lanes8_int8": SMALL.replace(array_size=8, data_type="INT8", local_depth=8192, accumulator_depth=1024,
                                 local_banks=4),
    "lanes4_taps": SMALL.replace(depthwise_taps=3),
    "lanes9": SMALL.replace(array_size=9),
    "lanes9_taps9": SMALL.replace(array_size=9, depthwise_taps=9),
    "lanes18_packed": PACKED6.replace(array_size=18),
    "lanes18_packed_taps9": PACKED6.replace(array_size=18, depthwise_taps=9),
    "lanes4_maximum": SMALL.replace(output_maximum=1),
    "lanes4_slope": SMALL.replace(output_slope=1),
    "lanes6_packed": PACKED6,
    "lanes6_packed_taps": PACKED6.replace(depthwise_taps=3),
    "lanes6_packed_rows": PACKED6.replace(activation_tables=8, weight_load_rows=2),
    "lanes8_packed": PACKED8,
    "lanes8_rows": PACKED8.replace(dsp_packing=NO_PACKING, activation_tables=2, weight_load_rows=2),
    "arty": Arch.load("arty"),
    "arty_taps": Arch.load("arty").replace(depthwise_taps=3),
    "pynq": Arch.load("pynq"),
    "lanes4_2cores": SMALL.replace(cores=2),
    "lanes4_3cores": SMALL.replace(cores=3),
    "lanes4_4cores_2ports": SMALL.replace(cores=4, memory_ports=2),
    "lanes4_6cores": SMALL.replace(cores=6),
    "lanes4_2cores_2counters": SMALL.replace(cores=2, sync_counters=2),
    "lanes4_4cores_4counters": SMALL.replace(cores=4, memory_ports=2, sync_counters=4),
    "lanes4_6cores_16counters": SMALL.replace(cores=6, sync_counters=16),
    "lanes4_2cores_join": SMALL.replace(cores=2, join_cycles=255),
    "lanes4_6cores_join": SMALL.replace(cores=6, join_cycles=4095),
    "lanes5_2cores_2ports": WIDE.replace(cores=2, memory_ports=2),
    "lanes5_4cores": WIDE.replace(cores=4),
}
"""Name -> machine to fit: small ones tell what depends on what, large ones how it grows."""
CHECKED: dict[str, Arch] = {
    "lanes4_banks": SMALL.replace(local_banks=2, simd_registers_depth=2, local_depth=4096),
    "lanes6_int8": SMALL.replace(array_size=6, data_type="INT8", axi_data_width=128),
    "lanes5_int8_banks": SMALL.replace(array_size=5, data_type="INT8", local_banks=4, dram_ports=SEPARATE),
    "lanes7": SMALL.replace(array_size=7, dram_ports=SEPARATE, axi_data_width=128),
    "ecpix5": Arch.load("ecpix5"),
    "lanes5_4cores_2ports": WIDE.replace(cores=4, memory_ports=2),
    "zcu104_4x16_counters": Arch.load("zcu104_4x16").replace(sync_counters=4),
    **{name: Arch.load(name) for name in ("zcu104", "arty_int8", "pynq_int8", "ultra96_int8", "zcu104_int8",
                                          "zcu104_int8_taps9")},
}
"""Name -> machine that is not fitted: these tell the error."""

Fit = dict[str, dict[str, list[float | None]]]
Counts = dict[str, dict[str, int]]
"""Kind of block -> column -> count of one block of that kind."""


class Row(NamedTuple):
    """A line of the file: the ``counts`` of a block of one kind on one machine.

    ``arch``: a digest of the machine's keys; ``key``: a digest of the block's RTLIL and of the flow; ``commit``:
    where it was counted."""

    family: str
    machine: str
    block: str
    arch: str
    key: str
    commit: str
    counts: dict[str, int]


class Counted:
    """The counts so far, in a file that is written again after each batch."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.is_file() else []
        self._rows = {row[:3]: row for line in lines for row in [Row(**json.loads(line))]}

    def by_key(self) -> dict[str, Row]:
        """Return digest of a block -> its row."""
        return {row.key: row for row in self._rows.values()}

    def put(self, rows: list[Row]) -> None:
        """Add rows, and write the file."""
        self._rows |= {row[:3]: row for row in rows}
        text = "".join(json.dumps(self._rows[place]._asdict()) + "\n" for place in sorted(self._rows))
        self._path.write_text(text)

    def of(self, name: str, arch: Arch, family: str) -> Counts | None:
        """Return the counts of a machine; None if one of its blocks, or the machine as it is now, is not counted."""
        found = {kind: row.counts for kind in resources.BLOCKS
                 if (row := self._rows.get((family, name, kind))) and row.arch == digest(arch)}
        return found if all(kind in found for kind, many in resources.blocks_of(arch).items() if many) else None


def on(family: str, machines: dict[str, Arch]) -> dict[str, Arch]:
    """Return the machines that a chip of the family can have: only on Xilinx two products share a multiplier."""
    part = PARTS[DEFAULT_PARTS[family]]
    return machines if family == "xc7" else {
        name: arch for name, arch in machines.items()
        if not arch.packing and sum(resources.dsp_blocks(arch, family).values()) <= part.dsp}


def digest(arch: Arch) -> str:
    """Return a digest of a machine's keys."""
    return hashlib.sha256(json.dumps(identity(arch), sort_keys=True).encode()).hexdigest()[:12]


# -- counting ----------------------------------------------------------------------------------------------------------
def count(counted: Counted, machines: dict[str, Arch], family: str, tell: Console) -> None:
    """Count every kind of block of these machines, each content once."""
    for name, arch in machines.items():
        tell.print(f"{family}: {name}")
        texts: dict[str, BlockText] = {}
        for block, text in block_texts(arch).items():
            if (kind := resources.kind_of(block)) in resources.BLOCKS:
                texts.setdefault(kind, BlockText(text.replace(f"core.{block}", f"core.{kind}"), arch.number.width,
                                                         arch.packing))
        keys = {kind: digest_of_block(block, family) for kind, block in texts.items()}
        known = counted.by_key()
        counted.put([known[key]._replace(machine=name, arch=digest(arch))
                     for key in keys.values() if key in known])
        missing = [kind for kind in texts if keys[kind] not in known]
        for start in range(0, len(missing), BATCH):
            found = synthesize_blocks({kind: texts[kind] for kind in missing[start:start + BATCH]}, family, FOLDER)
            counted.put([Row(family, name, kind, digest(arch), keys[kind], commit(), counts)
                         for kind, counts in found.items()])
            for kind, counts in found.items():
                tell.print(f"  {kind}: {counts}")


def commit() -> str:
    """Return the commit of the sources, with "-dirty" behind it if they differ from it.

    Counts and their fit do not count as sources."""
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    made = [f":(exclude){path.resolve().relative_to(ROOT)}" for path in (COUNTED, resources.MODEL)]
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *made)
    return git("describe", "--always", "--exclude=*") + ("-dirty" if changed else "")


# -- fitting -----------------------------------------------------------------------------------------------------------
def like_its_twin(machines: dict[str, Arch], name: str, kind: str) -> bool:
    """Return whether the machine's twin without OPTIONS is there, and nothing of this block depends on them.

    Such a block would only count twice."""
    arch = machines[name]
    twin = arch.replace(**dict.fromkeys(OPTIONS, 0))
    return twin != arch and twin in machines.values() and bool(
        (resources.values(arch, kind) == resources.values(twin, kind)).all())


def fit(machines: dict[str, Arch], counts: dict[str, Counts]) -> Fit:
    """Return column -> kind of block -> a number for each of its terms, None for a term that is zero on all machines.

    The fit is by least squares of a block's error as a share of its whole machine."""
    found: Fit = {column: {} for column in resources.FITTED}
    for column, kinds in found.items():
        whole = {name: sum(many * counts[name][kind][column]
                           for kind, many in resources.blocks_of(arch).items() if many)
                 for name, arch in machines.items()}
        for kind, terms in resources.BLOCKS.items():
            having = [name for name in machines if kind in counts[name] and not like_its_twin(machines, name, kind)]
            matrix = np.array([resources.values(machines[name], kind) for name in having]).reshape(-1, len(terms))
            wanted = np.array([counts[name][kind][column] for name in having], float)
            weight = 1 / np.array([whole[name] for name in having], float)
            kinds[kind] = [rounded(value) if seen else None
                           for value, seen in zip(solve(matrix, wanted, weight), (matrix != 0).any(0), strict=True)]
    return found


def scaled(other: Fit, machines: dict[str, Arch], counts: dict[str, Counts]) -> Fit:
    """Return another family's fit, with each block as much larger as it is on the machines that were counted."""
    found: Fit = {column: {} for column in resources.FITTED}
    for column, kinds in found.items():
        for kind, numbers in other[column].items():
            having = [name for name in machines if kind in counts[name]]
            predicted = sum(resources.of_block(machines[name], kind, numbers) for name in having)
            ratio = sum(counts[name][kind][column] for name in having) / max(predicted, 1)
            kinds[kind] = [None if value is None else rounded(ratio * value) for value in numbers]
    return found


def rounded(value: float) -> float:
    """Return a number with six digits, as the file has it."""
    return float(f"{value:.6g}")


def solve(matrix: np.ndarray, wanted: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return the numbers of the best fit that are not negative, so that what was not seen grows as what was.

    Terms that want to be negative are left out one by one, the most negative first."""
    result, used = np.zeros(matrix.shape[1]), (matrix != 0).any(0)
    if not used.any():
        return result
    weighted = matrix * weight[:, None]
    scale = np.maximum(np.abs(weighted).max(0), 1e-12)
    weighted = weighted / scale
    while used.any():
        chosen = weighted[:, used]
        gram = chosen.T @ chosen + RIDGE * np.eye(chosen.shape[1])
        part = np.linalg.solve(gram, chosen.T @ (wanted * weight))
        if part.min() >= 0:
            result[used] = part / scale[used]
            return result
        used[np.flatnonzero(used)[part.argmin()]] = False
    return result


def errors(arch: Arch, family: str, counts: Counts, model: dict[str, Any]) -> dict[str, float] | None:
    """Return column -> percent of the whole machine that the model is off; None if it does not know the machine."""
    if resources.unknown(arch, family, model):
        return None
    predicted, copies = resources.predict(arch, family, model), resources.blocks_of(arch)
    found = {column: sum(block.get(column, 0) for block in predicted.values()) for column in resources.COLUMNS}
    right = {column: sum(many * counts[kind][column] for kind, many in copies.items() if many)
             for column in resources.COLUMNS}
    return {column: round(100 * (found[column] - right[column]) / max(1, right[column]), 2) for column in found}


def left_out(family: str, counts: dict[str, Counts]) -> dict[str, dict[str, float]]:
    """Return each machine's errors with all others fitted."""
    found = {}
    for name in counts:
        others = {other: FITTED[other] for other in counts if other != name}
        error = errors(FITTED[name], family, counts[name], {family: fit(others, counts)})
        if error is not None:
            found[name] = error
    return found


# -- the command -------------------------------------------------------------------------------------------------------
def main(
    family: Annotated[list[str] | None, typer.Option(help="xc7, ecp5; default both")] = None,
    machine: Annotated[list[str] | None, typer.Option(help="to count, of FITTED and CHECKED; default all")] = None,
    known: Annotated[bool, typer.Option("--known", help="fit what the file has, synthesise nothing")] = False,
    check: Annotated[bool, typer.Option("--check", help="the committed model's errors, nothing else")] = False,
) -> None:
    """Count, fit, and write the model."""
    console, counted = Console(stderr=True), Counted(COUNTED)
    FOLDER.mkdir(parents=True, exist_ok=True)
    every = {name: arch for name, arch in (FITTED | CHECKED).items() if not machine or name in machine}
    model: dict[str, Any] = {"families": {}, "error": {}, "left_out": {}, "fitted": {}, "numbers": {}}
    model |= json.loads(resources.MODEL.read_text()) if resources.MODEL.is_file() else {}
    for each in family or USUAL:
        if not known and not check:
            count(counted, on(each, every), each, console)
        counts = {name: found for name, arch in on(each, FITTED).items() if (found := counted.of(name, arch, each))}
        if counts and not check:
            machines = {name: FITTED[name] for name in counts}
            own = len(machines) >= ENOUGH
            model["families"][each] = (fit(machines, counts) if own else
                                       scaled(model["families"]["xc7"], machines, counts))
            model["numbers"][each] = sorted({arch.scheme.name for arch in machines.values()})
            model["fitted"][each], model["left_out"][each] = list(counts), left_out(each, counts) if own else {}
        seen = {name: found for name, arch in on(each, CHECKED).items() if (found := counted.of(name, arch, each))}
        model["error"][each] = {name: error for name, found in seen.items()
                                if (error := errors(CHECKED[name], each, found, model["families"]))}
        print(json.dumps({key: model[key].get(each) for key in ("error", "left_out")}, indent=1))
    if not check:
        resources.MODEL.write_text(json.dumps(model, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
