"""The house rules that a program can check: packages, imports, and what the README promises."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TOOL = PROJECT["tool"]["setuptools"]

DATA_PACKAGES = {"weft.hw.presets"}
"""Packages of the wheel that hold data only."""

CONTRACT = {f"weft.hw.{name}" for name in ("arch", "cache", "csr", "errors", "isa", "numerics", "timing", "units")}
GENERATORS = {"weft.hw.verilog"}
"""What the running part may take of the hardware besides the contract."""


def test_every_package_is_listed_and_nothing_else() -> None:
    tops = {name: folder for name, folder in TOOL["package-dir"].items() if name not in DATA_PACKAGES}
    found = {".".join([name, *path.parent.relative_to(ROOT / folder).parts])
             for name, folder in tops.items() for path in (ROOT / folder).rglob("__init__.py")}
    assert found == set(TOOL["packages"]) - DATA_PACKAGES


# -- imports -----------------------------------------------------------------------------------------------------------
def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["weft", *(part for part in parts if part != "__init__")])


def imports(path: Path) -> set[str]:
    """Our own modules that a file names in its import statements, those inside functions too."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            inside = ROOT.joinpath(*module.split(".")[1:])
            found |= {f"{module}.{alias.name}" if inside.is_dir() else module for alias in node.names}
    return {module for module in found if module.split(".")[0] == "weft"}


def within(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def allowed(name: str, module: str) -> bool:
    """Whether the module ``name`` may import ``module`` (house.md, Layout)."""
    if name in CONTRACT or name == "weft.hw.reports":
        return module in CONTRACT
    if within(name, "weft.hw"):
        return within(module, "weft.hw")
    if within(name, "weft.tb.golden"):
        return module in CONTRACT or within(module, "weft.tb.golden")
    if within(name, "weft.compiler.cli", "weft.compiler.run"):
        hardware = CONTRACT | GENERATORS | {"weft.hw.reports"}
        return module in hardware or within(module, "weft.compiler", "weft.tb.golden", "weft.tb.lib", "weft.boards")
    if within(name, "weft.compiler"):
        return module in CONTRACT or within(module, "weft.compiler") and not within(module, "weft.compiler.run")
    if within(name, "weft.tb.lib"):
        return within(module, "weft.hw", "weft.tb.lib", "weft.tb.golden")
    return True


SOURCES = [path for top in ("hw", "compiler", "tb", "boards") for path in sorted((ROOT / top).rglob("*.py"))]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_keep_the_rules(path: Path) -> None:
    name = module_name(path)
    assert [module for module in sorted(imports(path)) if not allowed(name, module)] == []


def test_the_rules_can_be_broken() -> None:
    assert not allowed("weft.hw.isa", "weft.hw.core")
    assert not allowed("weft.tb.golden.machine", "weft.hw.simd.alu")
    assert not allowed("weft.tb.golden.machine", "weft.compiler.manifest")
    assert not allowed("weft.compiler.pipeline", "weft.tb.golden.machine")
    assert not allowed("weft.compiler.pipeline", "weft.hw.verilog")
    assert not allowed("weft.tb.lib.rtl", "weft.compiler.manifest")


def test_import_statements_are_all_seen() -> None:
    assert imports(ROOT / "tb" / "golden" / "dram.py") == {"weft.hw.arch", "weft.hw.errors", "weft.hw.isa"}
    assert "weft.tb.lib.toolchain" in imports(ROOT / "tb" / "lib" / "build.py")


# -- what the README promises ------------------------------------------------------------------------------------------
README = (ROOT / "README.md").read_text()


def test_make_targets_of_the_readme_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    named = set(re.findall(r"\bmake ([a-z-]+)", README))
    assert {"demo", "test", "verilog"} <= named <= targets


def test_commands_and_options_of_the_readme_exist() -> None:
    from weft.compiler.cli import app
    commands = {info.name or info.callback.__name__: info.callback for info in app.registered_commands}
    lines = re.findall(r"^ {4}(?:\S*/)?weft ([a-z]+)([^\n#]*)", README, re.M)
    assert {name for name, _ in lines} == set(commands)
    for name, rest in lines:
        known = option_names(commands[name])
        for option in re.findall(r"(?<!\S)(--?[a-z][a-z-]*)", rest):
            assert option in known, f"weft {name} has no {option}"


def option_names(command: object) -> set[str]:
    """All spellings of a command's options."""
    import typing

    hints = typing.get_type_hints(command, include_extras=True)
    return {name for hint in hints.values() for info in getattr(hint, "__metadata__", ())
            for name in (getattr(info, "default", None), *(getattr(info, "param_decls", None) or ()))}


def test_folders_of_the_readme_exist() -> None:
    for name in re.findall(r"^([a-z]+/) ", README, re.M):
        assert (ROOT / name).is_dir(), name


def test_version_is_in_the_changelog() -> None:
    assert f"## {PROJECT['project']['version']}" in (ROOT / "CHANGELOG.md").read_text()
