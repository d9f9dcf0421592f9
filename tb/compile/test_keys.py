# SPDX-License-Identifier: Apache-2.0
"""What the rows of the key table claim: how far a key reaches into what the compiler makes, and into the time it takes.

A digits network on a machine and on one that differs in a single key. A row that claims too little fails here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.compiler.backend.encode import MachineCode
from weft.compiler.pipeline import run_on, run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.consts import Consts
from weft.compiler.request import Request
from weft.cycles.replay import estimate
from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.csr import arch_hash
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.keys import Affects, Compatibility

DIGITS = Path(__file__).parents[2] / "models" / "digits" / "digits.onnx"
FIXED = Arch.load("arty").replace(local_depth=1024, accumulator_depth=256, axi_data_width=128)
BYTES = Arch.load("arty_int8").replace(local_depth=1024, accumulator_depth=256, dsp_packing="none")
OTHERS = {
    "local_depth": 2048, "accumulator_depth": 512, "thread_queue_depth": 2, "simd_loop_depth": 4, "local_banks": 2,
    "accumulator_banks": 1, "axi_max_burst": 8, "axi_address_width": 40, "stream_width": 128, "sample_block_size": 64,
    "register_slices": 1, "dram_ports": SHARED, "deep_queues": 1, "sampler": 0, "dsp_packing": "DSP48E1",
    "decoder_multipliers": 0, "weight_load_rows": 2, "repeat_depth": 64,
    "sync_counters": 4, "join_cycles": 64,
}
"""Another value for each key that does not reach the constants."""
SYSTEM = {"dram_ports": SHARED, "stream_width": 128, "axi_data_width": 128}
NEEDS = {"cores": SYSTEM, "memory_ports": {**SYSTEM, "cores": 2}, "sync_counters": {**SYSTEM, "cores": 2},
         "join_cycles": {**SYSTEM, "cores": 2}}
"""Keys that the base must have too where one is tried: a key of several cores."""
ONE_VALUE = {"number_of_threads"}


def constants_of(machine: Arch) -> Products:
    (made,) = run_parts(Request(DIGITS, None, False, True, ()), machine, last="consts")[1]
    return made


@pytest.fixture(scope="module")
def made() -> dict[Arch, tuple[Products, bytes]]:
    return {}


def compiled(machine: Arch, made: dict[Arch, tuple[Products, bytes]]) -> tuple[Products, bytes]:
    if machine not in made:
        products = constants_of(machine)
        made[machine] = products, run_on(products, "consts")[MachineCode].content
    return made[machine]


def test_every_key_that_does_not_reach_the_constants_is_tried() -> None:
    assert set(OTHERS) | ONE_VALUE == {name for name, row in KEYS.items() if row.affects < Affects.CONSTANTS}


@pytest.mark.parametrize("base", [FIXED, BYTES], ids=["fixed point", "int8"])
@pytest.mark.parametrize("name", OTHERS)
def test_a_key_reaches_no_further_than_its_row_says(base: Arch, name: str,
                                                    made: dict[Arch, tuple[Products, bytes]]) -> None:
    if name == "dsp_packing" and base is FIXED:
        return  # two products in a block need bytes
    base = base.replace(**NEEDS.get(name, {}))
    other, affects = base.replace(**{name: OTHERS[name]}), KEYS[name].affects
    (first, program), (second, changed) = compiled(base, made), compiled(other, made)
    assert (first[Consts].vectors == second[Consts].vectors).all()
    if affects < Affects.PROGRAM:
        assert program == changed
    if affects is Affects.NOTHING:
        assert estimate(program, base).cycles == estimate(program, other).cycles


@pytest.mark.parametrize("name", KEYS)
def test_the_hash_has_each_key_on_which_the_meaning_of_programs_depends(name: str) -> None:
    reach = {"data_type": "FP16BP9", "array_size": 7, "dram0_depth": 4096, "dram1_depth": 4096, "lut_count": 1,
             "simd_registers_depth": 4, "stride0_depth": 2, "stride1_depth": 2, "mac_rounding": "every_step",
             "accumulator_width": 40, "lut_depth": 32, "activation_tables": 2, "multiplier_width": 24,
             "axi_data_width": 64, "depthwise_taps": 3, "output_maximum": 1, "output_slope": 1, "cores": 2,
             "memory_ports": 2}
    of_bytes = name in ("activation_tables", "multiplier_width", "dsp_packing")
    base = BYTES.replace(activation_tables=0) if of_bytes else FIXED
    base = base.replace(simd_registers_depth=3, **NEEDS.get(name, {}))
    value = {**OTHERS, **reach, "number_of_threads": 1}[name]
    same = arch_hash(base) == arch_hash(base.replace(**{name: value}))
    assert same is (KEYS[name].compatibility is Compatibility.SAME)


def test_hashes_of_presets_stay_what_bitstreams_have() -> None:
    """Written by hand: a bitstream that is out there answers with its own."""
    known = {"arty": 0xF7B7523F, "ecpix5_4": 0x3FCF8995, "tang_nano_20k": 0xCC1E3FF6, "zcu104_int8": 0x180426C7}
    assert {name: arch_hash(Arch.load(name)) for name in known} == known
