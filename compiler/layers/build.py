"""Graph -> layers: each node opens a layer or joins the one that makes the tensor it reads.

A layer stays open while its result has one reader only. What may join, in this order: residual adds, one ReLU,
one upper limit or leaky ReLU, one max pool (these commute, so their order in the graph does not matter). A result that
others read too may be saved twice, as it is and after a ReLU or a max pool; then the layer is closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from weft.compiler.errors import ON_HOST, CompileError, refuse_node
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.layers.hir import (
    Add,
    Convolution,
    Layer,
    LayerOperation,
    Layers,
    LeakyRelu,
    Load,
    Lookup,
    MaxPool,
    Minimum,
    Multiply,
    Part,
    Product,
    Relu,
    Save,
    Var,
)
from weft.compiler.passes.operators import CANONICAL_FUNCTIONS, OPERATORS
from weft.hw.contract.arch import Arch, presets
from weft.runtime.window import Window


@dataclass(frozen=True)
class Open:
    """A layer being built: ``position`` is that of its last node, ``temp`` the Temp that holds its result."""

    name: str
    position: int
    operations: tuple[LayerOperation, ...]
    temps: int = 1

    @property
    def temp(self) -> str:
        return f"%{self.temps - 1}"

    def has(self, *kinds: type) -> bool:
        return any(isinstance(operation, kinds) for operation in self.operations)

    def join(self, position: int, operation: LayerOperation, new_temp: bool = False) -> Open:
        return replace(self, position=position, operations=(*self.operations, operation),
                       temps=self.temps + new_temp)


@dataclass
class Builder:
    """Tensor -> the layer that makes it, while the graph is walked once."""

    graph: Graph
    arch: Arch
    consumers: dict[str, list[Node]]
    parts: dict[str, Part]
    made: dict[str, Open] = field(default_factory=dict)

    def var(self, name: str) -> Var:
        _, channels, height, width = self.graph.shapes[name]
        return Var(name, channels, height, width, self.parts.get(name))

    def take(self, name: str, *excluded: type) -> Open | None:
        """Takes out the layer that makes a tensor, to add to it; None when the layer is closed."""
        layer = self.made.get(name)
        if layer is None or self.is_shared(name) or layer.has(Save, *excluded):
            return None
        return self.made.pop(name)

    def is_shared(self, name: str) -> bool:
        """Whether a tensor has several readers, or is an output."""
        return len(self.consumers.get(name, [])) != 1 or name in self.graph.output_tensors()

    def save_and_go_on(self, name: str, *excluded: type) -> Open | None:
        """Saves a shared tensor in the layer that makes it, and takes that layer out so that it can save a second one;
        None when the layer is closed. The layer must keep its position, for others read the tensor from there on."""
        layer = self.made.get(name)
        if layer is None or not self.is_shared(name) or layer.has(Save, *excluded):
            return None
        del self.made[name]
        return layer.join(layer.position, Save(layer.temp, self.var(name)))

    def take_or_load(self, name: str, node: Node, position: int, *excluded: type) -> Open:
        return self.take(name, *excluded) or Open(node.name, position, (Load(self.var(name), "%0"),))


def build_layers(graph: Graph, arch: Arch) -> Layers:
    """The layers in an order that respects their dataflow. Raises CompileError for what the SIMD unit lacks."""
    builder = Builder(graph, arch, graph.consumers(), find_parts(graph, arch.array_size))
    for position, node in enumerate(graph.nodes):
        if node.op in ("Assemble", "View"):
            continue
        builder.made[node.output] = HANDLERS[node.op](builder, position, node)
    ordered = sorted(builder.made.items(), key=lambda item: item[1].position)
    return Layers(Layer(layer.name, (*layer.operations, Save(layer.temp, builder.var(name))))
                  for name, layer in ordered)


def find_parts(graph: Graph, lanes: int) -> dict[str, Part]:
    """Tensors that lie inside others: what is assembled, and views. What is assembled of assembled tensors has all of
    their pixels, as they are."""
    parts: dict[str, Part] = {}
    for node in reversed(graph.nodes):
        if node.op == "Assemble":
            pixels = math.prod(graph.shapes[node.output][2:])
            inside = parts.get(node.output)
            root, first = (inside.root, inside.tile) if inside else (node.output, 0)
            for name, (channel, offset, pitch, step) in zip(node.inputs, node.attributes["places"], strict=True):
                parts[name] = Part(root, first + channel // lanes, offset, pitch, step, pixels)
    for node in graph.nodes:
        if node.op == "View":
            parts[node.output] = _view_of(graph, parts.get(node.input(0)), node)
    return parts


def _view_of(graph: Graph, inside: Part | None, node: Node) -> Part:
    _, _, height, width = graph.shapes[node.input(0)]
    offset, pitch, step = (node.attributes[key] for key in ("offset", "pitch", "step"))
    if inside is None:
        return Part(node.input(0), 0, offset, pitch, step, height * width)
    row, column = divmod(offset, width)
    first = inside.offset + row * inside.pitch + column * inside.step
    down = pitch * inside.step if inside.pitch == width * inside.step else pitch // width * inside.pitch
    return Part(inside.root, inside.tile, first, down, step * inside.step, inside.pixels)


def _window(node: Node) -> Window:
    attributes = node.attributes
    return Window(attributes["kernel_shape"], attributes["strides"], attributes["pads"][:2], attributes["dilations"])


def _counts(node: Node) -> bool:
    """Whether its multiply-accumulates are the network's: average pools and normalisations only use the array."""
    return node.origin in OPERATORS and OPERATORS[node.origin].counted


