"""Layers of an INT8 machine with scales. What leaves the accumulators is scaled and rounded to bytes; what comes in
again has lost its bits. So a layer goes on over a tensor only where that changes nothing:

* a convolution, or a sum of tensors as they are loaded; then at most a ReLU, and a limit at which its scale ends;
* a max pool, or a function of one number by its table of 256 values, of bytes as they are.

A convolution's result that only a sum or a function reads is rounded within the layer: it leaves as bytes and comes in
again, so that these need no layer of their own. A sum may leave a second time, by a factor and an offset of each
channel. A max pool whose windows share no pixels joins a function; then what it reads may be saved too. A gate of each
channel is the multipliers of the way out.

A tensor that keeps the scale of the network's file is rounded to it: over that, only a ReLU of the same scale goes on.
"""

from __future__ import annotations

from typing import TypeGuard

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.graph import Node
from weft.compiler.layers.builder import Builder, Handler, Open, conv, enlarge, need_pool, window_of
from weft.compiler.layers.hir import (
    Add,
    Convolution,
    Load,
    Lookup,
    MaxPool,
    Minimum,
    Relu,
    Round,
    Save,
    Scale,
    ScaleChannels,
    Translate,
)
from weft.compiler.lowering.functions import FUNCTION, of_steps
from weft.compiler.lowering.operators import CANONICAL_FUNCTIONS
from weft.compiler.passes.fold import is_channelwise
from weft.compiler.passes.fuse_functions import BYTE_TABLE_DEPTH, has_byte_tables, simd_has_byte_tables
from weft.compiler.passes.scale_channels import SCALE_CHANNELS

MOST_UNEVEN = 256
"""Of factors that share a shift: by so much the largest may exceed the smallest, which then has 9 bits of 17."""

FEW_WEIGHT_TILES = 8
"""Of an output tile. A region of some rows computes a sixth to a quarter of its pixels again for the max pool beside
it; the pool of nine pixels takes the SIMD unit some two cycles a pixel, while the array has nothing to do. ResNet-50's
first convolution has 7 on 24 lanes, where joining wins, and 10 on 16 lanes, where it loses."""

SHARE_SCALE = frozenset({"Assemble", "Enlarge", "MaxPool", "View"})
"""What reads a tensor and may give it the scale of others."""


def _ends_with(layer: Open | None, *kinds: type) -> TypeGuard[Open]:
    return layer is not None and isinstance(layer.operations[-1], kinds)


def _try_fuse(builder: Builder, name: str, *kinds: type) -> Open | None:
    """Takes out the layer that makes a tensor for one reader, where it ends with one of ``kinds``."""
    layer = builder.made.get(name)
    if builder.is_shared(name) or not _ends_with(layer, *kinds) or layer.is_full:
        return None
    return builder.made.pop(name)


def _try_fuse_rounded(builder: Builder, name: str, *then: type) -> Open | None:
    """Takes out a convolution for one reader, ``then`` behind it, to go on with the bytes that it makes."""
    taken = _try_fuse_convolution(builder, name, *then)
    return taken and taken.join(taken.position, Round(taken.temp, builder.var(name)))


def _try_fuse_convolution(builder: Builder, name: str, *then: type) -> Open | None:
    """Takes out a convolution for one reader; a ReLU may come behind it, and ``then``."""
    layer = builder.made.get(name)
    if layer is None or not isinstance(layer.operations[0], Convolution):
        return None
    if not all(isinstance(operation, (Relu, *then)) for operation in layer.operations[1:]):
        return None
    return builder.try_fuse(name)


def _add(builder: Builder, position: int, node: Node) -> Open:
    """Joins a sum that is not rounded yet, or else the later of the convolutions that make its operands."""
    both = [node.inputs, node.inputs[::-1]]
    for name, other in both:
        layer = _try_fuse(builder, name, Load, Add) if name not in builder.scales else None
        if layer is not None:
            return layer.join(position, Add(builder.var(other), layer.temp))
    for name, other in sorted(both, key=lambda names: -builder.position(names[0])):
        layer = _try_fuse_rounded(builder, name, Translate)
        if layer is not None:
            return layer.join(position, Add(builder.var(other), layer.temp))
    left, right = node.inputs
    return Open(node.name, position, (Load(builder.var(left), "%0"), Add(builder.var(right), "%0")))


def _conv(builder: Builder, position: int, node: Node) -> Open:
    """A factor and an offset of each channel of a sum that is not rounded: on a way out of their own."""
    source = node.input(0)
    if source in builder.scales or not _scales_evenly(builder, node):
        return conv(builder, position, node)
    if not _ends_with(builder.made.get(source), Add):
        return conv(builder, position, node)
    layer = builder.save_and_go_on(source) or builder.try_fuse(source)
    if layer is None:
        return conv(builder, position, node)
    return _join(layer, position, Scale(layer.temp, *node.inputs[1:]))


def _scales_evenly(builder: Builder, node: Node) -> bool:
    """Whether a convolution multiplies each channel by a factor above 0, the smallest of which still has bits enough
    where the largest has all."""
    if not is_channelwise(builder.graph, node):
        return False
    factors = builder.graph.constants[node.input(1)]
    return bool(factors.min() > 0 and factors.max() <= MOST_UNEVEN * factors.min())


