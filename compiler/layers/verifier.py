# SPDX-License-Identifier: Apache-2.0
"""Check the HIR: what a layer reads was written before, and every stage fits the result that it meets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compiler.errors import Fault
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Load
from weft.compiler.layers.var import Var
from weft.hw.contract.schemes import SCALE_VECTORS
from weft.tmodel.window import Size


def verify_layers(layers: Sequence[Layer], inputs: Iterable[str]) -> None:
    """Raise Fault at the first wrong layer. ``inputs``: names of the network's inputs, there from the start."""
    written, saved = set(inputs), set()
    for layer in layers:
        _verify_saves(layer)
        _verify_sizes(layer)
        for var in layer.inputs:
            if var.root not in written:
                raise Fault(f"layer {layer.name}: reads {var.name!r}, which nothing wrote")
        for var in layer.outputs:
            if var.name in saved:
                raise Fault(f"layer {layer.name}: {var.name!r} is saved a second time")
            saved.add(var.name)
            written.add(var.root)


def _verify_saves(layer: Layer) -> None:
    """Raise Fault unless the layer ends with a save, and only saves before it precede a max pool."""
    if not layer.saves:
        raise Fault(f"layer {layer.name}: saves nothing")
    if any(save.before_pool != (layer.pool is not None) for save in layer.saves[:-1]) or layer.saves[-1].before_pool:
        raise Fault(f"layer {layer.name}: {layer.saves} do not fit the max pool {layer.pool}")
    if layer.pool is not None and layer.saves_before_pool and not layer.pool.window.partitions(layer.core.size,
                                                                                              layer.pool.size):
        raise Fault(f"layer {layer.name}: {layer.pool} does not read each pixel once of what is saved before it")


def _verify_sizes(layer: Layer) -> None:
    """Raise Fault if a Var has other channels or pixels than the result that it is added to or saved from."""
    inside = [stage.tensor for stage in (layer.translation, layer.rounding) if stage is not None]
    whole = [*inside, *(add.input for add in layer.adds), *(save.var for save in layer.saves if save.before_pool)]
    size = layer.core.size if layer.pool is None else layer.pool.size
    saved = [save.var for save in layer.saves if not save.before_pool]
    channels = layer.core.input.channels if isinstance(layer.core, Load) else (whole + saved)[0].channels
    for var in whole:
        _verify_fits(layer, var, channels, layer.core.size)
    for var in saved:
        _verify_fits(layer, var, channels, size)
    if layer.factors is not None:
        _verify_fits(layer, layer.factors, channels, (1, SCALE_VECTORS))


def _verify_fits(layer: Layer, var: Var, channels: int, size: Size) -> None:
    """Raise Fault unless ``var`` has the channels and size (height, width) of the result that it meets."""
    if var.size != size or var.channels != channels:
        raise Fault(f"layer {layer.name}: {var} meets a result of {channels} channels, {size} pixels")
