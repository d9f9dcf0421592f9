# SPDX-License-Identifier: Apache-2.0
"""The estimator's machine code is kept where there is room, and made again where there is none."""

import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest
from numba.core.caching import IndexDataCacheFile

from weft.cycles import jit, kept_code


def twice(number: int) -> int:
    return 2 * number


def compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(kept_code, "FOLDER", folder)
    return jit.entry(twice)


def test_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiled(tmp_path, monkeypatch)(21) == 42
    again = compiled(tmp_path, monkeypatch)
    assert again(21) == 42 and sum(again.stats.cache_hits.values()) == 1


def test_constants_share_their_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel called with the constants 1 and 2 is compiled once, not once for each."""
    monkeypatch.setattr(kept_code, "FOLDER", tmp_path)
    kernel = jit.kernel(twice)

    def both() -> int:
        return kernel(1) + kernel(2)

    assert jit.entry(both)() == 6
    assert len(cast(Any, kernel).signatures) == 1
    with pytest.raises(TypeError, match="twice is a kernel"):
        kernel(1)


def wait_and_compile(folder: Path) -> int:
    """How often this process had to compile, where another may be about to."""
    kept_code.FOLDER = folder
    function: Any = jit.entry(twice)
    assert function(21) == 42
    return sum(function.stats.cache_misses.values())


def test_of_two_processes_one_compiles(tmp_path: Path) -> None:
    with ProcessPoolExecutor(2) as pool:
        assert sorted(pool.map(wait_and_compile, [tmp_path] * 2)) == [0, 1]


COMPILERS_OWN = "numba.cpython.listobj"
"""A module that numba loads when it compiles anything, with some hundred others."""
FOUND = f"""
import sys; from pathlib import Path
from weft.tb.unit.project.test_estimator_cache import wait_and_compile
print(wait_and_compile(Path(sys.argv[1])), {COMPILERS_OWN!r} in sys.modules)
"""


def test_kept_code_runs_without_what_the_compiler_loads(tmp_path: Path) -> None:
    said = [subprocess.run([sys.executable, "-c", FOUND, str(tmp_path)], capture_output=True, text=True,
                           check=True).stdout.split() for _ in range(2)]
    assert said == [["1", "True"], ["0", "False"]]


def test_half_a_file_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(tmp_path, monkeypatch)(21)
    files = [path for path in tmp_path.rglob("*.nb*") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:len(path.read_bytes()) // 2])
    assert compiled(tmp_path, monkeypatch)(21) == 42
    again = compiled(tmp_path, monkeypatch)
    assert again(21) == 42 and sum(again.stats.cache_hits.values()) == 1


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexDataCacheFile, "save", full)
    assert compiled(tmp_path, monkeypatch)(21) == 42


def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is kept elsewhere, where it would outlive a change of the sources."""
    (tmp_path / "file").write_text("")
    function = compiled(tmp_path / "file" / "below", monkeypatch)
    assert function(21) == 42
    assert not list(Path(__file__).parent.rglob("*twice*.nb*"))
