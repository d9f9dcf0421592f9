# SPDX-License-Identifier: Apache-2.0
"""Pass: pixels that nobody reads are not computed (dead pixel elimination).

Some tensors are read only in some rows and columns: by a 1x1 convolution with a stride, a slice, a crop. If these are
evenly spaced, the tensor is replaced by them. Elementwise operators take them from their inputs, convolutions and pools
make them by a larger stride, views walk in larger steps; so it goes on upwards. If an input has more pixels than are
read here, a View picks them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from weft.compiler.frontend.graph import Graph, Node
from weft.compiler.lowering.operators import ROWS
from weft.tmodel.window import Window

WINDOWED = frozenset({"Conv", "MaxPool"})
"""Operators that slide a window over an image."""


class EvenPixels(NamedTuple):
    """Evenly spaced pixels of one axis: ``length`` of them from ``start`` on, ``step`` apart."""

    start: int
    step: int
    length: int

    @property
    def last(self) -> int:
        """The index of the last pixel."""
        return self.start + self.step * (self.length - 1)

    def within(self, other: EvenPixels) -> EvenPixels:
        """Return these pixels as indices into the pixels of ``other``, which contains them all."""
        step = self.step // other.step if self.length > 1 else 1
        return EvenPixels((self.start - other.start) // other.step, step, self.length)


Grid = tuple[EvenPixels, EvenPixels]


def whole(size: Iterable[int]) -> Grid:
    """Return every pixel of an image of ``size`` (height, width)."""
    height, width = size
    return EvenPixels(0, 1, height), EvenPixels(0, 1, width)


def union(lines: Iterable[EvenPixels]) -> EvenPixels:
    """Return the fewest evenly spaced pixels that contain those of all ``lines``."""
    lines = list(lines)
    start, last = min(line.start for line in lines), max(line.last for line in lines)
    gaps = [line.step for line in lines if line.length > 1] + [line.start - start for line in lines]
    step = math.gcd(*gaps) or 1
    return EvenPixels(start, step, (last - start) // step + 1)


def drop_unread_pixels(graph: Graph) -> Graph:
    """Return the same network with every tensor reduced to the rows and columns that are read."""
    grids = _grids(graph)
    state = _Smaller(graph, grids)
    for node in graph.nodes:
        state.add(node)
    return graph.with_nodes(state.nodes).replace(shapes=state.shapes)


# -- what is read ------------------------------------------------------------------------------------------------------
def _grids(graph: Graph) -> dict[str, Grid]:
    """Return the pixels that each tensor keeps; walks from the outputs to the inputs."""
    reads: dict[str, list[Grid]] = {}
    outputs = graph.output_tensors()
    grids = {port.tensor: whole(graph.shapes[port.tensor][2:]) for port in graph.inputs}
    for node in reversed(graph.nodes):
        name = node.output
        every = whole(graph.shapes[name][2:])
        found = reads.get(name)
        wanted = every
        if found and name not in outputs:
            wanted = union(grid[0] for grid in found), union(grid[1] for grid in found)
        grids[name] = wanted if _makes(graph, node, wanted) else every
        for source in filter(graph.shapes.__contains__, dict.fromkeys(node.inputs)):
            reads.setdefault(source, []).append(_reads(graph, node, source, grids[name]))
    return grids


def _makes(graph: Graph, node: Node, grid: Grid) -> bool:
    """Tell whether an operator can make exactly the pixels ``grid`` of its output."""
    if node.op in WINDOWED:
        window, size = _window(node, grid), graph.shapes[node.input(0)][2:]
        return all(_read(window, axis, grid[axis].length, size[axis]) for axis in range(2))
    return node.op == "View" or _is_elementwise(graph, node)


def _is_elementwise(graph: Graph, node: Node) -> bool:
    """Tell whether each output element depends on the elements of the same place only."""
    shapes = {graph.shapes[name] for name in (*node.inputs, node.output) if name in graph.shapes}
    return len(shapes) == 1 and (node.op == "PRelu" or (node.op in ROWS and ROWS[node.op].elementwise))


def _reads(graph: Graph, node: Node, source: str, grid: Grid) -> Grid:
    """Return the pixels of an input that the pixels ``grid`` of the output need."""
    _, _, height, width = graph.shapes[source]
    every = whole((height, width))
    if _is_elementwise(graph, node):
        return grid
    if node.op == "View":
        return _viewed(node, width, grid) or every
    if node.op not in WINDOWED:
        return every
    window = _window(node, grid)
    rows, columns = (_line(window, axis, grid[axis].length, every[axis].length, node.op == "MaxPool")
                     for axis in range(2))
    return rows, columns


def _line(window: Window, axis: int, outputs: int, size: int, dense: bool) -> EvenPixels:
    """Return the pixels that a window reads along one axis, for ``outputs`` outputs of an image of ``size``.

    With ``dense`` these are all from the first window to the end of the last, because the padding of a pool must stay
    smaller than its kernel."""
    read = _read(window, axis, outputs, size)
    if not read:
        return EvenPixels(0, 1, size)
    if dense:
        low, high = window.inputs(axis, 0, outputs, size)
        return EvenPixels(low, 1, high - low)
    step = math.gcd(window.strides[axis] if outputs > 1 else 0,
                    window.dilations[axis] if window.kernel[axis] > 1 else 0) or 1
    return EvenPixels(min(read), step, (max(read) - min(read)) // step + 1)


def _read(window: Window, axis: int, outputs: int, size: int) -> set[int]:
    """Return the set of pixels that a window reads along one axis, for ``outputs`` outputs."""
    return {pixel for output in range(outputs) for pixel in window.reads(axis, output, (0, size))}


def _viewed(node: Node, width: int, grid: Grid) -> Grid | None:
    """Return the pixels of a View's input that ``grid`` needs; None if the view mixes rows and columns."""
    offset, pitch, step = _walk(node, grid)
    rows, columns = grid[0].length, grid[1].length
    row, column = divmod(offset, width)
    if (rows > 1 and pitch % width) or column + (columns - 1) * step >= width:
        return None
    return (EvenPixels(row, pitch // width if rows > 1 else 1, rows),
            EvenPixels(column, step if columns > 1 else 1, columns))


def _walk(node: Node, grid: Grid) -> tuple[int, int, int]:
    """Return the offset, pitch and step, in a View's input, of the pixels ``grid`` of its output."""
    offset, pitch, step = (node.attributes[key] for key in ("offset", "pitch", "step"))
    rows, columns = grid
    return offset + rows.start * pitch + columns.start * step, pitch * rows.step, step * columns.step


def _window(node: Node, grid: Grid) -> Window:
    """Return the window that makes the pixels ``grid`` of a node's output."""
    attributes = node.attributes
    strides, pads = attributes["strides"], attributes["pads"]
    return Window(attributes["kernel_shape"], (strides[0] * grid[0].step, strides[1] * grid[1].step),
                  (pads[0] - grid[0].start * strides[0], pads[1] - grid[1].start * strides[1]),
                  attributes["dilations"])


# -- the smaller network -----------------------------------------------------------------------------------------------
@dataclass
class _Smaller:
    """The reduced network while it is built.

    ``grids``: the pixels that each tensor keeps; ``views``: the View of a tensor for some pixels, once made."""

    graph: Graph
    grids: Mapping[str, Grid]
    nodes: list[Node] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    views: dict[tuple[str, Grid], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.shapes = {name: (*shape[:2], *(line.length for line in self.grids[name])) if name in self.grids else shape
                       for name, shape in self.graph.shapes.items()}

    def add(self, node: Node) -> None:
        """Add a node such that it reads and makes only the retained pixels."""
        grid, source = self.grids[node.output], node.input(0)
        kept = (name for name in (*node.inputs, node.output) if name in self.grids)
        if all(self.shapes[name] == self.graph.shapes[name] for name in kept):
            pass
        elif node.op in WINDOWED:
            node = self._windowed(node, grid)
        elif node.op == "View":
            viewed = _viewed(node, self.graph.shapes[source][3], grid)
            have = self.grids[source]
            if viewed is not None:
                node = node.replace(attributes=self._places(source, _inside(viewed, have)))
            else:
                node = node.replace(attributes=dict(zip(("offset", "pitch", "step"), _walk(node, grid), strict=True)))
        elif _is_elementwise(self.graph, node):
            node = node.replace(inputs=tuple(self._pick(name, grid) if name in self.grids else name
                                             for name in node.inputs))
        self.nodes.append(node)

    def _windowed(self, node: Node, grid: Grid) -> Node:
        """Return a convolution or pool with strides and pads for the retained pixels."""
        source = node.input(0)
        have, need = self.grids[source], _reads(self.graph, node, source, grid)
        attributes = _attributes(node, grid, have)
        if attributes is None:
            source, attributes = self._pick(source, need), _attributes(node, grid, need)
            assert attributes is not None
        return node.replace(inputs=(source, *node.inputs[1:]), attributes=attributes)

    def _pick(self, name: str, grid: Grid) -> str:
        """Return the tensor that has exactly the pixels ``grid`` of a tensor of the original network.

        Add a View if needed."""
        if grid == self.grids[name]:
            return name
        if (name, grid) not in self.views:
            view = f"{name}/picked{len(self.views)}"
            attributes = self._places(name, _inside(grid, self.grids[name]))
            self.nodes.append(Node(view, "View", (name,), (view,), attributes))
            self.shapes[view] = (*self.shapes[name][:2], grid[0].length, grid[1].length)
            self.views[name, grid] = view
        return self.views[name, grid]

    def _places(self, name: str, grid: Grid) -> dict[str, Any]:
        """Return the attributes of a View with the pixels ``grid`` of a tensor of the reduced network."""
        width = self.shapes[name][3]
        rows, columns = grid
        return {"offset": rows.start * width + columns.start, "pitch": rows.step * width, "step": columns.step}


def _inside(grid: Grid, other: Grid) -> Grid:
    """Return the pixels ``grid``, counted among those of ``other``, along both axes."""
    return grid[0].within(other[0]), grid[1].within(other[1])


def _attributes(node: Node, grid: Grid, have: Grid) -> dict[str, Any] | None:
    """Return the attributes of a window that makes ``grid`` from the pixels ``have`` of its input.

    Return None if that is not possible. Then pixels begin before the first window, or go on so far after the last one
    that there would be another. Or windows or taps do not lie whole steps apart, as those in the padding need not."""
    window = _window(node, grid)
    strides, pads, ends, dilations = [], [], [], []
    for axis in range(2):
        step, outputs, taps = have[axis].step, grid[axis].length, window.kernel[axis]
        if (taps > 1 and window.dilations[axis] % step) or (outputs > 1 and window.strides[axis] % step):
            return None
        dilations.append(window.dilations[axis] // step if taps > 1 else 1)
        pads.append((window.pads[axis] + have[axis].start) // step)
        beyond = have[axis].length + pads[axis] - (taps - 1) * dilations[axis] - 1  # of the first window
        strides.append(window.strides[axis] // step if outputs > 1 else max(beyond, 0) + 1)
        ends.append((outputs - 1) * strides[axis] - beyond)
        if pads[axis] < 0 or ends[axis] <= -strides[axis]:
            return None
    made = {"strides": tuple(strides), "dilations": tuple(dilations),
            "pads": (*pads, *(max(end, 0) for end in ends))}
    return {**node.attributes, **made, **({"ceil_mode": 0} if node.op == "MaxPool" else {})}
