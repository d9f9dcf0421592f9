# SPDX-License-Identifier: Apache-2.0
"""The errors of a compiled model: its files are not what they must be."""

from __future__ import annotations

from weft.support.errors import WeftError, explain


class ModelError(WeftError):
    """The error for files of a compiled model, or inputs of it, that cannot be used."""


def refuse(what: str, found: object, allowed: str, way_out: str) -> ModelError:
    """Return the error for ``what``; the caller raises it."""
    return ModelError(explain(what, found, allowed, way_out))
