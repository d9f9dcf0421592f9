# SPDX-License-Identifier: Apache-2.0
"""Rules of the reader of `.tflite` files, each by itself: slices, scales, sparse weights, open shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from weft.compiler.errors import CompileError
from weft.compiler.frontend.tflite.convolutions import _bias
from weft.compiler.frontend.tflite.numbers import Quantization
from weft.compiler.frontend.tflite.open_shapes import OpenShapes
from weft.compiler.frontend.tflite.operation import Operation
from weft.compiler.frontend.tflite.shapes import _give_slice, _one_scale, _same_scale
from weft.compiler.frontend.tflite.sparsity import Dimension, Sparsity, dense
from weft.compiler.frontend.tflite.states import _need_one_kind


def scaled(scale: float, zero: int, kind: str = "int8", shape: tuple[int, ...] = (2,)) -> Any:
    """A tensor of bytes of one scale."""
    quantization = Quantization(np.array([scale]), np.array([zero]), 0)
    return SimpleNamespace(shape=shape, constant=None, name="t", tensor=SimpleNamespace(
        type=kind, quantization=quantization, signature=shape))


PLAIN = SimpleNamespace(shape=(2,), constant=None, name="t", tensor=SimpleNamespace(
    type="int8", quantization=None, signature=(2,)))
PAIRS = [(scaled(0.5, 3), scaled(0.5, 3), True), (scaled(0.5, 3), scaled(0.25, 3), False),
         (scaled(0.5, 3), scaled(0.5, 4), False), (scaled(0.5, 3), PLAIN, False), (PLAIN, scaled(0.5, 3), False)]


@pytest.mark.parametrize(("first", "second", "alike"), PAIRS)
def test_scales_are_alike_with_their_zero_points(first: Any, second: Any, alike: bool) -> None:
    """What is only moved between such tensors needs no rounding."""
    op: Any = Operation.__new__(Operation)
    op.__dict__.update(operator=SimpleNamespace(inputs=[0, 1], outputs=[0], code="X"), outputs=[second],
                       writer=SimpleNamespace(values=[first, second]))
    assert op._keeps_scale(0) == alike
    assert _same_scale(op, 0, 0) == alike
    assert _one_scale(op) == alike


def test_another_type_of_the_same_scale_is_rounded() -> None:
    op: Any = Operation.__new__(Operation)
    op.__dict__.update(operator=SimpleNamespace(inputs=[0]), outputs=[scaled(0.5, 3, "uint8")],
                       writer=SimpleNamespace(values=[scaled(0.5, 3)]))
    assert not op._keeps_scale(0)


@pytest.mark.parametrize(("behind", "fits"), [
    (scaled(0.5, 3), True), (scaled(0.25, 3), False), (scaled(0.5, 4), False), (scaled(0.5, 3, "uint8"), False),
    (scaled(0.5, 3, shape=(3,)), False), (PLAIN, False)])
def test_a_state_is_assigned_what_it_is_read_as(behind: Any, fits: bool) -> None:
    if fits:
        _need_one_kind("v", scaled(0.5, 3), behind)
    else:
        with pytest.raises(CompileError, match="one shape, type and scale"):
            _need_one_kind("v", scaled(0.5, 3), behind)


@pytest.mark.parametrize("source", [0, 2])
def test_a_bias_without_a_scale_has_that_of_the_image_times_the_weights(source: int) -> None:
    """The image is input 2 of a transposed convolution, whose input 0 is a shape."""
    values = [scaled(0.5, 3), scaled(0.25, 0), scaled(2.0, 1), SimpleNamespace(
        constant=np.array([4, -8]), tensor=SimpleNamespace(quantization=None))]
    made: list[np.ndarray] = []

    def keep(value: np.ndarray, what: str) -> str:
        made.append(value)
        return what

    op: Any = SimpleNamespace(has=lambda index: True, input=values.__getitem__, constant=keep, read=str)
    assert _bias(op, 3, source) == ["bias"]
    assert made[0].tolist() == (np.array([4, -8]) * values[source].tensor.quantization.scales * 0.25).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_slices_are_those_of_python(seed: int) -> None:
    """Forward and backward, to both ends of an axis; -1 as the end of a backward one is before number 0."""
    draw = np.random.default_rng(seed)
    shape = tuple(draw.integers(1, 5, 3).tolist())
    ranges = []
    for size in shape:
        step = int(draw.choice([-2, -1, 1, 2]))
        begin, end = draw.integers(0, size), draw.integers(0, size + 1)
        ranges.append((int(begin), int(end), step) if step > 0 else (int(begin), int(end) - 1, step))
    found = np.arange(np.prod(shape)).reshape(shape)
    wanted = found[np.ix_(*(list(range(*each)) for each in ranges))]
    constants: dict[str, list[int]] = {}
    nodes: list[str] = []

    def keep(value: np.ndarray, what: str) -> str:
        constants[what] = value.tolist()
        return what

    def emit(kind: str, names: list[str]) -> str:
        nodes.append(kind)
        return kind

    op: Any = SimpleNamespace(layout=lambda _: "", read=lambda *_: "x", shape=lambda _: shape, made=wanted.shape,
                              constant=keep, place=lambda axis, layout: axis, give=lambda *_, **__: None,
                              emit=emit)
    _give_slice(op, *([each[place] for each in ranges] for place in range(3)))
    for begin, end, axis, step in zip(*(constants.get(each, []) for each in ("begins", "ends", "axes", "steps")),
                                      strict=True):
        least = end < -found.shape[axis] and step < 0
        found = np.moveaxis(np.moveaxis(found, axis, 0)[begin:None if least else end:step], 0, axis)
    np.testing.assert_array_equal(found, wanted)
    assert nodes == (["Slice"] if constants else ["Identity"])


SPARSE = Dimension(2, np.array([0, 1, 3]), np.array([2, 0, 1]))


@pytest.mark.parametrize(("level", "said"), [
    (SPARSE, ""), (SPARSE._replace(segments=np.array([1, 1, 3])), "indices"),
    (SPARSE._replace(segments=np.array([0, 2, 1])), "indices"), (SPARSE._replace(segments=np.array([0, 3])), "indices"),
    (SPARSE._replace(segments=np.array([0, 1, 2])), "indices"),
    (SPARSE._replace(indices=np.array([2, 0, 3])), "indices"),
    (SPARSE._replace(indices=np.array([-1, 0, 1])), "indices")])
def test_segments_of_sparse_weights_are_all_of_its_indices(level: Dimension, said: str) -> None:
    """From the first index to the last one, each within the axis."""
    sparsity = Sparsity((0, 1), (), (Dimension(2), level))
    if said:
        with pytest.raises(CompileError, match=said):
            dense(np.array([5, 6, 7]), (2, 3), sparsity, "w")
    else:
        assert dense(np.array([5, 6, 7]), (2, 3), sparsity, "w").tolist() == [[0, 0, 5], [6, 7, 0]]


@pytest.mark.parametrize(("blocks", "order", "levels"), [((0, 0), (0, 1, 2, 3), 4), ((2,), (0, 1, 2), 3),
                                                         ((), (0, 0), 2), ((), (0, 1), 3)])
def test_blocks_cut_each_axis_once(blocks: tuple[int, ...], order: tuple[int, ...], levels: int) -> None:
    with pytest.raises(CompileError, match="sparse constant 'w'"):
        dense(np.zeros(4), (2, 2), Sparsity(order, blocks, (Dimension(2),) * levels), "w")


@pytest.mark.parametrize("code", ["Convolution2DTransposeBias", "SPACE_TO_BATCH_ND", "STRIDED_SLICE"])
@pytest.mark.parametrize("signature", [(1, -1, 3), (1, 4, 3)])
def test_what_reads_the_shape_of_its_result_needs_it(code: str, signature: tuple[int, ...]) -> None:
    """No rule gives it."""
    result = SimpleNamespace(tensor=SimpleNamespace(signature=signature))
    op: Any = SimpleNamespace(operator=SimpleNamespace(code=code), outputs=[result], way_out="",
                              refusal=lambda *words: CompileError(str(words)))
    shapes = OpenShapes(SimpleNamespace(inputs=[]))  # type: ignore[arg-type]
    if -1 in signature:
        with pytest.raises(CompileError, match="fixed sizes"):
            shapes.before(op)
    else:
        shapes.before(op)
