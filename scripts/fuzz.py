# SPDX-License-Identifier: Apache-2.0
"""Feed each reader of files what a coverage-guided fuzzer (atheris) makes of good ones.

    python scripts/fuzz.py --seconds 450                    # every reader in turn: an hour
    python scripts/fuzz.py --seconds 60 --reader tmodel     # one

An input takes at most 20 s and 2 GB. What a reader met and did not refuse, a hang and a waste are kept in
build/fuzz/READER/; exit code 2 if there was one. What was learned stays in build/fuzz/READER/corpus for the next run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import atheris
import typer

with atheris.instrument_imports(include=["weft"]):
    from weft.support.errors import WeftError, explain, run_script
    from weft.tb.hostile.fuzz import TARGETS, forget

HANG_SECONDS = 20
MOST_MEGABYTES = 2048
LONGEST_BYTES = 1 << 16
FOUND = 2


def feed(reader: str, options: list[str]) -> None:
    """Become the fuzzer of a reader; the process ends with it."""
    atheris.Setup([sys.argv[0], *options], TARGETS[reader].read)
    atheris.Fuzz()


def run(reader: str, seconds: int, folder: Path) -> bool:
    """Fuzz a reader in a process of its own. Return whether all went well."""
    corpus = folder / reader / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, content in enumerate(TARGETS[reader].good()):
        (corpus / f"good{number}").write_bytes(content)
    command = [sys.executable, __file__, "--feed", reader, str(corpus), f"-max_total_time={seconds}",
               f"-timeout={HANG_SECONDS}", f"-rss_limit_mb={MOST_MEGABYTES}", f"-max_len={LONGEST_BYTES}",
               f"-artifact_prefix={folder / reader}/", "-print_final_stats=1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    (folder / reader / "log").write_text(done.stdout)
    tried = [line.split()[-1] for line in done.stdout.splitlines() if "number_of_executed_units" in line]
    kept = [str(path) for path in (folder / reader).iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
    print(f"{reader}: {tried[-1] if tried else 'no'} inputs, {', '.join(kept) or 'none wrong'}", flush=True)
    return done.returncode == 0 and not kept


def main(
    seconds: Annotated[int, typer.Option(min=1, help="for each reader")] = 450,
    reader: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(TARGETS)}; all unless named")] = None,
    folder: Annotated[Path, typer.Option(help="where corpora and faults are kept")] = Path("build/fuzz"),
) -> None:
    """Fuzz readers one after another."""
    unknown = [name for name in reader or [] if name not in TARGETS]
    if unknown:
        raise WeftError(explain("--reader", unknown[0], ", ".join(TARGETS), "name one of them, or leave it out"))
    well = [run(name, seconds, folder) for name in reader or TARGETS]
    forget()
    raise SystemExit(0 if all(well) else FOUND)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--feed"]:
        feed(sys.argv[2], sys.argv[3:])
    else:
        run_script(lambda: typer.run(main))
