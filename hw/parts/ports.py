# SPDX-License-Identifier: Apache-2.0
"""Layouts of vectors, and the signatures of memory ports as the client sees them.

A request is a stream: it is taken in the cycle in which valid and ready are high. Memories answer reads in order, a
fixed number of cycles after the request was taken (``timing.py``), on a stream that the client must always accept.
While it is not valid its payload is zero from local memory, anything from the accumulators. A write, once taken, is
seen by every read taken in a later cycle."""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.parts.operations import register_fields, shift_width


def vector_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of a row of local memory: array_size scalars."""
    return data.ArrayLayout(signed(arch.number.width), arch.array_size)


def activation_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of a row as the array multiplies it: scalars, on INT8 machines minus their zero point."""
    return data.ArrayLayout(signed(arch.scheme.activation_width), arch.array_size)


def accumulator_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of a row of the accumulators: array_size scalars of accumulator_width bits."""
    return data.ArrayLayout(signed(arch.accumulator_bits), arch.array_size)


def partial_sum_width(arch: Arch) -> int:
    """Return the bits of a sum that leaves a column of the array."""
    return arch.scheme.partial_sum_width(arch.array_size)


def sum_layout(arch: Arch) -> data.ArrayLayout:
    """Return the layout of a row of sums that leaves the array."""
    return data.ArrayLayout(signed(partial_sum_width(arch)), arch.array_size)


class ReadPort(wiring.Signature):
    """A client's reads: ``request`` is an address; ``response`` is the row, a fixed latency later."""

    def __init__(self, address_width: int, row: data.ArrayLayout) -> None:
        super().__init__({
            "request": Out(stream.Signature(unsigned(address_width))),
            "response": In(stream.Signature(row, always_ready=True)),
        })


class WritePort(wiring.Signature):
    """A client's writes: ``request`` is an address and a row."""

    def __init__(self, address_width: int, row: data.ArrayLayout) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({"address": address_width, "data": row}))),
        })


class AccumulatePort(wiring.Signature):
    """A client's writes to the accumulators.

    ``request``: an address, and whether to add to the row there (saturating) instead of replacing it. ``data``: the
    row, ACCUMULATE_DATA_LATENCY cycles after the request was taken."""

    def __init__(self, address_width: int, row: data.ArrayLayout) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({"address": address_width, "accumulate": 1}))),
            "data": Out(row),
        })


class RequantizerPort(wiring.Signature):
    """A unit's reads of the accumulators as scalars.

    ``request``: address, output shift, and ``relu``: negative scalars become zero. ``response``: the row of scalars,
    ROUNDED_READ_LATENCY cycles later, anything while it is not valid."""

    def __init__(self, arch: Arch) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout(
                {"address": arch.accumulator_address_width, "output_shift": shift_width(arch), "relu": 1}))),
            "response": In(stream.Signature(vector_layout(arch), always_ready=True)),
        })


def requantizer_port(arch: Arch, unit: str) -> RequantizerPort | ReadPort:
    """Return the port by which a unit reads the accumulators.

    A move_out unit that requantizes itself takes rows as they are."""
    return accumulator_read_port(arch) if arch.scheme.per_lane and unit == "move_out" else RequantizerPort(arch)


class InputRescalerPort(wiring.Signature):
    """A unit's writes of scalars to the accumulators.

    ``request``: address, scalars, how they are rescaled, whether to ``accumulate``, and ``last``, the unit's own
    mark. Later, in order, ``written`` pulses when the accumulators took a request, with its mark ``written_last``."""

    def __init__(self, arch: Arch) -> None:
        super().__init__({
            "request": Out(stream.Signature(data.StructLayout({
                "address": arch.accumulator_address_width, "accumulate": 1, "last": 1,
                "input_shift": shift_width(arch), **register_fields(arch, "move_in"),
                "data": vector_layout(arch)}))),
            "written": In(1), "written_last": In(1),
        })


def local_read_port(arch: Arch) -> ReadPort:
    """Return the signature of a read port of local memory."""
    return ReadPort(arch.local_address_width, vector_layout(arch))


def local_write_port(arch: Arch) -> WritePort:
    """Return the signature of a write port of local memory."""
    return WritePort(arch.local_address_width, vector_layout(arch))


def accumulator_read_port(arch: Arch) -> ReadPort:
    """Return the signature of a read port of the accumulators."""
    return ReadPort(arch.accumulator_address_width, accumulator_layout(arch))


def accumulator_write_port(arch: Arch) -> AccumulatePort:
    """Return the signature of a write port of the accumulators."""
    return AccumulatePort(arch.accumulator_address_width, accumulator_layout(arch))
