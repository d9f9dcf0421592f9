# SPDX-License-Identifier: Apache-2.0
"""A board's whole shell in simulation: bridge, LiteDRAM with its SDRAM model and refresh, or on-chip memory, and the
machine; driven by the driver through the protocol that it speaks to a board."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from weft.boards import BOARDS
from weft.cli.estimate import estimated
from weft.compiler.pipeline import compile_model
from weft.cycles.origin import Origin
from weft.cycles.replay import estimate
from weft.hw.contract.arch import Arch
from weft.hw.contract.dram import EXPECTED
from weft.hw.contract.isa import Isa
from weft.runtime.devices import no_progress
from weft.runtime.driver.device import Device
from weft.runtime.driver.dram_start import DramController, check_memory
from weft.runtime.driver.links import LinkTarget, shell_map
from weft.runtime.driver.memory_map import Places
from weft.runtime.driver.needs import moved
from weft.runtime.driver.register_machine import RegisterMachine
from weft.runtime.driver.shell_file import ShellFile
from weft.runtime.run_settings import RunSettings
from weft.runtime.samples import Samples
from weft.runtime.session import Session
from weft.support.errors import WeftError
from weft.tb.bench.simulated_shell import SimulatedShell, build_shell, watched
from weft.tb.shared import shared
from weft.tmodel.network import Network

DIGITS = Path(__file__).parents[2] / "models" / "digits"
TESTED_BYTES = 1 << 20
"""Of the memory: to try all of it would take most of the test's time."""
OTHER_START = 0.0001
"""How much of its cycles a network gains or loses at most, when refresh stands elsewhere as it starts."""
SECONDS = 7200.0
"""How long a program may take."""
SAMPLE_CYCLES = 40
"""The cycles between two samples."""
pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["ulx3s"])
def device(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Device]:
    with opened(request.param, tmp_path_factory.mktemp("shell")) as (_, device):
        yield device


@contextmanager
def opened(board: str, folder: Path, machine: str = "") -> Iterator[tuple[SimulatedShell, Device]]:
    """A board's shell whose memory was started and tried, and the device on it: the board's machine, or ``machine``."""
    arch = Arch.load(machine or BOARDS[board].arch)
    simulation, described = build_shell(board, arch, folder)
    shell = ShellFile.of(described)
    line = SimulatedShell(simulation, folder, shell.clock_hz)
    target = LinkTarget(line.transport(), shell_map(shell), SECONDS)
    target.take(shell)
    target.arch = arch
    with Device(target) as device:
        if shell.dram:
            controller = DramController(target.bridge, shell)
            assert not controller.started
            controller.start()
            assert controller.started
        for place in shell.places:
            check_memory(target.bridge, place.base, min(place.bytes, TESTED_BYTES))
        yield line, device
    assert target.bridge.strays == 0, "nothing went astray on a line without faults"


def origin_of(line: SimulatedShell, board: str, device: Device) -> Origin:
    """Where the memory stood when the last program was asked for, and where windows and program are."""
    state, memory = line.watch(), {}
    for name, _, bits in reversed(watched(board)):
        memory[name] = state & ((1 << bits) - 1)
        state >>= bits
    return Origin(places_of(device).machine("program"), memory=memory)


def places_of(device: Device) -> Places:
    assert isinstance(device.backend, RegisterMachine)
    return device.backend.places


def takes_what_is_estimated(board: str, model: Path, images: dict[str, np.ndarray], folder: Path) -> None:
    """Every output of every image is golden's and every image's cycles are estimated, on LiteDRAM's own Verilog, with
    host and refresh."""
    with opened(board, folder) as (line, device):
        arch = Arch.load(BOARDS[board].arch)
        report = compile_model(model, arch, folder, calibration=images, host_fallback=True)
        made = Network.load(report.model_path)
        device.load(made)
        expected = Session(made).run(images)
        (part,) = made.machines
        program, _ = moved(Isa(arch), part.program, places_of(device))
        for number in range(len(next(iter(images.values())))):
            line.watch()
            found = device.launch({name: each[number:number + 1] for name, each in images.items()}).result()
            for output, values in found.outputs.items():
                assert np.array_equal(values, expected.outputs[output][number:number + 1]), (number, output)
            expects = estimate(program, arch, BOARDS[board].dram, origin=origin_of(line, board, device)).cycles
            print(f"{model.stem} on {board}: {found.cycles} cycles, estimated {expects}")
            assert found.cycles == expects, number


@pytest.mark.parametrize("board", ["ulx3s", "colorlight_i9", "ecpix5"])
def test_the_estimate_is_what_the_shell_takes(board: str, tmp_path: Path) -> None:
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:3].astype(np.float32)
    takes_what_is_estimated(board, DIGITS / "digits.onnx", {"image": images}, tmp_path)


@pytest.mark.parametrize("network", ["mlperf_tiny_resnet8", "mlperf_tiny_vww_mobilenetv1_025"])
def test_the_estimate_of_larger_networks_is_what_the_shell_takes(network: str, tmp_path: Path) -> None:
    """Sums of branches, and depthwise convolutions."""
    with np.load(shared(f"models/{network}.npz")) as file:
        images = {"input": file["input"][:1]}
    takes_what_is_estimated("ulx3s", shared(f"models/{network}.onnx"), images, tmp_path)


