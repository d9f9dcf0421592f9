# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite files that are well formed and ask for what is not there: each message says what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import tflite

from weft.compiler.errors import CompileError
from weft.compiler.frontend.reader import read_model
from weft.compiler.frontend.tflite import schema, writer
from weft.compiler.frontend.tflite.model import to_model
from weft.tb.compile.tflite_files import INT8, INT32, FileMaker, Graph
from weft.tb.compile.tflite_floats import (
    IMAGE,
    TANH,
    VALID,
    Make,
    joined,
    matrix,
    of_image,
    parts,
    pool,
    strided,
    transposed,
    weights,
    window,
)
from weft.tb.compile.tflite_streams import lstm, rnn, stream


def insist_refused(make: Make, said: str, folder: Path) -> None:
    file = FileMaker()
    make(file)
    with pytest.raises(CompileError, match=said):
        read_model(file.save(folder / "model.tflite"))


def _changed(make: Make, operator: int = -1, tensor: int = -1, graph: int = 0, **values: Any) -> Make:
    """A file in which some entries of an operator, or of a tensor if ``tensor`` is told, are others."""
    def write(file: FileMaker) -> None:
        make(file)
        found = file.graphs[graph]
        (found.operators[operator] if tensor < 0 else found.tensors[tensor]).update(values)

    return write


def _with_input(make: Make, place: int, number: int) -> Make:
    """A file whose last operator has another tensor as an input."""
    def write(file: FileMaker) -> None:
        make(file)
        file.main.operators[-1]["inputs"][place] = number

    return write


def _two(code: str, first: Sequence[int], other: Sequence[int], made: Sequence[int]) -> Make:
    """An operator of two inputs of the network."""
    return lambda file: file.main.run(code, [file.main.input("x", first), file.main.input("other", other)], made)


def _known_state(file: FileMaker) -> None:
    rnn(file)
    file.main.tensors[4]["buffer"] = file.buffer(weights(1, 5))


def _shared_state(file: FileMaker) -> None:
    """A second layer, which would read what the first one leaves."""
    rnn(file)
    graph = file.main
    graph.run("UNIDIRECTIONAL_SEQUENCE_RNN", [5, graph.constant(weights(5, 5)), 2, 3, 4], (1, 3, 5),
              options={"FusedActivationFunction": TANH}, name="other")


