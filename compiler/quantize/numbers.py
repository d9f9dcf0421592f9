"""What binary points and scales have in common: how a network's numbers are stored, and how they come into the
accumulators and out of them. Tiling, scheduler, backend and the checker know no more of them than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from weft.tmodel.scales import TensorNumbers

from weft.compiler.layers.hir import Layer
from weft.compiler.lir import NO_SETTINGS, Settings
from weft.hw.contract.arch import Arch


@dataclass(frozen=True)
class LayerQuantization:
    """The settings of a layer's operations: MatMuls; on its way in a load core's Var, or what is rounded; the other
    Vars, in order; each output on its way out; the SIMD unit for each output, and its operands on their way in; what is
    rounded on its way out. ``load_table``: the table on the way out that the layer loads, 0 for none."""

    mat_mul: Settings
    core: Settings
    adds: tuple[Settings, ...]
    requantizations: tuple[Settings, ...]
    simd: tuple[Settings, ...]
    operand: Settings
    rounding: Settings = NO_SETTINGS
    load_table: int = 0


@dataclass(frozen=True)
class LayerIntegers:
    """One layer's constants as the machine has them: ``weights`` [out, in / ``group``, height, width] and ``bias``
    [out], None where it has none; ``operands`` of the SIMD unit; value ``tables``, the keys first.

    With ``multipliers`` [ways out, out] results are scaled as they leave the accumulators, first what is rounded, then
    the outputs; the bias, [ways out, out] too, is added there. Without, sums begin with it.
    """

    weights: np.ndarray | None
    bias: np.ndarray | None
    group: int = 1
    operands: tuple[int, ...] = ()
    tables: tuple[tuple[int, ...], ...] = ()
    multipliers: np.ndarray | None = None


class Numbers(ABC):
    """``vars``: of every Var that has memory; ``layers``: in order; ``limited``: Vars that saturate on purpose, for
    what reads them is constant beyond; ``table_errors``: the largest error of lookup tables, by the tensor made;
    ``measured``: what of them comes from calibration, in words, empty for nothing."""

    vars: Mapping[str, Any]
    layers: tuple[Any, ...]
    limited: frozenset[str] = frozenset()
    table_errors: Mapping[str, float] = {}
    measured: str = ""

    @abstractmethod
    def tensor(self, root: str, arch: Arch) -> TensorNumbers:
        """How a Var with memory holds real numbers."""

    @abstractmethod
    def ways(self, number: int) -> LayerQuantization:
        """Those of layer ``number``."""

    @abstractmethod
    def integers(self, number: int, layer: Layer, constants: Mapping[str, np.ndarray], arch: Arch) -> LayerIntegers:
        """The constants of layer ``number``, which is ``layer``."""

    @abstractmethod
    def row(self, number: int, layer: Layer) -> dict[str, Any]:
        """What the report says of them."""

    def warnings(self, layers: Sequence[Layer]) -> list[str]:
        """What the user is to know of them, in words with a way out."""
        return []

    @abstractmethod
    def text(self) -> str:
        """All of them, a line each."""
