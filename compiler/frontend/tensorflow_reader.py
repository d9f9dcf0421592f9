# SPDX-License-Identifier: Apache-2.0
"""Convert a frozen TensorFlow graph (``.pb``) to an ONNX model, by tf2onnx: the extra ``tensorflow``.

Names are those of the graph's nodes, without TensorFlow's ``:0``; inputs keep the graph's shapes, channels last."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from weft.compiler.errors import CompileError, reason, refuse
from weft.compiler.frontend.inputs import settle_inputs
from weft.compiler.frontend.onnx_reader import MOST_BYTES, unknown_output
from weft.compiler.request import NO_SHAPES, NO_VALUES, Sizes, Values
from weft.support.files import read_bytes
from weft.support.packages import no_package
from weft.tmodel.onnx_bounds import MOST_ELEMENTS

OPSET = 18
"""The newest opset that tf2onnx writes."""

LARGEST_SIZE = 4096
"""The largest size of an image whose scale is taken to be a ratio of two whole sizes."""

MOST_GRAPH_NODES = 1 << 16
"""The most nodes of a graph; many of TensorFlow's become one or none of ONNX."""

GRAPH = "TensorFlow graph"
FREEZE = "freeze the graph: variables become constants, training is left out"
NO_END = frozenset({"Assert", "Const", "NoOp", "Placeholder"})
"""Operators that are no output of a network even if nobody reads them."""


def load_frozen(path: Path, outputs: Sequence[str],
                shapes: Sizes = NO_SHAPES, fixed: Values = NO_VALUES) -> onnx.ModelProto:
    """Return the graph up to the nodes ``outputs``, its inputs of fixed sizes or ``fixed`` values.

    Raise CompileError without the extra, for a file that is no frozen graph, outputs that are missing or unknown, and
    operators that tf2onnx cannot convert."""
    model = onnx.ModelProto.FromString(_convert(_content(path), path, tuple(outputs)))
    settle_inputs(model.graph, shapes, fixed)
    return model


