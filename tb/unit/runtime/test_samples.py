# SPDX-License-Identifier: Apache-2.0
"""Samples decoded: by hand, and those of the hardware against what the operations' trace says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.hw.contract.samples import FILLER
from weft.runtime.samples import Samples
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.unit.driver.test_device import adder, inputs_for

ARRAY, ARRAY_READY, DRAM0_WAITS, INSTRUCTION = 1 << 32, 1 << 33, 1 << 40, 0b11 << 46


def test_a_sample_by_hand() -> None:
    words = [ARRAY | ARRAY_READY | 3, ARRAY | DRAM0_WAITS | 4, ARRAY_READY | 4, INSTRUCTION | 5, FILLER]
    found = Samples.decode(np.array(words, np.uint64))
    assert found.program_counter.tolist() == [3, 4, 4, 5]
    rows = {row["unit"]: (row["taken"], row["waits"], row["idle"]) for row in found.units()}
    assert rows["array"] == (0.25, 0.25, 0.5) and rows["dram0"] == (0, 0.25, 0.75)
    assert rows["instruction"] == (0.25, 0, 0.75) and rows["dram1"] == (0, 0, 1)


def test_layers_by_program_counter() -> None:
    found = Samples.decode(np.array([0, 1, 2, 2, 3, 9], np.uint64))
    rows = found.layers(np.array([1, 1, 0, 2]), ["a", "b", "c", "d"])
    assert [(row["layer"], row["samples"]) for row in rows] == [("a", 2), ("b", 2), ("c", 2), ("d", 0)]
    assert sum(row["share"] for row in rows) == 1


def test_no_samples() -> None:
    assert {row["idle"] for row in Samples.decode(np.array([], np.uint64)).units()} == {1.0}


@pytest.mark.slow
def test_samples_of_the_hardware(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = adder(tmp_path, lockstep_archs()["lanes2"])
    made.save()
    np.save(tmp_path / "x.npy", inputs_for(made)["x"])
    arguments = ["run", str(tmp_path / "adder.tmodel"), "--input", str(tmp_path / "x.npy"), "--raw", "--on", "rtl"]
    assert exit_code([*arguments, "--samples", "1", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["check"]["equal"] == found["check"]["words"] and found["instructions"] == 7
    units = {row["unit"]: row for row in found["samples"]["units"]}
    count = found["samples"]["count"]
    assert 0.8 * found["cycles"] < count <= found["cycles"] + 400
    assert round(units["dataflow"]["taken"] * count) == 3  # one operation for each DataMove of the accumulators
    assert units["array"]["idle"] == 1.0 and 0 < units["memory_port_b"]["taken"] < 0.3
    assert exit_code([*arguments, "--samples", "3"]) == 0
    assert "memory_port_a" in capfd.readouterr().out


def test_samples_need_the_hardware(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["run", "x.tmodel", "--input", "x.npy", "--samples", "8"]) == 1
    assert "--samples: found --on golden; allowed: --on rtl" in capfd.readouterr().err
