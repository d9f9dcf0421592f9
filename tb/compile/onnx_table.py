# SPDX-License-Identifier: Apache-2.0
"""The page docs/operators.md and the outcomes in docs/data/onnx_nodes.csv, made from the ONNX backend's node tests."""

from __future__ import annotations

import csv
import io
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from weft.compiler.lowering.operators import MACHINE_OPERATORS, OPERATORS
from weft.tb.compile.onnx_nodes import (
    ARCH,
    FAILED,
    HOST,
    PASSED,
    TOLERANCE,
    Outcome,
    outside,
    short,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLACE = DOCS / "operators.md"
CASES = DOCS / "data" / "onnx_nodes.csv"

HEAD = f"""# Operators

This page says which ONNX operators run on the machine, which attributes the compiler honours, and what it refuses.
`scripts/operators_table.py` makes it; `make test-onnx` runs the cases and checks that this page is what comes out.

The cases are all node tests of the ONNX backend that compute on float32 tensors, one node each.
[onnx_nodes.csv](data/onnx_nodes.csv) has the outcome of each case. They are compiled for {ARCH.array_size} lanes of
{ARCH.data_type} with lookup tables of {ARCH.lut_depth} entries, and calibrated with the case's own input. Weights,
bounds and shapes, which a case gives as inputs, are constants here. The columns of the table count cases:

* *passed*: the golden machine's output is within {TOLERANCE} of its largest magnitude;
* *on host*: the compiler refuses the node, and says why. `--host-fallback` gives such a node of a network to
  onnxruntime. The ONNX backend (`weft.backend`) runs a model with no other node there alone;
* *failed*: neither gives what the case wants.

"""


REFUSALS = """## Refusals

These cases are for the machine, and the compiler refuses them or the result is wrong.

"""

OUTSIDE = """## Not for the machine

The machine is for inference on images and lines of numbers. These cases are something else. Each operator stands with
its number of cases.

"""

ATTRIBUTES = """## Attributes honoured

The compiler refuses other attributes, and other values of these. Constant inputs are counted from 0.

"""


def write(found: Sequence[Outcome]) -> None:
    """Write the page and the data file of these outcomes."""
    PLACE.write_text(page(found))
    CASES.write_text(data(found))


def data(found: Sequence[Outcome]) -> str:
    """Return a CSV file: case, operator, status, and why a case did not pass."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("case", "operator", "status", "reason"))
    writer.writerows((outcome.case, outcome.op, outcome.status, _reason(outcome)) for outcome in found)
    return text.getvalue()


def _reason(outcome: Outcome) -> str:
    return "" if outcome.status == PASSED else outside(outcome.case) or short(outcome.detail)


def share(found: Sequence[Outcome]) -> float:
    """Of the cases that are for the machine: how many pass there."""
    count = Counter(outcome.status for outcome in found if outcome.status == PASSED or not outside(outcome.case))
    return count[PASSED] / count.total()


def either(found: Sequence[Outcome]) -> float:
    """Of all cases: how many pass, on the machine or on the host."""
    return sum(outcome.status != FAILED for outcome in found) / len(found)


def page(found: Sequence[Outcome]) -> str:
    """Return the page of these outcomes."""
    return "\n".join((HEAD + _counts(found), REFUSALS + _refusals(found), OUTSIDE + _not_for_the_machine(found),
                      ATTRIBUTES + _attributes()))


def _counts(found: Sequence[Outcome]) -> str:
    """Return the table of operators, and the shares of all cases."""
    by_op: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_op.setdefault(outcome.op, []).append(outcome)
    rows = ["| operator | passed | on host | failed |", "|---|---|---|---|"]
    rows += [_row(op, entries) for op, entries in sorted(by_op.items())]
    total = Counter(outcome.status for outcome in found)
    rows.append(f"| all {len(found)} | {total[PASSED]} | {total[HOST]} | {total[FAILED]} |")
    rows.append(f"\nOf the cases that are for the machine {100 * share(found):.1f} % pass there; of all cases "
                f"{100 * either(found):.1f} % there or on the host.")
    return "\n".join(rows) + "\n"


def _not_for_the_machine(found: Sequence[Outcome]) -> str:
    """Return a list for each reason: operators with their number of cases."""
    outer: dict[str, Counter[str]] = {}
    for outcome in found:
        if outcome.status != PASSED and outside(outcome.case):
            outer.setdefault(outside(outcome.case), Counter())[outcome.op] += 1
    return "\n".join(_item(f"**{reason}**: " + ", ".join(f"{op} {count}" for op, count in sorted(ops.items())))
                     for reason, ops in sorted(outer.items())) + "\n"


def _item(text: str) -> str:
    """Return an entry of a list, wrapped."""
    return "* " + textwrap.fill(text, 116, break_long_words=False, break_on_hyphens=False).replace("\n", "\n  ")


def _row(op: str, entries: Sequence[Outcome]) -> str:
    count = Counter(entry.status for entry in entries)
    return "| " + " | ".join([op, *(str(count[kind] or "") for kind in (PASSED, HOST, FAILED))]) + " |"


def _refusals(found: Sequence[Outcome]) -> str:
    messages: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.status != PASSED and not outside(outcome.case):
            messages.setdefault(short(outcome.detail), []).append(outcome.case)
    return "\n".join(_item(f"{message} ({', '.join(names)})") for message, names in sorted(messages.items())) + "\n"


def _attributes() -> str:
    """Return the list of attributes, from the compiler's own table."""
    lines = []
    for op in sorted(MACHINE_OPERATORS):
        rule = OPERATORS[op]
        values = ", ".join(f"`{name}` ({entry.text})" for name, entry in rule.attributes.items()) or "none"
        constants = f"; constant inputs: {', '.join(map(str, rule.constants))}" if rule.constants else ""
        lines.append(_item(f"**{op}**: {values}{constants}"))
    return "\n".join(lines) + "\n"
