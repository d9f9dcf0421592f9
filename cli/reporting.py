# SPDX-License-Identifier: Apache-2.0
"""The command ``weft report``: a compiled network as one page of HTML."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from weft.boards import board_of, clock_hz, routing
from weft.cli import console
from weft.cli.options import MemoryOption, OwnLatencyOption, PartOption, SetOption, load, override
from weft.cli.outputs import Output, check_outputs
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED, DramModel
from weft.hw.contract.presets import presets
from weft.report.kinds import PAGE
from weft.runtime.devices import Progress
from weft.support.outputs import write_text
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

OWN = "a machine of its own"


def report_command(
    model: Annotated[Path, typer.Argument(metavar="FILE.tmodel", help="A compiled model.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="PAGE.html", help="Page to write.")],
    part: PartOption = None,
    board: MemoryOption = None,
    latency: OwnLatencyOption = None,
    overrides: SetOption = None,
) -> None:
    """Write one HTML page that needs no internet: layers, timeline, roofline, memory, numbers, machine."""
    from weft.cli.memory import memory_of

    check_outputs({"MODEL": model}, [Output("--output", output, PAGE)])
    dram = memory_of(board, latency)
    network = load(model)
    with console.progress() as progress:
        write_page(network, output, progress, override(network.arch, overrides), part, dram)
    print(output)


def write_page(network: Network, output: Path, progress: Progress, arch: Arch | None = None, part: str | None = None,
               dram: DramModel = EXPECTED) -> None:
    """Write the page of a network. Raise WeftError if it cannot be written.

    ``arch``: the machine that runs the network, by default the one that it is compiled for. Of several cores the page
    shows the one that takes longest."""
    from weft.cli.cycle_table import joined
    from weft.cli.estimate import estimated_program
    from weft.report.collect import Machine
    from weft.report.operations import Ran
    from weft.report.page import page
    from weft.runtime.session import Session

    arch = arch or network.arch
    name = preset_of(arch)
    machine = Machine(name or OWN, clock_hz(name or ""), board_of(name or "") is not None, routing(name or ""),
                      _resources(arch, name, part))
    programs, objects = [], []
    session = Session(network, arch)
    for loaded in session.machines:
        found = estimated_program(session, loaded, dram, progress)
        shown = found.cores[found.slowest]
        of_arch = dataclasses.replace(loaded.model.of_core(found.slowest), arch=arch)
        programs.append((Ran(of_arch, of_arch.program, shown.cycles, shown.operations), found.where["layers"]))
        objects.append(found.where)
    progress("writing the page", 0, 0)
    write_text(output, page(dataclasses.replace(network, arch=arch), machine, programs, joined(objects, arch)), PAGE)


def preset_of(arch: Arch) -> str | None:
    """Return the name of the preset that equals this machine, or None."""
    return next((name for name in presets() if Arch.load(name) == arch), None)


def _resources(arch: Arch, name: str | None, part: str | None) -> dict[str, Any] | None:
    """Return the predicted resources on the part, or on the preset's board.

    Return None without a part, and if no machine with such numbers was counted."""
    from weft.cli.resources import predicted
    from weft.hw.flow.resources import counted

    board = board_of(name) if name else None
    if part is None and (board is None or not counted(arch, board.family)):
        return None
    return predicted(arch, name or "", part)


def add_signals(path: Path, signals: Sequence[dict[str, Any]]) -> Network:
    """Write the results of ``--report`` for each layer into the ``.tmodel``, for the page; return the network."""
    network, waiting = Network.load(path), iter(signals)
    parts = tuple(dataclasses.replace(part, layers=tuple({**row, **next(waiting)} for row in part.layers))
                  if isinstance(part, TModel) else part for part in network.parts)
    found = dataclasses.replace(network, parts=parts)
    found.save()
    return found
