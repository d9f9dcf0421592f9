# SPDX-License-Identifier: Apache-2.0
"""Check the HIR: every layer is whole, and what it reads was written before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compiler.errors import Fault
from weft.compiler.layers.hir import (
    Add,
    Convolution,
    Layer,
    LayerOperation,
    Load,
    MaxPool,
    Multiply,
    Product,
    Round,
    Save,
    ScaleChannels,
    Translate,
    Var,
)
from weft.hw.contract.schemes import SCALE_VECTORS
from weft.tmodel.window import Size

Temp = tuple[int | None, Size]
"""A Temp's shape: its channels, or None if the layer does not say them, and its height and width."""


def verify_layers(layers: Sequence[Layer], inputs: Iterable[str]) -> None:
    """Raise Fault at the first wrong layer. ``inputs``: names of the network's inputs, there from the start."""
    written, saved = set(inputs), set()
    for layer in layers:
        _verify_operations(layer)
        for var in layer.inputs:
            if var.root not in written:
                raise Fault(f"layer {layer.name}: reads {var.name!r}, which nothing wrote")
        for var in layer.outputs:
            if var.name in saved:
                raise Fault(f"layer {layer.name}: {var.name!r} is saved a second time")
            saved.add(var.name)
            written.add(var.root)


def _verify_operations(layer: Layer) -> None:
    """Raise Fault unless the layer has one core, first, ends with a Save, and every operation is right."""
    temps: dict[str, Temp] = {}
    for number, operation in enumerate(layer.operations):
        if isinstance(operation, Convolution | Product | Load) != (number == 0):
            raise Fault(f"layer {layer.name}: {operation} must be the first operation, and no other")
        _verify_operation(layer, operation, temps)
    if not isinstance(layer.operations[-1], Save):
        raise Fault(f"layer {layer.name}: ends with {layer.operations[-1]}, not with a Save")


def _verify_operation(layer: Layer, operation: LayerOperation, temps: dict[str, Temp]) -> None:
    """Raise Fault if an operation reads a Temp that nothing wrote or does not fit it.

    ``temps`` holds the Temps that earlier operations of the layer made; the operation's own are added."""
    if isinstance(operation, Convolution | Product | Load):
        channels = operation.input.channels if isinstance(operation, Load) else None
        temps[operation.output] = channels, operation.size
        return
    name = operation.source if isinstance(operation, MaxPool | Save) else operation.target
    if name not in temps:
        raise Fault(f"layer {layer.name}: {operation} reads {name}, which nothing wrote")
    channels, size = temps[name]
    if isinstance(operation, MaxPool):
        if layer.saves_before_pool and not operation.window.partitions(size, operation.size):
            raise Fault(f"layer {layer.name}: {operation} does not read each pixel once of what is saved before it")
        temps[operation.output] = channels, operation.size
    elif isinstance(operation, Add | Multiply | Round | Save | Translate):
        var = getattr(operation, {Save: "output", Round: "tensor", Translate: "tensor"}.get(type(operation), "input"))
        _verify_fits(layer, operation, var, channels, size)
        temps[name] = var.channels, size
    elif isinstance(operation, ScaleChannels):
        _verify_fits(layer, operation, operation.factors, channels, (1, SCALE_VECTORS))


def _verify_fits(layer: Layer, operation: LayerOperation, var: Var, channels: int | None, size: Size) -> None:
    """Raise Fault unless ``var`` has the channels and size (height, width) of the Temp that it meets."""
    if var.size != size or channels not in (None, var.channels):
        raise Fault(f"layer {layer.name}: {operation} meets a Temp of {channels} channels, {size} pixels")
