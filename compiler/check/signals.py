# SPDX-License-Identifier: Apache-2.0
"""The signal to noise of a network's outputs on a machine, without a program: its layers run in integers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from weft.compiler.check.runners import RUNNERS
from weft.compiler.frontend.graph import Graph
from weft.compiler.pipeline import run_parts
from weft.compiler.products import Products
from weft.compiler.quantize.numbers import Numbers
from weft.compiler.quantize.samples import Samples
from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.support.signals import signal_to_noise

LAST = "consts"
"""The step after which a subgraph's layers can be computed in integers."""
SAMPLES = 2
"""The number of calibration inputs that are run, the first ones."""


def output_signal(request: Request, arch: Arch) -> float | None:
    """Return the signal to noise in decibels of the worst output; None if no output has an error.

    Each subgraph of the machine reads the results of the network in real numbers. Raise WeftError if it cannot be
    compiled."""
    return signal_of(run_parts(request, arch, last=LAST)[1])


def signal_of(parts: Iterable[Products]) -> float | None:
    """Return the signal to noise of the worst output of all subgraphs, each with its products up to the step LAST."""
    found = [value for products in parts for value in _of_part(products) if value is not None]
    return min(found) if found else None


def _of_part(products: Products) -> list[float | None]:
    """Return the signal to noise of each output of a subgraph."""
    arrays = products[Samples].arrays
    count = min(SAMPLES, *(len(array) for array in arrays.values()))
    samples = [{name: array[index] for name, array in arrays.items()} for index in range(count)]
    wanted = [RUNNERS[Graph].run(products, sample) for sample in samples]
    found = [RUNNERS[Numbers].run(products, sample) for sample in samples]
    return [_decibels([each[name] for each in wanted], [each[name] for each in found]) for name in wanted[0]]


def _decibels(wanted: list[np.ndarray], found: list[np.ndarray]) -> float | None:
    """Return the signal to noise of an output over all samples."""
    right, made = np.stack(wanted), np.stack(found)
    return signal_to_noise(float((right**2).sum()), float(((made - right)**2).sum()))
