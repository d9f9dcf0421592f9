# SPDX-License-Identifier: Apache-2.0
"""Errors of the estimator. A message has four parts: what, found, allowed, way out."""

from __future__ import annotations

from weft.support.errors import WeftError, explain


class EstimateError(WeftError):
    """A program whose cycles cannot be told: it does not end, or takes too long to step through."""


def refuse(what: str, found: object, allowed: str, way_out: str) -> EstimateError:
    """Return the error for ``what``; the caller raises it."""
    return EstimateError(explain(what, found, allowed, way_out))
