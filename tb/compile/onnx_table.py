"""The table of operators in docs/operators.md, made from the ONNX backend's node tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from weft.compiler.passes.operators import MACHINE_OPERATORS, OPERATORS
from weft.tb.compile.onnx_nodes import (
    ARCH,
    HOST,
    OUTSIDE,
    PASSED,
    REFUSED,
    SCOPE,
    TOLERANCE,
    Outcome,
    outcomes,
    outside,
    short,
)

PLACE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"

HEAD = f"""# Operators

Made by `scripts/operators_table.py`; `make test-onnx` runs the cases and checks that this page is what comes out.

The cases are the ONNX backend's node tests that compute on float32 tensors, one node each, for the operators below.
They are compiled for {ARCH.array_size} lanes of {ARCH.data_type} with value tables of {ARCH.lut_depth} entries,
calibrated with the case's own input. *passed*: the golden machine's output is within {TOLERANCE} of its largest
magnitude. *on host*: the end of a network, which onnxruntime computes with `--host-fallback`. *refused*: the compiler
says why. *out of scope*: refused too, but not for an inference machine of images and lines of numbers: training, masks
and indices as outputs, images of three dimensions, arrays without elements, results known when compiling.
Weights, bounds and shapes, which a case gives as inputs, are constants here.

"""


def table() -> str:
    """The whole page."""
    return page(list(outcomes()))


def share(found: Sequence[Outcome]) -> float:
    """Of the cases in scope that are not the host's: how many pass."""
    count = Counter(outcome.status for outcome in found)
    return count[PASSED] / (count[PASSED] + count[REFUSED])


def page(found: Sequence[Outcome]) -> str:
    """The page of these outcomes."""
    by_op = {op: [outcome for outcome in found if outcome.op == op] for op in SCOPE}
    rows = ["| operator | passed | on host | refused | out of scope |", "|---|---|---|---|---|"]
    rows += [_row(op, entries) for op, entries in sorted(by_op.items())]
    total = Counter(outcome.status for outcome in found)
    rows.append(f"| all {len(found)} | {total[PASSED]} | {total[HOST]} | {total[REFUSED]} | {total[OUTSIDE]} |")
    rows.append(f"\nOf the cases in scope for the machine {100 * share(found):.1f} % pass.")
    outer: dict[str, list[Outcome]] = {}
    for outcome in found:
        if outcome.status == OUTSIDE:
            outer.setdefault(outside(outcome.case), []).append(outcome)
    return (HEAD + "\n".join(rows) + "\n\n## Refusals\n\n" + _refusals(found) + "\n## Out of scope\n\n"
            + "".join(f"* {reason}: {', '.join(entry.case for entry in entries)}\n"
                      for reason, entries in sorted(outer.items())) + "\n" + _attributes())


def _row(op: str, entries: Sequence[Outcome]) -> str:
    count = Counter(entry.status for entry in entries)
    return "| " + " | ".join([op, *(str(count[kind] or "") for kind in (PASSED, HOST, REFUSED, OUTSIDE))]) + " |"


def _refusals(found: Sequence[Outcome]) -> str:
    messages: dict[str, list[str]] = {}
    for outcome in found:
        if outcome.status == REFUSED:
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
