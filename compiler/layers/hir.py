# SPDX-License-Identifier: Apache-2.0
"""HIR, the compiler's form of layers: a core, stages on its result in the accumulators, and one or two saves.

The core is a convolution on the array, a product of two tensors as matrices, or a load, which brings a tensor into the
accumulators as it is. ``stages.py`` has cores, stages and saves. Stages are fields of a Layer, so that their order is
that of the machine and not of the graph."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import get_args

from weft.compiler.layers.stages import (
    KINDS,
    Add,
    Core,
    Elementwise,
    Load,
    Lookup,
    MaxPool,
    Multiply,
    Product,
    Rounding,
    Save,
    Scale,
    Translate,
)
from weft.compiler.layers.var import Part, Var
from weft.compiler.text_form import parse_value
from weft.tmodel.window import Window


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