def run_as_golden(device: Device, model: Path, name: str, images: np.ndarray, samples: np.ndarray,
                  folder: Path) -> Network:
    """Every output of every image is golden's; the network as it was compiled."""
    arch = device.target.arch
    assert arch
    report = compile_model(model, arch, folder, calibration={name: samples}, host_fallback=True)
    made = Network.load(report.model_path)
    device.load(made)
    expected = Session(made).run({name: images})
    for number in range(len(images)):
        found = device.launch({name: images[number:number + 1]}).result()
        for output, values in found.outputs.items():
            assert np.array_equal(values, expected.outputs[output][number:number + 1]), (number, output)
    assert device.counters.images == len(images) and device.counters.cycles
    return made


def test_two_cores_take_an_image_each(tmp_path: Path) -> None:
    """Pages of registers behind the bridge, one port on LiteDRAM, a batch over both cores and a rest of one image."""
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:3].astype(np.float32)
    with opened("ecpix5", tmp_path, "ecpix5_2x4") as (_, device):
        assert device.target.arch
        report = compile_model(DIGITS / "digits.onnx", device.target.arch, tmp_path, calibration={"image": images})
        made = Network.load(report.model_path)
        device.load(made)
        expected = Session(made).run({"image": images}).outputs
        found = device.run({"image": images})
        assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_samples_reach_the_host(device: Device, tmp_path: Path) -> None:
    """Every one of them, by the ring in the shell: what units did while the network's program ran."""
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:1].astype(np.float32)
    target = device.target
    assert target.arch and isinstance(target, LinkTarget)
    report = compile_model(DIGITS / "digits.onnx", target.arch, tmp_path, calibration={"image": images})
    made = Network.load(report.model_path)
    target.settings = RunSettings(sample_cycles=SAMPLE_CYCLES, tracepoint=3, timeout_cycles=0, dram0_cache=5)
    try:
        device.load(made)
        for _ in range(2):
            result = device.launch({"image": images}).result()
            expected = Session(made).run({"image": images}).outputs
            assert all(np.array_equal(result.outputs[name], expected[name]) for name in expected)
            words, = result.samples
            found = Samples.decode(words)
            assert result.cycles and abs(len(words) - result.cycles / SAMPLE_CYCLES) < 2
            assert (np.diff(found.program_counter) >= 0).all() and result.flags == ("tracepoint",)
            units = {row["unit"]: row["taken"] for row in found.units()}
            assert units["array"] > 0 and units["memory_port_a"] > 0.1
    finally:
        target.settings = RunSettings()


def test_digits_through_bridge_and_dram(device: Device, tmp_path: Path) -> None:
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:3].astype(np.float32)
    run_as_golden(device, DIGITS / "digits.onnx", "image", images, images, tmp_path)


def test_resnet20_through_bridge_and_dram(device: Device, tmp_path: Path) -> None:
    """Refresh, rows and one narrow chip cost something over ideal memories, and what is estimated. Where refresh stands
    when each image starts is not told to the estimate here."""
    samples = np.load(shared("models/resnet20_cifar10.npz"))["input"]
    made = run_as_golden(device, shared("models/resnet20_cifar10.onnx"), "input", samples[:1], samples, tmp_path)
    session = Session(made)
    ideal, found = (device.counters.images * sum(each.cycles for each in estimated(session, dram, no_progress)[0])
                    for dram in (EXPECTED, BOARDS["ulx3s"].dram))
    print(f"ResNet-20: {device.counters.cycles} cycles with LiteDRAM, {found} estimated, {ideal} with ideal memories")
    assert ideal < device.counters.cycles and abs(found - device.counters.cycles) < OTHER_START * found


def perceptron(path: Path, hidden: int) -> Path:
    """Digits of 64 points through ``hidden`` neurons, as ONNX."""
    random = np.random.default_rng(hidden)
    weights = {"w0": random.normal(0, 0.125, (64, hidden)), "w1": random.normal(0, hidden**-0.5, (hidden, 10))}
    nodes = [helper.make_node("Flatten", ["image"], ["points"]), helper.make_node("MatMul", ["points", "w0"], ["sums"]),
             helper.make_node("Relu", ["sums"], ["neurons"]), helper.make_node("MatMul", ["neurons", "w1"], ["digit"])]
    graph = helper.make_graph(
        nodes, "perceptron", [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 1, 8, 8])],
        [helper.make_tensor_value_info("digit", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_a_network_on_chip(tmp_path: Path) -> None:
    """All memory is the chip's own. The digits' network has a program too long for it."""
    with np.load(DIGITS / "held_out.npz") as file:
        images = file["image"][:8].astype(np.float32)
    with opened("tang_nano_20k", tmp_path) as (_, device):
        model = perceptron(tmp_path / "perceptron.onnx", 32)
        made = run_as_golden(device, model, "image", images[:2], images, tmp_path / "perceptron")
        ideal = sum(estimate(part.program, made.arch).cycles for part in made.machines)
        print(f"perceptron: {device.counters.cycles / 2} cycles an image, {ideal} with ideal memories")
        report = compile_model(DIGITS / "digits.onnx", made.arch, tmp_path / "digits", calibration={"image": images})
        with pytest.raises(WeftError, match=r"\(program \d+\); allowed: 32768 bytes of memory"):
            device.load(report.model_path)
