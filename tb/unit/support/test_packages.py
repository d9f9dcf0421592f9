# SPDX-License-Identifier: Apache-2.0
"""The commands that bring packages name what the project pins, and nothing that an index has from somebody else."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from weft.support import packages
from weft.support.errors import WeftError

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])
METADATA = ["numpy<3,>=2.0", "cocotb==2.1.0 ; extra == 'sim'", 'pyserial>=3.5; extra == "board"']
ADVICE = re.compile(r"pip install (?:-(?!e)\S* )*['\"]*weft\b(?!-)")
"""What would bring the other project called weft."""


def words(extra: str) -> list[str]:
    return shlex.split(packages.pip_install(extra))


def test_the_distribution_has_the_name_that_the_project_says() -> None:
    assert PROJECT["name"] == packages.DISTRIBUTION != "weft"
    assert packages.version() == PROJECT["version"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_command_names_each_package_with_its_versions(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None)
    needed = [text.partition(";")[0].strip() for text in PROJECT["optional-dependencies"][extra]]
    assert words(extra) == [sys.executable, "-m", "pip", "install", *needed]


def test_what_is_there_is_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    there = {**dict.fromkeys(dict(packages.requirements()["sim"]), "9999"), "cocotb": None}
    monkeypatch.setattr(packages, "requirements", lambda: {"sim": [(name, ">=1.0") for name in there]})
    monkeypatch.setattr(packages, "installed", there.get)
    assert words("sim")[4:] == ["cocotb>=1.0"]


def locked() -> dict[str, str]:
    """The packages of all locks, each of which is in one."""
    text = "".join(path.read_text() for path in ROOT.glob("lock*.txt"))
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    found = {canonical(name): version for name, version in pins}
    assert len(found) == len(pins)
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_holds_every_package_in_its_range() -> None:
    """But for what trains the demo network, which no test needs."""
    found = locked()
    for extra, wanted in packages.requirements().items():
        for package, versions in wanted:
            if extra != "train":
                assert SpecifierSet(versions).contains(found[canonical(package)]), f"{package} {versions}"


def test_what_runs_is_what_the_lock_says() -> None:
    """The lock names the version of every package here, whether the project asks for it or one of its packages does.

    setuptools adds a folder of its own copies to the search path when it is imported; nobody else reads it."""
    found, own = locked(), {packages.DISTRIBUTION, "pip", "setuptools", "wheel"}
    there = {canonical(each.name): each.version
             for each in metadata.distributions(path=[sysconfig.get_path("purelib")])}
    assert {name: version for name, version in there.items() if name in found and found[name] != version} == {}
    assert "numpy" in there and there.keys() - own != set()


@pytest.mark.parametrize(("found", "serves"), [("2.0", True), ("2.9.1", True), ("3.0", False), ("1.26", False),
                                               ("2.5rc1", True), (None, False)])
def test_a_range_of_versions_serves(found: str | None, serves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "requirements", lambda: {"": [("numpy", ">=2.0,<3")]})
    monkeypatch.setattr(packages, "installed", lambda package: found)
    assert (packages.lacking("") == []) is serves


def test_an_installed_wheel_knows_its_extras_from_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_project", lambda: None)
    monkeypatch.setattr(metadata, "requires", lambda name: METADATA if name == packages.DISTRIBUTION else None)
    assert packages.requirements() == {packages.BASE: [("numpy", "<3,>=2.0")], "sim": [("cocotb", "==2.1.0")],
                                       "board": [("pyserial", ">=3.5")]}


def test_a_package_that_lacks_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None)
    with pytest.raises(WeftError, match=r"picture: found no Python package no_such; allowed: an installation with the "
                                        r"extra board; way out: .* -m pip install 'pyserial>=3\.5,<4'$"):
        packages.need_package("picture", "no_such", "board")


def test_nothing_tells_to_install_the_other_project() -> None:
    tops = [path for path in ROOT.iterdir() if not path.name.startswith(".") and path.name not in ("build", "weft")]
    files = [path for top in tops for path in (top, *top.rglob("*")) if path.suffix in (".py", ".md", ".json", ".sh")
             and path.is_file() and path != Path(__file__)]
    assert {str(path.relative_to(ROOT)): found for path in files if (found := ADVICE.findall(path.read_text()))} == {}


@pytest.mark.parametrize("text", ["pip install weft", "pip install 'weft[board]'", "pip install -U 'weft[sim]'"])
def test_such_advice_would_be_found(text: str) -> None:
    assert ADVICE.search(text)


@pytest.mark.long
@pytest.mark.parametrize("extra", EXTRAS)
def test_pip_can_do_what_a_command_says(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every version can be had; nothing is installed."""
    monkeypatch.setattr(packages, "installed", lambda package: None)
    subprocess.run([*words(extra), "--dry-run", "--quiet", "--no-deps"], check=True)


def test_a_checkout_has_its_own_version_and_a_wheel_its_metadatas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "version", lambda name: f"9 of {name}")
    monkeypatch.setattr(packages, "_project", lambda: {"version": "7"})
    assert packages.version() == "7"
    monkeypatch.setattr(packages, "_project", lambda: None)
    assert packages.version() == f"9 of {packages._distribution()}"


@pytest.mark.parametrize(("there", "name"), [
    ((), packages.DISTRIBUTION), ((packages.RUNTIME,), packages.RUNTIME),
    ((packages.DISTRIBUTION,), packages.DISTRIBUTION),
    ((packages.DISTRIBUTION, packages.RUNTIME), packages.DISTRIBUTION)])
def test_the_wheel_that_is_installed_is_the_one_that_is_asked(there: tuple[str, ...], name: str,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda each: "1" if each in there else None)
    assert packages._distribution() == name
