# SPDX-License-Identifier: Apache-2.0
"""Common parts of building layers: open layers, the builder's state, and tensors that are parts of others.

While the graph is walked, stages join an open layer one after the other. When the layer is closed, each of them becomes
a field of the Layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from weft.compiler.errors import ON_HOST, refuse_node
from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.layers.beside import LEAST
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import (
    Add,
    Convolution,
    Core,
    Elementwise,
    Load,
    Lookup,
    MaxPool,
    Multiply,
    Rounding,
    Save,
    Scale,
    Translate,
)
from weft.compiler.layers.var import Part, Var
from weft.compiler.lowering.operators import OPERATORS
from weft.hw.contract.arch import Arch
from weft.tmodel.scales import TensorScale

MOST_TILE_WEIGHTS = 1 << 25
"""The most weights of one output tile, with zeros to fill up tiles: laid out they take 256 MB."""

MOST_MAXIMA = 1 << 19
"""The most instructions of a max pool that does not fit a loop, for each channel tile."""

FEW_WEIGHT_TILES = 8
"""The most weight tiles of an output tile for which a convolution is fused with its max pool, if that is short.

With 7 SqueezeNet's first convolution gains by it on 24 lanes, with 10 on 16 lanes it loses."""

MOST_STAGES = 255
"""The most stages in one layer; a sum of thousands of tensors continues in the next layer."""


@dataclass(frozen=True)
class Relu:
    """A ReLU that joins a layer; it is applied where the result is next requantized."""


@dataclass(frozen=True)
class Round:
    """A rounding of the result to ``tensor`` that joins a layer."""

    tensor: Var


@dataclass(frozen=True)
class ScaleChannels:
    """A computed factor for each channel that joins a layer: the first pixel of ``factors``."""

    factors: Var


@dataclass(frozen=True)
class SaveHere:
    """A save of the result so far that joins a layer, before what joins later."""

    var: Var


Stage = (Add | Multiply | Lookup | Translate | Elementwise | MaxPool | Scale | ScaleChannels | Relu | Round | SaveHere)
"""What may join an open layer."""


@dataclass(frozen=True)
class Open:
    """A layer being built: its core, and the stages that joined it so far, in the order of the graph.

    ``position`` is that of its last node in the graph."""

    name: str
    position: int
    core: Core
    stages: tuple[Stage, ...] = ()

    def has(self, *kinds: type) -> bool:
        """Tell whether the layer contains a stage of one of ``kinds``."""
        return not self.kinds.isdisjoint(kinds)

    @property
    def is_full(self) -> bool:
        """Whether the layer has the most stages allowed, so that none may join."""
        return len(self.stages) >= MOST_STAGES

    @cached_property
    def kinds(self) -> frozenset[type]:
        """The classes of the layer's stages."""
        return frozenset(map(type, self.stages))

    @property
    def last(self) -> Core | Stage:
        """The stage that joined last, or the core."""
        return self.stages[-1] if self.stages else self.core

    def join(self, position: int, stage: Stage) -> Open:
        """Return the layer with ``stage`` appended, at ``position``."""
        return replace(self, position=position, stages=(*self.stages, stage))

    def close(self, output: Var) -> Layer:
        """Return the whole layer, which saves its result as ``output``."""
        found: dict[str, Any] = {}
        adds: list[Add | Multiply] = []
        saves: list[Save] = []
        relu, scale = False, None
        for stage in (*self.stages, SaveHere(output)):
            match stage:
                case Add() | Multiply():
                    adds.append(stage)
                case Relu():
                    relu = True
                case Scale():
                    scale = stage
                case Round():
                    found["rounding"], relu = Rounding(stage.tensor, relu), False
                case ScaleChannels():
                    found["factors"] = stage.factors
                case SaveHere():
                    saves.append(Save(stage.var, relu, self.has(MaxPool) and "pool" not in found, scale))
                case _:
                    name = FIELDS.get(type(stage), "elementwise")
                    assert name not in found, f"layer {self.name}: {stage} and {found[name]}"
                    found[name] = stage
        return Layer(self.name, self.core, tuple(saves), adds=tuple(adds), **found)