def _conv(builder: Builder, position: int, node: Node) -> Open:
    weights = builder.graph.constants[node.input(1)]
    size = builder.graph.shapes[node.output][2:]
    counted = math.prod(size) * weights.size if node.macs is None else node.macs
    macs = counted if _counts(node) else 0
    core = Convolution(builder.var(node.input(0)), node.input(1), node.input(2), node.attributes["group"],
                       _window(node), "%0", (size[0], size[1]), macs)
    return Open(node.name, position, (core,))


def _product(builder: Builder, position: int, node: Node) -> Open:
    left, right = (builder.var(name) for name in node.inputs)
    assert right.part is None or right.height == 1 or right.part.pitch == 1, "weights lie behind each other"
    macs = left.channels * left.height * left.width * right.channels if _counts(node) else 0
    return Open(node.name, position, (Product(left, right, node.output, "%0", macs),))


def _add(builder: Builder, position: int, node: Node) -> Open:
    """Joins the later of the two layers that make its operands; the other operand is the residual."""
    closed = (Relu, MaxPool, Minimum, LeakyRelu, Multiply, Lookup)
    ready = [name for name in node.inputs if name in builder.made and not builder.made[name].has(*closed)]
    ready.sort(key=lambda name: -builder.made[name].position)
    for name in ready:
        layer = builder.take(name, *closed)
        if layer is not None:
            other = next((entry for entry in node.inputs if entry != name), name)
            return layer.join(position, Add(builder.var(other), layer.temp))
    left, right = node.inputs
    return Open(node.name, position, (Load(builder.var(left), "%0"), Add(builder.var(right), "%0")))


def _relu(builder: Builder, position: int, node: Node) -> Open:
    both = builder.save_and_go_on(node.input(0), Relu, MaxPool, Minimum, LeakyRelu, Multiply, Lookup)
    if both is not None:
        return both.join(both.position, Relu(both.temp))
    layer = builder.take_or_load(node.input(0), node, position, LeakyRelu, Multiply, Lookup)
    return layer if layer.has(Relu) else layer.join(position, Relu(layer.temp))


def _clip(builder: Builder, position: int, node: Node) -> Open:
    _need_registers(builder.arch, node)
    layer = builder.take_or_load(node.input(0), node, position, Minimum, LeakyRelu, Multiply, Lookup)
    limited = layer.join(position, Minimum(layer.temp, float(builder.graph.constants[node.input(2)])))
    return limited if layer.has(Relu) else limited.join(position, Relu(layer.temp))


