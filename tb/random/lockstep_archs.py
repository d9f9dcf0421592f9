# SPDX-License-Identifier: Apache-2.0
"""The machines that random programs run on.

They are small and large, with both roundings, odd depths, tables, several buses, and DRAM ports apart and shared."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import EVERY_STEP, SEPARATE, SHARED
from weft.hw.contract.presets import presets


def lockstep_archs() -> dict[str, Arch]:
    """Return name -> machine.

    Tests that need a simulator take one of these or of ``network_rule.py``: to build one costs a minute. The presets
    among them are those that the networks' tests simulate too."""
    tiny = Arch.load("tiny").replace(local_depth=128, accumulator_depth=64, dram0_depth=1024, dram1_depth=1024)
    return {
        "lanes2": tiny,
        "lanes3_every_step": tiny.replace(
            array_size=3, local_depth=50, accumulator_depth=24, mac_rounding=EVERY_STEP, simd_registers_depth=2,
            stride0_depth=5, stride1_depth=3, dram_ports=SHARED, deep_queues=1, sampler=0, weight_load_rows=2,
            depthwise_taps=3, output_slope=1),
        "lanes4_lut": tiny.replace(
            array_size=4, data_type="FP18BP10", local_depth=100, accumulator_depth=40, dram1_depth=900, lut_count=2,
            lut_depth=8, simd_registers_depth=4, simd_loop_depth=5, axi_data_width=32, accumulator_banks=4,
            stream_width=32, repeat_depth=16),
        "lanes4_slices": tiny.replace(
            array_size=4, local_depth=120, accumulator_depth=48, simd_registers_depth=3, lut_count=1, lut_depth=8,
            simd_loop_depth=6, local_banks=2, register_slices=1, dram_ports=SHARED, repeat_depth=32,
            depthwise_taps=3, output_maximum=1),
        "lanes2_int8": tiny.replace(data_type="INT8", local_depth=400, dram1_depth=2048, activation_tables=8),
        "lanes4_int8": tiny.replace(
            array_size=4, data_type="INT8", accumulator_width=24, local_depth=300, dram1_depth=2048,
            activation_tables=3, accumulator_depth=40, lut_count=1, lut_depth=8, simd_registers_depth=3,
            simd_loop_depth=5,
            accumulator_banks=4, register_slices=1, dram_ports=SHARED, dsp_packing="DSP48E1", weight_load_rows=2),
        "lanes8_int8": tiny.replace(
            array_size=8, data_type="INT8", multiplier_width=24, local_depth=90, accumulator_depth=40, lut_count=1,
            lut_depth=32, simd_registers_depth=2, axi_data_width=64, register_slices=1, local_banks=1,
            depthwise_taps=3),
        "lanes12_int8": tiny.replace(
            array_size=12, data_type="INT8", local_depth=100, accumulator_depth=50, simd_registers_depth=3,
            simd_loop_depth=4, axi_data_width=32, accumulator_banks=1, deep_queues=1, dsp_packing="DSP48E2",
            decoder_multipliers=0, weight_load_rows=2, depthwise_taps=3),
        "lanes10_taps9": tiny.replace(
            array_size=10, local_depth=130, accumulator_depth=60, simd_registers_depth=3, deep_queues=1,
            depthwise_taps=9, output_maximum=1, output_slope=1),
        "lanes18_taps9": tiny.replace(
            array_size=18, data_type="INT8", local_depth=110, accumulator_depth=50, register_slices=1, local_banks=2,
            dsp_packing="DSP48E2", dram_ports=SHARED, depthwise_taps=9),
        "lanes16_int8": Arch.load("pynq_int8").replace(
            local_depth=120, accumulator_depth=64, dram0_depth=1024, dram1_depth=1024, lut_depth=16,
            activation_tables=0,
            dsp_packing="DSP48E1"),
        "lanes8": Arch.load("arty"),
        "lanes12": Arch.load("pynq"),
        "lanes16_odd": Arch.load("ultra96").replace(
            local_depth=200, accumulator_depth=72, dram0_depth=2000, dram1_depth=4096, data_type="FP8BP4",
            simd_registers_depth=0, lut_count=0, lut_depth=64, axi_max_burst=8, local_banks=2),
        "lanes8_every_step": Arch.load("arty").replace(
            local_depth=300, accumulator_depth=100, dram0_depth=3000, dram1_depth=3000, mac_rounding=EVERY_STEP,
            local_banks=1, accumulator_banks=1, stream_width=32, register_slices=1, dram_ports=SEPARATE),
    }


FEWEST_LANES = {0: 4, 3: 6, 9: 18}
"""``depthwise_taps`` -> lanes of a small machine."""


def small_presets() -> dict[str, Arch]:
    """Return preset -> a machine with its options, few lanes and small memories.

    Of presets that give the same machine the first counts."""
    found: dict[Arch, str] = {}
    for name in presets():
        arch = Arch.load(name)
        lanes = min(arch.array_size, FEWEST_LANES[arch.depthwise_taps])
        tables = {"lut_depth": 8} if arch.lut_count else {}
        found.setdefault(arch.replace(array_size=lanes, local_depth=300, accumulator_depth=64, dram0_depth=1024,
                                      dram1_depth=2048, **tables), name)
    return {name: arch for arch, name in found.items()}
