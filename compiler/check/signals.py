# SPDX-License-Identifier: Apache-2.0
"""The signal to noise of a network's outputs on a machine, without a program: its layers run in integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from weft.compiler.check.runners import RUNNERS
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.macs import macs_of
from weft.compiler.partition import Partition
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
MORE_SAMPLES, FEW_MACS = 8, 1 << 26
"""The inputs that are run behind a host, where few elements jump, of at most so many multiply-accumulates."""
LEAST_MACS = 1 << 20
"""The multiply-accumulates of a subgraph up to which MORE_SAMPLES are run in any case, as they take no time."""
RANDOM = ("Bernoulli", "Dropout", "Multinomial", "Random")
"""The beginnings of the names of operators that draw numbers, other ones each time."""


def output_signal(request: Request, arch: Arch) -> float | None:
    """Return the signal to noise in decibels of the worst output; None if no output has an error.

    Each subgraph of the machine reads the results of the network in real numbers. Raise WeftError if it cannot be
    compiled."""
    return signal_of(run_parts(request, arch, last=LAST)[1])


def signal_of(parts: Sequence[Products], whole: Products | None = None) -> float | None:
    """Return the signal to noise of the worst output of all subgraphs, each with its products up to the step LAST.

    ``whole``: the products of the network up to its partition; with it, outputs that the host computes of the machine's
    results count too. What is an error of a step for the machine may be a jump for the host (Floor, ArgMax)."""
    found = [value for products in parts for value in _of_part(products)]
    if whole is not None:
        found += _behind_host(whole, parts)
    return min((value for value in found if value is not None), default=None)


def _behind_host(whole: Products, parts: Sequence[Products]) -> list[float | None]:
    """Return the signal to noise of each output of a network whose parts run one after another, on machine and host.

    The list is empty if the host has no part, draws random numbers, or passes bytes of a quantised file on."""
    graph, partition, given = whole[Graph], whole[Partition], whole[Samples]
    ports = [port for part in partition.graphs for port in (*part.inputs, *part.outputs)]
    drawn = any(operator.startswith(RANDOM) for host in partition.hosts for operator in host.operators)
    if not partition.hosts or drawn or any(port.quantized for port in ports) or len(parts) != len(partition.graphs):
        return []
    wanted: list[Mapping[str, np.ndarray]] = []
    found: list[Mapping[str, np.ndarray]] = []
    for _, sample in islice(given.fed(graph), MORE_SAMPLES if partition.macs <= FEW_MACS else SAMPLES):
        values = {name: np.asarray(value) for name, value in sample.items()}
        machine = iter(parts)
        for part in partition.parts:
            if isinstance(part, Graph):
                made = RUNNERS[Numbers].run(next(machine), {port.name: values[port.name] for port in part.inputs})
                values |= {name: value.astype(np.float32) for name, value in made.items()}
            else:
                values |= part.run(values, graph.name)
        found.append(values)
        wanted.append(RUNNERS[Graph].run(whole, sample))
    return [_decibels([each[port.name] for each in wanted], [each[port.name] for each in found])
            for port in graph.outputs]


def _of_part(products: Products) -> list[float | None]:
    """Return the signal to noise of each output of a subgraph."""
    arrays, graph = products[Samples].arrays, products[Graph]
    is_small = sum(macs_of(graph, node) for node in graph.nodes) <= LEAST_MACS
    count = min(MORE_SAMPLES if is_small else SAMPLES, *(len(array) for array in arrays.values()))
    samples = [{name: array[index] for name, array in arrays.items()} for index in range(count)]
    wanted = [RUNNERS[Graph].run(products, sample) for sample in samples]
    found = [RUNNERS[Numbers].run(products, sample) for sample in samples]
    return [_decibels([each[name] for each in wanted], [each[name] for each in found]) for name in wanted[0]]


def _decibels(wanted: list[np.ndarray], found: list[np.ndarray]) -> float | None:
    """Return the signal to noise of an output over all samples."""
    right, made = (np.stack(values).astype(np.float64) for values in (wanted, found))
    with np.errstate(invalid="ignore", over="ignore"):  # of a host that divides by 0
        return signal_to_noise(float((right**2).sum()), float(((made - right)**2).sum()))
