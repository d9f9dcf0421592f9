# SPDX-License-Identifier: Apache-2.0
"""Small rules of compiled models, each by itself: cores, scales, windows, and what a host's part may ask for."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from weft.hw.contract.arch import Arch
from weft.support.errors import WeftError
from weft.tmodel import checks, onnx_bounds, onnx_work
from weft.tmodel.elements import pack, positions, strides_of
from weft.tmodel.scales import FactorScale, TensorScale
from weft.tmodel.tensors import Tensor
from weft.tmodel.window import Enlargement, Window

CORES = Arch.load("pynq_3x8")


# -- checks ------------------------------------------------------------------------------------------------------------
def of_cores(mode: str, others: int, window: int) -> Any:
    """Inputs, outputs and constants of DRAM0 end at vectors 3, 5 and 4; those of DRAM1 count nowhere."""
    port = SimpleNamespace
    return SimpleNamespace(
        cores=SimpleNamespace(mode=mode, others=[None] * others, window_bytes=window),
        inputs=[port(base=0, size=3)], outputs=[port(base=3, size=2)],
        consts=[port(base=2, size=2, memory="dram0"), port(base=50, size=2, memory="dram1")])


@pytest.mark.parametrize(("mode", "others", "vectors", "says"), [
    ("split", 2, 5, None), ("batch", 0, 5, None), ("split", 3, 5, "3 other programs"),
    ("split", 1, 5, "1 other programs"),
    ("batch", 2, 5, "2 other programs"), ("batch", 0, 4, "of each in use"), ("batch", 0, None, "of a DRAM0 of")])
def test_cores_have_programs_and_windows_that_hold_all(mode: str, others: int, vectors: int | None,
                                                       says: str | None) -> None:
    """Of three cores; a window ends with the last vector of the last of them."""
    window = CORES.dram0_window_bytes + 1 if vectors is None else vectors * CORES.vector_bytes
    if says is None:
        checks._cores(of_cores(mode, others, window), CORES)
    else:
        with pytest.raises(ValueError, match=says):
            checks._cores(of_cores(mode, others, window), CORES)


def test_the_most_elements_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    arch = Arch.load("tiny")
    for name in ("_names", "_memories", "_sizes", "_instruction_layers", "_cores"):
        monkeypatch.setattr(checks, name, lambda *_: None)
    monkeypatch.setattr(checks, "_port", lambda what, port, arch: 10)
    manifest: Any = SimpleNamespace(inputs=[SimpleNamespace(name="x")], outputs=[SimpleNamespace(name="y")], host=None,
                                    network=None)
    monkeypatch.setattr(checks, "MOST_ELEMENTS", 20)
    checks.check(manifest, arch)
    monkeypatch.setattr(checks, "MOST_ELEMENTS", 19)
    with pytest.raises(ValueError, match="20 elements, more than 19"):
        checks.check(manifest, arch)


@pytest.mark.parametrize(("data_type", "scale", "zero", "point", "shape", "says"), [
    ("FP16BP8", None, None, 3, (1,), None), ("FP16BP8", None, 5, 3, (1,), "a zero, without a scale"),
    ("FP16BP8", 0.5, 0, None, (1,), "with a scale, and FP16BP8"), ("INT8", 0.5, 0, None, (1,), None),
    ("INT8", 0.5, 0, 3, (1,), "with a scale, and a point"),
    ("INT8", None, None, None, (1,), "without a scale, of INT8"),
    ("INT8", None, None, None, None, None)])
def test_numbers_of_a_port_are_the_machine_s(data_type: str, scale: float | None, zero: int | None, point: int | None,
                                             shape: tuple[int, ...] | None, says: str | None) -> None:
    port: Any = SimpleNamespace(scale=scale, zero=zero, point=point, shape=shape)
    arch = Arch.load("pynq_int8" if data_type == "INT8" else "pynq")
    if says is None:
        checks._numbers("x", port, arch)
    else:
        with pytest.raises(ValueError, match=says):
            checks._numbers("x", port, arch)


# -- numbers -----------------------------------------------------------------------------------------------------------
def test_a_scale_holds_a_range_to_a_step() -> None:
    scale = TensorScale(0.5, 28)
    assert (scale.low, scale.high) == (-78.0, 49.5)
    assert scale.holds(-78.5, 50.0) and not scale.holds(-79.0, 0.0) and not scale.holds(0.0, 50.5)


@pytest.mark.parametrize("zero", [-128, -1, 0, 5, 127])
def test_a_mirrored_scale_has_the_complements_of_the_bytes(zero: int) -> None:
    """The byte b becomes -1 - b, which is a byte too, and stands for the negative number."""
    scale, numbers = TensorScale(0.25, zero), np.arange(-128, 128)
    assert np.array_equal(scale.mirrored.dequantize(-1 - numbers), -scale.dequantize(numbers))


@pytest.mark.parametrize(("scale", "zero", "exponent"), [(1.0, 0, 8), (1.0, -128, 8), (0.5, 0, 7), (1.0, 127, 8)])
def test_magnitudes_saturate_from_an_exponent_on(scale: float, zero: int, exponent: int) -> None:
    """2**exponent lies beyond every byte by a step at least, half of it may not."""
    own = TensorScale(scale, zero)
    assert own.exponent == exponent
    assert 2.0 ** exponent >= max(own.high, -own.low) + scale > 2.0 ** (exponent - 1)


def test_a_byte_at_its_end_saturates_if_the_number_is_a_step_beyond() -> None:
    scale = TensorScale(1.0, 0)
    values = np.array([127.0, 127.9, 128.0, 200.0, -128.0, -128.9, -129.0, 0.0])
    assert [scale.saturated(scale.quantize(values[[index]]), values[[index]]) for index in range(len(values))] == [
        0, 0, 1, 1, 0, 0, 1, 0]


def test_factors_are_unsigned_bytes() -> None:
    scale = FactorScale.of(0.5)
    for number, stored in ((-1.0, 0), (0.0, 0), (63.5, 127), (64.0, -128), (127.5, -1), (999.0, -1)):
        assert scale.quantize(np.array([number])).tolist() == [stored]
    assert scale.dequantize(np.array([127, -128, -1])).tolist() == [63.5, 64.0, 127.5]


@pytest.mark.parametrize(("kind", "values", "found"), [
    ("uint8", [0, 255], [0, 255]), ("uint8", [0.0, 3.0], [0, 3]), ("uint8", [256], None), ("uint8", [-1], None),
    ("uint8", [0.5], None), ("int64", [2.0], [2]), ("bool", [0, 1], [False, True]), ("bool", [2], None),
    ("float32", [0.5], [0.5])])
def test_integers_are_numbers_of_the_input_s_type(kind: str, values: list[float], found: list[Any] | None) -> None:
    tensor = Tensor("x", kind)
    if found is None:
        with pytest.raises(WeftError, match=f"numbers of the type {kind}"):
            tensor.given(np.array(values))
    else:
        assert tensor.given(np.array(values)).tolist() == found


def test_lanes_beyond_the_last_channel_hold_the_fill() -> None:
    assert pack(np.ones((3, 1, 2), np.int8), 2, -7).tolist() == [[1, 1], [1, 1], [1, -7], [1, -7]]


@pytest.mark.parametrize(("shape", "strides"), [((2, 3), [5, 1]), ((1, 2, 2), [0, 1, 7]), ((4,), [3]), ((1,), [0])])
def test_strides_are_found_again(shape: tuple[int, ...], strides: list[int]) -> None:
    assert strides_of(100 + positions(shape, strides)) is None
    assert strides_of(positions(shape, strides)) == strides


# -- windows -----------------------------------------------------------------------------------------------------------
WINDOWS = [Window((3, 3), (2, 2), (1, 1)), Window((2, 2), (3, 3)), Window((3, 3), (1, 1), (2, 2), (2, 2)),
           Window((5, 5), (1, 1), (0, 0)), Window((1, 1), (4, 4), (3, 3)), Window((2, 2), (1, 1), (-2, -2)),
           Window((3, 3), (2, 2), (5, 5), (3, 3))]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_a_window_reads_the_pixels_that_its_taps_reach(window: Window, size: int) -> None:
    """Against the sum that defines it, for every range of outputs."""
    reads = [[y * window.strides[0] - window.pads[0] + k * window.dilations[0] for k in range(window.kernel[0])]
             for y in range(9)]
    for low, high in itertools.combinations(range(10), 2):
        spans = [at for taps in reads[low:high] for at in (taps[0], taps[-1])]
        expected = (min(max(min(spans), 0), size), min(max(spans) + 1, size))
        first, last = window.inputs(0, low, high, size)
        assert (first, last) == (expected[0], max(expected)) and 0 <= first <= last <= size
        assert window.input_counts(0, np.array([low]), np.array([high]), size).tolist() == [last - first]
        for tap in range(window.kernel[0]):
            inside = [y for y in range(low, high) if 0 <= reads[y][tap] < size]
            found = range(*window.outputs(0, tap, low, high, size))
            assert list(found) == inside
    for y in range(9):
        assert window.reads(0, y, (0, size)) == tuple(at for at in reads[y] if 0 <= at < size)


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_an_enlargement_reads_the_pixels_that_it_repeats(factor: int) -> None:
    window = Enlargement(factors=(factor, factor))
    for low, high in itertools.combinations(range(10), 2):
        pixels = {y // factor for y in range(low, high)}
        assert window.inputs(0, low, high, 99) == (min(pixels), max(pixels) + 1)
        assert window.input_counts(0, np.array([low]), np.array([high]), 99).tolist() == [len(pixels)]
    assert window.only([(0, 0)]) is window


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_of_some_taps_has_them_in_the_same_places(window: Window) -> None:
    def places(own: Window, taps: list[tuple[int, int]]) -> list[tuple[int, ...]]:
        return [tuple(y * own.strides[axis] - own.pads[axis] + tap[axis] * own.dilations[axis] for axis in range(2))
                for y in range(3) for tap in taps]

    taps = [tap for tap in window.taps() if min(tap) > 0] or window.taps()
    top, left = (min(axis) for axis in zip(*taps, strict=True))
    found = window.only(taps)
    assert places(found, [(y - top, x - left) for y, x in taps]) == places(window, taps)
    assert found.kernel == tuple(max(axis) - min(axis) + 1 for axis in zip(*taps, strict=True))


def test_a_packed_axis_has_one_tap_without_padding() -> None:
    window = Window((3, 5), (2, 3), (1, 2), (1, 2))
    assert window.packed((0,)) == Window((1, 5), (1, 3), (0, 2), (1, 2))
    assert window.packed((0, 1)) == Window()


@pytest.mark.parametrize(("window", "parts"), [
    (Window((2, 2), (2, 2)), True), (Window((2, 2), (2, 2), (1, 0)), False), (Window((3, 2), (2, 2)), False),
    (Window((2, 2), (2, 2), (0, 0), (2, 1)), False)])
def test_windows_part_an_image(window: Window, parts: bool) -> None:
    assert window.partitions((4, 6), (2, 3)) is parts and not window.partitions((5, 6), (2, 3))


# -- the host's part ---------------------------------------------------------------------------------------------------
def test_graphs_within_read_what_they_do_not_make() -> None:
    """Inputs, constants and results of their own are no tensors around them; an output may be one."""
    inner = helper.make_graph(
        [helper.make_node("Add", ["own", "outer"], ["sum"]), helper.make_node("Mul", ["sum", "constant"], ["product"])],
        "inner", [helper.make_tensor_value_info("own", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("product", "passed")],
        [helper.make_tensor("constant", TensorProto.FLOAT, [1], [2.0])])
    node = helper.make_node("Loop", ["count"], ["y"], body=inner)
    assert onnx_bounds.captured(node) == ["outer", "passed"]
    outer = helper.make_graph([node], "outer", [], [])
    around = helper.make_node("If", ["c"], ["y"], then_branch=outer)
    assert sorted(onnx_bounds.captured(around)) == ["count", "outer", "passed"]


def outside(tmp_path: Path, size: int, entries: dict[str, str]) -> onnx.TensorProto:
    (tmp_path / "data").write_bytes(bytes(size))
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "data", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.mark.parametrize(("size", "entries", "good"), [
    (12, {}, True), (11, {}, False), (12, {"length": "12"}, True), (12, {"length": "13"}, False),
    (12, {"length": "8"}, True), (11, {"length": "8"}, False), (16, {"offset": "4"}, True),
    (15, {"offset": "4"}, False),
    (16, {"offset": "-4"}, False), (16, {"offset": "x"}, False)])
def test_data_outside_a_model_are_all_there(size: int, entries: dict[str, str], good: bool, tmp_path: Path) -> None:
    """Of three floats, whatever length is stated."""
    tensor = outside(tmp_path, size, entries)
    if good:
        onnx_bounds._check_outside(tensor, tmp_path)
    else:
        with pytest.raises(WeftError, match="data of constant 'w'"):
            onnx_bounds._check_outside(tensor, tmp_path)


@pytest.mark.parametrize(("kind", "bits"), [
    ("FLOAT", 32), ("DOUBLE", 64), ("INT8", 8), ("BOOL", 8), ("FLOAT16", 16), ("INT4", 4), ("UINT4", 4),
    ("FLOAT4E2M1", 4), ("FLOAT8E4M3FN", 8), ("BFLOAT16", 16)])
def test_bits_of_an_element(kind: str, bits: int) -> None:
    assert onnx_bounds._bits(onnx.TensorProto(data_type=getattr(TensorProto, kind))) == bits


def test_a_sparse_constant_has_two_tensors() -> None:
    """Either may lie outside of the file or be huge."""
    values, indices = (helper.make_tensor(name, kind, [1], [1]) for name, kind in (
        ("values", TensorProto.FLOAT), ("indices", TensorProto.INT64)))
    graph = helper.make_graph([], "g", [], [], sparse_initializer=[helper.make_sparse_tensor(values, indices, [9])])
    assert [tensor.name for tensor in onnx_bounds._tensors(graph)] == ["values", "indices"]


def test_the_most_dimensions_and_all_elements_together(monkeypatch: pytest.MonkeyPatch) -> None:
    assert onnx_bounds.check_size("x", (1,) * onnx_bounds.MOST_DIMENSIONS) == 1
    with pytest.raises(WeftError, match="33 dimensions"):
        onnx_bounds.check_size("x", (1,) * (onnx_bounds.MOST_DIMENSIONS + 1))
    values = [helper.make_tensor_value_info(f"x{size}", TensorProto.FLOAT, [size]) for size in (2, 3, 4)]
    graph = helper.make_graph([], "g", values[:1], values[1:2], value_info=values[2:])
    monkeypatch.setattr(onnx_bounds, "MOST_TOGETHER", 9)
    onnx_bounds.check_shapes(graph)
    monkeypatch.setattr(onnx_bounds, "MOST_TOGETHER", 8)
    with pytest.raises(WeftError, match="9 elements together"):
        onnx_bounds.check_shapes(graph)


@pytest.mark.parametrize(("operator", "attributes", "given", "made", "count"), [
    ("Gemm", {}, [(2, 3), (3, 5)], [(2, 5)], 30), ("Gemm", {"transA": 1}, [(3, 2), (3, 5)], [(2, 5)], 30),
    ("MatMul", {}, [(7, 2, 3), (3, 5)], [(7, 2, 5)], 210),
    ("Conv", {}, [(1, 4, 6, 6), (8, 2, 3, 3)], [(1, 8, 4, 4)], 8 * 16 * 18),
    ("ConvTranspose", {}, [(1, 4, 6, 6), (4, 8, 3, 3)], [(1, 8, 8, 8)], 4 * 36 * 72),
    ("RNN", {}, [(5, 2, 3), (1, 4, 3), (1, 4, 4)], [(5, 1, 2, 4)], 5 * 2 * 4 * 7),
    ("Einsum", {"equation": "...ij,...jk->...ik"}, [(7, 2, 3), (7, 3, 5)], [(7, 2, 5)], 210),
    ("Einsum", {"equation": "...ij,jk->...ik"}, [(4, 7, 2, 3), (3, 5)], [(4, 7, 2, 5)], 840),
    ("Einsum", {"equation": "...i,...i->..."}, [(4, 7, 3), (7, 3)], [(4, 7)], 84),
    ("Einsum", {"equation": "ii->i"}, [(3, 3)], [(3,)], 0)])
def test_multiply_accumulates_as_drawn(operator: str, attributes: dict[str, Any], given: list[tuple[int, ...]],
                                       made: list[tuple[int, ...]], count: int) -> None:
    assert onnx_work.MACS[operator](attributes, given, made) == count


@pytest.mark.parametrize(("given", "attributes", "scores"), [
    ([(2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8)], {}, 2 * 4 * 5 * 6),
    ([(2, 5, 32), (2, 6, 32), (2, 6, 32)], {"q_num_heads": 4}, 2 * 4 * 5 * 6),
    ([(2, 4, 5, 8), (2, 4, 6, 8), (2, 4, 6, 8), (), (2, 4, 10, 8)], {}, 2 * 4 * 5 * 16)])
def test_an_attention_has_a_score_for_each_query_and_key(given: list[tuple[int, ...]], attributes: dict[str, Any],
                                                         scores: int) -> None:
    """Of each head; keys of its cache count too."""
    assert onnx_work.HELD["Attention"](attributes, given, [given[0]]) == scores
    products = onnx_work.ATTENTION_PRODUCTS * math.prod(given[0]) * (scores // (2 * 4 * 5))
    assert onnx_work.EXTRA["Attention"](attributes, given, [given[0]]) == products
