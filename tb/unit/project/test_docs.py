# SPDX-License-Identifier: Apache-2.0
"""What is cited exists, and what is generated is current."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).parents[3]
TEXTS = (".py", ".md", ".toml", ".sv", ".cpp", ".sh", "Makefile")
"""How the names of files end in which people read."""

SAID = re.compile(r'"""(?:.|\n)*?"""|(?<=\s)#.*|"[^"\n]* [^"\n]*"')
FILE = re.compile(r"(?<![\w./<-])(?:\.\./)*[A-Za-z*_][\w./*-]*\.(?:md|py|sv|cpp)\b(?!\w)")
MODULE = re.compile(r"\bweft(?:\.[a-z_][a-z0-9_]*)+")
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r'docs/([\w/-]+\.md), "([^"]+)"(?: and "([^"]+)")?')
OUTSIDE = ("build/", "../shared")
"""What is built, and material beside the repository, is not in it."""
MADE = (".json", ".h", ".log")
"""Files that the project writes and that are called as the package is."""


@cache
def files() -> tuple[str, ...]:
    """Every file of the repository but hidden ones and what is built, by its path from the root."""
    tops = [top for top in sorted(ROOT.iterdir()) if not top.name.startswith(".") and top.name not in ("build", "weft")]
    found = [path for top in tops for path in (top, *sorted(top.rglob("*"))) if path.is_file()]
    return tuple(str(path.relative_to(ROOT)) for path in found if path.suffix != ".pyc")


def texts() -> list[str]:
    """All but this file, which cites what is not there on purpose, and the one that makes tests of its own."""
    own = (Path(__file__).name, "test_suite.py")
    return [name for name in files() if name.endswith(TEXTS) and Path(name).name not in own]


@cache
def prose(name: str) -> str:
    """What is said for people: of Python docstrings, comments and texts of more than a word, of the rest everything."""
    content = (ROOT / name).read_text()
    return "\n".join(SAID.findall(content)) if name.endswith(".py") else content


@cache
def exists(cited: str, where: str) -> bool:
    """Whether a file is meant: from the root, from the citing file's folder or room, or by its bare name anywhere.
    ``*`` and ``NAME`` stand for any name."""
    pattern = re.sub(r"NAME|\*", "*", cited)
    if "/" not in cited:
        return bool(fnmatch.filter([Path(name).name for name in files()], pattern))
    places = {ROOT, (ROOT / where).parent, ROOT / where.split("/")[0]}
    return any(place.is_dir() and path.is_file() for place in places for path in place.glob(pattern))


def missing_files(text: str, where: str) -> list[str]:
    return [cited for cited in FILE.findall(text) if not cited.startswith(OUTSIDE) and not exists(cited, where)]


@cache
def names(file: Path) -> set[str]:
    """What a module defines or imports."""
    nodes = list(ast.walk(ast.parse(file.read_text()))) if file.is_file() else []
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return defined | {node.id for node in nodes if isinstance(node, ast.Name)}


def module_exists(cited: str) -> bool:
    """A module or package, or a name that one defines."""
    place = ROOT / "weft"
    for part in cited.split(".")[1:]:
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            place = place / f"{part}.py"
        else:
            return part in names(place if place.is_file() else place / "__init__.py")
    return True


@cache
def headings(page: Path) -> set[str]:
    return set(re.findall(r"^#+ (.+)$", page.read_text(), re.M))


def anchor(heading: str) -> str:
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-")


def broken_links(text: str, where: str) -> list[str]:
    broken = []
    for link in LINK.findall(text):
        target, _, part = link.partition("#")
        page = (ROOT / where).parent / target if target else ROOT / where
        if "://" not in link and not (page.exists() and (not part or part in map(anchor, headings(page)))):
            broken.append(link)
    return broken


def found(names: Iterable[str], faults: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Of each file that has any, its faults."""
    return {name: wrong for name in names if (wrong := faults(name))}


def test_files_that_are_cited_exist() -> None:
    assert found(texts(), lambda name: missing_files(prose(name), name)) == {}


PUBLIC = {f"weft.{name}" for name in weft.__all__}


def test_modules_that_are_cited_exist() -> None:
    def missing(name: str) -> list[str]:
        cited = {module for module in MODULE.findall(prose(name)) if not module.endswith(MADE)}
        return [module for module in sorted(cited) if not PUBLIC.intersection((module, module.rpartition(".")[0]))
                and not module_exists(module)]

    assert found(texts(), missing) == {}


def test_links_lead_somewhere() -> None:
    pages = [name for name in files() if name.endswith(".md")]
    assert found(pages, lambda name: broken_links((ROOT / name).read_text(), name)) == {}


def test_headings_that_are_cited_exist() -> None:
    def missing(name: str) -> list[str]:
        cited = HEADING.findall(" ".join(prose(name).split()))
        return [f"{page}: {heading}" for page, *entries in cited for heading in filter(None, entries)
                if heading not in headings(ROOT / "docs" / page)]

    assert found(texts(), missing) == {}


def test_every_page_is_in_an_index() -> None:
    """The README of a folder of docs/ lists the pages of that folder."""
    for folder in (path.parent for path in (ROOT / "docs").rglob("README.md")):
        index = (folder / "README.md").read_text()
        assert [page.name for page in sorted(folder.glob("*.md")) if f"({page.name})" not in index] == ["README.md"]


def test_every_page_is_once_in_the_navigation_of_the_site() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = sorted(str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md"))
    assert sorted(re.findall(r"([\w/-]+\.md)$", nav, re.M)) == pages


def test_steps_of_the_compiler_are_those_of_its_page() -> None:
    from weft.compiler.pipeline import STEPS

    table = (ROOT / "docs" / "compiler.md").read_text().partition("| step | what it leaves |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.M) == [step.name for step in STEPS]


def docs(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, ROOT / "scripts" / "docs.py", *options], capture_output=True, text=True,
                          check=False)


def test_generated_parts_are_current() -> None:
    done = docs("--check")
    assert done.returncode == 0, done.stderr


# -- a test that cannot fail is none -----------------------------------------------------------------------------------
@pytest.mark.parametrize("text", ["see house_of_cards.md", "``hw/isa.py`` has it", "tb/golden/dram.py",
                                  "run/lower_*.py", "../tb/lib/trace.py", "boards/NAME.sv"])
def test_a_file_that_is_not_there_is_found(text: str) -> None:
    assert len(missing_files(text, "compiler/pipeline.py")) == 1


@pytest.mark.parametrize("text", ["``isa.py``", "hw/contract/isa.py", "boards/ultra*.py", "lowering/operators.py",
                                  "docs/house.md", "boards/NAME.py", "build/any/thing.md"])
def test_a_file_that_is_there_is_not(text: str) -> None:
    assert missing_files(text, "compiler/pipeline.py") == []


def test_modules_links_and_headings_can_be_wrong() -> None:
    assert module_exists("weft.compiler.lir.text") and module_exists("weft.hw.contract")
    assert not module_exists("weft.compiler.cli") and not module_exists("weft.hw.isa")
    assert broken_links("[a](house.md#names) [b](house.md#nothing) [c](nowhere.md)", "docs/README.md") == [
        "house.md#nothing", "nowhere.md"]
    assert HEADING.findall('(docs/machine/errors.md, "Nothing")') == [("machine/errors.md", "Nothing", "")]
    assert HEADING.findall('(docs/house.md, "Errors" and "Nothing")') == [("house.md", "Errors", "Nothing")]
    assert "Nothing" not in headings(ROOT / "docs" / "house.md")
