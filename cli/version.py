"""Which version of weft this is."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path


def version() -> str:
    """Return the version of the installed package; of a plain clone, in which nothing is installed, the one that its
    pyproject.toml says."""
    try:
        return metadata.version("weft")
    except metadata.PackageNotFoundError:
        import tomllib  # a plain clone alone needs it

        project = tomllib.loads((Path(__file__).resolve().parents[1] / "pyproject.toml").read_text())
        return str(project["project"]["version"])


def said_version() -> str:
    """Return the line that ``weft --version`` prints."""
    return f"weft {version()}"
