# SPDX-License-Identifier: Apache-2.0
"""Write a board's Vivado project: ``build.tcl`` is all that Vivado has to run.

A Zynq gets a block design with its processors (``zynq.py``), other boards the LiteX shell (``boards/shell``)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.boards.board import Board
from weft.boards.shell import bitstream
from weft.boards.shell.delivery import READY, building, deliver
from weft.boards.shell.machine import MACHINE, Machine
from weft.boards.vivado import block, zynq
from weft.boards.vivado.readme import readme
from weft.boards.vivado.ultra_ram import in_ultra_ram
from weft.hw.contract.arch import Arch
from weft.hw.flow.memories import ultra_rams
from weft.hw.flow.parts import PARTS
from weft.hw.flow.verilog import converted
from weft.hw.system import with_ports

Tell = Callable[[str], None]
PROJECT = "vivado"
TOP = f"{zynq.DESIGN}_wrapper"

_BUILD = """\
# Run in this folder: vivado -mode batch -source build.tcl
# Ends with an error when a clock is missed; leaves {key}.bit and {key}.hwh beside this folder.
create_project {design} project -part {device} -force
add_files {{{machine}.v {block}.v}}
add_files -fileset constrs_1 {key}.xdc
update_compile_order -fileset sources_1
source design.tcl
make_wrapper -files [get_files {design}.bd] -top -import
set_property top {top} [current_fileset]
launch_runs impl_1 -jobs 4
wait_on_run impl_1
if {{[get_property PROGRESS [get_runs impl_1]] ne "100%"}} {{
    error "synthesis or place and route failed: read project/{design}.runs/*/runme.log"
}}
set slack [get_property STATS.WNS [get_runs impl_1]]
if {{$slack < 0}} {{
    error "the clock of {mhz:g} MHz is missed by $slack ns: weft board build {key} --mhz LESS"
}}
launch_runs impl_1 -to_step write_bitstream
wait_on_run impl_1
file copy -force project/{design}.runs/impl_1/{top}.bit ../{key}.bit
file copy -force [lindex [glob project/{design}.gen/sources_1/bd/{design}/hw_handoff/{design}.hwh \\
    project/{design}.srcs/sources_1/bd/{design}/hw_handoff/{design}.hwh] 0] ../{key}.hwh
"""
_CONSTRAINTS = """\
# No pin of the logic is used: memory and links are the processors'. Vivado knows their clock from the block design.
set_property BITSTREAM.GENERAL.COMPRESS TRUE [current_design]
"""


def build(board: Board, arch: Arch, folder: Path, *, clock_hz: float | None = None,
          tell: Tell = lambda stage: None) -> dict[str, Any]:
    """Write the project in ``folder``/vivado, which replaces the last one only as a whole; return its report.

    Raise WeftError if the machine does not go with the board."""
    with building(folder) as work:
        found = _write(board, arch, work / READY, clock_hz, tell)
        deliver(work, folder, found)
    return found


def _write(board: Board, arch: Arch, ready: Path, clock_hz: float | None, tell: Tell) -> dict[str, Any]:
    """Write the project below ``ready``; return its report."""
    project = ready / PROJECT
    project.mkdir()
    tell("the project")
    (ready / "weft.tarch").write_text(json.dumps(arch.to_dict(), indent=2) + "\n")
    if board.processor is not None:
        board = bitstream.at(board, clock_hz)
        asked = _zynq(board, arch, project)
    else:
        asked = _shell(board, ready, project, clock_hz)
    (project / "README.txt").write_text(readme(board, asked))
    return {"schema": 1, "board": board.key, "name": board.name, "chip": board.chip, "mhz_asked": asked / 1e6,
            "project": PROJECT, "run_with_vivado": False}


def _zynq(board: Board, arch: Arch, project: Path) -> float:
    """Write the files of a Zynq's project; return the clock in Hz."""
    processor = board.processor
    assert processor is not None
    module, ports = with_ports(arch, board=board.key)
    machine, verilog = Machine(ports), converted(module, ports, arch.cores)
    if ultra_rams(arch, PARTS[board.part]):
        verilog = in_ultra_ram(verilog, arch.local_banks)
    files = {
        "design.tcl": zynq.design(processor, block.interfaces(machine)),
        f"{block.BLOCK}.v": block.verilog(machine, MACHINE),
        f"{MACHINE}.v": verilog,
        f"{board.key}.xdc": _CONSTRAINTS,
        "build.tcl": _BUILD.format(key=board.key, design=zynq.DESIGN, device=processor.device, machine=MACHINE,
                                   block=block.BLOCK, top=TOP, mhz=processor.clock_hz / 1e6),
    }
    for name, content in files.items():
        (project / name).write_text(content)
    return processor.clock_hz


def _shell(board: Board, work: Path, project: Path, clock_hz: float | None) -> float:
    """Write LiteX's project of a board without processors; return the clock in Hz. ``shell.json`` is for the driver."""
    board = bitstream.at(board, clock_hz)
    assert board.shell is not None
    bitstream.need_packages()
    made = work / "shell"
    made.mkdir()
    shutil.copy(work / "weft.tarch", made)
    bitstream.generate(board, made)
    for path in (*made.glob("*.v"), *made.glob("*.xdc"), *made.glob("*.init")):
        path.rename(project / path.name)
    (project / "build.tcl").write_text((made / "shell.tcl").read_text().replace(f"{made.resolve()}/", ""))
    (made / "shell.json").rename(work / "shell.json")
    shutil.rmtree(made)
    return board.shell.clock_hz
