# SPDX-License-Identifier: Apache-2.0
"""The house rules that a program can check: packages, imports, and what the README promises."""

import os
import re
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages  # before a test imports distutils, which it replaces

from weft.tb.bench.imports import ROOMS, ROOT, imports, module_name

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FIND = PROJECT["tool"]["setuptools"]["packages"]["find"]

SUPPORT = "weft.support"
CONTRACT = "weft.hw.contract"
SHIPS = {"arch": "weft.presets", "models": "weft.models", **{room: f"weft.{room}" for room in ROOMS if room != "tb"}}
"""Folder of the project -> package of the wheel."""


def test_the_package_is_a_link_for_each_room() -> None:
    links = {path.name: os.readlink(path) for path in (ROOT / "weft").iterdir() if path.is_symlink()}
    assert links == {**{room: f"../{room}" for room in ROOMS}, "presets": "../arch", "models": "../models"}


def test_every_room_but_the_test_bench_ships() -> None:
    found = set(find_packages(str(ROOT), include=FIND["include"], exclude=FIND["exclude"]))
    rooms = {".".join([package, *path.parent.relative_to(ROOT / folder).parts])
             for folder, package in SHIPS.items() for path in (ROOT / folder).rglob("__init__.py")}
    assert found == rooms | {"weft"}


# -- imports -----------------------------------------------------------------------------------------------------------
def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


MAY_IMPORT = {
    SUPPORT: (SUPPORT,),
    CONTRACT: (CONTRACT,),
    "weft.hw.flow.reports": (CONTRACT,),
    "weft.hw": ("weft.hw",),
    "weft.golden": (CONTRACT, "weft.golden"),
    "weft.cycles": (CONTRACT, "weft.cycles"),
    "weft.simulate": ("weft.hw", "weft.golden", "weft.simulate"),
    "weft.tmodel": (CONTRACT, "weft.tmodel"),
    "weft.runtime": (CONTRACT, "weft.tmodel", "weft.runtime", "weft.golden", "weft.simulate", "weft.boards.BOARDS"),
    "weft.compiler.check": (CONTRACT, "weft.golden", "weft.tmodel", "weft.compiler"),
    "weft.compiler": (CONTRACT, "weft.cycles", "weft.tmodel", "weft.compiler"),
    "weft.report": (CONTRACT, "weft.cycles", "weft.tmodel", "weft.runtime", "weft.compiler", "weft.report"),
    "weft.boards.shell": ("weft.hw", "weft.boards"),
    "weft.boards.vivado": ("weft.hw", "weft.boards"),
    "weft.boards.standalone": (CONTRACT, "weft.hw.flow.reports", "weft.boards", "weft.tmodel", "weft.runtime"),
    "weft.boards.openxc7": ("weft.hw", "weft.boards"),
    "weft.boards": (CONTRACT, "weft.boards"),
    "weft.explore": (CONTRACT, "weft.hw.flow.parts", "weft.hw.flow.resources", "weft.cycles", "weft.tmodel",
                     "weft.runtime", "weft.compiler", "weft.explore"),
    "weft.schedule": (CONTRACT, "weft.cycles", "weft.tmodel", "weft.compiler", "weft.schedule"),
    "weft.cli": ("weft.hw", "weft.golden", "weft.cycles", "weft.simulate", "weft.tmodel", "weft.runtime",
                 "weft.compiler", "weft.report", "weft.boards", "weft.explore", "weft.schedule", "weft.cli"),
    "weft.tb": ("weft",),
}
"""Room -> what it may import, besides ``weft.support``; of several rows the first that fits counts."""


def allowed(name: str, module: str) -> bool:
    """Whether the module ``name`` may import ``module``. Nothing but the test bench imports the test bench."""
    return within(module, SUPPORT, *next(rooms for room, rooms in MAY_IMPORT.items() if within(name, room)))


