# SPDX-License-Identifier: Apache-2.0
"""The graph while it is rewritten: what every tensor of the model has become, and makers of canonical nodes.

Canonical tensors are 1 x channels x height x width. There are ONNX's own Conv, Add, Mul, Abs, Relu, Clip, LeakyRelu,
PRelu of channels and MaxPool, and four nodes of ours. ``Product`` multiplies matrices: rows are pixels, columns are
channels, and the second one's width is 1. ``Enlarge`` repeats every pixel ``factors`` times. Two nodes move nothing.
Pixel (y, x) of a ``View`` is pixel ``offset + y * pitch + x * step`` of its input. ``Assemble`` has parts written into
one tensor at ``places``: first channel, offset, pitch, step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft.compiler.errors import USE_HOST, CompileError, refuse, refuse_node
from weft.compiler.frontend.graph import Graph, Interval, Node, Shape, Within
from weft.compiler.indices.index import default_index, default_place

MOST_WEIGHTS = 1 << 25
"""The most weights that the compiler makes where the model has none, mostly zeros: 128 MB."""

MOST_GROUPED = 1 << 23
"""The most pairs of an output and an input tile of convolutions by groups, nearly all of which are empty.

A pair takes 150 bytes and a microsecond while layers are tiled. Networks of 2000 channels have thousands."""

MOST_MATRIX = 1 << 24
"""The most numbers of a matrix of output lines by input lines of an image: 4096 by 4096."""

MOST_PIECES = 1 << 15
"""The most pieces into which moved elements are cut; each takes a quarter of a millisecond."""

MOST_NODES = 1 << 13
"""The most canonical nodes that a network may become."""

NO_WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


class TensorView(NamedTuple):
    """The storage of a tensor of the model, in the canonical ``tensor``.

    ``where``, of the model's shape, has the flat position of each element, None for the default place. An element at
    FILL is the constant ``fill``."""

    tensor: str
    where: np.ndarray | None
    fill: float = 0.0


class PartPlace(NamedTuple):
    """The place of a part in an assembled tensor: channels from ``channel``, pixels as in a View."""

    channel: int
    offset: int
    pitch: int
    step: int


@dataclass
class Rewrite:
    """The state of rewriting a model's graph into canonical form.

    ``held``: tensor of the model -> where it lies now. ``images``: cached results of ``gather.image``. ``lanes`` of the
    array, to which channels align. ``shapes``, ``constants`` and ``nodes`` are those of the canonical graph.
    ``rounds``: whether the model has FakeQuantize. ``aligned``: the result of a convolution -> [channels], the places
    of its channels."""

    graph: Graph
    lanes: int
    rounds: bool = False
    aligned: Mapping[str, np.ndarray] = field(default_factory=dict)
    in_bytes: bool = False
    """Whether tensors are of eight bits: too few for products that are still to be summed."""
    has_abs: bool = False
    """Whether the SIMD unit computes magnitudes, in numbers that keep their sign."""
    has_slopes: bool = True
    """Whether the machine computes leaky ReLUs."""
    most_slopes: int = 0
    """The most channels for each of which the SIMD unit has a slope of its own."""
    largest_slope: float = 0.0
    """The largest magnitude of such a slope, less 1."""
    held: dict[str, TensorView] = field(default_factory=dict)
    images: dict[str, tuple[str, np.ndarray | None]] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)
    """Tensors that cannot become a part: inputs, views, assembled ones, parts already."""
    parts: set[str] = field(default_factory=set)
    assembled: set[str] = field(default_factory=set)
    """Fixed tensors that can still become a part if they lie there as they are."""
    pieces: int = 0
    made_weights: int = 0
    grouped_pairs: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """The last number appended to each name that was wanted more than once."""
    uneven: set[str] = field(default_factory=set)
    """Views whose pixels do not follow each other at one distance."""
    bounds: dict[str, Interval | Within] = field(default_factory=dict)
    """Stated bounds of tensors of the canonical graph."""

    unplaced: set[str] = field(default_factory=set)
    """Inputs that lie in the user's order until somebody wants them otherwise."""
    orders: dict[str, np.ndarray | None] = field(default_factory=dict)
    """Inputs with a decided order: the places of the user's elements, as a port's ``order``."""

    copies: dict[str, str] = field(default_factory=dict)
    magnitudes: dict[str, str] = field(default_factory=dict)
    """Tensor -> the tensor of its magnitudes."""
    positions: dict[str, int] = field(default_factory=dict)
    """Tensor -> index in ``nodes`` of the node that makes it."""

    def __post_init__(self) -> None:
        """Copy shapes and constants into dictionaries that ``declare`` and ``know`` add to."""
        self._shapes, self._constants = dict(self.graph.shapes), dict(self.graph.constants)
        self.graph = self.graph.replace(shapes=self._shapes, constants=self._constants)

    # -- tensors of the model --------------------------------------------------------------------------------------
    def constant(self, name: str) -> np.ndarray:
        """Return the value of a constant of the model."""
        return self.graph.constants[name]

    def is_constant(self, name: str) -> bool:
        """Tell whether a tensor of the model is a constant."""
        return self.graph.is_constant(name)

    def shape(self, name: str) -> Shape:
        """Return the shape of a tensor or constant of the model."""
        return tuple(self.constant(name).shape) if self.is_constant(name) else self.graph.shapes[name]

    def hold(self, name: str, tensor: str, index: np.ndarray | None = None, fill: float = 0.0) -> None:
        """Note that the model's tensor ``name`` lies in ``tensor``, at ``index`` (None: default place)."""
        self.held[name] = TensorView(tensor, index, fill)

    def take_as_input(self, name: str) -> None:
        """Note that a tensor lies in its default place, like an input, whoever makes it."""
        self.shapes[name] = default_place(self.graph.shapes[name])
        self.hold(name, name)
        self.fixed.add(name)

    def index(self, name: str) -> np.ndarray:
        """Return the index array of a tensor of the model."""
        held = self.held[name]
        return default_index(self.graph.shapes[name]) if held.where is None else held.where

    def declare(self, name: str, shape: Shape) -> None:
        """Declare a tensor that the model does not have, on the way to one that it has."""
        self._shapes[name] = tuple(shape)

    def know(self, name: str, value: np.ndarray) -> None:
        """Declare a constant that the model does not have."""
        self._constants[name] = value

    def hold_channels(self, name: str, tensor: str, channels: np.ndarray) -> None:
        """Note that ``name`` lies in ``tensor``, channel c at ``channels[c]``, pixels in default order."""
        _, count, *size = self.shapes[tensor]
        if np.array_equal(channels, np.arange(count)):
            self.hold(name, tensor)
            return
        pixels = math.prod(size)
        memory = channels[:, None] * pixels + np.arange(pixels)
        self.hold(name, tensor, memory.ravel()[default_index(self.graph.shapes[name])])

    def index_of_shape(self, name: str) -> np.ndarray:
        """Return the index array of a tensor in its default place; the memory tensor may have further channels."""
        return default_index(self.graph.shapes[name])

    def refusal(self, node: Node, detail: str, found: object, allowed: str) -> CompileError:
        """Return the error for a node that the machine cannot compute, with the host as the way out."""
        return refuse_node(node, detail, found, allowed, USE_HOST)

    def bound(self, name: str, bound: Interval | Within) -> str:
        """State a bound of a canonical tensor; return its name."""
        self.bounds[name] = bound
        return name

    # -- bounds ----------------------------------------------------------------------------------------------------
    def need_weights(self, node: Node, count: int) -> None:
        """Raise CompileError if ``count`` further weights exceed what the compiler may make."""
        total = self.made_weights + count
        if total > MOST_WEIGHTS:
            raise self.refusal(node, "weights that it becomes", f"{total} with those of nodes before",
                               f"at most {MOST_WEIGHTS}")

    def count_piece(self) -> None:
        """Count a piece of moved elements, also of a node that is refused. Raise CompileError beyond the limit.

        The error names no node, because too many pieces are no single node's fault."""
        self.pieces += 1
        if self.pieces > MOST_PIECES:
            raise refuse("pieces of moved elements in the network", f"more than {MOST_PIECES}",
                         f"at most {MOST_PIECES}", "keep elements in their order (Gather, Transpose, Reshape of pixels "
                         "and channels), or end the network before they move (--end)")

    def need_matrix(self, node: Node, rows: int, columns: int) -> None:
        """Raise CompileError if a matrix over the lines of an image is too large to be made."""
        if rows * columns > MOST_MATRIX:
            raise self.refusal(node, "matrix of output lines by input lines", f"{rows} by {columns}",
                               f"at most {MOST_MATRIX} numbers")

    def weights(self, node: Node, shape: Sequence[int], given: int = 0) -> np.ndarray:
        """Return zeros [out, in / group, height, width] for weights; count all but those ``given`` by the model."""
        self.count_weights(node, max(math.prod(shape) - given, 0))
        return np.zeros(shape)

    def count_weights(self, node: Node, count: int) -> None:
        """Count weights that the node becomes. Raise CompileError if there are too many."""
        self.need_weights(node, count)
        self.made_weights += count

    def _count_grouped(self, node: Node, outputs: int, inputs: int) -> None:
        """Count the pairs of tiles of a convolution by groups. Raise CompileError if there are too many."""
        pairs = -(-outputs // self.lanes) * -(-inputs // self.lanes)
        if self.grouped_pairs + pairs > MOST_GROUPED:
            raise self.refusal(node, "pairs of channel tiles that it becomes",
                               f"{self.grouped_pairs + pairs} with those of nodes before", f"at most {MOST_GROUPED}")
        self.grouped_pairs += pairs

    # -- canonical nodes -------------------------------------------------------------------------------------------
    def emit(self, node: Node, op: str, inputs: Sequence[str], attributes: Mapping[str, Any], shape: Shape,
             part: str = "") -> str:
        """Add a node that makes the tensor of ``node``'s output, or a ``part`` on the way to it; return its name.

        Raise CompileError if there are too many nodes."""
        if len(self.nodes) >= MOST_NODES:
            raise self.refusal(node, "operations that it becomes", f"more than {MOST_NODES} with those of nodes before",
                               f"at most {MOST_NODES}")
        name = self._new_name(f"{node.output}/{part}" if part else node.output)
        self.positions[name] = len(self.nodes)
        self.nodes.append(Node(node.name, op, tuple(inputs), (name,), dict(attributes),
                               node.op if part in ("", "phase") else ""))
        self.shapes[name] = shape
        return name

    def maker(self, tensor: str) -> Node | None:
        """Return the node that makes a canonical tensor; None for an input."""
        return self.nodes[self.positions[tensor]] if tensor in self.positions else None

    def _new_name(self, wish: str) -> str:
        """Return ``wish``, with a number appended if a tensor has that name."""
        name = wish
        while name in self.shapes:
            self.numbers[wish] = self.numbers.get(wish, 0) + 1
            name = f"{wish}.{self.numbers[wish]}"
        return name

    def conv(self, node: Node, source: str, weights: np.ndarray, bias: np.ndarray, size: Sequence[int],
             part: str = "", **attributes: Any) -> str:
        """Add a Conv with ``weights`` [out, in / group, height, width] and ``bias`` [out] or a number; return its name.

        It makes ``size`` pixels (height, width). ``attributes`` replace stride 1, no padding, group 1. Raise
        CompileError if weights are not finite."""
        full = {"group": 1, **NO_WINDOW, **attributes, "kernel_shape": tuple(weights.shape[2:])}
        if full["group"] > 1:
            self._count_grouped(node, len(weights), self.shapes[source][1])
        name = self.emit(node, "Conv", [source], full, (1, weights.shape[0], *size), part)
        names = [f"{name}/weights", f"{name}/bias"]
        with np.errstate(over="ignore"):
            numbers = weights.astype(np.float32, copy=False), np.broadcast_to(bias, len(weights)).astype(np.float32)
        if not all(np.isfinite(values).all() for values in numbers):
            raise self.refusal(node, "weights", "infinite numbers, or none", "finite numbers in single precision")
        self.constants.update(zip(names, numbers, strict=True))
        self.nodes[-1] = self.nodes[-1].replace(inputs=(source, *names))
        return name

    def share_weights(self, name: str, first: str) -> None:
        """Let the Conv that makes ``name`` read the weights of the one that makes ``first``, which are equal."""
        number = self.positions[name]
        source, own, bias = self.nodes[number].inputs
        del self.constants[own]
        self.nodes[number] = self.nodes[number].replace(
            inputs=(source, self.nodes[self.positions[first]].input(1), bias))

    def scale(self, node: Node, source: str, scale: np.ndarray | float, shift: np.ndarray | float = 0.0,
              part: str = "") -> str:
        """Add x * scale + shift, each one number or one for each channel; return the result's name."""
        _, channels, height, width = self.shapes[source]
        self.count_weights(node, channels)
        weights = np.broadcast_to(np.asarray(scale, np.float64), channels).reshape(channels, 1, 1, 1)
        return self.conv(node, source, weights, np.asarray(shift, np.float64), (height, width), part, group=channels)

    def copied(self, node: Node, source: str) -> str:
        """Return a copy of ``source`` in a tensor with nothing else, the same for all that ask for it."""
        if source not in self.copies:
            self.copies[source] = self.scale(node, source, 1.0)
        return self.copies[source]

    def relu(self, node: Node, source: str, part: str = "") -> str:
        """Add a Relu; return the result's name."""
        return self.emit(node, "Relu", [source], {}, self.shapes[source], part)

    def slopes(self, node: Node, source: str, slopes: np.ndarray) -> str:
        """Add a PRelu with ``slopes`` [channels]; return the result's name."""
        name = self.emit(node, "PRelu", [source], {}, self.shapes[source])
        self.constants[f"{name}/slopes"] = slopes.reshape(-1, 1, 1).astype(np.float32)
        self.nodes[-1] = self.nodes[-1].replace(inputs=(source, f"{name}/slopes"))
        return name

    def add(self, node: Node, left: str, right: str, part: str = "") -> str:
        """Add a sum of two tensors; return the result's name."""
        return self.emit(node, "Add", [left, right], {}, self.shapes[left], part)

    def limit(self, node: Node, source: str, maximum: float, part: str = "") -> str:
        """Add a limit of ``source`` to 0..maximum; return the result's name."""
        name = self.emit(node, "Clip", [source], {}, self.shapes[source], part)
        names = [f"{name}/min", f"{name}/max"]
        self.constants.update(zip(names, np.array((0, maximum), np.float32), strict=True))
        self.nodes[-1] = self.nodes[-1].replace(inputs=(source, *names))
        return name

    def enlarge(self, node: Node, source: str, factors: tuple[int, int], part: str = "") -> str:
        """Add a repetition of every pixel ``factors`` (height, width) times; return the result's name."""
        _, channels, height, width = self.shapes[source]
        return self.emit(node, "Enlarge", [source], {"factors": factors},
                         (1, channels, height * factors[0], width * factors[1]), part)

    def view(self, node: Node, source: str, size: Sequence[int], offset: int, pitch: int, step: int) -> str:
        """Return ``size`` pixels (height, width) of ``source`` as a View, or the source itself if it is the same."""
        _, channels, height, width = self.shapes[source]
        if (tuple(size), offset, step) == ((height, width), 0, 1) and (pitch == width or height == 1):
            return source
        crosses = offset % width + (size[1] - 1) * step >= width or (pitch % width and size[0] > 1)
        if crosses and source in self.parts | self.uneven:
            source = self.scale(node, source, 1.0, part="copy")
        name = self.emit(node, "View", [source], {"offset": offset, "pitch": pitch, "step": step},
                         (1, channels, *size), "view")
        self.fixed |= {name, source}
        if min(size) > 1 and (source in self.uneven or pitch != size[1] * step):
            self.uneven.add(name)
        return name

    def assemble(self, node: Node, parts: Sequence[tuple[str, PartPlace]], shape: Shape, part: str = "") -> str:
        """Add one tensor of ``shape`` (1, channels, height, width) made of ``parts``; return its name.

        Each part is a tensor and its place. A tensor that cannot be written where it is to lie is copied."""
        tensors, places = [], []
        for tensor, place in parts:
            whole = self.shapes[tensor][2:] == shape[2:] and place == self.whole(tensor)._replace(channel=place.channel)
            if tensor in self.fixed and not (whole and tensor in self.assembled):
                tensor = self.scale(node, tensor, 1.0, part="copy")
            self.assembled.discard(tensor)
            self.fixed.add(tensor)
            self.parts.add(tensor)
            tensors.append(tensor)
            places.append(tuple(place))
        name = self.emit(node, "Assemble", tensors, {"places": tuple(places)}, shape, part)
        self.fixed.add(name)
        self.assembled.add(name)
        return name

    def whole(self, tensor: str) -> PartPlace:
        """Return the place of a part that covers all pixels of its tensor."""
        return PartPlace(0, 0, self.shapes[tensor][3], 1)
