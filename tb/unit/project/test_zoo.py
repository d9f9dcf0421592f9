"""`make zoo`: a row says what the estimator says, a refusal why, and no name becomes markup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def zoo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "zoo.py"), *arguments], cwd=ROOT, text=True,
                          capture_output=True, check=False)


@pytest.mark.slow
def test_the_demo_network_has_a_row(tmp_path: Path) -> None:
    done = zoo("--only", "digits", "--arch", "pynq", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "zoo.json").read_text())
    (row,) = content["rows"]
    assert (row["network"], row["arch"], content["refused"]) == ("digits", "pynq", [])
    assert row["cycles_estimated"] > 0 and row["signal_to_noise"] > 30 and row["lut"] > 10_000 and row["fits"]
    cycles = f"{row['cycles_estimated']:,}"
    assert cycles in (tmp_path / "zoo.md").read_text() and cycles in (tmp_path / "zoo.html").read_text()


def test_an_unknown_network_is_refused(tmp_path: Path) -> None:
    done = zoo("--only", "moon", "--output", str(tmp_path))
    assert done.returncode == 1 and "--only: found moon; allowed: digits" in done.stderr


def test_names_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo_table

    text = zoo_table.page([], [("<script>", "tiny", "<b>why</b>")], "a & b")
    assert "<script>" not in text and "<b>" not in text and "a &amp; b" in text
    assert zoo_table.together([("net", "tiny", "small"), ("net", "arty", "small"), ("net", "pynq", "odd")]) == [
        ("net", "tiny, arty", "small"), ("net", "pynq", "odd")]
