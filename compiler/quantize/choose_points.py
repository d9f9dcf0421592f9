# SPDX-License-Identifier: Apache-2.0
"""Choose binary points: as large as ranges allow, lowered where a layer's accumulators have no room for them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from weft.compiler.errors import END, refuse
from weft.compiler.frontend.graph import NO_COPIES, Copied
from weft.compiler.layers.hir import Layer
from weft.compiler.layers.stages import Convolution, Gate, LeakyRelu, Load, Product, Slopes
from weft.compiler.layers.var import Var
from weft.compiler.passes.propagate_quantizers import copies_inputs
from weft.compiler.quantize.alike import agreed, in_common, with_same_weights
from weft.compiler.quantize.points import FixedPointParams, LayerFixedPointParams, output_functions
from weft.compiler.quantize.ranges import HEADROOM, Calibration, sum_key
from weft.compiler.quantize.slopes import largest_factor
from weft.compiler.quantize.tables import encode_table, make_pieces, needed_magnitude
from weft.compiler.quantize.weight_sizes import WeightSizes
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import largest_point

SUM_HEADROOM = 1.25
"""The ratio of the magnitude that accumulators get room for to the largest partial sum seen."""


def choose_points(layers: Sequence[Layer], constants: Mapping[str, np.ndarray], calibration: Calibration, arch: Arch,
                  plain: bool, opset: int, outputs: frozenset[str] = frozenset(),
                  whole: Mapping[str, int] | None = None, copies: Mapping[str, Copied] = NO_COPIES) -> FixedPointParams:
    """Return the binary points of all tensors and layers.

    With ``plain``, or if the data type has a point of its own, that point is used everywhere. ``outputs``: names of the
    tensors that the user reads. ``whole``: inputs whose samples are whole numbers of the data type at a point.
    ``copies``: tensors of copies."""
    names = dict.fromkeys(var.root for layer in layers for var in (*layer.inputs, *layer.outputs))
    fixed = plain or not arch.scheme.chooses_points
    calibration = in_common(layers, calibration)
    points = _plain(layers, names, arch) if fixed else _Chooser(
        layers, constants, calibration, arch, opset, outputs, whole or {}, copies).run(names)
    tables, errors = {}, {}
    for layer in layers:
        if layer.lookup is not None:
            source, target = points.vars[layer.core.input.root], points.vars[layer.outputs[0].root]
            pieces = make_pieces(layer.name, layer.lookup, calibration.ranges[layer.lookup.source], source, arch,
                                 opset)
            tables[layer.output.name] = encode_table(pieces, source, target, arch)
            errors[layer.output.name] = pieces.error
    return replace(points, tables=tables, table_errors=errors, means={} if fixed else calibration.means, copies=copies)


def _plain(layers: Sequence[Layer], names: Mapping[str, None], arch: Arch) -> FixedPointParams:
    """Return the data type's own binary point for all tensors and layers."""
    point = arch.number.point
    points = dict.fromkeys(names, point)
    numbers = [LayerFixedPointParams(
        point, point, 2 * point, point, (point,) * len(layer.adds), (point,) * len(layer.outputs),
        functions=output_functions(layer, points, arch)) for layer in layers]
    return FixedPointParams(points, tuple(numbers), measured="")


def copied(var: Var, makers: Mapping[str, Layer], constants: Mapping[str, np.ndarray]) -> list[str]:
    """Return the root of a Var, of the Var that it is a copy of, and so on.

    ``makers``: Var name -> the layer that makes it."""
    found = [var.root]
    source = _copy_of(makers.get(var.name), constants)
    while source is not None:
        found.append(source.root)
        source = _copy_of(makers.get(source.name), constants)
    return found


def _copy_of(layer: Layer | None, constants: Mapping[str, np.ndarray]) -> Var | None:
    """Return the Var that a layer copies to its output and does nothing else, or None."""
    core = layer.core if layer is not None and layer.is_bare and not layer.first_relu else None
    if isinstance(core, Convolution) and copies_inputs(constants[core.weights], constants[core.bias]):
        return core.input
    return None


