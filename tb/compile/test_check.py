# SPDX-License-Identifier: Apache-2.0
"""``weft compile --check``: nothing differs where all is well; a step broken on purpose is the one that is named."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from weft.cli.main import exit_code
from weft.compiler import lir, pipeline
from weft.compiler.backend.encode import MachineCode
from weft.compiler.check.checker import Checker
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.layers.hir import Layers
from weft.compiler.lir_table import LirTable
from weft.compiler.memory.plan import MemoryPlan
from weft.compiler.parameters import Parameters
from weft.compiler.partition import Partition
from weft.compiler.passes import fold
from weft.compiler.pipeline import compile_model
from weft.compiler.products import Step
from weft.compiler.quantize.consts import Consts
from weft.compiler.quantize.points import FixedPointParams
from weft.compiler.scheduler.schedule import Schedule
from weft.hw.contract.arch import Arch
from weft.support.errors import Mismatch
from weft.tb.compile.onnx_nodes import ARCH
from weft.tb.compile.run_model import BASE, ModelMaker

SHAPE = (1, 6, 9, 8)
POINTED = pipeline.steps_of(Parameters.OWN_POINT)


# -- networks that together have every operation of a layer ------------------------------------------------------------
def residual(maker: ModelMaker) -> None:
    name = maker.node("Relu", maker.conv("x", 6, 6, (3, 3), pads=(1, 1, 1, 1)))
    other = maker.node("BatchNormalization", maker.conv(name, 6, 6, (3, 3), pads=(1, 1, 1, 1), group=3),
                       *(maker.constant(np.abs(maker.random.standard_normal(6)).astype(np.float32) + 0.5)
                         for _ in range(4)))
    name = maker.node("Relu", maker.node("Add", other, name))
    maker.conv(maker.node("MaxPool", name, kernel_shape=(3, 3), pads=(1, 1, 0, 0), strides=(2, 2)), 6, 9, (2, 2))


def activations(maker: ModelMaker) -> None:
    name = maker.node("LeakyRelu", maker.conv("x", 6, 5, (3, 3)), alpha=0.1)
    name = maker.node("Mul", maker.node("Sigmoid", name), name)
    maker.node("Clip", maker.node("Tanh", name), maker.constant(np.float32(0)), maker.constant(np.float32(0.6)))


def parts(maker: ModelMaker) -> None:
    """Concat, Split and Resize: tensors inside others."""
    name = maker.node("Concat", maker.conv("x", 6, 5, (1, 1)), maker.node("Relu", "x"), axis=1)
    large = maker.node("Resize", name, "", maker.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear")
    maker.conv(maker.node("Slice", large, maker.constant(np.array([2])), maker.constant(np.array([10])),
                          maker.constant(np.array([1]))), 8, 4, (2, 2), strides=(2, 2))


def run(network: Callable[[ModelMaker], object], arch: Arch, folder: Path, shape: tuple[int, ...] = SHAPE,
        plain: bool = False) -> Checker:
    maker = ModelMaker(shape)
    network(maker)
    path = maker.save(folder / "net.onnx")
    samples = maker.random.standard_normal((2, *(shape if shape[0] > 1 else shape[1:]))).astype(np.float32)
    checker = Checker()
    compile_model(path, arch, folder, calibration={"x": samples}, plain=plain, watch=checker.after)
    return checker


@pytest.mark.parametrize("arch", [
    ARCH, ARCH.replace(local_depth=384, accumulator_depth=48, lut_depth=64), ARCH.replace(array_size=3)],
    ids=["roomy", "small", "3 lanes"])
@pytest.mark.parametrize("network", [residual, activations, parts], ids=lambda network: network.__name__)
def test_nothing_changes_the_result(network: Callable[[ModelMaker], None], arch: Arch, tmp_path: Path) -> None:
    checker = run(network, arch, tmp_path)
    checker.insist()
    assert [verdict.step for verdict in checker.verdicts] == [step.name for step in POINTED]
    rounded, = (verdict for verdict in checker.verdicts if verdict.step == "points")
    assert rounded.decibels is not None and rounded.decibels > 45
    after = checker.verdicts[checker.verdicts.index(rounded) + 1:]
    assert after and all(verdict.least is None and verdict.decibels is None for verdict in after)


def test_a_batch(tmp_path: Path) -> None:
    run(residual, ARCH, tmp_path, (3, *SHAPE[1:])).insist()


def test_an_opset_newer_than_onnxruntime(tmp_path: Path) -> None:
    """ONNX's own evaluator runs the graphs before the compiler has written them in its own opset."""
    maker = ModelMaker(SHAPE, opset=onnx.defs.onnx_opset_version())
    maker.node("ArgMax", maker.node("Flatten", maker.conv("x", 6, 5, (9, 8))), axis=1)
    checker = Checker()
    compile_model(maker.save(tmp_path / "net.onnx"), BASE, tmp_path, host_fallback=True, watch=checker.after)
    checker.insist()


