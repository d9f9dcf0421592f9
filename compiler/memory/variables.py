# SPDX-License-Identifier: Apache-2.0
"""Live ranges of Vars, and their allocations in DRAM0."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from weft.compiler.errors import CompileError, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.layers.beside import beside
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.var import Var
from weft.compiler.memory.allocation import Allocation, first_fit
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class LiveRange:
    """A Var from the first layer that writes it to the last that uses it; ``fixed``: input or output of the network."""

    var: Var
    first: int
    last: int
    fixed: bool

    @property
    def name(self) -> str:
        """The Var's name."""
        return self.var.name


def whole_var(graph: Graph, name: str) -> Var:
    """Return a Var for a tensor of the graph, with memory of its own."""
    _, channels, height, width = graph.shapes[name]
    return Var(name, channels, height, width)


def live_ranges(graph: Graph, layers: Sequence[Layer], arch: Arch, keep: bool = False) -> tuple[LiveRange, ...]:
    """Return the live ranges of all Vars that have memory, inputs first, then in the order in which they are made.

    Inputs live to the end, so that a program can run again; so do outputs, and with ``keep`` all Vars. Layers that may
    run together begin and end together."""
    inputs, outputs = [whole_var(graph, port.tensor) for port in graph.inputs], graph.output_tensors()
    roots = dict.fromkeys(var.root for layer in layers for var in layer.outputs)
    return _lives(inputs, {name: (whole_var(graph, name), keep or name in outputs) for name in roots}, layers, arch)


def live_again(lives: Sequence[LiveRange], layers: Sequence[Layer], arch: Arch) -> tuple[LiveRange, ...]:
    """Return the live ranges of the Vars of ``lives`` for the same layers in another order."""
    return _lives([life.var for life in lives if life.first < 0],
                  {life.name: (life.var, life.fixed) for life in lives}, layers, arch)


def _lives(inputs: Sequence[Var], made: Mapping[str, tuple[Var, bool]], layers: Sequence[Layer],
           arch: Arch) -> tuple[LiveRange, ...]:
    """Return live ranges; ``made``: a Var by its name, and whether it is fixed."""
    end = len(layers)
    found = {var.name: LiveRange(var, -1, end, True) for var in inputs}
    for number, layer in enumerate(layers):
        for name in {var.root: None for var in layer.inputs}:
            found[name] = replace(found[name], last=max(found[name].last, number))
        for name in {var.root: None for var in layer.outputs}:
            life = found.get(name) or LiveRange(made[name][0], number, number, made[name][1])
            found[name] = replace(life, last=end if life.fixed else number)
    leaders = beside(layers, arch)
    ends = {leader: number for number, leader in leaders.items()}  # the last one of each
    return tuple(replace(life, first=leaders.get(life.first, life.first),
                         last=ends.get(leaders.get(life.last, life.last), life.last)) for life in found.values())


def spread_vectors(var: Var, lanes: int) -> int:
    """Return the vectors in DRAM1 of a Var that is spread: its odd channel tiles, or the only one."""
    return max(var.odd_tiles(lanes), 1) * var.tile_pixels


def has_room(lives: Sequence[LiveRange], arch: Arch) -> bool:
    """Tell whether DRAM0 has room for all Vars, none of them pinned or spread."""
    try:
        place_variables(lives, (), (), arch)
    except CompileError:
        return False
    return True


def need_room_for_ports(lives: Sequence[LiveRange], arch: Arch) -> None:
    """Raise CompileError if inputs and outputs alone, which are neither pinned nor spread, exceed DRAM0."""
    place_variables([life for life in lives if life.fixed], (), (), arch)


def place_variables(lives: Sequence[LiveRange], resident: Collection[str], spread: Collection[str],
                    arch: Arch) -> dict[str, Allocation]:
    """Return the DRAM0 allocations of all Vars that are not pinned (``resident``).

    For those in ``spread`` they hold only what is not in DRAM1, the even channel tiles or nothing. Raise CompileError
    if DRAM0 is too small."""
    placed: dict[str, Allocation] = {}
    for life in lives:
        if life.name in resident:
            continue
        size = life.var.vectors(arch.array_size)
        if life.name in spread:
            size -= spread_vectors(life.var, arch.array_size)
        base = first_fit(placed.values(), size, life.first, life.last)
        placed[life.var.name] = Allocation(life.var.name, base, size, life.first, life.last)
    needed = max((place.base + place.size for place in placed.values()), default=0)
    if needed > arch.dram0_depth:
        largest = max(placed.values(), key=lambda place: place.base + place.size)
        raise refuse(f"dram0_depth for tensors (reached by {largest.name!r})", arch.dram0_depth,
                     f"at least {needed} vectors", "raise dram0_depth or use a larger array")
    return placed
