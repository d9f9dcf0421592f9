# SPDX-License-Identifier: Apache-2.0
"""Small rules of the page, each without a program: what rows of a file may say, lanes, names, templates."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.cycles.program import WORK
from weft.hw.contract.units import UNIT_NAMES, Memory
from weft.report import collect, live, operations, page, picture, texts


@pytest.mark.parametrize(("value", "kept"), [
    ([1, 2], [1, 2]), ([0, 2], []), ([-1], []), ([True], []), ([1.0], []), ([], []), ("12", []), (None, [])])
def test_sizes_are_whole_and_above_zero(value: Any, kept: list[int]) -> None:
    assert collect._shape(value) == kept


@pytest.mark.parametrize(("value", "kept"), [
    (1, True), (-0.5, True), (0, True), (True, False), (float("nan"), False), (float("inf"), False), ("1", False)])
def test_numbers_are_finite_and_no_truths(value: Any, kept: bool) -> None:
    assert collect._number(value) is (value if kept else None)


@pytest.mark.parametrize(("values", "below", "kept"), [
    ([0, 1], 2, True), ([2], 2, False), ([-1], 2, False), ([], 2, True), ([0.0], 2, False), (None, 2, False)])
def test_a_layer_reads_earlier_ones(values: Any, below: int, kept: bool) -> None:
    assert picture._numbers(values, below) == (values if kept else None)


@pytest.mark.parametrize(("channels", "group", "used"), [
    (8, 1, 8.0), (12, 1, 6.0), (20, 1, 6.7), (3, 1, 3.0), (16, 4, 4.0), (40, 2, 6.7), (4, 4, 1.0)])
def test_tiles_are_filled_on_average(channels: int, group: int, used: float) -> None:
    """Of 8 lanes: 12 channels are two tiles of 6, and groups are blocks of their own."""
    row = {"macs": 1, "input": [channels, 2, 2], "output": [channels, 2, 2], "group": group}
    assert collect.lanes_used(row, 8) == {"rows": used, "columns": used, "group": group}


def test_bytes_of_a_layer_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each DRAM unit; an operation of no known layer counts nowhere."""
    unit = next(name for name in UNIT_NAMES if name.startswith("dram"))
    arch = SimpleNamespace(vector_bytes=4)
    work = np.array([(UNIT_NAMES.index(unit), 5, 3), (UNIT_NAMES.index(unit), 2, 1), (UNIT_NAMES.index(unit), 9, 1)],
                    [("unit", "i4"), ("size", "i4"), ("rows", "i4")])
    ran: Any = SimpleNamespace(model=SimpleNamespace(arch=arch), work=work, layers=np.array([1, 0, -1]))
    monkeypatch.setattr(collect, "dram_units", lambda arch: (unit,))
    assert collect._moved(ran, 2) == [{unit: 8}, {unit: 60}]


def test_a_long_name_keeps_both_ends() -> None:
    long = "".join(chr(ord("a") + number % 26) for number in range(200))
    shown = texts.shown(long)
    head, tail = shown.split("…")
    assert len(shown) == texts.LONGEST and long.startswith(head) and long.endswith(tail)
    assert abs(len(head) - len(tail)) <= 1


def test_names_within_inserted_text_are_not_replaced() -> None:
    assert page._filled("<@A@>-@B@-", {"A": "@B@", "B": "b@A@"}) == "<@B@>-b@A@-"
    with pytest.raises(KeyError):
        page._filled("@C@", {"A": ""})


def test_weights_are_taken_over_behind_the_first_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last of five sums leaves in cycle 40; its vector was asked for in 30, the first one in 26."""
    monkeypatch.setattr(operations, "product_latency", lambda arch: 10)
    monkeypatch.setattr(operations, "passed_vectors", lambda work: work["size"])
    work = np.array([(1, 5), (0, 7), (1, 1), (1, 4)], [("swap", "i4"), ("size", "i4")])
    ended = np.array([(40,), (60,), (80,), (operations.NEVER,)], [("finish_cycle", "i8")])
    ran: Any = SimpleNamespace(model=SimpleNamespace(arch=None), work=work, operations=ended)
    assert operations.Ran._swaps.func(ran).tolist() == [27, 71, 0]  # type: ignore[attr-defined]


def test_outputs_count_where_nothing_ran() -> None:
    """A program that stopped at once leaves what lies at the outputs' places, to their last vector."""
    nothing = np.zeros(0, np.int64)
    model = SimpleNamespace(outputs=[SimpleNamespace(base=5, size=3)])
    ran: Any = SimpleNamespace(work=np.zeros(0, WORK), spans=(nothing, nothing), cycles=600, model=model)
    found, depth = live._live(ran, Memory.DRAM0, 1.0)
    assert depth == 8 and found[:600] == [3] * 600
    assert live._live(ran, Memory.LOCAL, 1.0) == ([0] * live.SAMPLES, 0)