OPERATORS: dict[str, tuple[Make, str]] = {
    # -- windows, convolutions, matrices
    "a pool of three axes": (
        of_image("MAX_POOL_2D", (1, 6, 7), source=(1, 6, 7), FilterWidth=1, FilterHeight=1, StrideW=1, StrideH=1),
        r"MAX_POOL_2D, shape of input 0: found \[1, 6, 7\]; allowed: 4 dimensions"),
    "a normalisation of three axes": (of_image("LOCAL_RESPONSE_NORMALIZATION", (1, 6, 7), source=(1, 6, 7), Radius=1),
                                      r"shape of input 0: found \[1, 6, 7\]; allowed: 4 dimensions"),
    "a filter of other channels": (window("CONV_2D", (3, 2, 2, 3), (1, 6, 7, 3)),
                                   "channels: found 4 with a filter of 3; allowed: a multiple of the filter's"),
    "depthwise taps for another image": (window("DEPTHWISE_CONV_2D", (1, 3, 3, 6), IMAGE),
                                         r"filter: found \[1, 3, 3, 6\]; allowed: \[1, height, width, a multiple of 4"),
    "a transposed filter of other channels": (transposed((3, 3, 3, 5), (1, 12, 14, 3), 0, 2, False),
                                              "TRANSPOSE_CONV, channels: found 4; allowed: 5, which the filter reads"),
    "options of MediaPipe that are short": (
        lambda file: file.main.operator("Convolution2DTransposeBias", [
            file.main.input("x", IMAGE), file.main.constant(weights(3, 3, 3, 4)), file.main.constant(weights(3))],
            [file.main.tensor("y", (1, 12, 14, 3))], custom=bytes(11)),
        "options of Convolution2DTransposeBias of 11 bytes"),
    "shuffled weights": (matrix((3, 5), (3, 8), WeightsFormat=1), "weights: found in the shuffled format"),
    "a product of a line": (_two("BATCH_MATMUL", (4,), (4, 5), (5,)),
                            r"shape of input 0: found \[4\]; allowed: 2 dimensions and more"),
    # -- axes and lists of numbers
    "an axis that is not there": (of_image("MEAN", (1, 4), [[99]]), r"axis: found 99; allowed: -4 \.\. 3"),
    "axes of fractions": (of_image("MEAN", (1, 4), [[0.5]]),
                          r"input 1 \('constant4'\): found 1 numbers of float32; allowed: at most 16384 whole"),
    "more axes than are read": (of_image("MEAN", (1, 4), [[0] * 16385]), "found 16385 numbers of int32"),
    "axes that are computed": (_two("MEAN", IMAGE, (2,), (1, 4)),
                               r"input 1 \('other'\): found a tensor computed at run time; allowed: a constant"),
    "an input that is left out": (_with_input(joined(3, (1, 6, 7, 8)), 1, -1),
                                  "operator CONCATENATION of 'concatenation1' lacks input 1"),
    "an axis twice": (of_image("TRANSPOSE", IMAGE, [[0, 1, 1, 3]]),
                      r"axes: found \[0, 1, 1, 3\]; allowed: each of \[0, 1, 2, 3\] once"),
    "a split of two axes": (parts("SPLIT", lambda graph, x: [graph.constant([2, 3], INT32), x], [(1, 6, 7, 2)] * 2,
                                  NumSplits=2), "operator SPLIT of 'part0' with 2 axes"),
    "lengths for other parts": (
        parts("SPLIT_V", lambda graph, x: [x, graph.constant([1, 1, 2], INT32), graph.constant(3, INT32)],
              [(1, 6, 7, 2)] * 2, NumSplits=2), "operator SPLIT_V of 'part0' with 3 lengths"),
    "a slice of three axes": (of_image("SLICE", IMAGE, [[0, 0, 0], [1, 6, 7, 4]]),
                              "begin and size: found 3 and 4 numbers; allowed: 4 of each"),
    "a slice with ends for others": (strided([0, 0, 0], [1, 6, 7, 4], [1, 1, 1, 1], IMAGE),
                                     "begin, end, strides: found 3, 4 and 4 numbers; allowed: as many"),
    "a slice of five axes": (strided([0] * 5, [1] * 5, [1] * 5, (1, 1, 1, 1)),
                             r"begin, end, strides: found \[0, 0, 0, 0, 0\]"),
    "a stride of nothing": (strided([0] * 4, [1, 6, 7, 4], [1, 0, 1, 1], IMAGE), "with strides that are not 0"),
    "a gather for each image": (of_image("GATHER", IMAGE, [[0]], BatchDims=1), "batch_dims: found 1; allowed: 0"),
    # -- borders and blocks
    "pads for three axes": (of_image("PAD", IMAGE, [[[0, 0]] * 3]),
                            r"paddings: found \[\[0, 0\], \[0, 0\], \[0, 0\]\]; allowed: two for each of 4 axes"),
    "many pads": (of_image("PAD", IMAGE, [[[0, 0]] * 10]), "paddings: found 20 numbers; allowed: two for each"),
    "pads below nothing": (of_image("PAD", IMAGE, [[[0, 0], [-9, 0], [0, 0], [0, 0]]]), "paddings: .* not below 0"),
    "two numbers to pad with": (of_image("PADV2", (1, 7, 7, 4), [[[0, 0], [1, 0], [0, 0], [0, 0]], [0.5, 0.5]]),
                                "padding value: found 2 numbers; allowed: one"),
    "a mirror of no mode": (of_image("MIRROR_PAD", IMAGE, [[[0, 0]] * 4], Mode=2),
                            "mode: found 2; allowed: REFLECT, SYMMETRIC"),
    "a mirror of more than there is": (of_image("MIRROR_PAD", IMAGE, [[[0, 0], [7, 0], [0, 0], [0, 0]]], Mode=1),
                                       "paddings: found 7; allowed: at most 6, the size of the axis"),
    "a long sum": (of_image("CUMSUM", (1, 2049), [np.int32(1)], (1, 2049)),
                   "axis: found 2049 numbers; allowed: at most 2048 to be summed"),
    "a block of nothing": (of_image("SPACE_TO_BATCH_ND", IMAGE, [[0, 2], [[0, 0], [0, 0]]]),
                           r"block and borders: found \[0, 2\] and \[\[0, 0\], \[0, 0\]\]; allowed: sizes above 0"),
    "blocks with many borders": (of_image("SPACE_TO_BATCH_ND", IMAGE, [[2, 2], [[0, 0]] * 10]),
                                 r"block and borders: found \[2, 2\] and \(10, 2\)"),
    "blocks that leave pixels": (of_image("SPACE_TO_BATCH_ND", (4, 3, 3, 4), [[2, 2], [[0, 0], [0, 0]]]),
                                 r"sizes with pads: found \[6, 7\]; allowed: multiples of \[2, 2\]"),
    "blocks of more images": (of_image("BATCH_TO_SPACE_ND", IMAGE, [[2, 2], [[0, 0], [0, 0]]]),
                              "batch: found 1; allowed: a multiple of 4"),
    # -- recurrent layers
    "an LSTM with a projection": (_with_input(lstm, 16, 0), "found an LSTM with a projection"),
    "an LSTM with peepholes": (_with_input(lstm, 9, 0), "found an LSTM with peepholes"),
    "an LSTM with normalised gates": (_with_input(lstm, 20, 0), "found an LSTM with normalised gates"),
    "an LSTM of three gates": (_with_input(lstm, 1, -1), "found coupled gates, a clipped cell"),
    "an LSTM with gates of two sizes": (_with_input(lstm, 2, 4),
                                        r"weights: found \[\[5, 4\], .*\[5, 5\].*\]; allowed: four of \[5, 5\]"),
    "a state that is known": (_known_state, "state 'state': found a constant, or the state of another layer; allowed: "
                                            "a variable of this layer alone"),
    "a state of two layers": (_shared_state, "node 'other', .*, state 'state': found a constant, or the state of"),
    "an RNN without a function": (_changed(rnn, options={}), "fused activation: found none; allowed: RELU, TANH"),
}
"""What is wrong -> the file and the message."""


