"""HIR: a layer is a core, operations on its result in the accumulators, and a save; a second save, of the result
after a ReLU or a max pool, may follow.

The core is ``mat_mul`` (a convolution on the array), ``product`` (of two tensors as matrices) or ``load`` (a tensor
brought into the accumulators as it is).
Operations name memory objects: Vars (tensors between layers), Consts (weights, bias) and Temps (values that live in
the accumulators during one layer only, named ``%0``, ``%1``, ...).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, get_args

from weft.compiler.text_form import parse_value

Size = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """How a kernel walks over an image: output pixel y reads inputs y * stride - pad + k * dilation, k < kernel.

    Pairs are (height, width); ``pads`` counts pixels above and left, what overhangs below and right is clipped.
    """

    kernel: Size = (1, 1)
    strides: Size = (1, 1)
    pads: Size = (0, 0)
    dilations: Size = (1, 1)

    def taps(self) -> list[Size]:
        return [(y, x) for y in range(self.kernel[0]) for x in range(self.kernel[1])]

    def inputs(self, axis: int, low: int, high: int, size: int) -> tuple[int, int]:
        """Input range [low, high) that outputs [low, high) read, clipped to an image of ``size``."""
        stride, pad = self.strides[axis], self.pads[axis]
        reach = (self.kernel[axis] - 1) * self.dilations[axis]
        first = min(max(low * stride - pad, 0), size)
        return first, max(min((high - 1) * stride - pad + reach + 1, size), first)

    def outputs(self, axis: int, tap: int, low: int, high: int, size: int) -> tuple[int, int]:
        """Outputs of [low, high) for which this tap falls into the image; the rest reads padding."""
        stride, offset = self.strides[axis], tap * self.dilations[axis] - self.pads[axis]
        first = max(low, -(offset // stride))
        last = min(high, (size - 1 - offset) // stride + 1)
        return first, max(first, last)

    def reads(self, axis: int, output: int, limits: tuple[int, int]) -> tuple[int, ...]:
        """Input coordinates within [low, high) of ``limits`` that one output reads."""
        first = output * self.strides[axis] - self.pads[axis]
        taps = (first + tap * self.dilations[axis] for tap in range(self.kernel[axis]))
        return tuple(tap for tap in taps if limits[0] <= tap < limits[1])

    def work(self, size: Size, output: Size) -> int:
        """Vectors of one channel tile through the array: pairs of an output pixel and a tap that falls into the image.

        ``size`` is that of the image, ``output`` that of the result.
        """
        pairs = 1
        for axis in range(2):
            spans = (self.outputs(axis, tap, 0, output[axis], size[axis]) for tap in range(self.kernel[axis]))
            pairs *= sum(high - low for low, high in spans)
        return pairs

    def partitions(self, size: Size, output: Size) -> bool:
        """Whether each pixel of an image of ``size`` is read for exactly one pixel of the result, of ``output``."""
        whole = tuple(count * stride for count, stride in zip(output, self.strides, strict=True))
        return self.kernel == self.strides and self.dilations == (1, 1) and not any(self.pads) and whole == size

    def packed(self, axes: Iterable[int]) -> Window:
        """What is left of the kernel when its taps along these axes lie in channels and the image has, there, the
        output's size."""
        kernel, strides, pads, dilations = map(list, (self.kernel, self.strides, self.pads, self.dilations))
        for axis in axes:
            kernel[axis], strides[axis], pads[axis], dilations[axis] = 1, 1, 0, 1
        return Window(*((pair[0], pair[1]) for pair in (kernel, strides, pads, dilations)))

    def only(self, taps: Iterable[Size]) -> Window:
        """The smallest window that has these taps, at least one, where this one has them."""
        spans = [(min(axis), max(axis)) for axis in zip(*taps, strict=True)]
        (top, bottom), (left, right) = spans
        return replace(self, kernel=(bottom - top + 1, right - left + 1),
                       pads=(self.pads[0] - top * self.dilations[0], self.pads[1] - left * self.dilations[1]))


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

    def tiles(self, lanes: int) -> int:
        """Channel tiles on an array of ``lanes``."""
        return -(-self.channels // lanes)

    def vectors(self, lanes: int) -> int:
        return self.tiles(lanes) * self.height * self.width


@dataclass(frozen=True)
class MatMul:
    """Convolution of a Var with Consts into a Temp of ``size`` pixels; ``macs`` multiply-accumulates of use."""

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
    """The matrix ``input`` (its pixels are rows, its channels columns) times the matrix ``weights``, which has a pixel
    for each channel of ``input`` below each other: so it lies as the array takes weights. ``name``: the graph's of the
    result; ``macs`` as of MatMul."""

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
    """A Var into a Temp."""

    input: Var
    output: str

    window = Window()

    @property
    def size(self) -> Size:
        return self.input.size


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
class LeakyRelu:
    """Negative scalars of the Temp ``target`` times ``slope``, 0 < slope < 1."""

    target: str
    slope: float


@dataclass(frozen=True)
class Relu:
    """Negative scalars of the Temp become zero, on the way out of the accumulators."""

    target: str


@dataclass(frozen=True)
class Save:
    """The Temp becomes a Var."""

    source: str
    output: Var


Operation = MatMul | Product | Load | Add | Multiply | Lookup | MaxPool | Minimum | LeakyRelu | Relu | Save


class Saved(NamedTuple):
    """An output of a layer: whether a ReLU comes before it, and whether a max pool comes after."""

    var: Var
    relu: bool
    before_pool: bool


@dataclass(frozen=True)
class Layer:
    """Core first, save last. ``name`` is the node that made the core.

    Between the first save and the last there is nothing but a ReLU, so that both save the same accumulators; or but a
    max pool whose windows partition the image, so that each pixel is saved once.
    """

    name: str
    operations: tuple[Operation, ...]

    @cached_property
    def core(self) -> MatMul | Product | Load:
        core = self.operations[0]
        assert isinstance(core, MatMul | Product | Load)
        return core

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
    def pool(self) -> MaxPool | None:
        return next((operation for operation in self.operations if isinstance(operation, MaxPool)), None)

    @cached_property
    def elementwise(self) -> Minimum | LeakyRelu | None:
        """What the SIMD unit does to every vector with one constant operand."""
        return next((operation for operation in self.operations if isinstance(operation, Minimum | LeakyRelu)), None)

    @cached_property
    def saves(self) -> tuple[Saved, ...]:
        """What is saved, in order."""
        found = []
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Save):
                relu = any(isinstance(entry, Relu) for entry in self.operations[:number])
                pools = any(isinstance(entry, MaxPool) for entry in self.operations[number:])
                found.append(Saved(operation.output, relu, pools))
        return tuple(found)

    @property
    def saves_before_pool(self) -> bool:
        """Whether the input of its max pool is saved too."""
        return self.saves[0].before_pool

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
        return self.core.input, *weights, *(add.input for add in self.adds)

    @property
    def macs(self) -> int:
        return 0 if isinstance(self.core, Load) else self.core.macs

    @property
    def kind(self) -> str:
        names = {MatMul: "mat_mul", Product: "product", Load: "load", Add: "add", MaxPool: "max_pool",
                 Minimum: "minimum", LeakyRelu: "leaky_relu", Relu: "relu", Multiply: "multiply", Lookup: "lookup",
                 Save: "save"}
        return "+".join(names[type(operation)] for operation in self.operations[:-1])


def text(layers: tuple[Layer, ...]) -> str:
    """Layers as text, one operation a line."""
    lines = []
    for layer in layers:
        lines.append(f"layer {layer.name}")
        lines += [f"  {operation}" for operation in layer.operations]
    return "\n".join(lines) + "\n"


def parse(content: str) -> tuple[Layer, ...]:
    """The layers of :func:`text`. Raises WeftError."""
    kinds = (*get_args(Operation), Var, Part, Window)
    found: list[tuple[str, list[Operation]]] = []
    for line in content.splitlines():
        if line.startswith("layer "):
            found.append((line.removeprefix("layer "), []))
        elif line.strip():
            found[-1][1].append(parse_value(line, kinds))
    return tuple(Layer(name, tuple(operations)) for name, operations in found)
