# SPDX-License-Identifier: Apache-2.0
"""The operators of random networks, one function each, and how often each is taken."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import helper

from weft.tb.random.random_network import MOST_CHANNELS, MOST_PIXELS, Network, Tensor, outputs

TABLE_OPERATORS = ("Sigmoid", "Tanh", "Elu")


def convolution(net: Network) -> None:
    source = net.pick()
    divisors = [number for number in range(1, source.channels + 1) if source.channels % number == 0]
    group = divisors[net.integer(0, len(divisors))] if net.maybe(0.3) else 1
    net.conv(source, group * net.integer(1, max(2, 14 // group)), net.window(source), group)


def depthwise(net: Network) -> None:
    source = net.pick()
    net.conv(source, source.channels * net.integer(1, 3), net.window(source), source.channels)


def dense_kernel(net: Network) -> None:
    """Add a convolution with a kernel as large as the image, or nearly so."""
    source = net.pick()
    kernel = tuple(max(1, size - net.integer(0, 2)) for size in source.size)
    net.conv(source, net.integer(1, 10), {"kernel_shape": kernel, "strides": (1, 1), "dilations": (1, 1),
                                          "pads": (0, 0, 0, 0)})


def transposed(net: Network) -> None:
    source = net.pick()
    kernel, strides = (tuple(net.integer(1, 4) for _ in range(2)) for _ in range(2))
    height, width = ((size - 1) * stride + reach for size, stride, reach in
                     zip(source.size, strides, kernel, strict=True))
    if height * width > MOST_PIXELS:
        return
    channels = net.integer(1, 8)
    weights = net.scaled(source.channels * 2, source.channels, channels, *kernel)
    net.made(net.node("ConvTranspose", source, weights, net.scaled(4, channels), strides=strides), channels, height,
             width)


def like(net: Network, source: Tensor) -> Tensor:
    """Return another tensor of the same shape: one that is there, or a convolution of this one."""
    found = [tensor for tensor in net.tensors if (tensor.channels, tensor.size) == (source.channels, source.size)]
    if len(found) > 1 and net.maybe(0.6):
        return found[net.integer(0, len(found))]
    return net.conv(source, source.channels, {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1),
                                              "pads": (1, 1, 1, 1)})


def residual(net: Network) -> None:
    source = net.pick()
    other = like(net, source)
    net.made(net.node("Sub" if net.maybe(0.2) else "Add", source, other), source.channels, *source.size)


def product(net: Network) -> None:
    source = net.pick()
    other: Tensor | str = like(net, source)
    if net.maybe(0.5):  # a gate of each channel
        mean = net.node("GlobalAveragePool", other)
        other = net.node("Relu" if net.maybe(0.3) else "HardSigmoid", mean)  # which need no table
    net.made(net.node("Mul", source, other), source.channels, *source.size)


def concat(net: Network) -> None:
    source = net.pick()
    axis = net.integer(1, 4) if net.maybe(0.4) else 1
    found = [tensor for tensor in net.tensors
             if axis == 1 and tensor.size == source.size and tensor.name != source.name]
    other = found[net.integer(0, len(found))] if found and net.maybe(0.6) else like(net, source)
    shape = [source.channels, *source.size]
    shape[axis - 1] += (other.channels, *other.size)[axis - 1]
    if shape[1] * shape[2] <= MOST_PIXELS and shape[0] <= MOST_CHANNELS:
        net.made(net.node("Concat", source, other, axis=axis), *shape)


def split(net: Network) -> None:
    source = net.pick()
    if source.channels < 2:
        return
    first = net.integer(1, source.channels)
    names = [f"split{len(net.maker.nodes)}_{part}" for part in range(2)]
    net.maker.nodes.append(helper.make_node("Split", [source.name, net.ints(first, source.channels - first)], names,
                                            name=names[0], axis=1))
    net.unread.discard(source.name)
    for name, channels in zip(names, (first, source.channels - first), strict=True):
        net.made(name, channels, *source.size)


def cut_out(net: Network) -> None:
    source = net.pick()
    (top, bottom), (left, right) = (sorted((net.integer(0, size + 1), net.integer(0, size + 1)))
                                    for size in source.size)
    bottom, right = (max(end, low + 1) for low, end in ((top, bottom), (left, right)))
    if bottom > source.height or right > source.width:
        return
    net.made(net.node("Slice", source, net.ints(top, left), net.ints(bottom, right), net.ints(2, 3)), source.channels,
             bottom - top, right - left)


def pad(net: Network) -> None:
    source = net.pick()
    top, left, bottom, right = (net.integer(0, 3) for _ in range(4))
    value = [net.maker.constant(np.float32(0.5))] if net.maybe(0.5) else []
    net.made(net.node("Pad", source, net.ints(0, 0, top, left, 0, 0, bottom, right), *value), source.channels,
             source.height + top + bottom, source.width + left + right)


def max_pool(net: Network) -> None:
    _pool(net, "MaxPool")


def partition(net: Network) -> None:
    """Add a max pool that reads every pixel once, most often of a tensor that something else reads too."""
    source = net.pick()
    kernel = tuple(int(net.random.choice([size for size in (1, 2, 3) if length % size == 0])) for length in source.size)
    shape = tuple(length // size for length, size in zip(source.size, kernel, strict=True))
    net.made(net.node("MaxPool", source, kernel_shape=kernel, strides=kernel), source.channels, *shape)
    if net.maybe(0.7):
        net.conv(source, net.integer(1, 10), net.window(source))


def average_pool(net: Network) -> None:
    _pool(net, "AveragePool", count_include_pad=net.integer(0, 2))


def _pool(net: Network, op: str, **attributes: int) -> None:
    source = net.pick()
    window = net.window(source)
    window["pads"] = tuple(min(value, size - 1) for value, size in zip(window["pads"], window["kernel_shape"] * 2,
                                                                       strict=True))  # onnxruntime's rule
    shape = tuple(outputs(source, window, axis) for axis in range(2))
    if all(shape[axis] > 0 and _reads_image(source, window, axis, shape[axis]) for axis in range(2)):
        net.made(net.node(op, source, **window, **attributes), source.channels, *shape)


def _reads_image(source: Tensor, window: dict[str, tuple[int, ...]], axis: int, count: int) -> bool:
    """Return whether every one of ``count`` windows has a pixel that is no padding."""
    stride, pad, kernel, dilation = (window[key][axis] for key in ("strides", "pads", "kernel_shape", "dilations"))
    return all(any(0 <= output * stride - pad + tap * dilation < source.size[axis] for tap in range(kernel))
               for output in range(count))


def global_pool(net: Network) -> None:
    source = net.pick()
    net.made(net.node("GlobalMaxPool" if net.maybe(0.4) else "GlobalAveragePool", source), source.channels, 1, 1)


def relu(net: Network) -> None:
    net.same("Relu", net.pick())


def clip(net: Network) -> None:
    low, high = (0.0, 0.75) if net.maybe(0.6) else (-0.5, 0.5)
    net.same("Clip", net.pick(), *(net.maker.constant(np.float32(value)) for value in (low, high)))


def leaky(net: Network) -> None:
    net.same("LeakyRelu", net.pick(), alpha=float(net.random.choice([0.1, 0.25, 0.01])))


def slopes(net: Network) -> None:
    source = net.pick()
    net.same("PRelu", source, net.scaled(4, source.channels, 1, 1))


def table(net: Network) -> None:
    net.same(str(net.random.choice(TABLE_OPERATORS)), net.pick())


def scale(net: Network) -> None:
    source = net.pick()
    name = net.same("Mul", source, net.scaled(1, source.channels, 1, 1)) if net.maybe(0.7) else source
    net.same("Add", name, net.scaled(4, *((source.channels, 1, 1) if net.maybe(0.7) else (1,))))


def normalisation(net: Network) -> None:
    source = net.pick()
    variance = net.maker.constant(net.maker.random.uniform(0.5, 2, source.channels).astype(np.float32))
    net.same("BatchNormalization", source, *(net.scaled(1, source.channels) for _ in range(3)), variance)


def resize(net: Network) -> None:
    source = net.pick()
    factors = net.integer(1, 3), net.integer(1, 4)
    height, width = (size * factor for size, factor in zip(source.size, factors, strict=True))
    if height * width > MOST_PIXELS:
        return
    kind = {"mode": "linear"} if net.maybe(0.5) else {
        "mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.made(net.node("Resize", source, "", net.floats(1, 1, *factors), **kind), source.channels, height, width)


def shuffle(net: Network) -> None:
    source = net.pick()
    if source.channels % 2 == 0:
        name = net.node("Reshape", source, net.ints(1, 2, source.channels // 2, *source.size))
        name = net.node("Reshape", net.node("Transpose", name, perm=(0, 2, 1, 3, 4)),
                        net.ints(1, source.channels, *source.size))
        net.made(name, source.channels, *source.size)


def hard_swish(net: Network) -> None:
    net.same("HardSwish", net.pick())


def matrix_product(net: Network) -> None:
    """Add a product of two tensors, as matrices with rows or columns as channels, some in stacks.

    They are of like size and multiplied over pixels, or of like channels and multiplied over channels."""
    source = net.pick()
    other = like(net, source)
    heads = 2 if source.channels % 2 == 0 and net.maybe(0.3) else 1
    over_pixels = net.maybe(0.5)
    rows, inner = source.channels // heads, source.height * source.width
    if not over_pixels:
        rows, inner = inner, rows
    if heads * rows > MOST_CHANNELS:
        return
    left = _matrices(net, source, heads, not over_pixels)
    right = _matrices(net, other, heads, over_pixels)
    name = net.node("Mul", net.node("MatMul", left, right), net.floats(inner ** -0.5))
    net.made(net.node("Reshape", name, net.ints(1, heads * rows, 1, rows)), heads * rows, 1, rows)


def _matrices(net: Network, source: Tensor, heads: int, transposed: bool) -> str:
    """Return a tensor as [heads, channels, pixels], or with the last two ``transposed``."""
    shape = ([heads] if heads > 1 else []) + [source.channels // heads, source.height * source.width]
    name = net.node("Reshape", source, net.ints(*shape))
    order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    return net.node("Transpose", name, perm=order) if transposed else name


def last_matrix(net: Network) -> None:
    """Add a matrix product at the end, on the newest tensor."""
    source = net.tensors[-1]
    size = source.channels * source.height * source.width
    if size > 2 * MOST_PIXELS:
        return
    flat, columns = net.node("Flatten", source), net.integer(1, 12)
    weights = net.scaled(size, size, columns)
    gemm = net.maybe(0.5)
    net.made(net.node("Gemm", flat, weights, net.scaled(4, columns)) if gemm else net.node("MatMul", flat, weights),
             columns, 1, 1)


OPERATORS: dict[Callable[[Network], None], float] = {
    convolution: 6, depthwise: 2, dense_kernel: 0.5, transposed: 0.7, residual: 2, product: 0.4, matrix_product: 0.6,
    concat: 2, split: 1.2, cut_out: 0.7, pad: 0.6, max_pool: 2, partition: 1, average_pool: 1.2, global_pool: 0.4,
    relu: 3, clip: 1, leaky: 1, slopes: 0.6, table: 0.8, hard_swish: 0.3, scale: 0.8, normalisation: 1, resize: 0.8,
    shuffle: 0.6}
"""How often each is taken, relative to the others."""
