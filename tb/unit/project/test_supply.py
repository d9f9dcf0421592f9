# SPDX-License-Identifier: Apache-2.0
"""The parts of the project: the SBOM, the notices and the hashes say what the lock and the repository say."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[3]
NOTICES = (ROOT / "THIRD-PARTY-NOTICES.md").read_text()
LOCKS = sorted(ROOT.glob("lock*.txt"))
LOCKED = dict(re.findall(r"^([\w.-]+)==(\S+)", "".join(path.read_text() for path in LOCKS), re.M))


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


# -- locks -------------------------------------------------------------------------------------------------------------
@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that writes the locks."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    return importlib.import_module("lock")


def test_each_line_of_a_lock_is_a_pin_with_hashes() -> None:
    assert [path.name for path in LOCKS] == ["lock-build.txt", "lock-fuzz.txt", "lock-tensorflow.txt", "lock.txt"]
    for path in LOCKS:
        text = "".join(line for line in path.read_text().splitlines(keepends=True) if not line.startswith("#"))
        pins = text.replace(" \\\n", "").splitlines()
        assert pins and all(re.fullmatch(r"[\w.-]+==[\w.]+( +--hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)


def wheel(folder: Path) -> Path:
    """A package of one line."""
    path = folder / "milk-1.0-py3-none-any.whl"
    texts = {"METADATA": "Metadata-Version: 2.1\nName: milk\nVersion: 1.0\n", "RECORD": "",
             "WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("milk.py", "FAT = 3.5\n")
        for name, text in texts.items():
            archive.writestr(f"milk-1.0.dist-info/{name}", text)
    return path


@pytest.mark.parametrize(("change", "says"), [
    ("", ""), ("wrong", "DO NOT MATCH THE HASHES"), ("none", "--require-hashes")])
def test_make_setup_refuses_what_has_not_its_hash(change: str, says: str, tmp_path: Path) -> None:
    """By the flags of the Makefile, which takes each lock with them."""
    makefile = (ROOT / "Makefile").read_text()
    flags = re.search(r"^LOCKED := (.*)$", makefile, re.M)
    assert flags and all(f"$(LOCKED) --requirement {path.name}\n" in makefile for path in LOCKS)
    digest = hashlib.sha256(wheel(tmp_path).read_bytes()).hexdigest()
    digest = digest[::-1] if change == "wrong" else digest
    (tmp_path / "lock.txt").write_text("milk==1.0" + (f" --hash=sha256:{digest}\n" if change != "none" else "\n"))
    done = subprocess.run([sys.executable, *flags[1].split(), "--no-index", "--find-links", tmp_path, "--target",
                           tmp_path / "to", "--requirement", tmp_path / "lock.txt"], cwd=tmp_path, text=True,
                          capture_output=True, check=False)
    assert done.returncode == (1 if change else 0) and says in done.stderr, done.stderr
    assert (tmp_path / "to" / "milk.py").exists() == (not change)


@pytest.mark.parametrize(("file", "is_one"), [
    ("milk-1.0-py3-none-any.whl", True), ("milk-1.0.tar.gz", True), ("oat-milk-1.0.0.zip", True),
    ("milk-1.0.1.zip", False), ("milk-1.0.post1-py3-none-any.whl", False),
    ("milk-1.0-macosx.exe", False), ("milk-11.0.tar.gz", False)])
def test_the_files_of_a_version_are_known_by_their_names(file: str, is_one: bool, lock: ModuleType) -> None:
    assert lock.is_of(file, "1.0") == is_one


def test_what_an_extra_takes_is_followed_to_its_end(lock: ModuleType) -> None:
    found = lock.needed(["notebook"])
    assert {"ipykernel", "numpy", "tornado", "llvmlite"} <= found  # llvmlite by numba, tornado by ipykernel
    assert "ruff" not in found and lock.needed(["test"]) > {"ruff", "pluggy"}
