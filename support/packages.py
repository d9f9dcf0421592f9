# SPDX-License-Identifier: Apache-2.0
"""The project as a Python distribution: its extras' pinned packages, and pip commands that install them."""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from importlib.util import find_spec

from weft.support.errors import WeftError, explain
from weft.support.sources import CHECKOUT, is_checkout

DISTRIBUTION = "weft-accelerator"
"""Name of the wheel. On the index ``weft`` is another project; the import and the command are called ``weft``."""
RUNTIME = "weft-runtime"
"""Name of the wheel that runs models alone (scripts/runtime_wheel.py)."""
HOST = "host"
"""The extra of RUNTIME for models of which the host runs a part; DISTRIBUTION needs its packages for every use."""
BASE = ""
"""The packages that every use needs, beside the extras."""
NEEDED = re.compile(r"([A-Za-z0-9._-]+)\s*([=<>!~][^;]*)")
EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")

Requirement = tuple[str, str]
"""A package and the versions that serve, as pip spells them: ``numpy``, ``>=2.0,<3``."""


def requirements() -> dict[str, list[Requirement]]:
    """Return the packages pinned by each extra: extra -> packages, BASE first.

    They are read from pyproject.toml in a checkout, else from the installed wheel."""
    project = _project()
    if project is not None:
        texts = {BASE: project["dependencies"], **project["optional-dependencies"]}
    else:
        from importlib import metadata  # imported with the module, weft --version would take half as long again

        texts = {BASE: []}
        for line in metadata.requires(_distribution()) or ():
            extra = EXTRA.search(line)
            texts.setdefault(extra[1] if extra else BASE, []).append(line)
    return {extra: [(match[1], match[2].strip()) for text in lines if (match := NEEDED.match(text))]
            for extra, lines in texts.items()}


def installed(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    from importlib import metadata  # as above

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def lacking(extra: str) -> list[Requirement]:
    """Return the packages of an extra that are not installed in a version that serves."""
    needed = requirements().get(extra, [])
    return [(package, versions) for package, versions in needed if not _serves(package, versions)]


def _serves(package: str, versions: str) -> bool:
    """Return whether the installed version of a package is one of ``versions``; any serves beside RUNTIME."""
    found = installed(package)
    try:
        from packaging.specifiers import SpecifierSet  # loading it takes 10 ms
    except ModuleNotFoundError:
        return found is not None
    return found is not None and SpecifierSet(versions).contains(found, prereleases=True)


def pip_install(extra: str) -> str:
    """Return the pip command that installs the packages that ``extra`` lacks, in a clone as beside a wheel.

    The packages are named one by one, because the project is on no index: its name there may be somebody else's."""
    wanted = lacking(extra) or requirements().get(extra, [])
    return " ".join([shlex.quote(sys.executable), "-m pip install",
                     *(shlex.quote(name + versions) for name, versions in wanted)])


def version() -> str:
    """Return the version of the project: that of the checkout that runs, else of the installed wheel."""
    project = _project()
    if project is not None:
        return str(project["version"])
    from importlib import metadata  # as above

    return metadata.version(_distribution())


def _distribution() -> str:
    """Return the name of the installed wheel."""
    return RUNTIME if installed(DISTRIBUTION) is None and installed(RUNTIME) is not None else DISTRIBUTION


def _project() -> dict | None:
    """Return the table ``project`` of the checkout's pyproject.toml; None in an installed wheel."""
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"] if is_checkout() else None


def need_package(what: str, package: str, extra: str) -> None:
    """Raise WeftError if ``package`` of ``extra``, which ``what`` needs, cannot be imported."""
    if find_spec(package) is None:
        raise WeftError(no_package(what, package, extra))


def no_package(what: str, package: str, extra: str, instead: str = "") -> str:
    """Return the error text that ``what`` lacks ``package`` of ``extra``; ``instead`` is another way out."""
    return explain(what, f"no Python package {package}", f"an installation with the extra {extra}",
                   pip_install(extra) + (f", or {instead}" if instead else ""))
