# SPDX-License-Identifier: Apache-2.0
"""The Configure registers against their table."""

from __future__ import annotations

from random import Random

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.isa import Isa
from weft.hw.contract.key_values import EVERY_STEP
from weft.hw.contract.register_table import register_table
from weft.hw.contract.registers import Register, RegisterSpec
from weft.hw.control.config_registers import ConfigRegisters
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Cycles
from weft.tb.bench.block_ports import Ports

TINY = Arch.load("tiny")
MACHINES = {"tiny": TINY, "arty": Arch.load("arty"), "every_step": TINY.replace(mac_rounding=EVERY_STEP),
            "odd": TINY.replace(array_size=3, local_depth=50, accumulator_depth=23, dram0_depth=1500, dram1_depth=99)}


class Writes(Cycles):
    """Random writes of legal values, also to numbers that are no register; every output is compared in every cycle."""

    def __init__(self, arch: Arch, cycles: int, rng: Random) -> None:
        super().__init__(cycles)
        self.rng = rng
        self.table: dict[Register, RegisterSpec] = {
            register: spec for register, spec in register_table(arch).items()
            if register is not Register.PROGRAM_COUNTER}
        self.values: dict[Register, int] = {register: spec.reset for register, spec in self.table.items()}
        self.write: tuple[int, int] | None = None

    def drive(self, ports: Ports) -> None:
        number = self.rng.choice([*self.table, self.rng.getrandbits(8), Register.PROGRAM_COUNTER])
        most = self.table[Register(number)].maximum if number in self.table else 15
        most = min(most, (1 << len(ports.inputs["value"])) - 1)
        value = self.rng.choice([0, most, self.rng.randint(0, most)])
        ports["write"], ports["number"], ports["value"] = self.rng.random() < 0.7, number, value
        self.write = (number, value) if ports["write"] else None

    def watch(self, ports: Ports) -> None:
        super().watch(ports)
        assert {register: ports[register.name.lower()] for register in self.table} == self.values
        if self.write and self.write[0] in self.table:
            self.values[Register(self.write[0])] = self.write[1]


@pytest.mark.parametrize("name", MACHINES)
def test_registers_reset_and_keep_what_is_written(name: str) -> None:
    arch = MACHINES[name]
    widths = Isa(arch).operand_widths
    simulate(ConfigRegisters(arch, widths[0], widths[1]), Writes(arch, 300, Random(71)))
