# SPDX-License-Identifier: Apache-2.0
"""The pipeline as a whole: determinism, dumps, names, files, residency, the original's manifest."""

from __future__ import annotations

import contextlib
import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler.backend.report import CompileReport
from weft.compiler.errors import CompileError
from weft.compiler.parameters import Parameters
from weft.compiler.pipeline import STEPS, compile_model, steps_of
from weft.hw.contract.arch import Arch
from weft.tb.compile.run_model import BASE, ModelMaker, check_model, run_float, run_golden, signal_to_noise
from weft.tb.shared import shared
from weft.tmodel.elements import pack, unpack
from weft.tmodel.manifest import TModel
from weft.tmodel.onnx_engine import session


def residual_network(tmp_path: Path, channels: int = 12) -> tuple[Path, np.ndarray]:
    maker = ModelMaker((1, channels, 10, 10))
    name = maker.node("Relu", maker.conv("x", channels, channels, (3, 3), pads=(1, 1, 1, 1)))
    other = maker.conv(name, channels, channels, (3, 3), pads=(1, 1, 1, 1))
    name = maker.node("Relu", maker.node("Add", other, name))
    maker.node("Softmax", maker.node("Flatten", maker.conv(name, channels, 1, (9, 9))), axis=-1)
    return maker.save(tmp_path / "net.onnx"), maker.random.standard_normal((3, channels, 10, 10)).astype(np.float32)


def compiled(path: Path, samples: np.ndarray, folder: Path, arch: Arch = BASE, **options: Any) -> CompileReport:
    return compile_model(path, arch, folder, calibration={"x": samples}, host_fallback=True, **options)


def test_two_compilations_are_identical(tmp_path: Path) -> None:
    path, samples = residual_network(tmp_path)
    contents = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        compiled(path, samples, folder)
        contents.append({file.name: file.read_bytes() for file in sorted(folder.iterdir())})
    assert contents[0] == contents[1]
    assert list(contents[0]) == ["net.tdata", "net.tmodel", "net.tprog"]


@pytest.mark.parametrize("searched", [True, False])
def test_the_search_for_cycles_rests_while_the_compiler_works(tmp_path: Path, searched: bool) -> None:
    """And is what it was afterwards, of a network that is refused too."""
    path, samples = residual_network(tmp_path)
    seen: set[bool] = set()
    before = gc.isenabled()
    (gc.enable if searched else gc.disable)()
    try:
        for arch in (BASE, BASE.replace(dram1_depth=2)):
            with contextlib.suppress(CompileError):
                compiled(path, samples, tmp_path, arch, watch=lambda *_: seen.add(gc.isenabled()))
            assert gc.isenabled() == searched
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == {False}


def test_order_of_the_files_nodes_does_not_matter(tmp_path: Path) -> None:
    """Both branches of an add are convolutions, and an unread node lies between them."""
    def network(folder: str, *numbers: int) -> Path:
        maker = ModelMaker((1, 8, 10, 10))
        stem = maker.conv("x", 8, 8, (3, 3), pads=(1, 1, 1, 1))
        long = maker.conv(maker.node("Relu", maker.conv(stem, 8, 8, (1, 1))), 8, 8, (1, 1))
        maker.node("Add", long, maker.conv(stem, 8, 8, (1, 1)))
        maker.node("Abs", stem)
        maker.nodes = [maker.nodes[number] for number in numbers]
        (tmp_path / folder).mkdir()
        return maker.save(tmp_path / folder / "net.onnx", "add5")

    samples = np.random.default_rng(0).standard_normal((2, 8, 10, 10)).astype(np.float32)
    reports = [compiled(path, samples, path.parent) for path in (
        network("long_first", 0, 1, 2, 3, 4, 5, 6), network("short_first", 0, 4, 6, 1, 2, 3, 5))]
    assert len({report.program_path.read_bytes() for report in reports}) == 1
    assert len({report.data_path.read_bytes() for report in reports}) == 1


