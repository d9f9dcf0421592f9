# SPDX-License-Identifier: Apache-2.0
"""The memory of an estimate: the options ``--board`` and ``--latency``, and where a driver puts things in it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft.cli.console import print_columns, say
from weft.cycles.origin import RESET, Origin
from weft.hw.contract.dram import EXPECTED, DramModel, IdealDram, LiteDram, Spread
from weft.hw.contract.isa import Isa
from weft.runtime.driver.memory_map import MEMORIES, MemoryMap, Places, Region, place
from weft.runtime.driver.needs import PAGE_BYTES, moved, needs_of
from weft.runtime.session import Loaded, Session
from weft.support.errors import WeftError, explain


def memory_of(board: str | None, latency: int | None) -> DramModel:
    """Return the memory that the options name; of a board that is known by parameters only, the typical case.

    Raise WeftError for both options, for an unknown board, and for one whose memory controller is not known."""
    if board is None:
        return EXPECTED if latency is None else IdealDram(latency, latency)
    from weft.boards import BOARDS
    from weft.cli.board import board_named

    if latency is not None:
        raise WeftError(explain("--board and --latency", "both", "one of them",
                                "the board says how long its memory takes; leave out --latency"))
    found = board_named(board)
    if not (isinstance(found.dram, LiteDram) or found.spread):
        known = sorted(name for name, each in BOARDS.items() if isinstance(each.dram, LiteDram) or each.spread)
        raise WeftError(explain(f"--board {board}", "a board whose memory controller is not modelled", ", ".join(known),
                                "leave out --board, and give --latency instead"))
    return found.dram


def spread_of(board: str | None) -> Spread | None:
    """Return the cases of a board's memory that is known by parameters only; None for any other."""
    from weft.boards import BOARDS

    return BOARDS[board].spread if board in BOARDS else None


def placed(session: Session, machine: Loaded, dram: DramModel) -> Iterator[tuple[bytes, Origin]]:
    """Yield the preload, if there is one, and the program as they lie in the memory, each with its origin.

    Raise WeftError if the network does not fit into the memory."""
    programs = [*filter(None, [machine.preload]), machine.model.program]
    if not isinstance(dram, LiteDram):
        yield from ((program, RESET) for program in programs)
        return
    places = places_of(session, dram)
    address = places.machine("program")
    for program in programs:
        content, _ = moved(Isa(machine.arch), program, places)
        yield content, Origin(address)
        address += -(-len(content) // PAGE_BYTES) * PAGE_BYTES


def paced(board: str, session: Session) -> dict[str, Any]:
    """Return options for a simulation whose memories answer when the board's memory does.

    Raise WeftError as ``memory_of`` and ``placed`` do, and if LiteX is not there."""
    from weft.boards.shell.paced import controller_of
    from weft.cli.board import board_named

    dram = memory_of(board, None)
    if not isinstance(dram, LiteDram):
        raise WeftError(explain(f"--board {board}", "a memory of the processors, known by parameters only",
                                "a board whose memory controller can be simulated",
                                "use weft estimate --board, which says best, typical and worst"))
    places = places_of(session, dram)
    return {"controller": controller_of(board_named(board), session.arch),
            "bases": {memory: places.machine(memory) for memory in MEMORIES}}


def places_of(session: Session, dram: LiteDram) -> Places:
    """Return where the board's driver puts windows and programs. Raise WeftError if the network does not fit."""
    region = Region(bus=0, machine=0, size=dram.bytes)
    needs = needs_of(session.network, session.arch.cores)
    return place(MemoryMap.shared(0, region), needs, session.arch, session.network.name)


def use_object(uses: list[dict[str, int]]) -> dict[str, int] | None:
    """Return cycles of the memory's bus of several programs together, for ``--json``; None for ideal memories."""
    return {name: sum(use[name] for use in uses) for name in uses[0]} if uses and uses[0] else None


def print_use(use: dict[str, Any]) -> None:
    """Print the use of the memory's bus, in cycles and percent, from when the program was asked for."""
    total = max(sum(use.values()), 1)
    say("memory's bus:")
    print_columns([("", "cycles", "%"), *((name, f"{cycles:,}", f"{100 * cycles / total:.1f}")
                                          for name, cycles in use.items())], right=True)


def print_spread(cases: dict[str, int]) -> None:
    """Print the cycles with the best, a typical and the worst memory, of a board that is known by parameters only."""
    say("memory of the processors, by parameters, not measured: "
        + ", ".join(f"{name} {cycles:,}" for name, cycles in cases.items()) + " cycles")
