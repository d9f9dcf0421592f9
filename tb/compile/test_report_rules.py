# SPDX-License-Identifier: Apache-2.0
"""Tests of reports and warnings of a compilation, each number at its last value and the next, and memory in files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.backend import report, write
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Load, Lookup, Rounding, Save
from weft.compiler.layers.var import Var
from weft.compiler.partition import BESIDE, HOST, MACHINE
from weft.compiler.quantize.ranges import BINADES, Calibration, Range
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES
from weft.tmodel.scales import TensorPoint, TensorScale
from weft.tmodel.window import Window

ARCH = Arch.load("tiny").replace(array_size=4)


@pytest.mark.parametrize("blocks", [0, 1, 3])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_windows_are_whole_blocks(blocks: int, more: int) -> None:
    """There are as few as hold the last vector."""
    end = blocks * DRAM_OFFSET_BYTES // ARCH.vector_bytes + more
    layout: Any = SimpleNamespace(dram0_end=max(end, 0))
    assert write._window_bytes(layout, ARCH) == (blocks + (more > 0)) * DRAM_OFFSET_BYTES


@pytest.mark.parametrize(("function", "low", "step", "largest", "told"), [
    ("Reciprocal", 1.0, 0.03, 1.0, True), ("Reciprocal", 1.0, 0.015, 1.0, False), ("Reciprocal", 1.0, 0.03, 2.0, False),
    ("Reciprocal", -1.0, 0.0199, 1.0, True), ("Reciprocal", -1.0, 0.0197, 1.0, False), ("Tanh", 0.0, 0.5, 1.0, False)])
def test_an_argument_is_too_coarse_where_half_a_step_changes_a_hundredth(function: str, low: float, step: float,
                                                                         largest: float, told: bool) -> None:
    """The functions may be infinite."""
    seen = Calibration({"x": Range(low, 9.0, ())}, {}, 1, False)
    found = write._coarse_argument("l", largest, Lookup(function, (), "x"), seen, step, 13)
    assert bool(found) == told


def held(step_log2: int) -> TensorPoint:
    return TensorPoint(ARCH.number, -step_log2)


@pytest.mark.parametrize(("mean", "error", "largest", "told"), [
    (16.0, 0.0, 4.0, 0), (15.9, 0.0, 4.0, 1), (0.0, 0.0, 4.0, 0), (16.0, 0.04, 4.0, 0), (16.0, 0.041, 4.0, 1),
    (15.9, 0.041, 4.0, 2), (16.0, 1.0, 0.0, 0), (16.0, None, 4.0, 0)])
def test_few_steps_and_errors_of_tables_are_told(mean: float, error: float | None, largest: float, told: int) -> None:
    row = {"name": "l", "range": [-largest, largest / 2], "table_error": error, "root_mean_square": mean / 8}
    assert len(write._poor_numbers(row, held(-3))) == told


@pytest.mark.parametrize(("mean", "told"), [(2.0, False), (1.9, True), (0.0, False)])
def test_few_steps_of_a_byte_are_told(mean: float, told: bool) -> None:
    row = {"name": "l", "range": [-1.0, 2.0], "root_mean_square": mean * 0.25}
    scale = TensorScale(0.25, 0)
    assert bool(write._poor_bytes(row, scale)) == told
    assert not write._poor_bytes(row, held(-2))


@pytest.mark.parametrize(("mine", "told"), [(50, False), (49, True), (0, True), (100, False)])
def test_less_than_half_of_the_work_is_told(mine: int, told: bool) -> None:
    """With the first node that is the host's for a reason of its own."""
    places = [SimpleNamespace(where=MACHINE, why="", node="a", operator="Conv"),
              SimpleNamespace(where=HOST, why=BESIDE, node="b", operator="Relu"),
              SimpleNamespace(where=HOST, why="what", node="c", operator="Cos")]
    partition: Any = SimpleNamespace(machine_share=mine / 100, places=places)
    found = write._share_warnings(partition)
    assert bool(found) == told and all("'c' (Cos): what" in each for each in found)


