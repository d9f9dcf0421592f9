"""Steps and their products. A step is a function: its parameters are the products that it needs, by their types, its
result is the product that it makes, or a tuple of them."""

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
    """The newest product of each type, in the order in which they were made. Never changed: ``plus`` makes another."""

    def __init__(self, made: Mapping[type, object]) -> None:
        self._made = dict(made)

    def __getitem__(self, kind: type[T]) -> T:
        """Raises KeyError for a product that no step has made yet."""
        return typing.cast(T, self._made[kind])

    def get(self, kind: type[T]) -> T | None:
        return typing.cast(T | None, self._made.get(kind))

    def __iter__(self) -> Iterator[type]:
        return iter(self._made)

    def __reversed__(self) -> Iterator[type]:
        """Types, the one that was made last first."""
        return reversed(self._made)

    def plus(self, made: Mapping[type, object]) -> Products:
        """These products and newer ones, which take the place of older ones of their types."""
        kept = {kind: product for kind, product in self._made.items() if kind not in made}
        return Products({**kept, **made})


@dataclass(frozen=True)
class Step:
    """``function`` has annotations: see above. A step that makes nothing, of result None, only checks. ``of``: it is
    part of the compiler where tensors get one of these quantization parameters."""

    name: str
    function: Callable[..., Any]
    of: frozenset[Parameters] = ALL

    @cached_property
    def _types(self) -> dict[str, Any]:
        return typing.get_type_hints(self.function)

    @cached_property
    def needs(self) -> tuple[type, ...]:
        return tuple(kind for name, kind in self._types.items() if name != "return")

    @cached_property
    def makes(self) -> tuple[type, ...]:
        made = self._types["return"]
        if made is NoneType:
            return ()
        return typing.get_args(made) if typing.get_origin(made) is tuple else (made,)

    def run(self, products: Products) -> Products:
        """The products and what the step makes of them."""
        made = self.function(*(products[kind] for kind in self.needs))
        several = made if len(self.makes) > 1 else (made,) * len(self.makes)
        return products.plus(dict(zip(self.makes, several, strict=True)))

    def text(self, products: Products) -> str:
        """What the step made, in words; each product has a ``text`` for that."""
        return "".join(str(products[kind].text()) for kind in self.makes) or "no fault found\n"


def checked(given: tuple[type, ...], steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps themselves. Raises TypeError where one needs what is neither ``given`` nor made by a step before it, or
    makes what cannot print itself."""
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
