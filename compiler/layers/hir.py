# SPDX-License-Identifier: Apache-2.0
"""HIR, the compiler's form of layers: a core, operations on its result in the accumulators, and a save.

A second save, of the result after a ReLU, a max pool or a scaling, may follow. The core is ``mat_mul`` (a convolution
on the array), ``product`` (of two tensors as matrices) or ``load`` (a tensor brought into the accumulators as it is).
Operations name memory objects: Vars (tensors between layers), Consts (weights, bias) and Temps (values that live in the
accumulators during one layer only, named ``%0``, ``%1``, ...)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

from weft.compiler.text_form import parse_value
from weft.tmodel.window import Enlargement, Size, Window


@dataclass(frozen=True)
class Part:
    """The place of a Var inside the Var ``root``, whose channel tiles have ``pixels`` pixels each.

    It begins at channel tile ``tile``. Its pixel (y, x) is pixel ``offset`` + y * ``pitch`` + x * ``step`` of a
    tile."""

    root: str
    tile: int
    offset: int
    pitch: int
    step: int
    pixels: int


@dataclass(frozen=True)
class Var:
    """A tensor between layers, ``channels`` x ``height`` x ``width``.

    It has memory of its own, or is part of another Var."""

    name: str
    channels: int
    height: int
    width: int
    part: Part | None = None

    @property
    def root(self) -> str:
        """The name of the Var that has the memory: this one, or the one that it is part of."""
        return self.part.root if self.part else self.name

    @property
    def size(self) -> Size:
        """Height and width in pixels."""
        return self.height, self.width

    @property
    def first_tile(self) -> int:
        """The channel tile of the root at which this Var begins."""
        return self.part.tile if self.part else 0

    @property
    def tile_pixels(self) -> int:
        """The pixels, one vector each, of one channel tile of the root."""
        return self.part.pixels if self.part else self.height * self.width

    def tiles(self, lanes: int) -> int:
        """Return the number of channel tiles on an array of ``lanes`` lanes."""
        return -(-self.channels // lanes)

    def odd_tiles(self, lanes: int) -> int:
        """Return how many of this Var's channel tiles have an odd number within the root."""
        return (self.first_tile + self.tiles(lanes)) // 2 - self.first_tile // 2

    def vectors(self, lanes: int) -> int:
        """Return the size of the Var on an array of ``lanes`` lanes, in vectors."""
        return self.tiles(lanes) * self.height * self.width


@dataclass(frozen=True)
class Convolution:
    """A layer's core: the convolution of a Var with Consts into a Temp of ``size`` pixels.

    ``macs`` are the multiply-accumulates of the network as its file draws it."""

    input: Var
    weights: str
    bias: str
    group: int
    window: Window
    output: str
    size: Size
    macs: int


@dataclass(frozen=True)
class Product:
    """A layer's core: the matrix ``input`` [pixels, channels] times the matrix ``weights`` [pixels, channels].

    ``weights`` has as many pixels as ``input`` has channels; its rows lie one after the other, as the array takes
    weights. ``name`` is the result's name in the graph, ``macs`` the multiply-accumulates of the network as its file
    draws it."""

    input: Var
    weights: Var
    name: str
    output: str
    macs: int

    window = Window()
    group = 1

    @property
    def size(self) -> Size:
        """Height and width of the result in pixels: those of ``input``."""
        return self.input.size


@dataclass(frozen=True)
class Load:
    """A layer's core: a Var brought into a Temp, each pixel repeated ``factors`` (height, width) times."""

    input: Var
    output: str
    factors: Size = (1, 1)

    group = 1

    @property
    def window(self) -> Window:
        """The window that an output pixel reads: one pixel, or for repeated pixels an Enlargement by ``factors``."""
        return Window() if self.factors == (1, 1) else Enlargement(factors=self.factors)

    @property
    def size(self) -> Size:
        """Height and width of the result in pixels."""
        return self.input.height * self.factors[0], self.input.width * self.factors[1]


@dataclass(frozen=True)
class Round:
    """Rounding of the Temp ``target`` to the quantization parameters of ``tensor``, within a layer.

    The Temp is requantized into local memory and loaded back. ``tensor`` has quantization parameters but no DRAM."""

    target: str
    tensor: Var


@dataclass(frozen=True)
class Add:
    """The sum of the Temp ``target`` and a Var of the same shape, left in ``target``."""

    input: Var
    target: str


@dataclass(frozen=True)
class Multiply:
    """The product of the Temp ``target`` and a Var, element by element, left in ``target``."""

    input: Var
    target: str


