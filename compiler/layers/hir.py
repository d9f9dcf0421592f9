# SPDX-License-Identifier: Apache-2.0
"""HIR, the compiler's form of layers: a core, stages on its result in the accumulators, and one or two saves.

The core is a convolution on the array, a product of two tensors as matrices, or a load, which brings a tensor into the
accumulators as it is. Stages are fields of a Layer, so that their order is that of the machine and not of the graph.
They name memory objects: Vars (tensors between layers) and Consts (weights, bias)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, get_args

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


PIECE = "%piece"
"""The end of the name of a Var whose tensor is saved a second time, by its own name."""


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
    def tensor(self) -> str:
        """The name of the tensor in the graph."""
        return self.name.removesuffix(PIECE)

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
    """A layer's core: the convolution of a Var with Consts, whose result has ``size`` pixels.

    ``macs`` are the multiply-accumulates of the network as its file draws it."""

    input: Var
    weights: str
    bias: str
    group: int
    window: Window
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
    macs: int

    window = Window()
    group = 1

    @property
    def size(self) -> Size:
        """Height and width of the result in pixels: those of ``input``."""
        return self.input.size


@dataclass(frozen=True)
class Load:
    """A layer's core: a Var brought into the accumulators, each pixel repeated ``factors`` (height, width) times."""

    input: Var
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
class Rounding:
    """The rounding of the core's result to the quantization parameters of ``tensor``, within a layer.

    The result is requantized into local memory, after a ReLU if ``relu`` says so, and loaded back. ``tensor`` has
    quantization parameters but no DRAM."""

    tensor: Var
    relu: bool = False


@dataclass(frozen=True)
class Add:
    """A stage: the sum with a Var of the same shape."""

    input: Var


@dataclass(frozen=True)
class Multiply:
    """A stage: the product with a Var of the same shape, element by element."""

    input: Var


@dataclass(frozen=True)
class Lookup:
    """A stage: a function of each scalar by a lookup table of the SIMD unit.

    ``function`` is an ONNX operator with its ``attributes``; the table spans the range of the tensor ``source``."""

    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class Translate:
    """A function that an activation table computes where the core's result is first requantized.

    The result gets the quantization parameters of ``tensor``, then the table of ``function`` (see :class:`Lookup`).
    ``tensor`` needs quantization parameters, but not memory."""

    tensor: Var
    function: str
    attributes: tuple[tuple[str, Any], ...]
    source: str


@dataclass(frozen=True)
class MaxPool:
    """A stage: the maximum over each window; its result has ``size`` pixels."""

    window: Window
    size: Size


@dataclass(frozen=True)
class Minimum:
    """An elementwise stage, an upper limit: scalars above ``value`` become ``value``."""

    value: float


@dataclass(frozen=True)
class Abs:
    """An elementwise stage, the magnitude: negative scalars change their sign."""


@dataclass(frozen=True)
class Gate:
    """An elementwise stage: the result times a gate, which is the result plus ``offset``, limited to 0..``limit``.

    ``source`` is the tensor whose values the result has before."""

    source: str
    offset: float
    limit: float


@dataclass(frozen=True)
class LeakyRelu:
    """An elementwise stage, a leaky ReLU: negative scalars are multiplied by ``slope``, 0 < slope < 1."""

    slope: float


@dataclass(frozen=True)
class Scale:
    """A factor and an offset for each channel (Consts), applied where a save requantizes."""

    weights: str
    bias: str


@dataclass(frozen=True)
class Save:
    """One output of a layer: the Var that the accumulators are requantized and stored as.

    ``relu`` and ``scale`` are applied on the way. ``before_pool`` says that the layer's max pool follows this save."""

    var: Var
    relu: bool = False
    before_pool: bool = False
    scale: Scale | None = None


Core = Convolution | Product | Load
Elementwise = Minimum | Abs | Gate | LeakyRelu

KINDS = {Convolution: "mat_mul", Product: "product", Load: "load", Add: "add", Multiply: "multiply",
         Minimum: "minimum", Abs: "abs", Gate: "gate", LeakyRelu: "leaky_relu"}
"""The name of each core and of each stage that may be one of several, as in :attr:`Layer.kind`."""