def run_frozen(path: Path, outputs: Sequence[str], feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return TensorFlow's own results for ``feed``, by node. Raise CompileError as :func:`load_frozen`."""
    tensorflow = need_tensorflow(GRAPH)
    content = _parse(_content(path), path)
    with tensorflow.Graph().as_default() as graph, tensorflow.compat.v1.Session(graph=graph) as session:
        tensorflow.import_graph_def(content, name="")
        wanted = {name: _tensor(name) for name in outputs}
        return dict(session.run(wanted, {_tensor(name): value for name, value in feed.items()}))


def _content(path: Path) -> bytes:
    """Return the content of a file. Raise WeftError if it cannot be read or is too large."""
    return read_bytes(path, "model file", FREEZE, MOST_BYTES)


def need_tensorflow(what: str) -> Any:
    """Return the TensorFlow module, quiet, for ``what``. Raise CompileError if it is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # the same sums on every machine
    try:
        import tensorflow
        import tf2onnx  # noqa: F401  # the extra is whole or it is not there
    except ImportError as error:
        raise CompileError(no_package(what, str(error.name or error), "tensorflow",
                                      "convert the model to ONNX elsewhere with tf2onnx")) from None
    for name in ("tensorflow", "tf2onnx"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return tensorflow


@functools.lru_cache(maxsize=1)
def _convert(content: bytes, path: Path, outputs: tuple[str, ...]) -> bytes:
    """Return the graph as ONNX bytes, cached, since a command may ask for the same model several times."""
    need_tensorflow(GRAPH)
    from tf2onnx.convert import from_graph_def

    graph = _parse(content, path)
    nodes = {node.name: node for node in graph.node}
    _check_outputs(path, nodes, outputs)
    inputs = _inputs(nodes, outputs)
    with convertible(path, "a frozen inference graph", FREEZE):
        model, _ = from_graph_def(graph, name=path.stem, input_names=list(map(_tensor, inputs)),
                                  output_names=list(map(_tensor, outputs)), opset=OPSET)
    mend_converted(path, model, {_tensor(name): name for name in (*inputs, *outputs)})
    return bytes(model.SerializeToString())


def _parse(content: bytes, path: Path) -> Any:
    """Return the parsed graph. Raise CompileError for a file that is no frozen graph."""
    from google.protobuf.message import DecodeError
    from tensorflow.compat.v1 import GraphDef

    try:
        graph = GraphDef.FromString(content)
    except DecodeError:
        graph = GraphDef()
    if not graph.node:
        raise refuse(f"model file {path}", "not a TensorFlow graph, or an empty one", "a frozen GraphDef",
                     f"{FREEZE}; a SavedModel becomes ONNX with python -m tf2onnx.convert --saved-model")
    check_constants(path, graph.node)
    variable = next((node for node in graph.node if node.op.startswith("Var") or node.op == "Variable"), None)
    if variable is not None:
        raise refuse(f"node {variable.name!r} of {path}, operator {variable.op}", "a variable", "constants", FREEZE)
    return graph


def check_constants(path: Path, nodes: Sequence[Any]) -> None:
    """Raise CompileError for too many nodes, or for constants that tf2onnx would make too large.

    A constant of equal numbers stands in a file once, whatever its shape, and tf2onnx writes all of them."""
    if len(nodes) > MOST_GRAPH_NODES:
        raise refuse(f"model file {path}", f"{len(nodes)} nodes", f"at most {MOST_GRAPH_NODES}", "split the network")
    together = 0
    for node in nodes:
        for value in node.attr.values():
            sizes = [entry.size for entry in value.tensor.tensor_shape.dim]
            if min(sizes, default=0) < 0:
                raise refuse(f"node {node.name!r} of {path}, operator {node.op}", f"a constant of shape {sizes}",
                             "sizes of at least 0", FREEZE)
            together += math.prod(sizes) if sizes else 0
            if together > MOST_ELEMENTS:
                raise refuse(f"node {node.name!r} of {path}, operator {node.op}",
                             f"{together} elements with those of constants before", f"at most {MOST_ELEMENTS}",
                             "end the network before it with --end, or freeze a smaller one")


def _tensor(name: str) -> str:
    """Return TensorFlow's name for a tensor: node and number of its output."""
    return name if ":" in name else f"{name}:0"


def _node(name: str) -> str:
    """Return the node that an input's name refers to."""
    return name.lstrip("^").split(":")[0]


def _check_outputs(path: Path, nodes: Mapping[str, Any], outputs: Sequence[str]) -> None:
    """Raise CompileError for outputs that are missing or unknown."""
    read = {_node(name) for node in nodes.values() for name in node.input}
    ends = [name for name, node in nodes.items() if name not in read and node.op not in NO_END]
    if not outputs:
        raise refuse(f"outputs of {path}", "none named", f"names of nodes, such as {', '.join(map(repr, ends))}",
                     f"add --end {','.join(ends)}")
    for name in outputs:
        if _node(name) not in nodes:
            raise unknown_output(name, ends, list(nodes))


def _inputs(nodes: Mapping[str, Any], outputs: Sequence[str]) -> list[str]:
    """Return the placeholders that the outputs depend on, in the graph's order."""
    needed: set[str] = set()
    waiting = [_node(name) for name in outputs]
    while waiting:
        name = waiting.pop()
        if name not in needed and name in nodes:
            needed.add(name)
            waiting += map(_node, nodes[name].input)
    return [name for name, node in nodes.items() if name in needed and node.op.startswith("Placeholder")]


@contextlib.contextmanager
def convertible(path: Path, allowed: str, way_out: str) -> Iterator[None]:
    """Turn all errors of tf2onnx and TensorFlow into one message, within a with statement."""
    try:
        yield
    except CompileError:
        raise
    except Exception as error:
        raise refuse(f"model file {path}", f"something that tf2onnx cannot convert ({reason(error)})",
                     allowed, way_out) from None


def mend_converted(path: Path, model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Correct a model that tf2onnx made, and rename its tensors. Raise CompileError for unknown operators."""
    _check_converted(path, model)
    _round_scales_up(model.graph)
    _rename(model.graph, names)


def _check_converted(path: Path, model: onnx.ModelProto) -> None:
    """Raise CompileError for operators that tf2onnx does not know and has left as they are."""
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type):
            raise refuse(f"node {node.name!r} of {path}, operator {node.op_type}", "no ONNX operator for it",
                         "operators that tf2onnx converts", "end the network before it with --end")


def _round_scales_up(graph: onnx.GraphProto) -> None:
    """Correct scales of Resize that are slightly too small.

    ONNX rounds sizes down, so that a scale just below 17/9 would make 16 pixels of 9, not 17."""
    scales = {node.input[2] for node in graph.node if node.op_type == "Resize" and len(node.input) > 2}
    for tensor in graph.initializer:
        if tensor.name in scales:
            values = numpy_helper.to_array(tensor)
            exact = [Fraction(float(value)).limit_denominator(LARGEST_SIZE) for value in values]
            raised = [np.nextafter(value, np.float32(np.inf)) if Fraction(float(value)) < ratio else value
                      for value, ratio in zip(values, exact, strict=True)]
            tensor.CopyFrom(numpy_helper.from_array(np.array(raised, np.float32), tensor.name))


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Rename the tensors of a model."""
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