def test_a_sum_with_an_input_stands_behind_the_layer_that_it_reads(tmp_path: Path) -> None:
    """Copies of an input into an output are moved to the front; a sum of the input and of a layer is none."""
    maker = ModelMaker((1, 4, 5, 5))
    made = maker.conv("x", 4, 4, (3, 3), pads=(1, 1, 1, 1))
    maker.node("Concat", maker.node("Sub", "x", made), maker.node("Add", "x", made), axis=1)
    samples = maker.random.standard_normal((2, *maker.shape[1:])).astype(np.float32)
    path = maker.save(tmp_path / "net.onnx")
    check_model(path, BASE, samples, 40)


def test_name_and_progress(tmp_path: Path) -> None:
    path, samples = residual_network(tmp_path)
    heard: list[str] = []
    report = compiled(path, samples, tmp_path / "deep" / "folder", name="other", progress=heard.append)
    assert [told for told in heard if " " not in told] == [step.name for step in steps_of(Parameters.OWN_POINT)]
    layers = [row["name"] for row in report.layers]
    for step in ("memory", "schedule"):
        assert [told for told in heard if told.startswith(f"{step} ")][:len(layers)] == [
            f"{step} {number} of {len(layers)}, {name}" for number, name in enumerate(layers, 1)]
    assert report.model_path == tmp_path / "deep" / "folder" / "other.tmodel"
    assert TModel.load(report.model_path).name == "other"


def test_every_graph_dumped_computes_the_same(tmp_path: Path) -> None:
    """What a pass left can be run again, up to the host's part."""
    path, samples = residual_network(tmp_path)
    compiled(path, samples, tmp_path, dump_dir=tmp_path / "dump")
    texts = sorted(file.stem for file in (tmp_path / "dump").glob("*.txt"))
    assert texts == [f"{STEPS.index(step):02}_{step.name}" for step in steps_of(Parameters.OWN_POINT)]
    graphs = sorted((tmp_path / "dump").glob("*.onnx"))
    assert len(graphs) >= 4
    feed = {"x": samples[:1]}
    reference = next(iter(run_float(path, feed).values()))
    results = [next(iter(run_float(graph, feed).values())).reshape(-1) for graph in graphs]
    assert np.allclose(results[0], reference.reshape(-1))
    for result in results[2:]:
        assert np.allclose(result, results[1], rtol=1e-4, atol=1e-4)


def test_residency_saves_traffic_and_changes_nothing(tmp_path: Path) -> None:
    """Where tensors stay in local memory only the input, the output and the weights move."""
    path, samples = residual_network(tmp_path, 16)
    large = compiled(path, samples, tmp_path / "large")
    small = compiled(path, samples, tmp_path / "small", BASE.replace(local_depth=200))
    assert [row["resident"] for row in large.layers] == [True, True, False]
    assert not any(row["resident"] for row in small.layers)
    assert [row["modelled_vectors"]["dram0"] > 0 for row in large.layers] == [True, False, True]
    assert large.modelled_vectors["dram0"] < small.modelled_vectors["dram0"]
    results = [run_golden(TModel.load(report.model_path), {"x": samples[0]}) for report in (large, small)]
    assert all((results[0][name] == results[1][name]).all() for name in results[0])


def test_a_program_can_run_again(tmp_path: Path) -> None:
    """Inputs stay where they are, and registers are as after reset at the end."""
    path, samples = residual_network(tmp_path)
    report = compiled(path, samples, tmp_path)
    program = report.program_path.read_bytes()
    model = TModel.load(report.model_path)
    once = run_golden(model, {"x": samples[0]})
    model.__dict__["program"] = program + program
    twice = run_golden(model, {"x": samples[0]})
    assert all((once[name] == twice[name]).all() for name in once)


