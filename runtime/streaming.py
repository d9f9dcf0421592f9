# SPDX-License-Identifier: Apache-2.0
"""Run networks that keep a state: outputs of one step are inputs of the next step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from weft.runtime import images, saturations
from weft.runtime.compare import Comparison
from weft.runtime.saturations import Saturated
from weft.runtime.session import RunResult, Session
from weft.support.errors import WeftError, explain
from weft.tmodel.network import Network
from weft.tmodel.tensors import Tensor

SUMMED = ("images", "instructions", "cycles", "macs", "done_macs", "seconds")
LISTED = ("operations", "samples")


def stream(session: Session, inputs: Mapping[str, np.ndarray], states: Mapping[str, str], *, most: int | None = None,
           **options: Any) -> RunResult:
    """Run the network once for each of the inputs, one step after another, and return the result of all steps.

    ``states``: output -> input that reads it in the next step. ``inputs`` may hold the states before the first step,
    else they are the real 0. ``options`` are those of Session.run. Raise WeftError for states that the network does not
    have or that do not fit, and the errors of Session.run."""
    kept = checked(session.network, states)
    steps = images.split_images(session.network, inputs, most, frozenset(kept))
    now = {name: np.asarray(inputs[name]) if name in inputs else tensor.made(np.zeros(tensor.shape or ()))
           for name, tensor in kept.items()}
    results = []
    for values in steps:
        results.append(session.run({**values, **now}, **options))
        now = {read: results[-1].outputs[made] for made, read in states.items()}
    return together(results)


def checked(network: Network, states: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the inputs that are states, by name. Raise WeftError if a state does not exist or fit."""
    inputs = {tensor.name: tensor for tensor in network.signature.inputs}
    outputs = {tensor.name: tensor for tensor in network.signature.outputs}
    kept: dict[str, Tensor] = {}
    for made, read in states.items():
        for name, known, kind in ((made, outputs, "output"), (read, inputs, "input")):
            if name not in known:
                raise _refusal(made, read, f"no {kind} {name!r}", f"{kind}s {', '.join(map(repr, known))}",
                               "name one of them")
        if read in kept:
            raise _refusal(made, read, f"input {read!r} twice", "one output for an input", "leave one of them out")
        found, wanted = outputs[made], inputs[read]
        if (found.shape, found.type) != (wanted.shape, wanted.type):
            raise _refusal(made, read, f"an output of {found.type} {found.shape}", f"{wanted.type} {wanted.shape}, as "
                           "the input is", "name an output of the input's shape")
        kept[read] = wanted
    if len(kept) == len(inputs):
        raise WeftError(explain("states", "every input of the network", "an input that says how many steps there are",
                                "leave a state out"))
    return kept


def _numbered(results: Sequence[RunResult]) -> Iterator[Saturated | None]:
    """Yield the saturation counts of each step, with images numbered from the first step on."""
    first = 0
    for each in results:
        found = each.saturated
        yield None if found is None else dataclasses.replace(found, images=tuple(first + at for at in found.images))
        first += each.images


def _refusal(made: str, read: str, found: str, allowed: str, way_out: str) -> WeftError:
    """Return the error for a state that cannot be passed on."""
    return WeftError(explain(f"state {made}:{read}", found, allowed, way_out))


def together(results: Sequence[RunResult]) -> RunResult:
    """Return one result for all steps of a stream: outputs one after the other, counts added up."""
    first = results[0]
    comparisons: list[Comparison] = [each.comparison for each in results if each.comparison is not None]
    sums: dict[str, Any] = {key: None if getattr(first, key) is None else sum(getattr(each, key) for each in results)
                            for key in SUMMED}
    lists: dict[str, Any] = {key: [entry for each in results for entry in getattr(each, key)] for key in LISTED}
    beyond: dict[str, int] = {}
    for each in results:
        for name, count in each.saturated_inputs.items():
            beyond[name] = beyond.get(name, 0) + count
    return dataclasses.replace(
        first, **sums, **lists, saturated_inputs=beyond, saturated=saturations.together(_numbered(results)),
        outputs=images.together([each.outputs for each in results]),
        comparison=sum(comparisons[1:], comparisons[0]) if comparisons else None)
