"""The commands that describe a machine: ``weft verilog``, ``resources``, ``isa``, ``disassemble``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from weft.cli import console
from weft.cli.options import ArchOption, FolderOption, PartOption, SetOption, make_folder, override, verilog_of, version
from weft.hw.contract.arch import Arch
from weft.runtime.files import read_bytes, write_text


def verilog_command(
    arch: ArchOption,
    output: FolderOption,
    fusesoc: Annotated[bool, typer.Option("--fusesoc", help="Write weft_top.core too, for FuseSoC.")] = False,
    vivado: Annotated[bool, typer.Option("--vivado", help="Write package_ip.tcl too, with which Vivado packages the "
                                         "machine as IP-XACT.")] = False,
    overrides: SetOption = None,
) -> None:
    """Write weft_top.v, weft.json (every parameter) and weft.h (ISA and registers for C) of a machine."""
    from weft.hw.flow.packaging import fusesoc_core, vivado_script
    from weft.hw.flow.reports import c_header, summary
    from weft.hw.top import with_ports

    machine = override(Arch.load(arch), overrides)
    make_folder(output)
    with console.working("making the Verilog"):
        text = verilog_of(machine)
    parameters = json.dumps(summary(machine), indent=2) + "\n"
    files = {"weft_top.v": text, "weft.json": parameters, "weft.h": c_header(machine)}
    if fusesoc:
        files["weft_top.core"] = fusesoc_core(Path(arch).stem, version())
    if vivado:
        files["package_ip.tcl"] = vivado_script(machine, list(with_ports(machine)[1]), version())
    for name, content in files.items():
        write_text(output / name, content)
        print(output / name)


def resources_command(
    arch: ArchOption,
    part: PartOption = None,
    overrides: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
) -> None:
    """What a machine takes of a chip, predicted without synthesis, and whether it fits with the rest of a board."""
    from weft.cli.resources import predicted, print_predicted

    found = predicted(override(Arch.load(arch), overrides), arch, part)
    if as_json:
        print(json.dumps(found))
    else:
        print_predicted(found)


def isa_command(arch: ArchOption, overrides: SetOption = None) -> None:
    """Print a machine's instruction set and registers."""
    from weft.hw.flow.reports import isa_text

    print(isa_text(override(Arch.load(arch), overrides), max(shutil.get_terminal_size().columns, 60)), end="")


def disassemble_command(
    program: Annotated[Path, typer.Argument(metavar="FILE.tprog", help="A program.", show_default=False)],
    arch: ArchOption,
    overrides: SetOption = None,
) -> None:
    """Print a program's instructions, one a line, numbered as the program counter counts."""
    from weft.hw.contract.isa import Isa

    instructions = Isa(override(Arch.load(arch), overrides))
    content = read_bytes(program, "program", "name a .tprog file")
    for number, instruction in enumerate(instructions.disassemble(content)):
        print(f"{number:6d}  {instructions.text(instruction)}")