def test_zeros_before_a_pool_of_negatives(tmp_path: Path) -> None:
    """onnxruntime's own optimizer gets this one wrong (seed 439 of the machine ``lanes12`` of random networks)."""
    def padded(maker: ModelMaker) -> None:
        negative = maker.node("Neg", maker.node("Abs", "x"))
        zeros = maker.node("Pad", negative, maker.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1])))
        maker.node("MaxPool", zeros, kernel_shape=(3, 3), strides=(2, 2))

    run(padded, ARCH, tmp_path).insist()


def test_a_value_table_may_lose_more_than_rounding(tmp_path: Path) -> None:
    def curve(maker: ModelMaker) -> None:
        maker.node("Tanh", maker.conv("x", 6, 5, (3, 3)))

    allowed = {}
    for entries in (64, 2):
        checker = run(curve, ARCH.replace(lut_depth=entries), tmp_path)
        rounded, = (verdict for verdict in checker.verdicts if verdict.step == "points")
        allowed[entries] = rounded.allowed, bool(rounded.problem)
    assert allowed == {64: ("20 dB", False), 2: ("20 dB", True)}, "a table that is too small is named"


@pytest.mark.parametrize(("outlier", "problem"), [(3.0, False), (3000.0, True)])
def test_bytes_that_hold_nothing_are_named(outlier: float, problem: bool, tmp_path: Path) -> None:
    """A network of real numbers in eight bits: one calibration value leaves the others a step or two."""
    maker = ModelMaker(SHAPE)
    maker.conv("x", 6, 5, (3, 3))
    samples = maker.random.standard_normal((2, *SHAPE[1:])).astype(np.float32)
    samples[1, 0, 0, 0] = outlier
    checker = Checker()
    compile_model(maker.save(tmp_path / "net.onnx"), BASE.replace(data_type="INT8"), tmp_path,
                  calibration={"x": samples}, watch=checker.after)
    rounded, = (verdict for verdict in checker.verdicts if verdict.step == "scales")
    assert (rounded.allowed, bool(rounded.problem)) == ("10 dB", problem)


def test_plain_points_may_lose_anything(tmp_path: Path) -> None:
    checker = run(residual, ARCH, tmp_path, plain=True)
    checker.insist()
    assert "anything" in {verdict.allowed for verdict in checker.verdicts}


def test_a_machine_that_rounds_every_step(tmp_path: Path) -> None:
    """The order of its sums is the schedule's: near there, equal after it."""
    checker = run(lambda maker: maker.conv(maker.node("Relu", maker.conv("x", 6, 5, (3, 3))), 5, 4, (1, 1)),
                  ARCH.replace(mac_rounding="every_step"), tmp_path)
    checker.insist()
    allowed = {verdict.step: verdict.allowed for verdict in checker.verdicts}
    assert (allowed["points"], allowed["memory"], allowed["schedule"]) == ("anything", "equal", "32 dB")
    assert allowed["backend"] == "equal" and checker.verdicts[-1].decibels is None


# -- steps broken on purpose -------------------------------------------------------------------------------------------
def nudge_weights(graph: Graph) -> Graph:
    """The first constant of two or more dimensions is one percent too large."""
    constants = dict(graph.constants)
    name = next(name for name, value in constants.items() if value.ndim == 4)
    constants[name] = (constants[name] * 1.01).astype(np.float32)
    return graph.replace(constants=constants)


