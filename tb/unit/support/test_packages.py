"""The commands that bring packages name what the project pins, and nothing that an index has from somebody else."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from weft.support import packages
from weft.support.errors import WeftError

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(PROJECT["optional-dependencies"])
METADATA = ["numpy==2.4.6", "cocotb==2.1.0 ; extra == 'sim'", 'pyserial==3.5; extra == "board"']
ADVICE = re.compile(r"pip install (?:-(?!e)\S* )*['\"]*weft\b(?!-)")
"""What would bring the other project called weft."""


def words(extra: str) -> list[str]:
    return shlex.split(packages.pip_install(extra))


def test_the_distribution_has_the_name_that_the_project_says() -> None:
    assert PROJECT["name"] == packages.DISTRIBUTION != "weft"
    assert packages.version() == PROJECT["version"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_command_names_pinned_packages_alone(extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None)
    pinned = [re.split("[ ;]", text)[0] for text in PROJECT["optional-dependencies"][extra]]
    assert words(extra) == [sys.executable, "-m", "pip", "install", *pinned]


def test_what_is_there_is_not_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None if package == "cocotb" else dict(
        packages.requirements()["sim"]).get(package))
    assert [word.split("==")[0] for word in words("sim")[4:]] == ["cocotb"]


def test_an_installed_wheel_knows_its_extras_from_its_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_project", lambda: None)
    monkeypatch.setattr(metadata, "requires", lambda name: METADATA if name == packages.DISTRIBUTION else None)
    assert packages.requirements() == {packages.BASE: [("numpy", "2.4.6")], "sim": [("cocotb", "2.1.0")],
                                       "board": [("pyserial", "3.5")]}


def test_a_package_that_lacks_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "installed", lambda package: None)
    with pytest.raises(WeftError, match=r"picture: found no Python package no_such; allowed: an installation with the "
                                        r"extra board; way out: .* -m pip install pyserial==3\.5$"):
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
