"""``weft doctor``: what this machine lacks, and the one command that brings it."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from weft.cli import console
from weft.cli.options import JsonOption
from weft.cli.version import version
from weft.hw.contract.cache import cache_directory, chosen, shared
from weft.hw.contract.errors import WeftError, explain

OLDEST = (3, 11)
LEAST_FREE_BYTES = 2 << 30
"""A built simulator of a large machine with its objects takes some 100 MB, a bitstream's folder as much."""
SYSTEM = {"g++": "simulation", "make": "simulation", "perl": "simulation"}
FINE, LACKING, NOT_NEEDED = "ok", "missing", "not installed"
PINNED = re.compile(r"([A-Za-z0-9._-]+)==([^;\s]+)")
EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
BASE = ""
"""What no extra is needed for."""

Requirement = tuple[str, str]
"""A package and its version."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, what became of it, in words, and the command that mends it ("" where nothing is to do)."""

    what: str
    state: str
    found: str
    mend: str = ""


def doctor_command(
    extra: Annotated[list[str] | None, typer.Option("--extra", metavar="NAME", help="An extra that has to be there; "
                                                    "may be repeated; default: sim.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Look at this machine; for each lack print the one command that mends it. Exit code 1 where something lacks."""
    pinned = requirements()
    for name in extra or ():
        if name not in pinned:
            raise WeftError(explain("--extra", name, ", ".join(sorted(filter(None, pinned))), "name one of them"))
    found = [*_system(), *_packages(pinned, extra or ["sim"]), *_places()]
    if as_json:
        print(json.dumps({"schema": console.SCHEMA, "version": version(), "findings": [asdict(row) for row in found]}))
    else:
        console.print_columns([("what", "state", "found"), *((row.what, row.state, row.found) for row in found)])
        for row in found:
            if row.mend:
                print(f"{row.what}: {row.mend}")
    if any(row.state == LACKING for row in found):
        raise typer.Exit(1)


def _system() -> Iterator[Finding]:
    version_found = ".".join(map(str, sys.version_info[:3]))
    good = sys.version_info[:2] >= OLDEST
    yield Finding("Python", FINE if good else LACKING, version_found,
                  "" if good else "sudo apt-get install -y python3.11 python3.11-venv libpython3.11")
    for tool, purpose in SYSTEM.items():
        place = shutil.which(tool)
        yield Finding(tool, FINE if place else LACKING, place or f"needed for {purpose}",
                      "" if place else f"sudo apt-get install -y {tool}")


def _packages(pinned: dict[str, list[Requirement]], needed: Sequence[str]) -> Iterator[Finding]:
    """A row for each extra, the packages that every use needs first."""
    for name, wanted in pinned.items():
        lacking = [f"{package} {_installed(package) or 'missing'}, wanted {pin}" for package, pin in wanted
                   if _installed(package) != pin]
        must = name == BASE or name in needed
        state = FINE if not lacking else LACKING if must else NOT_NEEDED
        mend = f"{sys.executable} -m pip install {_source(name)}" if lacking else ""
        yield Finding(f"extra {name}" if name else "packages", state,
                      "; ".join(lacking) or f"{len(wanted)} package{'s' * (len(wanted) != 1)}", mend)


def _places() -> Iterator[Finding]:
    wanted = chosen()
    cache = cache_directory()
    try:
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        yield Finding("cache", LACKING, f"{cache}: {error.strerror}", "export WEFT_CACHE=$HOME/.cache/weft")
        return
    problem = shared(wanted) if wanted != cache else ""
    yield Finding("cache", LACKING if problem else FINE, problem or str(cache),
                  f"chmod go-w {wanted}" if problem else "")
    free = shutil.disk_usage(cache).free
    good = free >= LEAST_FREE_BYTES
    yield Finding("disk", FINE if good else LACKING, f"{free / (1 << 30):.1f} GiB free",
                  "" if good else f"rm -rf {cache}")


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _project() -> Path | None:
    """The checkout that runs; None of an installed wheel."""
    root = Path(__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def _source(extra: str) -> str:
    """What pip is to install again for an extra: the checkout, or the wheel where it came from."""
    project, ending = _project(), f"[{extra}]" if extra else ""
    return f"-e '{project}{ending}'" if project else f"'{_wheel()}{ending}'"


def _wheel() -> str:
    """The file that pip says it installed; else what pip calls such a file."""
    place = metadata.distribution("weft").read_text("direct_url.json")
    address = urlsplit(json.loads(place)["url"] if place else "")
    return unquote(address.path) if address.scheme == "file" else f"weft-{version()}-py3-none-any.whl"


def requirements() -> dict[str, list[Requirement]]:
    """Extra -> what it pins, BASE first: of a checkout from its pyproject.toml, else of the installed package."""
    project = _project()
    if project is not None:
        content = tomllib.loads((project / "pyproject.toml").read_text())["project"]
        texts = {BASE: content["dependencies"], **content["optional-dependencies"]}
    else:
        texts = {BASE: []}
        for line in metadata.requires("weft") or ():
            extra = EXTRA.search(line)
            texts.setdefault(extra[1] if extra else BASE, []).append(line)
    return {extra: [(match[1], match[2]) for text in lines if (match := PINNED.match(text))]
            for extra, lines in texts.items()}
