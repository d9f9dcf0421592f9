# SPDX-License-Identifier: Apache-2.0
"""Helper: small TensorFlow Lite files in a few lines, and what LiteRT computes of them."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
import tflite

INT8, INT16, INT32 = "int8", "int16", "int32"
SPARSE = 1
"""The schema's number of a sparse level."""


class Graph:
    """A subgraph: tensors and operators, each method returns a tensor's number."""

    def __init__(self, file: FileMaker) -> None:
        self.file = file
        self.tensors: list[dict[str, Any]] = []
        self.operators: list[dict[str, Any]] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []

    def tensor(self, name: str, shape: Sequence[int], kind: str = "float32", *, data: np.ndarray | None = None,
               scale: float | Sequence[float] | None = None, zero: int = 0, axis: int = 0, **more: Any) -> int:
        """``more``: ``signature``, ``variable``, ``sparsity`` (order, blocks, levels: a size, or segments and indices,
        perhaps with the schema's name for a vector of them)."""
        scales = [] if scale is None else np.atleast_1d(scale).tolist()
        self.tensors.append({"name": name, "shape": list(shape), "kind": kind, "scales": scales,
                             "zeros": [zero] * len(scales), "axis": axis, "buffer": self.file.buffer(data), **more})
        return len(self.tensors) - 1

    def input(self, name: str, shape: Sequence[int], kind: str = "float32", **more: Any) -> int:
        self.inputs.append(self.tensor(name, shape, kind, **more))
        return self.inputs[-1]

    def constant(self, value: Any, kind: str = "float32", name: str = "", **more: Any) -> int:
        array = np.asarray(value, kind)
        return self.tensor(name or f"constant{len(self.tensors)}", array.shape, kind, data=array, **more)

    def run(self, code: str, inputs: Sequence[int], shape: Sequence[int], kind: str = "float32", *,
            options: Mapping[str, Any] | None = None, table: str = "", name: str = "", **more: Any) -> int:
        """Add an operator of one result. ``options`` are fields of its options, of ``table`` where its name is
        another."""
        result = self.tensor(name or f"{code.lower()}{len(self.operators)}", shape, kind, **more)
        self.operator(code, inputs, [result], options, table, version=VERSIONS.get(code, 1))
        return result

    def operator(self, code: str, inputs: Sequence[int], outputs: Sequence[int],
                 options: Mapping[str, Any] | None = None, table: str = "", custom: bytes | None = None,
                 version: int = 1) -> int:
        """Add an operator; return its number."""
        self.operators.append({"code": self.file.code(code, version), "inputs": list(inputs), "outputs": list(outputs),
                               "options": dict(options or {}), "table": table, "custom": custom})
        return len(self.operators) - 1


class FileMaker:
    """``main`` is the network; ``graph()`` adds another subgraph. ``apart``: constants lie behind the flatbuffer, as in
    files that are too large for one."""

    def __init__(self, apart: bool = False) -> None:
        self.apart = apart
        self.buffers: list[bytes] = [b""]
        self.codes: list[tuple[str, int]] = []
        self.graphs: list[Graph] = []
        self.main = self.graph()

    def graph(self) -> Graph:
        self.graphs.append(Graph(self))
        return self.graphs[-1]

    def buffer(self, data: np.ndarray | None) -> int:
        if data is None:
            return 0
        self.buffers.append(np.ascontiguousarray(data).tobytes())
        return len(self.buffers) - 1

    def code(self, code: str, version: int) -> int:
        if (code, version) not in self.codes:
            self.codes.append((code, version))
        return self.codes.index((code, version))

    def save(self, path: Path, *outputs: int) -> Path:
        """Write the file; ``outputs`` are those of the network, by default its last tensor."""
        path.write_bytes(self.content(*outputs))
        return path

    def content(self, *outputs: int) -> bytes:
        self.main.outputs = list(outputs) or self.main.outputs or [len(self.main.tensors) - 1]
        return _Writer().model(self)


