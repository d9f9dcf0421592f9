# SPDX-License-Identifier: Apache-2.0
"""`make zoo`: a row says what the estimator says, a refusal why, and no name becomes markup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.support.errors import WeftError

ROOT = Path(__file__).parents[3]


def zoo(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(ROOT / "scripts" / "zoo.py"), *arguments], cwd=ROOT, text=True,
                          capture_output=True, check=False)


@pytest.mark.wide
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


def test_a_run_that_was_broken_off_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of the same commit and with no less measured; all stays in its order."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo as script

    left = script.Zoo({("b", "pynq"): row("b", "pynq"), ("a", "tiny"): "too large"}, 5)
    script.write(left, tmp_path, "0123")
    zoo = script.broken_off(tmp_path / "zoo.json", "0123", on_rtl=False)
    assert zoo == script.Zoo({("b", "pynq"): row("b", "pynq"), ("a", "tiny"): "too large"}, 5)
    assert list(script.collect(zoo, {"b": Path("b.onnx")}, ["pynq"], on_rtl=False, jobs=1)) == [], "it is known"
    zoo.cells["a", "arty"] = row("a", "arty")
    zoo.sort(["a", "b"], ["arty", "pynq", "tiny"])
    assert list(zoo.cells) == [("a", "arty"), ("a", "tiny"), ("b", "pynq")]
    assert not script.broken_off(tmp_path / "zoo.json", "4567", on_rtl=False).cells
    assert list(script.broken_off(tmp_path / "zoo.json", "0123", on_rtl=True).cells) == [("a", "tiny")]
    script.write(left, tmp_path, "0123-dirty")
    assert not script.broken_off(tmp_path / "zoo.json", "0123-dirty", on_rtl=False).cells


def test_a_run_goes_on_at_a_commit_that_changes_no_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo as script

    def git(*words: str) -> str:
        named = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", *named, *words], cwd=tmp_path, check=True, capture_output=True,
                              text=True).stdout.strip()

    git("init", "-q")
    commits = []
    for name in ("compiler/a.py", "docs/data/a.json", "tb/a.py", "README.md", "compiler/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
        git("add", ".")
        git("commit", "-q", "-m", name)
        commits.append(git("rev-parse", "HEAD"))
    monkeypatch.setattr(script.bench, "ROOT", tmp_path)
    assert [script.unchanged(commits[0], commit) for commit in commits] == [True, True, True, True, False]
    assert not script.unchanged(commits[0], "0123") and not script.unchanged("unknown", "unknown")


def test_names_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo_table

    text = zoo_table.page([], [("<script>", "tiny", "<b>why</b>")], "a & b")
    assert "<script>" not in text and "<b>" not in text and "a &amp; b" in text
    assert zoo_table.together([("net", "tiny", "small"), ("net", "arty", "small"), ("net", "pynq", "odd")]) == [
        ("net", "tiny, arty", "small"), ("net", "pynq", "odd")]


def test_a_network_is_named_once_above_its_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo_table

    rows = [row("<net>", "tiny"), row("<net>", "pynq"), row("other", "tiny")]
    text = zoo_table.page(rows, [], "zoo")
    assert text.count("&lt;net&gt;") == 1 and text.count("<tbody>") == 2
    assert text.index("&lt;net&gt;") < text.index("<td>tiny</td>") < text.index("<td>pynq</td>") < text.index("other")
    columns = text.partition("</thead>")[0].count("<th>")
    assert f'<th colspan="{columns}">' in text and text.count("<td>") == 3 * columns


# -- in the docs -------------------------------------------------------------------------------------------------------
def row(network: str, arch: str) -> dict[str, Any]:
    return {"network": network, "arch": arch, "cycles_estimated": 1234567, "cycles_rtl": None, "ms": 8.2304,
            "clock_mhz": 150.0, "macs": 200, "done_macs": 150, "utilization": 0.974,
            "signal_to_noise": 61.25, "lut": None, "fits": None}


@pytest.fixture
def docs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """scripts/zoo_docs.py, with its files elsewhere."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo_docs as script

    monkeypatch.setattr(script, "ZOO", tmp_path / "committed.json")
    monkeypatch.setattr(script, "ZOO_MADE", tmp_path / "made.json")
    return script


def made(docs: Any, rows: list[dict[str, Any]], commit: str = "0123456789ab") -> None:
    docs.ZOO_MADE.write_text(json.dumps({"commit": commit, "date": "2026-01-01", "cpu_seconds": 7, "rows": rows,
                                         "refused": [["moonnet", "tiny", "too large"]]}))


def test_the_docs_show_what_was_measured_and_at_which_commit(docs: Any) -> None:
    assert not docs.take_over() and docs.zoo_in_readme() == "" and "make zoo" in docs.zoo()
    made(docs, [*(row(name, "pynq") for name in docs.IN_README), row(next(iter(docs.IN_README)), "arty")])
    assert docs.take_over()
    assert "`0123456789ab`" in docs.zoo()
    assert "| pynq | 1,234,567 | 150 | not tried | 8.230 | 97.4% | 25.0% | 61.2 |" in docs.zoo()
    assert "cycles in RTL" not in docs.zoo() and "* moonnet on tiny: too large" in docs.zoo()
    assert "8.23 (97%)" in docs.zoo_in_readme() and "`arty`" not in docs.zoo_in_readme()


def test_a_zoo_of_changed_sources_or_of_less_is_not_taken_over(docs: Any) -> None:
    made(docs, [row("digits", "pynq"), row("digits", "arty")])
    docs.take_over()
    for rows, commit, text in (([row("digits", "pynq")], "0123456789ab", "no row for digits arty"),
                               ([row("digits", "pynq"), row("digits", "arty")], "0123456789ab-dirty", "dirty")):
        made(docs, rows, commit)
        with pytest.raises(WeftError, match=text):
            docs.take_over()
