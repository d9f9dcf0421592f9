# SPDX-License-Identifier: Apache-2.0
"""The `.tarch` files that ship with the project, and the file that a name or a path means."""

from __future__ import annotations

from pathlib import Path

from weft.support.errors import WeftError, explain, nearest

PRESETS = Path(__file__).parents[2] / "presets"
"""The room `arch/`, in a checkout and in an installed wheel."""


def presets() -> dict[str, Path]:
    """Return name -> file of every preset that ships with the project."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.tarch"))}


def find(name_or_path: str | Path) -> Path:
    """Return the ``.tarch`` file that a preset's name or a path means. Raise WeftError if there is none."""
    path = Path(name_or_path)
    if path.suffix == ".tarch" and _is_file(path):
        return path
    known = presets()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    raise WeftError(explain("architecture", name_or_path, f"a preset ({', '.join(sorted(known))}) or an existing "
                            ".tarch file", nearest(path.name, known, "name one of them with -a")))


def _is_file(path: Path) -> bool:
    """Tell whether ``path`` is a regular file; a path that the system cannot take is none."""
    try:
        return path.is_file()
    except OSError:  # such as a name longer than the system takes
        return False
