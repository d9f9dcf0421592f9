"""What may go wrong with a compiled model: its files are not what they must be, or the hardware is not."""

from __future__ import annotations

from weft.support.errors import WeftError, explain


class ModelError(WeftError):
    """Files of a compiled model, or inputs for it, that cannot be used."""


def refuse(what: str, found: object, allowed: str, way_out: str) -> ModelError:
    """The error for ``what``; the caller raises it."""
    return ModelError(explain(what, found, allowed, way_out))


class Mismatch(Exception):
    """RTL and golden machine do not agree, or the RTL did not come to an end. The command line exits with 2."""
