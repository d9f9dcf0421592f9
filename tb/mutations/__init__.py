# SPDX-License-Identifier: Apache-2.0
"""Breaks on purpose: small mistakes in RTL, golden machine, compiler and runtime, and the test that must find each.

`python scripts/mutate.py` makes them one after another in a copy of the sources. A test that would not notice what it
is there for is found so; and a mistake once made by chance can be added here with the test that was missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Break:
    """A deliberate fault: ``old``, which stands once in ``file``, becomes ``new``.

    ``meaning``: what then goes wrong. ``test`` must fail: a pytest node of `make test`; without parameters all of
    them, until one fails."""

    id: str
    file: str
    old: str
    new: str
    meaning: str
    test: str

    @property
    def tests(self) -> list[str]:
        """Return what pytest is asked to run."""
        return [self.test]

    def applied(self, text: str) -> str:
        """Return the broken file. Raise ValueError if the text does not stand in it exactly once."""
        count = text.count(self.old)
        if count != 1:
            raise ValueError(f"break {self.id}: {self.old!r} stands {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def breaks() -> list[Break]:
    """All of them."""
    from weft.tb.mutations import (
        blocks,
        by_hand,
        by_hand_files,
        by_hand_forms,
        by_hand_machine,
        by_hand_places,
        by_hand_plain,
        by_hand_rooms,
        by_hand_rules,
        by_hand_schedules,
        by_hand_turns,
        by_hand_units,
        c_driver,
        compiler,
        control,
        cores,
        driver,
        golden,
        once_drawn,
        report,
        runtime,
        tflite,
    )

    return [*control.BREAKS, *blocks.BREAKS, *cores.BREAKS, *golden.BREAKS, *compiler.BREAKS, *runtime.BREAKS,
            *driver.BREAKS, *c_driver.BREAKS, *report.BREAKS, *tflite.BREAKS,
            *once_drawn.BREAKS, *by_hand.BREAKS, *by_hand_machine.BREAKS, *by_hand_places.BREAKS,
            *by_hand_rules.BREAKS, *by_hand_schedules.BREAKS, *by_hand_files.BREAKS, *by_hand_rooms.BREAKS,
            *by_hand_turns.BREAKS, *by_hand_forms.BREAKS, *by_hand_units.BREAKS,
            *by_hand_plain.BREAKS]