def test_manifest_keys(tmp_path: Path) -> None:
    path, samples = residual_network(tmp_path)
    report = compiled(path, samples, tmp_path)
    values = json.loads(report.model_path.read_text())
    assert list(values)[:6] == ["name", "prog", "consts", "inputs", "outputs", "arch"]
    assert values["prog"] == {"file_name": "net.tprog", "size": report.program_path.stat().st_size}
    assert values["consts"][0]["size"] * BASE.vector_bytes == report.data_path.stat().st_size
    assert values["inputs"][0]["size"] == 200 and values["inputs"][0]["layout"] == [12, 10, 10]
    assert values["load_consts_to_local"] is False
    assert values["host"]["operators"] == ["Softmax"]
    assert values["macs"] == report.macs > 0
    assert [layer["name"] for layer in values["layers"]] == ["conv0", "conv2/copies", "conv2", "conv5"]


@pytest.mark.parametrize("lanes", [2, 3, 8, 12])
def test_pack_and_unpack(lanes: int) -> None:
    tensor = np.arange(5 * 3 * 4).reshape(5, 3, 4)
    vectors = pack(tensor, lanes)
    assert vectors.shape == (-(-5 // lanes) * 12, lanes)
    assert vectors[4 + 1, 1] == tensor[1, 1, 1]
    assert not vectors.sum() - tensor.sum()
    assert (unpack(vectors, tensor.shape) == tensor).all()


def test_manifest_of_the_original_loads(tmp_path: Path) -> None:
    model = TModel.load(shared("vectors/resnet20v2_zcu104/resnet20v2_cifar_onnx_zcu104.tmodel"))
    assert model.arch == Arch.load("zcu104").replace(axi_data_width=64, deep_queues=0, lut_count=0, lut_depth=64,
                                                     simd_registers_depth=1)
    assert len(model.program) == model.program_size == 451_539
    base, vectors = model.consts[0]
    assert base == 0 and vectors.shape == (18_803, 32)
    image = np.random.default_rng(0).uniform(-1, 1, (1024, 32))
    assert (model.pack_input("x:0", image) == np.rint(image * 256)).all()
    assert model.unpack_output("Identity:0", np.full((1, 32), 128)).tolist() == [[0.5] * 32]


def test_plain_points(tmp_path: Path) -> None:
    maker = ModelMaker((1, 6, 9, 8))
    maker.node("Relu", maker.conv("x", 6, 6, (3, 3)))
    path = maker.save(tmp_path / "model.onnx")
    report = compile_model(path, BASE, tmp_path, plain=True)
    model = TModel.load(report.model_path)
    assert {port.point for port in (*model.inputs, *model.outputs)} == {8}
    sample = maker.random.standard_normal((1, 6, 9, 8)).astype(np.float32)
    found = run_golden(model, {"x": sample})
    assert signal_to_noise(run_float(path, {"x": sample})["relu1"], found["relu1"]) > 40


def test_smallest_preset(tmp_path: Path) -> None:
    """Two lanes, 32 vectors of local memory, 16 accumulators."""
    maker = ModelMaker((1, 3, 6, 5))
    name = maker.conv("x", 3, 5, (3, 3), pads=(1, 1, 1, 1), strides=(2, 1))
    maker.node("Relu", maker.node("MaxPool", name, kernel_shape=(2, 2)))
    path = maker.save(tmp_path / "model.onnx")
    samples = maker.random.standard_normal((2, 3, 6, 5)).astype(np.float32)
    check_model(path, Arch.load("tiny").replace(dram0_depth=1024, dram1_depth=1024), samples, 60)


def test_host_part_alone(tmp_path: Path) -> None:
    """The embedded model is the network's end, and takes what the machine gives."""
    path, samples = residual_network(tmp_path)
    model = TModel.load(compiled(path, samples, tmp_path).model_path)
    assert model.host is not None
    names = [entry.name for entry in session(model.host.model).get_inputs()]
    assert tuple(names) == model.host.inputs == tuple(port.name for port in model.outputs)
    logits = np.arange(4, dtype=np.float32).reshape(model.outputs[0].shape)
    result = model.run_host({names[0]: logits})
    assert next(iter(result.values())).sum() == pytest.approx(1)
