"""Layers of a machine of bytes with scales. What leaves the accumulators is scaled and rounded to bytes; what comes in
again has lost its bits. So a layer goes on over a tensor only where that changes nothing:

* a convolution, or a sum of tensors as they are loaded; then at most a ReLU, and a limit at which its scale ends;
* a max pool, or a function of one number by its table of 256 values, of bytes as they are.

A tensor that keeps the scale of the network's file is rounded to it: over that, only a ReLU of the same scale goes on.
"""

from __future__ import annotations

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.graph import Node
from weft.compiler.layers.builder import Builder, Handler, Open, conv, enlarge, need_registers, window_of
from weft.compiler.layers.hir import Add, Convolution, Load, Lookup, MaxPool, Minimum, Relu
from weft.compiler.passes.functions import FUNCTION, of_steps
from weft.compiler.passes.fuse_functions import BYTE_TABLE_DEPTH, has_byte_tables
from weft.compiler.passes.operators import CANONICAL_FUNCTIONS

SHARE_SCALE = frozenset({"Assemble", "Enlarge", "MaxPool", "View"})
"""What reads a tensor and may give it the scale of others."""


def _take(builder: Builder, name: str, *allowed: type) -> Open | None:
    """Takes out the layer that makes a tensor where it does nothing but what is allowed."""
    layer = builder.made.get(name)
    if layer is None or not all(isinstance(operation, allowed) for operation in layer.operations):
        return None
    return builder.take(name)


def _add(builder: Builder, position: int, node: Node) -> Open:
    """Joins a sum that is not rounded yet."""
    for name, other in (node.inputs, node.inputs[::-1]):
        layer = _take(builder, name, Load, Add) if name not in builder.scales else None
        if layer is not None:
            return layer.join(position, Add(builder.var(other), layer.temp))
    left, right = node.inputs
    return Open(node.name, position, (Load(builder.var(left), "%0"), Add(builder.var(right), "%0")))


def _relu(builder: Builder, position: int, node: Node) -> Open:
    source = node.input(0)
    before, after = builder.scales.get(source), builder.scales.get(node.output)
    layer = _take(builder, source, Convolution, Load, Add) if before in (None, after) else None
    layer = layer or Open(node.name, position, (Load(builder.var(source), "%0"),))
    return layer.join(position, Relu(layer.temp))


def _clip(builder: Builder, position: int, node: Node) -> Open:
    """From 0 to a limit. Where nothing but its own range decides its scale, that ends at the limit."""
    limit = float(builder.graph.constants[node.input(2)])
    readers = builder.consumers.get(node.output, [])
    if node.output in builder.parts or any(reader.op in SHARE_SCALE for reader in readers):
        steps = of_steps((("Max", (0, 0.0), ()), ("Min", (1, limit), ())), "keeps_zero")
        return _lookup(builder, position, node.replace(op=FUNCTION, attributes=dict(steps), origin="Clip"))
    layer = _relu(builder, position, node)
    return layer.join(position, Minimum(layer.temp, limit))


def _max_pool(builder: Builder, position: int, node: Node) -> Open:
    need_registers(builder.arch, node)
    size = builder.var(node.output).size
    return Open(node.name, position, (Load(builder.var(node.input(0)), "%0"),
                                      MaxPool("%0", window_of(node), "%1", size)), temps=2)


def _lookup(builder: Builder, position: int, node: Node) -> Open:
    arch, source = builder.arch, node.input(0)
    if not has_byte_tables(arch):
        raise refuse_node(node.replace(op=node.origin or node.op), "architecture keys lut_count, lut_depth",
                          f"{arch.lut_count}, {arch.lut_depth}",
                          f"at least 1, {BYTE_TABLE_DEPTH} (a value for every byte)",
                          f"choose an architecture with lut_count 1 and lut_depth {BYTE_TABLE_DEPTH}, or {ON_HOST}")
    function = Lookup("%0", node.op, tuple(sorted(node.attributes.items())), source)
    return Open(node.name, position, (Load(builder.var(source), "%0"), function))


def _refuse(builder: Builder, position: int, node: Node) -> Open:
    raise refuse_node(node.replace(op=node.origin or node.op), "two computed tensors to multiply",
                      f"data_type {builder.arch.data_type}", "data types of fixed point",
                      f"choose an architecture with data_type FP16BP8, or {ON_HOST}")


SCALED_HANDLERS: dict[str, Handler] = {
    "Add": _add,
    "Clip": _clip,
    "Conv": conv,
    "Enlarge": enlarge,
    "LeakyRelu": _lookup,
    "MaxPool": _max_pool,
    "Mul": _refuse,
    "Product": _refuse,
    "Relu": _relu,
    **dict.fromkeys(sorted(CANONICAL_FUNCTIONS), _lookup),
}
