# SPDX-License-Identifier: Apache-2.0
"""The common interface of fixed-point and affine parameters: how numbers are stored, loaded and requantized.

Tiling, scheduler, backend and the checker know no more of number schemes than this."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.compiler.layers.hir import Layer
from weft.compiler.lir import NO_SETTINGS, Settings
from weft.hw.contract.arch import Arch
from weft.tmodel.scales import TensorNumbers


@dataclass(frozen=True)
class LayerQuantization:
    """The values of Configure registers for each operation of a layer.

    ``mat_mul``: its MatMuls. ``core``: loading a load core's Var, or the rounded tensor. ``adds``: loading the further
    Vars, in order. ``requantizations``: saving each output. ``simd``: the SIMD unit for each output; ``operand``:
    loading its constants. ``rounding``: requantizing the rounded tensor. ``load_table``: the activation table that the
    layer loads, 0 for none."""

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
    """The integer constants of one layer.

    ``weights`` [out, in / ``group``, height, width] and ``bias`` [out], None where it has none; ``operands`` of the
    SIMD unit; lookup ``tables``, the keys first. On INT8 machines ``multipliers`` [requantizations, out] and ``bias``
    of the same shape belong to the requantizer: a rounded tensor first, then the outputs. On others sums begin with the
    bias, and ``slopes`` [factors, out] are further constants of the SIMD unit."""

    weights: np.ndarray | None
    bias: np.ndarray | None
    group: int = 1
    operands: tuple[int, ...] = ()
    tables: tuple[tuple[int, ...], ...] = ()
    multipliers: np.ndarray | None = None
    slopes: np.ndarray | None = None


class Numbers(ABC):
    """The quantization parameters of a network: of every Var with memory (``vars``), of every layer (``layers``).

    ``limited``: Vars that saturate on purpose, as what reads them is constant beyond. ``table_errors``: the largest
    error of each lookup table, by the tensor that it makes. ``measured``: what calibration decided, in words; empty for
    nothing."""

    vars: Mapping[str, Any]
    layers: tuple[Any, ...]
    limited: frozenset[str] = frozenset()
    table_errors: Mapping[str, float] = {}
    measured: str = ""

    @abstractmethod
    def tensor(self, root: str, arch: Arch) -> TensorNumbers:
        """Return how the Var ``root`` encodes real numbers."""

    @abstractmethod
    def registers(self, number: int) -> LayerQuantization:
        """Return the register values of the operations of layer ``number``."""

    @abstractmethod
    def integers(self, number: int, layer: Layer, constants: Mapping[str, np.ndarray], arch: Arch) -> LayerIntegers:
        """Return the integer constants of layer ``number``, which is ``layer``."""

    @abstractmethod
    def reordered(self, order: Sequence[int], layers: Sequence[Layer], arch: Arch) -> Numbers:
        """Return the same parameters for the layers at the places ``order``, which are ``layers``."""

    @abstractmethod
    def row(self, number: int, layer: Layer) -> dict[str, Any]:
        """Return the parameters of layer ``number`` for the compiler's report."""

    def warnings(self, layers: Sequence[Layer]) -> list[str]:
        """Return warnings on these parameters for the user, each with a way out."""
        return []

    @abstractmethod
    def text(self) -> str:
        """Return all parameters as text, a line each."""
