# SPDX-License-Identifier: Apache-2.0
"""Layouts: every case of the Sophon BM1684X's description, by hand; round trips; weft's own layout beside them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.runtime import layouts
from weft.runtime.layouts import ITEM_BYTES, Layout, Shape, Strides
from weft.support.errors import WeftError
from weft.tmodel.elements import pack

X = 4
"""Lanes of the examples."""


def numbered(shape: tuple[int, ...], first: int = 1) -> np.ndarray:
    """Every element has a number of its own, none is 0."""
    return np.arange(first, first + np.prod(shape)).reshape(shape)


def lanes_of(layout: Layout) -> list[list[tuple[int, int]]]:
    """Of each lane, its features (n, c) by rising place."""
    found: list[list[tuple[int, int, int]]] = [[] for _ in range(layout.lanes)]
    lane, place = layout.places()
    for n, c in itertools.product(range(layout.shape.n), range(layout.shape.c)):
        found[int(lane[n, c, 0, 0])].append((int(place[n, c, 0, 0]), n, c))
    return [[(n, c) for _, n, c in sorted(each)] for each in found]


# -- strides -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("strides", [(12, 4, 2, 1), (24, 4, 2, 1), (24, 8, 4, 2), (24, 8, 4, 1)])
def test_strides_of_a_tensor_in_one_line(strides: tuple[int, int, int, int]) -> None:
    shape = Shape(4, 3, 2, 2)
    tensor = numbered(shape)
    memory = layouts.strided(shape, Strides(*strides), lanes=1).store(tensor)
    line = memory[0].tolist()
    for index in itertools.product(*map(range, shape)):
        assert line[sum(i * stride for i, stride in zip(index, strides, strict=True))] == tensor[index]
    assert np.count_nonzero(memory) == tensor.size
    first = {(12, 4, 2, 1): [1, 2, 3, 4, 5], (24, 4, 2, 1): [1, 2, 3, 4, 5], (24, 8, 4, 2): [1, 0, 2, 0, 3],
             (24, 8, 4, 1): [1, 2, 0, 0, 3]}
    assert line[:5] == first[strides]


def test_continuous_in_global_memory() -> None:
    """Shape (2, 2, 3, 2): element after element."""
    shape = Shape(2, 2, 3, 2)
    layout = layouts.continuous(shape)
    assert layout.strides == (12, 6, 2, 1)
    assert layout.store(numbered(shape)).tolist() == [list(range(1, 25))]


def test_channels_go_to_lanes() -> None:
    """Shape (2, 3, 2, 3) with strides (9, 9, 3, 1): nine elements from a batch to the next, in each channel's lane."""
    shape = Shape(2, 3, 2, 3)
    memory = layouts.strided(shape, Strides(9, 9, 3, 1), lanes=X).store(numbered(shape))
    assert memory.tolist() == [[*range(1, 7), 0, 0, 0, *range(19, 25)], [*range(7, 13), 0, 0, 0, *range(25, 31)],
                               [*range(13, 19), 0, 0, 0, *range(31, 37)], [0] * 15]


@pytest.mark.parametrize(("channels", "start", "per_lane", "expected"), [
    (X - 1, 0, 1, [[0], [1], [2], []]),
    (X - 1, 1, 1, [[], [0], [1], [2]]),
    (X + 2, 0, 2, [[0, 4], [1, 5], [2], [3]]),
    (X + 2, X - 1, 3, [[1, 5], [2], [3], [0, 4]])], ids=["case1", "case2", "case3", "case4"])
