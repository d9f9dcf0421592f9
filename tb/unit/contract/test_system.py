# SPDX-License-Identifier: Apache-2.0
"""hw/contract/system.py: which core is behind which memory port, and where its registers are."""

from __future__ import annotations

import pytest

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import SYSTEM_ADDRESS_WIDTH, SYSTEM_PAGE, arch_hash
from weft.hw.contract.key_values import SHARED
from weft.hw.contract.system import System, page_address
from weft.hw.contract.timing import program_burst, program_places

TINY = Arch.load("tiny")


def system(cores: int, ports: int) -> System:
    return System(TINY.replace(dram_ports=SHARED, cores=cores, memory_ports=ports))


@pytest.mark.parametrize(("cores", "ports"), [(1, 1), (2, 1), (3, 2), (4, 4), (16, 3)])
def test_every_core_is_behind_one_port_and_ports_have_as_many_as_others_or_one_more(cores: int, ports: int) -> None:
    found = system(cores, ports)
    assert sorted(core for port in found.ports for core in found.cores_of(port)) == list(found.cores)
    assert all(core in found.cores_of(found.port_of(core)) for core in found.cores)
    sizes = [len(found.cores_of(port)) for port in found.ports]
    assert max(sizes) == found.arch.cores_a_port and max(sizes) - min(sizes) <= 1


def test_pages_of_sixteen_cores_and_the_systems_own_have_room() -> None:
    pages = [page_address(page) for page in range(SYSTEM_PAGE + 1)]
    assert pages == [0x1000 * page for page in range(17)] and pages[-1] < 1 << SYSTEM_ADDRESS_WIDTH


def test_programs_of_one_core_run_on_each_of_several() -> None:
    """A bitstream of several cores answers with the hash of one core's."""
    one = TINY.replace(dram_ports=SHARED)
    assert arch_hash(one.replace(cores=4, memory_ports=2)) == arch_hash(one) == arch_hash(TINY)


def test_a_vector_takes_longer_where_cores_share_a_port() -> None:
    one = TINY.replace(dram_ports=SHARED, array_size=8, axi_data_width=64)
    assert [one.replace(cores=cores, memory_ports=ports).vector_beats for cores, ports in
            ((1, 1), (2, 2), (2, 1), (3, 2), (4, 1))] == [2, 2, 4, 4, 8]


@pytest.mark.parametrize(("cores", "ports", "cycles", "joins"), [
    (1, 1, 64, False), (2, 1, 0, False), (2, 1, 1, True), (2, 2, 64, False), (3, 2, 64, True), (4, 4, 64, False)])
def test_reads_are_joined_where_cores_share_a_port(cores: int, ports: int, cycles: int, joins: bool) -> None:
    assert TINY.replace(dram_ports=SHARED, cores=cores, memory_ports=ports, join_cycles=cycles).joins_reads == joins


@pytest.mark.parametrize(("burst", "stream", "beats"), [(16, 64, 16), (256, 64, 256), (256, 128, 256), (256, 256, 128),
                                                        (256, 1024, 32), (8, 1024, 8)])
def test_a_burst_of_a_program_stays_within_a_page_of_4_kib(burst: int, stream: int, beats: int) -> None:
    arch = TINY.replace(axi_data_width=32, axi_max_burst=burst, stream_width=stream)
    assert (program_burst(arch), program_places(arch)) == (beats, 2 * beats)


def test_memories_have_names_of_their_own() -> None:
    one, two = system(1, 1), system(2, 1)
    assert one.memories == one.memories_of(0) and list(one.memories) == ["local", "accumulators", "dram0", "dram1"]
    assert len(two.memories) == 8 and two.memories["core1.local"] == two.memories_of(1)["local"]
    assert one.memories["local"].depth == TINY.local_depth and one.memories["dram1"].depth == TINY.dram1_depth


def test_neighbouring_cores_are_behind_different_ports() -> None:
    found = system(5, 2)
    assert [found.port_of(core) for core in found.cores] == [0, 1, 0, 1, 0]
    assert [found.cores_of(port) for port in found.ports] == [(0, 2, 4), (1, 3)]
