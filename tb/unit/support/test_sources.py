# SPDX-License-Identifier: Apache-2.0
"""What is kept between runs is made again when a source that it came from changes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.compiler.digest import tool_digest
from weft.cycles import kept_code
from weft.support import cache
from weft.support.sources import CHECKOUT, is_checkout, sources_digest

ROOT = Path(__file__).parents[3]
LOADED = "import sys, {0}; print(*sorted(name for name in sys.modules if name.startswith('weft.')))"


def rooms_of(module: str) -> set[str]:
    """Return the rooms of all modules that an import loads, but for weft.support, which neither computes nor counts."""
    done = subprocess.run([sys.executable, "-c", LOADED.format(module)], capture_output=True, text=True, check=True)
    names = [name.removeprefix("weft.") for name in done.stdout.split()]
    rooms = {"hw.contract" if name.startswith("hw.contract") else name.split(".")[0] for name in names}
    return rooms - {"support", "hw"}


def test_the_root_is_the_checkouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cache.VARIABLE, raising=False)
    assert CHECKOUT == ROOT and is_checkout() and cache.chosen() == ROOT / "build" / "cache"


def test_a_digest_changes_with_any_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, folder = "digested_by_a_test", tmp_path / "digested_by_a_test"
    monkeypatch.syspath_prepend(str(tmp_path))
    (folder / "inner").mkdir(parents=True)
    (folder / "inner" / "one.py").write_text("ONE = 1\n")
    found = [sources_digest(name)]
    (folder / "inner" / "one.py").write_text("ONE = 2\n")
    found.append(sources_digest(name))
    (folder / "two.py").write_text("")
    found.append(sources_digest(name))
    assert len(set(found)) == 3 and sources_digest(name) == found[2]


def test_the_estimators_machine_code_depends_on_all_that_it_is_made_of() -> None:
    assert rooms_of("weft.cycles.replay") == {"cycles", "hw.contract"}
    assert sources_digest("weft.cycles", "weft.hw.contract") == kept_code.DIGEST


def test_a_measurement_depends_on_all_that_it_is_made_of() -> None:
    assert rooms_of("weft.compiler.pipeline, weft.cycles.replay") == {"compiler", "cycles", "tmodel", "hw.contract"}
    assert tool_digest() == sources_digest("weft.compiler", "weft.cycles", "weft.tmodel", "weft.hw.contract")