class _Writer:
    def __init__(self) -> None:
        self.builder = flatbuffers.Builder(1 << 12)

    def model(self, file: FileMaker) -> bytes:
        buffers = (self.table("Buffer", Offset=APART + number, Size=len(each)) if file.apart and each else
                   self.table("Buffer", Data=self.numbers(each, "uint8")) for number, each in enumerate(file.buffers))
        made = self.table("Model", Version=3, OperatorCodes=self.tables(map(self.code, file.codes)),
                          Subgraphs=self.tables(map(self.graph, file.graphs)), Buffers=self.tables(buffers))
        self.builder.Finish(made, b"TFL3")
        content = bytes(self.builder.Output())
        for number, each in enumerate(file.buffers if file.apart else ()):
            place = len(content).to_bytes(8, "little")
            content = content.replace((APART + number).to_bytes(8, "little"), place) + each
        return content

    def table(self, kind: str, **fields: Any) -> int:
        """A table whose fields are numbers, or offsets that were made before."""
        getattr(tflite, f"{kind}Start")(self.builder)
        for name, value in fields.items():
            if value is not None:
                getattr(tflite, f"{kind}Add{name}")(self.builder, value)
        return int(getattr(tflite, f"{kind}End")(self.builder))

    def tables(self, offsets: Any) -> int:
        made = list(offsets)
        self.builder.StartVector(4, len(made), 4)
        for offset in reversed(made):
            self.builder.PrependUOffsetTRelative(offset)
        return int(self.builder.EndVector())

    def numbers(self, values: Any, kind: str = "int32") -> int:
        array = np.frombuffer(values, np.uint8) if isinstance(values, bytes) else np.asarray(values, kind)
        return int(self.builder.CreateNumpyVector(array))

    def code(self, code: tuple[str, int]) -> int:
        name, version = code
        number = getattr(tflite.BuiltinOperator, name, None)
        custom = self.builder.CreateString(name) if number is None else None
        number = tflite.BuiltinOperator.CUSTOM if number is None else number
        return self.table("OperatorCode", BuiltinCode=number, DeprecatedBuiltinCode=min(number, 127), Version=version,
                          CustomCode=custom)

    def graph(self, graph: Graph) -> int:
        return self.table("SubGraph", Tensors=self.tables(map(self.tensor, graph.tensors)),
                          Inputs=self.numbers(graph.inputs), Outputs=self.numbers(graph.outputs),
                          Operators=self.tables([self.operator(each, graph) for each in graph.operators]),
                          Name=self.builder.CreateString("main"))

    def operator(self, operator: Mapping[str, Any], graph: Graph) -> int:
        code = graph.file.codes[operator["code"]][0]
        table = operator["table"] or TABLES.get(code, f"{_camel(code)}Options")
        options = None
        if hasattr(tflite, f"{table}Start"):
            fields = {key: self.builder.CreateString(value) if isinstance(value, str) else
                      self.numbers(value) if isinstance(value, list) else value
                      for key, value in operator["options"].items()}
            options = self.table(table, **fields)
        custom = None if operator["custom"] is None else self.numbers(operator["custom"], "uint8")
        return self.table("Operator", OpcodeIndex=operator["code"], Inputs=self.numbers(operator["inputs"]),
                          Outputs=self.numbers(operator["outputs"]), BuiltinOptions=options,
                          BuiltinOptionsType=getattr(tflite.BuiltinOptions, table) if options else 0,
                          CustomOptions=custom)

    def tensor(self, tensor: Mapping[str, Any]) -> int:
        quantization = None
        if tensor["scales"]:
            quantization = self.table("QuantizationParameters", Scale=self.numbers(tensor["scales"], "float32"),
                                      ZeroPoint=self.numbers(tensor["zeros"], "int64"),
                                      QuantizedDimension=tensor["axis"])
        signature = self.numbers(tensor["signature"]) if "signature" in tensor else None
        return self.table("Tensor", Shape=self.numbers(tensor["shape"]), Buffer=tensor["buffer"],
                          Type=getattr(tflite.TensorType, tensor["kind"].upper()),
                          Name=self.builder.CreateString(tensor["name"]), Quantization=quantization,
                          IsVariable=tensor.get("variable", False), ShapeSignature=signature,
                          Sparsity=self.sparsity(*tensor["sparsity"]) if "sparsity" in tensor else None)

    def sparsity(self, order: Sequence[int], blocks: Sequence[int], levels: Sequence[Any]) -> int:
        made = []
        for level in levels:
            if isinstance(level, int):
                made.append(self.table("DimensionMetadata", Format=0, DenseSize=level))
                continue
            *pair, name = level if len(level) == 3 else (*level, "Int32Vector")
            vectors = [self.table(name, Values=self.numbers(each, name.removesuffix("Vector").lower()))
                       for each in pair]
            kind = getattr(tflite.SparseIndexVector, name)
            made.append(self.table("DimensionMetadata", Format=SPARSE, ArraySegmentsType=kind, ArraySegments=vectors[0],
                                   ArrayIndicesType=kind, ArrayIndices=vectors[1]))
        return self.table("SparsityParameters", TraversalOrder=self.numbers(order), BlockMap=self.numbers(blocks),
                          DimMetadata=self.tables(made))


