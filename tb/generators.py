# SPDX-License-Identifier: Apache-2.0
"""Random generators that the tests of a module share: each test finds them as the import of the module left them.

So what a test draws does not depend on which tests ran before it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from types import ModuleType

import numpy as np

_rewinds: dict[ModuleType, list[Callable[[], None]]] = {}
"""Module -> functions that give its generators back the state after its import."""


def keep(modules: Iterable[ModuleType]) -> None:
    """Keep the states that the generators of modules have now, unless they are kept already."""
    for module in modules:
        if module not in _rewinds:
            _rewinds[module] = [_rewinding(value) for value in vars(module).values()
                                if isinstance(value, np.random.Generator | random.Random)]


def rewind(module: ModuleType) -> None:
    """Give the generators of a module the states that were kept."""
    for each in _rewinds[module]:
        each()


def _rewinding(generator: np.random.Generator | random.Random) -> Callable[[], None]:
    """Return a function that gives a generator the state that it has now."""
    if isinstance(generator, random.Random):
        return partial(generator.setstate, generator.getstate())
    return partial(setattr, generator.bit_generator, "state", generator.bit_generator.state)