@pytest.mark.parametrize("name", OPERATORS)
def test_what_an_operator_cannot_be_is_said(name: str, tmp_path: Path) -> None:
    insist_refused(*OPERATORS[name], tmp_path)


# -- constants ---------------------------------------------------------------------------------------------------------
def _constant(graph: Graph, kind: str = "float32", shape: Sequence[int] = (5, 8), **more: Any) -> None:
    """A product with weights that are filled with bytes of any size."""
    known = graph.tensor("w", shape, kind, **more)
    graph.run("FULLY_CONNECTED", [graph.input("x", (1, 8)), known], (1, 5))


def _known(kind: str = "float32", size: int = 160, shape: Sequence[int] = (5, 8), **more: Any) -> Make:
    """Weights of so many bytes."""
    return lambda file: _constant(file.main, kind, shape, data=np.zeros(size, np.uint8), **more)


def _sparse(order: Sequence[int], blocks: Sequence[int], levels: Sequence[Any], count: int = 5) -> Make:
    """Sparse weights of so many stored numbers."""
    return lambda file: _constant(file.main, data=np.ones(count, np.float32), sparsity=(order, blocks, levels))


ROWS = ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4])
"""Segments and indices: one number in each of five rows."""

CONSTANTS: dict[str, tuple[Make, str]] = {
    "texts": (_known("string"), "type of constant 'w': found string; allowed: numbers"),
    "complex numbers": (_known("complex64"), "type of constant 'w': found complex64; allowed: numbers"),
    "half a number": (_known(size=159), "data of constant 'w': found 159 bytes; allowed: numbers of 4 bytes"),
    "half a short number": (_known("bfloat16", 79), "constant 'w': found 79 bytes; allowed: numbers of 2 bytes"),
    "a row too few": (_known(size=128), "data of constant 'w': found 128 bytes; allowed: 40 numbers of float32"),
    "two zero points": (_changed(_known(INT8, 40, scale=[0.5] * 5), tensor=0, zeros=[0, 0]),
                        "zero points of tensor 'w': found 2 numbers; allowed: one, or as many as scales, 5"),
    "scales of no axis": (_known(INT8, 40, scale=[0.5] * 5, axis=2),
                          r"scales of tensor 'w': found 5 numbers for axis 2 of \[5, 8\]"),
    "scales of a computed tensor": (
        lambda file: file.main.run("RELU", [file.main.input("x", IMAGE, INT8, scale=[0.5] * 4, axis=3)], IMAGE, INT8,
                                   scale=0.5),
        "scales of tensor 'x': found 4 numbers; allowed: one for the tensor: only constants"),
    "a cast to texts": (of_image("CAST", kind="string"), "type of tensor 'cast1': found string; allowed: numbers"),
    "an input of texts": (lambda file: file.main.run("ABS", [file.main.input("x", IMAGE, "string")], IMAGE),
                          "type of tensor 'x': found string; allowed: numbers"),
    "a buffer that is not there": (_changed(_known(), tensor=0, buffer=9), "it names buffer 9 of 2"),
    "sparse levels of other axes": (_sparse([0, 2], [], [5, ROWS]),
                                    r"sparse constant 'w': found levels \[0, 2\] with blocks of axes \[\]"),
    "sparse blocks that cut no row": (_sparse([0, 1, 2], [1], [5, ROWS, 3]),
                                      r"found blocks of \[1, 3\]; allowed: sizes that divide \[5, 8\]"),
    "a sparse level of another size": (_sparse([0, 1], [], [4, ROWS]), "found a level of 4; allowed: 5"),
    "segments backwards": (_sparse([0, 1], [], [5, ([0, 4, 2, 3, 4, 5], ROWS[1])]),
                           "found indices that do not fit its segments; allowed: places below 8"),
    "an index outside": (_sparse([0, 1], [], [5, (ROWS[0], [0, 1, 2, 3, 8])]), "allowed: places below 8"),
    "more sparse numbers than places": (_sparse([0, 1], [], [5, ROWS], 6), "found 6 numbers; allowed: 5, as many"),
}
"""What is wrong -> the file and the message."""