APART = 0x5EED_0000_0000_0000
"""Stands for the place of the first buffer until it is known."""

VERSIONS = {"BROADCAST_TO": 2}
"""Operators that LiteRT has not in their first version."""

TABLES = {"AVERAGE_POOL_2D": "Pool2DOptions", "MAX_POOL_2D": "Pool2DOptions", "L2_POOL_2D": "Pool2DOptions",
          "CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions", "MEAN": "ReducerOptions",
          "SUM": "ReducerOptions", "REDUCE_MAX": "ReducerOptions", "REDUCE_MIN": "ReducerOptions",
          "REDUCE_PROD": "ReducerOptions", "L2_NORMALIZATION": "L2NormOptions", "PADV2": "PadV2Options",
          "BATCH_MATMUL": "BatchMatMulOptions", "MAXIMUM": "MaximumMinimumOptions", "MINIMUM": "MaximumMinimumOptions",
          "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
          "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions", "SELECT_V2": "SelectV2Options",
          "REVERSE_V2": "ReverseV2Options", "SPLIT_V": "SplitVOptions"}
"""Operators whose options are not called as they are."""


def _camel(code: str) -> str:
    return "".join(part.capitalize() for part in code.split("_"))


# -- the oracle --------------------------------------------------------------------------------------------------------
class LiteRt:
    """A file in LiteRT's own interpreter; states stay from one run to the next. Names are without ``:0``."""

    def __init__(self, path: Path, everything: bool = False, sizes: Mapping[str, Sequence[int]] | None = None) -> None:
        """``everything``: tensors on the way can be read too. ``sizes`` of inputs whose own are open, which
        XNNPACK does not always take."""
        lite = pytest.importorskip("ai_edge_litert.interpreter", reason="needs LiteRT: make setup")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # keeping everything takes memory
            kernels = lite.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if sizes else lite.OpResolverType.AUTO
            self.interpreter = lite.Interpreter(model_path=str(path), experimental_preserve_all_tensors=everything,
                                                experimental_op_resolver_type=kernels)
        if sizes:
            for entry in self.interpreter.get_input_details():
                self.interpreter.resize_tensor_input(entry["index"], sizes[_plain(entry)])
        self.interpreter.allocate_tensors()
        self.numbers = {_plain(entry): entry["index"] for entry in self.interpreter.get_tensor_details()}

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        for entry in self.interpreter.get_input_details():
            self.interpreter.set_tensor(entry["index"], inputs[_plain(entry)])
        self.interpreter.invoke()
        return {_plain(entry): np.array(self.interpreter.get_tensor(entry["index"]))
                for entry in self.interpreter.get_output_details()}

    def tensor(self, name: str) -> np.ndarray:
        """Return a tensor of the last run."""
        return np.array(self.interpreter.get_tensor(self.numbers[name]))


def _plain(entry: Mapping[str, Any]) -> str:
    return str(entry["name"]).removesuffix(":0")


def with_transpose_conv(path: Path, folder: Path) -> Path:
    """Write a file again with TRANSPOSE_CONV for MediaPipe's Convolution2DTransposeBias, which LiteRT has not."""
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated", reason="needs LiteRT: make setup")
    model = schema.ModelT.InitFromPackedBuf(path.read_bytes(), 0)
    graph, = model.subgraphs
    number, code = next((number, code) for number, code in enumerate(model.operatorCodes) if code.customCode)
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.TRANSPOSE_CONV
    code.customCode, code.version = None, 3
    for operator in (each for each in graph.operators if each.opcodeIndex == number):
        padding, width, height = struct.unpack_from("<iii", bytes(operator.customOptions))
        buffer, shape, options = schema.BufferT(), schema.TensorT(), schema.TransposeConvOptionsT()
        buffer.data = np.frombuffer(np.asarray(graph.tensors[operator.outputs[0]].shape, np.int32).tobytes(), np.uint8)
        shape.shape, shape.type, shape.buffer = np.array([4], np.int32), schema.TensorType.INT32, len(model.buffers)
        options.padding, options.strideW, options.strideH = padding - 1, width, height
        source, filters, bias = operator.inputs
        operator.inputs = np.array([len(graph.tensors), filters, source, bias], np.int32)
        operator.customOptions, operator.builtinOptions = None, options
        operator.builtinOptionsType = schema.BuiltinOptions.TransposeConvOptions
        model.buffers.append(buffer)
        graph.tensors.append(shape)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    made = folder / f"plain_{path.name}"
    made.write_bytes(builder.Output())
    return made
