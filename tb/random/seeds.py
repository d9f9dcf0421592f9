# SPDX-License-Identifier: Apache-2.0
"""Long runs over seeds on several machines: which machines, where to go on, and how far it came."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import typer
from rich.console import Console

from weft.support.errors import WeftError
from weft.support.files import MOST_BYTES
from weft.support.outputs import Kind, check_output, write_text
from weft.support.strict_json import parse_object, read_object

SEEDS = Kind("the next seed of each machine, from an earlier run", lambda file: all(
    isinstance(seed, int) for seed in parse_object(file.read(MOST_BYTES)).values()))


class SeedRun:
    """A long run: ``count`` seeds from ``first`` on for each machine, but for those that ``state`` says are done.

    ``chosen``: machines among ``known``, none for all; an unknown one ends the run with exit code 1. ``next_seed``:
    machine -> seed, for each that got on; kept in the file ``state``, if there is one."""

    def __init__(self, chosen: Sequence[str] | None, known: Collection[str], first: int, count: int,
                 state: Path | None, console: Console) -> None:
        unknown = [name for name in chosen or [] if name not in known]
        if unknown:
            console.print(f"machine: found {unknown[0]}; allowed: {', '.join(known)}")
            raise typer.Exit(1)
        self.machines = tuple(chosen or known)
        self._first, self._end, self._state = first, first + count, state
        self.next_seed: dict[str, int] = {}
        try:
            if state and check_output(state, SEEDS) and state.exists() and state.stat().st_size:
                self.next_seed = read_object(state, "state", SEEDS.name, "name another file")
        except WeftError as error:
            console.print(str(error))
            raise typer.Exit(1) from None

    def batches(self, machine: str, size: int) -> Iterator[range]:
        """Yield the seeds to run on a machine, ``size`` at a time; asking for more says that the last ones are done."""
        for start in range(self.next_seed.get(machine, self._first), self._end, size):
            seeds = range(start, min(start + size, self._end))
            yield seeds
            self.next_seed[machine] = seeds.stop
            if self._state:
                write_text(self._state, json.dumps(self.next_seed), SEEDS)