@dataclass(frozen=True)
class Layer:
    """A layer: its core, the stages that it has in the order in which they are applied, and its saves.

    ``name`` is the graph node that made the core. ``translation`` belongs to the rounding, or to the save of a layer
    without one. ``adds`` read a second Var each. ``factors`` is a Var whose first pixel has a factor for each channel,
    applied where the save requantizes; the instruction LoadScale reads its pixels. A layer has at most one of
    ``multiplies``, ``lookup`` and ``elementwise``. The first of two saves takes the accumulators before a scaling or a
    ReLU, or it comes before a max pool. The windows of that pool partition the image, so that each pixel is saved
    once."""

    name: str
    core: Core
    saves: tuple[Save, ...]
    translation: Translate | None = None
    rounding: Rounding | None = None
    adds: tuple[Add | Multiply, ...] = ()
    lookup: Lookup | None = None
    elementwise: Elementwise | None = None
    factors: Var | None = None
    pool: MaxPool | None = None

    @property
    def multiplies(self) -> bool:
        """Whether the layer has a Multiply."""
        return any(isinstance(add, Multiply) for add in self.adds)

    @property
    def function(self) -> Lookup | Translate | None:
        """The stage that needs a lookup or activation table, or None."""
        return self.lookup or self.translation

    @property
    def first_relu(self) -> bool:
        """Whether a ReLU applies where the core's result is first requantized."""
        return self.rounding.relu if self.rounding else self.saves[0].relu

    @property
    def is_bare(self) -> bool:
        """Whether the layer has no stage between its core and its only save; the save may have a ReLU."""
        return self == Layer(self.name, self.core, (Save(self.output, self.saves[-1].relu),))

    @property
    def only_pools(self) -> bool:
        """Whether the layer loads one tensor, pools it and saves the result once."""
        return (isinstance(self.core, Load) and self.pool is not None
                and self == Layer(self.name, self.core, (Save(self.output),), pool=self.pool))

    @property
    def argument(self) -> Var:
        """The Var whose quantization parameters the argument of the layer's table has."""
        return self.translation.tensor if self.translation else self.loaded

    @property
    def value(self) -> Var:
        """The Var whose quantization parameters the result of the layer's table has."""
        return self.rounding.tensor if self.translation and self.rounding else self.output

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
        return self.saves[-1].var

    @property
    def inputs(self) -> tuple[Var, ...]:
        """Every Var that the layer reads, the core's input first."""
        weights = (self.core.weights,) if isinstance(self.core, Product) else ()
        factors = () if self.factors is None else (self.factors,)
        return self.core.input, *weights, *(add.input for add in self.adds), *factors

    @property
    def vars(self) -> tuple[Var, ...]:
        """Every Var with quantization parameters in the layer: read, looked up, rounded or saved."""
        inside = [stage.tensor for stage in (self.translation, self.rounding) if stage is not None]
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
        """The layer's core and stages as text, such as ``mat_mul+add+relu``; its last save is not named."""
        rounding = self.rounding
        found = [KINDS[type(self.core)], *["relu"] * bool(rounding and rounding.relu),
                 *["translate"] * (self.translation is not None), *["round"] * (rounding is not None),
                 *(KINDS[type(add)] for add in self.adds), *["lookup"] * (self.lookup is not None),
                 *([] if self.elementwise is None else [KINDS[type(self.elementwise)]]),
                 *["scale_channels"] * (self.factors is not None)]
        relu, scale = False, None
        for save in self.saves:
            found += [*["scale"] * (save.scale is not scale), *["relu"] * (save.relu is not relu),
                      *["max_pool"] * (self.pool is not None and not save.before_pool), "save"]
            relu, scale = save.relu, save.scale
        return "+".join(found[:-1])


class Layers(tuple[Layer, ...]):
    """All layers of a network, in the order in which they run."""

    __slots__ = ()

    def text(self) -> str:
        """Return the layers as text, one field a line; :func:`parse` reads it."""
        lines = []
        for layer in self:
            lines.append(f"layer {layer.name}")
            lines += [f"  {entry.name}={value}" for entry in fields(layer)[1:]
                      if (value := getattr(layer, entry.name)) != entry.default]
        return "\n".join(lines) + "\n"


def parse(content: str) -> Layers:
    """Return the layers that :meth:`Layers.text` has written. Raise WeftError for other text."""
    found: list[list[str]] = []
    for line in content.splitlines():
        if line.startswith("layer "):
            found.append([f"name={line.removeprefix('layer ')!r}"])
        elif line.strip():
            found[-1].append(line.strip())
    return Layers(parse_value(f"Layer({', '.join(entries)})", TEXT_KINDS) for entries in found)


TEXT_KINDS = (Layer, *get_args(Core), *get_args(Elementwise), Rounding, Add, Multiply, Lookup, Translate, MaxPool,
              Scale, Save, Var, Part, Window)
"""The classes that the text of layers names."""
