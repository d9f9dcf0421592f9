# SPDX-License-Identifier: Apache-2.0
"""The table of TensorFlow Lite operators: operator -> the function that converts it."""

from __future__ import annotations

import difflib

from weft.compiler.frontend.tflite import arithmetic, blocks, convolutions, recurrent, shapes, states, windows
from weft.compiler.frontend.tflite.operation import Convert, Operation

CONVERTERS: dict[str, Convert] = {
    **arithmetic.CONVERTERS, **blocks.CONVERTERS, **convolutions.CONVERTERS, **recurrent.CONVERTERS,
    **shapes.CONVERTERS, **states.CONVERTERS, **windows.CONVERTERS}

UNKNOWN: dict[str, str] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": "two LSTM, one of them backwards",
    "CALL": "another subgraph",
    "EMBEDDING_LOOKUP": "rows of a table",
    "HASHTABLE_FIND": "a look-up by key",
    "IF": "one of two subgraphs, by a number computed at run time",
    "Landmarks2TransformMatrix": "the crop around landmarks, as a matrix",
    "LSTM": "one step of an LSTM with fused weights",
    "MaxPoolingWithArgmax2D": "the maximum of each window, and where it lay",
    "MaxUnpooling2D": "numbers put back to where a MaxPoolingWithArgmax2D found them",
    "NON_MAX_SUPPRESSION_V4": "the boxes that no better one overlaps",
    "NON_MAX_SUPPRESSION_V5": "the boxes that no better one overlaps",
    "RFFT2D": "a Fourier transform",
    "SVDF": "a filter over time of rank one",
    "TFLite_Detection_PostProcess": "boxes from anchors, and those that no better one overlaps",
    "TopK_V2": "the largest numbers and their places",
    "TransformLandmarks": "landmarks moved by a matrix",
    "TransformTensorBilinear": "an image cut out by a matrix",
    "WHILE": "a loop over a subgraph"}
"""Operators without a conversion -> what they compute."""


def convert(op: Operation) -> None:
    """Add an operator to the model. Raise CompileError for one that the table does not have."""
    code = op.operator.code
    if code not in CONVERTERS:
        kind = "custom operator" if op.operator.custom else "operator"
        what = f" ({UNKNOWN[code]})" if code in UNKNOWN else ""
        near = difflib.get_close_matches(code, CONVERTERS, 1, 0.8)
        raise op.refusal("", f"{kind} {code}{what}, which is not read", ", ".join(sorted(CONVERTERS)),
                         f"{op.way_out}, and compute the rest elsewhere" + (f"; the nearest one that is read is "
                                                                           f"{near[0]}" if near else ""))
    CONVERTERS[code](op)
