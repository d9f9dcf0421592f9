# SPDX-License-Identifier: Apache-2.0
"""What pages tell to type is known to the command line, and runs: blocks of docs/ behind a mark ``run``, the commands
of the README and of other pages, the notebook. The site is built without a warning."""

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

from weft.tb.bench.pages import PAGES, Command, commands, fault
from weft.tb.bench.ways_out import Text, faults, texts

ROOT = Path(__file__).resolve().parents[3]  # other tests import this file through the folder weft
BLOCK = re.compile(r"^<!-- run(: long)? -->\n```(sh|python)\n(.*?)^```$", re.M | re.S)


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


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("name, says", [("start.md", "tail "), ("tutorial.md", "Softmax")])
def test_blocks_of_a_page_run(name: str, says: str, tmp_path: Path) -> None:
    assert says in run_page(name, tmp_path, False)


@pytest.mark.long
@pytest.mark.parametrize("name", ["start.md", "tutorial.md"])
def test_blocks_of_a_page_run_in_rtl_too(name: str, tmp_path: Path) -> None:
    assert "RTL equals golden" in run_page(name, tmp_path, True)


# -- every command is known --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_are_known(page: str) -> None:
    """Commands, options and the names of presets, boards, chips and devices; in blocks whole, in sentences in part."""
    assert {command.text: wrong for command in commands(page) if (wrong := fault(command))} == {}


def test_commands_within_messages_are_known() -> None:
    found = list(texts())
    assert len(found) > 1000 and sum("weft " in each.text for each in found) > 30
    assert {each.where: wrong for each in found if (wrong := faults(each))} == {}


@pytest.mark.parametrize(("text", "whole", "says"), [
    ("weft check --part LFE5U-45F", False, "no command check"), ("weft run x.tmodel --on rtl", True, "--input"),
    ("weft run --one rtl", False, "no option --one"), ("weft board build moon", True, "no board moon"),
    ("weft isa -a moon", True, "found moon"), ("make moon", True, "no target moon"), ("make zoo MOON=1", True, "MOON"),
    ("weft run x.tmodel --input x --on udp:h?port=70000", True, "65535"), ("scripts/moon.py", False, "no scripts"),
    ("weft resources -a pynq --part moon", True, "found moon"), ("weft board fly BOARD", True, "no command fly"),
    ("weft board build BOARD --mhz LESS", True, ""), ("weft isa -a NAME --set KEY=VALUE", True, "")])
def test_a_command_that_is_wrong_is_found(text: str, whole: bool, says: str) -> None:
    wrong = fault(Command("page", text, whole))
    assert says in wrong and bool(says) == bool(wrong)


@pytest.mark.parametrize("text", ["compile it: weft complie X", "add --sepcial", "run make moon", "weft run --onn rtl"])
def test_a_message_that_is_wrong_is_found(text: str) -> None:
    assert faults(Text("cli/main.py:1", text))


# -- and runs, where it can --------------------------------------------------------------------------------------------
AWAY = {
    "serial:|udp:": "a board behind a link: tb/unit/driver/test_find_board.py runs it on a model",
    "mmio:|weft board (build|flash)|make (bitstream|flash)|vivado": "a board, or its bitstream",
    "model[.](pb|tflite|pt)|keras|tf2onnx": "files of other tools: make test-tensorflow",
    "^(make|python|scripts/|[.]venv/bin/python)": "the suite itself, or scripts/walkthrough.py types it",
    "weft board standalone": "tb/system/test_standalone.py runs it",
    "weft ir check other.json": "a file of another scheduler: tb/unit/schedule/ runs it",
    "^env/bin/": "tb/unit/project/test_wheel.py runs it",
    "--dump-dir build/steps": "the network of a reader who changes the compiler",
    "resnet20v2_cifar.onnx": "minutes, and a network that is not shipped",
    "--scheduler tls://": "tb/unit/explore/test_cluster.py starts a scheduler with keys",
    "--state stream/states": "tb/compile/test_tflite_machine.py has a file that keeps a state",
}
"""What of the pages' whole commands does not run here -> why. Those of marked blocks run with their block."""
RUN_HERE = ("README.md", "docs/cli.md", "docs/debug.md", "docs/schedule-ir.md", "docs/README.md", "hw/README.md")


def page_commands(page: str) -> list[str]:
    """The ``weft`` commands of a page that run here, in order."""
    lines = [command.text for command in commands(page) if command.whole]
    return [line.removeprefix(".venv/bin/") for line in lines if not any(re.search(word, line) for word in AWAY)]


def seconds(lines: list[str], long: bool) -> list[str]:
    return [line for line in lines if long == bool(re.search(r"--on rtl|weft verilog|weft explore", line))]


def test_every_whole_command_runs_somewhere() -> None:
    """One that is new on a page either runs, or its reason is added to AWAY."""
    marked = {name: "".join(content for _, _, content in BLOCK.findall((ROOT / name).read_text())) for name in PAGES}
    left = {page: [line for line in page_commands(page)
                   if " ".join(line.split()[:4]) not in " ".join(marked[page].replace("\\\n", " ").split())]
            for page in PAGES if page not in RUN_HERE}
    tutorial = ("docs/tutorial.md", ["weft compile own.onnx -a ecpix5_4 -o build/own --calibrate samples.npz"])
    assert {page: lines for page, lines in left.items() if lines and (page, lines) != tutorial} == {}


def prepared(folder: Path) -> dict[str, str]:
    shutil.copy(ROOT / "models" / "digits" / "digits.onnx", folder / "model.onnx")
    shutil.copy(ROOT / "arch" / "tiny.tarch", folder / "my.tarch")
    (folder / "models").symlink_to(ROOT / "models")
    held_out = np.load(ROOT / "models" / "digits" / "held_out.npz")
    np.savez(folder / "samples.npz", image=held_out["calibration"][:4])
    return environment(folder)


@pytest.mark.wide_cases("README.md")
@pytest.mark.slow
@pytest.mark.wide_cases("docs/cli.md")
@pytest.mark.parametrize("page", RUN_HERE)
def test_commands_of_a_page_run(page: str, tmp_path: Path) -> None:
    lines = seconds(page_commands(page), False)
    if page == "docs/cli.md":
        assert {line.split()[1] for line in lines} >= {"archs", "inspect", "compile", "run", "estimate", "report"}
    run(tmp_path, "sh", "\n".join(lines), prepared(tmp_path))


@pytest.mark.long
@pytest.mark.parametrize("page", RUN_HERE)
def test_commands_of_a_page_run_in_rtl_too(page: str, tmp_path: Path) -> None:
    lines = page_commands(page)
    run(tmp_path, "sh", "\n".join([*(line for line in lines if " compile " in line), *seconds(lines, True)]),
        prepared(tmp_path))


def test_a_walk_types_what_the_pages_say(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import walkthrough

    clone = [command for command, _ in walkthrough.from_clone(walkthrough.typed(), tmp_path)]
    assert clone[0].startswith("git clone ") and clone[1] == "make demo"
    given = clone.index(walkthrough.GIVEN[-1])
    assert clone.index(".venv/bin/weft archs") > given > clone.index("make demo")
    assert not [command for command in clone if "serial:" in command or "make test" in command]
    wheel = walkthrough.from_wheel(walkthrough.typed(), tmp_path)
    alone = [command for command, where in wheel if where.endswith("alone")]
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


@pytest.mark.wide
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
