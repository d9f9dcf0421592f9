# SPDX-License-Identifier: Apache-2.0
"""Schedules of one image over several cores: what the second reader understands, and what gives the same programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli.main import exit_code
from weft.compiler.backend.split import Cores
from weft.compiler.cores import SPLIT, AssignedLayer
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.request import Request
from weft.cycles.system import estimate_system
from weft.hw.contract.arch import Arch
from weft.schedule.assign import assigned_layers
from weft.schedule.check import faults_of
from weft.schedule.read import schedule_of
from weft.schedule.write import schedule_text
from weft.tb.compile.run_model import ModelMaker
from weft.tb.compile.test_split import THREE, cores_of, residual
from weft.tb.random import byte_networks, network_rule
from weft.tb.random.random_networks import Case
from weft.tb.shared import shared
from weft.tb.unit.schedule.test_write import check_mesh, check_read_back, works_of

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "models" / "digits" / "digits.onnx"
RANDOM = (("lanes8", 2), ("odd5", 3), ("lanes3", 12), ("bytes3", 4))


def branches(folder: Path) -> Path:
    """A network with channels that two layers fill, a stride, and a last layer of one pixel."""
    maker = ModelMaker((1, 3, 12, 8), seed=5)
    first = maker.node("Relu", maker.conv("x", 3, 16, (3, 3), pads=(1, 1, 1, 1)))
    left = maker.node("Relu", maker.conv(first, 16, 24, (1, 1)))
    right = maker.node("Relu", maker.conv(first, 16, 16, (3, 3), pads=(1, 1, 1, 1)))
    both = maker.node("Concat", left, right, axis=1)
    last = maker.conv(both, 40, 32, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    maker.node("GlobalAveragePool", last)
    return maker.save(folder / "net.onnx")


def tail(folder: Path) -> Path:
    """A tensor that two layers fill, the last of whose channels leave lanes free."""
    maker = ModelMaker((1, 3, 6, 8), seed=6)
    parts = [maker.node("Relu", maker.conv("x", 3, channels, (1, 1))) for channels in (16, 5)]
    maker.conv(maker.node("Concat", *parts, axis=1), 21, 8, (3, 3), pads=(1, 1, 1, 1))
    return maker.save(folder / "net.onnx")


NETWORKS = {"digits": lambda folder: DIGITS, "residual": residual, "branches": branches, "tail": tail}


def compiled(path: Path, arch: Arch, assigned: tuple[AssignedLayer, ...] = ()) -> Products:
    _, (part,) = run_parts(Request(path, host_fallback=True, cores=SPLIT, assigned=assigned, copies=False), arch, None)
    return part


def check(path: Path, arch: Arch) -> None:
    """A schedule is understood, has the estimator's cycles, and gives the programs that it was written of."""
    products = compiled(path, arch)
    values = json.loads(schedule_text(products))
    check_mesh(values)
    check_read_back(values)
    schedule = schedule_of(values)
    assert not faults_of(schedule)
    programs = [code.content for code in products[Cores].codes]
    for works, each in zip(works_of(values).values(), estimate_system(programs, arch).cores, strict=True):
        assert not works or sum(work["time"] for work in works) == each.cycles
    again = compiled(path, arch, assigned_layers(schedule, arch.cores))[Cores]
    assert [code.content for code in again.codes] == programs
    assert again.followed is not None and not again.followed.rounded


def test_a_part_has_no_more_channels_than_its_layer_makes(tmp_path: Path) -> None:
    """The last part of a tensor too, which has 5 of its 8 lanes."""
    values = json.loads(schedule_text(compiled(tail(tmp_path), THREE)))
    last = {work["layer_name"]: work["workload"][1][1] for works in works_of(values).values() for work in works}
    assert [*last.values()] == [15, 4, 7]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_schedule_of_several_cores_gives_the_same_programs(name: str, tmp_path: Path) -> None:
    """Halo rows, residuals, pools, joined channels; workloads of some layers on fewer cores."""
    check(NETWORKS[name](tmp_path), THREE)


@pytest.mark.wide
@pytest.mark.parametrize(("name", "seed"), RANDOM)
def test_schedules_of_random_networks(name: str, seed: int, tmp_path: Path) -> None:
    arch = (byte_networks if name.startswith("bytes") else network_rule).ARCHS[name]
    path, _ = network_rule.save(Case(name, seed), arch, tmp_path)
    for cores in (2, 4):
        check(path, cores_of(arch, cores))


@pytest.mark.wide
@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlperf_tiny_resnet8", "mlperf_tiny_vww_mobilenetv1_025", "fsrcnn_x2"])
def test_schedules_of_other_networks(name: str) -> None:
    check(shared(f"models/{name}.onnx"), Arch.load("pynq_3x8").replace(sync_counters=3))


def test_a_tensor_that_one_core_streams_goes_through_dram(tmp_path: Path) -> None:
    """Local memory holds no whole feature map: ofmaps go to DRAM, and each core reads its part of them there."""
    small = THREE.replace(local_depth=160)
    check(residual(tmp_path), small)
    values = json.loads(schedule_text(compiled(tmp_path / "net.onnx", small)))
    read = [block for block in values["-1"]["out"] if block["related_ifmap"]]
    assert read and values["-1"]["in"]
    assert any(len(block["related_ifmap"]) > 1 for block in read)


def test_commands_write_check_and_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arch, file = tmp_path / "three.tarch", tmp_path / "schedule.json"
    arch.write_text(json.dumps(THREE.to_dict()))
    assert exit_code(["schedule", str(DIGITS), "-a", str(arch), "-o", str(file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    times = [sum(work["time"] for work in works) for works in works_of(json.loads(file.read_text())).values()]
    assert (told["cores"], told["cycles"]) == (3, max(times))
    assert exit_code(["ir", "check", str(file)]) == 0
    for folder, options in (("split", ["--cores", "split"]), ("read", ["--schedule", str(file)])):
        assert exit_code(["compile", str(DIGITS), "-a", str(arch), "-o", str(tmp_path / folder), *options]) == 0
    for program in sorted((tmp_path / "split").glob("*.tprog")):
        assert program.read_bytes() == (tmp_path / "read" / program.name).read_bytes()


def test_cores_that_cannot_wait_are_refused_with_a_way_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two = ("--set", "cores=2", "--set", "dram_ports=shared")
    assert exit_code(["schedule", str(DIGITS), "-a", "pynq", "-o", str(tmp_path / "x.json"), *two]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "sync_counters: found 0; allowed: 2: cores that share an image" in said
    assert "--set sync_counters=2, or schedule one of them (--set cores=1)" in said
    assert not list(tmp_path.iterdir())
