# SPDX-License-Identifier: Apache-2.0
"""Build the layers of an INT8 machine, whose tensors have scales.

Accumulators are rounded to bytes when they are saved, and loading these bytes again does not bring the lost bits back.
So a layer is fused over a tensor only where that does not change the result:

* a convolution, or a sum of tensors as they are loaded; then at most a ReLU, and a limit at which its scale ends;
* a max pool, or a function of one number by its table of 256 values, of bytes as they are.

If only a sum or a function reads a convolution's result, it is rounded within the layer. It is requantized to bytes and
loaded back, so that no further layer is needed. A sum may be saved a second time, with a factor and an offset for each
channel. A max pool whose windows share no pixels joins a function; then the function's result may be saved too. A gate
of each channel becomes the requantizer's multipliers.

A tensor that keeps the scale of the network's file is rounded to it; only a ReLU of the same scale is fused over it."""

from __future__ import annotations

from typing import TypeGuard

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.graph import Node
from weft.compiler.layers.builder import (
    Builder,
    Handler,
    Open,
    Relu,
    Round,
    SaveHere,
    ScaleChannels,
    conv,
    enlarge,
    need_pool,
    pools_alone,
)
from weft.compiler.layers.stages import Add, Convolution, Load, Lookup, MaxPool, Minimum, Scale, Translate
from weft.compiler.lowering.functions import FUNCTION, of_steps
from weft.compiler.lowering.operators import CANONICAL_FUNCTIONS
from weft.compiler.passes.fold import is_channelwise
from weft.compiler.passes.fuse_functions import BYTE_TABLE_DEPTH, has_byte_tables, simd_has_byte_tables
from weft.compiler.passes.scale_channels import SCALE_CHANNELS

MOST_UNEVEN = 256
"""The largest allowed ratio of the factors that share a shift; the smallest then has 9 bits of 17."""

SHARE_SCALE = frozenset({"Assemble", "Enlarge", "MaxPool", "View"})
"""Graph operators that may force their input to take the scale of another tensor."""


def _ends_with(layer: Open | None, *kinds: type) -> TypeGuard[Open]:
    """Tell whether a layer exists and its last stage, or its core, is of one of ``kinds``."""
    return layer is not None and isinstance(layer.last, kinds)


def _try_fuse(builder: Builder, name: str, *kinds: type) -> Open | None:
    """Take out and return the layer that makes tensor ``name``, to add stages to it.

    Return None if the tensor has several readers, or if the layer is full or does not end with one of ``kinds``."""
    layer = builder.made.get(name)
    if builder.is_shared(name) or not _ends_with(layer, *kinds) or layer.is_full:
        return None
    return builder.made.pop(name)


def _try_fuse_rounded(builder: Builder, name: str, *then: type) -> Open | None:
    """Take out and return a convolution's layer, extended by a rounding to the bytes of tensor ``name``.

    It may have a ReLU and stages of ``then``. Return None if there is no such layer with a single reader."""
    taken = _try_fuse_convolution(builder, name, *then)
    return taken and taken.join(taken.position, Round(builder.var(name)))


def _try_fuse_convolution(builder: Builder, name: str, *then: type) -> Open | None:
    """Take out and return the layer of the convolution that makes tensor ``name``.

    It may have a ReLU and stages of ``then``. Return None if there is no such layer with a single reader."""
    layer = builder.made.get(name)
    if layer is None or not isinstance(layer.core, Convolution):
        return None
    if not all(isinstance(stage, (Relu, *then)) for stage in layer.stages):
        return None
    return builder.try_fuse(name)


