# SPDX-License-Identifier: Apache-2.0
"""The kind of quantization parameters that a network's tensors get, which decides the compiler's steps.

It follows from the machine's number scheme and from the user's request. Only the list of steps in ``pipeline.py`` names
it; no pass asks for it."""

from __future__ import annotations

import enum

from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SchemeKind


class Parameters(enum.Enum):
    """The kinds of quantization parameters that tensors can get."""

    OWN_POINT = "a binary point of its own"
    TYPE_POINT = "the data type's binary point, which all tensors have"
    SCALE = "a scale and a zero point of its own"


POINTS = frozenset({Parameters.OWN_POINT, Parameters.TYPE_POINT})
OWN_POINTS = frozenset({Parameters.OWN_POINT})
SCALES = frozenset({Parameters.SCALE})
ALL = frozenset(Parameters)


def parameters_of(request: Request, arch: Arch) -> Parameters:
    """Return the kind of parameters that the tensors of a request get on a machine."""
    if arch.scheme.kind is SchemeKind.AFFINE:
        return Parameters.SCALE
    return Parameters.TYPE_POINT if request.plain or not arch.scheme.chooses_points else Parameters.OWN_POINT
