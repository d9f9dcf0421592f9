# SPDX-License-Identifier: Apache-2.0
"""The commands ``weft board``: bitstreams, from a board's name to the board."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.boards import BOARDS, Board
from weft.boards.board import OPENXC7, VIVADO, OnChip
from weft.cli import console
from weft.cli.options import help_without_command, need_simulation
from weft.cli.standalone import standalone_command
from weft.hw.contract.arch import Arch
from weft.runtime.driver.shell_file import BUILT
from weft.support.errors import WeftError, explain, nearest

app = typer.Typer(invoke_without_command=True, help="Bitstreams of boards: list, build, flash.")
app.callback()(help_without_command)

BoardArgument = Annotated[str, typer.Argument(metavar="BOARD", help="A name of `weft board list`.", show_default=False)]
FolderOption = Annotated[Path, typer.Option("-o", "--folder", metavar="DIR",
                                            help="Folder of folders, one a board.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def board_named(name: str) -> Board:
    """Return the board of this name. Raise WeftError if there is none."""
    if name not in BOARDS:
        raise WeftError(explain("board", name, ", ".join(sorted(BOARDS)), nearest(name, BOARDS, "name one of them")))
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
    toolchain: Annotated[str | None, typer.Option("--toolchain", metavar="NAME", help="vivado or openxc7, for a "
                                                  "Xilinx chip of the 7 series; default: vivado.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the commands of --toolchain openxc7 and what is "
                                          "missing for them; build nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Build a machine that is predicted not to fit too.")] = False,
    standalone: Annotated[bool, typer.Option("--standalone", help="With a processor in place of the host link, for "
                                             "`weft board standalone`.")] = False,
    output: FolderOption = BUILT,
    as_json: JsonOption = False,
) -> None:
    """Build a bitstream with machine, memory controller and host link; fail if a clock is missed.

    For Xilinx chips write the Vivado project that makes one, or take openXC7, if it is installed."""
    from weft.boards.openxc7 import flow as openxc7
    from weft.boards.shell import bitstream
    from weft.boards.vivado import project
    from weft.cli.resources import refuse_without_room

    chosen = board_named(board)
    tools = toolchain_of(chosen, toolchain, dry_run)
    name = chosen.arch if arch is None else arch
    machine = Arch.load(name)
    if standalone:
        from weft.boards.standalone.project import check_board

        check_board(chosen)
    if not force:
        refuse_without_room(chosen, machine, name)
    clock_hz = None if mhz is None else mhz * 1e6
    if dry_run:
        print_steps(openxc7.planned(chosen, clock_hz), as_json)
        return
    if chosen.family == "xc7":
        need_simulation()  # for yosys
    with console.progress() as bar:
        def tell(stage: str) -> None:
            bar(stage, 0, 0)

        if tools == VIVADO:
            print_built(project.build(chosen, machine, output / board, clock_hz=clock_hz, tell=tell),
                        output / board, as_json)
            return
        build_bits = openxc7.build if tools == OPENXC7 else partial(bitstream.build, standalone=standalone)
        found = build_bits(chosen, machine, output / board, clock_hz=clock_hz, seeds=range(1, seeds + 1), tell=tell)
    print_built(found, output / board, as_json)


def toolchain_of(board: Board, name: str | None, dry_run: bool) -> str:
    """Return the toolchain that builds for a board. Raise WeftError for one that does not, or has no dry run."""
    chosen = name or board.toolchains[0]
    if chosen not in board.toolchains:
        raise WeftError(explain(f"--toolchain of board {board.key}", chosen, ", ".join(board.toolchains),
                                "leave --toolchain out, or name one of them"))
    if dry_run and chosen != OPENXC7:
        raise WeftError(explain("--dry-run", f"toolchain {chosen}", f"toolchain {OPENXC7}: of the others one command "
                                "is all there is, or Python packages do everything", f"leave --dry-run out, or set "
                                f"--toolchain {OPENXC7} for a board of the 7 series"))
    return chosen


def print_steps(planned: dict[str, Any], as_json: bool) -> None:
    """Print the steps of a build, and what is missing for them."""
    if as_json:
        print(json.dumps(planned, indent=1))
        return
    print(f"# {planned['name']} with {planned['toolchain']}, in the working folder of the build.")
    for number, step in enumerate(planned["steps"], 1):
        print(f"\n# {number}. {step['what']}\n{step['command']}")
    for each in planned["missing"]:
        print(f"\n# missing: {each['what']}\n# {each['way_out']}")


def print_built(found: dict[str, Any], folder: Path, as_json: bool) -> None:
    """Print the report of a build."""
    if as_json:
        print(json.dumps(found, indent=1))
    elif "sha256" not in found:
        console.print_table(f"{found['name']}: {folder}/{found['project']}/build.tcl", {
            "clock": f"{found['mhz_asked']:g} MHz asked", "run": "by you: nothing of this was run with Vivado"})
    else:
        from weft.boards.shell.families import bitstream

        tables = "LUT6" if BOARDS[found["board"]].family == "xc7" else "LUT4"
        console.print_table(f"{found['name']}: {bitstream(BOARDS[found['board']], folder)}", {
            "clock": f"{found['fmax_mhz']} MHz, {found['mhz_asked']:g} asked (seed {found['seed']})",
            "logic": f"{found['lut']} {tables}, {found['ff']} flip-flops, {found['dsp']} multipliers, "
                     f"{found['bram']} block RAMs",
            "bitstream": f"{found['bytes']} bytes, sha256 {found['sha256'][:16]}",
            "took": f"{found['minutes']} minutes"})


@app.command()
def flash(
    board: BoardArgument,
    permanent: Annotated[bool, typer.Option("--permanent", help="Into the board's flash chip.")] = False,
    variant: Annotated[str | None, typer.Option("--variant", metavar="NAME", help="A revision of the board with "
                                                "another cable; default: the usual one.")] = None,
    image: Annotated[Path | None, typer.Option("--image", metavar="FILE", help="Into the flash chip: a boot image of "
                                               "`weft board standalone`; default: the bitstream.")] = None,
    output: FolderOption = BUILT,
) -> None:
    """Load the board's bitstream, or a boot image, with openFPGALoader."""
    from weft.boards.shell import flash as loading

    chosen = board_named(board)
    with console.working(f"loading {board}"):
        if image is None:
            said = loading.flash(chosen, output / board, permanent=permanent, variant=variant)
        else:
            said = loading.flash_image(chosen, image, variant)
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


app.command("standalone")(standalone_command)
