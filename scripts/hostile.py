# SPDX-License-Identifier: Apache-2.0
"""Hostile files and command lines over every reader and command: all must be refused by one message.

    python scripts/hostile.py                     # all, with a table
    python scripts/hostile.py --quick             # those of `make test`
    python scripts/hostile.py --only "npz: "      # those whose names contain it; --show prints what they say
    python scripts/hostile.py --quick --json      # for a program that reads it

Exit code 2 if a case went wrong: a traceback, no message, too much time or memory, something left behind."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from weft.tb.hostile.runner import Outcome, all_cases, prepare, run_case


def main(
    quick: Annotated[bool, typer.Option(help="those of make test")] = False,
    only: Annotated[str, typer.Option(help="part of a case's name")] = "",
    show: Annotated[bool, typer.Option(help="print what each case says")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one object a case")] = False,
) -> None:
    """Run the cases; exit with code 2 if one went wrong."""
    cases = [case for case in all_cases() if only in case.name and (case.quick or not quick)]
    prepare()
    outcomes = []
    for case in cases:
        outcome = run_case(case)
        outcomes.append(outcome)
        if as_json:
            print(json.dumps({"name": case.name, "problem": outcome.problem, "said": outcome.said[:2000]}), flush=True)
        elif outcome.problem or show:
            print(f"{case.name}: {outcome.problem or 'ok'}" + (f"\n    {outcome.said[:1000]!r}" if show else ""),
                  flush=True)
    if not as_json:
        print_table(outcomes)
    raise typer.Exit(2 if any(outcome.problem for outcome in outcomes) else 0)


def print_table(outcomes: list[Outcome]) -> None:
    """Print a row for each reader, and which cases took the most time and memory."""
    refused = Counter(outcome.case.reader for outcome in outcomes if not outcome.problem and outcome.case.code)
    legal = Counter(outcome.case.reader for outcome in outcomes if not outcome.problem and not outcome.case.code)
    wrong = Counter(outcome.case.reader for outcome in outcomes if outcome.problem)
    print(f"{'reader':16}{'refused':>9}{'legal':>9}{'wrong':>9}")
    for reader in dict.fromkeys(outcome.case.reader for outcome in outcomes):
        print(f"{reader:16}{refused[reader]:9}{legal[reader]:9}{wrong[reader]:9}")
    print(f"{'all':16}{refused.total():9}{legal.total():9}{wrong.total():9}")
    for label, key in (("longest", lambda found: found.seconds), ("largest", lambda found: found.bytes)):
        worst = max(outcomes, key=key)
        print(f"{label}: {worst.case.name}, {worst.seconds:.1f} s, {worst.bytes >> 20} MB")


if __name__ == "__main__":
    typer.run(main)