@dataclass(frozen=True)
class Lookup:
    """A function of each scalar of the Temp ``target`` by a lookup table, left in ``target``.

    ``function`` is an ONNX operator with its ``attributes``; the table spans the range of the tensor ``source``."""

    target: str
    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class Translate:
    """A function that an activation table computes when the Temp ``target`` is next requantized.

    ``target`` gets the quantization parameters of ``tensor``, then the table of ``function`` (see :class:`Lookup`).
    ``tensor`` needs quantization parameters, but not memory."""

    target: str
    tensor: Var
    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class MaxPool:
    """The maximum over each window of the Temp ``source``, into the Temp ``output`` of ``size`` pixels."""

    source: str
    window: Window
    output: str
    size: Size


@dataclass(frozen=True)
class Minimum:
    """An upper limit: scalars of the Temp ``target`` above ``value`` become ``value``."""

    target: str
    value: float


@dataclass(frozen=True)
class Abs:
    """The magnitude: negative scalars of the Temp ``target`` change their sign."""

    target: str


@dataclass(frozen=True)
class Gate:
    """The Temp ``target`` times a gate: ``target`` plus ``offset``, limited to 0..``limit``.

    ``source`` is the tensor whose values ``target`` has."""

    target: str
    source: str
    offset: float
    limit: float


@dataclass(frozen=True)
class LeakyRelu:
    """A leaky ReLU: negative scalars of the Temp ``target`` are multiplied by ``slope``, 0 < slope < 1."""

    target: str
    slope: float


@dataclass(frozen=True)
class Scale:
    """A factor and an offset for each channel (Consts), applied when the Temp ``target`` is next requantized."""

    target: str
    weights: str
    bias: str


@dataclass(frozen=True)
class ScaleChannels:
    """A computed factor for each channel, applied when the Temp ``target`` is next requantized.

    The factors are the first pixel of ``factors``, whose pixels the instruction LoadScale reads."""

    target: str
    factors: Var


@dataclass(frozen=True)
class Relu:
    """A ReLU, applied when the Temp ``target`` is next requantized."""

    target: str


@dataclass(frozen=True)
class Save:
    """The end of a layer: the Temp ``source`` is requantized and stored as the Var ``output``."""

    source: str
    output: Var


LayerOperation = (Convolution | Product | Load | Round | Add | Multiply | Lookup | Translate | MaxPool | Minimum | Abs
                  | Gate | LeakyRelu | Scale | ScaleChannels | Relu | Save)


class Saved(NamedTuple):
    """One output of a layer: its Var, whether a ReLU applies, whether a max pool follows the save, and its scaling."""

    var: Var
    relu: bool
    before_pool: bool
    scale: Scale | None


