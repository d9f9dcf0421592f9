# SPDX-License-Identifier: Apache-2.0
"""Layouts of tensors in memories of many lanes: where element (n, c, h, w) lies, and copies to memory and back.

A memory has ``lanes``, each a line of elements. A tensor lies in one line (global memory: one lane), or its channels
are dealt out to the lanes one by one from ``start`` on. The rule is: channel c is in lane (start + c) mod lanes, and
within the lane at

    offset + n * strides.n + ((start + c) div lanes) * strides.c + h * strides.h + w * strides.w

Strides count elements. The names are those of the layouts of the Sophon BM1684X, whose lanes are called NPUs;
:func:`lane_vectors` is weft's own layout in the same terms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from weft.support.errors import WeftError, explain

LINE_BYTES = 64
"""The alignment of the aligned layouts, in bytes."""
COMPACT_BYTES = 4
"""The alignment of the address of a compact tensor, in bytes."""
GLOBAL, LOCAL_LANES = 1, 64
"""The lanes of global memory, and of the BM1684X's local memory."""
ITEM_BYTES = {"INT8": 1, "INT16": 2, "INT32": 4, "FP16": 2, "BFP16": 2, "FP32": 4}
"""The bytes of an element of each data type."""


class Shape(NamedTuple):
    """The shape of a tensor: batch, channels, height, width."""

    n: int
    c: int
    h: int
    w: int


class Strides(NamedTuple):
    """Elements from one index to the next; ``c``: from a channel to the next one in the same lane."""

    n: int
    c: int
    h: int
    w: int


