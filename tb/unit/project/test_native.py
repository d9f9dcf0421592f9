# SPDX-License-Identifier: Apache-2.0
"""Machine code of the compiler's inner functions is called without numba once it is kept."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from weft.cycles import native as native_code
from weft.cycles.native import kernel, native


@kernel
def above(value, least):
    return value > least


@native
def count_above(values, least, marked):
    found = 0
    for place in range(len(values)):
        marked[place] = above(values[place], least)
        found += marked[place]
    return found


VALUES = np.array([[3, -1, 7], [5, 2, 8]])


def counted(monkeypatch: pytest.MonkeyPatch, folder: Path) -> int:
    """Call the function as a new process would, with its files in ``folder``."""
    monkeypatch.setattr(native_code, "FOLDER", folder)
    count_above.entries.clear()
    marked = np.zeros(3, bool)
    found = count_above(VALUES[1], 3, marked)
    assert marked.tolist() == [True, False, True]
    return found


def test_kept_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, tmp_path) == 2
    monkeypatch.setattr(native_code, "_object_of", None)
    assert counted(monkeypatch, tmp_path) == 2


def test_other_types_have_other_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, tmp_path)
    marked = np.zeros(2, np.int64)
    assert count_above(np.array([0.5, 1.5], np.float32), 1, marked) == 1 and marked.tolist() == [0, 1]
    assert len([*tmp_path.glob("count_above-*.o")]) == 2


@pytest.mark.parametrize("argument", [1.5, VALUES[:, 0], "text"])
def test_what_it_does_not_take(argument: object) -> None:
    with pytest.raises(TypeError, match="neither an integer nor a C-contiguous array"):
        count_above(argument, 3, np.zeros(2, bool))  # type: ignore[arg-type]


def test_half_a_file_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted(monkeypatch, tmp_path)
    (file,) = tmp_path.glob("count_above-*.o")
    file.write_bytes(file.read_bytes()[:1000])
    assert native_code._read(file) is None  # to run it would end the process
    assert counted(monkeypatch, tmp_path) == 2
    assert len(file.read_bytes()) > 1000


def test_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert counted(monkeypatch, tmp_path / "file" / "below") == 2


CALLED = """
import sys; from pathlib import Path
from weft.tb.unit.project import test_native
test_native.native_code.FOLDER = Path(sys.argv[1])
print(test_native.count_above(test_native.VALUES[0], 3, test_native.np.zeros(3, bool)), "numba" in sys.modules)
"""


def test_kept_code_needs_no_numba(tmp_path: Path) -> None:
    said = [subprocess.run([sys.executable, "-c", CALLED, str(tmp_path)], capture_output=True, text=True,
                           check=True).stdout.split() for _ in range(2)]
    assert said == [["1", "True"], ["1", "False"]]
