# SPDX-License-Identifier: Apache-2.0
"""The parts of the project: the SBOM, the notices and the hashes say what the lock and the repository say."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
NOTICES = (ROOT / "THIRD-PARTY-NOTICES.md").read_text()
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "lock.txt").read_text(), re.M))


def sbom(folder: Path, name: str) -> bytes:
    subprocess.run([sys.executable, "scripts/sbom.py", "--output", str(folder / name)], cwd=ROOT, check=True,
                   capture_output=True)
    return (folder / name).read_bytes()


def test_the_sbom_names_every_package_of_the_lock(tmp_path: Path) -> None:
    """Twice the same bytes, and no other package but the code that ships."""
    content = sbom(tmp_path, "one.json")
    assert content == sbom(tmp_path, "two.json")
    values = json.loads(content)
    assert (values["bomFormat"], values["specVersion"]) == ("CycloneDX", "1.6")
    found = {each["name"]: each["version"] for each in values["components"]}
    assert found == {**LOCKED, "plotly.js": "4.1.1"}
    numpy = next(each for each in values["components"] if each["name"] == "numpy")
    assert numpy["purl"] == f"pkg:pypi/numpy@{LOCKED['numpy']}" and numpy["scope"] == "required"
    assert "BSD" in numpy["licenses"][0]["license"]["name"]


def test_the_notices_name_what_ships_and_what_an_installation_brings() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for name in (Requirement(each).name for each in project["dependencies"]):
        assert re.search(rf"^\| {re.escape(name)} \| \S", NOTICES, re.M), name
    head = (ROOT / "report" / "library" / "plotly-cartesian.min.js").read_text()[:200]
    version = re.search(r"v(\d+\.\d+\.\d+)", head)
    assert version and f"| {version[1]} | MIT" in NOTICES
    assert {path.name for path in (ROOT / "report" / "library").iterdir()} == {"LICENSE-plotly.js",
                                                                              "plotly-cartesian.min.js"}
