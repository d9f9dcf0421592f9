# SPDX-License-Identifier: Apache-2.0
"""Check that the shapes in a TensorFlow Lite file are those that its operators give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from weft.compiler.errors import reason, refuse
from weft.compiler.frontend.onnx_writer import TOLD
from weft.compiler.frontend.tflite.schema import CONVERT_AGAIN
from weft.compiler.frontend.tflite.values import FILE, ORDER, PLANES, Value
from weft.compiler.frontend.tflite.writer import Writer


def check_told_shapes(writer: Writer) -> None:
    """Infer the shapes of the model and compare them with the file's. Raise CompileError if they differ.

    Large constants are only declared, because inference copies them."""
    small = {key: value for key, value in writer.constants.items() if value.size <= TOLD}
    told = [_told(key, value.dtype, value.shape) for key, value in writer.constants.items() if key not in small]
    model = writer.model("shapes", small, told)
    known = {each.name for each in (*model.graph.input, *model.graph.output)} | small.keys()
    for each in (each for value in writer.values for each in _forms(value)):
        if each.name not in known:
            known.add(each.name)
            model.graph.value_info.append(each)
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except Exception as error:  # of no common type
        raise refuse("shapes of the model file", reason(error), "those that its operators give",
                     CONVERT_AGAIN) from None


def _forms(value: Value) -> Iterator[onnx.ValueInfoProto]:
    """Yield the file's type and shape for each form that was made of a computed tensor."""
    if value.constant is not None:
        return
    for layout, names in ((FILE, value.real), (PLANES, value.real), (FILE, value.bytes), (PLANES, value.bytes)):
        if layout in names:
            shape = value.shape if layout == FILE else tuple(value.shape[axis] for axis in ORDER[PLANES])
            real = value.is_bytes and names is value.real
            yield _told(names[layout], np.dtype(np.float32) if real else value.numpy_type, shape)


def _told(name: str, kind: np.dtype, shape: tuple[int, ...]) -> onnx.ValueInfoProto:
    """Return the declaration of a tensor."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind), shape)
