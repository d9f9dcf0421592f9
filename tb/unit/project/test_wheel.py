"""The wheel holds every sub-package and every data file, and works without the checkout."""

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from weft.hw.contract.arch import presets

ROOT = Path(__file__).parents[3]
ROOMS = ("hw", "compiler", "golden", "simulate", "runtime", "cli", "boards")
TOPS = {**{top: f"weft/{top}" for top in ROOMS}, "arch": "weft/presets"}
SUFFIXES = {".sv", ".cpp", ".h", ".tarch"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in an environment of its own, from a copy, so that nothing is left in the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "weft", "tb", *TOPS):
        subprocess.run(["cp", "-rP", str(ROOT / name), str(source)], check=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("weft-*.whl"))


def shipped(path: Path) -> bool:
    """Modules of packages, and the data files beside them; tests are not packages and stay behind."""
    package = path.parent if path.parent.name != "sv" else path.parents[1]
    return (package / "__init__.py").exists() and path.suffix in SUFFIXES | {".py"} or path.suffix == ".tarch"


def test_wheel_holds_packages_presets_and_simulation_sources(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = {f"{inside}/{path.relative_to(ROOT / top)}" for top, inside in TOPS.items()
                for path in (ROOT / top).rglob("*.*") if path.is_file() and shipped(path)}
    assert expected - names == set()
    assert {"weft/presets/pynq.tarch", "weft/simulate/sv/axi_dram.sv", "weft/simulate/sv/dram.cpp"} <= names


def test_wheel_holds_nothing_of_other_people(wheel: Path) -> None:
    tops = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert tops == {"weft", f"weft-{version}.dist-info"}


def test_installed_wheel_finds_its_presets(wheel: Path, tmp_path: Path) -> None:
    """Unpacked apart from the checkout, with the packages of this environment."""
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = ("import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in repr(f)]\n"
            "import weft.hw.contract.arch as a; print(a.__file__, sorted(a.presets()), a.Arch.load('tiny').array_size)")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(tmp_path))
    assert str(sorted(presets())) in done.stdout and done.stdout.strip().endswith(" 2")
