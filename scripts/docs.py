"""Writes what is generated in docs/: the tables between markers, the page of the blocks, those of the boards.

    python scripts/docs.py [--check] [--measured]

A table stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``; ``TABLES`` makes it. ``--check`` writes
nothing and ends with exit code 1 where a page is not current. ``--measured`` first takes what the benchmarks left in
build/bench/ over into docs/data/bench.json, with the commit that was measured, the reports of bitstreams in
build/boards/ into docs/data/boards.json, and the zoo in build/zoo/ into docs/data/zoo.json.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import block_pages
import board_pages
import typer
import units_picture
import zoo_table

from weft.hw.contract import timing
from weft.hw.contract.arch import LIMITS, POWERS_OF_TWO, Arch, presets
from weft.hw.contract.errors import WeftError, explain, run_script
from weft.hw.contract.instructions import OPERATIONS, DataFlow, Kind, Opcode, SimdOpcode, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.units import UNITS
from weft.hw.flow.reports import summary

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
DATA = DOCS / "data" / "bench.json"
SHARED = DOCS / "data" / "networks.json"
LAUNCH = DOCS / "data" / "launch.json"
FRONT = DOCS / "data" / "front.json"
WALK = DOCS / "data" / "walkthrough.json"
TWINS = DOCS / "data" / "twins.json"
ZOO = DOCS / "data" / "zoo.json"
BENCH = ROOT / "build" / "bench"
ZOO_MADE = ROOT / "build" / "zoo" / "zoo.json"
EXAMPLE = "pynq"
"""The machine whose widths the tables show."""

MARKED = re.compile(r"<!-- generated: ([a-z_]+) -->\n(.*?)<!-- end -->", re.S)

MEANINGS = {
    "data_type": "type of every scalar in local memory and DRAM: `FP<width>BP<point>`, width 4..32, or `INT8`",
    "array_size": "lanes: rows and columns of the array, scalars in a vector",
    "dram0_depth": "window of DRAM0: tensors between layers",
    "dram1_depth": "window of DRAM1: constants",
    "local_depth": "local memory",
    "accumulator_depth": "accumulators",
    "simd_registers_depth": "registers of the SIMD unit, for each lane",
    "stride0_depth": "strides of operand 0: 1, 2, 4, ... so many of them",
    "stride1_depth": "strides of operand 1",
    "number_of_threads": "instruction streams; only one exists",
    "thread_queue_depth": "instructions that the fetch queue holds",
    "mac_rounding": "`once`: exact sums, rounded as they leave the accumulators; `every_step`: as the original machine",
    "accumulator_width": "bits of an accumulator; default twice the data type's, with `every_step` the data type's, "
                         "with `INT8` 32",
    "lut_count": "value tables of the SIMD unit; 0 leaves Lookup out",
    "lut_depth": "entries of each value table",
    "simd_loop_depth": "longest body of a SIMDLoop; 0 leaves the loop out",
    "local_banks": "interleaved banks of local memory",
    "accumulator_banks": "interleaved banks of the accumulators",
    "axi_data_width": "bits of each DRAM port",
    "axi_max_burst": "longest burst, in beats",
    "axi_address_width": "bits of a byte address",
    "stream_width": "bits of the instruction stream",
    "sample_block_size": "performance samples between two `TLAST`",
    "register_slices": "1 cuts the handshakes between blocks: a faster clock for some cycles of latency",
    "dram_ports": "`separate`: an AXI port for each DRAM window; `shared`: one for both, for less logic",
    "deep_queues": "1 lets each unit have 4 operations outstanding, not 2 (MatMul and SIMD 8, not 4)",
    "sampler": "0 leaves performance samples out: `m_axis_sample` stays silent",
    "dsp_packing": "`none`, or the DSP block of a Xilinx chip that makes two products of `INT8`: `DSP48E1` (7 series), "
                   "`DSP48E2` (UltraScale)",
}
"""What each architecture key says."""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)


# -- the contract ------------------------------------------------------------------------------------------------------
@cache
def example() -> dict[str, Any]:
    """All numbers of the example machine."""
    return summary(Arch.load(EXAMPLE))


def parameters() -> str:
    fields = {field.name: field for field in dataclasses.fields(Arch)}
    if set(fields) != set(MEANINGS):
        raise WeftError(explain("MEANINGS of scripts/docs.py", ", ".join(sorted(set(fields) ^ set(MEANINGS))),
                                "one line for each key of Arch", "say what the key means there"))
    return table(("key", "default", "allowed", "meaning"),
                 [(f"`{name}`", default_of(field), allowed_of(name), MEANINGS[name]) for name, field in fields.items()])


def default_of(field: dataclasses.Field) -> str:
    if field.default is dataclasses.MISSING:
        return "none: must be given"
    return "see right" if field.default is None else f"`{field.default}`"


def allowed_of(name: str) -> str:
    if name not in LIMITS:
        return "see right"
    low, high = LIMITS[name]
    return f"{low}..{high}" + (", a power of two" if name in POWERS_OF_TWO else "")


def preset_table() -> str:
    machines = {name: Arch.load(path) for name, path in presets().items()}
    keys = [field.name for field in dataclasses.fields(Arch)
            if len({getattr(arch, field.name) for arch in machines.values()}) > 1]
    rows = [[f"`{key}`", *(getattr(arch, key) for arch in machines.values())] for key in keys]
    rows.append(["bytes of an instruction", *(Isa(arch).instruction_bytes for arch in machines.values())])
    return table(("", *(f"`{name}`" for name in machines)), rows)


def layout() -> str:
    isa = Isa(Arch.load(EXAMPLE))
    rows = [(name, f"{place['offset'] + place['width'] - 1}:{place['offset']}")
            for name, place in example()["instruction"]["fields"].items()]
    holds = {f"operand{number}": f"address {isa.address_widths[number]} bits, log2(stride) above it"
             for number in (0, 1)} | {"operand2": f"size - 1, or the SIMD sub-instruction ({isa.sub_width} bits)"}
    return table(("field", "bits", "holds"), [(name, bits, holds.get(name, "")) for name, bits in reversed(rows)])


def operations() -> str:
    rows = []
    for opcode in Opcode:
        operation, operands = OPERATIONS[opcode], ["", "", ""]
        for field in operation.fields:
            operands[field.operand] = field.name.replace("_", " ") + (" - 1" if field.kind is Kind.SIZE else "")
        flags = ", ".join(f"{bit} {name.replace('_', ' ')}" for bit, name in enumerate(operation.flags))
        rows.append((int(opcode), operation.name, "the flow" if opcode is Opcode.DATA_MOVE else flags, *operands))
    return table(("op", "name", "flags by bit", "operand 0", "operand 1", "operand 2"), rows)


def flows() -> str:
    return table(("flags", "flow"), [(int(flow), flow.name.lower().replace("_", " ")) for flow in DataFlow])


def simd() -> str:
    sources = {0: "none", 1: "left", 2: "left, right"}
    return table(("op", "name", "sources"), [(int(op), op.name, sources[simd_argument_count(op)]) for op in SimdOpcode])


def configure() -> str:
    return table(("register", "name", "bits", "reset", "meaning"), [
        (f"0x{spec['number']:02X}", f"`{name}`", spec["width"], f"0x{spec['reset']:X}", spec["meaning"])
        for name, spec in example()["configure_registers"].items()])


def control() -> str:
    return table(("offset", "name", "access", "meaning"), [
        (f"0x{spec['offset']:03X}", f"`{name}`", spec["access"], spec["meaning"])
        for name, spec in example()["control_registers"].items()])


def causes() -> str:
    return table(("cause", "name", "meaning"), [(spec["number"], f"`{name}`", spec["meaning"])
                                                for name, spec in example()["causes"].items()])


def units() -> str:
    def ranges(unit: str, writes: bool) -> str:
        return ", ".join(access.memory.value for access in UNITS[unit].accesses if access.writes is writes)

    return table(("unit", "reads", "writes"), [(f"`{name}`", ranges(name, False), ranges(name, True))
                                               for name in UNITS])


def cycles() -> str:
    """Every constant of timing.py with the text below it."""
    assert timing.__file__ is not None
    body, rows = ast.parse(Path(timing.__file__).read_text()).body, []
    for node, below in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            value, text = getattr(timing, name), ""
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = " ".join(str(below.value.value).split())
            if isinstance(value, int):
                rows.append((f"`{name}`", value, text))
    return table(("name", "value", "meaning"), rows)


# -- what was measured -------------------------------------------------------------------------------------------------
PARTS = {"networks": ("results.json", "make bench", ("network", "arch")),
         "scaling": ("scaling.json", "make bench-scaling", ("axis", "value")),
         "units": ("units.json", "make bench-units", ("machine", "case"))}
"""Part of the data -> its file in build/bench/, the command that writes it, what names a row."""


@cache
def data() -> dict[str, Any]:
    return json.loads(DATA.read_text())


def origin(part: str) -> str:
    """The line above a table: command, commit, and what else is to be said."""
    found = data()[part]
    return f"`{found['command']}` at commit `{found['commit']}`. {found['note']}".rstrip() + "\n\n"


def networks() -> str:
    rows = []
    for row in data()["networks"]["rows"]:
        cycles, hz = row["cycles_rtl"] or row["cycles_estimated"], 1e6 * row["clock_mhz"]
        rows.append((row["network"], f"`{row['arch']}`", number(row["cycles_rtl"]), number(row["cycles_estimated"]),
                     number(row["limit_cycles"]), f"{row['limit_cycles'] / cycles:.1%}", f"{1e3 * cycles / hz:.2f}",
                     f"{hz / cycles:.1f}", {True: "yes", False: "**no**", None: ""}[row["bit_exact"]]))
    return origin("networks") + table(("network", "machine", "cycles in RTL", "estimated", "limit", "of limit", "ms",
                                       "frames/s", "RTL equals golden"), rows)


def shared_networks() -> str:
    found = json.loads(SHARED.read_text())
    rows = [(row["network"] + " *" * row["earlier"], f"{100 * row['share']:.1f} %",
             ", ".join(f"{count} {name}" for name, count in row["host"].items()), row["decibels"], row["answer"],
             row["seconds"], number(row["cycles"])) for row in found["rows"]]
    return f"On `{found['arch']}` at commit `{found['commit']}`.\n\n" + table(
        ("network", "on the machine", "on the host", "dB", "answers", "compile s", "cycles"), rows)


def twins() -> str:
    rows = [(row["network"], number(row["bytes"]), number(row["off"]), f"{100 - 100 * row['off'] / row['bytes']:.3f} %",
             row["most"], "" if row["equal"] is None else f"{row['equal']} of {row['images']}",
             "equal" if row["decibels"] is None else f"{row['decibels']:.1f}") for row in json.loads(TWINS.read_text())]
    return table(("network", "bytes of layers", "off", "equal", "off by at most", "top-1 equal", "dB"), rows)


def scaling() -> str:
    rows: dict[str, list[tuple[int, str]]] = {}
    for row in data()["scaling"]["rows"]:
        share = "does not fit" if row["of_limit"] is None else f"{100 * row['of_limit']:.0f} %"
        rows.setdefault(row["axis"], []).append((row["value"], share))
    lines = "".join(table((f"`{axis}`", *(value for value, _ in found)), [("of limit", *(share for _, share in found))])
                    + "\n" for axis, found in rows.items())
    return origin("scaling") + lines.rstrip("\n") + "\n"


def unit_cycles() -> str:
    if "units" not in data():
        return "No numbers are committed. `make bench-units` measures them, `make docs MEASURED=1` brings them here.\n"
    rows = [(row["machine"], row["case"], number(row["cycles"]), number(row["best"] or None),
             f"{row['best'] / row['cycles']:.1%}" if row["best"] else "",
             "" if row["bar"] is None else number(round(row["bar"]))) for row in data()["units"]["rows"]]
    return origin("units") + table(("machine", "case", "cycles", "least possible", "of it", "most allowed"), rows)


def launch_times() -> str:
    """What scripts/launch_timeline.py measured."""
    found = json.loads(LAUNCH.read_text())
    phases = ("pack", "write", "read", "unpack", "driver", "run")
    return table(("device", "pack", "write", "read", "unpack", "driver in all", "the machine's run"),
                 [(f"`{device}`", *(f"{times[phase]:.2f}" for phase in phases)) for device, times in found.items()])


def walkthrough() -> str:
    if not WALK.exists():
        return "No walk is committed. `scripts/walkthrough.py` walks.\n"
    found = json.loads(WALK.read_text())
    rows = [(row["part"], f"`{row['command']}`".replace("|", "\\|"), row["seconds"], row["cpu_seconds"],
             row["exit_code"]) for row in found["rows"]]
    return f"Commit `{found['commit'][:12]}`, {found['date']}.\n\n" + table(
        ("from", "command", "seconds", "CPU seconds", "exit code"), rows)


def bitstreams() -> str:
    if not board_pages.reports():
        return ("No numbers are committed. `make bitstream BOARD=` makes a bitstream, `make docs MEASURED=1` brings "
                "its numbers here.\n")
    return table(board_pages.HEAD, board_pages.summary())


def front() -> str:
    if not FRONT.is_file():
        return "No numbers are committed. `scripts/check_front.py --write` measures them, `make docs` has them here.\n"

    def cell(predicted: int, seen: int) -> str:
        return f"{number(seen)} ({100 * (predicted - seen) / max(1, seen):+.1f} %)"

    found = json.loads(FRONT.read_text())
    rows = [(", ".join(f"{key} {value}" for key, value in row["searched"].items()),
             *(cell(*pair) for pair in row["pairs"].values())) for row in found["rows"]]
    return (f"{found['model']} on {found['part']}, of {found['front']} machines on the front, at commit "
            f"`{found['commit']}`; in brackets how far the prediction is off.\n\n"
            + table(("machine", *found["rows"][0]["pairs"]), rows))


NO_ZOO = "No numbers are committed. `make zoo` measures them, `make docs MEASURED=1` brings them here.\n"
IN_README = ("mlperf_tiny_resnet8", "resnet20v2", "yolo_fastest_1_1_coco_320", "mobilenetv2_1.0_224", "resnet50v2_224")
"""Networks of the README's table."""
ABOVE_README = """\
How fast that is: milliseconds an image at the clock of each preset's board, estimated (to the cycle what the RTL
takes), in brackets how much of the array's multipliers is in use. [docs/zoo.md](docs/zoo.md) has all networks and all
presets, with accuracy and look-up tables; `make zoo` measures it.

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
    cells = {(row["network"], row["arch"]): f"{row['ms']:.2f} ({row['utilization']:.0%})" for row in found["rows"]}
    machines = [name for name in presets() if all((network, name) in cells for network in IN_README)]
    rows = [(network, *(cells[network, name] for name in machines)) for network in IN_README]
    return ABOVE_README + table(("", *(f"`{name}`" for name in machines)), rows)


def number(value: int | None) -> str:
    return "" if value is None else f"{value:,}".replace(",", " ")


def take_over_zoo() -> bool:
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


def take_over() -> None:
    """build/bench/ into the committed data, each part with the commit that is checked out."""
    if git("status", "--porcelain", "--", ".", ":!docs"):
        raise WeftError(explain("what was measured", "changes that are in no commit", "a committed state",
                                "commit, run the benchmark, then this again"))
    new = json.loads(DATA.read_text())
    taken = [part for part in PARTS if (BENCH / PARTS[part][0]).is_file()]
    if not taken:
        raise WeftError(explain("build/bench", "no results", ", ".join(name for name, _, _ in PARTS.values()),
                                "run make bench first"))
    for part in taken:
        new[part] = checked(part, new.get(part, {}).get("rows", []))
    DATA.write_text(json.dumps(new, indent=1) + "\n")


def checked(part: str, before: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One part of build/bench/: measured at this commit, and no less of it than there was."""
    name, command, keys = PARTS[part]
    file = BENCH / name
    if file.stat().st_mtime < int(git("log", "-1", "--format=%ct")):
        raise WeftError(explain(str(file), "results older than the commit", "results of this commit",
                                f"run {command} again, or remove the file"))
    rows = json.loads(file.read_text())
    insist_on_rows(file, command, keys, before, rows)
    return {"commit": git("rev-parse", "HEAD"), "command": command, "note": "", "rows": rows}


