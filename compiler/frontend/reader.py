# SPDX-License-Identifier: Apache-2.0
"""Read a model file as a graph: ``.pb`` is a frozen TensorFlow graph, ``.tflite`` TensorFlow Lite, else ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.graph import Graph
from weft.compiler.frontend.onnx_reader import load_onnx, to_graph
from weft.compiler.frontend.tensorflow_reader import load_frozen
from weft.compiler.frontend.tflite_reader import load_tflite
from weft.compiler.request import NO_SHAPES, NO_VALUES, Sizes, Values
from weft.tmodel.onnx_engine import session

FROZEN = ".pb"
"""The suffix of TensorFlow's frozen graphs."""

COMPILED = ".tmodel"
"""The suffix of compiled networks."""

LOADERS = {FROZEN: load_frozen, ".tflite": load_tflite}
"""Suffix -> its loader; all other files are ONNX."""


def read_model(path: Path, outputs: Sequence[str] = (), shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> Graph:
    """Return the network up to ``outputs`` (default: the model's own; a frozen graph has none).

    Its inputs have the sizes in ``shapes``; those in ``fixed`` are constants. Raise CompileError for a file that is
    missing, damaged or of an open shape, and for an unknown output."""
    return to_graph(load_model(path, outputs, shapes, fixed), path.stem)


def must_run(path: Path, outputs: Sequence[str] = (), shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> None:
    """Raise CompileError if onnxruntime cannot run the model file on inputs of zeros.

    The parameters are those of :func:`read_model`."""
    try:
        model = load_model(path, outputs, shapes, fixed)
        model = onnx.shape_inference.infer_shapes(model)  # of outputs that were chosen
        weights = {tensor.name for tensor in model.graph.initializer}
        given = {value.name: _zeros(value) for value in model.graph.input if value.name not in weights}
        session(model).run(None, given)
    except CompileError:
        raise
    except Exception as error:  # of no common type
        raise refuse(f"model {path}", f"onnxruntime cannot run it either: {reason(error)}",
                     "a network that onnxruntime runs", "export the model again") from None


def _zeros(value: onnx.ValueInfoProto) -> np.ndarray:
    """Return zeros of an input's type and shape."""
    kind = value.type.tensor_type
    return np.zeros([entry.dim_value for entry in kind.shape.dim], onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))


def load_model(path: Path, outputs: Sequence[str] = (),
               shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> onnx.ModelProto:
    """Return the model file as ONNX; parameters and errors are those of :func:`read_model`."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise refuse(f"model file {path}", found, "an existing .onnx, .pb or .tflite file", "check the path")
    if path.suffix == COMPILED:
        raise refuse(f"model file {path}", "a network that is compiled", "an .onnx, .pb or .tflite file",
                     f"run it: weft run {path} --input FILE, or give the file that it was compiled from")
    return LOADERS.get(path.suffix, load_onnx)(path, outputs, shapes, fixed)
