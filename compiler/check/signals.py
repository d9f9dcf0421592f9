"""How exact a network's outputs are in a machine's numbers, without a program: its layers in integers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from weft.support.signals import signal_to_noise

from weft.compiler.check.runners import RUNNERS
from weft.compiler.frontend.graph import Graph
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.calibrate import Samples
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch

LAST = "consts"
"""The step after which a part's layers can be computed in integers."""
SAMPLES = 2
"""Calibration inputs that run, the first ones."""


def output_signal(request: Request, arch: Arch) -> float | None:
    """In decibels, of the output that has least, over all of the machine's parts, each on what the network in real
    numbers gives it; None where none has an error. Raises WeftError."""
    return signal_of(run_parts(request, arch, last=LAST)[1])


def signal_of(parts: Iterable[Products]) -> float | None:
    """The same of all parts, each with its products up to the step LAST."""
    found = [value for products in parts for value in _of_part(products) if value is not None]
    return min(found) if found else None


def _of_part(products: Products) -> list[float | None]:
    arrays = products[Samples].arrays
    count = min(SAMPLES, *(len(array) for array in arrays.values()))
    samples = [{name: array[index] for name, array in arrays.items()} for index in range(count)]
    wanted = [RUNNERS[Graph].run(products, sample) for sample in samples]
    found = [RUNNERS[Numbers].run(products, sample) for sample in samples]
    return [_decibels([each[name] for each in wanted], [each[name] for each in found]) for name in wanted[0]]


def _decibels(wanted: list[np.ndarray], found: list[np.ndarray]) -> float | None:
    right, made = np.stack(wanted), np.stack(found)
    return signal_to_noise(float((right**2).sum()), float(((made - right)**2).sum()))