def _join(layer: Open, position: int, operation: Scale | Relu | Minimum | MaxPool, *, new_temp: bool = False) -> Open:
    """What has saved keeps its position: others read that."""
    return layer.join(layer.position if layer.has(Save) else position, operation, new_temp=new_temp)


def _relu(builder: Builder, position: int, node: Node) -> Open:
    source = node.input(0)
    before, after = builder.scales.get(source), builder.scales.get(node.output)
    layer = _try_fuse(builder, source, Convolution, Load, Add, Scale, ScaleChannels) if before in (None,
        after) else None
    layer = layer or Open(node.name, position, (Load(builder.var(source), "%0"),))
    return _join(layer, position, Relu(layer.temp))


def _clip(builder: Builder, position: int, node: Node) -> Open:
    """From 0 to a limit. Where nothing but its own range decides its scale, that ends at the limit."""
    limit = float(builder.graph.constants[node.input(2)])
    readers = builder.consumers.get(node.output, [])
    if node.output in builder.parts or any(reader.op in SHARE_SCALE for reader in readers):
        steps = of_steps((("Max", (0, 0.0), ()), ("Min", (1, limit), ())), "keeps_zero")
        return _lookup(builder, position, node.replace(op=FUNCTION, attributes=dict(steps), origin="Clip"))
    layer = _relu(builder, position, node)
    return _join(layer, position, Minimum(layer.temp, limit))


def _max_pool(builder: Builder, position: int, node: Node) -> Open:
    """Joins a convolution where that is worth it."""
    need_pool(builder, node)
    source, size = builder.var(node.input(0)), builder.var(node.output).size
    partitions = window_of(node).partitions(source.size, size)
    layer = _try_fuse_function(builder, source.name, node.output) if partitions else None
    if layer is None and (partitions or _is_worth_more(builder, source.name)):
        layer = _try_fuse_rounded(builder, source.name)
    layer = layer or Open(node.name, position, (Load(source, "%0"),))
    pool = MaxPool(layer.temp, window_of(node), f"%{layer.temps}", size)
    return _join(layer, position, pool, new_temp=True)


def _try_fuse_function(builder: Builder, name: str, output: str) -> Open | None:
    """Takes out a layer that ends with a function whose values have the scale of ``output``; what others read too is
    saved before."""
    layer = builder.made.get(name)
    if not _ends_with(layer, Lookup, Translate) or builder.scales.get(name) != builder.scales.get(output):
        return None
    if isinstance(layer.operations[-1], Translate):
        if not isinstance(layer.operations[0], Convolution):
            return None
        builder.made[name] = layer.join(layer.position, Round(layer.temp, builder.var(name)))
    return builder.save_and_go_on(name) or builder.try_fuse(name)


def _is_worth_more(builder: Builder, name: str) -> bool:
    """Whether a max pool of a convolution's result costs more than the pixels that regions of the result share, and
    compute twice."""
    layer = builder.made.get(name)
    if layer is None or not isinstance(layer.operations[0], Convolution):
        return False
    core = layer.operations[0]
    tiles = core.input.tiles(builder.arch.array_size)
    return len([*core.window.taps()]) * (1 if core.group > 1 else tiles) <= FEW_WEIGHT_TILES


def _lookup(builder: Builder, position: int, node: Node) -> Open:
    arch, source = builder.arch, node.input(0)
    if not has_byte_tables(arch):
        raise refuse_node(node.replace(op=node.origin or node.op), "architecture keys lut_count, lut_depth",
                          f"{arch.lut_count}, {arch.lut_depth}",
                          f"at least 1, {BYTE_TABLE_DEPTH} (a value for every byte)",
                          f"choose an architecture with lut_count 1 and lut_depth {BYTE_TABLE_DEPTH}, or with "
                          f"activation_tables 1, or {ON_HOST}")
    if arch.activation_tables:
        return _translate(builder, position, node)
    layer = _try_fuse_rounded(builder, source) or Open(node.name, position, (Load(builder.var(source), "%0"),))
    return layer.join(position, Lookup(layer.temp, node.op, tuple(sorted(node.attributes.items())), source))


def _translate(builder: Builder, position: int, node: Node) -> Open:
    """A function on the way out, of a convolution or of bytes that are loaded. With a max pool behind it the latter is
    the SIMD unit's: both at once are one way in and one out."""
    source = node.input(0)
    function = node.op, tuple(sorted(node.attributes.items())), source
    layer = _try_fuse_convolution(builder, source)
    if layer is None:
        layer = Open(node.name, position, (Load(builder.var(source), "%0"),))
        pooled = any(reader.op == "MaxPool" for reader in builder.consumers.get(node.output, []))
        if pooled and simd_has_byte_tables(builder.arch):
            return layer.join(position, Lookup(layer.temp, *function))
    return layer.join(position, Translate(layer.temp, builder.var(source), *function))


def _scale_channels(builder: Builder, position: int, node: Node) -> Open:
    image, factors = map(builder.var, node.inputs)
    return Open(node.name, position, (Load(image, "%0"), ScaleChannels("%0", factors)))


def _refuse(builder: Builder, position: int, node: Node) -> Open:
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