def test_features_scattered_over_lanes(channels: int, start: int, per_lane: int, expected: list[list[int]]) -> None:
    """The four cases: which channels are in which lane, and how many rows they take."""
    layout = layouts.compact(Shape(2, channels, 2, 3), 2, X, start)
    assert layout.channels_per_lane == per_lane
    assert lanes_of(layout) == [[(n, c) for n in range(2) for c in lane] for lane in expected]
    assert layout.strides.n == per_lane * 6
    lane, place = layout.places()
    rows = (place[0, :, 0, 0] // 6).tolist()
    assert rows == [(start + c) // X for c in range(channels)]
    assert np.array_equal(lane[0], lane[1])


# -- named layouts -----------------------------------------------------------------------------------------------------
FP16_EXAMPLE = Shape(2, 3, 4, 5)


@pytest.mark.parametrize(("start", "per_lane", "used"), [(0, 1, [0, 1, 2]), (2, 2, [2, 3, 0])])
def test_aligned(start: int, per_lane: int, used: list[int]) -> None:
    """Twenty elements of 16 bits take one line of 32; a batch is as many lines as a lane has rows."""
    layout = layouts.aligned(FP16_EXAMPLE, ITEM_BYTES["FP16"], X, start)
    assert layout.strides == (32 * per_lane, 32, 5, 1)
    tensor = numbered(FP16_EXAMPLE)
    memory = layout.store(tensor)
    for n, c in itertools.product(range(2), range(3)):
        row = (start + c) // X
        begin = n * 32 * per_lane + row * 32
        assert memory[used[c], begin:begin + 20].tolist() == tensor[n, c].ravel().tolist()
    assert np.count_nonzero(memory) == tensor.size
    assert lanes_of(layout)[3 if start == 0 else 1] == []


@pytest.mark.parametrize(("start", "per_lane", "used"), [(0, 1, [0, 1, 2]), (2, 2, [2, 3, 0])])
def test_compact(start: int, per_lane: int, used: list[int]) -> None:
    layout = layouts.compact(FP16_EXAMPLE, ITEM_BYTES["FP16"], X, start)
    assert layout.strides == (20 * per_lane, 20, 5, 1)
    tensor = numbered(FP16_EXAMPLE)
    memory = layout.store(tensor)
    for n, c in itertools.product(range(2), range(3)):
        begin = n * 20 * per_lane + (start + c) // X * 20
        assert memory[used[c], begin:begin + 20].tolist() == tensor[n, c].ravel().tolist()
    assert np.count_nonzero(memory) == tensor.size


@pytest.mark.parametrize(("data_type", "channel", "line"), [
    ("FP32", 80, 16), ("INT32", 80, 16), ("FP16", 96, 32), ("BFP16", 96, 32), ("INT16", 96, 32), ("INT8", 128, 64)])
def test_alignment_of_each_data_type(data_type: str, channel: int, line: int) -> None:
    """13 x 5 = 65 elements, and lines of 5: rounded up to 64 bytes."""
    shape, item = Shape(2, 5, 13, 5), ITEM_BYTES[data_type]
    assert layouts.aligned(shape, item, X).strides == (2 * channel, channel, 5, 1)
    assert layouts.line_aligned(shape, item, X).strides == (2 * 13 * line, 13 * line, line, 1)
    assert layouts.compact(shape, item, X).strides == (2 * 65, 65, 5, 1)


def test_line_aligned() -> None:
    shape = Shape(1, 2, 2, 3)
    memory = layouts.line_aligned(shape, 4, 2).store(numbered(shape))
    gap = [0] * 13
    assert memory.tolist() == [[1, 2, 3, *gap, 4, 5, 6], [7, 8, 9, *gap, 10, 11, 12]]


@pytest.mark.parametrize(("width", "rows"), [
    (40, [[(1, 40)], [], [], []]),
    (20, [[(1, 20)], [(21, 20)], [], []]),
    (15, [[(1, 15)], [(16, 15)], [(31, 10)], []]),
    (8, [[(1, 8), (33, 8)], [(9, 8)], [(17, 8)], [(25, 8)]]),
    (6, [[(1, 6), (25, 6)], [(7, 6), (31, 6)], [(13, 6), (37, 4)], [(19, 6)]])])
def test_matrix_of_two_rows_and_forty_columns(width: int, rows: list[list[tuple[int, int]]]) -> None:
    """The five examples, 16-bit elements: what each lane holds, as (first column, columns), a line of 32 each."""
    layout = layouts.matrix(2, 40, width, ITEM_BYTES["FP16"], X)
    memory = layout.store(numbered((2, 40)))
    lines, per_lane = -(-width // 32), len(rows[0])
    assert layout.tensor.strides == (32 * lines * per_lane, 32 * lines, width, 1)
    expected = np.zeros_like(memory)
    for row, (lane, pieces) in itertools.product(range(2), enumerate(rows)):
        for number, (first, count) in enumerate(pieces):
            begin = (row * per_lane + number) * 32 * lines
            expected[lane, begin:begin + count] = np.arange(first, first + count) + 40 * row
    assert memory.tolist() == expected.tolist()
    assert layout.load(memory).tolist() == numbered((2, 40)).tolist()


@pytest.mark.parametrize("width", [1, 6, 8, 40])
def test_vector_is_a_matrix_of_one_row(width: int) -> None:
    layout = layouts.vector(40, width, 2, X, 1)
    assert layout == layouts.matrix(1, 40, width, 2, X, 1)
    assert layout.load(layout.store(numbered((1, 40)))).tolist() == [list(range(1, 41))]
    assert layout.tensor.shape == (1, -(-40 // width), 1, width)


@pytest.mark.parametrize(("item", "group"), [(ITEM_BYTES["INT8"], 64), (ITEM_BYTES["FP16"], 32),
                                             (ITEM_BYTES["BFP16"], 32)], ids=["64IC", "32IC_FP16", "32IC_BFP16"])
@pytest.mark.parametrize("inputs", [3, 32, 64, 70])
def test_kernels(item: int, group: int, inputs: int) -> None:
    outputs, height, width, start = 6, 3, 2, 1
    layout = layouts.kernel(inputs, outputs, height, width, item, X, start)
    channel = group * width * height * -(-inputs // group)
    assert layout.strides == (channel, channel, group * width, group)
    assert layout.group_stride == group * width * height
    kernel = numbered((inputs, outputs, height, width))
    memory = layout.store(kernel)
    for i, o, y, x in itertools.product(range(inputs), range(outputs), range(height), range(width)):
        place = ((start + o) // X * channel + i // group * layout.group_stride + y * group * width + x * group
                 + i % group)
        assert memory[(start + o) % X, place] == kernel[i, o, y, x]
    assert np.count_nonzero(memory) == kernel.size
    assert layout.load(memory).tolist() == kernel.tolist()


# -- all ---------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(20))
def test_arrays_come_back(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = Shape(*(int(size) for size in rng.integers(1, [4, 12, 6, 40])))
    lanes, item = int(rng.choice([1, 2, 4, 64])), int(rng.choice([1, 2, 4]))
    start, address = int(rng.integers(lanes)), 64 * int(rng.integers(3))
    for make in (layouts.aligned, layouts.compact, layouts.line_aligned):
        layout = make(shape, item, lanes, start, address)
        tensor = rng.integers(1, 100, shape)
        around = np.full((lanes, layout.size + 7), -1)
        memory = layout.store(tensor, around)
        assert memory is around and layout.load(memory).tolist() == tensor.tolist()
        assert np.count_nonzero(memory != -1) == tensor.size
        assert (memory[:, :address // item] == -1).all()


@pytest.mark.parametrize(("channels", "lanes"), [(3, 4), (8, 4), (10, 4), (5, 12)])
def test_wefts_own_layout(channels: int, lanes: int) -> None:
    """A vector holds a pixel's channels, one for each lane."""
    tensor = numbered((channels, 3, 5))
    layout = layouts.lane_vectors(channels, 3, 5, lanes)
    for zero in (0, -7):
        assert layout.store(tensor[None], fill=zero).T.tolist() == pack(tensor, lanes, zero).tolist()
    assert layout == layouts.compact(Shape(1, channels, 3, 5), 2, lanes)


@pytest.mark.parametrize(("call", "text"), [
    (lambda: layouts.compact(Shape(1, 1, 1, 1), 2, 4, 4), "start lane: found 4; allowed: 0..3"),
    (lambda: layouts.aligned(Shape(1, 1, 1, 1), 2, 4, 0, 32), "found 32; allowed: a multiple of 64 bytes; way out: use "
                                                             "64"),
    (lambda: layouts.aligned(Shape(1, 1, 1, 1), 3), "found 3; allowed: 1, 2 or 4"),
    (lambda: layouts.continuous(Shape(0, 1, 1, 1)), "allowed: sizes from 1"),
    (lambda: layouts.matrix(2, 8, 9, 2), "found 9; allowed: 1..8"),
    (lambda: layouts.kernel(1, 1, 1, 1, 4), r"found 4; allowed: 1 \(64IC\) or 2 \(32IC\)"),
    (lambda: layouts.kernel(1, 1, 1, 1, 2).store(np.zeros((2, 1, 1, 1))), "shape of the kernel"),
    (lambda: layouts.matrix(2, 8, 8, 2).store(np.zeros((8, 2))), "shape of the matrix"),
    (lambda: layouts.continuous(Shape(1, 2, 2, 2)).store(np.zeros((2, 2, 2))), "shape of the tensor"),
    (lambda: layouts.continuous(Shape(1, 2, 2, 2)).load(np.zeros((1, 7))), r"allowed: \[1, 8 or more\]"),
    (lambda: layouts.strided(Shape(2, 1, 2, 2), Strides(3, 4, 2, 1), 1).store(np.zeros((2, 1, 2, 2))),
     "lie on each other")])
def test_what_cannot_be(call, text: str) -> None:
    with pytest.raises(WeftError, match=text):
        call()
