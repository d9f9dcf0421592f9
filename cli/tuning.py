# SPDX-License-Identifier: Apache-2.0
"""The options --tune, --tune-steps and --choices of ``weft compile``."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.cli.console import print_columns, say
from weft.support.errors import WeftError, explain

if TYPE_CHECKING:
    from weft.compiler.choices import Choices
    from weft.compiler.request import Request
    from weft.compiler.tuning.search import Tuned
    from weft.hw.contract.arch import Arch
    from weft.runtime.devices import Progress

SHOWN = 0.001
"""The least change of a layer that the table shows, as a share of all cycles."""


@dataclass(frozen=True)
class Asked:
    """The options of tuning.

    ``seconds`` or ``steps`` of a search, its ``seed`` and the ``board`` that it is for; or ``choices``,
    a file of an earlier one."""

    seconds: float | None
    steps: int | None
    seed: int
    board: str | None
    choices: Path | None

    def __post_init__(self) -> None:
        """Raise WeftError for options that exclude each other."""
        given = self._given
        if len(given) > 1:
            raise WeftError(explain(" and ".join(given), "both", "one of them", f"leave {given[-1]} out"))
        if self.board is not None and self.choices is not None:
            raise WeftError(explain("--board and --choices", "both", "one of them: choices are for a memory already",
                                    "leave --board out"))

    @property
    def _given(self) -> list[str]:
        return [name for name, value in (("--tune", self.seconds), ("--tune-steps", self.steps),
                                         ("--choices", self.choices)) if value is not None]

    @property
    def option(self) -> str | None:
        """The option that chooses, None if the formulas do."""
        return next(iter(self._given), None)

    @property
    def searches(self) -> bool:
        """Whether a search is asked for."""
        return self.seconds is not None or self.steps is not None


def chosen(asked: Asked, request: Request, machine: Arch,
           progress: Progress) -> tuple[tuple[Choices, ...] | Choices, list[Tuned]]:
    """Return the choices of each subgraph of the machine, of a file or of a search, and what the search found.

    Without either they are what the formulas choose for the board's memory, if there is a board.

    Raise WeftError."""
    if asked.choices is not None:
        from weft.compiler.choices import read_choices

        return read_choices(asked.choices).parts, []
    if asked.board is None and not asked.searches:
        return (), []
    from weft.cli.memory import memory_of

    dram = memory_of(asked.board, None)
    if not asked.searches:
        from weft.compiler.choices import for_memory

        return for_memory(dram, machine), []
    from weft.compiler.tuning.network import tune_network
    from weft.compiler.tuning.search import Budget

    def tell(share: float, before: int, best: int) -> None:
        progress(f"tuning: {best:,} cycles, {percent(before, best)} % fewer", round(100 * share), 100)

    progress("tuning", 0, 0)
    budget = Budget(asked.seconds, asked.steps, asked.seed)
    found = tune_network(request, machine, dram, budget, os.cpu_count() or 1, tell)
    return tuple(each.choices for each in found), found


def percent(before: int, after: int) -> str:
    """Return the percentage of ``before`` that is saved."""
    return f"{100 * (before - after) / max(before, 1):.2f}"


def tuned_object(found: list[Tuned], layers: list[str]) -> dict[str, Any]:
    """Return, for ``--json``, cycles of all and of each layer, waits included, before and after tuning.

    ``layers``: their names in the order in which they run after tuning."""
    names = iter(layers)
    rows = [{"name": next(names), "before": each.before.spent[number], "after": each.after.spent[number]}
            for each in found for number in each.choices.sequence(len(each.after.spent))]
    return {"before": sum(each.before.cycles for each in found), "after": sum(each.after.cycles for each in found),
            "layers": rows}


def print_tuned(tuned: dict[str, Any]) -> None:
    """Print a tuning's result: a row of cycles before and after for each layer that changed, and one for all."""
    rows = [("layer", "cycles before", "after", "% fewer")]
    shown = [row for row in tuned["layers"] if abs(row["before"] - row["after"]) >= SHOWN * tuned["before"]]
    rows += [(row["name"][-32:], f"{row['before']:,}", f"{row['after']:,}", percent(row["before"], row["after"]))
             for row in (*shown, {**tuned, "name": "all"})]
    say("tuned:")
    print_columns(rows, right=True)
