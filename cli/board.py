# SPDX-License-Identifier: Apache-2.0
"""The commands ``weft board``: bitstreams, from a board's name to the board."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.boards import BOARDS, Board
from weft.boards.board import OnChip
from weft.cli import console
from weft.cli.options import help_without_command, need_simulation
from weft.cli.standalone import standalone_command
from weft.hw.contract.arch import Arch
from weft.runtime.driver.shell_file import BUILT
from weft.support.errors import WeftError, explain

app = typer.Typer(invoke_without_command=True, help="Bitstreams of boards: list, build, flash.")
app.callback()(help_without_command)
app.command("standalone")(standalone_command)

BoardArgument = Annotated[str, typer.Argument(metavar="BOARD", help="A name of `weft board list`.", show_default=False)]
FolderOption = Annotated[Path, typer.Option("-o", "--folder", metavar="DIR",
                                            help="Folder of folders, one a board.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def board_named(name: str) -> Board:
    """Return the board of this name. Raise WeftError if there is none."""
    if name not in BOARDS:
        raise WeftError(explain("board", name, ", ".join(sorted(BOARDS)), "name one of them"))
    return BOARDS[name]


def listed(board: Board) -> dict[str, Any]:
    """Return a board's row of ``weft board list``."""
    shell = board.shell
    surrounded = shell or board.processor
    return {"board": board.name, "arch": board.arch, "chip": board.chip, "build": board.built,
            "mhz": (surrounded or board).clock_hz / 1e6, "memory": memory_of(board),
            "links": ["uart", *(["ethernet"] if shell.ethernet else [])] if shell else []}


def memory_of(board: Board) -> str:
    """Return a board's memory in words."""
    if board.shell is None:
        return "memory of its processors"
    memory = board.shell.memory
    return f"{memory.kind} {'memory' if isinstance(memory, OnChip) else memory.module}"


def sized(count: int) -> str:
    """Return a number of bytes as text, in KiB or MiB."""
    return f"{count >> 20} MiB" if count >= 1 << 20 else f"{count >> 10} KiB"


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """List the boards, and what is made for each: a bitstream by open tools, or a project for Vivado."""
    rows = {name: listed(board) for name, board in sorted(BOARDS.items())}
    if as_json:
        print(json.dumps({"schema": 1, "boards": rows}, indent=1))
        return
    console.print_table("boards", {
        name: ", ".join(filter(None, [row["board"], row["chip"], f"{row['mhz']:g} MHz", row["memory"],
                                      " and ".join(row["links"]), row["build"]]))
        for name, row in rows.items()})


@app.command()
def build(
    board: BoardArgument,
    arch: Annotated[str | None, typer.Option("-a", "--arch", metavar="ARCH",
                                             help="Another machine; default: the board's preset.")] = None,
    mhz: Annotated[float | None, typer.Option("--mhz", min=1, max=400, metavar="MHZ", help="Clock of the machine; "
                                              "default: the board's.")] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100, metavar="COUNT", help="How many placements may "
                                             "be tried.")] = 4,
    force: Annotated[bool, typer.Option("--force", help="Build a machine that is predicted not to fit too.")] = False,
    standalone: Annotated[bool, typer.Option("--standalone", help="With a processor in place of the host link, for "
                                             "`weft board standalone`.")] = False,
    output: FolderOption = BUILT,
    as_json: JsonOption = False,
) -> None:
    """Build a bitstream with machine, memory controller and host link; fail if a clock is missed.

    For Xilinx chips write the Vivado project that makes one."""
    from weft.boards.shell import bitstream, families
    from weft.boards.vivado import project
    from weft.cli.resources import refuse_without_room

    chosen = board_named(board)
    name = chosen.arch if arch is None else arch
    machine = Arch.load(name)
    if standalone:
        from weft.boards.standalone.project import check_board

        check_board(chosen)
    if not force:
        refuse_without_room(chosen, machine, name)
    if chosen.built != "bitstream":
        need_simulation()  # for yosys, which writes the Verilog
        with console.progress() as bar:
            written = project.build(chosen, machine, output / board,
                                    clock_hz=None if mhz is None else mhz * 1e6, tell=lambda stage: bar(stage, 0, 0))
        if as_json:
            print(json.dumps(written, indent=1))
            return
        console.print_table(f"{written['name']}: {output / board}/{written['project']}/build.tcl", {
            "clock": f"{written['mhz_asked']:g} MHz asked", "run": "by you: nothing of this was run with Vivado"})
        return
    with console.progress() as bar:
        found = bitstream.build(chosen, machine, output / board,
                                clock_hz=None if mhz is None else mhz * 1e6, seeds=range(1, seeds + 1),
                                standalone=standalone, tell=lambda stage: bar(stage, 0, 0))
    if as_json:
        print(json.dumps(found, indent=1))
        return
    console.print_table(f"{found['name']}: {families.bitstream(chosen, output / board)}", {
        "clock": f"{found['fmax_mhz']} MHz, {found['mhz_asked']:g} asked (seed {found['seed']})",
        "logic": f"{found['lut']} LUT4, {found['ff']} flip-flops, {found['dsp']} multipliers, "
                 f"{found['bram']} block RAMs",
        "bitstream": f"{found['bytes']} bytes, sha256 {found['sha256'][:16]}", "took": f"{found['minutes']} minutes"})


@app.command()
def flash(
    board: BoardArgument,
    permanent: Annotated[bool, typer.Option("--permanent", help="Into the board's flash chip.")] = False,
    variant: Annotated[str | None, typer.Option("--variant", metavar="NAME", help="A revision of the board with "
                                                "another cable; default: the usual one.")] = None,
    output: FolderOption = BUILT,
) -> None:
    """Load the board's bitstream with openFPGALoader."""
    from weft.boards.shell import flash as loading

    chosen = board_named(board)
    with console.working(f"loading {board}"):
        said = loading.flash(chosen, output / board, permanent=permanent, variant=variant)
    print(said)


@app.command()
def memory(
    device: Annotated[str, typer.Argument(metavar="DEVICE", help="serial:auto, serial:PORT or udp:HOST.",
                                          show_default=False)],
    board: Annotated[str | None, typer.Option("--board", metavar="BOARD", help="Whose bitstream is loaded; default: "
                                              "the board says it.")] = None,
    output: FolderOption = BUILT,
) -> None:
    """Start a board's DRAM, print the leveling map, and test the memory; on-chip memory is only tested."""
    from weft.runtime.driver.dram_start import check_memory
    from weft.runtime.driver.links import LinkTarget
    from weft.runtime.driver.shell_file import NAME
    from weft.runtime.driver.targets import open_target, read_device

    given = {} if board is None else {"shell": str(output / board_named(board).key / NAME)}
    if "shell" not in read_device(device)[0].options:
        raise WeftError(explain("device", device, "serial:auto, serial:PORT or udp:HOST", "name the board's link"))
    with console.working("looking for the board and starting its memory"):
        target = open_target(device, given)
    assert isinstance(target, LinkTarget)
    try:
        shell = target.shell
        if shell is None:
            raise WeftError(explain("board", "a machine that names none", ", ".join(sorted(BOARDS)),
                                    "name it: --board BOARD"))
        if shell.dram:
            if target.leveling is None:
                with console.working("starting the memory again"):
                    target.start(shell)
            print(target.leveling)
        with console.working("testing the memory"):
            for place in shell.places:
                check_memory(target.bridge, place.base, place.bytes)
        print(f"{shell.board}: {sized(sum(place.bytes for place in shell.places))} tested at every address bit: fine")
    finally:
        target.close()
