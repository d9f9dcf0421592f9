# SPDX-License-Identifier: Apache-2.0
"""hw/contract/arch.py: presets, derived sizes, files, and the text of every refusal."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from weft.hw.contract.arch import KEYS, Arch
from weft.hw.contract.key_values import EVERY_STEP, ONCE
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.presets import find, presets
from weft.support.errors import ArchError, WeftError

SEED_KEYS = {"data_type": "FP16BP8", "array_size": 8, "dram0_depth": 1048576, "dram1_depth": 1048576,
             "local_depth": 8192, "accumulator_depth": 2048, "simd_registers_depth": 1, "stride0_depth": 8,
             "stride1_depth": 8}


@pytest.mark.parametrize(("name", "lanes"), [
    ("arty", 8), ("ecpix5", 8), ("ecpix5_4", 4), ("pynq", 12), ("ultra96", 16), ("zcu104", 32), ("tiny", 2),
    ("tang_nano_20k", 2), ("crosslink_nx", 2),
    ("arty_int8", 8), ("ecpix5_int8", 8), ("pynq_int8", 16), ("ultra96_int8", 24), ("zcu104_int8", 48),
    ("pynq_lut", 12), ("arty100_lut", 8), ("ecpix5_4_lut", 4),
    ("zcu104_int8_taps9", 48), ("ultra96_int8_taps9", 24), ("pynq_int8_taps3", 16), ("ultra96_taps9", 16),
    ("zcu104_taps9", 32),
    ("ecpix5_2x4", 4), ("arty100_3x8", 8), ("pynq_3x8", 8), ("zcu104_4x16", 16), ("zcu104_int8_4x24", 24)])
def test_preset_loads(name: str, lanes: int) -> None:
    assert name in presets()
    assert Arch.load(name).array_size == lanes
    assert Arch.load(find(name)) == Arch.load(name)


@pytest.mark.parametrize(("name", "without"), [
    ("pynq_lut", "pynq"), ("arty100_lut", "arty"), ("ecpix5_4_lut", "ecpix5_4")])
def test_presets_with_tables_differ_in_nothing_else(name: str, without: str) -> None:
    """What a table needs of SIMD registers comes with it."""
    tables = Arch.load("ultra96")
    assert Arch.load(name) == Arch.load(without).replace(
        lut_count=tables.lut_count, lut_depth=tables.lut_depth, simd_registers_depth=tables.lut_count + 1)


@pytest.mark.parametrize(("name", "without", "keys"), [
    ("zcu104_int8_taps9", "zcu104_int8", {"depthwise_taps": 9}),
    ("ultra96_int8_taps9", "ultra96_int8", {"depthwise_taps": 9}),
    ("pynq_int8_taps3", "pynq_int8", {"depthwise_taps": 3}),
    ("ultra96_taps9", "ultra96", {"depthwise_taps": 9, "output_maximum": 1, "output_slope": 1}),
    ("zcu104_taps9", "zcu104", {"depthwise_taps": 9, "output_maximum": 1, "output_slope": 1, "axi_data_width": 256})])
def test_presets_with_taps_differ_in_nothing_else(name: str, without: str, keys: dict[str, int]) -> None:
    assert Arch.load(name) == Arch.load(without).replace(**keys)


@pytest.mark.parametrize("name", presets())
def test_tarch_round_trip(name: str, tmp_path: Path) -> None:
    arch = Arch.load(name)
    file = tmp_path / "copy.tarch"
    file.write_text(json.dumps(arch.to_dict()))
    assert Arch.load(file) == arch


def test_files_of_the_original_load_with_the_documented_defaults() -> None:
    arch = Arch.from_dict(SEED_KEYS)
    assert (arch.mac_rounding, arch.accumulator_width, arch.lut_count, arch.lut_depth, arch.simd_loop_depth) == (
        "once", 32, 0, 64, 16)
    assert (arch.local_banks, arch.accumulator_banks, arch.axi_data_width, arch.axi_max_burst) == (4, 2, 64, 16)
    assert [Arch.from_dict({**SEED_KEYS, "local_depth": depth}).local_banks for depth in (2, 3, 4)] == [2, 2, 4]
    assert (arch.axi_address_width, arch.stream_width, arch.sample_block_size) == (32, 64, 1024)
    assert (arch.register_slices, arch.dram_ports, arch.deep_queues, arch.sampler) == (0, "separate", 0, 1)
    assert Arch.from_dict({**SEED_KEYS, "mac_rounding": EVERY_STEP}).accumulator_width == 16
    assert (arch.dsp_packing, arch.decoder_multipliers, arch.multiplier_width, arch.weight_load_rows) == (
        "none", 1, 17, 1)
    assert (arch.activation_tables, arch.repeat_depth, arch.depthwise_taps, arch.output_maximum, arch.output_slope) == (
        0, 0, 0, 0, 0)
    assert (arch.cores, arch.memory_ports, arch.sync_counters, arch.join_cycles) == (1, 1, 0, 0)


def test_replace_lets_dependent_defaults_follow() -> None:
    arch = Arch.from_dict(SEED_KEYS)
    assert arch.replace(mac_rounding=EVERY_STEP).accumulator_width == 16
    assert arch.replace(data_type="FP8BP4").accumulator_width == 16
    assert arch.replace(array_size=4).accumulator_width == 32
    assert arch.replace(mac_rounding=EVERY_STEP).replace(mac_rounding=ONCE) == arch


def test_derived_sizes() -> None:
    arch = Arch.from_dict({**SEED_KEYS, "data_type": "FP18BP10", "array_size": 12, "local_depth": 20480})
    assert arch.vector_bytes == 48
    assert (arch.local_address_width, arch.accumulator_address_width, arch.dram_address_width) == (15, 11, 20)
    assert [bits_to_count(count) for count in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]


@pytest.mark.parametrize(("taps", "row_taps", "kernel_rows"), [(0, 0, 0), (3, 3, 1), (9, 3, 3)])
def test_a_depthwise_product_takes_three_taps_of_each_row(taps: int, row_taps: int, kernel_rows: int) -> None:
    arch = Arch.from_dict({**SEED_KEYS, "array_size": 16, "depthwise_taps": taps})
    assert (arch.row_taps, arch.kernel_rows) == (row_taps, kernel_rows)


def test_an_arch_is_frozen() -> None:
    arch: Any = Arch.from_dict(SEED_KEYS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        arch.array_size = 3


def refusal(**keys: object) -> str:
    with pytest.raises(ArchError) as error:
        Arch.from_dict({**SEED_KEYS, **keys})
    text = str(error.value)
    assert all(part in text for part in (": found ", "; allowed: ", "; way out: ")), text
    return text


LIMITS = {
    "array_size": (2, 256), "dram0_depth": (2, 1 << 32), "dram1_depth": (2, 1 << 32), "local_depth": (2, 65536),
    "accumulator_depth": (2, 65536), "simd_registers_depth": (0, 16), "stride0_depth": (1, 16),
    "stride1_depth": (1, 16), "number_of_threads": (1, 1), "thread_queue_depth": (1, 64), "accumulator_width": (4, 96),
    "lut_count": (0, 16), "lut_depth": (2, 4096), "simd_loop_depth": (0, 64), "local_banks": (1, 16),
    "accumulator_banks": (1, 16), "axi_data_width": (32, 1024), "axi_max_burst": (1, 256),
    "axi_address_width": (16, 64), "stream_width": (32, 1024), "sample_block_size": (1, 65536),
    "register_slices": (0, 1), "deep_queues": (0, 1), "sampler": (0, 1), "decoder_multipliers": (0, 1),
    "activation_tables": (0, 8), "weight_load_rows": (1, 2), "repeat_depth": (0, 4096), "depthwise_taps": (0, 9),
    "multiplier_width": (17, 24), "output_maximum": (0, 1), "output_slope": (0, 1), "cores": (1, 16),
    "memory_ports": (1, 4), "sync_counters": (0, 16), "join_cycles": (0, 65535)}


def test_the_limits_are_these() -> None:
    assert {name: (row.low, row.high) for name, row in KEYS.items() if row.low is not None} == LIMITS


@pytest.mark.parametrize("key", [name for name, row in KEYS.items() if row.low is not None])
def test_each_limit_is_refused_outside_and_named(key: str) -> None:
    low, high = KEYS[key].low, KEYS[key].high
    assert low is not None and high is not None
    for value in (low - 1, high + 1, str(low), True, float(low), None if key != "accumulator_width" else "8"):
        text = refusal(**{key: value})
        assert f"architecture key {key}: found {value}; allowed: an integer, {low}..{high}" in text


@pytest.mark.parametrize("key", [name for name, row in KEYS.items() if row.power_of_two])
def test_powers_of_two_are_asked_for_with_the_nearest_ones(key: str) -> None:
    high = KEYS[key].high
    assert high is not None
    assert f"set {key} to {high // 2} or {high}" in refusal(**{key: high - 1})


@pytest.mark.parametrize(("keys", "parts"), [
    ({"mac_rounding": "never"}, ["mac_rounding", "found never", "once or every_step"]),
    ({"dram_ports": 1}, ["dram_ports", "found 1", "separate or shared", "where the board has one port"]),
    ({"dram_ports": "shared", "axi_address_width": 24}, [
        "dram_ports", "take 33554432 bytes together", "at most 16777216 bytes", "use separate"]),
    ({"mac_rounding": EVERY_STEP, "accumulator_width": 20}, ["accumulator_width", "found 20", "16 (the data type's)"]),
    ({"accumulator_width": 15}, ["accumulator_width", "found 15", "at least the data type's width 16"]),
    ({"dram1_depth": 1 << 29}, ["dram1_depth", "536870912 vectors of 16 bytes", "at most 268435456 vectors",
                                "raise axi_address_width"]),
    ({"local_banks": 16, "local_depth": 8}, ["local_banks", "found 16", "at most local_depth = 8"]),
    ({"accumulator_banks": 4, "accumulator_depth": 3}, ["accumulator_banks", "at most accumulator_depth = 3"]),
    ({"axi_max_burst": 256, "axi_data_width": 256}, ["axi_max_burst", "256 beats of 32 bytes", "4096 bytes"]),
    ({"lut_count": 1}, ["lut_count", "found 1", "simd_registers_depth - 1 = 0", "simd_registers_depth to 2"]),
    ({"cores": 2, "memory_ports": 3}, ["memory_ports", "found 3, with cores 2", "at most a port a core: 2"]),
    ({"sync_counters": 4}, ["sync_counters", "found 4, with cores 1", "there is no other core to wait for"]),
    ({"multiplier_width": 24}, ["multiplier_width", "found 24, with data_type FP16BP8", "set data_type to INT8"]),
    ({"depthwise_taps": 5}, ["depthwise_taps", "found 5", "set depthwise_taps to one of "]),
    ({"depthwise_taps": 9, "array_size": 8}, ["depthwise_taps", "found 9, with array_size 8", "set array_size to 9"]),
    ({"data_type": "INT9"}, ["data_type", "found INT9", "INT8 or FP<width>BP<point>"]),
    ({"data_type": "INT8", "mac_rounding": EVERY_STEP}, ["mac_rounding", "once with data_type INT8"]),
    ({"data_type": "INT8", "accumulator_width": 33}, ["accumulator_width", "24..32 with data_type INT8"]),
    ({"data_type": "INT8", "accumulator_width": 23}, ["accumulator_width", "found 23"]),
    ({"dsp_packing": "DSP58"}, ["dsp_packing", "found DSP58", "none or DSP48E1 or DSP48E2"]),
    ({"dsp_packing": "DSP48E1"}, ["dsp_packing", "DSP48E1, with data_type FP16BP8", "set data_type to INT8"]),
    ({"dsp_packing": "DSP48E2", "data_type": "INT8", "array_size": 7}, [
        "dsp_packing", "with array_size 7", "an even array_size", "set array_size to 8"]),
    ({"activation_tables": 2}, ["activation_tables", "2, with data_type FP16BP8", "INT8", "activation_tables to 0"]),
    ({"activation_tables": 2, "data_type": "INT8", "local_depth": 255},
     ["activation_tables", "local_depth 255", "256 or more"]),
    ({"weight_load_rows": 3}, ["weight_load_rows", "found 3", "an integer, 1..2", "set weight_load_rows within 1..2"]),
    ({"cores": 17}, ["cores", "found 17", "an integer, 1..16"]),
    ({"memory_ports": 2}, ["memory_ports", "2, with cores 1", "at most a port a core: 1", "raise cores"]),
    ({"cores": 2}, ["dram_ports", "separate, with cores 2", "set dram_ports to shared"]),
    ({"cores": 2, "dram_ports": "shared", "axi_data_width": 128}, [
        "stream_width", "64, with cores 2", "axi_data_width = 128", "set stream_width to 128"]),
    ({"cores": 4, "dram_ports": "shared", "axi_address_width": 26}, [
        "cores", "4, with windows that take 83886080 bytes together", "at most 67108864 bytes", "lower cores"]),
    ({"data_type": "FP33BP8"}, ["data_type", "width 4..32"]), ({"data_type": "FP16BP15"}, ["point 1..width-2"]),
    ({"data_type": 16}, ["data_type", "found 16"]),
    ({"array_sise": 8}, ["architecture key array_sise: found an unknown key", "did you mean array_size?"]),
    ({"zzzz": 8}, ["way out: remove it"]),
])
def test_a_machine_that_cannot_be_built_is_refused(keys: dict, parts: list[str]) -> None:
    text = refusal(**keys)
    assert not [part for part in parts if part not in text], text


SHARED_17 = {"dram_ports": "shared", "axi_address_width": 17}
"""128 KiB for both windows: two blocks. A vector has 16 bytes."""
CORES_18 = {"dram_ports": "shared", "axi_address_width": 18, "cores": 2, "dram0_depth": 4096}


@pytest.mark.parametrize(("last", "beyond"), [
    ({"axi_address_width": 17, "dram0_depth": 8192, "dram1_depth": 8192}, {"dram0_depth": 8193}),
    ({"axi_address_width": 17, "dram0_depth": 8192, "dram1_depth": 8192}, {"dram1_depth": 8193}),
    ({**SHARED_17, "dram0_depth": 4096, "dram1_depth": 4096}, {"dram1_depth": 4097}),
    ({**SHARED_17, "dram0_depth": 4096, "dram1_depth": 2}, {"dram0_depth": 4097}),  # the next window's block
    ({**CORES_18, "dram1_depth": 8192}, {"dram1_depth": 8193}),
    ({**CORES_18, "dram1_depth": 2}, {"dram0_depth": 4097}),
    ({**CORES_18, "dram1_depth": 2, "memory_ports": 2}, {"memory_ports": 3}),
    ({"axi_max_burst": 64, "axi_data_width": 512}, {"axi_max_burst": 128}),
    ({"lut_count": 3, "simd_registers_depth": 4}, {"lut_count": 4}),
    ({"local_banks": 8, "local_depth": 8}, {"local_depth": 7}),
    ({"accumulator_banks": 8, "accumulator_depth": 8}, {"accumulator_depth": 7}),
    ({"depthwise_taps": 3, "array_size": 3}, {"array_size": 2}),
    ({"depthwise_taps": 9, "data_type": "INT8", "array_size": 18}, {"array_size": 17}),
])
def test_keys_go_together_up_to_their_last_value(last: dict[str, Any], beyond: dict[str, Any]) -> None:
    """Values are stated by hand: the last machine that can be built, and the first that cannot."""
    Arch.from_dict({**SEED_KEYS, **last})
    refusal(**{**last, **beyond})


def test_missing_keys_are_all_named() -> None:
    with pytest.raises(ArchError, match="architecture key array_size: found nothing.*add array_size, local_depth"):
        Arch.from_dict({key: value for key, value in SEED_KEYS.items() if key not in ("array_size", "local_depth")})


@pytest.mark.parametrize("content", [b"{", b"[1]", b"3", b"\xff\xfe\x00"])
def test_a_file_that_is_no_object_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.tarch"
    file.write_bytes(content)
    with pytest.raises(WeftError, match="bad.tarch: found .*way out: start from a preset"):
        Arch.load(file)


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(WeftError, match="architecture: found nothere; allowed: a preset .*pynq.*way out"):
        Arch.load("nothere")
