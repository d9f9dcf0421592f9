# SPDX-License-Identifier: Apache-2.0
"""Steps of the compiler and their products.

A step is a function. Its parameters are the products that it needs, by their types; its result is the product that it
makes, or a tuple of them."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import NoneType
from typing import Any, TypeVar

from weft.compiler.parameters import ALL, Parameters

T = TypeVar("T")


class Products:
    """The newest product of each type, in the order in which they were made. It never changes."""

    def __init__(self, made: Mapping[type, object]) -> None:
        self._made = dict(made)

    def __getitem__(self, kind: type[T]) -> T:
        """Return the product of a type. Raise KeyError if no step has made it yet."""
        return typing.cast(T, self._made[kind])

    def get(self, kind: type[T]) -> T | None:
        """Return the product of a type, or None if no step has made it yet."""
        return typing.cast(T | None, self._made.get(kind))

    def __iter__(self) -> Iterator[type]:
        """Yield the types of the products."""
        return iter(self._made)

    def __reversed__(self) -> Iterator[type]:
        """Yield the types of the products, the one that was made last first."""
        return reversed(self._made)

    def plus(self, made: Mapping[type, object]) -> Products:
        """Return these products with newer ones, which replace older ones of their types."""
        kept = {kind: product for kind, product in self._made.items() if kind not in made}
        return Products({**kept, **made})


@dataclass(frozen=True)
class Step:
    """A step: its name, and its ``function``, whose annotations say what it needs and makes.

    A step with result None only checks. ``of``: the kinds of quantization parameters for which it is part of the
    compiler."""

    name: str
    function: Callable[..., Any]
    of: frozenset[Parameters] = ALL

    @cached_property
    def _types(self) -> dict[str, Any]:
        """The function's annotations, resolved."""
        return typing.get_type_hints(self.function)

    @cached_property
    def needs(self) -> tuple[type, ...]:
        """The types of the products that the step needs."""
        return tuple(kind for name, kind in self._types.items() if name != "return")

    @cached_property
    def makes(self) -> tuple[type, ...]:
        """The types of the products that the step makes."""
        made = self._types["return"]
        if made is NoneType:
            return ()
        return typing.get_args(made) if typing.get_origin(made) is tuple else (made,)

    def run(self, products: Products) -> Products:
        """Return the products with those that the step makes."""
        made = self.function(*(products[kind] for kind in self.needs))
        several = made if len(self.makes) > 1 else (made,) * len(self.makes)
        return products.plus(dict(zip(self.makes, several, strict=True)))

    def text(self, products: Products) -> str:
        """Return the step's products as text."""
        return "".join(str(products[kind].text()) for kind in self.makes) or "no fault found\n"


def checked(given: tuple[type, ...], steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps themselves. Raise TypeError if a step needs what is neither ``given`` nor made before.

    Raise it too for a product that cannot print itself."""
    made = set(given)
    for step in steps:
        for kind in step.needs:
            if kind not in made:
                raise TypeError(f"step {step.name!r} needs {kind}, which no step before it makes")
        for kind in step.makes:
            if not hasattr(kind, "text"):
                raise TypeError(f"step {step.name!r} makes {kind}, which has no text")
        made.update(step.makes)
    return steps
