"""Layouts of tensors in memories of many lanes: where element (n, c, h, w) lies, and arrays to memory and back.

A memory has ``lanes``, each a line of elements. A tensor lies in one line (global memory: one lane), or its channels
are dealt out to the lanes one by one from ``start`` on. The rule is: channel c is in lane (start + c) mod lanes, and
within the lane at

    offset + n * strides.n + ((start + c) div lanes) * strides.c + h * strides.h + w * strides.w

Strides count elements. The names are those of the layouts of the Sophon BM1684X, whose lanes are called NPUs;
:func:`lane_vectors` is weft's own layout in the same terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from weft.support.errors import WeftError, explain

LINE_BYTES = 64
"""To which the aligned layouts align."""
COMPACT_BYTES = 4
"""A multiple of which the address of a compact tensor is."""
GLOBAL, LOCAL_LANES = 1, 64
"""Lanes of global memory, and of the BM1684X's local memory."""
ITEM_BYTES = {"INT8": 1, "INT16": 2, "INT32": 4, "FP16": 2, "BFP16": 2, "FP32": 4}
"""Of an element of each data type."""


class Shape(NamedTuple):
    """Batch, channels, height, width."""

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
    """Of a tensor of ``shape``, from lane ``start`` of ``lanes`` on, at element ``offset`` of each lane."""

    shape: Shape
    strides: Strides
    lanes: int = GLOBAL
    start: int = 0
    offset: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.lanes:
            raise WeftError(explain("start lane", self.start, f"0..{self.lanes - 1}", "start in a lane that exists"))
        if min(self.shape) < 1 or min(self.strides) < 0 or self.offset < 0:
            raise WeftError(explain("layout", f"shape {list(self.shape)}, strides {list(self.strides)}, offset "
                                    f"{self.offset}", "sizes from 1, strides and offset from 0", "correct them"))

    @property
    def channels_per_lane(self) -> int:
        """Rows of channels, those that begin or end in the middle included."""
        return -(-(self.start + self.shape.c) // self.lanes)

    @property
    def size(self) -> int:
        """Elements of a lane up to the tensor's last one."""
        return int(self.places()[1].max()) + 1

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Lane and element within it, arrays of the tensor's shape."""
        n, c, h, w = np.meshgrid(*map(np.arange, self.shape), indexing="ij", sparse=True)
        row, lane = np.divmod(self.start + c, self.lanes)
        place = self.offset + n * self.strides.n + row * self.strides.c + h * self.strides.h + w * self.strides.w
        return np.broadcast_to(lane, self.shape), np.broadcast_to(place, self.shape)

    def store(self, tensor: np.ndarray, memory: np.ndarray | None = None, fill: int = 0) -> np.ndarray:
        """Memory [lanes, elements] that holds the array; what lies between stays, or is ``fill`` in new memory.

        Raises WeftError for another shape, for memory that is too small, and where elements would lie on each other.
        """
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
        """The array that memory [lanes, elements] holds. Raises WeftError for memory that is too small."""
        self._check(memory)
        return memory[self.places()]

    def _check(self, memory: np.ndarray) -> None:
        if memory.ndim != 2 or memory.shape[0] != self.lanes or memory.shape[1] < self.size:
            raise WeftError(explain("memory", f"{list(memory.shape)} elements", f"[{self.lanes}, {self.size} or more]",
                                    "give memory of all lanes, with room for the tensor"))


# -- layouts by name ---------------------------------------------------------------------------------------------------
def continuous(shape: Shape) -> Layout:
    """Of global memory: one element behind the other."""
    return Layout(shape, Strides(shape.c * shape.h * shape.w, shape.h * shape.w, shape.w, 1))


def aligned(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Each channel begins at a multiple of 64 bytes. ``address``: in bytes, of the tensor in its lanes, such a one."""
    return _local(shape, shape.w, _round_up(shape.h * shape.w, _line(item_bytes)), lanes, start,
                  _offset(address, item_bytes, LINE_BYTES))


def compact(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Channels of a lane behind each other. ``address``: a multiple of 4."""
    return _local(shape, shape.w, shape.h * shape.w, lanes, start, _offset(address, item_bytes, COMPACT_BYTES))


def line_aligned(shape: Shape, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0, address: int = 0) -> Layout:
    """Each line of each channel begins at a multiple of 64 bytes, ``address`` too."""
    line = _round_up(shape.w, _line(item_bytes))
    return _local(shape, line, shape.h * line, lanes, start, _offset(address, item_bytes, LINE_BYTES))


def strided(shape: Shape, strides: Strides, lanes: int = LOCAL_LANES, start: int = 0) -> Layout:
    """Any strides."""
    return Layout(shape, strides, lanes, start)


def _local(shape: Shape, h: int, c: int, lanes: int, start: int, offset: int) -> Layout:
    layout = Layout(shape, Strides(0, c, h, 1), lanes, start, offset)
    return replace(layout, strides=Strides(c * layout.channels_per_lane, c, h, 1))


def _offset(address: int, item_bytes: int, multiple: int) -> int:
    if address < 0 or address % multiple or address % item_bytes:
        raise WeftError(explain("address of the tensor", address, f"a multiple of {multiple} bytes",
                                f"use {_round_up(max(address, 0), multiple)}"))
    return address // item_bytes


def _line(item_bytes: int) -> int:
    if item_bytes not in (1, 2, 4):
        raise WeftError(explain("bytes of an element", item_bytes, "1, 2 or 4", "convert the array"))
    return LINE_BYTES // item_bytes


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


# -- matrices and vectors ----------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class MatrixLayout:
    """A matrix [rows, columns] as a tensor of ceil(columns / width) channels of one line of ``width``, aligned."""

    rows: int
    columns: int
    tensor: Layout

    def store(self, matrix: np.ndarray) -> np.ndarray:
        """Memory [lanes, elements]; behind the last column, zeros. Raises WeftError for another shape."""
        if matrix.shape != (self.rows, self.columns):
            raise WeftError(explain("shape of the matrix", list(matrix.shape), f"[{self.rows}, {self.columns}]",
                                    "reshape it"))
        shape = self.tensor.shape
        padded = np.zeros((self.rows, shape.c * shape.w), matrix.dtype)
        padded[:, :self.columns] = matrix
        return self.tensor.store(padded.reshape(shape))

    def load(self, memory: np.ndarray) -> np.ndarray:
        """The matrix. Raises WeftError for memory that is too small."""
        return self.tensor.load(memory).reshape(self.rows, -1)[:, :self.columns]


def matrix(rows: int, columns: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0
           ) -> MatrixLayout:
    """``width``: columns of a channel, 1..columns."""
    if not 1 <= width <= columns:
        raise WeftError(explain("columns of a channel", width, f"1..{columns}", "choose one of these"))
    shape = Shape(rows, -(-columns // width), 1, width)
    return MatrixLayout(rows, columns, aligned(shape, item_bytes, lanes, start))


def vector(size: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES, start: int = 0) -> MatrixLayout:
    """A vector is a matrix of one row."""
    return matrix(1, size, width, item_bytes, lanes, start)


# -- kernels of convolutions -------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class KernelLayout:
    """A kernel [inputs, outputs, height, width] with ``group`` input channels side by side: 64IC with elements of 8
    bits, 32IC with those of 16.

    Output channels are dealt out to the lanes. In its lane an output channel is ceil(inputs / group) groups, each of
    height x width places of ``group`` inputs. Inputs that are missing in the last group are zero.
    """

    inputs: int
    outputs: int
    height: int
    width: int
    group: int
    lanes: int = LOCAL_LANES
    start: int = 0

    @property
    def groups(self) -> int:
        return -(-self.inputs // self.group)

    @property
    def group_stride(self) -> int:
        """Elements from one group of input channels to the next."""
        return self.group * self.height * self.width

    @property
    def strides(self) -> Strides:
        """``c`` and ``n``: from an output channel to the next one in its lane."""
        channel = self.group_stride * self.groups
        return Strides(channel, channel, self.group * self.width, self.group)

    def store(self, kernel: np.ndarray) -> np.ndarray:
        """Memory [lanes, elements]. Raises WeftError for another shape."""
        wanted = (self.inputs, self.outputs, self.height, self.width)
        if kernel.shape != wanted:
            raise WeftError(explain("shape of the kernel", list(kernel.shape), f"{list(wanted)}", "reshape it"))
        padded = np.zeros((self.groups * self.group, *wanted[1:]), kernel.dtype)
        padded[:self.inputs] = kernel
        grouped = padded.reshape(self.groups, self.group, *wanted[1:]).transpose(2, 0, 3, 4, 1)
        return self._lines().store(grouped.reshape(1, self.outputs, 1, -1))

    def load(self, memory: np.ndarray) -> np.ndarray:
        """The kernel. Raises WeftError for memory that is too small."""
        lines = self._lines().load(memory).reshape(self.outputs, self.groups, self.height, self.width, self.group)
        kernel = lines.transpose(1, 4, 0, 2, 3).reshape(-1, self.outputs, self.height, self.width)
        return kernel[:self.inputs]

    def _lines(self) -> Layout:
        """Each output channel as one line of a compact tensor."""
        size = self.strides.c
        return _local(Shape(1, self.outputs, 1, size), size, size, self.lanes, self.start, 0)


KERNEL_GROUPS = {1: 64, 2: 32}
"""Bytes of an element -> input channels side by side."""


def kernel(inputs: int, outputs: int, height: int, width: int, item_bytes: int, lanes: int = LOCAL_LANES,
           start: int = 0) -> KernelLayout:
    """64IC or 32IC, as the element's size says."""
    if item_bytes not in KERNEL_GROUPS:
        raise WeftError(explain("bytes of a kernel's element", item_bytes, "1 (64IC) or 2 (32IC)",
                                "convert the kernel"))
    return KernelLayout(inputs, outputs, height, width, KERNEL_GROUPS[item_bytes], lanes, start)


# -- weft's own --------------------------------------------------------------------------------------------------------
def lane_vectors(channels: int, height: int, width: int, lanes: int) -> Layout:
    """Of weft's DRAM and local memory: vector v is column v of memory [lanes, elements]. The same as compact from lane
    0 on; ``elements.pack`` writes it, with zeros in lanes that have no channel. Of bytes with a scale these hold the
    tensor's zero point: ``store`` it as ``fill``."""
    return _local(Shape(1, channels, height, width), width, height * width, lanes, 0, 0)
