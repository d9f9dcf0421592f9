# SPDX-License-Identifier: Apache-2.0
"""A small network of several kinds of layers, compiled once, with what the estimator says of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from weft.cli.reporting import write_page
from weft.compiler.backend.report import CompileReport
from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.report.operations import Ran
from weft.runtime.devices import no_progress
from weft.tb.compile.run_model import BASE, ModelMaker
from weft.tmodel.host_part import HostPart
from weft.tmodel.manifest import TModel
from weft.tmodel.network import Network

HOSTILE = ('</script><script>document.title = "mine"</script>', '"><img src=x onerror="document.title=`mine`">',
           "\u2028${alert(1)}\u202e'\\", "<!--<script>", "%{customdata} <b>bold</b> &lt;", "x" * 4000,
           '<a href="javascript:document.title=`mine`">&#60;b&#62;\\u003cscript\\u003e@DATA@')
"""Names that would run, break out of their place, turn the text around, or fill the page."""


def small_network(folder: Path) -> tuple[Path, np.ndarray]:
    """Two convolutions and what joins them, a layer that reads one far above it, and a Softmax on the host."""
    maker = ModelMaker((1, 3, 9, 8))
    first = maker.node("Relu", maker.conv("x", 3, 8, (3, 3), pads=(1, 1, 1, 1)))
    second = maker.node("Relu", maker.conv(first, 8, 8, (3, 3), pads=(1, 1, 1, 1)))
    both = maker.node("Add", maker.conv(second, 8, 8, (1, 1)), first)
    maker.node("Softmax", maker.node("Flatten", maker.conv(both, 8, 3, (9, 8))), axis=1)
    return maker.save(folder / "net.onnx"), maker.random.standard_normal((2, 3, 9, 8)).astype(np.float32)


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> CompileReport:
    folder = tmp_path_factory.mktemp("report")
    path, samples = small_network(folder)
    return compile_model(path, BASE, folder, calibration={"x": samples}, host_fallback=True)


@pytest.fixture(scope="session")
def network(compiled: CompileReport) -> Network:
    return Network.load(compiled.model_path)


@pytest.fixture(scope="session")
def ran(network: Network) -> Ran:
    model, = network.machines
    found = estimate(model.program, model.arch)
    return Ran(model, model.program, found.cycles, found.operations)


@pytest.fixture(scope="session")
def hostile(network: Network) -> Network:
    """The same network, whose layers and host's nodes bear hostile names."""
    def renamed(part: TModel | HostPart) -> TModel | HostPart:
        if isinstance(part, HostPart):
            return dataclasses.replace(part, nodes=HOSTILE[:len(part.nodes)])
        rows = tuple({**row, "name": HOSTILE[number % len(HOSTILE)], "kind": HOSTILE[(number + 3) % len(HOSTILE)]}
                     for number, row in enumerate(part.layers))
        return dataclasses.replace(part, layers=rows)

    return dataclasses.replace(network, name=HOSTILE[0], parts=tuple(map(renamed, network.parts)))


@pytest.fixture(scope="session")
def made() -> Callable[[Network, Path], Path]:
    """Writes a network's page into a folder."""
    def make(network: Network, folder: Path) -> Path:
        write_page(network, folder / "page.html", no_progress)
        return folder / "page.html"

    return make