@dataclass(frozen=True)
class Layout:
    """The layout of a tensor of ``shape`` in ``lanes`` lanes.

    Its first channel is in lane ``start``; it begins at element ``offset`` of each lane."""

    shape: Shape
    strides: Strides
    lanes: int = GLOBAL
    start: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        """Raise WeftError for a start lane, sizes, strides or an offset out of range."""
        if not 0 <= self.start < self.lanes:
            raise WeftError(explain("start lane", self.start, f"0..{self.lanes - 1}", "start in a lane that exists"))
        if min(self.shape) < 1 or min(self.strides) < 0 or self.offset < 0:
            raise WeftError(explain("layout", f"shape {list(self.shape)}, strides {list(self.strides)}, offset "
                                    f"{self.offset}", "sizes from 1, strides and offset from 0", "correct them"))

    @property
    def channels_per_lane(self) -> int:
        """The rows of channels, partly used rows at both ends included."""
        return -(-(self.start + self.shape.c) // self.lanes)

    @property
    def size(self) -> int:
        """The elements of a lane up to the tensor's last one."""
        return int(self.places()[1].max()) + 1

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Return each element's lane, and its place within the lane: two arrays of the tensor's shape."""
        n, c, h, w = np.meshgrid(*map(np.arange, self.shape), indexing="ij", sparse=True)
        row, lane = np.divmod(self.start + c, self.lanes)
        place = self.offset + n * self.strides.n + row * self.strides.c + h * self.strides.h + w * self.strides.w
        return np.broadcast_to(lane, self.shape), np.broadcast_to(place, self.shape)

    def store(self, tensor: np.ndarray, memory: np.ndarray | None = None, fill: int = 0) -> np.ndarray:
        """Return memory [lanes, elements] that holds the tensor; new memory has ``fill`` between its elements.

        Raise WeftError for another shape, for memory that is too small, and if elements would lie on each other."""
        if tensor.shape != self.shape:
            raise WeftError(explain("shape of the tensor", list(tensor.shape), f"{list(self.shape)}", "reshape it"))
        lane, place = self.places()
        flat = lane.astype(np.int64) * self.size + place
        if len(np.unique(flat)) != flat.size:
            raise WeftError(explain("layout", f"strides {list(self.strides)}, with which elements of shape "
                                    f"{list(self.shape)} lie on each other", "a place for each", "use larger strides"))
        memory = np.full((self.lanes, self.size), fill, tensor.dtype) if memory is None else memory
        self._check(memory)
        memory[lane, place] = tensor
        return memory

    def load(self, memory: np.ndarray) -> np.ndarray:
        """Return the tensor that memory [lanes, elements] holds. Raise WeftError for memory that is too small."""
        self._check(memory)
        return memory[self.places()]

    def _check(self, memory: np.ndarray) -> None:
        """Raise WeftError unless memory has all lanes and room for the tensor."""
        if memory.ndim != 2 or memory.shape[0] != self.lanes or memory.shape[1] < self.size:
            raise WeftError(explain("memory", f"{list(memory.shape)} elements", f"[{self.lanes}, {self.size} or more]",
                                    "give memory of all lanes, with room for the tensor"))


# -- layouts by name ---------------------------------------------------------------------------------------------------
def continuous(shape: Shape) -> Layout:
    """Return the layout of global memory: one element behind the other."""
    return Layout(shape, Strides(shape.c * shape.h * shape.w, shape.h * shape.w, shape.w, 1))


def aligned(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Return the layout in which each channel begins at a multiple of 64 bytes.

    ``address``: of the tensor in its lanes, in bytes, also a multiple of 64."""
    return _local(shape, shape.w, _round_up(shape.h * shape.w, _line(item_bytes)), lanes, start,
                  _offset(address, item_bytes, LINE_BYTES))


def compact(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Return the layout in which the channels of a lane lie contiguously; ``address``: in bytes, a multiple of 4."""
    return _local(shape, shape.w, shape.h * shape.w, lanes, start, _offset(address, item_bytes, COMPACT_BYTES))


def line_aligned(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Return the layout in which each line of each channel begins at a multiple of 64 bytes, ``address`` too."""
    line = _round_up(shape.w, _line(item_bytes))
    return _local(shape, line, shape.h * line, lanes, start, _offset(address, item_bytes, LINE_BYTES))


def strided(shape: Shape, strides: Strides, lanes: int = LOCAL_LANES, start: int = 0) -> Layout:
    """Return the layout with any strides."""
    return Layout(shape, strides, lanes, start)


def _local(shape: Shape, h: int, c: int, lanes: int, start: int, offset: int) -> Layout:
    """Return a layout with the strides ``h`` and ``c`` in which images follow each other."""
    layout = Layout(shape, Strides(0, c, h, 1), lanes, start, offset)
    return replace(layout, strides=Strides(c * layout.channels_per_lane, c, h, 1))


def _offset(address: int, item_bytes: int, multiple: int) -> int:
    """Return an address in elements. Raise WeftError unless it is a multiple of ``multiple`` bytes."""
    if address < 0 or address % multiple or address % item_bytes:
        raise WeftError(explain("address of the tensor", address, f"a multiple of {multiple} bytes",
                                f"use {_round_up(max(address, 0), multiple)}"))
    return address // item_bytes


def _line(item_bytes: int) -> int:
    """Return the elements in LINE_BYTES. Raise WeftError for other sizes than 1, 2 and 4 bytes."""
    if item_bytes not in (1, 2, 4):
        raise WeftError(explain("bytes of an element", item_bytes, "1, 2 or 4", "convert the array"))
    return LINE_BYTES // item_bytes


def _round_up(value: int, multiple: int) -> int:
    """Return the next multiple of ``multiple``."""
    return -(-value // multiple) * multiple


# -- matrices and vectors ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MatrixLayout:
    """The layout of a matrix [rows, columns], as an aligned tensor of one image for each row.

    A row is cut into pieces of ``width`` elements. Each piece is a channel of the image, of one line; zeros fill the
    last. So ``tensor`` has the shape [rows, ceil(columns / width), 1, width]."""

    rows: int
    columns: int
    tensor: Layout

    def store(self, matrix: np.ndarray) -> np.ndarray:
        """Return memory [lanes, elements], zero behind the last column. Raise WeftError for another shape."""
        if matrix.shape != (self.rows, self.columns):
            raise WeftError(explain("shape of the matrix", list(matrix.shape), f"[{self.rows}, {self.columns}]",
                                    "reshape it"))
        shape = self.tensor.shape
        padded = np.zeros((self.rows, shape.c * shape.w), matrix.dtype)
        padded[:, :self.columns] = matrix
        return self.tensor.store(padded.reshape(shape))

    def load(self, memory: np.ndarray) -> np.ndarray:
        """Return the matrix. Raise WeftError for memory that is too small."""
        return self.tensor.load(memory).reshape(self.rows, -1)[:, :self.columns]


def matrix(rows: int, columns: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0
           ) -> MatrixLayout:
    """Return the layout of a matrix; ``width``: columns of a channel, 1..columns. Raise WeftError for another width."""
    if not 1 <= width <= columns:
        raise WeftError(explain("columns of a channel", width, f"1..{columns}", "choose one of these"))
    shape = Shape(rows, -(-columns // width), 1, width)
    return MatrixLayout(rows, columns, aligned(shape, item_bytes, lanes, start))


def vector(size: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0) -> MatrixLayout:
    """Return the layout of a vector, as a matrix of one row."""
    return matrix(1, size, width, item_bytes, lanes, start)


# -- kernels of convolutions -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class KernelLayout:
    """The layout of a kernel [inputs, outputs, height, width] with ``group`` input channels side by side.

    It is 64IC with elements of 8 bits, 32IC with those of 16. Output channels are dealt out to the lanes. In its lane
    an output channel is ceil(inputs / group) groups, each of height x width places of ``group`` inputs. Missing inputs
    in the last group are zero."""

    inputs: int
    outputs: int
    height: int
    width: int
    group: int
    lanes: int = LOCAL_LANES
    start: int = 0

    @property
    def groups(self) -> int:
        """The number of groups of input channels."""
        return -(-self.inputs // self.group)

    @property
    def group_stride(self) -> int:
        """Elements from one group of input channels to the next."""
        return self.group * self.height * self.width

    @property
    def strides(self) -> Strides:
        """Strides in elements; ``c`` and ``n``: from an output channel to the next one in its lane."""
        channel = self.group_stride * self.groups
        return Strides(channel, channel, self.group * self.width, self.group)

    def store(self, kernel: np.ndarray) -> np.ndarray:
        """Return memory [lanes, elements] that holds the kernel. Raise WeftError for another shape."""
        wanted = (self.inputs, self.outputs, self.height, self.width)
        if kernel.shape != wanted:
            raise WeftError(explain("shape of the kernel", list(kernel.shape), f"{list(wanted)}", "reshape it"))
        padded = np.zeros((self.groups * self.group, *wanted[1:]), kernel.dtype)
        padded[:self.inputs] = kernel
        grouped = padded.reshape(self.groups, self.group, *wanted[1:]).transpose(2, 0, 3, 4, 1)
        return self._lines().store(grouped.reshape(1, self.outputs, 1, -1))

    def load(self, memory: np.ndarray) -> np.ndarray:
        """Return the kernel. Raise WeftError for memory that is too small."""
        lines = self._lines().load(memory).reshape(self.outputs, self.groups, self.height, self.width, self.group)
        kernel = lines.transpose(1, 4, 0, 2, 3).reshape(-1, self.outputs, self.height, self.width)
        return kernel[:self.inputs]

    def _lines(self) -> Layout:
        """Return the layout of each output channel as one line of a compact tensor."""
        size = self.strides.c
        return _local(Shape(1, self.outputs, 1, size), size, size, self.lanes, self.start, 0)


KERNEL_GROUPS = {1: 64, 2: 32}
"""Bytes of an element -> input channels side by side."""


def kernel(inputs: int, outputs: int, height: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES,
           start: int = 0) -> KernelLayout:
    """Return the layout of a kernel: 64IC or 32IC, according to the element's size. Raise WeftError for other sizes."""
    if item_bytes not in KERNEL_GROUPS:
        raise WeftError(explain("bytes of a kernel's element", item_bytes, "1 (64IC) or 2 (32IC)",
                                "convert the kernel"))
    return KernelLayout(inputs, outputs, height, width, KERNEL_GROUPS[item_bytes], lanes, start)


# -- weft's own --------------------------------------------------------------------------------------------------------
def lane_vectors(channels: int, height: int, width: int, lanes: int) -> Layout:
    """Return the layout of weft's DRAM and local memory: vector v is column v of memory [lanes, elements].

    It equals compact from lane 0 on. ``elements.pack`` writes it, with zeros in lanes without a channel. For bytes with
    a scale these lanes hold the tensor's zero point, the ``fill`` of ``store``."""
    return _local(Shape(1, channels, height, width), width, height * width, lanes, 0, 0)
