# SPDX-License-Identifier: Apache-2.0
"""The matrix unit: the systolic array with the two units that load its weights and feed it."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from weft.hw.array.load_two_rows_unit import LoadTwoRowsUnit
from weft.hw.array.load_weight_unit import LoadingPort, LoadWeightUnit
from weft.hw.array.mat_mul_unit import MatMulUnit, MultiplyingPort
from weft.hw.array.systolic_array import SystolicArray
from weft.hw.contract.arch import Arch


class MatrixUnit(wiring.Component):
    """The way through the array: it multiplies vectors of local memory by weights that it loads from there.

    ``load_weight``: operations that shift weights into the array's shadow column. ``mat_mul``: operations whose vectors
    go through the array, the first of which swaps that column in. Each is a stream of operations with a pulse ``done``
    for each, in order, and the ports of the unit that carries them out. The two units keep their turns among
    themselves. Weights are not shifted over those that an earlier MatMul has not swapped in, and a MatMul waits for the
    loads of the weights that it swaps in. Throughput: a row of weights (two with ``weight_load_rows`` 2) and a vector a
    cycle. Latency: :class:`LoadWeightUnit`'s, :class:`MatMulUnit`'s."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({"load_weight": Out(LoadingPort(arch)), "mat_mul": Out(MultiplyingPort(arch))})

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: both units, the array, and what joins them."""
        m, arch = Module(), self._arch
        m.submodules.load_weight = load_weight = (
            LoadTwoRowsUnit if arch.weight_load_rows == 2 else LoadWeightUnit)(arch)
        m.submodules.mat_mul = mat_mul = MatMulUnit(arch)
        m.submodules.array = array = SystolicArray(arch)
        _offer(m, load_weight, self.load_weight)
        _offer(m, mat_mul, self.mat_mul)
        m.d.comb += [
            array.shift.eq(load_weight.shift), array.weight.eq(load_weight.weight),
            array.activation.eq(mat_mul.activation), array.activation_valid.eq(mat_mul.activation_valid),
            array.swap.eq(mat_mul.swap), array.rescale_bias.eq(mat_mul.rescale_bias),
            array.input_shift.eq(mat_mul.input_shift),
            mat_mul.result.eq(array.result), mat_mul.result_coming.eq(array.result_coming),
            mat_mul.loaded.eq(load_weight.done), load_weight.swapped.eq(mat_mul.swapped),
        ]
        if arch.depthwise_taps:
            m.d.comb += [array.depthwise.eq(mat_mul.depthwise), array.taps.eq(mat_mul.taps)]
        for row in range(1, arch.kernel_rows):
            m.d.comb += getattr(array, f"activation_{row}").eq(getattr(mat_mul, f"activation_{row}"))
        if arch.weight_load_rows == 2:
            m.d.comb += [array.through.eq(load_weight.through), array.lower_weight.eq(load_weight.lower_weight)]
        return m


def _offer(m: Module, unit: wiring.Component, port: wiring.PureInterface) -> None:
    """Join each member of ``port`` to the unit's member of that name."""
    for name, member in port.signature.members.items():
        inner, outer = getattr(unit, name), getattr(port, name)
        if member.is_signature:
            connect(m, inner, flipped(outer))
        else:
            m.d.comb += outer.eq(inner) if member.flow == Out else inner.eq(outer)