FIELDS = {Lookup: "lookup", Translate: "translation", MaxPool: "pool"}
"""The field of a Layer for each stage that becomes one as it is; others are elementwise."""


@dataclass
class Builder:
    """The state of building layers while the graph is walked once.

    ``made`` maps a tensor to the open layer that makes it. ``parts`` says where tensors lie inside others. ``scales``
    has the tensors that keep the scale of the network's file. ``pools_alone``: whether max pools may have layers of
    their own where their convolutions could do them; what they pool then has a place in DRAM0."""

    graph: Graph
    arch: Arch
    consumers: Mapping[str, Sequence[Node]]
    parts: dict[str, Part]
    scales: Mapping[str, TensorScale] = field(default_factory=dict)
    pools_alone: bool = True
    made: dict[str, Open] = field(default_factory=dict)

    def var(self, name: str) -> Var:
        """Return the Var of a tensor of the graph, with its shape and its place inside another tensor, if any."""
        _, channels, height, width = self.graph.shapes[name]
        return Var(name, channels, height, width, self.parts.get(name))

    def try_fuse(self, name: str, *excluded: type) -> Open | None:
        """Take out and return the layer that makes tensor ``name``, to add stages to it.

        Return None if the tensor has several readers, or the layer is full, has saved, or contains a stage of
        ``excluded``."""
        layer = self.made.get(name)
        if layer is None or self.is_shared(name) or layer.is_full or layer.has(SaveHere, *excluded):
            return None
        return self.made.pop(name)

    def position(self, name: str) -> int:
        """Return the position of the open layer that makes a tensor; -1 for inputs and closed layers."""
        return self.made[name].position if name in self.made else -1

    def is_shared(self, name: str) -> bool:
        """Tell whether a tensor has several readers or is an output of the network."""
        return len(self.consumers.get(name, [])) != 1 or name in self.graph.output_tensors()

    def save_and_go_on(self, name: str, *excluded: type) -> Open | None:
        """Save a shared tensor in the layer that makes it, and take that layer out to save a second one.

        Return the extended layer, or None if it is closed or has a stage of ``excluded``. The caller must keep the
        layer's position, because others read the tensor from there on."""
        layer = self.made.get(name)
        if layer is None or not self.is_shared(name) or layer.has(SaveHere, *excluded):
            return None
        del self.made[name]
        return layer.join(layer.position, SaveHere(self.var(name)))

    def fuse_or_load(self, name: str, node: Node, position: int, *excluded: type) -> Open:
        """Return the layer that makes ``name``, taken out to add to it, or else a new one that loads it."""
        return self.try_fuse(name, *excluded) or Open(node.name, position, Load(self.var(name)))


def find_parts(graph: Graph, lanes: int) -> dict[str, Part]:
    """Return, for each tensor that lies inside another one (inputs of Assemble, outputs of View), its place there.

    An input of an Assemble whose result is itself an input of an Assemble lies in the outermost tensor."""
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
    """Return the place of a View node's output: inside its input, or inside the tensor ``inside`` that holds this."""
    _, _, height, width = graph.shapes[node.input(0)]
    offset, pitch, step = (node.attributes[key] for key in ("offset", "pitch", "step"))
    if inside is None:
        return Part(node.input(0), 0, offset, pitch, step, height * width)
    row, column = divmod(offset, width)
    right = inside.pitch if width == 1 else inside.step  # from one pixel to the next
    first = inside.offset + row * inside.pitch + column * right
    down = pitch * right if inside.pitch == width * right else pitch // width * inside.pitch
    return Part(inside.root, inside.tile, first, down, step * right, inside.pixels)


def drawn_macs(node: Node) -> int:
    """Return the multiply-accumulates of a node as the network's file draws it.

    Nodes that only use the array, as average pools and normalisations do, count 0."""
    counted = node.origin in OPERATORS and OPERATORS[node.origin].counted
    return node.macs or 0 if counted else 0


