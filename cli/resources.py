# SPDX-License-Identifier: Apache-2.0
"""The work of ``weft resources``: what a machine takes of a chip, predicted, and whether it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from weft.boards import Board, board_of, routing
from weft.boards.board import OnChip
from weft.boards.shell.machine import windows
from weft.cli.console import plain_console, say
from weft.hw.contract.arch import Arch
from weft.hw.flow.memories import block_rams, rams
from weft.hw.flow.parts import PARTS, Part
from weft.hw.flow.parts import block_rams as count_blocks
from weft.hw.flow.resources import COLUMNS, SHELL, SHELL_LUTS, counted, dsp_blocks, fits, largest_error, room
from weft.support.errors import WeftError, explain, nearest

USED = {"lut": "LUTs", "ff": "flip-flops", "dsp": "DSP blocks", "bram": "block RAMs",
        "uram": "UltraRAM blocks"}


BLOCK_BYTES = 2048
"""The bytes of an 18 Kbit block RAM in words of 8, 16 or 32 bits."""


def predicted(arch: Arch, name: str, part: str | None) -> dict[str, Any]:
    """Return the object of ``--json``.

    ``part``: a name in ``PARTS``, in any case; None: that of the board for which the preset ``name`` is made."""
    board = board_of(name)
    if part is None and board is None:
        raise WeftError(explain("--part", "nothing", ", ".join(PARTS), "name the chip: this machine has no board"))
    found = part_named(part if part is not None else board.part if board else "")
    fitting = fits(arch, found, around=around(board if part is None else None, arch))
    own = part is None and board is not None
    return {**fitting, "error_percent": largest_error(found.family), "place_and_route": routing(name) if own else None}


def around(board: Board | None, arch: Arch | None = None) -> Mapping[str, int]:
    """Return the resources of the rest of a board by column: its own shell's if that was counted, else usual ones.

    ``arch``: the machine that the shell is around; None: the board's preset."""
    if board is None or board.shell is None:
        return SHELL
    memory = board.shell.memory
    bram: dict[str, int] = {}
    if isinstance(memory, OnChip):
        places = windows(Arch.load(board.arch), memory.program_bytes)
        if PARTS[board.part].large_bram_bytes:
            places = {"program": places["program"]}
        bram = {"bram": sum(-(-place.size // BLOCK_BYTES) for place in places.values())}
    key = board.family, memory.kind, board.has_ethernet(arch or Arch.load(board.arch))
    return {**SHELL, **bram, "lut": SHELL_LUTS.get(key, SHELL["lut"])}


def refuse_without_room(board: Board, arch: Arch, name: str) -> None:
    """Raise WeftError if the machine ``name`` is predicted not to fit the board's chip beside its shell.

    A machine that may fit, as far as the prediction may be wrong, is let through. If machines with such numbers were
    not counted on such chips, only what follows from the geometry counts."""
    part, rest = PARTS[board.part], around(board, arch)
    errors = largest_error(part.family) or {}
    if counted(arch, part.family):
        used = {column: machine for column, (machine, _, _) in fits(arch, part, around=rest)["of_part"].items()}
    else:
        blocks = [block_rams(ram, part.family) for ram in rams(arch)]
        totals = {column: sum(each.get(column, 0) for each in blocks) for column in ("bram18", "bram36")}
        used = {"dsp": sum(dsp_blocks(arch, part.family).values()), "bram": count_blocks(totals, part.family)}
    short = [column for column, number in used.items()
             if number * (1 - errors.get(column, 0) / 100) > room(part, column, rest)]
    if short:
        raise WeftError(explain(
            f"machine {name} on board {board.key}",
            " and ".join(f"{used[column]:,} {USED[column]}, predicted" for column in short),
            " and ".join(f"{max(0, room(part, column, rest)):,} {USED[column]}" for column in short)
            + f" of {part.name} beside the shell",
            f"take a smaller machine (weft resources -a {name} --part {board.part}), or try it all the same: --force"))


def part_named(name: str) -> Part:
    """Return the part of this name, in any case. Raise WeftError if there is none."""
    wanted = name.upper()
    if wanted not in PARTS:
        raise WeftError(explain("--part", name, ", ".join(PARTS), nearest(name, PARTS, "name one of them")))
    return PARTS[wanted]


def print_predicted(found: dict[str, Any]) -> None:
    """Print the prediction as a table."""
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("block")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, counts in {**found["blocks"], "all": found["total"]}.items():
        table.add_row(name, *(f"{counts.get(column, 0):,}" if counts.get(column) else "" for column in COLUMNS))
    plain_console().print(table)
    for column, (machine, rest, part) in found["of_part"].items():
        say(f"{USED[column]}: {machine:,} of {part:,} ({machine / part:.0%}), a board's rest about {rest:,}")
    error = found["error_percent"]
    short = " and ".join(USED[column] for column in found["short"])
    verdict = "fits, with room for the rest" if found["fits"] else f"does not fit with the rest: too many {short}"
    within = f"within {error['lut']} % of LUTs and {error['ff']} % of flip-flops" if error else "error not measured"
    say(f"{found['part']}: {verdict}; predicted, {within}")
    if found["place_and_route"]:
        say(f"place and route by open tools, beside the board's shell: {found['place_and_route']}")
    if found["unknown"]:
        say(f"Not counted on any machine, so not in it: {', '.join(found['unknown'])}.")
