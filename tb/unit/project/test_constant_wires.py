# SPDX-License-Identifier: Apache-2.0
"""Every wire of the machine has a driver: a connection that is forgotten leaves one that never changes."""

from __future__ import annotations

import pytest
from amaranth.hdl import Fragment
from amaranth.hdl._ir import build_netlist

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.hw.system import with_ports
from weft.tb.random.lockstep_archs import lockstep_archs

TWO_LANES, INT8 = (lockstep_archs()[name] for name in ("lanes2", "lanes4_int8"))
MACHINES = {"two lanes": TWO_LANES, "INT8": INT8.replace(array_size=6, depthwise_taps=3),
            "two cores": TWO_LANES.replace(dram_ports=SHARED, cores=2, sync_counters=2)}
CONSTANT = {
    "mat_mul__accumulator_write__request__ready": "results of MatMul never wait", "mat_mul__request__ready": "the same",
    "accumulator_write__request__ready": "the same",
    "partial_sum_i": "the first row of the array adds to nothing",
    "advance": "whoever was served goes behind the others in every cycle",
    "take_right": "the multiplier of the SIMD unit takes its right operand whole",
    "cancel": "bursts of data are not called off", "empty": "a gearbox between equal widths keeps nothing",
    "read__en": "tables are read in every cycle",
}
"""Wires that never change, by their names within a block, and why."""
ON_BUSES = ("b__ready", "bready", "tkeep")
"""Ends of the same on buses: a writer takes every response at once, and every byte of a sample counts."""


def constant_wires(arch: Arch) -> dict[str, str]:
    """Return block and name of each wire whose bits all are constants -> its name within the block."""
    module, ports = with_ports(arch, trace=True)
    netlist = build_netlist(Fragment.get(module, None), [(name, *port) for name, port in ports.items()])
    return {f"{'.'.join(block.name)}.{name}": name.partition("$")[0]
            for block in netlist.modules for signal, name in block.signal_names.items()
            if len(signal) and all(net.is_const for net in netlist.signals[signal])}


@pytest.mark.parametrize("name", MACHINES)
def test_only_what_is_known_never_changes(name: str) -> None:
    unknown = [wire for wire, own in constant_wires(MACHINES[name]).items()
               if own not in CONSTANT and not own.endswith(ON_BUSES)]
    assert not unknown