# -- nodes that open layers on every machine ---------------------------------------------------------------------------
def conv(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer with the node's convolution. Raise CompileError if its weights are too many to be laid out."""
    size = builder.graph.shapes[node.output][2:]
    _need_tile(builder, node)
    core = Convolution(builder.var(node.input(0)), node.input(1), node.input(2), node.attributes["group"],
                       node.window, (size[0], size[1]), drawn_macs(node))
    return Open(node.name, position, core)


def _need_tile(builder: Builder, node: Node) -> None:
    """Raise CompileError if the weights of one output tile are too many to be laid out."""
    _, per_group, height, width = builder.graph.constants[node.input(1)].shape
    lanes = builder.arch.array_size
    inputs = per_group if node.attributes["group"] == 1 else lanes
    size = height * width * -(-inputs // lanes) * lanes ** 2
    if size > MOST_TILE_WEIGHTS:
        raise refuse_node(node.replace(op=node.origin or node.op), f"weights of {lanes} channels, filled up to whole "
                          f"tiles of {lanes} lanes", size, f"at most {MOST_TILE_WEIGHTS}",
                          f"use a smaller kernel, or {ON_HOST}")


def enlarge(builder: Builder, position: int, node: Node) -> Open:
    """Return a layer that loads the node's input, each pixel repeated by the node's factors."""
    return Open(node.name, position, Load(builder.var(node.input(0)), node.attributes["factors"]))


def need_registers(arch: Arch, node: Node) -> None:
    """Raise CompileError if the machine's SIMD unit has no registers."""
    if arch.simd_registers_depth < 1:
        raise refuse_node(node, "architecture key simd_registers_depth", arch.simd_registers_depth, "at least 1",
                          f"choose an architecture with simd_registers_depth 1 or more, or {ON_HOST}")


def need_pool(builder: Builder, node: Node) -> None:
    """Raise CompileError if the machine cannot run a max pool.

    Maxima need a register of the SIMD unit. A window that is too large for a loop takes one instruction for each of its
    pixels; these are limited by MOST_MAXIMA."""
    arch, window, size = builder.arch, node.window, builder.var(node.output).size
    need_registers(arch, node)
    maxima = window.work(builder.var(node.input(0)).size, size)
    if MaxPool(window, size).longest > arch.simd_loop_depth and maxima > MOST_MAXIMA:
        raise refuse_node(node.replace(op=node.origin or node.op), f"windows of {list(window.kernel)} pixels, in all",
                          f"{maxima} pixels", f"at most {MOST_MAXIMA} where a window is larger than simd_loop_depth "
                          f"{arch.simd_loop_depth}", f"pool in several steps, or {ON_HOST}")


def pools_alone(builder: Builder, name: str, pool: MaxPool) -> bool:
    """Tell whether a max pool of the tensor ``name`` should have a layer of its own, and not that of its convolution.

    Within it, pixels that windows of two output tiles share are computed twice, which costs many weight tiles most.
    Alone, a long pool runs in stripes with the convolution (``memory/stripes.py``). On INT8 machines the result goes
    through local memory anyway, so either is enough; on others both must be so."""
    layer, var = builder.made.get(name), builder.var(name)
    if not builder.pools_alone or layer is None or not isinstance(layer.core, Convolution):
        return False
    if pool.window.partitions(var.size, pool.size):
        return False
    tiles = layer.core.input.tiles(builder.arch.array_size) if layer.core.group == 1 else 1
    work = pool.operations * math.prod(pool.size) * var.tiles(builder.arch.array_size)
    reasons = len(layer.core.window.taps()) * tiles > FEW_WEIGHT_TILES, work >= LEAST
    return any(reasons) if builder.arch.scheme.per_lane else all(reasons)


Handler = Callable[[Builder, int, Node], Open]
"""A function of the builder, a node's position and the node, which returns the layer that makes its output."""
