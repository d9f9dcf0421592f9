"""What may go wrong with the files of a compiled model."""

from __future__ import annotations

from weft.support.errors import WeftError, explain


class ModelError(WeftError):
    """Files of a compiled model, or inputs for it, that cannot be used."""


def refuse(what: str, found: object, allowed: str, way_out: str) -> ModelError:
    """The error for ``what``; the caller raises it."""
    return ModelError(explain(what, found, allowed, way_out))
