# SPDX-License-Identifier: Apache-2.0
"""Build the layers (HIR) of a graph: each node opens a layer or joins the one that makes the tensor it reads.

A layer stays open while its result has one reader only. Nodes may join it in this order: residual adds, one ReLU, one
upper limit, leaky ReLU or slopes of channels, one max pool. These commute, unless a slope is negative or above 1, so
their order in the graph does not matter. A result with several readers may be saved twice, as it is and after a ReLU or
a max pool; then the layer is closed."""

from __future__ import annotations

from collections.abc import Mapping

from weft.compiler.errors import ON_HOST, CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.layers.build_scaled import SCALED_HANDLERS
from weft.compiler.layers.builder import (
    Builder,
    Handler,
    Open,
    Relu,
    conv,
    drawn_macs,
    enlarge,
    find_parts,
    need_pool,
    need_registers,
    pools_alone,
)
from weft.compiler.layers.hir import Layers
from weft.compiler.layers.stages import (
    Abs,
    Add,
    Gate,
    LeakyRelu,
    Load,
    Lookup,
    MaxPool,
    Minimum,
    Multiply,
    Product,
    Slopes,
    SteepSlopes,
)
from weft.compiler.lowering.operators import CANONICAL_FUNCTIONS
from weft.compiler.passes.fuse_gates import GATE
from weft.hw.contract.arch import Arch
from weft.hw.contract.presets import presets
from weft.hw.contract.schemes import SchemeKind
from weft.tmodel.scales import TensorScale


