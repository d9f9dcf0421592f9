# SPDX-License-Identifier: Apache-2.0
"""One image over several cores of the simulated hardware: each word that golden and one core leave, and each cycle that
``weft estimate`` tells."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.compiler.cores import AUTO, SPLIT
from weft.compiler.pipeline import compile_model
from weft.cycles.replay import estimate
from weft.cycles.system import estimate_system
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.runtime.session import RTL, Session
from weft.tb.compile.test_batch import alone
from weft.tmodel.network import Network

pytestmark = [pytest.mark.slow, pytest.mark.wide]

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
TWO = Arch.load("arty").replace(array_size=4, local_depth=2048, accumulator_depth=512, dram_ports=SHARED, sampler=0,
                                stream_width=64, cores=2, memory_ports=2, sync_counters=2)
"""Small cores, each with a port."""


def test_a_trained_network_on_two_cores(tmp_path: Path) -> None:
    """Both cores together are sooner done with an image than one alone."""
    images = np.random.default_rng(3).random((2, 1, 8, 8)).astype(np.float32)
    session, one = (Session(Network.load(compile_model(DIGITS, arch, tmp_path / cores, host_fallback=True,
                                                       cores=cores).model_path))
                    for cores, arch in ((SPLIT, TWO), (AUTO, alone(TWO.replace(sync_counters=0)))))
    name = session.network.signature.inputs[0].name
    found = session.run({name: images}, on=RTL)
    assert found.comparison is not None
    found.comparison.insist()
    expected = one.run({name: images})
    assert all(np.array_equal(found.outputs[output], values) for output, values in expected.outputs.items())
    machine, = session.machines
    cycles = estimate_system([*machine.model.programs], TWO).cycles
    assert found.cycles == 2 * cycles
    assert cycles < 0.75 * estimate(one.machines[0].model.program, one.arch).cycles
