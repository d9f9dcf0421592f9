"""HIR: a layer is a core, operations on its result in the accumulators, and a save; a second save, of the result
after a ReLU, a max pool or a scaling, may follow.

The core is ``mat_mul`` (a convolution on the array), ``product`` (of two tensors as matrices) or ``load`` (a tensor
brought into the accumulators as it is).
Operations name memory objects: Vars (tensors between layers), Consts (weights, bias) and Temps (values that live in
the accumulators during one layer only, named ``%0``, ``%1``, ...).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, get_args

from weft.tmodel.window import Enlargement, Size, Window

from weft.compiler.text_form import parse_value


@dataclass(frozen=True)
class Part:
    """Where a Var lies inside the Var ``root``: from channel tile ``tile`` on, pixel (y, x) at ``offset`` + y *
    ``pitch`` + x * ``step`` of the ``pixels`` of each tile."""

    root: str
    tile: int
    offset: int
    pitch: int
    step: int
    pixels: int


@dataclass(frozen=True)
class Var:
    """A tensor between layers: ``channels`` x ``height`` x ``width``; in memory of its own, or part of another."""

    name: str
    channels: int
    height: int
    width: int
    part: Part | None = None

    @property
    def root(self) -> str:
        """The Var that has the memory."""
        return self.part.root if self.part else self.name

    @property
    def size(self) -> Size:
        return self.height, self.width

    @property
    def first_tile(self) -> int:
        """Of the root's channel tiles."""
        return self.part.tile if self.part else 0

    @property
    def tile_pixels(self) -> int:
        """Vectors of each of the root's channel tiles."""
        return self.part.pixels if self.part else self.height * self.width

    def tiles(self, lanes: int) -> int:
        """Channel tiles on an array of ``lanes``."""
        return -(-self.channels // lanes)

    def odd_tiles(self, lanes: int) -> int:
        """How many of them are odd tiles of the root."""
        return (self.first_tile + self.tiles(lanes)) // 2 - self.first_tile // 2

    def vectors(self, lanes: int) -> int:
        return self.tiles(lanes) * self.height * self.width


@dataclass(frozen=True)
class Convolution:
    """Convolution of a Var with Consts into a Temp of ``size`` pixels; ``macs``: multiply-accumulates of the network as
    it is drawn."""

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
    """The matrix ``input`` [pixels, channels] times the matrix ``weights`` [pixels, channels], which has as many pixels
    as ``input`` has channels. These lie below each other, as the array takes weights. ``name`` of the result in the
    graph; ``macs`` as of Convolution."""

    input: Var
    weights: Var
    name: str
    output: str
    macs: int

    window = Window()
    group = 1

    @property
    def size(self) -> Size:
        return self.input.size


@dataclass(frozen=True)
class Load:
    """A Var into a Temp, each pixel ``factors`` times (height, width)."""

    input: Var
    output: str
    factors: Size = (1, 1)

    group = 1

    @property
    def window(self) -> Window:
        return Window() if self.factors == (1, 1) else Enlargement(factors=self.factors)

    @property
    def size(self) -> Size:
        return self.input.height * self.factors[0], self.input.width * self.factors[1]


@dataclass(frozen=True)
class Round:
    """The Temp ``target`` becomes what ``tensor`` would hold of it: it leaves the accumulators and comes in again.
    ``tensor`` has numbers, but no memory."""

    target: str
    tensor: Var


@dataclass(frozen=True)
class Add:
    """A Var added to the Temp ``target``."""

    input: Var
    target: str


@dataclass(frozen=True)
class Multiply:
    """The Temp ``target`` times a Var, element by element."""

    input: Var
    target: str


@dataclass(frozen=True)
class Lookup:
    """The Temp ``target`` becomes ``function`` (an ONNX operator with its attributes) of it, over the range of the
    tensor ``source``."""

    target: str
    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class Translate:
    """As the Temp ``target`` next leaves the accumulators it becomes what ``tensor`` would hold of it, then
    ``function`` of that by a table, as of a :class:`Lookup`. ``tensor`` has numbers, but need not have memory."""

    target: str
    tensor: Var
    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class MaxPool:
    """Maximum over windows of a Temp into another Temp."""

    source: str
    window: Window
    output: str
    size: Size


@dataclass(frozen=True)
class Minimum:
    """The Temp ``target`` limited to ``value`` from above."""

    target: str
    value: float


@dataclass(frozen=True)
class Gate:
    """The Temp ``target``, which is the tensor ``source``, times itself plus ``offset``, limited to 0..``limit``."""

    target: str
    source: str
    offset: float
    limit: float


@dataclass(frozen=True)
class LeakyRelu:
    """Negative scalars of the Temp ``target`` times ``slope``, 0 < slope < 1."""

    target: str
    slope: float


@dataclass(frozen=True)
class Scale:
    """The Temp ``target`` times one of Consts and plus another for each channel, on the way out of the
    accumulators."""

    target: str
    weights: str
    bias: str


@dataclass(frozen=True)
class ScaleChannels:
    """The Temp ``target`` times a number of each channel, on the way out of the accumulators: the first pixel of
    ``factors``, whose pixels are what LoadScale reads."""

    target: str
    factors: Var


@dataclass(frozen=True)
class Relu:
    """Negative scalars of the Temp become zero, on the way out of the accumulators."""

    target: str


@dataclass(frozen=True)
class Save:
    """The Temp becomes a Var."""

    source: str
    output: Var


LayerOperation = (Convolution | Product | Load | Round | Add | Multiply | Lookup | Translate | MaxPool | Minimum | Gate
                  | LeakyRelu | Scale | ScaleChannels | Relu | Save)


class Saved(NamedTuple):
    """An output of a layer: whether a ReLU comes before it, whether a max pool comes after, how it is scaled."""

    var: Var
    relu: bool
    before_pool: bool
    scale: Scale | None


@dataclass(frozen=True)
class Layer:
    """Core first, save last. ``name`` is the node that made the core.

    Between the first save and the last there is nothing but a scaling and a ReLU, so that both save the same
    accumulators; or but a max pool whose windows partition the image, so that each pixel is saved once. What is rounded
    is the core's result; residuals or a max pool follow.
    """

    name: str
    operations: tuple[LayerOperation, ...]

    @cached_property
    def core(self) -> Convolution | Product | Load:
        core = self.operations[0]
        assert isinstance(core, Convolution | Product | Load)
        return core

    @cached_property
    def rounding(self) -> Round | None:
        return next((operation for operation in self.operations if isinstance(operation, Round)), None)

    @cached_property
    def rounds_relu(self) -> bool:
        """Whether a ReLU comes before the rounding."""
        return isinstance(self.operations[1], Relu) and self.rounding is not None

    @cached_property
    def adds(self) -> tuple[Add | Multiply, ...]:
        """Operations with a second Var."""
        return tuple(operation for operation in self.operations if isinstance(operation, Add | Multiply))

    @cached_property
    def multiplies(self) -> bool:
        return any(isinstance(operation, Multiply) for operation in self.operations)

    @cached_property
    def lookup(self) -> Lookup | None:
        return next((operation for operation in self.operations if isinstance(operation, Lookup)), None)

    @cached_property
    def translation(self) -> Translate | None:
        return next((operation for operation in self.operations if isinstance(operation, Translate)), None)

    @property
    def function(self) -> Lookup | Translate | None:
        """What takes a lookup table."""
        return self.lookup or self.translation

    @property
    def argument(self) -> Var:
        """The Var whose numbers go into the lookup table, or would."""
        return self.translation.tensor if self.translation else self.loaded

    @property
    def value(self) -> Var:
        """The Var that holds what comes out of the lookup table, or has its numbers."""
        return self.rounding.tensor if self.translation and self.rounding else self.output

    @cached_property
    def pool(self) -> MaxPool | None:
        return next((operation for operation in self.operations if isinstance(operation, MaxPool)), None)

    @cached_property
    def factors(self) -> Var | None:
        """What LoadScale reads, where it is a tensor."""
        return next((operation.factors for operation in self.operations if isinstance(operation, ScaleChannels)), None)

    @cached_property
    def elementwise(self) -> Minimum | Gate | LeakyRelu | None:
        """What the SIMD unit does to every vector with constant operands."""
        return next((operation for operation in self.operations
                     if isinstance(operation, Minimum | Gate | LeakyRelu)), None)

    @cached_property
    def saves(self) -> tuple[Saved, ...]:
        """What is saved, in order."""
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
        """Whether the input of its max pool is saved too."""
        return any(save.before_pool for save in self.saves)

    @cached_property
    def outputs(self) -> tuple[Var, ...]:
        """Every Var that is saved, in order; of one channel count."""
        return tuple(save.var for save in self.saves)

    @property
    def output(self) -> Var:
        """The last of ``outputs``."""
        return self.outputs[-1]

    @property
    def inputs(self) -> tuple[Var, ...]:
        """Every Var that is read, the core's first."""
        weights = (self.core.weights,) if isinstance(self.core, Product) else ()
        factors = () if self.factors is None else (self.factors,)
        return self.core.input, *weights, *(add.input for add in self.adds), *factors

    @property
    def vars(self) -> tuple[Var, ...]:
        """Every Var that has numbers: those that are read, looked up, rounded and saved."""
        inside = [operation.tensor for operation in (self.translation, self.rounding) if operation is not None]
        return *self.inputs, *inside, *self.outputs

    @property
    def made(self) -> tuple[Var, ...]:
        """Every Var that its results become, in memory or on the way there."""
        return *dict.fromkeys((self.first, self.value, *self.outputs)),

    @property
    def first(self) -> Var:
        """The Var that the core's result becomes: the one that is looked up or rounded, else the output."""
        inside = self.translation or self.rounding
        return inside.tensor if inside else self.output

    @property
    def loaded(self) -> Var:
        """The first Var that comes into the accumulators: the rounded one, else the core's input."""
        return self.rounding.tensor if self.rounding else self.core.input

    @property
    def macs(self) -> int:
        return 0 if isinstance(self.core, Load) else self.core.macs

    @property
    def kind(self) -> str:
        names = {Convolution: "mat_mul", Product: "product", Load: "load", Round: "round", Add: "add",
                 MaxPool: "max_pool", Minimum: "minimum", Gate: "gate", LeakyRelu: "leaky_relu", Scale: "scale",
                 ScaleChannels: "scale_channels", Translate: "translate", Relu: "relu",
                 Multiply: "multiply", Lookup: "lookup", Save: "save"}
        return "+".join(names[type(operation)] for operation in self.operations[:-1])


class Layers(tuple[Layer, ...]):
    """All layers of a network, in the order in which they run."""

    __slots__ = ()

    def text(self) -> str:
        """One operation a line."""
        lines = []
        for layer in self:
            lines.append(f"layer {layer.name}")
            lines += [f"  {operation}" for operation in layer.operations]
        return "\n".join(lines) + "\n"


def parse(content: str) -> Layers:
    """The layers of :meth:`Layers.text`. Raises WeftError."""
    kinds = (*get_args(LayerOperation), Var, Part, Window)
    found: list[tuple[str, list[LayerOperation]]] = []
    for line in content.splitlines():
        if line.startswith("layer "):
            found.append((line.removeprefix("layer "), []))
        elif line.strip():
            found[-1][1].append(parse_value(line, kinds))
    return Layers(Layer(name, tuple(operations)) for name, operations in found)
