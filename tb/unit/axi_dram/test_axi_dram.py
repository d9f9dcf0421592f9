# SPDX-License-Identifier: Apache-2.0
"""The simulated DRAM keeps AXI, and notices a master that does not (simulate/sv/axi_dram.sv)."""

from pathlib import Path

import pytest

from weft.simulate.build import DRAM_SOURCES, build_simulation
from weft.simulate.simulation import Simulation, SimulationError, run_simulation

HERE = Path(__file__).parent
MEMORY_BYTES = 1 << 20
SEED = 1

RULES = {
    "crosses 4 KiB": "no burst crosses a 4 KiB boundary",
    "outside": "access inside the memory",
    "burst type": "burst type INCR",
    "size": "size of the full bus",
    "withdraw": "VALID stays until",
    "change addr": "payload stable",
    "change len": "payload stable",
    "change cache": "payload stable",
}
BREAKS = {f"{channel} {name}": text for name, text in RULES.items() for channel in ("ar", "aw")} | {
    "w withdraw": "WVALID stays until",
    "w change data": "W payload stable",
    "w change strb": "W payload stable",
    "w change last": "W payload stable",
    "w last early": "WLAST",
    "w last missing": "WLAST",
    "w strobe below address": "WSTRB low for the bytes below",
}


@pytest.fixture(scope="session", params=[32, 64, 128], ids="{}_bits".format)
def simulation(request: pytest.FixtureRequest) -> Simulation:
    return build(request.param)


@pytest.fixture(scope="session")
def simulation_64() -> Simulation:
    return build(64)


def build(data_width: int) -> Simulation:
    return build_simulation(
        "",
        top="axi_dram_tb",
        sources=[HERE / "axi_dram_tb.sv", *DRAM_SOURCES],
        public_vlt='public_flat_rw -module "axi_dram_tb" -var "*"\n',
        parameters={"DATA_WIDTH": data_width},
    )


def run(
    simulation: Simulation,
    directory: Path,
    testcase: str,
    *,
    module: str = "cocotb_axi_dram",
    size: int = MEMORY_BYTES,
    **environment: str,
) -> None:
    file = directory / "dram.bin"
    with file.open("wb") as sparse:
        sparse.truncate(size)
    run_simulation(
        simulation,
        module,
        directory=directory,
        python_path=[HERE],
        testcase=testcase,
        seed=SEED,
        plusargs=[f"+dram={file}"],
        environment={"DRAM_FILE": str(file), "DRAM_BYTES": str(size), **environment},
        timeout_seconds=120,
    )


@pytest.mark.wide_cases("32_bits-none", "32_bits-heavy", "64_bits-none", "64_bits-heavy", "128_bits-*", "32_bits-some")
@pytest.mark.parametrize("stall", ["none", "some", "heavy"])
def test_random_traffic_leaves_every_byte_right(simulation: Simulation, tmp_path: Path, stall: str) -> None:
    run(simulation, tmp_path, "random_traffic", STALL=stall)


def test_strobes_write_exactly_the_strobed_bytes(simulation: Simulation, tmp_path: Path) -> None:
    run(simulation, tmp_path, "strobes")


def test_latency_is_as_configured(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "latency")


def test_jitter_varies_within_its_bound(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "jitter")


def test_each_channel_stalls_as_often_as_told(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "stalls")


def test_full_bandwidth_both_ways_at_once(simulation: Simulation, tmp_path: Path) -> None:
    run(simulation, tmp_path, "full_bandwidth")


def test_sixteen_bursts_outstanding_each_way(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "outstanding")


def test_write_shows_only_with_its_response(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "late_write")


def test_read_may_sample_early_or_late(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "read_samples_early_or_late")


def test_error_range_answers_slverr(simulation: Simulation, tmp_path: Path) -> None:
    run(simulation, tmp_path, "error_responses")


def test_four_gibibyte_sparse_file(simulation_64: Simulation, tmp_path: Path) -> None:
    run(simulation_64, tmp_path, "random_traffic", size=1 << 32, STALL="none")
    assert (tmp_path / "dram.bin").stat().st_blocks * 512 < 4 << 20, "the file stays sparse"


@pytest.mark.parametrize("rule", BREAKS)
def test_broken_rule_ends_the_simulation(simulation_64: Simulation, tmp_path: Path, rule: str) -> None:
    with pytest.raises(SimulationError, match=f"AXI rule broken on dram .*{BREAKS[rule]}") as caught:
        run(simulation_64, tmp_path, "broken_rule", module="cocotb_broken_rules", RULE=rule)
    assert f"seed {SEED}" in str(caught.value)
    assert f"sh {tmp_path}/repeat.sh" in str(caught.value)


def test_missing_file_is_named(simulation_64: Simulation, tmp_path: Path) -> None:
    with pytest.raises(SimulationError, match="nowhere.bin"):
        run_simulation(
            simulation_64, "cocotb_axi_dram", directory=tmp_path, python_path=[HERE], plusargs=["+dram=/nowhere.bin"]
        )
