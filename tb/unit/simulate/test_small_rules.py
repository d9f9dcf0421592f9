# SPDX-License-Identifier: Apache-2.0
"""Small rules of the simulation, each without a simulator."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from weft.simulate import serve, simulation, toolchain
from weft.simulate.sim_top import weft_sim
from weft.simulate.toolchain import ToolchainError


@pytest.mark.parametrize("seed", [0, 7, None])
def test_a_run_has_the_seed_that_is_asked_for(seed: int | None, monkeypatch: pytest.MonkeyPatch,
                                              tmp_path: Path) -> None:
    """It is found in the environment of the test, and in the command that repeats the run."""
    environments: list[Any] = []
    monkeypatch.setattr(simulation, "run_group", lambda command, directory, log, extra, _: environments.append(extra))
    monkeypatch.setattr(simulation, "_failure", lambda *_: None)
    design: Any = SimpleNamespace(top="top", program="program", random_start=False, covered=False)
    result = simulation.run_simulation(design, "tests", directory=tmp_path, seed=seed)
    assert result.seed == seed or seed is None
    assert environments[0]["COCOTB_RANDOM_SEED"] == str(result.seed)
    assert f"COCOTB_RANDOM_SEED={result.seed}\n" in (tmp_path / "repeat.sh").read_text()


class Passed:
    """Something to wait for that has happened."""

    def __init__(self, *_: object) -> None:
        pass

    def __await__(self) -> Iterator[None]:
        yield from ()


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_machine_that_runs_tells_whether_its_interrupt_is_there(interrupt: bool,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("First", "RisingEdge", "Timer"):
        monkeypatch.setattr(serve, name, Passed)
    dut = SimpleNamespace(interrupt=SimpleNamespace(value=int(interrupt)), clk=None)
    assert asyncio.run(serve._run(dut, 10)) is interrupt


@pytest.mark.parametrize(("cores", "memory_ports", "shared", "memories"), [
    (1, 1, False, ["dram0", "dram1", "program"]), (1, 1, True, ["dram", "program"]), (2, 1, False, ["memory0"]),
    (4, 2, False, ["memory0", "memory1"])])
def test_a_core_alone_has_its_memories_apart_and_several_share_ports(cores: int, memory_ports: int, shared: bool,
                                                                     memories: list[str]) -> None:
    text = weft_sim(axi_data_width=64, axi_address_width=32, stream_width=64, shared_dram=shared, cores=cores,
                    memory_ports=memory_ports)
    assert re.findall(r"\) memory_(\w+) \(", text) == memories


def test_a_system_without_pythons_library_is_told_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.find_libpython, "find_libpython", lambda: None)
    with pytest.raises(ToolchainError, match=toolchain._LIBPYTHON_PACKAGE):
        toolchain.simulation_environment()