@dataclass(frozen=True)
class Layer:
    """A layer: its core first, a Save last. ``name`` is the graph node that made the core.

    Between its first save and its last there is either only a scaling and a ReLU, so that both save the same
    accumulators, or only a max pool whose windows partition the image, so that each pixel is saved once. A Round rounds
    the core's result; residuals or a max pool follow it."""

    name: str
    operations: tuple[LayerOperation, ...]

    @cached_property
    def core(self) -> Convolution | Product | Load:
        """The first operation, which fills the accumulators."""
        core = self.operations[0]
        assert isinstance(core, Convolution | Product | Load)
        return core

    @cached_property
    def rounding(self) -> Round | None:
        """The Round of the core's result, or None."""
        return next((operation for operation in self.operations if isinstance(operation, Round)), None)

    @cached_property
    def rounds_relu(self) -> bool:
        """Whether a ReLU comes before the rounding."""
        return isinstance(self.operations[1], Relu) and self.rounding is not None

    @cached_property
    def adds(self) -> tuple[Add | Multiply, ...]:
        """The Adds and Multiplies, which read a second Var."""
        return tuple(operation for operation in self.operations if isinstance(operation, Add | Multiply))

    @cached_property
    def multiplies(self) -> bool:
        """Whether the layer has a Multiply."""
        return any(isinstance(operation, Multiply) for operation in self.operations)

    @cached_property
    def lookup(self) -> Lookup | None:
        """The Lookup, or None."""
        return next((operation for operation in self.operations if isinstance(operation, Lookup)), None)

    @cached_property
    def translation(self) -> Translate | None:
        """The Translate, or None."""
        return next((operation for operation in self.operations if isinstance(operation, Translate)), None)

    @property
    def function(self) -> Lookup | Translate | None:
        """The operation that needs a lookup or activation table, or None."""
        return self.lookup or self.translation

    @property
    def argument(self) -> Var:
        """The Var whose quantization parameters the argument of the layer's table has."""
        return self.translation.tensor if self.translation else self.loaded

    @property
    def value(self) -> Var:
        """The Var whose quantization parameters the result of the layer's table has."""
        return self.rounding.tensor if self.translation and self.rounding else self.output

    @cached_property
    def pool(self) -> MaxPool | None:
        """The MaxPool, or None."""
        return next((operation for operation in self.operations if isinstance(operation, MaxPool)), None)

    @cached_property
    def factors(self) -> Var | None:
        """The Var whose first pixel has a factor for each channel (see ScaleChannels), or None."""
        return next((operation.factors for operation in self.operations if isinstance(operation, ScaleChannels)), None)

    @cached_property
    def elementwise(self) -> Minimum | Abs | Gate | LeakyRelu | None:
        """The operation that the SIMD unit applies to every vector, perhaps with constant operands, or None."""
        return next((operation for operation in self.operations
                     if isinstance(operation, Minimum | Abs | Gate | LeakyRelu)), None)

    @cached_property
    def saves(self) -> tuple[Saved, ...]:
        """The tensors that the layer saves, in order, each with what is applied to it."""
        found = []
        first = 0 if self.rounding is None else self.operations.index(self.rounding)
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Save):
                before = self.operations[first:number]
                pools = any(isinstance(entry, MaxPool) for entry in self.operations[number:])
                found.append(Saved(operation.output, any(isinstance(entry, Relu) for entry in before), pools,
                                   next((entry for entry in before if isinstance(entry, Scale)), None)))
        return tuple(found)

    @property
    def saves_before_pool(self) -> bool:
        """Whether the layer saves the input of its max pool too."""
        return any(save.before_pool for save in self.saves)

    @cached_property
    def outputs(self) -> tuple[Var, ...]:
        """Every Var that the layer saves, in order; all have the same number of channels."""
        return tuple(save.var for save in self.saves)

    @property
    def output(self) -> Var:
        """The Var that the layer saves last."""
        return self.outputs[-1]

    @property
    def inputs(self) -> tuple[Var, ...]:
        """Every Var that the layer reads, the core's input first."""
        weights = (self.core.weights,) if isinstance(self.core, Product) else ()
        factors = () if self.factors is None else (self.factors,)
        return self.core.input, *weights, *(add.input for add in self.adds), *factors

    @property
    def vars(self) -> tuple[Var, ...]:
        """Every Var with quantization parameters in the layer: read, looked up, rounded or saved."""
        inside = [operation.tensor for operation in (self.translation, self.rounding) if operation is not None]
        return *self.inputs, *inside, *self.outputs

    @property
    def made(self) -> tuple[Var, ...]:
        """Every Var that the layer computes, in memory or only within the layer."""
        return *dict.fromkeys((self.first, self.value, *self.outputs)),

    @property
    def first(self) -> Var:
        """The Var whose quantization parameters the core's result gets: looked up, rounded, or the output."""
        inside = self.translation or self.rounding
        return inside.tensor if inside else self.output

    @property
    def loaded(self) -> Var:
        """The first Var that is loaded into the accumulators: the rounded one, else the core's input."""
        return self.rounding.tensor if self.rounding else self.core.input

    @property
    def macs(self) -> int:
        """Multiply-accumulates of the layer as the network's file draws it; 0 for a Load."""
        return 0 if isinstance(self.core, Load) else self.core.macs

    @property
    def kind(self) -> str:
        """The layer's operations but its last save as text, such as ``mat_mul+add+relu``."""
        names = {Convolution: "mat_mul", Product: "product", Load: "load", Round: "round", Add: "add",
                 MaxPool: "max_pool", Minimum: "minimum", Abs: "abs", Gate: "gate", LeakyRelu: "leaky_relu",
                 Scale: "scale", ScaleChannels: "scale_channels", Translate: "translate", Relu: "relu",
                 Multiply: "multiply", Lookup: "lookup", Save: "save"}
        return "+".join(names[type(operation)] for operation in self.operations[:-1])


class Layers(tuple[Layer, ...]):
    """All layers of a network, in the order in which they run."""

    __slots__ = ()

    def text(self) -> str:
        """Return the layers as text, one operation a line; :func:`parse` reads it."""
        lines = []
        for layer in self:
            lines.append(f"layer {layer.name}")
            lines += [f"  {operation}" for operation in layer.operations]
        return "\n".join(lines) + "\n"


def parse(content: str) -> Layers:
    """Return the layers that :meth:`Layers.text` has written. Raise WeftError for other text."""
    kinds = (*get_args(LayerOperation), Var, Part, Window)
    found: list[tuple[str, list[LayerOperation]]] = []
    for line in content.splitlines():
        if line.startswith("layer "):
            found.append((line.removeprefix("layer "), []))
        elif line.strip():
            found[-1][1].append(parse_value(line, kinds))
    return Layers(Layer(name, tuple(operations)) for name, operations in found)