@pytest.mark.parametrize("name", CONSTANTS)
def test_what_a_constant_cannot_be_is_said(name: str, tmp_path: Path) -> None:
    insist_refused(*CONSTANTS[name], tmp_path)


# -- what is made, read and kept ---------------------------------------------------------------------------------------
def _two_handles(file: FileMaker) -> None:
    """A handle that is two tensors."""
    graph = file.main
    both = [graph.tensor(name, (), "resource") for name in ("kept", "again")]
    graph.operator("VAR_HANDLE", [], both, {"SharedName": "kept"})
    graph.run("READ_VARIABLE", [both[0]], IMAGE)


def _handle_as_numbers(file: FileMaker) -> None:
    graph = file.main
    graph.run("ABS", [graph.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"})], IMAGE)


def _read_again(shape: Sequence[int]) -> Make:
    """A variable that is read after a tensor of IMAGE was assigned to it."""
    def write(file: FileMaker) -> None:
        graph = file.main
        handle = graph.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"})
        graph.operator("ASSIGN_VARIABLE", [handle, graph.input("x", IMAGE)], [])
        graph.run("ABS", [graph.run("READ_VARIABLE", [handle], shape)], shape)

    return write


def _assigned_to_numbers(file: FileMaker) -> None:
    graph = file.main
    x = graph.input("x", IMAGE)
    graph.operator("ASSIGN_VARIABLE", [x, x], [])
    graph.run("ABS", [x], IMAGE)


def _kept_as_other(file: FileMaker) -> None:
    """A variable of three rows, to which four are assigned."""
    graph = file.main
    handle = graph.run("VAR_HANDLE", [], (), "resource", options={"SharedName": "kept"})
    graph.outputs = [graph.run("READ_VARIABLE", [handle], (3, 4))]
    graph.operator("ASSIGN_VARIABLE", [handle, graph.input("x", (4, 4))], [])


def _known_otherwise(file: FileMaker) -> None:
    """RANK, one number, in a tensor of two."""
    graph = file.main
    graph.run("ADD", [graph.input("x", (2,), INT32), graph.run("RANK", [0], (2,), INT32)], (2,), INT32)


def _twice(file: FileMaker) -> None:
    graph = file.main
    y = graph.run("ABS", [graph.input("x", IMAGE)], IMAGE, name="y")
    graph.operator("NEG", [0], [y])


def _begun_by_an_operator(file: FileMaker) -> None:
    stream(file)
    file.graphs[1].run("ABS", [1], (1, 3, 1, 4))


def _begun_by_an_input(file: FileMaker) -> None:
    stream(file)
    file.graphs[1].operators[1]["inputs"][1] = file.graphs[1].input("given", (1, 3, 1, 4), INT8)


def _begun_without_a_handle(file: FileMaker) -> None:
    stream(file)
    del file.graphs[1].operators[0]


NETWORKS: dict[str, tuple[Make, str]] = {
    "a tensor that is made twice": (_twice, "tensor 'y' is made twice"),
    "an operator that makes the input": (
        lambda file: file.main.operator("ABS", [file.main.input("x", IMAGE)], [0]), "tensor 'x' is made twice"),
    "a tensor of itself": (lambda file: file.main.operator("ABS", [file.main.tensor("y", IMAGE)], [0]),
                           "tensor 'y' is read before it is made"),
    "a tensor that is not there": (lambda file: file.main.run("ABS", [99], IMAGE), "it names a tensor that it has not"),
    "a result of no tensor": (lambda file: file.main.operator("ABS", [file.main.input("x", IMAGE)], [-1]),
                              "it names a tensor that it has not"),
    "planes of three axes": (pool("MAX_POOL_2D", VALID, (3, 3, 4)),
                             r"shape of tensor 'max_pool_2d1': found \[3, 3, 4\]; allowed: 4 dimensions"),
    "a constant of another shape": (_known_otherwise, r"constant 'rank0' of \[\] where \[2\] is told"),
    "a handle of two": (_two_handles, "operator VAR_HANDLE with 2 results"),
    "a handle for numbers": (_handle_as_numbers, "tensor 'var_handle0/handle' is read as numbers and is a variable's"),
    "a variable of another shape": (_read_again((1, 6, 7, 5)), "tensor 'read_variable2' is not of the kind of 'x'"),
    "a variable that is none": (_assigned_to_numbers, "input 0: found 'x', no variable; allowed: the handle"),
    "a state that grows": (_kept_as_other, r"variable 'kept': found read as \(\(3, 4\), 'float32'\), assigned "
                                           r"\(\(4, 4\), 'float32'\); allowed: one shape, type and scale"),
    "a subgraph that is not there": (_changed(stream, 0, options={"InitSubgraphIndex": 2}), "it calls subgraph 2 of 2"),
    "the network as its own beginning": (_changed(stream, 0, options={"InitSubgraphIndex": 0}), "it calls subgraph 0"),
    "a beginning that is computed": (
        _begun_by_an_operator,
        "operator ABS of subgraph 1: found run once before the network; allowed: VAR_HANDLE and ASSIGN_VARIABLE"),
    "a beginning that is given": (_begun_by_an_input, "operator ASSIGN_VARIABLE of subgraph 1: found run once"),
    "a beginning of nothing": (_begun_without_a_handle, "operator ASSIGN_VARIABLE of subgraph 1: found run once"),
}
"""What is wrong -> the file and the message."""


@pytest.mark.parametrize("name", NETWORKS)
def test_what_a_network_cannot_be_is_said(name: str, tmp_path: Path) -> None:
    insist_refused(*NETWORKS[name], tmp_path)


# -- limits, which are small here --------------------------------------------------------------------------------------
def _folded(file: FileMaker) -> None:
    """Twice as many known numbers as the file has."""
    graph = file.main
    kept = graph.run("RESHAPE", [graph.constant(weights(4, 5)), graph.constant([5, 4], INT32)], (5, 4))
    graph.run("FULLY_CONNECTED", [graph.input("x", (1, 4)), kept], (1, 5))


@pytest.mark.parametrize(("module", "limit", "most", "make", "said"), [
    (schema, "MOST_NODES", 1, joined(3, (1, 6, 7, 8)), "the model: found more than 1 operators; allowed: at most 1"),
    (schema, "MOST_TENSORS", 5, joined(3, (1, 6, 7, 8)), "the model: found more than 5 tensors; allowed: at most 5"),
    (schema, "MOST_ELEMENTS", 39, _known(), "constants of the model: found more than 39 numbers; allowed: at most 39"),
    (schema, "MOST_SPARSE", 4, _sparse([0, 1], [], [5, ROWS]), "constant 'w': found 20 bytes; allowed: at most 16"),
    (schema, "MOST_SPARSE", 5, _sparse([0, 1], [], [5, ROWS]), "6 indices of sparse weights"),
    (schema, "MOST_ENTRIES", 9, _known(), "it lists more than it has room for"),
    (writer, "MOST_NODES", 1, joined(3, (1, 6, 7, 8)), "the model: found more than 1 nodes; allowed: at most 1"),
    (writer, "MOST_CONSTANTS", 19, _folded, "found 20 numbers in constants; allowed: at most 19"),
    (writer, "MOST_KNOWN", 19, _folded, "found 20 numbers in constants that operators make; allowed: at most 19")])
def test_what_is_read_is_bounded(module: ModuleType, limit: str, most: int, make: Make, said: str, tmp_path: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, limit, most)
    insist_refused(make, said, tmp_path)


# -- bytes that a converter writes otherwise ---------------------------------------------------------------------------
def _bytes(make: Make, apart: bool = False) -> bytes:
    file = FileMaker(apart)
    make(file)
    return file.content()


def _without_graphs(file: FileMaker) -> None:
    file.graphs = []


def test_a_file_without_a_network_is_damaged() -> None:
    with pytest.raises(schema.Damaged, match="it has no subgraph"):
        schema.read_subgraphs(_bytes(_without_graphs))


def test_constants_behind_the_flatbuffer_are_those_inside() -> None:
    """Their last byte belongs to the file, or else it is damaged."""
    inside, apart = (_bytes(matrix((3, 5), (3, 8)), way) for way in (False, True))
    assert to_model(apart, "model") == to_model(inside, "model") and apart.endswith(weights(5, seed=1).tobytes())
    with pytest.raises(schema.Damaged, match=f"a buffer ends at byte {len(apart)} of {len(apart) - 1}"):
        schema.read_subgraphs(apart[:-1])


@pytest.mark.parametrize("kind", ["Uint8Vector", "Uint16Vector"])
def test_sparse_indices_may_be_small(kind: str) -> None:
    small, plain = (_bytes(_sparse([0, 1], [], [5, (*ROWS, *more)])) for more in ([kind], []))
    assert small != plain and to_model(small, "model") == to_model(plain, "model")


def test_sparse_indices_of_no_kind_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    content = _bytes(_sparse([0, 1], [], [5, (*ROWS, "Uint8Vector")]))
    monkeypatch.delitem(schema.SPARSE_INDICES, tflite.SparseIndexVector.Uint8Vector)
    with pytest.raises(schema.Damaged, match="sparse weights without their indices"):
        schema.read_subgraphs(content)


def test_no_zero_point_is_zero() -> None:
    quantized = _known(INT8, 40, scale=[0.5] * 5)
    without, zero = _bytes(_changed(quantized, tensor=0, zeros=[])), _bytes(quantized)
    assert without != zero and to_model(without, "model") == to_model(zero, "model")


def _absolute(file: FileMaker) -> None:
    file.main.run("ABS", [file.main.input("x", (1, 8))], (1, 8))


def test_a_file_without_buffers_has_no_constants() -> None:
    def write(file: FileMaker) -> None:
        _absolute(file)
        file.buffers = []

    assert [node.op_type for node in to_model(_bytes(write), "model").graph.node] == ["Abs"]


def test_options_of_a_newer_schema_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They do not matter where nothing is read of them."""
    monkeypatch.setattr(schema, "OPTIONS", {})
    assert to_model(_bytes(_absolute), "model").graph.node
    with pytest.raises(schema.Damaged, match="'StrideH'"):
        to_model(_bytes(joined(3, (1, 6, 7, 8))), "model")
