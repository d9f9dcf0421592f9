# SPDX-License-Identifier: Apache-2.0
"""A driver on a board starts fast: the runtime comes without the compiler's and the hardware's libraries."""

import json
import subprocess
import sys

import pytest

BAR_MILLISECONDS = 150
HEAVY = {"onnx", "onnxruntime", "amaranth", "numba", "cocotb", "rich", "typer", "weft.compiler", "weft.hw.core"}
PROBE = """
import json, sys, time
began = time.process_time()
{statement}
print(json.dumps([1000 * (time.process_time() - began), sorted(sys.modules)]))
"""
EVERYTHING = "from weft.runtime import GOLDEN, RTL, Device, Mismatch, ModelError, Network, RunResult, Session, TModel"


def imported(statement: str) -> tuple[float, set[str]]:
    """Milliseconds of processor time that it takes, the best of three; and all modules that are there."""
    found = []
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", PROBE.format(statement=statement)], capture_output=True, text=True,
                              check=True)
        found.append(json.loads(done.stdout))
    return min(milliseconds for milliseconds, _ in found), set(found[0][1])


def test_the_package_alone_is_there_at_once() -> None:
    milliseconds, modules = imported("import weft.runtime")
    assert not modules & {*HEAVY, "numpy"}
    assert milliseconds < BAR_MILLISECONDS / 2


def test_the_whole_package_is_there_at_once() -> None:
    _, modules = imported("import weft")
    assert not modules & {*HEAVY, "numpy"}


@pytest.mark.parametrize("statement", ["import weft.backend", "from weft import backend", "import weft; weft.backend"])
def test_the_onnx_backend_is_a_module(statement: str) -> None:
    """Which is as light as the package until one of its names is asked for."""
    _, modules = imported(statement)
    assert "weft.backend" in modules and not modules & {*HEAVY, "numpy"}
    _, modules = imported("import weft.backend; weft.backend.prepare, weft.backend.run_model")
    assert "onnx" in modules


def test_all_of_it_is_light() -> None:
    """On a quiet machine numpy takes half of the bar, or more. On a busy one both take longer."""
    numpy, _ = imported("import numpy")
    milliseconds, modules = imported(EVERYTHING)
    print(f"\nnumpy {numpy:.0f} ms, all of weft.runtime {milliseconds:.0f} ms")
    assert not modules & HEAVY
    assert milliseconds < max(BAR_MILLISECONDS, 3.5 * numpy)


def test_what_begins_a_simulation_in_pieces_is_light() -> None:
    """Nothing is simulated yet meanwhile. Estimates come later, and a simulator that is built needs no generator."""
    _, modules = imported("import weft.simulate.rtl, weft.runtime.piecewise; from weft.cli.in_pieces import in_pieces; "
                          "from weft.hw.contract.arch import Arch; in_pieces(2, Arch.load('pynq'))")
    assert "weft.cycles.shares" in modules
    assert not modules & {"amaranth", "numba", "onnx", "weft.hw.core"}


def test_the_check_sees_heavy_libraries() -> None:
    _, modules = imported("import weft.tmodel.onnx_engine")
    assert {"onnx", "onnxruntime"} <= modules & HEAVY


def test_every_public_name_is_there() -> None:
    import weft.runtime

    for name in weft.runtime.__all__:
        assert getattr(weft.runtime, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        weft.runtime.nonsense  # noqa: B018
