# SPDX-License-Identifier: Apache-2.0
"""What `make zoo` computes once for several machines is what the compiler and the estimator find for each alone."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from weft.compiler.check.signals import output_signal
from weft.compiler.pipeline import compile_model
from weft.compiler.request import Request
from weft.cycles.replay import Estimate, estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.presets import presets
from weft.support.errors import WeftError
from weft.tmodel.manifest import TModel

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo_cells

    return zoo_cells


def cycles_alone(request: Request, arch: Arch, folder: Path) -> int:
    report = compile_model(request.model, arch, folder, calibration=request.calibration, outputs=request.outputs)
    return estimate(TModel.load(report.model_path).program, arch).cycles


def counted(cells: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Grows with every estimate that the family makes."""
    made: list[str] = []

    def noted(*given: Any) -> Estimate:
        made.append("one")
        return estimate(*given)

    monkeypatch.setattr(cells, "estimate", noted)
    return made


def test_machines_that_differ_in_dram_alone_share_a_program(cells: ModuleType, monkeypatch: pytest.MonkeyPatch,
                                                             tmp_path: Path) -> None:
    family, made = cells.Family(cells.request(DIGITS)), counted(cells, monkeypatch)
    for name, estimates in (("ecpix5_4", 1), ("ulx3s", 1), ("colorlight_i9", 1)):
        arch = Arch.load(name)
        found = family.found(arch)
        assert found.cycles == cycles_alone(family.request, arch, tmp_path / name) and len(made) == estimates
        assert found.signal_to_noise == output_signal(family.request, arch) and found.macs > 10_000


@pytest.mark.parametrize("changed", [{"local_depth": 1024}, {"dram0_depth": 170}, {"dram_ports": "separate"},
                                     {"axi_data_width": 32}, {"register_slices": 0}], ids=str)
def test_machines_that_differ_in_more_do_not(cells: ModuleType, changed: dict[str, int | str], tmp_path: Path) -> None:
    """A smaller DRAM0 too, where the network's images are packed otherwise."""
    family, arch = cells.Family(cells.request(DIGITS)), Arch.load("ulx3s")
    other = arch.replace(**changed)
    first, second = family.found(arch), family.found(other)
    assert second.cycles == cycles_alone(family.request, other, tmp_path) != first.cycles


def test_a_network_is_refused_in_the_words_that_the_compiler_has_for_this_machine(cells: ModuleType,
                                                                                  tmp_path: Path) -> None:
    found, _ = cells.measured("digits", DIGITS, ["tang_nano_20k", "tiny"], False)
    with pytest.raises(WeftError) as alone:
        cycles_alone(cells.request(DIGITS), Arch.load("tiny"), tmp_path)
    assert found["tiny"] == str(alone.value) and "dram1_depth" in found["tiny"]
    assert found["tang_nano_20k"]["cycles_estimated"] > 10_000


def test_inputs_of_whole_numbers_get_some(cells: ModuleType, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], "g",
                              [value("x", TensorProto.UINT8, [1, 3])], [value("y", TensorProto.FLOAT, [1, 3])])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "bytes.onnx")
    given = cells.request(tmp_path / "bytes.onnx").calibration["x"]
    assert np.array_equal(given, given.round()) and given.max() > 1 and given.min() >= 0


def test_a_file_that_leaves_a_size_open_is_refused_by_every_preset(cells: ModuleType, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
                              [value("x", TensorProto.FLOAT, [1, "open"])], [value("y", TensorProto.FLOAT, None)])
    path = tmp_path / "open.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    rows, _ = cells.measured("open", path, ["tiny", "pynq"], on_rtl=False)
    assert list(rows) == ["tiny", "pynq"] and all("--shape x:" in why for why in rows.values())


def test_every_preset_is_in_one_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import zoo

    found = zoo.families(list(presets()))
    assert sorted(name for family in found for name in family) == sorted(presets())
    assert ["colorlight_i9", "ecpix5_4", "ecpix5_4_lut", "ulx3s"] in found
    assert ["arty", "arty100_lut", "ecpix5"] in found
