# SPDX-License-Identifier: Apache-2.0
"""``--cores batch``: every image has a core of its own and the words that one core gives it, and is refused what cannot
be so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from weft.cli.main import exit_code
from weft.compiler.cores import AUTO, BATCH
from weft.compiler.pipeline import compile_model
from weft.golden.check import MachineStop
from weft.golden.races import RaceError
from weft.hw.contract.arch import Arch
from weft.hw.contract.assembly import instruction_text
from weft.hw.contract.instructions import DataFlow
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.compile.run_model import ModelMaker
from weft.tb.random.lockstep_archs import lockstep_archs
from weft.tb.system.test_system import SYSTEMS
from weft.tb.unit.runtime.models import OUTPUT_BASE, SIZE, VECTORS, model
from weft.tmodel.errors import ModelError
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

IMAGES = 5
ARCHS = {
    **{name: arch.replace(sync_counters=0) for name, arch in SYSTEMS.items()},
    "three of bytes on one port": lockstep_archs()["lanes4_int8"].replace(cores=3),
}
"""Machines of several cores; the last group has too few images for all of them."""


def alone(arch: Arch) -> Arch:
    return arch.replace(cores=1, memory_ports=1)


def compiled(folder: Path, arch: Arch) -> tuple[Network, np.ndarray]:
    """A network with weights, a residual and more tensors than stay on chip; and ``IMAGES`` inputs."""
    maker = ModelMaker((1, 3, 6, 6), seed=3)
    first = maker.node("Relu", maker.conv("x", 3, 4, (3, 3), pads=(1, 1, 1, 1)))
    maker.node("Add", maker.conv(first, 4, 4, (3, 3), pads=(1, 1, 1, 1)), first)
    samples = maker.random.standard_normal((IMAGES, *maker.shape[1:])).astype(np.float32)
    report = compile_model(maker.save(folder / "net.onnx"), arch, folder, calibration={"x": samples}, cores=BATCH)
    return Network.load(report.model_path), samples


@pytest.mark.parametrize("name", ARCHS)
def test_every_word_is_that_of_one_core(name: str, tmp_path: Path) -> None:
    network, samples = compiled(tmp_path, ARCHS[name])
    found = Session(network).run({"x": samples})
    one = Session(network, alone(ARCHS[name])).run({"x": samples})
    assert found.outputs.keys() == one.outputs.keys()
    for output, values in one.outputs.items():
        assert np.array_equal(found.outputs[output], values)
        assert len(np.unique(values, axis=0)) == IMAGES
    assert found.images == IMAGES and found.saturated == one.saturated


def test_windows_are_as_long_as_an_image_needs(tmp_path: Path) -> None:
    arch = ARCHS["three on two ports"]
    network, _ = compiled(tmp_path, arch)
    loaded, = network.machines
    written = json.loads((tmp_path / "net.tmodel").read_text())["cores"]
    assert written == {"mode": "batch", "window_bytes": DRAM_OFFSET_BYTES}
    batch = Session(network).machines[0].batch
    groups = batch.groups(IMAGES)
    assert [len(group) for group in groups] == [3, 2]
    assert groups[0][0] == loaded.program and all(program.endswith(loaded.program) for program in groups[1])
    first = [instruction_text(Isa(arch), next(Isa(arch).disassemble(program)))
             for program in (*groups[0][1:], *groups[1])]
    assert [text.split()[-1] for text in first] == [f"value={image}" for image in range(1, IMAGES)]


def test_a_program_knows_which_image_it_has(tmp_path: Path) -> None:
    """By core and instruction, also of a later group."""
    network, _ = compiled(tmp_path, ARCHS["three on two ports"])
    batch = Session(network).machines[0].batch
    assert batch.place(0, 0, 7) == (0, 7)
    assert batch.place(0, 2, 0) == (2, -1) and batch.place(0, 2, 7) == (2, 6)
    assert batch.place(1, 1, 7) == (4, 6)


@pytest.mark.parametrize("mode", [AUTO, BATCH])
def test_one_core_has_nothing_of_it(mode: str, tmp_path: Path) -> None:
    maker = ModelMaker((1, 2, 3, 3))
    maker.conv("x", 2, 2, (1, 1))
    path = maker.save(tmp_path / "net.onnx")
    arch = lockstep_archs()["lanes2"]
    if mode == BATCH:
        with pytest.raises(WeftError, match="--cores: found batch, for a machine of one core; allowed: a machine with "
                                            "the key cores above 1; way out: leave it out"):
            compile_model(path, arch, tmp_path, cores=mode)
        return
    compile_model(path, arch, tmp_path, cores=mode)
    assert "cores" not in json.loads((tmp_path / "net.tmodel").read_text())


@pytest.mark.parametrize(("options", "said"), [
    (["--cores", "split"], "--cores split: found a machine with sync_counters 0; allowed: as many as cores, 2, by "
                           "which these wait for each other; way out: add --set sync_counters=2, or take --cores"),
    (["--cores", "pipeline"], "--cores: found pipeline: layers of an image on different cores, which is not built"),
    (["--cores", "mesh"], "--cores: found mesh; allowed: auto, batch, split; way out: name one of them"),
    (["--for", "power"], "--for: found power; allowed: throughput, latency; way out: name one of them"),
])
def test_what_is_not_built_is_refused_with_a_way_out(options: list[str], said: str, tmp_path: Path,
                                                     capfd: pytest.CaptureFixture[str]) -> None:
    """Both ways out work: a batch, and counters."""
    maker = ModelMaker((1, 2, 3, 3))
    maker.conv("x", 2, 2, (1, 1))
    path = maker.save(tmp_path / "net.onnx")
    arch = tmp_path / "two.tarch"
    arch.write_text(json.dumps(ARCHS["two on one port"].to_dict()))
    command = ["compile", str(path), "-o", str(tmp_path)]
    assert exit_code([*command, "-a", str(arch), *options]) == 1
    assert said in " ".join(capfd.readouterr().err.split())
    assert exit_code([*command, "-a", str(arch), "--cores", "batch", "--for", "throughput"]) == 0
    assert exit_code([*command, "-a", str(arch), "--set", "sync_counters=2", "--cores", "split"]) == 0


@pytest.mark.parametrize(("change", "said"), [
    ({"window_bytes": 1 << 20}, "cores with windows of 1048576 bytes, of a DRAM0 of 65536"),
    ({"window_bytes": 70000}, "multiple of 65536"),
    ({"mode": "pipeline"}, "Invalid enum value 'pipeline'"),
    ({"mode": "split"}, "cores with the mode 'split' and 0 other programs, of a machine of 3 cores"),
    ({"order": 1}, "unknown field `order`.*known are mode, window_bytes, others"),
])
def test_what_no_compiler_says_of_cores_is_refused(change: dict[str, object], said: str, tmp_path: Path) -> None:
    compiled(tmp_path, ARCHS["three on two ports"])
    path = tmp_path / "net.tmodel"
    values = json.loads(path.read_text())
    values["cores"] |= change
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match=said):
        Network.load(path)


def test_cores_of_a_machine_of_one_are_refused(tmp_path: Path) -> None:
    compiled(tmp_path, ARCHS["three on two ports"])
    path = tmp_path / "net.tmodel"
    values = json.loads(path.read_text())
    values["arch"] |= {"cores": 1, "memory_ports": 1}
    path.write_text(json.dumps(values))
    with pytest.raises(ModelError, match="cores with the mode 'batch', of a machine of one core"):
        Network.load(path)


# -- by hand -----------------------------------------------------------------------------------------------------------
def by_hand(folder: Path, far: DataFlow, extra: int | None = None) -> TModel:
    """Copies its input to the output, and then to ``far``; ``extra``: an address that is too high."""
    arch = ARCHS["three on two ports"]
    isa = Isa(arch)
    program = [isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, SIZE),
               isa.data_move(DataFlow.LOCAL_TO_DRAM0, 0, OUTPUT_BASE, SIZE), isa.data_move(far, 0, 20, SIZE)]
    if extra is not None:
        program.append(isa.data_move(DataFlow.DRAM0_TO_LOCAL, extra, 0, SIZE))
    return model(folder, arch, program, [np.ones((2, arch.array_size), int)])


def test_a_program_that_writes_what_all_share_is_refused(tmp_path: Path) -> None:
    images = np.stack([VECTORS + image for image in range(IMAGES)])
    good = Session(by_hand(tmp_path, DataFlow.LOCAL_TO_DRAM0)).run({"x": images}, raw=True)
    assert good.outputs["y"].tolist() == images.tolist()
    with pytest.raises(RaceError, match="a race in dram1: core 0, instruction 2, which writes bytes 80..95, and core 1,"
                                        " instruction 3"):
        Session(by_hand(tmp_path, DataFlow.LOCAL_TO_DRAM1)).run({"x": images}, raw=True)
    one = Session(by_hand(tmp_path, DataFlow.LOCAL_TO_DRAM1)).run({"x": images[:1]}, raw=True)
    assert one.outputs["y"].tolist() == images[:1].tolist()


def test_an_illegal_program_is_refused_before_it_runs(tmp_path: Path) -> None:
    images = np.stack([VECTORS, VECTORS])
    high = ARCHS["three on two ports"].local_depth - 1
    with pytest.raises(MachineStop, match="instruction 3 .*LOCAL_RANGE") as raised:
        Session(by_hand(tmp_path, DataFlow.LOCAL_TO_DRAM0, high)).run({"x": images}, raw=True)
    assert raised.value.program_counter == 3
