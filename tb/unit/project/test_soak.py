# SPDX-License-Identifier: Apache-2.0
"""Long random runs: each kind has jobs with seeds of its own, failures are kept, and a run goes on where it stopped."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from weft.tb.random import soak
from weft.tb.random.random_archs import random_arch

SCRIPT = Path(__file__).parents[3] / "scripts" / "soak.py"


def test_jobs_take_kinds_and_machines_by_turns_and_no_seed_twice() -> None:
    next_seed = {"networks lanes3": 5_000_000}
    drawn = list(islice(soak.jobs(list(soak.KINDS), next_seed), 40 * len(soak.KINDS)))
    assert {job.kind for job in drawn} == set(soak.KINDS)
    for kind, row in soak.KINDS.items():
        assert {job.machine for job in drawn if job.kind == kind} == set(row.machines)
    seeds = [(job.name, seed) for job in drawn for seed in job.seeds]
    assert len(seeds) == len(set(seeds))
    assert min(seed for name, seed in seeds if name == "networks lanes3") == 5_000_000
    again = list(islice(soak.jobs(["networks"], next_seed), 40))
    assert not {(job.name, seed) for job in again for seed in job.seeds} & set(seeds)


def test_what_nobody_expected_is_a_failure_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine: str, seeds: range) -> list[str]:
        raise KeyError(f"{machine} at {seeds.start}")

    monkeypatch.setitem(soak.KINDS, "networks", soak.Kind(broken, ("lanes3",), 2))
    (text,) = soak.run(next(soak.jobs(["networks"], {})))
    assert "lanes3 at 1000000" in text and "Traceback" in text


def test_random_machines_differ_and_a_seed_repeats_one() -> None:
    archs = [random_arch(seed) for seed in range(60)]
    assert [random_arch(seed) for seed in range(60)] == archs
    assert len({str(arch.to_dict()) for arch in archs}) > 50
    assert sum(arch.to_dict()["data_type"] == "INT8" for arch in archs) > 5


def test_the_table_counts_all_runs_of_machines_whose_names_are_words() -> None:
    next_seed: dict[str, int] = {}
    drawn = list(islice(soak.jobs(["cores"], next_seed), 4))
    table = runpy.run_path(str(SCRIPT))["table"](Counter(), Counter(), next_seed)
    rows = zip(*(column.cells for column in table.columns), strict=True)
    assert {row[0]: row[2] for row in rows}["cores"] == str(sum(len(job.seeds) for job in drawn))


def test_some_machines_of_a_kind_are_named() -> None:
    """A kind that has none of them keeps its own."""
    drawn = list(islice(soak.jobs(["programs", "networks"], {}, ["lanes2", "lanes8"]), 8))
    assert [job.machine for job in drawn if job.kind == "programs"] == ["lanes2", "lanes8"] * 2
    assert {job.machine for job in drawn if job.kind == "networks"} <= set(soak.KINDS["networks"].machines)
    stranger = subprocess.run([sys.executable, str(SCRIPT), "--machine", "lanes0"], capture_output=True, text=True,
                              check=False)
    assert stranger.returncode == 1 and "lanes0" in stranger.stderr and "lanes2" in stranger.stderr


@pytest.mark.wide
def test_a_run_keeps_its_seeds_and_goes_on_behind_them(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--hours", "0", "--kind", "networks", "--jobs", "1", "--folder",
               str(tmp_path)]
    for finished in (10, 20):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        seeds = json.loads((tmp_path / "next_seeds.json").read_text())
        assert sum(seed - soak.FIRST_SEED for seed in seeds.values()) == finished
    (tmp_path / "next_seeds.json").write_text("mine")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "next_seeds.json" in done.stderr and "Traceback" not in done.stderr