def test_constants_have_a_copy_where_there_is_one() -> None:
    consts: Any = SimpleNamespace(vectors=np.zeros((7, 4)))
    one, = write._const_files(consts, SimpleNamespace(copy=None), "f")  # type: ignore[arg-type]
    both = write._const_files(consts, SimpleNamespace(copy=SimpleNamespace(base=50)), "f")  # type: ignore[arg-type]
    assert (one.file_name, one.base, one.size) == ("f", 0, 7) and both[0] == one
    assert (both[1].file_name, both[1].base, both[1].size, both[1].memory) == ("f", 50, 7, "dram0")


# -- rows --------------------------------------------------------------------------------------------------------------
def seen(*beyond: int) -> Range:
    """Return a range with so many values of 1, 2, 4, ... and more."""
    return Range(-1.23456789, 2.5, tuple([9] * 40 + [*beyond] + [0] * (len(BINADES) - 40 - len(beyond))), 2, 8.0)


@pytest.mark.parametrize(("limited", "narrowed", "saturated", "meant"), [
    ((), False, 10, None), ((), True, 10, report.BY_RANGES), (("a",), False, 3, report.ON_PURPOSE),
    (("b",), True, 7, report.ON_PURPOSE), (("a", "b"), False, 0, report.ON_PURPOSE),
    (("r",), False, 10, report.ON_PURPOSE), (("x",), False, 10, None)])
def test_a_row_counts_what_saturates_in_all_that_a_layer_saves(limited: tuple[str, ...], narrowed: bool,
                                                               saturated: int, meant: str | None,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first save 7 values are beyond 4, of the second 3 beyond 2; those that may are told apart."""
    a, b, x, r = (Var(name, 4, 2, 3) for name in "abxr")
    layer = Layer("l", Convolution(x, "w", "v", 2, Window(), (2, 3), 99), (Save(a, before_pool=True), Save(b)),
                  rounding=Rounding(r))
    calibration = Calibration({"a": seen(9, 8, 7), "b": seen(4, 3, 0)}, {}, 1, False)
    numbers: Any = SimpleNamespace(limited=frozenset(limited), table_errors={"b": 0.5}, row=lambda *_: {"points": 1},
                                   tensor=lambda root, arch: SimpleNamespace(exponent={"a": 2, "b": 1}[root]))
    tiling = SimpleNamespace(to_json=lambda: "tiling")
    plan = SimpleNamespace(tiling=tiling, cost=12.4, runner_up=13.6)
    layout: Any = SimpleNamespace(shapes=[SimpleNamespace(streamed_outputs=())], plans=[plan])
    monkeypatch.setattr(report, "traffic", lambda *_: SimpleNamespace(array=5, dram0=6, dram1=7))
    row, = report.layer_table([layer], numbers, calibration, layout, [31], [32], [33], narrowed, ARCH)
    assert row == {
        "name": "l", "kind": layer.kind, "macs": 99, "done_macs": 33, "instructions": 31, "after": [], "group": 2,
        "input": [4, 2, 3], "output": [4, 2, 3], "range": [-1.23457, 2.5], "points": 1, "root_mean_square": 2.0,
        "table_error": 0.5, "saturated": saturated, "saturates": meant, "resident": True, "tiling": "tiling",
        "modelled_vectors": {"array": 5, "dram0": 6, "dram1": 7}, "array_vectors": 32, "cost": 12, "runner_up_cost": 14}
    loads = Layer("l", Load(x), (Save(b),))
    plan.runner_up, layout.shapes[0].streamed_outputs = None, (b,)
    row, = report.layer_table([loads], numbers, calibration, layout, [31], [32], [33], narrowed, ARCH)
    assert (row["group"], row["macs"], row["runner_up_cost"], row["resident"]) == (1, 0, None, False)
