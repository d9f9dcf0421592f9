# SPDX-License-Identifier: Apache-2.0
"""The path of the README, through the command line: compile the digits, run them, make the Verilog."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.hw.contract.arch import Arch
from weft.hw.flow.reports import c_header, summary
from weft.hw.flow.verilog import TOP_NAME
from weft.tb.random import network_rule

Weft = Callable[..., Any]
ROOT = Path(__file__).parents[3]
MODEL = ROOT / "models" / "digits"
HELD_OUT = MODEL / "held_out.npz"


@pytest.fixture(scope="module")
def held_out() -> dict[str, np.ndarray]:
    return dict(np.load(HELD_OUT))


@pytest.fixture
def digits(weft: Weft, held_out: dict[str, np.ndarray], tmp_path: Path) -> Path:
    np.save(tmp_path / "calibration.npy", held_out["calibration"])
    answer = weft("compile", MODEL / "digits.onnx", "-a", "pynq", "-o", tmp_path / "out", "--calibrate",
                  tmp_path / "calibration.npy", "--dump-dir", tmp_path / "dump")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("digits\nlayers ")
    assert {path.suffix for path in (tmp_path / "out").glob("*digits*")} == {".tdata", ".tmodel", ".tprog"}
    assert any((tmp_path / "dump").iterdir())
    return tmp_path / "out" / "digits.tmodel"


def test_compiled_digits_lose_at_most_one_image(weft: Weft, digits: Path, held_out: dict[str, np.ndarray],
                                                tmp_path: Path) -> None:
    answer = weft("run", digits, "--input", HELD_OUT, "--output", tmp_path / "y.npz", "--json")
    found = json.loads(answer.out)
    logits = np.load(tmp_path / "y.npz")["logits"]
    assert logits.shape == held_out["logits"].shape
    assert np.array_equal(np.array(found["outputs"]["logits"]), logits)
    assert found["images"] == 360 and found["macs"] == 360 * 245_344
    right = np.sum(logits.argmax(1) == held_out["label"])
    assert right >= np.sum(held_out["logits"].argmax(1) == held_out["label"]) - 1


def test_images_of_a_batch_do_not_touch_each_other(weft: Weft, digits: Path, held_out: dict[str, np.ndarray],
                                                   tmp_path: Path) -> None:
    images = held_out["image"][:3]
    np.save(tmp_path / "all.npy", images)
    together = json.loads(weft("run", digits, "--input", tmp_path / "all.npy", "--json").out)["outputs"]["logits"]
    for image, logits in zip(images, together, strict=True):
        np.save(tmp_path / "one.npy", image[None])
        alone = json.loads(weft("run", digits, "--input", tmp_path / "one.npy", "--json").out)["outputs"]["logits"]
        assert alone == [logits]


def test_random_calibration_is_a_warning(weft: Weft, tmp_path: Path) -> None:
    answer = weft("compile", MODEL / "digits.onnx", "-a", "arty", "-o", tmp_path, "--name", "other")
    assert answer.code == 0 and (tmp_path / "other.tmodel").exists()
    assert answer.err.startswith("weft: warning: no calibration inputs") and answer.err.count("\n") == 1


@pytest.mark.parametrize("array", [np.zeros((8, 8)), np.zeros((2, 1, 8, 9)), np.zeros((0, 1, 8, 8))])
def test_wrong_shape_names_what_is_allowed(weft: Weft, digits: Path, tmp_path: Path, array: np.ndarray) -> None:
    np.save(tmp_path / "x.npy", array)
    answer = weft("run", digits, "--input", tmp_path / "x.npy")
    assert answer.code == 1 and answer.out == ""
    assert f"input image: found shape {list(array.shape)}; allowed: [1, 1, 8, 8] for one run, " in answer.err
    assert "[N, 1, 8, 8] for N runs; way out: reshape the array" in answer.err


@pytest.mark.slow
def test_verilog_writes_three_files(weft: Weft, tmp_path: Path) -> None:
    arch = Arch.load("tiny")
    (tmp_path / "my.tarch").write_text(json.dumps(arch.to_dict()))
    answer = weft("verilog", "-a", tmp_path / "my.tarch", "-o", tmp_path / "out")
    files = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    assert answer.out.splitlines() == [str(tmp_path / "out" / name) for name in ("weft_top.v", "weft.json", "weft.h")]
    assert set(files) == {"weft_top.v", "weft.json", "weft.h"}
    assert f"module {TOP_NAME}(" in files["weft_top.v"]
    assert json.loads(files["weft.json"]) == json.loads(json.dumps(summary(arch)))
    assert files["weft.h"] == c_header(arch)


@pytest.mark.slow
@pytest.mark.wide_cases("pynq")
@pytest.mark.parametrize("machine", ["lanes3", "pynq"])
def test_demo_prints_its_table_and_draws_its_picture(machine: str, tmp_path: Path) -> None:
    """On the machine that it takes by itself, and on one of a file."""
    own = tmp_path / "lanes3.tarch"
    own.write_text(json.dumps(network_rule.ARCHS["lanes3"].to_dict()))
    command = [sys.executable, "-m", "weft.cli.main", "demo", "--images", "2", "-o", str(tmp_path),
               *(() if machine == "pynq" else ("-a", str(own)))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for text in ("accuracy, float", "accuracy, golden", "accuracy, RTL", "RTL equals golden", "cycles an image",
                 "utilization", "frames per second"):
        assert text in done.stdout
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")
