# SPDX-License-Identifier: Apache-2.0
"""Fixed-point parameters: a binary point for every Var, for weights and accumulators of every layer, and shifts.

A scalar v at point p is the integer v * 2**p. Activations at px and weights at pw meet in the accumulators at pa = px +
pw. A bias or a residual at point q is loaded with shift pa - q, and results are requantized with shift pa - py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from weft.compiler.frontend.graph import Copied
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Abs, Convolution, Gate, LeakyRelu, Load, Minimum, Slopes
from weft.compiler.lir import NO_SETTINGS, Settings
from weft.compiler.quantize.numbers import LayerIntegers, LayerQuantization, Numbers
from weft.compiler.quantize.slopes import slope_factors
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import DataType
from weft.hw.contract.register_table import output_registers
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes.fixed_point import SLOPE_POINT
from weft.tmodel.scales import TensorPoint


def rounded_together(steps: np.ndarray) -> np.ndarray:
    """Return ``steps`` as whole numbers whose rounding errors along the last axis add up to almost nothing.

    For that, values nearest to half a step are rounded to the other side."""
    whole = np.rint(steps)
    if steps.shape[-1] == 1:  # no error of one number is more than half a step
        return np.asarray(whole)
    errors = whole - steps
    excess = np.rint(errors.sum(-1, keepdims=True))
    order = (-np.sign(excess) * errors).argsort(-1)
    moved = np.zeros(whole.shape)
    np.put_along_axis(moved, order, np.where(np.arange(whole.shape[-1]) < np.abs(excess), np.sign(excess), 0), -1)
    return np.asarray(whole - moved)


def rounded_weights(steps: np.ndarray, number: DataType, sources: Sequence[int] = ()) -> np.ndarray:
    """Return weights [out, in, height, width], given in steps, as whole numbers of the data type.

    The errors of a kernel add up to almost nothing, because neighbouring pixels are alike. ``sources``: for each input
    channel the channel that it is a copy of; the taps of its copies are one kernel."""
    if steps.shape[2:] == (1, 1) and not sources:
        whole = np.rint(steps)
        return np.asarray(np.clip(whole, number.minimum, number.maximum, out=whole).astype(np.int64))
    whole = np.zeros(steps.shape)
    for channels in _kernels(sources) if sources else [slice(None)]:
        kernels = steps[:, channels]  # [out, kernels, copies, height, width], without copies [out, in, height, width]
        whole[:, channels] = rounded_together(kernels.reshape(*kernels.shape[:2], -1)).reshape(kernels.shape)
    return np.asarray(number.saturate(whole.astype(np.int64)))


def _kernels(sources: Sequence[int]) -> list[np.ndarray]:
    """Return the input channels of kernels as arrays [kernels, copies], one for each number of copies."""
    copies: dict[int, list[int]] = {}
    for channel, source in enumerate(sources):
        copies.setdefault(source, []).append(channel)
    alike: dict[int, list[list[int]]] = {}
    for channels in copies.values():
        alike.setdefault(len(channels), []).append(channels)
    return [np.array(kernels) for kernels in alike.values()]


def added_on_average(errors: np.ndarray, group: int, means: np.ndarray | float) -> np.ndarray:
    """Return the average error of each output channel from ``errors`` of weights [out, in / group, height, width].

    ``errors`` of taps that read padding at some pixels are to be multiplied by ``taps_seen``. ``means`` are those of
    the input channels."""
    one_tap = errors.shape[2:] == (1, 1)
    per_group = (errors if one_tap else errors.sum((2, 3))).reshape(group, -1, errors.shape[1])
    each = np.broadcast_to(means, group * errors.shape[1]).reshape(group, -1)
    return np.asarray(np.einsum("goi,gi->go", per_group, each).reshape(-1))


def taps_seen(core: Convolution) -> np.ndarray:
    """Return for each tap of a kernel, [height, width], at which share of the pixels it reads the image, not padding.

    The pixels are those of the output at which the fewest taps read padding. So the shares are 1 wherever the kernel
    fits the image; where it never does, as when it makes a constant of one pixel, errors of most taps do not count."""
    window = core.window
    rows, columns = (_seen_along(*sizes) for sizes in zip(
        (core.input.height, core.input.width), core.size, window.kernel, window.strides, window.pads, window.dilations,
        strict=True))
    return np.outer(rows, columns)


def _seen_along(size: int, pixels: int, taps: int, stride: int, pad: int, dilation: int) -> np.ndarray:
    """Return the shares of ``taps_seen`` along one axis, of an image of ``size`` and so many output ``pixels``."""
    places = np.arange(pixels)[:, None] * stride - pad + np.arange(taps) * dilation
    inside = (places >= 0) & (places < size)
    counts = inside.sum(1)
    return np.asarray(inside[counts == counts.max()].mean(0))


def on_output(layer: Layer, arch: Arch) -> bool:
    """Return whether a layer's elementwise operation is done where its result leaves the accumulators.

    Otherwise the SIMD unit does it."""
    match layer.elementwise:
        case Minimum():
            return bool(arch.output_maximum)
        case LeakyRelu():
            return bool(arch.output_slope)
    return False


def output_functions(layer: Layer, points: Mapping[str, int], arch: Arch) -> tuple[Settings, ...]:
    """Return, for each output, the values of the registers that say what its ReLU does; none without a ReLU.

    ``points``: binary point by Var name."""
    operation = layer.elementwise if on_output(layer, arch) else None
    slope = operation.slope if isinstance(operation, LeakyRelu) else 0.0
    found = []
    for save in layer.saves:
        maximum = operation.value if isinstance(operation, Minimum) else math.inf
        values = {Register.OUTPUT_MAXIMUM: int(arch.number.quantize(np.array(maximum), points[save.var.root])),
                  Register.OUTPUT_SLOPE: round(slope * 2.0 ** SLOPE_POINT)}
        found.append(Settings((register, values[register]) for register in output_registers(arch))
                     if save.relu or slope else NO_SETTINGS)
    return tuple(found)


@dataclass(frozen=True)
class LayerFixedPointParams:
    """The binary points and shifts of one layer.

    ``core_shift`` is the input shift of the bias row, or of a load core; ``output_shifts`` has one for each output;
    ``functions`` the values of :func:`output_functions`; ``gate_shift`` is the output shift of a gate's factors, None
    without a gate."""

    weights: int
    bias: int
    accumulators: int
    core_shift: int
    add_shifts: tuple[int, ...]
    output_shifts: tuple[int, ...]
    gate_shift: int | None = None
    functions: tuple[Settings, ...] = ()

    @property
    def output_shift(self) -> int:
        """The register OUTPUT_SHIFT for what the SIMD unit reads from the accumulators to make the first output."""
        return self.output_shifts[0] if self.gate_shift is None else self.gate_shift

    @property
    def input_shift(self) -> int:
        """The register INPUT_SHIFT for what the SIMD unit writes to the accumulators.

        It restores the accumulators' binary point. For a gate it is 0, as the product might not fit them otherwise."""
        return self.output_shifts[0] if self.gate_shift is None else 0

    @property
    def registers(self) -> LayerQuantization:
        """The register values of the layer's operations."""
        core = Settings.of(input_shift=self.core_shift)
        functions = self.functions or (NO_SETTINGS,) * len(self.output_shifts)
        both = (Settings.of(input_shift=self.input_shift, output_shift=self.output_shift),
                *(Settings.of(input_shift=shift, output_shift=shift) for shift in self.output_shifts[1:]))
        return LayerQuantization(mat_mul=core, core=core, simd=both, operand=Settings.of(input_shift=self.output_shift),
                    adds=tuple(Settings.of(input_shift=shift) for shift in self.add_shifts),
                    requantizations=tuple(Settings((*Settings.of(output_shift=shift), *function)) for shift, function
                                          in zip(self.output_shifts, functions, strict=True)))


