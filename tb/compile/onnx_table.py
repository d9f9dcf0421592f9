"""The table of operators in docs/operators.md, made from the ONNX backend's node tests."""

from __future__ import annotations

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
    outcomes,
    outside,
    short,
)

PLACE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"

HEAD = f"""# Operators

Made by `scripts/operators_table.py`; `make test-onnx` runs the cases and checks that this page is what comes out.

The cases are all of the ONNX backend's node tests that compute on float32 tensors, one node each. They are compiled
for {ARCH.array_size} lanes of {ARCH.data_type} with lookup tables of {ARCH.lut_depth} entries,
calibrated with the case's own input. *passed*: the golden machine's output is within {TOLERANCE} of its largest
magnitude. *on host*: the compiler refuses the node, and says why; within a network `--host-fallback` gives it to
onnxruntime, and the ONNX backend (`weft.backend`) runs a model of which nothing is left for the machine there alone.
*failed*: neither gives what the case wants. Weights, bounds and shapes, which a case gives as inputs, are constants
here.

"""


def table() -> str:
    """The whole page."""
    return page(list(outcomes()))


def share(found: Sequence[Outcome]) -> float:
    """Of the cases that are for the machine: how many pass there."""
    count = Counter(outcome.status for outcome in found if outcome.status == PASSED or not outside(outcome.case))
    return count[PASSED] / count.total()


def either(found: Sequence[Outcome]) -> float:
    """Of all cases: how many pass, on the machine or on the host."""
    return sum(outcome.status != FAILED for outcome in found) / len(found)


def page(found: Sequence[Outcome]) -> str:
    """The page of these outcomes."""
    by_op: dict[str, list[Outcome]] = {}
    for outcome in found:
        by_op.setdefault(outcome.op, []).append(outcome)
    rows = ["| operator | passed | on host | failed |", "|---|---|---|---|"]
    rows += [_row(op, entries) for op, entries in sorted(by_op.items())]
    total = Counter(outcome.status for outcome in found)
    rows.append(f"| all {len(found)} | {total[PASSED]} | {total[HOST]} | {total[FAILED]} |")
    rows.append(f"\nOf the cases that are for the machine {100 * share(found):.1f} % pass there; of all cases "
                f"{100 * either(found):.1f} % there or on the host.")
    outer: dict[str, list[Outcome]] = {}
    for outcome in found:
        if outcome.status != PASSED and outside(outcome.case):
            outer.setdefault(outside(outcome.case), []).append(outcome)
    return (HEAD + "\n".join(rows) + "\n\n## Refusals\n\n" + _refusals(found)
            + "\n## Not for the machine\n\nInference of images and lines of numbers is its business.\n\n"
            + "".join(f"* {reason}: {', '.join(entry.case for entry in entries)}\n"
                      for reason, entries in sorted(outer.items())) + "\n" + _attributes())


def _row(op: str, entries: Sequence[Outcome]) -> str:
    count = Counter(entry.status for entry in entries)
    return "| " + " | ".join([op, *(str(count[kind] or "") for kind in (PASSED, HOST, FAILED))]) + " |"


def _refusals(found: Sequence[Outcome]) -> str:
    messages: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.status != PASSED and not outside(outcome.case):
            messages.setdefault(short(outcome.detail), []).append(outcome.case)
    return "".join(f"* {message}\n  ({', '.join(names)})\n" for message, names in sorted(messages.items()))


def _attributes() -> str:
    """What is honoured, from the compiler's own table."""
    lines = ["## Attributes honoured", ""]
    for op in sorted(MACHINE_OPERATORS):
        rule = OPERATORS[op]
        values = ", ".join(f"`{name}` ({entry.text})" for name, entry in rule.attributes.items()) or "none"
        constants = f"; constant inputs: {', '.join(map(str, rule.constants))}" if rule.constants else ""
        lines.append(f"* **{op}**: {values}{constants}")
    return "\n".join(lines) + "\n"
