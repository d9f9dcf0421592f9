# SPDX-License-Identifier: Apache-2.0
"""Taps that only see padding are cut off: the same results from smaller kernels, and fewer stored weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_writer import to_onnx
from weft.compiler.frontend.reader import read_model
from weft.compiler.indices.index import feed
from weft.compiler.passes.dead_taps import drop_dead_taps
from weft.compiler.passes.normalise import normalise
from weft.tb.compile.run_model import BASE, ModelMaker, check_model
from weft.tmodel.onnx_engine import run_model

CASES: dict[str, tuple[tuple[int, int], tuple[int, int], dict[str, Any], tuple[int, int]]] = {
    "one pixel": ((1, 1), (3, 3), {"pads": (1, 1, 1, 1)}, (1, 1)),
    "one row": ((1, 6), (3, 3), {"pads": (1, 1, 1, 1)}, (1, 3)),
    "stride": ((2, 2), (3, 3), {"pads": (1, 1, 1, 1), "strides": (2, 2)}, (2, 2)),
    "dilation": ((2, 5), (3, 2), {"pads": (2, 0, 2, 0), "dilations": (2, 1)}, (1, 2)),
    "groups": ((1, 3), (5, 5), {"pads": (2, 2, 2, 2), "group": 6}, (1, 5)),
    "the last ones": ((1, 4), (4, 1), {"pads": (0, 0, 3, 0)}, (1, 1)),
    "live between": ((2, 4), (3, 1), {"pads": (2, 0, 2, 0), "dilations": (2, 1), "strides": (2, 1)}, (1, 1)),
    "all are live": ((3, 3), (3, 3), {"pads": (1, 1, 1, 1)}, (3, 3)),
    "pads too small": ((2, 1), (2, 1), {"pads": (1, 0, 1, 0), "dilations": (2, 1), "strides": (2, 1)}, (2, 1)),
}
"""Rows and columns of the image, kernel, attributes, and the kernel that is left."""


def network(case: str, path: Path) -> Path:
    """Save a convolution and return its file."""
    size, kernel, attributes, _ = CASES[case]
    maker = ModelMaker((1, 6, *size))
    maker.conv("x", 6, 6, kernel, **attributes)
    return maker.save(path / "net.onnx")


def convolution(graph: Graph) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the kernel of a graph's convolution, and the same as its weights have it."""
    node, = (node for node in graph.nodes if node.op == "Conv")
    return tuple(node.attributes["kernel_shape"]), graph.constants[node.input(1)].shape[2:]


@pytest.mark.parametrize("case", CASES)
def test_same_results_from_the_live_taps(case: str, tmp_path: Path) -> None:
    before = normalise(read_model(network(case, tmp_path)), 8)
    after = drop_dead_taps(before)
    sample = {"x": np.random.default_rng(1).standard_normal((1, 6, *CASES[case][0])).astype(np.float32)}
    results = [run_model(to_onnx(graph), feed(graph, sample)) for graph in (before, after)]
    for name, value in results[0].items():
        np.testing.assert_allclose(results[1][name], value, rtol=1e-5, atol=1e-5)
    assert convolution(after) == (CASES[case][3], CASES[case][3])


@pytest.mark.parametrize("case", ["one pixel", "stride", "groups"])
def test_on_the_machine(case: str, tmp_path: Path) -> None:
    path = network(case, tmp_path)
    samples = np.random.default_rng(2).standard_normal((2, 6, *CASES[case][0])).astype(np.float32)
    check_model(path, BASE, samples, 50)
