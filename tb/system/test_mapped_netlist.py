# SPDX-License-Identifier: Apache-2.0
"""The cells that synthesis makes of a whole machine for an ECP5 do what the golden machine does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.hdl._ir import PortDirection

from weft.golden.dram import Dram, differences
from weft.golden.machine import Machine
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.flow import synthesis
from weft.hw.system import with_ports
from weft.simulate import toolchain
from weft.simulate.job import Job, ProgramRun, build_machine, run_job
from weft.simulate.simulation import Simulation
from weft.tb.bench.ecp5_cells import unmodelled
from weft.tb.bench.ecp5_netlist import netlist_verilog
from weft.tb.random.random_program import random_vectors

SMALL = Arch.load("tiny").replace(
    data_type="FP8BP4", lut_count=1, lut_depth=8, simd_registers_depth=2, simd_loop_depth=0, local_depth=512,
    local_banks=1, accumulator_banks=1, thread_queue_depth=1, stride0_depth=2, stride1_depth=2, axi_data_width=32,
    axi_max_burst=2, axi_address_width=16, stream_width=32)
"""Two lanes, with little around them. Local memory is block RAM."""
DRAMS = ("dram0", "dram1")


def directed(arch: Arch) -> list[Instruction]:
    """Every unit once: constants and vectors come in, are multiplied, added, looked up, and go out."""
    isa, multiply = Isa(arch), SimdOpcode.MULTIPLY
    return [
        isa.configure(Register.INPUT_SHIFT, arch.number.point),
        isa.configure(Register.OUTPUT_SHIFT, 2 * arch.number.point),
        isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 3, 24), isa.data_move(DataFlow.DRAM1_TO_LOCAL, 32, 5, 16),
        isa.load_weight(0, arch.array_size + 1), isa.mat_mul(3, 0, 8), isa.mat_mul(32, 0, 8, accumulate=True),
        isa.load_lut(8, 0), isa.load_lut(16, 1),
        isa.simd(SimdSub(SimdOpcode.MOVE, destination=1), read=0),
        isa.simd(SimdSub(multiply, left=0, right=1), read=1, write=8),
        isa.simd(SimdSub(multiply, left=0, right=0), read=2, write=9),
        isa.simd(SimdSub(SimdOpcode.LOOKUP, destination=1), read=3, write=10),
        isa.simd(SimdSub(multiply, left=2, right=1), write=11),
        isa.simd(SimdSub(SimdOpcode.ADD, left=0, right=2), read=4, write=12, accumulate=True),
        isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL, 64, 0, 16),
        isa.data_move(DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE, 64, 4, 8),
        isa.data_move(DataFlow.ACCUMULATOR_TO_LOCAL_RELU, 80, 0, 16),
        isa.data_move(DataFlow.LOCAL_TO_DRAM0, 64, 100, 32), isa.data_move(DataFlow.LOCAL_TO_DRAM1, 3, 120, 8),
    ]


def simulation(arch: Arch, netlist: dict) -> Simulation:
    """The netlist in the place of the machine; its trace port, which the product does not have, says nothing."""
    pins, joins = ["input clk", "input rst"], [".clk(clk)", ".rst(rst)"]
    for name, (signal, direction) in with_ports(arch, trace=True)[1].items():
        side = "input" if direction is PortDirection.Input else "output"
        pins.append(f"{side} [{len(signal) - 1}:0] {name}")
        joins += [] if name.startswith("trace_") else [f".{name}({name})"]
    around = f"module weft_top({', '.join(pins)});\n  mapped mapped({', '.join(joins)});\nendmodule\n"
    toolchain.setup()
    return build_machine(netlist_verilog(netlist, synthesis.TOP, "mapped") + around, axi_data_width=arch.axi_data_width,
                         axi_address_width=arch.axi_address_width, stream_width=arch.stream_width)


def disagreements(arch: Arch, program: list[Instruction], machine: Simulation, folder: Path) -> dict[str, list]:
    """Where the DRAMs differ in the end: (byte address, golden, netlist). Both start with the same random vectors."""
    folder.mkdir()
    golden, code = Machine(arch), Isa(arch).assemble(program)
    files = {name: folder / f"{name}.bin" for name in (*DRAMS, "program")}
    for seed, name in enumerate(DRAMS):
        content = random_vectors(arch, seed, getattr(arch, f"{name}_depth")).astype(arch.number.storage_dtype).tobytes()
        golden.drams[name].load_bytes(0, content)
        Dram(arch, files[name]).load_bytes(0, content)
    files["program"].write_bytes(code + bytes(4096))
    golden.run(code)
    result, = run_job(machine, Job(programs=[ProgramRun(size=len(code))], cycle_limit=100_000), directory=folder,
                      files=files)
    assert (result.done, result.error, result.instructions) == (True, False, len(program))
    found = {name: differences(golden.drams[name], Dram(arch, files[name]), 5) for name in DRAMS}
    return {name: each for name, each in found.items() if each}


@pytest.mark.long
def test_the_mapped_netlist_equals_golden(tmp_path: Path) -> None:
    synthesis.synthesize(SMALL, "ecp5", tmp_path)
    netlist = json.loads((tmp_path / "ecp5.json").read_text())
    assert not unmodelled(netlist)
    used = {cell["type"] for module in netlist["modules"].values() for cell in module["cells"].values()}
    assert {"MULT18X18D", "DP16KD", "TRELLIS_DPR16X4", "CCU2C"} <= used
    assert not disagreements(SMALL, directed(SMALL), simulation(SMALL, netlist), tmp_path / "run")