def insist_on_rows(file: Path, command: str, keys: Sequence[str], before: Sequence[dict[str, Any]],
                   rows: Sequence[dict[str, Any]]) -> None:
    """Raises WeftError where a row of ``before`` is gone."""
    known = {tuple(row[key] for key in keys) for row in rows}
    if gone := [row for row in before if tuple(row[key] for key in keys) not in known]:
        raise WeftError(explain(str(file), f"no row for {' '.join(str(gone[0][key]) for key in keys)}",
                                "all rows that docs/data has", f"run {command} in full"))


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


# -- pages -------------------------------------------------------------------------------------------------------------
TABLES: dict[str, Callable[[], str]] = {
    "parameters": parameters, "presets": preset_table, "layout": layout, "operations": operations, "flows": flows,
    "simd": simd, "configure": configure, "control": control, "causes": causes, "units": units, "cycles": cycles,
    "networks": networks, "scaling": scaling, "unit_cycles": unit_cycles,
    "bitstreams": bitstreams, "launch": launch_times, "front": front, "walkthrough": walkthrough,
    "shared_networks": shared_networks,
    "twins": twins, "zoo": zoo, "zoo_in_readme": zoo_in_readme,
}


def filled(text: str) -> str:
    """A page with every table between markers made anew."""
    return MARKED.sub(lambda found: f"<!-- generated: {found[1]} -->\n{TABLES[found[1]]()}<!-- end -->", text)


def pages() -> dict[Path, str]:
    """Every page that is generated, or holds a table that is -> what it should be."""
    marked = {path: filled(path.read_text()) for path in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
              if MARKED.search(path.read_text())}
    return {**marked, block_pages.FILE: block_pages.text(), units_picture.FILE: units_picture.text(),
            **board_pages.pages()}


def main(
    check: Annotated[bool, typer.Option("--check", help="say which page is not current, write nothing")] = False,
    measured: Annotated[bool, typer.Option("--measured", help="take over what the benchmarks measured")] = False,
) -> None:
    if measured:
        others = board_pages.take_over() + take_over_zoo()
        if BENCH.is_dir() or not others:
            take_over()
    old = [(path, text) for path, text in pages().items() if not path.exists() or path.read_text() != text]
    if check and old:
        raise WeftError(explain("docs", f"{', '.join(str(path.relative_to(ROOT)) for path, _ in old)}, not current",
                                "what scripts/docs.py writes", "run make docs"))
    for path, text in old:
        path.with_suffix(".tmp").write_text(text)
        path.with_suffix(".tmp").replace(path)
        print(f"written: {path.relative_to(ROOT)}")


if __name__ == "__main__":
    run_script(lambda: typer.run(main))