def nudge_what_is_left(partition: Partition) -> Partition:
    return dataclasses.replace(partition, parts=tuple(map(nudge_weights, partition.graphs)))


def forget_relu(layers: Layers) -> Layers:
    first, *rest = layers
    kept = tuple(dataclasses.replace(save, relu=False) for save in first.saves)
    return Layers((dataclasses.replace(first, saves=kept), *rest))


def shift_too_far(points: FixedPointParams) -> FixedPointParams:
    first, *rest = points.layers
    return dataclasses.replace(points, layers=(
        dataclasses.replace(first, output_shifts=(first.output_shift + 1,)), *rest))


def spoil_a_vector(consts: Consts) -> Consts:
    vectors = consts.vectors.copy()
    vectors[3] += 1
    return dataclasses.replace(consts, vectors=vectors)


def place_on_each_other(layout: MemoryPlan) -> MemoryPlan:
    local = {name: dataclasses.replace(place, base=0) for name, place in layout.local.items()}
    assert len(local) > 1
    return dataclasses.replace(layout, local=local)


def drop_a_tap(schedule: Schedule) -> Schedule:
    operations = list(schedule.operations)
    taps = [number for number, entry in enumerate(operations) if isinstance(entry, lir.MatMul) and entry.accumulate]
    del operations[taps[0]]
    return dataclasses.replace(schedule, table=LirTable.of(operations))


def stop_early(code: MachineCode) -> MachineCode:
    return dataclasses.replace(code, content=code.content[:len(code.content) // 2 // 9 * 9])


BREAKS: dict[str, Callable[[Any], Any]] = {
    "frontend": nudge_weights, "partition": nudge_what_is_left, "pool_parts": nudge_weights,
    "normalise": nudge_weights, "fold_channelwise": nudge_weights, "order": nudge_weights, "layers": forget_relu,
    "points": shift_too_far, "consts": spoil_a_vector, "memory": place_on_each_other, "schedule": drop_a_tap,
    "backend": stop_early,
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_broken_step_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(step: Step) -> Step:
        @functools.wraps(step.function)
        def function(*needed: Any) -> Any:
            return BREAKS[name](step.function(*needed))
        return dataclasses.replace(step, function=function)

    monkeypatch.setattr(pipeline, "STEPS", tuple(broken(step) if step.name == name else step
                                                 for step in pipeline.STEPS))
    with pytest.raises(Mismatch, match=f"step '{name}' changes the result"):
        run(residual, BASE, tmp_path).insist()


def forgetful_merge(conv: Node, scaling: Node, constants: dict[str, np.ndarray]) -> Node:
    """Folds a scale, and loses the shift."""
    merged = MERGE(conv, scaling, constants)
    constants[merged.input(2)] = np.zeros_like(constants[merged.input(2)])
    return merged


MERGE = fold._merge


def test_a_pass_that_is_wrong_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold, "_merge", forgetful_merge)
    with pytest.raises(Mismatch, match="step 'fold_channelwise' changes the result: output .* differs in"):
        run(residual, BASE, tmp_path).insist()


# -- the command -------------------------------------------------------------------------------------------------------
def command(tmp_path: Path, *options: str) -> int:
    maker = ModelMaker(SHAPE)
    residual(maker)
    path = maker.save(tmp_path / "net.onnx")
    return exit_code(["compile", str(path), "-a", "arty", "-o", str(tmp_path), "--check", *options])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(tmp_path) == 0
    text = capsys.readouterr().out
    assert all(step.name in text for step in POINTED) and "DIFFERS" not in text


def test_json_and_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                            monkeypatch: pytest.MonkeyPatch) -> None:
    assert command(tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["check"]["first_difference"] is None and len(found["check"]["steps"]) == len(POINTED)
    monkeypatch.setattr(fold, "_merge", forgetful_merge)
    assert command(tmp_path, "--json") == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["check"]["first_difference"] == "fold_channelwise"
    assert "step 'fold_channelwise' changes the result" in said.err and "Traceback" not in said.err
