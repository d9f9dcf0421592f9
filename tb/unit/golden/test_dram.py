# SPDX-License-Identifier: Apache-2.0
"""The sparse DRAM: layout, sign, sharing, extents and comparison."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weft.golden.dram import MOST_ADDRESS_BITS, Dram, differences
from weft.support.errors import WeftError
from weft.tb.unit.golden.machines import make_arch


def test_vectors_lie_little_endian_behind_the_window_offset() -> None:
    dram = Dram(make_arch("FP16BP8", 3))
    dram.write(2, np.array([[0x0102, -2, 5]]), offset_blocks=1)
    assert bytes(dram.bytes[65536 + 12:65536 + 18]) == bytes([0x02, 0x01, 0xFE, 0xFF, 5, 0])


def test_scalars_narrower_than_storage_are_sign_extended_when_written_and_cut_when_read() -> None:
    dram = Dram(make_arch("FP18BP10", 2))
    dram.write(0, np.array([[-1, 0x1FFFF]]))
    assert bytes(dram.bytes[:8]) == bytes([0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01, 0x00])
    dram.load_bytes(0, bytes([0xFF, 0xFF, 0x03, 0x00, 0x00, 0x00, 0x06, 0x80]))
    assert dram.read(0, 1).tolist() == [[-1, -131072]]


def test_strides_gather_and_scatter_reach_the_same_vectors() -> None:
    dram = Dram(make_arch("FP8BP4", 2))
    dram.write(1, np.array([[1, 2], [3, 4], [5, 6]]), stride=4)
    assert dram.read(0, 10)[:, 0].tolist() == [0, 1, 0, 0, 0, 3, 0, 0, 0, 5]
    assert dram.gather(np.array([9, 1])).tolist() == [[5, 6], [1, 2]]
    dram.scatter(np.array([7, 7]), np.array([[1, 1], [2, 2]]), offset_blocks=3)
    assert dram.read(7, 1, 3).tolist() == [[2, 2]]


def test_a_file_is_shared_with_whoever_maps_it(tmp_path: Path) -> None:
    arch = make_arch()
    first, second = Dram(arch, tmp_path / "dram"), Dram(arch, tmp_path / "dram")
    first.write(100, np.array([[7, 8]]))
    assert second.read(100, 1).tolist() == [[7, 8]]
    assert (tmp_path / "dram").stat().st_size == 1 << 32
    assert (tmp_path / "dram").stat().st_blocks * 512 < 1 << 20


def test_what_lies_behind_the_memory_in_a_longer_file_is_none_of_it(tmp_path: Path) -> None:
    long, short = Dram(make_arch(axi_address_width=24), tmp_path / "dram"), make_arch(axi_address_width=20)
    long.fill(1 << 22, (1 << 22) + 1, 1)
    assert list(Dram(short, tmp_path / "dram").extents()) == []
    long.fill((1 << 20) - 1, (1 << 20) + (1 << 16), 1)
    assert [end for _, end in Dram(short, tmp_path / "dram").extents()] == [1 << 20]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_cannot_be_opened_is_the_only_error(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        Dram(make_arch(), tmp_path)


@pytest.mark.parametrize("in_file", [False, True])
def test_extents_cover_all_data_and_little_else(tmp_path: Path, in_file: bool) -> None:
    dram = Dram(make_arch(), tmp_path / "dram" if in_file else None)
    assert list(dram.extents()) == []
    dram.fill(5, 6, 1)
    dram.fill((1 << 32) - 1, 1 << 32, 1)
    extents = list(dram.extents())
    assert all(any(start <= byte < end for start, end in extents) for byte in (5, (1 << 32) - 1))
    assert sum(end - start for start, end in extents) <= 1 << 20


def test_differences_name_each_byte_ascending() -> None:
    a, b = Dram(make_arch()), Dram(make_arch())
    for dram in (a, b):
        dram.fill(0, 3_000_000, 0x5A)
    assert differences(a, b) == []
    a.fill(2_500_000, 2_500_002, 1)
    b.fill(3 << 30, (3 << 30) + 1, 9)
    assert differences(a, b) == [(2_500_000, 1, 0x5A), (2_500_001, 1, 0x5A), (3 << 30, 0, 9)]
    assert differences(a, b, limit=1) == [(2_500_000, 1, 0x5A)]


def test_a_difference_is_named_once_where_pieces_of_memories_lie_within_each_other() -> None:
    """One memory has five pages without a hole, the other one the second and the fourth of them."""
    first, second = (Dram(make_arch()) for _ in range(2))
    first.fill(0, 5 * 4096, 7)
    for page in (1, 3):
        second.fill(page * 4096, page * 4096 + 8, 9)
    found = differences(first, second)
    assert len({*found}) == len(found) == 5 * 4096 and found == sorted(found)


def test_an_access_beyond_the_address_space_is_refused() -> None:
    dram = Dram(make_arch(axi_address_width=16))
    dram.read(65536 // 4 - 1, 1)
    with pytest.raises(WeftError, match="0..65535"):
        dram.read(65536 // 4 - 1, 2)


def test_a_huge_address_space_is_cut() -> None:
    assert Dram(make_arch(axi_address_width=64)).size == 1 << MOST_ADDRESS_BITS