FEW = 64
"""The number of weights that are tested before all of them."""


def _is_whole(values: np.ndarray) -> bool:
    """Tell whether all values are whole numbers."""
    return bool((values == np.rint(values)).all())


def _squared_error(point: int, size: float) -> float:
    """Return the square of a rounding step at a binary point, relative to the root mean square ``size``."""
    return float((2.0 ** -point / size) ** 2)


def _bits_of_the_first(excess: int, first: int, second: int, sizes: Sequence[float]) -> int:
    """Return how many of ``excess`` bits the first of two factors loses if the second loses the others.

    The choice makes both rounding errors together least. ``first``, ``second``: binary points; ``sizes``: root mean
    squares."""
    return min(range(excess + 1), key=lambda bits: _squared_error(first - bits, sizes[0])
               + _squared_error(second - (excess - bits), sizes[1]))


class _Chooser:
    """The search for binary points: each Var's range gives the first, which layers' accumulators may lower."""

    def __init__(self, layers: Sequence[Layer], constants: Mapping[str, np.ndarray], calibration: Calibration,
                 arch: Arch, opset: int, outputs: frozenset[str], whole: Mapping[str, int],
                 copies: Mapping[str, Copied]) -> None:
        self.copies = copies
        self.arch, self.opset, self.outputs, self.whole = arch, opset, outputs, whole
        self.layers, self.constants, self.calibration = layers, constants, calibration
        self.width, self.accumulator_width = arch.number.width, arch.accumulator_bits
        self.points: dict[str, int] = {}
        self.exact: dict[str, float] = {}
        self.sizes: dict[str, WeightSizes] = {}
        self.sharing = with_same_weights(layers)
        self.most: dict[str, int] = {}  # the largest point of weights that several layers read

    def _needed(self) -> dict[str, float]:
        """Return, for computed tensors that only functions read, the largest magnitude that these tell apart.

        Copies of a tensor count as the tensor itself. Beyond the magnitude the functions are constant, so it may
        saturate."""
        readers: dict[str, list[Layer]] = {}
        for layer in self.layers:
            for var in layer.inputs:
                readers.setdefault(var.root, []).append(layer)
        needed: dict[str, float] = {}
        for layer in reversed(self.layers):
            for root in {var.root for var in layer.outputs} - self.outputs:
                told = [self._told_apart(reader, needed) for reader in readers.get(root, [])]
                if told and max(told) < math.inf:
                    needed[root] = max(told)
        return needed

    def _told_apart(self, layer: Layer, needed: Mapping[str, float]) -> float:
        """Return the largest magnitude in its input that a layer tells apart; infinite if all matter."""
        if layer.lookup is not None:
            return needed_magnitude(layer.name, layer.lookup, self.calibration.ranges[layer.lookup.source], self.opset)
        if _copy_of(layer, self.constants) is not None:
            return needed.get(layer.output.root, math.inf)
        return math.inf

    def run(self, names: Mapping[str, None]) -> FixedPointParams:
        """Return the binary points of the Vars ``names`` and of all layers. Raise CompileError if none fit."""
        needed = self._needed()
        computed = {var.root for layer in self.layers for var in layer.outputs}
        before_slope: dict[str, float] = {}
        for layer in self.layers:
            # The SIMD unit sees negative values before they shrink, at the output's point.
            match layer.elementwise:
                case LeakyRelu(slope):
                    unshrunk = -self.calibration.ranges[layer.outputs[0].name].low / slope
                case Slopes(source):
                    unshrunk = -self.calibration.ranges[source].low
                case _:
                    continue
            root = layer.outputs[0].root
            before_slope[root] = max(before_slope.get(root, 0.0), unshrunk)
        for name in names:
            least = HEADROOM if name in computed else 1.0
            magnitude = self.calibration.ranges[name].expected(least)
            # A function that reads it tells no more apart, but the slope comes before the function.
            magnitude = max(min(magnitude, needed.get(name, magnitude)), before_slope.get(name, 0.0) * least)
            self.points[name] = largest_point(magnitude, self.width)
            self.points[name] = max(self.points[name], self.whole.get(name, self.points[name]))
        first = self._made()
        while True:
            before = dict(self.points), dict(self.most)
            numbers = tuple(self._layer(layer) for layer in self.layers)
            self._agree(numbers)
            self._insist_on_bits(first)
            if (self.points, self.most) == before:
                ranges = self.calibration.ranges
                limited = {name for name in names if ranges[name].bounded
                           or needed.get(name, math.inf) < ranges[name].magnitude * HEADROOM}
                return FixedPointParams(self.points, numbers, limited=frozenset(limited))

    def _agree(self, numbers: Sequence[LayerFixedPointParams]) -> None:
        """Let layers that read the same weights have one point for these, and one for what else they read."""
        for name, readers in self.sharing.items():
            self.points |= agreed(self.points, [self.layers[number].core.input.root for number in readers])
            self.most[name] = min(numbers[number].weights for number in readers)

    def _made(self) -> dict[str, int]:
        """Return the binary points at which layers can make tensors, at most those that their ranges ask for.

        A sum is no finer than its terms, even where they cancel and leave little, and a product no finer than both
        factors together."""
        found = dict(self.points)
        for layer in self.layers:
            terms = [found[add.input.root] for add in layer.adds]
            if isinstance(layer.core, Load):
                terms.append(found[layer.core.input.root])
            if layer.multiplies:
                limit = sum(terms) - self.arch.number.point
            elif layer.adds:
                limit = max(terms)
            else:
                continue
            found |= {var.root: min(found[var.root], limit) for var in layer.outputs}
        return found

    def _insist_on_bits(self, first: Mapping[str, int]) -> None:
        """Raise CompileError if a tensor's binary point is by more bits below its first one than a scalar has.

        Then a layer has constants so large that the tensor keeps no bit beside them, and the search would lower the
        point for ever. ``first`` has the points with which the search began, by tensor."""
        for name, point in self.points.items():
            if point < first.get(name, point) - self.width:
                raise refuse(f"binary point of tensor {name!r}", "no bit left beside the constants of its layers",
                             f"constants that a sum of {self.accumulator_width} bits has room for beside it",
                             f"look for a constant that is too large, or {END}")

    def _layer(self, layer: Layer) -> LayerFixedPointParams:
        """Return a layer's binary points and shifts; lower the points of its Vars where they do not fit."""
        if layer.multiplies:
            return self._multiply(layer)
        if layer.lookup is not None:
            return self._lookup(layer)
        choose = {Convolution: self._mat_mul, Product: self._product, Load: self._load}[type(layer.core)]
        weights, accumulators = choose(layer)
        bias = accumulators
        if isinstance(layer.core, Convolution):
            magnitude = float(np.abs(self.constants[layer.core.bias]).max())
            bias = self._within(largest_point(magnitude, self.width), accumulators)
        for var in (*(add.input for add in layer.adds), *layer.outputs):
            self.points[var.root] = self._within(self.points[var.root], accumulators)
        gate_shift, made = None, accumulators
        if isinstance(layer.elementwise, Gate):
            gate_shift, made = self._gate(layer, layer.elementwise, accumulators)
        entering = self.points[layer.core.input.root] if isinstance(layer.core, Load) else bias
        return LayerFixedPointParams(weights, bias, accumulators, accumulators - entering,
                           tuple(accumulators - self.points[add.input.root] for add in layer.adds),
                           tuple(made - self.points[var.root] for var in layer.outputs), gate_shift,
                           output_functions(layer, self.points, self.arch))

    def _gate(self, layer: Layer, gate: Gate, accumulators: int) -> tuple[int, int]:
        """Return the output shift of a gate's two factors, and the point of their product.

        The product is loaded without a shift. The factors' point is the largest at which they and the product fit."""
        type_point, output = self.arch.number.point, layer.output
        read, made = (self.calibration.ranges[name].expected(HEADROOM) for name in (gate.source, output.name))
        point = min((largest_point(made, self.width) + type_point) // 2,
                    largest_point(max(read, abs(gate.offset), gate.limit), self.width))
        point = self._within(point, accumulators)
        self.points[output.root] = min(self.points[output.root], 2 * point - type_point)
        return accumulators - point, 2 * point - type_point

    def _multiply(self, layer: Layer) -> LayerFixedPointParams:
        """Return the parameters of a layer that multiplies two tensors.

        The instruction Multiply shifts by the type's own point, so both factors lose bits on loading until the product
        fits."""
        left, right = (self.points[var.root] for var in layer.inputs)
        output, point = layer.outputs[0].root, self.arch.number.point
        self.points[output] = min(*(self.points[var.root] for var in layer.outputs), left + right - point)
        loss = self._losses(layer, left, right, left + right - point - self.points[output])
        leave = max(loss)
        return LayerFixedPointParams(0, 0, left - loss[0] + leave, leave - loss[0], (leave - loss[1],),
                                     self._of_simd(layer, leave))

    def _losses(self, layer: Layer, left: int, right: int, excess: int) -> tuple[int, int]:
        """Return how many bits of ``excess`` each factor of a product loses, so that rounding errors are least.

        Errors count relative to the factors' sizes."""
        sizes = [self.calibration.ranges[var.name].root_mean_square or 1.0 for var in layer.inputs]
        bits = _bits_of_the_first(excess, left, right, sizes)
        return bits, excess - bits

    def _lookup(self, layer: Layer) -> LayerFixedPointParams:
        """Return the parameters of a layer with a lookup table; lower the output's point until slopes fit.

        The table's slopes lie at the point that takes the input's to the output's."""
        assert layer.lookup is not None
        source, output = self.points[layer.core.input.root], layer.outputs[0].root
        pieces = make_pieces(layer.name, layer.lookup, self.calibration.ranges[layer.lookup.source], source, self.arch,
                             self.opset)
        steepest = largest_point(float(np.abs(pieces.slopes).max()), self.width)
        self.points[output] = min(self.points[output], source - self.arch.number.point + steepest)
        return LayerFixedPointParams(0, 0, source, 0, (), self._of_simd(layer, 0))

    def _of_simd(self, layer: Layer, shift: int) -> tuple[int, ...]:
        """Return the output shifts of a layer whose result the SIMD unit makes at its outputs' only point."""
        least = min(self.points[var.root] for var in layer.outputs)
        self.points |= {var.root: least for var in layer.outputs}
        return (shift,) * len(layer.outputs)

    def _within(self, point: int, accumulators: int) -> int:
        """Return the binary point nearest to ``point`` from which a shift left reaches the point ``accumulators``.

        The shift is at least 0, and less than the accumulators' width."""
        return max(min(point, accumulators), accumulators - (self.accumulator_width - 1))

    def _added(self, layer: Layer) -> float:
        """Return the sum of the magnitudes of all tensors that a layer adds."""
        return sum(self.calibration.ranges[add.input.name].magnitude for add in layer.adds)

    def _mat_mul(self, layer: Layer) -> tuple[int, int]:
        """Return the points of a convolution's weights and accumulators; lower its input's if need be."""
        core = layer.core
        assert isinstance(core, Convolution)
        sizes = self._sizes(core.weights)
        activations = self.points[core.input.root]
        seen = (self.calibration.sums[sum_key(core.input.name, core.weights)] + self._added(layer)) * SUM_HEADROOM
        worst = (sizes.sums * 2.0 ** (self.width - 1 - activations)
                 + np.abs(self.constants[core.bias])).max() + self._added(layer) * SUM_HEADROOM
        limit = largest_point(max(min(seen, float(worst)), self._beside(layer)), self.accumulator_width)
        most = self.most.get(core.weights, largest_point(sizes.largest, self.width))
        activations -= self._concession(core, sizes, activations, most, limit)
        self.points[core.input.root] = activations
        point = min(most, limit - activations)
        return point, activations + point

    def _beside(self, layer: Layer) -> float:
        """Return the largest number that the SIMD unit needs room for in the accumulators, besides sums.

        It is a constant, or what slopes below -1 make of a sum."""
        match layer.elementwise:
            case Gate(_, offset, limit):
                return max(abs(offset), limit)
            case Slopes():
                made, number = layer.outputs[0], self.arch.number
                factor = largest_factor(layer.elementwise, self.constants, number) * 2.0 ** -self.points[made.root]
                return max(factor, self.calibration.ranges[made.name].magnitude * SUM_HEADROOM)
        return 0.0

    def _sizes(self, name: str) -> WeightSizes:
        """Return the sizes of the weights ``name``, which every turn of the search asks for."""
        if name not in self.sizes:
            self.sizes[name] = WeightSizes(self.constants[name])
        return self.sizes[name]

    def _concession(self, core: Convolution, weights: WeightSizes, activations: int, most: int, limit: int) -> int:
        """Return the bits that the activations give up for the weights, if accumulators have no room for both.

        Rounding errors of either, relative to its size, shall be least together. Weights that are whole numbers at
        their point, such as those of a sum or of a mean of 32, have no error."""
        if most + activations <= limit:
            return 0
        exact = self._exact_point(core.weights)
        drawn = weights.of_others if core.input.name in self.copies else weights.root_mean_square
        sizes = (self.calibration.ranges[core.input.name].root_mean_square, drawn)
        if not all(sizes):
            return 0
        whole = self.whole.get(core.input.root, math.inf)

        def error(bits: int) -> float:
            weights_point = min(most, limit - activations + bits)
            return ((_squared_error(activations - bits, sizes[0]) if activations - bits < whole else 0.0)
                    + (_squared_error(weights_point, sizes[1]) if weights_point < exact else 0.0))

        return min(range(self.width // 2), key=error)

    def _exact_point(self, name: str) -> float:
        """Return the smallest point at which all weights ``name`` are whole numbers, or infinity."""
        if name not in self.exact:
            weights = self.constants[name].astype(np.float64).ravel()
            points = (point for point in range(2 * self.width)
                      if _is_whole(weights[:FEW] * 2.0 ** point) and _is_whole(weights * 2.0 ** point))
            self.exact[name] = next(points, math.inf)
        return self.exact[name]

    def _product(self, layer: Layer) -> tuple[int, int]:
        """Return the points of a matrix product's second factor and accumulators.

        If accumulators have no room for both factors in full, these lose bits, so that their relative rounding errors
        are least together."""
        core = layer.core
        assert isinstance(core, Product)
        roots = core.input.root, core.weights.root
        points = [self.points[root] for root in roots]
        seen = (self.calibration.sums[core.name] + self._added(layer)) * SUM_HEADROOM
        excess = max(sum(points) - largest_point(max(seen, self._beside(layer)), self.accumulator_width), 0)
        sizes = [self.calibration.ranges[var.name].root_mean_square or 1.0 for var in (core.input, core.weights)]
        bits = -(-excess // 2) if roots[0] == roots[1] else _bits_of_the_first(excess, points[0], points[1], sizes)
        self.points[roots[0]] -= bits
        if roots[0] != roots[1]:
            self.points[roots[1]] -= excess - bits
        return self.points[roots[1]], sum(self.points[root] for root in roots)

    def _load(self, layer: Layer) -> tuple[int, int]:
        """Return (point, point): the accumulators' binary point in a layer that loads and adds tensors.

        It stands for the weights too, which such a layer does not have. Points of the tensors are moved to where a load
        can shift them from."""
        names = [var.root for var in layer.inputs]
        total = sum(self.calibration.ranges[var.name].magnitude for var in layer.inputs) * HEADROOM
        limit = largest_point(max(total, self._beside(layer)), self.accumulator_width)
        accumulators = min(max(self.points[name] for name in names), limit)
        for name in names:
            self.points[name] = self._within(self.points[name], accumulators)
        return accumulators, accumulators
