# SPDX-License-Identifier: Apache-2.0
"""Write what this project is made of as CycloneDX 1.6: each package of the locks, and the code of others that ships.

    python scripts/sbom.py [--output FILE]      default: dist/sbom.json

The same lock gives the same bytes. Licences are those that the installed packages state; one that is not installed here
has none in the file."""

from __future__ import annotations

import json
import tomllib
import uuid
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer
from lock import read
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ({"type": "library", "name": "plotly.js", "version": "4.1.1", "licenses": [{"license": {"id": "MIT"}}],
            "purl": "pkg:npm/plotly.js@4.1.1", "scope": "required"},)
"""The code of others in the repository and in the wheel (report/library/)."""
LONGEST_LICENCE = 80
"""The characters of a licence that is a name; some packages state the whole text."""


def locked() -> dict[str, str]:
    """Return name -> version of every package in the locks."""
    return {name: version for path in ROOT.glob("lock*.txt") for name, version in read(path).items()}


def licence(name: str) -> str:
    """Return the licence that an installed package states; empty if it states none, or is not installed."""
    try:
        stated = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return ""
    texts = [stated.get("License-Expression") or "", stated.get("License") or "",
             *(text.rpartition(" :: ")[2] for text in stated.get_all("Classifier") or []
               if text.startswith("License :: "))]
    return next((text for text in texts if text and "\n" not in text and len(text) <= LONGEST_LICENCE), "")


def component(name: str, version: str, required: set[str]) -> dict[str, Any]:
    """Return a package as a component; ``required``: canonical names of those that every user installs."""
    found: dict[str, Any] = {"type": "library", "name": name, "version": version,
                             "purl": f"pkg:pypi/{canonicalize_name(name)}@{quote(version)}",
                             "scope": "required" if canonicalize_name(name) in required else "optional"}
    stated = licence(name)
    return found | ({"licenses": [{"license": {"name": stated}}]} if stated else {})


def sbom() -> dict[str, Any]:
    """Return the whole document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {canonicalize_name(Requirement(each).name) for each in project["dependencies"]}
    components = [*(component(*each, required) for each in sorted(locked().items())), *SHIPPED]
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(components))}",
            "metadata": {"component": {"type": "library", "name": project["name"], "version": project["version"],
                                       "licenses": [{"license": {"id": project["license"]}}]}},
            "components": components}


def main(output: Annotated[Path, typer.Option("--output", metavar="FILE", help="The file to write.")]
         = Path("dist/sbom.json")) -> None:
    """Write the file."""
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(sbom(), indent=1) + "\n")
    print(output)


if __name__ == "__main__":
    typer.run(main)
