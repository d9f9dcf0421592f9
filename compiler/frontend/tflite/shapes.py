# SPDX-License-Identifier: Apache-2.0
"""Convert operators that move numbers and leave them as they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft.compiler.frontend.tflite.operation import Convert, Operation
from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN, Damaged
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES, Layout

LONGEST_SUM = 2048
"""The longest axis of CUMSUM, which becomes a matrix with as many rows and columns."""

REFLECT, SYMMETRIC = 0, 1
"""The modes of MIRROR_PAD."""


def reshape(op: Operation) -> None:
    """Convert RESHAPE, SQUEEZE or EXPAND_DIMS: the shape is that of the result."""
    value = op.input(0).constant
    if value is not None and value.size == np.prod(op.made):
        op.writer.know(op.operator.outputs[0], value.reshape(op.made))
    else:
        op.give(op.reshaped(op.read(0), op.made), rounds=False)


def transpose(op: Operation) -> None:
    """Convert TRANSPOSE."""
    order = op.integers(1)
    rank = len(op.shape(0))
    if sorted(order) != list(range(rank)):
        raise op.refusal("axes", order, f"each of {list(range(rank))} once", CONVERT_AGAIN)
    value = op.input(0).constant
    if value is not None:
        op.writer.know(op.operator.outputs[0], value.transpose(order))
    else:
        op.write("Transpose", [op.read(0)], rounds=False, perm=order)


def shape(op: Operation) -> None:
    """Convert SHAPE to a constant."""
    kind = op.outputs[0].tensor.type
    op.writer.know(op.operator.outputs[0], np.array(op.shape(0), kind if kind in ("int32", "int64") else "int32"))


def rank(op: Operation) -> None:
    """Convert RANK to a constant."""
    op.writer.know(op.operator.outputs[0], np.array(len(op.shape(0)), np.int32))


def concatenation(op: Operation) -> None:
    """Convert CONCATENATION."""
    layout = op.layout() if len(op.made) == 4 else FILE
    axis = op.place(op.axis(op.option("Axis"), len(op.made)), layout)
    names = [op.read(index, layout) for index in range(len(op.operator.inputs))]
    op.write("Concat", names, layout, activation=True, rounds=not _one_scale(op), axis=axis)


def _one_scale(op: Operation) -> bool:
    """Tell whether all inputs have one scale."""
    found = {tuple(np.concatenate([each.scales, each.zeros]).tolist()) if each else ()
             for index in range(len(op.operator.inputs)) for each in [op.input(index).tensor.quantization]}
    return len(found) == 1


def pack(op: Operation) -> None:
    """Convert PACK: each input gets an axis of length 1, along which they are joined."""
    axis = op.axis(op.option("Axis"), len(op.made))
    wanted = [1 if place == axis else size for place, size in enumerate(op.made)]
    names = [op.reshaped(op.read(index), wanted) for index in range(len(op.operator.inputs))]
    op.write("Concat", names, rounds=not _one_scale(op), axis=axis)


def unpack(op: Operation) -> None:
    """Convert UNPACK."""
    axis = op.axis(op.option("Axis"), len(op.shape(0)))
    for number, name in enumerate(_parts(op, 0, axis, [1] * len(op.outputs), FILE)):
        op.give(op.reshaped(name, op.outputs[number].shape), rounds=False, index=number)


def split(op: Operation) -> None:
    """Convert SPLIT into equal parts, along the axis of input 0."""
    _split(op, 1, op.integers(0), [])


def split_v(op: Operation) -> None:
    """Convert SPLIT_V into parts of the lengths in input 1 (one may be -1), along the axis of input 2."""
    _split(op, 0, op.integers(2), op.integers(1))


def _split(op: Operation, source: int, axes: Sequence[int], sizes: Sequence[int]) -> None:
    """Add a Split of input ``source``; ``sizes`` is empty for equal parts."""
    if len(axes) != 1:
        raise Damaged(f"operator {op.operator.code} of {op.name!r} with {len(axes)} axes")
    axis, layout = op.axis(axes[0], len(op.shape(source))), op.layout(source)
    whole = op.shape(source)[axis]
    lengths = list(sizes) or [whole // len(op.outputs)] * len(op.outputs)
    if lengths.count(-1) == 1:
        lengths[lengths.index(-1)] = whole - sum(lengths) - 1
    if len(lengths) != len(op.outputs):
        raise Damaged(f"operator {op.operator.code} of {op.name!r} with {len(lengths)} lengths")
    for number, name in enumerate(_parts(op, source, op.place(axis, layout), lengths, layout)):
        op.give(name, layout, rounds=not _same_scale(op, source, number), index=number)


def _same_scale(op: Operation, source: int, number: int) -> bool:
    """Tell whether an input and a result have the same scale."""
    read, made = op.input(source).tensor.quantization, op.outputs[number].tensor.quantization
    return read is not None and made is not None and read.scales[0] == made.scales[0] and read.zeros[0] == made.zeros[0]


def _parts(op: Operation, source: int, axis: int, lengths: Sequence[int], layout: Layout) -> list[str]:
    """Add a Split; return the names of its parts."""
    wanted = [f"{value.name}/part" for value in op.outputs]
    sizes = op.constant(np.array(lengths, np.int64), "lengths")
    return op.writer.many("Split", [op.read(source, layout), sizes], wanted, axis=axis)


# -- parts -------------------------------------------------------------------------------------------------------------
def slice_(op: Operation) -> None:
    """Convert SLICE: from ``begin`` as many as ``size`` says, -1: all that are left."""
    begins, sizes, shape = op.integers(1), op.integers(2), op.shape(0)
    if not len(begins) == len(sizes) == len(shape):
        raise op.refusal("begin and size", f"{len(begins)} and {len(sizes)} numbers", f"{len(shape)} of each",
                         CONVERT_AGAIN)
    ends = [whole if size == -1 else begin + size for begin, size, whole in zip(begins, sizes, shape, strict=True)]
    _give_slice(op, begins, ends, [1] * len(shape))


def _give_slice(op: Operation, begins: Sequence[int], ends: Sequence[int], steps: Sequence[int]) -> None:
    """Make a slice the result, in its shape, which may add or drop axes of one number.

    For backward steps an end of -1 means before the first number."""
    sizes = [len(range(*each)) for each in zip(begins, ends, steps, strict=True)]
    layout = op.layout(0) if tuple(sizes) == op.made else FILE
    source, least = op.read(0, layout), -(1 << 31)
    name = source
    chosen = [axis for axis, size in enumerate(op.shape(0)) if (begins[axis], ends[axis], steps[axis]) != (0, size, 1)]
    if chosen:
        bounds = [[begins[axis] for axis in chosen], [ends[axis] if ends[axis] >= 0 else least for axis in chosen],
                  [op.place(axis, layout) for axis in chosen], [steps[axis] for axis in chosen]]
        name = op.emit("Slice", [name, *(op.constant(np.array(numbers, np.int64), what) for numbers, what in zip(
            bounds, ("begins", "ends", "axes", "steps"), strict=True))])
    if tuple(sizes) != op.made:
        name = op.reshaped(name, op.made)
    op.give(op.emit("Identity", [name]) if name == source else name, layout, rounds=False)


def strided_slice(op: Operation) -> None:
    """Convert STRIDED_SLICE, which works as Python's slices; bit n of a mask is about entry n of the lists."""
    begins, ends, steps = (op.integers(index) for index in (1, 2, 3))
    if not len(begins) == len(ends) == len(steps):
        raise op.refusal("begin, end, strides", f"{len(begins)}, {len(ends)} and {len(steps)} numbers", "as many")
    masks = {name: op.option(name) for name in ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask",
                                                "ShrinkAxisMask")}
    entries = [{name for name, mask in masks.items() if mask >> number & 1} for number in range(len(begins))]
    ranges = _ranges(op, entries, begins, ends, steps)
    lows, highs, strides = ([each[place] for each in ranges] for place in range(3))
    _give_slice(op, lows, highs, strides)