def _add(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that adds the node's two tensors.

    It joins a sum that is not rounded yet, or else the later of the convolutions that make its operands."""
    both = [node.inputs, node.inputs[::-1]]
    for name, other in both:
        layer = _try_fuse(builder, name, Load, Add) if name not in builder.scales else None
        if layer is not None:
            return layer.join(position, Add(builder.var(other)))
    for name, other in sorted(both, key=lambda names: -builder.position(names[0])):
        layer = _try_fuse_rounded(builder, name, Translate)
        if layer is not None:
            return layer.join(position, Add(builder.var(other)))
    left, right = node.inputs
    return Open(node.name, position, Load(builder.var(left)), (Add(builder.var(right)),))


def _conv(builder: Builder, position: int, node: Node) -> Open:
    """Return a convolution's layer; a factor and an offset for each channel of an unrounded sum join that sum's layer.

    The factors and offsets are then applied when the sum is requantized."""
    source = node.input(0)
    if source in builder.scales or not _scales_evenly(builder, node):
        return conv(builder, position, node)
    if not _ends_with(builder.made.get(source), Add):
        return conv(builder, position, node)
    layer = builder.save_and_go_on(source) or builder.try_fuse(source)
    if layer is None:
        return conv(builder, position, node)
    return _join(layer, position, Scale(*node.inputs[1:]))


def _scales_evenly(builder: Builder, node: Node) -> bool:
    """Tell whether a convolution only multiplies each channel by a positive factor, and factors are alike.

    The smallest factor must keep enough bits at the shift that the largest one needs (see MOST_UNEVEN)."""
    if not is_channelwise(builder.graph, node):
        return False
    factors = builder.graph.constants[node.input(1)]
    return bool(factors.min() > 0 and factors.max() <= MOST_UNEVEN * factors.min())


def _join(layer: Open, position: int, stage: Scale | Relu | Minimum | MaxPool) -> Open:
    """Return ``layer`` extended by ``stage``, at ``position``, or at its own position if it has saved a tensor.

    The readers of the saved tensor rely on the layer's position."""
    return layer.join(layer.position if layer.has(SaveHere) else position, stage)


def _relu(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's ReLU, fused where the ReLU does not change the tensor's scale."""
    source = node.input(0)
    before, after = builder.scales.get(source), builder.scales.get(node.output)
    layer = _try_fuse(builder, source, Convolution, Load, Add, Scale, ScaleChannels) if before in (None,
        after) else None
    layer = layer or Open(node.name, position, Load(builder.var(source)))
    return _join(layer, position, Relu())


def _clip(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that limits the node's input to 0 and an upper limit, by scale or by lookup table.

    Where nothing else decides the output's scale, the scale itself ends at the limit and bytes saturate there."""
    limit = float(builder.graph.constants[node.input(2)])
    readers = builder.consumers.get(node.output, [])
    if node.output in builder.parts or any(reader.op in SHARE_SCALE for reader in readers):
        steps = of_steps((("Max", (0, 0.0), ()), ("Min", (1, limit), ())), "keeps_zero")
        return _lookup(builder, position, node.replace(op=FUNCTION, attributes=dict(steps), origin="Clip"))
    layer = _relu(builder, position, node)
    return _join(layer, position, Minimum(limit))


def _max_pool(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's max pool, fused with a function or convolution if that is worth it."""
    need_pool(builder, node)
    source, pool = builder.var(node.input(0)), MaxPool(node.window, builder.var(node.output).size)
    partitions = pool.window.partitions(source.size, pool.size)
    layer = _try_fuse_function(builder, source.name, node.output) if partitions else None
    made = builder.made.get(source.name)
    if layer is None and made is not None and (partitions or isinstance(made.core, Convolution)) and not pools_alone(
            builder, source.name, pool):
        layer = _try_fuse_rounded(builder, source.name)
    layer = layer or Open(node.name, position, Load(source))
    return _join(layer, position, pool)


def _try_fuse_function(builder: Builder, name: str, output: str) -> Open | None:
    """Take out and return the layer whose last stage is the function that makes tensor ``name``.

    Its values must have the scale of ``output``. A tensor with other readers is saved first. Return None where there is
    no such layer."""
    layer = builder.made.get(name)
    if not _ends_with(layer, Lookup, Translate) or builder.scales.get(name) != builder.scales.get(output):
        return None
    if isinstance(layer.last, Translate):
        if not isinstance(layer.core, Convolution):
            return None
        builder.made[name] = layer.join(layer.position, Round(builder.var(name)))
    return builder.save_and_go_on(name) or builder.try_fuse(name)


def _lookup(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that computes a function of one number by a table of 256 values.

    Raise CompileError if the machine has no table for every byte."""
    arch, source = builder.arch, node.input(0)
    if not has_byte_tables(arch):
        raise refuse_node(node.replace(op=node.origin or node.op), "architecture keys lut_count, lut_depth",
                          f"{arch.lut_count}, {arch.lut_depth}",
                          f"at least 1, {BYTE_TABLE_DEPTH} (a value for every byte)",
                          f"choose an architecture with lut_count 1 and lut_depth {BYTE_TABLE_DEPTH}, or with "
                          f"activation_tables 1, or {ON_HOST}")
    if arch.activation_tables:
        return _translate(builder, position, node)
    layer = _try_fuse_rounded(builder, source) or Open(node.name, position, Load(builder.var(source)))
    return layer.join(position, Lookup(node.op, tuple(sorted(node.attributes.items())), source))


def _translate(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that computes a function by the activation table when its argument is requantized.

    The argument is a convolution's result or loaded bytes. Before a max pool, loaded bytes use the SIMD unit's table,
    as both operations then share one load and one save."""
    source = node.input(0)
    function = node.op, tuple(sorted(node.attributes.items())), source
    layer = _try_fuse_convolution(builder, source)
    if layer is None:
        layer = Open(node.name, position, Load(builder.var(source)))
        pooled = any(reader.op == "MaxPool" for reader in builder.consumers.get(node.output, []))
        if pooled and simd_has_byte_tables(builder.arch):
            return layer.join(position, Lookup(*function))
    return layer.join(position, Translate(builder.var(source), *function))


def _scale_channels(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that multiplies each channel of an image by a computed number."""
    image, factors = map(builder.var, node.inputs)
    return Open(node.name, position, Load(image), (ScaleChannels(factors),))


def _refuse(builder: Builder, position: int, node: Node) -> Open:
    """Raise CompileError: an INT8 machine cannot multiply two computed tensors."""
    raise refuse_node(node.replace(op=node.origin or node.op), "two computed tensors to multiply",
                      f"data_type {builder.arch.data_type}", "data types of fixed point",
                      f"choose an architecture with data_type FP16BP8, or {ON_HOST}")


SCALED_HANDLERS: dict[str, Handler] = {
    "Add": _add,
    "Clip": _clip,
    "Conv": _conv,
    "Enlarge": enlarge,
    "LeakyRelu": _lookup,
    "MaxPool": _max_pool,
    "Mul": _refuse,
    "Product": _refuse,
    "Relu": _relu,
    SCALE_CHANNELS: _scale_channels,
    **dict.fromkeys(sorted(CANONICAL_FUNCTIONS), _lookup),
}
