# SPDX-License-Identifier: Apache-2.0
"""LoadWeight: vectors of local memory are shifted into the array's shadow weights, last address first."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import LOCAL_READ_LATENCY, weight_latency
from weft.hw.parts.delay import delayed
from weft.hw.parts.operation_table import operation_layout
from weft.hw.parts.ports import local_read_port, vector_layout
from weft.hw.parts.slices import sliced
from weft.hw.parts.walker import Walker


class LoadingPort(wiring.Signature):
    """These members are what the core sees of a load_weight unit: operations, and the reads of local memory.

    ``lower_read``: only of :class:`LoadTwoRowsUnit`. The unit explains the members."""

    def __init__(self, arch: Arch) -> None:
        super().__init__({
            "operation": In(stream.Signature(operation_layout(arch, "load_weight"))), "done": Out(1), "busy": Out(1),
            "local_read": Out(local_read_port(arch)),
            **({"lower_read": Out(local_read_port(arch))} if arch.weight_load_rows == 2 else {}),
        })


class LoadWeightUnit(wiring.Component):
    """The load_weight unit: it reads vectors of local memory and shifts them into the array's shadow weights.

    ``operation``: a stream; its base is the last address. ``shift`` and ``weight`` go to the array LOCAL_READ_LATENCY
    cycles after each vector's request. ``done`` pulses with the last request of an operation. ``busy``: something that
    was requested has not reached the array's last place yet, so that a reset would cut its wave.

    If the first vector of a MatMul is requested in a later cycle than ``done``, it can swap these weights in: both
    paths take equally long. ``swapped``: a MatMul did so; rows of the operations behind it may be requested from the
    next cycle on."""

    def __init__(self, arch: Arch) -> None:
        self._arch = arch
        super().__init__({
            **LoadingPort(arch).members, "swapped": In(1), "shift": Out(1), "weight": Out(vector_layout(arch)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: operation -> walker, last address first -> local memory -> shift and weight to the array."""
        m = Module()
        arch = self._arch
        m.submodules.walker = walker = Walker(operation_layout(arch, "load_weight"), ("local",), descending=True)
        connect(m, wiring.flipped(self.operation), walker.i)
        addresses = sliced(m, arch, "addresses", walker.o)
        at, request = addresses.payload, self.local_read.request
        swaps = Signal()  # so far, modulo 2
        m.d.sync += swaps.eq(swaps ^ self.swapped)
        may_shift = addresses.valid & (at.operation.swaps == swaps)
        bias_row = Signal()  # the extra row of zeros is due: the operation's last address has been requested
        zeroes, taken = Signal(), Signal()
        m.d.comb += [
            zeroes.eq(at.operation.zeroes | bias_row),
            request.valid.eq(may_shift & ~zeroes),
            request.payload.eq(at.local),
            taken.eq(may_shift & (zeroes | request.ready)),
            addresses.ready.eq(taken & ~(at.last & at.operation.zero_bias & ~bias_row)),
            self.done.eq(addresses.valid & addresses.ready & at.last),
        ]
        under_way = Signal(range(weight_latency(arch) + 1))  # cycles until the last wave is through
        m.d.sync += under_way.eq(Mux(taken, weight_latency(arch), Mux(self.busy, under_way - 1, 0)))
        m.d.comb += self.busy.eq(under_way != 0)
        with m.If(taken):
            m.d.sync += bias_row.eq(at.last & at.operation.zero_bias & ~bias_row)
        m.d.comb += [
            self.shift.eq(delayed(m, taken, LOCAL_READ_LATENCY, name="taken", reset=True)),
            self.weight.eq(self.local_read.response.payload),  # zeros when nothing was requested
        ]
        return m