def _product(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that multiplies the node's two tensors as matrices."""
    left, right = (builder.var(name) for name in node.inputs)
    assert right.part is None or right.height == 1 or right.part.pitch == 1, "weights lie behind each other"
    return Open(node.name, position, Product(left, right, node.output, drawn_macs(node)))


CLOSING = Multiply, Lookup, Abs, Gate, SteepSlopes
"""Stages that end a layer: after one of them the result can only be saved."""
ELEMENTWISE = Minimum, LeakyRelu, Slopes, *CLOSING
"""Stages that the SIMD unit applies to every vector; a layer has at most one of them."""


def _add(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that adds the node's two tensors, fused with the one that makes an operand where possible.

    The layer of the operand that is made later is taken, and the other operand becomes its residual."""
    closed = (Relu, MaxPool, *ELEMENTWISE)
    ready = [name for name in node.inputs if name in builder.made and not builder.made[name].has(*closed)]
    ready.sort(key=lambda name: -builder.made[name].position)
    for name in ready:
        layer = builder.try_fuse(name, *closed)
        if layer is not None:
            other = next((entry for entry in node.inputs if entry != name), name)
            return layer.join(position, Add(builder.var(other)))
    left, right = node.inputs
    return Open(node.name, position, Load(builder.var(left)), (Add(builder.var(right)),))


def _relu(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's ReLU, fused with the layer that makes its input where possible."""
    both = builder.save_and_go_on(node.input(0), Relu, MaxPool, *ELEMENTWISE)
    if both is not None:
        return both.join(both.position, Relu())
    layer = builder.fuse_or_load(node.input(0), node, position, LeakyRelu, Slopes, *CLOSING)
    return layer if layer.has(Relu) else layer.join(position, Relu())


def _clip(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that limits the node's input to 0 and an upper limit.

    Raise CompileError if neither the SIMD unit nor the requantizer can do it."""
    if not builder.arch.output_maximum:
        need_registers(builder.arch, node)
    layer = builder.fuse_or_load(node.input(0), node, position, *ELEMENTWISE)
    limited = layer.join(position, Minimum(float(builder.graph.constants[node.input(2)])))
    return limited if layer.has(Relu) else limited.join(position, Relu())


def _abs(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the magnitude of the node's input, fused with the one that makes it if possible."""
    layer = builder.fuse_or_load(node.input(0), node, position, Relu, MaxPool, *ELEMENTWISE)
    return layer.join(position, Abs())


def _gate(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's Gate (as in hard swish), fused where possible."""
    layer = builder.fuse_or_load(node.input(0), node, position, Relu, MaxPool, *ELEMENTWISE)
    return layer.join(position, Gate(node.input(0), node.attributes["offset"], node.attributes["limit"]))


def _leaky_relu(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's leaky ReLU.

    Raise CompileError if neither the SIMD unit nor the requantizer can do it."""
    if not builder.arch.output_slope:
        need_registers(builder.arch, node)
    layer = builder.fuse_or_load(node.input(0), node, position, Relu, *ELEMENTWISE)
    return layer.join(position, LeakyRelu(node.attributes["alpha"]))


def _slopes(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's slopes, one for each channel, fused where possible.

    The result before them must have the range that calibration saw, so nothing but sums comes before them."""
    kind = SteepSlopes if builder.graph.constants[node.input(1)].max() > 1 else Slopes
    layer = builder.fuse_or_load(node.input(0), node, position, Relu, MaxPool, *ELEMENTWISE)
    return layer.join(position, kind(node.input(0), node.input(1)))


def _fall(builder: Builder, name: str) -> bool:
    """Tell whether slopes that make a tensor are below 0 for some channel, so that no max pool commutes with them."""
    layer = builder.made.get(name)
    return layer is not None and any(isinstance(stage, Slopes) and bool(builder.graph.constants[stage.slopes].min() < 0)
                                     for stage in layer.stages)


def _max_pool(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that ends with the node's max pool, fused with the one that makes its input where possible.

    A shared input is saved in the same layer if the windows partition the image. Raise CompileError if the machine
    cannot pool so."""
    need_pool(builder, node)
    source, pool = builder.var(node.input(0)), MaxPool(node.window, builder.var(node.output).size)
    if pools_alone(builder, source.name, pool):
        return Open(node.name, position, Load(source), (pool,))
    closed = (MaxPool, *CLOSING, *(Slopes,) * _fall(builder, source.name))
    both = (builder.save_and_go_on(source.name, *closed)
            if pool.window.partitions(source.size, pool.size) else None)
    layer = both or builder.fuse_or_load(source.name, node, position, *closed)
    return layer.join(both.position if both else position, pool)


def _mul(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that multiplies the node's two tensors element by element.

    It joins the layer that repeats one operand's pixels, if there is one, so that only these few pixels are read."""
    need_registers(builder.arch, node)
    for name, other in (node.inputs, node.inputs[::-1]):
        layer = builder.made.get(name)
        if layer is not None and not layer.stages and isinstance(layer.core, Load):
            taken = builder.try_fuse(name)
            if taken is not None:
                return taken.join(position, Multiply(builder.var(other)))
    left, right = node.inputs
    return Open(node.name, position, Load(builder.var(left)), (Multiply(builder.var(right)),))


def _lookup(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that computes a function of one number by lookup table. Raise CompileError without tables."""
    if builder.arch.lut_count < TABLE_KEYS["lut_count"]:
        raise _no_tables(builder.arch, node)
    source = node.input(0)
    function = Lookup(node.op, tuple(sorted(node.attributes.items())), source)
    return Open(node.name, position, Load(builder.var(source)), (function,))


TABLE_KEYS = {"lut_count": 2, "lut_depth": 256, "simd_registers_depth": 3}
"""The least value of each architecture key for functions of one number by lookup table.

They need a table of values and one of slopes, their entries, and SIMD registers for the results."""


def _no_tables(arch: Arch, node: Node) -> CompileError:
    """Return the CompileError for a machine without lookup tables: all keys at once, and presets that have tables."""
    keys = [f"{key} {getattr(arch, key)}" for key in TABLE_KEYS]
    alike = {name: preset for name in presets()
             if (preset := Arch.load(name)).scheme.kind is arch.scheme.kind}
    having = [name for name, preset in alike.items() if preset.lut_count >= TABLE_KEYS["lut_count"]]
    return refuse_node(node.replace(op=node.origin or node.op), "architecture keys", ", ".join(keys),
                       ", ".join(f"{key} at least {least}" for key, least in TABLE_KEYS.items()),
                       f"compile for {' or '.join(having)}, which have lookup tables, or give this machine some "
                       f"({' '.join(f'--set {key}={value}' for key, value in TABLE_KEYS.items())}), or {ON_HOST}")


HANDLERS: dict[str, Handler] = {
    "Abs": _abs,
    "Add": _add,
    "Clip": _clip,
    "Conv": conv,
    "Enlarge": enlarge,
    GATE: _gate,
    "LeakyRelu": _leaky_relu,
    "MaxPool": _max_pool,
    "Mul": _mul,
    "PRelu": _slopes,
    "Product": _product,
    "Relu": _relu,
    **dict.fromkeys(sorted(CANONICAL_FUNCTIONS), _lookup),
}
HANDLERS_OF = {SchemeKind.FIXED_POINT: HANDLERS, SchemeKind.AFFINE: SCALED_HANDLERS}


def build_layers(graph: Graph, arch: Arch, scales: Mapping[str, TensorScale] | None = None,
                 refused: list[CompileError] | None = None, pools_alone: bool = True) -> Layers:
    """Return the layers of a graph, in an order that respects their dataflow.

    ``scales`` gives the scale of each tensor that keeps the one of the network's file. ``pools_alone``: whether max
    pools may have layers of their own. Raise CompileError for what the machine cannot compute. With ``refused`` such
    errors are added to that list instead, one for each node of the model; the result is then of no use."""
    builder = Builder(graph, arch, graph.consumers(), find_parts(graph, arch.array_size),
                      scales or {}, pools_alone)
    handlers = HANDLERS_OF[arch.scheme.kind]
    for position, node in enumerate(graph.nodes):
        if node.op in ("Assemble", "View"):
            continue
        try:
            builder.made[node.output] = handlers[node.op](builder, position, node)
        except CompileError as error:
            if refused is None:
                raise
            if all(other.node != error.node for other in refused[-1:]):
                refused.append(error)
    ordered = sorted(builder.made.items(), key=lambda item: item[1].position)
    return Layers(layer.close(builder.var(name)) for name, layer in ordered)
