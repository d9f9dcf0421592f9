# SPDX-License-Identifier: Apache-2.0
"""Layers that read a small piece of an output of the network, such as a state.

Outputs lie in DRAM0. A load of what was written there a moment ago keeps all loads of weights behind it waiting, in the
same queue. So a piece that has further readers is saved a second time, as a Var of its own that may be pinned."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from weft.compiler.layers.hir import Layer, Layers
from weft.compiler.layers.stages import Product
from weft.compiler.layers.var import PIECE, Var
from weft.hw.contract.arch import Arch

SMALL = 16
"""The least ratio of local memory to a piece that is saved twice."""


def saved_for_readers(layers: Iterable[Layer], outputs: Collection[str], arch: Arch) -> Layers:
    """Return the layers with pieces of ``outputs``, names of tensors, saved a second time for their readers."""
    every = tuple(layers)
    read = {var for layer in every for var in layer.inputs}
    twice = {layer.output for layer in every if layer.output in read and _can_be_saved_twice(layer, outputs, arch)}
    return Layers(_reading(_saving(layer, twice), twice) for layer in every)


def _can_be_saved_twice(layer: Layer, outputs: Collection[str], arch: Arch) -> bool:
    """Tell whether a layer saves a small piece of an output, and nothing else."""
    var = layer.output
    return (var.part is not None and var.root in outputs and len(layer.saves) == 1 and layer.pool is None
            and layer.elementwise is None and layer.factors is None
            and SMALL * var.vectors(arch.array_size) <= arch.local_depth)


def _saving(layer: Layer, twice: Collection[Var]) -> Layer:
    """Return the layer with a second save, of the Var that readers take, if its output is one of ``twice``.

    That Var has the tensor's name; the piece of the output gets another one."""
    save = layer.saves[-1]
    if save.var not in twice:
        return layer
    piece = replace(save, var=replace(save.var, name=save.var.name + PIECE))
    return replace(layer, saves=(replace(save, var=_apart(save.var)), piece))


def _reading(layer: Layer, twice: Collection[Var]) -> Layer:
    """Return the layer with inputs that are saved ``twice`` read where they have a Var of their own."""
    def apart(var: Var) -> Var:
        return _apart(var) if var in twice else var

    core = layer.core
    core = (replace(core, input=apart(core.input), weights=apart(core.weights)) if isinstance(core, Product)
            else replace(core, input=apart(core.input)))
    adds = tuple(replace(add, input=apart(add.input)) for add in layer.adds)
    return replace(layer, core=core, adds=adds)


def _apart(var: Var) -> Var:
    """Return a Var with memory of its own for what ``var`` holds."""
    return replace(var, part=None)