SOURCES = [path for top in ROOMS for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_keep_the_rules(path: Path) -> None:
    name = module_name(path)
    assert [module for module in sorted(imports(path)) if not allowed(name, module)] == []


def test_the_rules_can_be_broken() -> None:
    assert not allowed("weft.hw.contract.isa", "weft.hw.core")
    assert not allowed("weft.hw.flow.reports", "weft.hw.core")
    assert not allowed("weft.golden.machine", "weft.hw.simd.alu")
    assert not allowed("weft.support.files", "weft.hw.contract.arch")
    assert not allowed("weft.golden.machine", "weft.tmodel.manifest")
    assert not allowed("weft.cycles.replay", "weft.compiler.errors")
    assert not allowed("weft.tmodel.manifest", "weft.runtime.session")
    assert not allowed("weft.compiler.pipeline", "weft.runtime.session")
    assert not allowed("weft.compiler.pipeline", "weft.golden.machine")
    assert not allowed("weft.compiler.pipeline", "weft.hw.flow.verilog")
    assert not allowed("weft.simulate.rtl", "weft.tmodel.manifest")
    assert not allowed("weft.runtime.session", "weft.compiler.pipeline")
    assert not allowed("weft.runtime.driver.links", "weft.boards.shell.generate")
    assert not allowed("weft.report.page", "weft.cli.cycle_table")
    assert not allowed("weft.explore.search", "weft.hw.core")
    assert not allowed("weft.schedule.read", "weft.golden.machine")
    assert not allowed("weft.compiler.pipeline", "weft.schedule.read")
    assert not allowed("weft.cli.main", "weft.tb.shared")


def test_import_statements_are_all_seen() -> None:
    assert imports(ROOT / "golden" / "dram.py") == {f"{CONTRACT}.arch", f"{CONTRACT}.key_values", f"{SUPPORT}.errors"}
    assert "weft.simulate.toolchain" in imports(ROOT / "simulate" / "build.py")


COMPILER = ("errors", "digest", "progress", "text_form", "cores", "request", "parameters", "products", "lir",
            "lir_table", "lir_accesses", "frontend", "indices", "lowering", "passes", "partition", "layers", "quantize",
            "tiling", "choices", "memory", "lir_verifier", "scheduler", "split", "backend", "steps", "pipeline",
            "check", "tuning")
"""Rooms of the compiler, and files that are in none. Each imports only those before it: so no two import each other."""


def compiler_room(module: str) -> str:
    return module.split(".")[2]


def imports_later_rooms(name: str, modules: set[str]) -> list[str]:
    """Of the compiler's ``modules``, those that the module ``name`` of the compiler must not import."""
    before = COMPILER[:COMPILER.index(compiler_room(name)) + 1]
    return sorted(module for module in modules
                  if within(module, "weft.compiler") and compiler_room(module) not in before)


@pytest.mark.parametrize("path", sorted((ROOT / "compiler").rglob("*.py")),
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_rooms_of_the_compiler_import_in_one_direction(path: Path) -> None:
    if module_name(path) != "weft.compiler":
        assert imports_later_rooms(module_name(path), imports(path)) == []


def test_the_compilers_order_can_be_broken() -> None:
    later = {"weft.compiler.quantize.points", "weft.compiler.frontend.graph", "weft.hw.contract.arch"}
    assert imports_later_rooms("weft.compiler.passes.fold_forward", later) == ["weft.compiler.quantize.points"]
    assert imports_later_rooms("weft.compiler.backend.write", later) == []


# -- what the README promises ------------------------------------------------------------------------------------------
README, MANUAL = (ROOT / "README.md").read_text(), (ROOT / "docs" / "cli.md").read_text()


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)", README + MANUAL))
    assert {"demo", "test", "verilog", "setup"} <= named <= targets


def test_the_manual_has_every_command_and_no_option_that_is_not_there() -> None:
    from weft.cli.app import application
    callbacks = [(info.name, info.callback) for info in application().registered_commands if info.callback]
    commands = {name or callback.__name__: callback for name, callback in callbacks}
    lines = re.findall(r"^ {4,8}(?:\S*/)?weft ([a-z]+)([^\n#]*)", README + MANUAL, re.M)
    assert {name for name, _ in lines} == {*commands, "board", "ir"}
    for name, rest in lines:
        if name in ("board", "ir"):  # of several commands: tb/unit/project/test_pages_run.py
            continue
        known = option_names(commands[name])
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest):
            assert option in known, f"weft {name} has no {option}"


def option_names(command: object) -> set[str]:
    """All spellings of a command's options."""
    import typing

    hints = typing.get_type_hints(command, include_extras=True)
    return {name for hint in hints.values() for info in getattr(hint, "__metadata__", ())
            for name in (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))}


def test_rooms_of_the_house_exist() -> None:
    first_column = "".join(re.findall(r"^\|[^|]*\|", (ROOT / "docs" / "house.md").read_text(), re.M))
    rooms = re.findall(r"`([a-z/]+)/`", first_column)
    assert {*ROOMS, *SHIPS} <= set(rooms) and [name for name in rooms if not (ROOT / name).is_dir()] == []


def test_version_is_in_the_changelog() -> None:
    assert f"## {PROJECT['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()
