# SPDX-License-Identifier: Apache-2.0
"""Write the lock files: the versions that are installed in this environment, with the hash of every file of each.

    python scripts/lock.py

Hashes come from the index that pip is configured with, so the network is needed. A package of a lock that is not
installed here, such as TensorFlow, keeps its version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version
from pip._internal.commands import create_command
from pip._internal.index.collector import LinkCollector, parse_links
from pip._internal.models.link import Link

from weft.support.packages import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
MAIN, BUILD = "lock.txt", "lock-build.txt"
EXTRAS = {"lock-fuzz.txt": "fuzz", "lock-tensorflow.txt": "tensorflow"}
"""The locks of extras that `make setup` leaves out; each holds what comes on top of the main one."""
HEADS = {
    MAIN: "# The packages that the tests run with. `make setup` installs them, `make lock` writes them.\n"
          "# What pyproject.toml names are ranges, for users. The hashes are those of every file of a release.\n",
    BUILD: "# What builds packages from sources. `make setup` installs it first, `make lock` writes it.\n",
    **{lock: f"# What the extra {extra} takes besides lock.txt. `make lock` writes it.\n"
       for lock, extra in EXTRAS.items()},
}


# -- versions ----------------------------------------------------------------------------------------------------------
def read(lock: Path) -> dict[str, str]:
    """Return package -> version of a lock file."""
    return dict(re.findall(r"^([\w.-]+)==(\S+)", lock.read_text(), re.M))


def needed(extras: Iterable[str]) -> set[str]:
    """Return the canonical names of the installed packages that this project takes with ``extras``."""
    found: set[str] = set()
    wanted = [(DISTRIBUTION, ["", *extras])]
    while wanted:
        name, asked = wanted.pop()
        with suppress(metadata.PackageNotFoundError):
            for each in map(Requirement, metadata.requires(name) or ()):
                applies = each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in asked)
                if applies and canonicalize_name(each.name) not in found:
                    found.add(canonicalize_name(each.name))
                    wanted.append((each.name, ["", *each.extras]))
    return found


def versions() -> dict[str, dict[str, str]]:
    """Return lock -> package -> version; each package is in one lock."""
    installed = {found.name: found.version for found in metadata.distributions()}
    found = {lock: {name: installed.get(name, version) for name, version in read(ROOT / lock).items()}
             for lock in HEADS}
    known = {canonicalize_name(name) for names in (found.values(), [[DISTRIBUTION, "pip"]]) for each in names
             for name in each}
    others = set(metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ()) - set(EXTRAS.values())
    main = needed(others)
    of_extras = {lock: needed([extra]) - main for lock, extra in EXTRAS.items()}
    for name in [name for name in installed if canonicalize_name(name) not in known]:
        lock = next((lock for lock, names in of_extras.items() if canonicalize_name(name) in names), MAIN)
        found[lock][name] = installed[name]
    return found


# -- hashes ------------------------------------------------------------------------------------------------------------
def hashes(names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return package -> the SHA-256 of every file of its version on the index of pip."""
    command = create_command("download")
    options, _ = command.parse_args([])
    found: dict[str, list[str]] = {}
    with command.main_context():
        collector = LinkCollector.create(command.get_default_session(options), options)  # type: ignore[attr-defined]
        for name, version in names.items():
            pages = [collector.fetch_response(Link(place))
                     for place in collector.search_scope.get_index_urls_locations(name)]
            files = [link for page in pages if page is not None for link in parse_links(page)]
            found[name] = sorted({link.hash for link in files if link.hash_name == "sha256" and link.hash is not None
                                  and is_of(link.filename, version)})
            if not found[name]:
                raise SystemExit(f"{name} {version}: the index has no file with a hash")
    return found


def is_of(file: str, version: str) -> bool:
    """Tell whether a wheel or an archive of sources, by its name, is of a version."""
    archive = re.sub(r"\.(tar\.gz|tar\.bz2|zip)$", "", file)
    stated = file.split("-")[1] if file.endswith(".whl") else archive.rpartition("-")[2]
    try:
        return Version(stated) == Version(version)
    except InvalidVersion:  # another kind of file
        return False


def main() -> None:
    """Write the lock files."""
    for lock, names in versions().items():
        known = hashes(names)
        rows = [" \\\n    ".join([f"{name}=={names[name]}", *(f"--hash=sha256:{each}" for each in known[name])])
                for name in sorted(names, key=str.lower)]
        (ROOT / lock).write_text(HEADS[lock] + "\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
