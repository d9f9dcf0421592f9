# SPDX-License-Identifier: Apache-2.0
"""Signal to noise of every layer, and what `weft compile --report` writes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.console import advice
from weft.cli.main import exit_code
from weft.compiler.check.probe import layer_signals
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.tb.compile.quantised_twin import small_twin
from weft.tb.compile.run_model import BASE, ModelMaker, run_float, signal_to_noise
from weft.tb.random.network_rule import TABLES


def network(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """Layers that write parts of others, reuse memory, and end on the host."""
    maker = ModelMaker((1, 6, 9, 8))
    name = maker.node("Relu", maker.conv("x", 6, 8, (3, 3), pads=(1, 1, 1, 1)))
    both = maker.node("Concat", name, maker.conv(name, 8, 5, (1, 1)), axis=1)
    for _ in range(4):
        both = maker.node("Relu", maker.conv(both, 13, 13, (3, 3), pads=(1, 1, 1, 1)))
    maker.node("Softmax", maker.node("Flatten", maker.conv(both, 13, 3, (9, 8))), axis=1)
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((3, 6, 9, 8)).astype(np.float32)


@pytest.mark.parametrize("arch", [BASE, BASE.replace(local_depth=256, accumulator_depth=64)])
def test_every_layer_is_measured(arch: Arch, tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    signals = layer_signals(Request(path, {"x": samples}, host_fallback=True), arch)
    assert len(signals) == 7
    assert all(55 < entry["signal_to_noise"] < 100 for entry in signals), signals
    assert not any(entry["saturations"] for entry in signals)


def test_numbers_are_those_of_the_compiled_program(tmp_path: Path) -> None:
    """The last layer is the machine's output: the same decibels come out of an ordinary run."""
    from weft.compiler.pipeline import compile_model
    from weft.tb.compile.run_model import run_golden
    from weft.tmodel.manifest import TModel

    maker = ModelMaker((1, 6, 9, 8))
    maker.conv(maker.node("Relu", maker.conv("x", 6, 8, (3, 3))), 8, 5, (3, 3))
    path = maker.save(tmp_path / "net.onnx")
    sample = maker.random.standard_normal((1, 6, 9, 8)).astype(np.float32)
    last = layer_signals(Request(path, {"x": sample}), BASE)[-1]["signal_to_noise"]
    model = TModel.load(compile_model(path, BASE, tmp_path, calibration={"x": sample}).model_path)
    expected, = run_float(path, {"x": sample}).values()
    found, = run_golden(model, {"x": sample[0]}).values()
    assert last == pytest.approx(signal_to_noise(expected, found), abs=0.06)


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, samples = network(tmp_path)
    np.savez(tmp_path / "x.npz", x=samples)
    report = tmp_path / "report.json"
    assert exit_code(["compile", str(path), "-a", "arty", "-o", str(tmp_path), "--calibrate", str(tmp_path / "x.npz"),
                      "--host-fallback", "--report", str(report)]) == 0
    rows = json.loads(report.read_text())
    assert len(rows) == 7
    assert {"name", "range", "points", "saturations", "signal_to_noise"} <= rows[0].keys()
    text = capsys.readouterr().out
    assert "SNR dB" in text and all(row["name"][-32:] in text for row in rows)


def test_a_quantised_file_on_a_machine_of_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every layer is compared with the file's own roundings, which are its ReLUs too: nothing is lost."""
    path, samples = small_twin(tmp_path)
    np.savez(tmp_path / "x.npz", x=samples)
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    assert exit_code(["compile", str(path), "-a", "arty", "--set", "data_type=INT8", "--set", "lut_depth=256",
                      "--set", "lut_count=1", "--set", "simd_registers_depth=2", "-o", str(tmp_path),
                      "--calibrate", str(tmp_path / "x.npz"), "--report", str(report), "--html", str(page)]) == 0
    rows = json.loads(report.read_text())
    assert len(rows) == 10 and not any(row["saturations"] for row in rows)
    assert all(row["signal_to_noise"] is None or row["signal_to_noise"] > 80 for row in rows), rows
    assert min(rows[0]["range"]) == 0  # a ReLU that only the limits of bytes say
    text = capsys.readouterr().out
    assert "scale, zero" in text and "wider data type" not in text and "saturate" not in text
    scale, zero = rows[0]["scales"]["output"]
    assert f'"scale":[{scale},{zero}]' in page.read_text()


def test_what_saturates_on_purpose_is_no_fault(tmp_path: Path) -> None:
    """A sigmoid of arguments far beyond where it is constant: only those that it tells apart have numbers."""
    maker = ModelMaker((1, 4, 6, 6))
    maker.node("Sigmoid", maker.conv("x", 4, 4, (1, 1)))
    path = maker.save(tmp_path / "net.onnx")
    sample = maker.random.standard_normal((1, 4, 6, 6)).astype(np.float32) * 300
    signals = layer_signals(Request(path, {"x": sample}), BASE.replace(**TABLES))
    assert not any(entry["saturations"] for entry in signals)
    assert all(entry["signal_to_noise"] > 45 for entry in signals), signals


def test_advice_names_the_worst_layer(tmp_path: Path) -> None:
    path, samples = network(tmp_path)
    signals = layer_signals(Request(path, {"x": samples * 40}, True, True), BASE.replace(data_type="FP8BP4"))
    rows = [{"name": f"layer{number}", **entry} for number, entry in enumerate(signals)]
    texts = advice(rows)
    assert any("saturate" in text and "'layer0'" in text for text in texts)
    assert any("less than 45" in text for text in texts)
