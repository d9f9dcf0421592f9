# SPDX-License-Identifier: Apache-2.0
"""Quantised twins of float networks, as onnxruntime's static quantiser makes them, and the small networks of the tests.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from weft.tb.compile.run_model import ModelMaker

SHAPE = (1, 6, 8, 8)
PER_CHANNEL = 13
"""The first opset with scales per channel."""

KINDS: dict[str, dict[str, Any]] = {
    "qdq": {"quant_format": QuantFormat.QDQ, "per_channel": True},
    "qdq per tensor": {"quant_format": QuantFormat.QDQ, "per_channel": False},
    "qdq of unsigned bytes": {"quant_format": QuantFormat.QDQ, "per_channel": True,
                              "activation_type": QuantType.QUInt8},
    "operators": {"quant_format": QuantFormat.QOperator, "per_channel": True},
    "operators of unsigned bytes": {"quant_format": QuantFormat.QOperator, "per_channel": True,
                                    "activation_type": QuantType.QUInt8, "reduce_range": True},
}
"""What the quantiser is asked for. onnxruntime's products of unsigned with signed bytes saturate on processors without
VNNI, so that there weights have seven bits."""


class _Reader(CalibrationDataReader):
    """One sample after another."""

    def __init__(self, samples: Mapping[str, np.ndarray]) -> None:
        count = len(next(iter(samples.values())))
        self._left = iter([{name: value[number:number + 1] for name, value in samples.items()}
                           for number in range(count)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._left, None)


def prepared(path: Path, folder: Path) -> Path:
    """The network as onnxruntime prepares it for its quantiser: batch normalisations folded, shapes known; of an opset
    that has scales per channel."""
    source, made, model = folder / "source.onnx", folder / path.name, onnx.load(path)
    if model.opset_import[0].version < PER_CHANNEL:
        model = onnx.version_converter.convert_version(model, PER_CHANNEL)
    onnx.save(model, source)
    quant_pre_process(source, made, skip_symbolic_shape=True)  # which needs sympy, for open shapes
    return made


def quantised_twin(path: Path, samples: Mapping[str, np.ndarray], kind: str = "qdq") -> Path:
    """The network in eight bits, beside its file; ``samples`` [samples, ...] by input give the ranges."""
    made = path.with_name(f"{path.stem}_int8.onnx")
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)  # it advises to prepare the model
    try:
        quantize_static(path, made, _Reader(samples), weight_type=QuantType.QInt8,
                        **{"activation_type": QuantType.QInt8, **KINDS[kind]})
    finally:
        logging.getLogger().setLevel(level)
    return made


def small_network(maker: ModelMaker) -> None:
    """Of everything that quantised networks have: residuals, depthwise, pools, a concatenation, a last matrix."""
    first = maker.node("Relu", maker.conv("x", 6, 12, (3, 3), pads=(1, 1, 1, 1)))
    deep = maker.conv(first, 12, 12, (3, 3), pads=(1, 1, 1, 1), group=12)
    total = maker.node("Relu", maker.node("Add", first, maker.conv(deep, 12, 12, (1, 1))))
    left = maker.node("MaxPool", total, kernel_shape=(3, 3), strides=(1, 1))
    right = maker.node("AveragePool", total, kernel_shape=(3, 3), strides=(1, 1))
    joined = maker.node("Concat", left, right, axis=1)
    mixed = maker.node("Sigmoid", maker.conv(joined, 24, 7, (1, 1)))
    flat = maker.node("Flatten", maker.node("GlobalAveragePool", mixed))
    maker.node("Gemm", flat, maker.normal(7, 5), maker.normal(5))


def small_twin(folder: Path, kind: str = "qdq") -> tuple[Path, np.ndarray]:
    """``small_network`` in eight bits, and samples of its input."""
    maker = ModelMaker(SHAPE)
    small_network(maker)
    samples = np.random.default_rng(1).standard_normal((4, *SHAPE[1:])).astype(np.float32)
    return quantised_twin(maker.save(folder / "small.onnx"), {"x": samples}, kind), samples
