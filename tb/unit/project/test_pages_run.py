"""What pages for newcomers tell to type runs: blocks of docs/ behind a mark ``run``, the README's commands, the
notebook. The site is built without a warning."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^<!-- run(: long)? -->\n```(sh|python)\n(.*?)^```$", re.M | re.S)
README = (ROOT / "README.md").read_text()


def environment(folder: Path) -> dict[str, str]:
    """``weft`` and ``python`` are this interpreter's, as in the virtual environment that the pages tell to use."""
    programs = folder / "programs"
    programs.mkdir()
    for name, arguments in (("weft", "-m weft.cli.main"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (programs / name).chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def run(folder: Path, language: str, text: str, given: dict[str, str]) -> str:
    command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else ["python", "-c", text]
    done = subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_page(name: str, folder: Path, with_long: bool) -> str:
    given, said = environment(folder), ""
    (folder / "build").mkdir()
    (folder / "models").symlink_to(ROOT / "models")
    for long, language, text in BLOCK.findall((ROOT / "docs" / name).read_text()):
        if with_long or not long:
            said += run(folder, language, text, given)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("name, says", [("start.md", "tail "), ("tutorial.md", "Softmax")])
def test_blocks_of_a_page_run(name: str, says: str, tmp_path: Path) -> None:
    assert says in run_page(name, tmp_path, False)


@pytest.mark.long
@pytest.mark.parametrize("name", ["start.md", "tutorial.md"])
def test_blocks_of_a_page_run_in_rtl_too(name: str, tmp_path: Path) -> None:
    assert "RTL equals golden" in run_page(name, tmp_path, True)


def readme_commands(long: bool) -> list[str]:
    """The README's own lines for a compiled network; those on boards and other tools' files need more than there is."""
    lines = re.findall(r"^ {4}\.venv/bin/(weft [^\n]*)", README, re.M)
    away = ("serial:", "udp:", "model.pb", "model.tflite", "weft board")
    return [line for line in lines if not any(word in line for word in away)
            and long == bool(re.search(r"--on rtl|weft verilog", line))]


def prepared(folder: Path) -> dict[str, str]:
    shutil.copy(ROOT / "models" / "digits" / "digits.onnx", folder / "model.onnx")
    shutil.copy(ROOT / "arch" / "tiny.tarch", folder / "my.tarch")
    held_out = np.load(ROOT / "models" / "digits" / "held_out.npz")
    np.savez(folder / "samples.npz", image=held_out["calibration"][:4])
    return environment(folder)


@pytest.mark.slow
def test_commands_of_the_readme_run(tmp_path: Path) -> None:
    commands = readme_commands(False)
    assert {line.split()[1] for line in commands} >= {"archs", "inspect", "compile", "run", "estimate", "report"}
    run(tmp_path, "sh", "\n".join(commands), prepared(tmp_path))


@pytest.mark.long
def test_commands_of_the_readme_run_in_rtl_too(tmp_path: Path) -> None:
    given = prepared(tmp_path)
    run(tmp_path, "sh", "\n".join([*(line for line in readme_commands(False) if " compile " in line),
                                   *readme_commands(True)]), given)


def test_a_walk_types_what_the_readme_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import walkthrough

    clone = [command for command, _ in walkthrough.from_clone(README, tmp_path)]
    assert clone[0].startswith("git clone ") and clone[1] == "make demo"
    assert clone.index(".venv/bin/weft archs") > clone.index(walkthrough.GIVEN[-1]) > clone.index("make setup")
    assert not [command for command in clone if "serial:" in command or "make test" in command]
    alone = [command for command, where in walkthrough.from_wheel(README, tmp_path) if where.endswith("alone")]
    assert [command.split()[-2:] for command in alone[1:]] == [["env/bin/weft", "doctor"], ["env/bin/weft", "demo"]]
    assert alone[0].startswith("python3 -m venv env && env/bin/pip install") and "[sim]" in alone[0]


# -- the notebook ------------------------------------------------------------------------------------------------------
def run_notebook(folder: Path, with_rtl: bool, monkeypatch: pytest.MonkeyPatch) -> str:
    """What it printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "agg")
    (folder / "models").symlink_to(ROOT / "models")
    notebook = nbformat.read(ROOT / "examples" / "digits.ipynb", as_version=4)
    notebook.cells = [cell for cell in notebook.cells if with_rtl or "rtl" not in cell.metadata.get("tags", ())]
    NotebookClient(notebook, timeout=1200, resources={"metadata": {"path": str(folder)}}).execute()
    return "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))


@pytest.mark.slow
def test_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "60 of 60 right" in run_notebook(tmp_path, False, monkeypatch)


@pytest.mark.long
def test_notebook_runs_in_rtl_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "every word is equal" in run_notebook(tmp_path, True, monkeypatch)


# -- the site ----------------------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_site_is_built_without_a_warning_and_asks_no_other_host(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)],
                          cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "true"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "start.html", "tutorial.html", "comparison.html"} <= {page.name for page in pages}
    loads = [address for page in pages for address in re.findall(
        r'<(?:script|img|link)[^>]+(?:src|href)="?(https?://[^">\s]+)', page.read_text())]
    assert loads == []
