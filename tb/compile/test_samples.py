# SPDX-License-Identifier: Apache-2.0
"""The inputs that calibrate where none are given, and those that a network cannot take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.pipeline import compile_model
from weft.compiler.quantize.samples import FEWEST_RANDOM, RANDOM_SAMPLES, choose_samples
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tb.compile.test_dynamic import normal, saved


def two_tables(path: Path) -> Path:
    """Two rows of integers in one input, each with a table of its own."""
    nodes = [helper.make_node("Split", ["x"], ["a", "b"], axis=1),
             helper.make_node("Gather", ["few", "a"], ["c"]), helper.make_node("Gather", ["many", "b"], ["d"]),
             helper.make_node("Concat", ["c", "d"], ["e"], axis=3), helper.make_node("MatMul", ["e", "v"], ["y"])]
    return saved(path, nodes, [1, 2, 4], TensorProto.INT64, rank=4, few=normal(20, 8), many=normal(30, 8),
                 v=normal(16, 3))


def test_random_integers_fit_the_tables_that_they_choose_from(tmp_path: Path) -> None:
    drawn = choose_samples(read_model(two_tables(tmp_path / "rows.onnx")), None).arrays["x"]
    assert 0 <= drawn.min() < drawn.max() < 20


def test_inputs_that_the_network_cannot_take_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="calibration inputs: found .*out of data bounds"):
        compile_model(two_tables(tmp_path / "rows.onnx"), BASE, tmp_path, host_fallback=True,
                      calibration={"x": np.full((2, 2, 4), 25)})


@pytest.mark.parametrize(("size", "count"), [(8, RANDOM_SAMPLES), (1 << 14, FEWEST_RANDOM)])
def test_a_network_of_much_work_has_fewer_random_inputs(size: int, count: int, tmp_path: Path) -> None:
    """16384 rows of 64 numbers by 64 columns, a hundred times, are 7 thousand million multiply-accumulates."""
    maker = ModelMaker((1, size, 64))
    name, weights = "x", maker.normal(64, 64)
    for _ in range(100):
        name = maker.node("MatMul", name, weights)
    graph = read_model(maker.save(tmp_path / "deep.onnx"))
    assert len(choose_samples(graph, None).arrays["x"]) == count
