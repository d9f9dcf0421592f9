# SPDX-License-Identifier: Apache-2.0
"""The parts of a layer: its core, the stages on the core's result in the accumulators, and the saves.

They name memory objects: Vars (tensors between layers) and Consts (weights, bias)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.compiler.layers.var import Var
from weft.tmodel.window import Enlargement, Size, Window


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

    @property
    def separates(self) -> bool:
        """Whether maxima of columns, and then of these, take no more operations than maxima of whole windows."""
        (height, width), stride = self.window.kernel, self.window.strides[1]
        return height * stride + width <= height * width

    @property
    def operations(self) -> int:
        """The SIMD operations for each vector of the result."""
        height, width = self.window.kernel
        return height * self.window.strides[1] + width if self.separates else height * width

    @property
    def longest(self) -> int:
        """The most operations that one loop has for a pixel: the length of its body."""
        return max(self.window.kernel) if self.separates else math.prod(self.window.kernel)


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
class Slopes:
    """An elementwise stage: scalars below zero are multiplied by the slope of their channel, which is 1 at most.

    ``slopes`` is a Const, ``source`` the tensor whose values the result has before."""

    source: str
    slopes: str


@dataclass(frozen=True)
class SteepSlopes(Slopes):
    """An elementwise stage with slopes of any size, for which the SIMD unit takes another instruction."""


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

Elementwise = Minimum | Abs | Gate | LeakyRelu | Slopes | SteepSlopes

KINDS = {Convolution: "mat_mul", Product: "product", Load: "load", Add: "add", Multiply: "multiply",
         Minimum: "minimum", Abs: "abs", Gate: "gate", LeakyRelu: "leaky_relu", Slopes: "slopes",
         SteepSlopes: "steep_slopes"}
"""The name of each core and of each stage that may be one of several, as in :attr:`Layer.kind`."""
