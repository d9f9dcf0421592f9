"""Whether a compiled network's outputs keep their signal, measured on calibration inputs as it is compiled."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from weft.tmodel.network import Network

from weft.cli.poor import KEY
from weft.compiler.check.signals import LAST, signal_of
from weft.compiler.products import Products, Step


class Quality:
    """Give :meth:`after` to ``compile_model`` as ``watch``; then ask ``decibels``."""

    def __init__(self) -> None:
        self._parts: list[Products] = []

    def after(self, step: Step, products: Products) -> None:
        """Keep what a part of the network is, as its layers can be computed in integers."""
        if step.name == LAST:
            self._parts.append(products)

    def decibels(self) -> float | None:
        """Return the signal-to-noise ratio of the worst output on calibration inputs; None where nothing is lost."""
        return signal_of(self._parts)


def record(path: Path, decibels: float) -> None:
    """Write what was measured into a ``.tmodel``, so that whoever runs it is told."""
    network = Network.load(path)
    last = network.machines[-1]
    told = dataclasses.replace(last, layers=(*last.layers[:-1], {**last.layers[-1], KEY: round(decibels, 1)}))
    dataclasses.replace(network, parts=tuple(told if part is last else part for part in network.parts)).save()
