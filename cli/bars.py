# SPDX-License-Identifier: Apache-2.0
"""The progress bar of commands on a terminal, by rich."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from weft.support.errors import one_line

if TYPE_CHECKING:
    from weft.runtime.devices import Progress as Tell


class Rate(ProgressColumn):
    """A column of a progress bar: how many are done, how many a second, and the time that is left.

    It is empty if the end is not known."""

    def render(self, task: Task) -> Text:
        """Return the column's text for a task."""
        if not task.total:
            return Text("")
        done = f"{task.completed:,.0f} of {task.total:,.0f}"
        if not task.speed:
            return Text(done)
        return Text(f"{done}, {task.speed:,.3g}/s, {datetime.timedelta(seconds=int(task.time_remaining or 0))} left")


@contextlib.contextmanager
def bar(file: IO[str]) -> Iterator[Tell]:
    """Show a bar with the current stage on a terminal, ``file``; it disappears at the end.

    Yield the function that is told the stage, how many are done, and how many there are (0 if that is not known)."""
    stage = TextColumn("{task.description}", markup=False)  # a layer's name may look like markup
    columns = (SpinnerColumn(), stage, BarColumn(bar_width=20), TimeElapsedColumn(), Rate())
    console = Console(file=file)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        task = bars.add_task("", total=None)
        known = ""

        def tell(stage: str, done: int, total: int) -> None:
            nonlocal known
            if stage != known:  # another stage has another rate
                bars.reset(task)
                known = stage
            bars.update(task, description=one_line(stage), completed=done, total=total or None)

        yield tell
