# SPDX-License-Identifier: Apache-2.0
"""``--cores split``: an image over all cores has the words that one core gives it, whichever core runs first."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.backend.encode import MachineCode
from weft.compiler.backend.split import Cores
from weft.compiler.check.checker import Checker
from weft.compiler.choices import Choices
from weft.compiler.cores import AUTO, LATENCY, SPLIT, THROUGHPUT
from weft.compiler.errors import CompileError, Fault
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import Product
from weft.compiler.lir import DRAM0, LOCAL, Address, DataMove, Signal
from weft.compiler.pipeline import compile_model, run_parts, run_steps
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.request import Request
from weft.compiler.scheduler.schedule import Schedule
from weft.compiler.split.shares import _cuts, _option
from weft.compiler.split.touched import touched
from weft.compiler.split.verify import verify_cores
from weft.compiler.tiling.search import Search
from weft.compiler.tiling.share import Cuts, shares, ways_to_cut
from weft.compiler.tiling.spans import Box
from weft.cycles.system import cycles_an_image, estimate_system
from weft.golden.machine import Machine
from weft.golden.order import SignalError
from weft.golden.races import RaceError, check_races
from weft.golden.system import GoldenSystem
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import Opcode
from weft.hw.contract.key_values import SHARED
from weft.runtime.session import Session
from weft.tb.compile.run_model import ModelMaker
from weft.tb.random import byte_networks, network_rule
from weft.tb.random.random_networks import Case
from weft.tmodel.errors import ModelError
from weft.tmodel.network import Network


def cores_of(arch: Arch, cores: int) -> Arch:
    """Several cores of this kind that can wait for each other."""
    return arch.replace(cores=cores, memory_ports=min(cores, 4), dram_ports=SHARED, sampler=0,
                        stream_width=arch.axi_data_width, sync_counters=cores)


THREE = cores_of(network_rule.ARCHS["lanes8"], 3)
CASES = {"lanes8": (0, 3, 4), "lanes3": (1, 3), "odd5": (1, 3), "functions3": (2, 4), "bytes3": (1, 2),
         "bytes12": (2, 3), "tiny": (3, 2)}
"""Machine -> a seed of a random network, and numbers of cores. Two of them failed once: tensors that two inputs of a
layer share, and rows that only a later layer reads."""


def residual(folder: Path) -> Path:
    """A network with halo rows, a residual, a pool, a depthwise layer and a matrix product."""
    maker = ModelMaker((1, 3, 12, 8), seed=3)
    first = maker.node("Relu", maker.conv("x", 3, 24, (3, 3), pads=(1, 1, 1, 1)))
    second = maker.conv(first, 24, 24, (3, 3), pads=(1, 1, 1, 1), group=24)
    joined = maker.node("Relu", maker.node("Add", second, first))
    pooled = maker.node("MaxPool", joined, kernel_shape=(2, 2), strides=(2, 2))
    last = maker.conv(pooled, 24, 40, (1, 1))
    maker.node("GlobalAveragePool", last)
    return maker.save(folder / "net.onnx")


def images(path: Path, count: int = 3) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(7).standard_normal((count, 3, 12, 8)).astype(np.float32)}


def made(path: Path, arch: Arch, **options: object) -> Products:
    return run_steps(Request(path, images(path), cores=SPLIT, **options), arch)  # type: ignore[arg-type]


def same_words(path: Path, samples: np.ndarray, arch: Arch) -> None:
    """Of one core's program and of all cores' programs."""
    found = {}
    for mode in (AUTO, SPLIT):
        report = compile_model(path, arch, path.parent / mode, calibration={"x": samples}, host_fallback=True,
                               cores=mode)
        found[mode] = Session(Network.load(report.model_path)).run({"x": samples.astype(np.float32)})
    assert all(np.array_equal(found[SPLIT].outputs[name], values) for name, values in found[AUTO].outputs.items())
    assert found[SPLIT].saturated == found[AUTO].saturated


@pytest.mark.wide_cases("tiny*", "bytes12*")
@pytest.mark.parametrize(("name", "cores"), [(name, cores) for name, (_, *each) in CASES.items() for cores in each],
                         ids=lambda value: str(value))
def test_random_networks_have_one_cores_words(name: str, cores: int, tmp_path: Path) -> None:
    rule = byte_networks if name.startswith("bytes") else network_rule
    arch = rule.ARCHS[name]
    path, samples = network_rule.save(Case(name, CASES[name][0]), arch, tmp_path)
    same_words(path, samples, cores_of(arch, cores))


def test_cores_may_run_in_any_order(tmp_path: Path) -> None:
    """The memory that golden leaves is the same for every seed of the order."""
    products = made(residual(tmp_path), THREE)
    programs = [code.content for code in products[Cores].codes]
    found = []
    for seed in range(4):
        system = GoldenSystem(THREE)
        system.drams["dram1"].write(0, products[Consts].vectors)
        system.run(programs, seed=seed)
        found.append(system.drams["dram0"].read(0, 4096))
    assert all(np.array_equal(found[0], other) for other in found) and found[0].any()


def test_every_layer_is_shared_and_tensors_stay_on_their_cores(tmp_path: Path) -> None:
    products = made(residual(tmp_path), THREE)
    cores, layers = products[Cores], products[Layers]
    assert cores.plan is not None and len(cores.plan.shares) == len(layers)
    for layer, boxes in zip(layers, cores.plan.shares, strict=True):
        vectors = sum(box.vectors for box in boxes if box is not None)
        assert vectors == layer.output.tiles(THREE.array_size) * layer.output.height * layer.output.width
    assert all(plan.local for plan in cores.plan.cores)
    streamed = made(residual(tmp_path), THREE, keep_tensors=True)[Cores]
    halo, whole = (sum(move.size * move.rows for schedule in each.schedules for move in schedule.operations
                       if isinstance(move, DataMove) and move.far.memory == DRAM0) for each in (cores, streamed))
    assert halo < 0.6 * whole


def test_a_cut_costs_what_its_slowest_core_costs(tmp_path: Path) -> None:
    """Unlike boxes, in any order, cost as much as the costliest of them alone."""
    products = made(residual(tmp_path), THREE)
    unlike = 0
    for layer, consts in zip(products[Layers], products[Consts].layers, strict=True):
        for boxes in _cuts(layer, THREE):
            found, *alone = (_option(layer, consts, THREE, Search(), each)
                             for each in (boxes, *((box,) for box in boxes if box is not None)))
            assert found is not None and found.cost == max(each.cost for each in alone if each is not None)
            unlike += len({each.cost for each in alone if each is not None}) > 1
    assert unlike


def test_each_post_and_wait_is_needed(tmp_path: Path) -> None:
    """Without one of them the programs race, or a core waits for ever."""
    products = made(residual(tmp_path), THREE)
    programs = [code.content for code in products[Cores].codes]
    check_races(programs, THREE)
    size, tried = Machine(THREE).isa.instruction_bytes, 0
    for core, schedule in enumerate(products[Cores].schedules):
        assert any(isinstance(operation, Signal) for operation in schedule.operations)
        opcodes = [instruction.opcode for instruction in Machine(THREE).isa.disassemble(programs[core])]
        for place in (number for number, opcode in enumerate(opcodes) if opcode == Opcode.SIGNAL):
            broken = [*programs]
            broken[core] = programs[core][:place * size] + programs[core][(place + 1) * size:]
            with pytest.raises((RaceError, SignalError)):
                check_races(broken, THREE)
            tried += 1
    assert tried > 6


def test_the_verifier_sees_all_cores(tmp_path: Path) -> None:
    """A read of what another core has not yet written is a fault, and so is a wait that nobody fills."""
    products = made(residual(tmp_path), THREE)
    cores = products[Cores]
    assert cores.plan is not None
    written = [cores.plan.cores[0].dram0["x"]]
    verify_cores(cores.schedules, THREE, written, len(products[Consts].vectors))
    without = [Schedule.of(tuple(operation for operation in schedule.operations
                              if not isinstance(operation, Signal) or operation.wait), schedule.layers)
               for schedule in cores.schedules]
    with pytest.raises(Fault, match="core 0, operation .*: a wait that no post fills"):
        verify_cores(without, THREE, written, len(products[Consts].vectors))
    silent = [Schedule.of(tuple(operation for operation in schedule.operations if not isinstance(operation, Signal)),
                       schedule.layers) for schedule in cores.schedules]
    with pytest.raises(Fault, match="reads a vector that nothing wrote"):
        verify_cores(silent, THREE, written, len(products[Consts].vectors))


@pytest.mark.parametrize(("changed", "message"), [
    ({"far": Address(LOCAL, 0)}, "must be in dram0 or dram1"), ({"size": 0}, "is ordered with 0 vectors"),
    ({"far": Address(DRAM0, THREE.dram0_depth - 1), "size": 2}, "is ordered with 2 vectors, of"),
])
def test_signals_keep_to_vectors_that_are_there(changed: dict[str, object], message: str, tmp_path: Path) -> None:
    path = residual(tmp_path)
    products = made(path, THREE)
    cores = products[Cores]
    assert cores.plan is not None
    own = [*cores.schedules[1].operations]
    number = next(number for number, operation in enumerate(own) if isinstance(operation, Signal))
    own[number] = own[number]._replace(**changed)  # type: ignore[arg-type]
    wrong = [cores.schedules[0], Schedule.of(tuple(own), cores.schedules[1].layers), cores.schedules[2]]
    with pytest.raises(Fault, match=f"core 1, operation {number}, Signal .*: .*{message}"):
        verify_cores(wrong, THREE, [cores.plan.cores[0].dram0["x"]], len(products[Consts].vectors))


def test_check_runs_the_programs_of_all_cores(tmp_path: Path) -> None:
    path, checker = residual(tmp_path), Checker()
    compile_model(path, THREE, tmp_path, calibration=images(path), watch=checker.after, cores=SPLIT)
    checker.insist()
    assert (checker.verdicts[-1].step, checker.verdicts[-1].runs) == ("split", "programs of all cores on golden")


def test_the_page_shows_the_core_that_takes_longest(tmp_path: Path) -> None:
    """And signals of layers, which a memory for all tensors of every core would not hold."""
    path, arch = residual(tmp_path), tmp_path / "three.tarch"
    arch.write_text(json.dumps({**THREE.to_dict(), "axi_address_width": 24}))
    assert exit_code(["compile", str(path), "-a", str(arch), "-o", str(tmp_path / "out"), "--cores", "split", "--html",
                      str(tmp_path / "page.html"), "--report", str(tmp_path / "layers.json")]) == 0
    assert "<html" in (tmp_path / "page.html").read_text()
    assert all(row["signal_to_noise"] > 30 for row in json.loads((tmp_path / "layers.json").read_text()))


def test_latency_takes_what_is_sooner_done(tmp_path: Path) -> None:
    """All cores for a network with work for them, one for a single vector."""
    path = residual(tmp_path)
    assert run_steps(Request(path, images(path), goal=LATENCY), THREE)[Cores].codes
    assert not run_steps(Request(path, images(path)), THREE)[Cores].codes
    maker = ModelMaker((1, 2, 1, 1))
    maker.conv("x", 2, 2, (1, 1))
    tiny = maker.save(tmp_path / "tiny.onnx")
    assert not run_steps(Request(tiny, goal=LATENCY), THREE)[Cores].codes
    assert run_steps(Request(tiny, cores=SPLIT), THREE)[Cores].codes


def test_throughput_takes_what_gives_more_images(tmp_path: Path) -> None:
    """All cores for one image where together they keep what one alone would move, else an image each."""
    maker, x = ModelMaker((1, 16, 16, 16), seed=3), "x"
    for _ in range(6):
        x = maker.node("Relu", maker.conv(x, 16, 16, (1, 1)))
    path = maker.save(tmp_path / "net.onnx")
    for arch, together in ((THREE.replace(memory_ports=1, local_depth=512), True), (THREE, False)):
        found = run_steps(Request(path, goal=THROUGHPUT), arch)
        asked = run_steps(Request(path, cores=SPLIT), arch)[Cores]
        split = estimate_system([code.content for code in asked.codes], arch).cycles
        batch = cycles_an_image([found[MachineCode].content] * 3, arch)
        assert (split < batch) == together
        assert [code.content for code in found[Cores].codes] == [code.content for code in asked.codes] * together
    _, (part,) = run_parts(Request(path), THREE.replace(memory_ports=1, local_depth=512),
                           choices=Choices(residents={x: False}))
    assert not part[Cores].codes


def test_auto_splits_nothing_that_memories_have_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise CompileError("shares", "too small")

    path = residual(tmp_path)
    monkeypatch.setattr("weft.compiler.backend.split.plan_split", refused)
    assert not run_steps(Request(path, images(path), goal=LATENCY), THREE)[Cores].codes
    with pytest.raises(CompileError, match="too small"):
        made(path, THREE)


def test_choices_for_one_core_are_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path, arch = residual(tmp_path), tmp_path / "three.tarch"
    arch.write_text(json.dumps(THREE.to_dict()))
    command = ["compile", str(path), "-a", str(arch), "-o", str(tmp_path / "out"), "--tune-steps", "1"]
    for options in (["--cores", "split"], ["--for", "latency"]):
        assert exit_code([*command, *options]) == 1
        assert "--tune-steps: found choices for the program of one core" in " ".join(capfd.readouterr().err.split())


# -- shares ------------------------------------------------------------------------------------------------------------
def test_shares_cover_a_box_once() -> None:
    whole = Box((0, 5), (0, 7), (0, 3))
    for cuts in (*ways_to_cut(whole, 4), Cuts(2, 3, 2)):
        covered = np.zeros((5, 7, 3), int)
        for box in shares(whole, cuts):
            covered[slice(*box.tiles), slice(*box.rows), slice(*box.columns)] += 1
        assert (covered == 1).all()
    assert [*ways_to_cut(whole, 4)] == [Cuts(1, 4, 1), Cuts(2, 2, 1), Cuts(4, 1, 1), Cuts(1, 1, 1)]
    assert [*ways_to_cut(Box((0, 1), (0, 1), (0, 9)), 4)] == [Cuts(1, 1, 1)]


# -- files -------------------------------------------------------------------------------------------------------------
def test_a_product_waits_for_every_row_of_the_tensor_that_is_its_weights(tmp_path: Path) -> None:
    maker = ModelMaker((1, 1, 5, 3))
    maker.node("MatMul", "x", maker.node("Transpose", "x", perm=(0, 1, 3, 2)))
    products = run_steps(Request(maker.save(tmp_path / "net.onnx"), {"x": np.ones((1, 1, 5, 3), np.float32)}),
                         network_rule.ARCHS["lanes8"])
    (number, layer, core), = [(number, layer, layer.core) for number, layer in enumerate(products[Layers])
                              if isinstance(layer.core, Product)]
    shape = Search().shape(layer, products[Consts].layers[number], network_rule.ARCHS["lanes8"])
    read = {var.root: box for var, box in touched(shape).reads}
    assert read[core.weights.root] == Box((0, 1), (0, 3), (0, 1))  # a row for each number of a row of x


def test_a_tmodel_has_a_program_for_each_core(tmp_path: Path) -> None:
    path = residual(tmp_path)
    report = compile_model(path, THREE, tmp_path, calibration=images(path), cores=SPLIT)
    values = json.loads(report.model_path.read_text())
    assert values["cores"]["mode"] == "split"
    assert [core["prog"]["file_name"] for core in values["cores"]["others"]] == ["net.core1.tprog", "net.core2.tprog"]
    assert {"net.tprog", "net.core1.tprog", "net.core2.tprog", "net.tdata"} == values["files"].keys()
    assert {file.name for file in report.files} == values["files"].keys()
    model, = Network.load(report.model_path).machines
    assert [model.of_core(core).program for core in range(3)] == [*model.programs]
    compile_model(path, THREE, tmp_path, calibration=images(path), cores=SPLIT)  # it replaces its own files
    (tmp_path / "net.core2.tprog").unlink()
    with pytest.raises(ModelError, match=r"net.core2.tprog"):
        Network.load(report.model_path)


@pytest.mark.parametrize(("change", "said"), [
    ({"others": []}, "cores with the mode 'split' and 0 other programs, of a machine of 3 cores"),
    ({"mode": "batch"}, "cores with the mode 'batch' and 2 other programs"),
])
def test_programs_that_do_not_fit_the_cores_are_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    path = residual(tmp_path)
    report = compile_model(path, THREE, tmp_path, calibration=images(path), cores=SPLIT)
    values = json.loads(report.model_path.read_text())
    values["cores"] |= change
    values["files"] = {name: entry for name, entry in values["files"].items() if "others" not in change or
                       ".core" not in name}
    report.model_path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match=said):
        Network.load(report.model_path)
