"""Which quantization parameters a network's tensors get: it decides which steps the compiler has.

It follows from the machine's number scheme and from what the user asks for. Only the steps of the list in
``pipeline.py`` say for which of them they are; no pass asks.
"""

from __future__ import annotations

import enum

from weft.compiler.request import Request
from weft.hw.contract.arch import Arch
from weft.hw.contract.schemes import SchemeKind


class Parameters(enum.Enum):
    """What each tensor is given."""

    OWN_POINT = "a binary point of its own"
    TYPE_POINT = "the data type's binary point, which all tensors have"
    SCALE = "a scale and a zero point of its own"


POINTS = frozenset({Parameters.OWN_POINT, Parameters.TYPE_POINT})
OWN_POINTS = frozenset({Parameters.OWN_POINT})
SCALES = frozenset({Parameters.SCALE})
ALL = frozenset(Parameters)


def parameters_of(request: Request, arch: Arch) -> Parameters:
    """Return what the tensors of a request get on a machine."""
    if arch.scheme.kind is SchemeKind.AFFINE:
        return Parameters.SCALE
    return Parameters.TYPE_POINT if request.plain or not arch.scheme.chooses_points else Parameters.OWN_POINT