@dataclass(frozen=True)
class FixedPointParams(Numbers):
    """The quantization parameters of a network on a machine of fixed point.

    ``vars``: tensor -> point; ``layers``: in order; ``tables``: lookup tables by the tensor they make.
    ``table_errors``: the largest error of a table in the range seen. ``limited``: tensors that saturate on purpose, for
    the functions that read them are constant beyond. ``means`` of tensors that convolutions read, by channel: what
    rounding the weights adds to a channel on average is taken off its bias. ``copies``: tensors of copies."""

    vars: Mapping[str, int]
    layers: tuple[LayerFixedPointParams, ...]
    tables: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    table_errors: Mapping[str, float] = field(default_factory=dict)
    limited: frozenset[str] = frozenset()
    measured: str = "binary points"
    means: Mapping[str, np.ndarray] = field(default_factory=dict)
    copies: Mapping[str, Copied] = field(default_factory=dict)

    def tensor(self, root: str, arch: Arch) -> TensorPoint:
        """Return the binary point of the Var ``root``, with the data type."""
        return TensorPoint(arch.number, self.vars[root])

    def reordered(self, order: Sequence[int], layers: Sequence[Layer], arch: Arch) -> FixedPointParams:
        """Return the same points for the layers at the places ``order``."""
        return replace(self, layers=tuple(self.layers[number] for number in order))

    def registers(self, number: int) -> LayerQuantization:
        """Return the register values of the operations of layer ``number``."""
        return self.layers[number].registers

    def integers(self, number: int, layer: Layer, constants: Mapping[str, np.ndarray], arch: Arch) -> LayerIntegers:
        """Return the integer constants of layer ``number``, which is ``layer``."""
        weights = bias = None
        if isinstance(layer.core, Convolution):
            chosen, exact = self.layers[number], constants[layer.core.weights].astype(np.float64)
            copied = self.copies.get(layer.core.input.name)
            weights = rounded_weights(exact * 2.0 ** chosen.weights, arch.number, copied.channels if copied else ())
            errors = weights * 2.0 ** -chosen.weights
            errors -= exact
            if not ((shares := taps_seen(layer.core)) == 1).all():
                errors *= shares
            added = added_on_average(errors, layer.core.group, self.means.get(layer.core.input.name, 0.0))
            bias = arch.number.quantize(constants[layer.core.bias] - added, chosen.bias)
        tables = self.tables.get(layer.output.name, ()) if layer.lookup is not None else ()
        slopes = (slope_factors(layer.elementwise, constants, arch.number) if isinstance(layer.elementwise, Slopes)
                  else None)
        return LayerIntegers(weights, bias, layer.core.group, self._operands(number, layer, arch), tables,
                             slopes=slopes)

    def _operands(self, number: int, layer: Layer, arch: Arch) -> tuple[int, ...]:
        """Return the constants of a layer's SIMD operation as integers; none if it is done on output.

        An upper limit lies at the first output's point, a gate's numbers at that of its factors. Multiply rounds by the
        type's own point, so a slope is two factors at that point: one between a half and one, and a power of two."""
        operation = layer.elementwise
        if operation is None or isinstance(operation, Abs | Slopes) or on_output(layer, arch):
            return ()
        if isinstance(operation, LeakyRelu):
            fraction, exponent = math.frexp(operation.slope)
            exponent = max(exponent, -arch.number.point)
            fraction = operation.slope / 2.0 ** exponent
            return tuple(int(arch.number.quantize(np.array(value))) for value in (fraction, 2.0 ** exponent))
        if isinstance(operation, Gate):
            chosen, values = self.layers[number], np.array((operation.offset, operation.limit))
            return tuple(map(int, arch.number.quantize(values, chosen.accumulators - chosen.output_shift)))
        return int(arch.number.quantize(np.array(operation.value), self.vars[layer.outputs[0].root])),

    def row(self, number: int, layer: Layer) -> dict[str, Any]:
        """Return the points and shifts of layer ``number`` for the compiler's report."""
        chosen = self.layers[number]
        return {"points": {"input": self.vars[layer.core.input.root],
                           "weights": None if isinstance(layer.core, Load) else chosen.weights,
                           "accumulators": chosen.accumulators, "output": self.vars[layer.output.root]},
                "shifts": {"core": chosen.core_shift, "adds": list(chosen.add_shifts),
                           "leave": list(chosen.output_shifts)}}

    def text(self) -> str:
        """Return all points and shifts as text, a line for each tensor and layer."""
        lines = [f"var {name}: {point}" for name, point in self.vars.items()]
        return "\n".join(lines + [f"layer {number}: {layer}" for number, layer in enumerate(self.layers)]) + "\n"
