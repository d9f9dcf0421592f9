# SPDX-License-Identifier: Apache-2.0
"""Measure whether a compiled network's outputs keep their signal, on calibration inputs during compilation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from weft.compiler.check.signals import LAST, signal_of
from weft.compiler.pipeline import LAST_OF_ALL
from weft.compiler.products import Products, Step
from weft.tmodel.manifest import OUTPUTS_DECIBELS
from weft.tmodel.network import Network


class Quality:
    """The measurement: give :meth:`after` to ``compile_model`` as ``watch``, then call ``decibels``."""

    def __init__(self) -> None:
        self._parts: list[Products] = []
        self._whole: Products | None = None

    def after(self, step: Step, products: Products) -> None:
        """Keep the network's products once it is cut, a subgraph's once its layers can be computed in integers."""
        if step.name == LAST_OF_ALL:
            self._whole = products
        elif step.name == LAST:
            self._parts.append(products)

    def decibels(self) -> float | None:
        """Return the signal-to-noise ratio of the worst output on calibration inputs; None if nothing is lost."""
        return signal_of(self._parts, self._whole)


def record(path: Path, decibels: float) -> None:
    """Write the measured signal to noise into a ``.tmodel``, so that a later run can warn."""
    network = Network.load(path)
    last = network.machines[-1]
    row = {**last.layers[-1], OUTPUTS_DECIBELS: round(decibels, 1)}
    told = dataclasses.replace(last, layers=(*last.layers[:-1], row))
    dataclasses.replace(network, parts=tuple(told if part is last else part for part in network.parts)).save()
