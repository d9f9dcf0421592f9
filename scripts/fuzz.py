# SPDX-License-Identifier: Apache-2.0
"""Feed each reader of files what a coverage-guided fuzzer (atheris) makes of good ones.

    python scripts/fuzz.py --seconds 450                    # every reader in turn: an hour
    python scripts/fuzz.py --seconds 60 --reader tmodel     # one

An input takes at most 20 s and 2 GB. What a reader met and did not refuse, a hang and a waste are kept in
build/fuzz/READER/; exit code 2 if there was one. Inputs that led somewhere new stay in build/fuzz/READER/corpus."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from weft.support.errors import WeftError, explain, run_script
from weft.tb.hostile.fuzz import COMPILED, TARGETS, prepare

HANG_SECONDS = 20
MOST_MEGABYTES = 2048
LONGEST_BYTES = 1 << 16
FEED = "--feed"
FOUND = 2


def feed(reader: str, options: list[str]) -> None:
    """Become the fuzzer of a reader; the process ends with it. The last of the options is the folder of inputs."""
    atheris = importlib.import_module("atheris")
    for name in [name for name in sys.modules if name.partition(".")[0] == "weft"]:
        del sys.modules[name]  # imported again below, watched
    with atheris.instrument_imports(include=["weft"]):
        target = importlib.import_module("weft.tb.hostile.fuzz").TARGETS[reader]
    for number, content in enumerate(target.good()):
        (Path(options[-1]) / f"good{number}").write_bytes(content)
    atheris.Setup([sys.argv[0], *options], target.read)
    atheris.Fuzz()


def run(reader: str, seconds: int, folder: Path) -> bool:
    """Fuzz a reader in a process of its own. Return whether all went well."""
    corpus, log = folder / reader / "corpus", folder / reader / "log"
    corpus.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, FEED, reader, f"-max_total_time={seconds}", f"-timeout={HANG_SECONDS}",
               f"-rss_limit_mb={MOST_MEGABYTES}", f"-max_len={LONGEST_BYTES}", f"-artifact_prefix={folder / reader}/",
               "-print_final_stats=1", str(corpus)]
    with log.open("w") as file:
        code = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False,
                              env=os.environ | {COMPILED: str(folder / "digits")}).returncode
    tried = [line.split()[-1] for line in log.read_text(errors="replace").splitlines() if "executed_units" in line]
    wrong = [str(path) for path in (folder / reader).iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
    print(f"{reader}: {tried[-1] if tried else 'no'} inputs, {', '.join(wrong) or 'none wrong'}"
          + (f"; exit code {code}, see {log}" if code else ""), flush=True)
    return code == 0 and not wrong


def main(
    seconds: Annotated[int, typer.Option(min=1, help="for each reader")] = 450,
    reader: Annotated[list[str] | None, typer.Option(help=f"of {', '.join(TARGETS)}; all unless named")] = None,
    folder: Annotated[Path, typer.Option(help="where inputs and faults are kept")] = Path("build/fuzz"),
) -> None:
    """Fuzz readers one after another."""
    unknown = [name for name in reader or [] if name not in TARGETS]
    if unknown:
        raise WeftError(explain("--reader", unknown[0], ", ".join(TARGETS), "name one of them, or leave it out"))
    if importlib.util.find_spec("atheris") is None:
        raise WeftError(explain("fuzzing", "no package atheris", "the extra fuzz", "make fuzz installs it"))
    prepare(folder / "digits")
    well = [run(name, seconds, folder) for name in reader or TARGETS]
    raise SystemExit(0 if all(well) else FOUND)


if __name__ == "__main__":
    if sys.argv[1:2] == [FEED]:
        feed(sys.argv[2], sys.argv[3:])
    else:
        run_script(lambda: typer.run(main))