def _leaky_relu(builder: Builder, position: int, node: Node) -> Open:
    _need_registers(builder.arch, node)
    layer = builder.take_or_load(node.input(0), node, position, Relu, Minimum, LeakyRelu, Multiply, Lookup)
    return layer.join(position, LeakyRelu(layer.temp, node.attributes["alpha"]))


def _max_pool(builder: Builder, position: int, node: Node) -> Open:
    _need_registers(builder.arch, node)
    window, size = _window(node), builder.var(node.output).size
    both = (builder.save_and_go_on(node.input(0), MaxPool, Multiply, Lookup)
            if window.partitions(builder.var(node.input(0)).size, size) else None)
    layer = both or builder.take_or_load(node.input(0), node, position, MaxPool, Multiply, Lookup)
    pool = MaxPool(layer.temp, window, f"%{layer.temps}", size)
    return layer.join(both.position if both else position, pool, new_temp=True)


def _mul(builder: Builder, position: int, node: Node) -> Open:
    """Joins the layer that repeats one operand's pixels, if there is one: then only these few are read."""
    _need_registers(builder.arch, node)
    for name, other in (node.inputs, node.inputs[::-1]):
        layer = builder.made.get(name)
        if layer is not None and len(layer.operations) == 1 and isinstance(layer.operations[0], Load):
            taken = builder.take(name)
            if taken is not None:
                return taken.join(position, Multiply(builder.var(other), taken.temp))
    left, right = node.inputs
    return Open(node.name, position, (Load(builder.var(left), "%0"), Multiply(builder.var(right), "%0")))


def _lookup(builder: Builder, position: int, node: Node) -> Open:
    if builder.arch.lut_count < TABLE_KEYS["lut_count"]:
        raise _no_tables(builder.arch, node)
    source = node.input(0)
    function = Lookup("%0", node.op, tuple(sorted(node.attributes.items())), source)
    return Open(node.name, position, (Load(builder.var(source), "%0"), function))


TABLE_KEYS = {"lut_count": 2, "lut_depth": 256, "simd_registers_depth": 3}
"""What a machine for functions has: a table of values and one of slopes, their entries, registers for what they
give."""


def _no_tables(arch: Arch, node: Node) -> CompileError:
    """Names all keys at once, and the presets that have tables."""
    keys = [f"{key} {getattr(arch, key)}" for key in TABLE_KEYS]
    having = [name for name in presets() if Arch.load(name).lut_count >= TABLE_KEYS["lut_count"]]
    return refuse_node(node.replace(op=node.origin or node.op), "architecture keys", ", ".join(keys),
                       ", ".join(f"{key} at least {least}" for key, least in TABLE_KEYS.items()),
                       f"compile for {' or '.join(having)}, which have value tables, or give this machine some "
                       f"({' '.join(f'--set {key}={value}' for key, value in TABLE_KEYS.items())}), or {ON_HOST}")


def _need_registers(arch: Arch, node: Node) -> None:
    if arch.simd_registers_depth < 1:
        raise refuse_node(node, "architecture key simd_registers_depth", arch.simd_registers_depth, "at least 1",
                          f"choose an architecture with simd_registers_depth 1 or more, or {ON_HOST}")


def _enlarge(builder: Builder, position: int, node: Node) -> Open:
    return Open(node.name, position, (Load(builder.var(node.input(0)), "%0", node.attributes["factors"]),))


HANDLERS: dict[str, Callable[[Builder, int, Node], Open]] = {
    "Add": _add,
    "Clip": _clip,
    "Conv": _conv,
    "Enlarge": _enlarge,
    "LeakyRelu": _leaky_relu,
    "MaxPool": _max_pool,
    "Mul": _mul,
    "Product": _product,
    "Relu": _relu,
    **dict.fromkeys(sorted(CANONICAL_FUNCTIONS), _lookup),
}
