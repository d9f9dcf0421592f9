# SPDX-License-Identifier: Apache-2.0
"""ONNX files broken in one or two random ways, each decided by a seed.

A user may hold such a file after a download that failed, an export that went wrong, or an editor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from weft.tb.random.random_networks import Case, generate

Entry = TypeVar("Entry")
Break = Callable[[onnx.ModelProto, np.random.Generator], None]


def _one(random: np.random.Generator, entries: Iterable[Entry]) -> Entry | None:
    """Any of a protobuf list; None of an empty one."""
    found = list(entries)
    return found[random.integers(len(found))] if found else None


def _any(random: np.random.Generator, entries: Iterable[Entry]) -> Entry:
    """Any of a list that is not empty."""
    found = _one(random, entries)
    assert found is not None, "an empty list"
    return found


# -- constants ---------------------------------------------------------------------------------------------------------
def _floats(tensor: TensorProto) -> np.ndarray | None:
    """A copy; None of other numbers, and of a constant that is broken already."""
    try:
        values = numpy_helper.to_array(tensor).copy()
    except Exception:  # of no common type
        return None
    return values if values.size and values.dtype == np.float32 else None


def missing_initializer(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if chosen := _one(random, model.graph.initializer):
        model.graph.initializer.remove(chosen)


def not_a_number(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """NaN or an infinity in one place of a constant."""
    if chosen := _one(random, model.graph.initializer):
        values = _floats(chosen)
        if values is not None:
            values.reshape(-1)[random.integers(values.size)] = random.choice([np.nan, np.inf, -np.inf])
            chosen.CopyFrom(numpy_helper.from_array(values, chosen.name))


def huge_number(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if chosen := _one(random, model.graph.initializer):
        values = _floats(chosen)
        if values is not None:
            values.reshape(-1)[random.integers(values.size)] = random.choice([1e38, -1e30, 1e-40])
            chosen.CopyFrom(numpy_helper.from_array(values, chosen.name))


def other_constant_type(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if chosen := _one(random, model.graph.initializer):
        values = _floats(chosen)
        if values is not None:
            kind = str(random.choice(["float64", "float16", "int64", "int8", "bool"]))
            chosen.CopyFrom(numpy_helper.from_array(values.astype(kind), chosen.name))


def lying_dimensions(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """Dimensions of a constant that its data do not fill."""
    if chosen := _one(random, model.graph.initializer):
        at = random.integers(len(chosen.dims) + 1)
        value = int(random.choice([0, -1, 2, 7, 1 << 40]))
        chosen.dims.insert(at, value) if at == len(chosen.dims) else chosen.dims.__setitem__(at, value)


def cut_data(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if chosen := _one(random, model.graph.initializer):
        chosen.raw_data = chosen.raw_data[:random.integers(len(chosen.raw_data) + 1)]


def data_elsewhere(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """A constant in a file that is not there, or must not be read."""
    if chosen := _one(random, model.graph.initializer):
        chosen.data_location = TensorProto.EXTERNAL
        chosen.ClearField("raw_data")
        entry = chosen.external_data.add()
        entry.key, entry.value = "location", str(random.choice(["weights.bin", "../../weights.bin", ""]))


# -- nodes -------------------------------------------------------------------------------------------------------------
def cycle(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """A node reads what itself or a later node makes."""
    at = int(random.integers(len(model.graph.node)))
    node, later = model.graph.node[at], _any(random, model.graph.node[at:])
    if node.input:
        node.input[random.integers(len(node.input))] = later.output[0]


def unknown_input(model: onnx.ModelProto, random: np.random.Generator) -> None:
    node = _any(random, model.graph.node)
    if node.input:
        at = random.integers(len(node.input))
        node.input[at] = str(random.choice(["nobody", "", "x"]))


def more_or_fewer_inputs(model: onnx.ModelProto, random: np.random.Generator) -> None:
    node = _any(random, model.graph.node)
    if random.random() < 0.5 and node.input:
        del node.input[-1]
    else:
        node.input.extend(["x"] * int(random.integers(1, 4)))


def same_name_twice(model: onnx.ModelProto, random: np.random.Generator) -> None:
    first, second = _any(random, model.graph.node), _any(random, model.graph.node)
    first.output[0] = second.output[0]


def missing_node(model: onnx.ModelProto, random: np.random.Generator) -> None:
    model.graph.node.remove(_any(random, model.graph.node))


def shuffled_nodes(model: onnx.ModelProto, random: np.random.Generator) -> None:
    nodes = [model.graph.node[k] for k in random.permutation(len(model.graph.node))]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def other_operator(model: onnx.ModelProto, random: np.random.Generator) -> None:
    _any(random, model.graph.node).op_type = str(random.choice(
        ["Conv", "Relu", "Add", "MaxPool", "Concat", "Reshape", "Gemm", "Softmax", "LSTM", "If", "Nonsense", "",
         "Transpose", "Slice", "Resize", "Pad", "BatchNormalization", "ConvTranspose", "Sigmoid", "Shape"]))


def other_domain(model: onnx.ModelProto, random: np.random.Generator) -> None:
    _any(random, model.graph.node).domain = str(random.choice(["ai.onnx.ml", "com.nobody"]))


# -- attributes --------------------------------------------------------------------------------------------------------
def _attribute(model: onnx.ModelProto, random: np.random.Generator) -> tuple[onnx.NodeProto, AttributeProto] | None:
    owners = [(node, attribute) for node in model.graph.node for attribute in node.attribute]
    return owners[random.integers(len(owners))] if owners else None


def missing_attribute(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if found := _attribute(model, random):
        found[0].attribute.remove(found[1])


def other_value(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """Of the right type, and any size."""
    if found := _attribute(model, random):
        _, attribute = found
        if attribute.type == AttributeProto.INTS and attribute.ints:
            at = random.integers(len(attribute.ints))
            attribute.ints[at] = int(random.choice([-3, -1, 0, 1, 2, 5, 100, 1 << 40]))
        elif attribute.type == AttributeProto.INT:
            attribute.i = int(random.choice([-5, -1, 0, 1, 3, 9, 1 << 40]))
        elif attribute.type == AttributeProto.FLOAT:
            attribute.f = float(random.choice([np.nan, np.inf, -1.0, 0.0, 1e30]))
        elif attribute.type == AttributeProto.STRING:
            attribute.s = bytes(random.integers(0, 256, 4, dtype=np.uint8))


def longer_or_shorter(model: onnx.ModelProto, random: np.random.Generator) -> None:
    found = _attribute(model, random)
    if found and found[1].type == AttributeProto.INTS and found[1].ints:
        if random.random() < 0.5:
            del found[1].ints[-1]
        else:
            found[1].ints.append(1)


def other_attribute_type(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if found := _attribute(model, random):
        value = [2.5, 3, "text", [1.5, 2.5], [1], ["a"]][random.integers(6)]
        found[1].CopyFrom(helper.make_attribute(found[1].name, value))


# -- the graph's ends --------------------------------------------------------------------------------------------------
def open_dimension(model: onnx.ModelProto, random: np.random.Generator) -> None:
    dimensions = model.graph.input[0].type.tensor_type.shape.dim
    if chosen := _one(random, dimensions):
        if random.random() < 0.5:
            chosen.dim_param = "N"
        else:
            chosen.dim_value = int(random.choice([0, -1, 3, 1 << 40]))


def no_shape(model: onnx.ModelProto, random: np.random.Generator) -> None:
    model.graph.input[0].type.tensor_type.ClearField("shape")


def more_or_fewer_dimensions(model: onnx.ModelProto, random: np.random.Generator) -> None:
    dimensions = model.graph.input[0].type.tensor_type.shape.dim
    if random.random() < 0.5 and dimensions:
        del dimensions[-1]
    else:
        dimensions.add().dim_value = 2


def other_input_type(model: onnx.ModelProto, random: np.random.Generator) -> None:
    model.graph.input[0].type.tensor_type.elem_type = int(random.choice(
        [TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.STRING, TensorProto.UNDEFINED, 77]))


def unknown_output(model: onnx.ModelProto, random: np.random.Generator) -> None:
    model.graph.output[0].name = str(random.choice(["nobody", "", "x"]))


def no_ends(model: onnx.ModelProto, random: np.random.Generator) -> None:
    del (model.graph.input if random.random() < 0.5 else model.graph.output)[:]


def wrong_shapes_inside(model: onnx.ModelProto, random: np.random.Generator) -> None:
    """A value_info that contradicts the network."""
    dimensions = [entry for value in model.graph.value_info for entry in value.type.tensor_type.shape.dim]
    if chosen := _one(random, dimensions):
        chosen.dim_value = int(random.integers(1, 20))


def other_opset(model: onnx.ModelProto, random: np.random.Generator) -> None:
    if random.random() < 0.3:
        del model.opset_import[:]
    elif model.opset_import:
        model.opset_import[0].version = int(random.choice([0, -1, 1, 6, 7, 9, 11, 22, 99, 1 << 40]))


BREAKS: tuple[Break, ...] = (
    missing_initializer, not_a_number, huge_number, other_constant_type, lying_dimensions, cut_data, data_elsewhere,
    cycle, unknown_input, more_or_fewer_inputs, same_name_twice, missing_node, shuffled_nodes, other_operator,
    other_domain, missing_attribute, other_value, longer_or_shorter, other_attribute_type, open_dimension, no_shape,
    more_or_fewer_dimensions, other_input_type, unknown_output, no_ends, wrong_shapes_inside, other_opset)


# -- files -------------------------------------------------------------------------------------------------------------
def _broken_bytes(content: bytes, random: np.random.Generator) -> bytes:
    """A file that ends too early, or with some bytes changed."""
    if random.random() < 0.5:
        return content[:random.integers(len(content))]
    changed = bytearray(content)
    for _ in range(random.integers(1, 6)):
        changed[random.integers(len(changed))] = random.integers(256)
    return bytes(changed)


def broken_file(seed: int) -> tuple[bytes, tuple[int, ...], str]:
    """A file, the shape of its input before it was broken, and what was done to it."""
    random = np.random.default_rng([seed, 77])
    net = generate(Case("lanes3", seed), tables=True)
    model = net.maker.model()
    done = []
    for _ in range(random.integers(1, 3)):
        if random.random() < 0.1:
            done.append("bytes")
            return _broken_bytes(model.SerializeToString(), random), net.maker.shape, ", ".join(done)
        change = BREAKS[random.integers(len(BREAKS))]
        if len(model.graph.node) and len(model.graph.input) and len(model.graph.output):
            change(model, random)
            done.append(change.__name__)
    return model.SerializeToString(), net.maker.shape, ", ".join(done)
