# SPDX-License-Identifier: Apache-2.0
"""The project's own files: the checkout that runs, and what its sources hold."""

from __future__ import annotations

import hashlib
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
"""The project's root in a checkout; in an installed wheel the package's folder, which has no pyproject.toml."""


def is_checkout() -> bool:
    """Return whether a checkout runs, and no installed wheel."""
    return (CHECKOUT / "pyproject.toml").is_file()


def sources_digest(*packages: str) -> str:
    """Return 20 hexadecimal digits that change when a Python file of these packages, or of those in them, changes.

    ``packages``: their names, such as ``weft.cycles``."""
    digest = hashlib.sha256()
    for package in packages:
        spec = find_spec(package)
        assert spec is not None and spec.submodule_search_locations, package
        folder = Path(spec.submodule_search_locations[0])
        for path in sorted(folder.rglob("*.py")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:20]
