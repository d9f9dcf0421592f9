# SPDX-License-Identifier: Apache-2.0
"""Equal cores are one module of the Verilog, and a core that differs keeps its own.

``tb/system`` simulates this Verilog and compares all that the machine computes."""

from __future__ import annotations

import re

import pytest
from amaranth.back import rtlil

from weft.hw.flow.one_core import SYSTEM, share_core
from weft.hw.system import with_ports
from weft.tb.random.lockstep_archs import lockstep_archs

CORES = 3


@pytest.fixture(scope="module")
def text() -> str:
    """The RTLIL of a system as Amaranth writes it."""
    module, ports = with_ports(lockstep_archs()["lanes2"].replace(cores=CORES, dram_ports="shared"))
    return str(rtlil.convert(module, name="weft_top", ports=ports, emit_src=False))


def modules(text: str, core: int) -> set[str]:
    return set(re.findall(rf"^module \\({re.escape(SYSTEM)}\.core{core}(?:\.\S+)?)$", text, re.MULTILINE))


def instances(text: str) -> list[int]:
    """Return the core whose module each of the system's cores is."""
    system = next(part for part in text.split("\nmodule ") if part.startswith(f"\\{SYSTEM}\n"))
    return [int(number) for number in re.findall(rf"^  cell \\{re.escape(SYSTEM)}\.core(\d+) ", system, re.MULTILINE)]


def test_all_equal_cores_are_one_module(text: str) -> None:
    assert len(modules(text, 0)) == len(modules(text, 2)) > 10
    shared = share_core(text, CORES)
    assert modules(shared, 0) == modules(text, 0)
    assert not modules(shared, 1) | modules(shared, 2)
    assert instances(text) == [0, 1, 2] and instances(shared) == [0, 0, 0]


def test_each_instance_keeps_what_it_is_joined_to(text: str) -> None:
    """The ports of a core have other names, and the same signals behind them."""
    def joined(text: str) -> list[list[str]]:
        cells = re.findall(rf"^  cell \\{re.escape(SYSTEM)}\.core\d+ .*?^  end\n", text, re.MULTILINE | re.DOTALL)
        return [re.findall(r"^    connect \S+ (.*)$", cell, re.MULTILINE) for cell in cells]
    assert joined(share_core(text, CORES)) == joined(text)


def test_a_core_that_differs_keeps_its_modules(text: str) -> None:
    start = text.index(f"module \\{SYSTEM}.core1.")
    changed = text[:start] + text[start:].replace("  cell $", "  attribute \\keep 1\n  cell $", 1)
    shared = share_core(changed, CORES)
    assert modules(shared, 1) == modules(text, 1) and not modules(shared, 2)
    assert instances(shared) == [0, 1, 0]
