# SPDX-License-Identifier: Apache-2.0
"""The driver's Etherbone through LiteEth's own RTL, with the options of our shells."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from weft.boards import BOARDS
from weft.hw.contract.arch import Arch
from weft.simulate import toolchain
from weft.simulate.build import build_simulation
from weft.simulate.simulation import run_simulation

TOP = "ethernet_board"
PINS = f'public_flat_rw -module "{TOP}" -var "*clk"\n' + "".join(
    f'public_flat_{way} -module "{TOP}" -var "{name}"\n' for way, names in (
        ("rw", ("*_rst", "rx_valid", "rx_data", "rx_last", "tx_ready")), ("rd", ("tx_valid", "tx_data", "tx_last")))
    for name in names)
pytest.importorskip("liteeth", reason="needs the extra bitstream")


def test_ethernet_is_beside_the_machines_that_leave_it_room() -> None:
    found = {name: BOARDS["ecpix5"].has_ethernet(Arch.load(name)) for name in ("ecpix5_4", "ecpix5_int8", "ecpix5_2x4")}
    assert found == {"ecpix5_4": False, "ecpix5_int8": True, "ecpix5_2x4": False}
    assert not BOARDS["ulx3s"].has_ethernet(Arch.load("ulx3s"))


def test_the_layers_carry_a_gigabit_at_the_slowest_clock_that_a_pll_may_make() -> None:
    from weft.boards.shell.ethernet import ETHERNET_HZ, LAYER_BITS, MARGIN

    assert (1 - MARGIN) * ETHERNET_HZ * LAYER_BITS > 1e9


def test_the_driver_s_packets_reach_the_bus_by_frames(tmp_path: Path) -> None:
    """Words come back as they were written: one, a whole packet, and an exchange of writes and reads."""
    toolchain.setup()
    subprocess.run([sys.executable, "-m", "weft.tb.bench.ethernet_board", "."], cwd=tmp_path, check=True,
                   capture_output=True)
    simulation = build_simulation((tmp_path / f"{TOP}.v").read_text(), top=TOP, public_vlt=PINS)
    run_simulation(simulation, "weft.tb.bench.serve_ethernet", directory=tmp_path, seed=1)