def _ranges(op: Operation, entries: Sequence[set[str]], begins: Sequence[int], ends: Sequence[int],
            steps: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return begin, end and step for each axis of the input; an ellipsis stands for all other axes."""
    shape = op.shape(0)
    told = sum("NewAxisMask" not in entry and "EllipsisMask" not in entry for entry in entries)
    ranges: list[tuple[int, int, int]] = []
    for number, entry in enumerate(entries):
        if "EllipsisMask" in entry:
            ranges += [(0, size, 1) for size in shape[len(ranges):len(ranges) + max(len(shape) - told, 0)]]
        elif "NewAxisMask" not in entry:
            if len(ranges) >= len(shape) or not steps[number]:
                raise op.refusal("begin, end, strides", f"{begins}, {list(ends)}, {list(steps)}",
                                 f"entries for {list(shape)} with strides that are not 0", CONVERT_AGAIN)
            ranges.append(_range(shape[len(ranges)], entry, begins[number], ends[number] + (
                begins[number] if op.option("Offset") else 0), steps[number]))
    return ranges + [(0, size, 1) for size in shape[len(ranges):]]


def _range(size: int, entry: set[str], begin: int, end: int, step: int) -> tuple[int, int, int]:
    """Return begin, end and step of an axis of ``size``, given the masks that apply."""
    if "ShrinkAxisMask" in entry:
        begin += size if begin < 0 else 0
        return begin, begin + 1, 1
    return slice(None if "BeginMask" in entry else begin, None if "EndMask" in entry else end, step).indices(size)


def gather(op: Operation) -> None:
    """Convert GATHER."""
    if op.option("BatchDims"):
        raise op.refusal("batch_dims", op.option("BatchDims"), "0")
    axis = op.axis(op.option("Axis"), len(op.shape(0)))
    op.write("Gather", [op.read(0), op.read(1)], rounds=False, axis=axis)


def gather_nd(op: Operation) -> None:
    """Convert GATHER_ND."""
    indices = op.emit("Cast", [op.read(1)], to=7)
    op.write("GatherND", [op.read(0), indices], rounds=False)


def reverse_v2(op: Operation) -> None:
    """Convert REVERSE_V2 to a slice with backward steps."""
    shape = op.shape(0)
    turned = {op.axis(axis, len(shape)) for axis in op.integers(1)}
    _give_slice(op, [size - 1 if axis in turned else 0 for axis, size in enumerate(shape)],
                [-1 if axis in turned else size for axis, size in enumerate(shape)],
                [-1 if axis in turned else 1 for axis in range(len(shape))])


# -- more of the same --------------------------------------------------------------------------------------------------
def _pads(op: Operation) -> tuple[list[int], list[int], Layout]:
    """Return how many numbers come before and after each axis, and the layout that they are in."""
    pads, shape = op.numbers(1), op.shape(0)
    if pads.shape != (len(shape), 2) or pads.min(initial=0) < 0:
        raise op.refusal("paddings", pads.tolist() if pads.size < 20 else f"{pads.size} numbers",
                         f"two for each of {len(shape)} axes, not below 0", CONVERT_AGAIN)
    layout = op.layout(0)
    order = ORDER[PLANES] if layout == PLANES else range(len(shape))
    return [int(pads[axis, 0]) for axis in order], [int(pads[axis, 1]) for axis in order], layout


def pad(op: Operation) -> None:
    """Convert PAD with 0, or PADV2 with the number of input 2."""
    before, behind, layout = _pads(op)
    names = [op.read(0, layout), op.constant(np.array(before + behind, np.int64), "pads")]
    if op.has(2):
        value = op.numbers(2)
        if value.size != 1:
            raise op.refusal("padding value", f"{value.size} numbers", "one")
        names.append(op.constant(value.reshape(()), "value"))
    op.write("Pad", names, layout, rounds=False, mode="constant")


def mirror_pad(op: Operation) -> None:
    """Convert MIRROR_PAD: REFLECT leaves the edge out; SYMMETRIC repeats it, for which ONNX has no mode."""
    before, behind, layout = _pads(op)
    mode, given = op.option("Mode"), op.read(0, layout)
    source = given
    if mode == REFLECT:
        op.write("Pad", [source, op.constant(np.array(before + behind, np.int64), "pads")], layout, rounds=False,
                 mode="reflect")
        return
    if mode != SYMMETRIC:
        raise op.refusal("mode", mode, "REFLECT, SYMMETRIC")
    shape = [op.shape(0)[axis] for axis in ORDER[PLANES]] if layout == PLANES else op.shape(0)
    for axis, (first, last) in enumerate(zip(before, behind, strict=True)):
        if max(first, last) > shape[axis]:
            raise op.refusal("paddings", max(first, last), f"at most {shape[axis]}, the size of the axis")
        if first or last:
            line = np.pad(np.arange(shape[axis]), (first, last), mode="symmetric")
            source = op.emit("Gather", [source, op.constant(line, "mirrored")], axis=axis)
    op.give(op.emit("Identity", [source]) if source == given else source, layout, rounds=False)


def fill(op: Operation) -> None:
    """Convert FILL."""
    value = op.input(1).constant
    if value is not None and value.size == 1:
        op.writer.know(op.operator.outputs[0], np.broadcast_to(value.reshape(()), op.made))
    else:
        op.write("Expand", [op.read(1), op.constant(np.array(op.made, np.int64), "shape")])


def tile(op: Operation) -> None:
    """Convert TILE."""
    op.write("Tile", [op.read(0), op.constant(op.numbers(1).astype(np.int64), "times")], rounds=False)


def broadcast_to(op: Operation) -> None:
    """Convert BROADCAST_TO."""
    op.write("Expand", [op.read(0), op.constant(np.array(op.made, np.int64), "shape")], rounds=False)


def zeros_like(op: Operation) -> None:
    """Convert ZEROS_LIKE to a constant."""
    op.writer.know(op.operator.outputs[0], np.broadcast_to(np.zeros((), op.input(0).numpy_type), op.made))


def cumsum(op: Operation) -> None:
    """Convert CUMSUM to a product with a triangle of ones."""
    rank, size_axis = len(op.shape(0)), op.integers(1)
    axis = op.axis(size_axis[0] if size_axis else 0, rank)
    size = op.shape(0)[axis]
    order = [place for place in range(rank) if place != axis] + [axis]
    if size > LONGEST_SUM:
        raise op.refusal("axis", f"{size} numbers", f"at most {LONGEST_SUM} to be summed")
    ones = np.triu(np.ones((size, size), np.float32), 1 if op.option("Exclusive") else 0)
    triangle = op.constant(ones.T if op.option("Reverse") else ones, "triangle")
    if axis == rank - 1:
        op.write("MatMul", [op.read(0), triangle])
        return
    made = op.emit("MatMul", [op.emit("Transpose", [op.read(0)], perm=order), triangle])
    op.write("Transpose", [made], perm=np.argsort(order).tolist())



CONVERTERS: dict[str, Convert] = {
    "BROADCAST_TO": broadcast_to, "CONCATENATION": concatenation, "CUMSUM": cumsum,
    "EXPAND_DIMS": reshape, "FILL": fill, "GATHER": gather,
    "GATHER_ND": gather_nd, "MIRROR_PAD": mirror_pad, "PACK": pack, "PAD": pad, "PADV2": pad, "RANK": rank,
    "RESHAPE": reshape, "REVERSE_V2": reverse_v2, "SHAPE": shape, "SLICE": slice_,
    "SPLIT": split, "SPLIT_V": split_v, "SQUEEZE": reshape,
    "STRIDED_SLICE": strided_slice, "TILE": tile, "TRANSPOSE": transpose, "UNPACK": unpack, "ZEROS_LIKE": zeros_like}
