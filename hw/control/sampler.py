# SPDX-License-Identifier: Apache-2.0
"""Performance samples (docs/machine/samples.md)."""

from __future__ import annotations

from collections.abc import Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.bus import axi
from weft.hw.contract.arch import Arch
from weft.hw.contract.numerics import bits_to_count
from weft.hw.contract.samples import COUNTER_BITS, FILLER, HANDSHAKES, SAMPLE_BITS

INTERVAL_WIDTH = 16

HANDSHAKE = data.StructLayout({"valid": 1, "ready": 1})
SHOWN = data.StructLayout(dict.fromkeys(HANDSHAKES, HANDSHAKE))


def watch(m: Module, sampler: Sampler, instruction, operations: dict, reads: Iterable, writes: Iterable) -> None:
    """Connect to the sampler the handshakes that a sample shows: who offers an operation or access, and who takes it.

    ``instruction``: the stream into the decoder. ``operations``: unit -> the stream of operations it may start.
    ``reads``, ``writes``: the units' ports of local memory."""
    def any_of(*streams, counts=lambda stream: Const(1, 1)) -> tuple[Value, Value]:
        return (Cat(*(stream.valid & counts(stream) for stream in streams)).any(),
                Cat(*(stream.valid & stream.ready & counts(stream) for stream in streams)).any())

    def window(number: int) -> tuple[Value, Value]:
        if "dram_read" not in operations:
            return any_of(operations[f"dram{number}_read"], operations[f"dram{number}_write"])
        return any_of(operations["dram_read"], operations["dram_write"],
                      counts=lambda stream: stream.payload.dram1 == number)

    pairs = {
        "array": any_of(operations["mat_mul"]), "accumulator": any_of(operations["simd"]),
        "dataflow": any_of(operations["move_in"], operations["move_out"]),
        "dram1": window(1), "dram0": window(0),
        "memory_port_b": any_of(*(port.request for port in writes)),
        "memory_port_a": any_of(*(port.request for port in reads)),
        "instruction": (instruction.valid, instruction.ready),
    }
    for name, (valid, ready) in pairs.items():
        m.d.comb += [sampler.handshakes[name].valid.eq(valid), sampler.handshakes[name].ready.eq(ready)]


class Sampler(wiring.Component):
    """Every ``interval`` cycles, send one word: ``program_counter`` and the ``handshakes`` of that cycle.

    ``samples``: AXI4-Stream of 64-bit words, with ``last`` on every ``sample_block_size``-th. The machine never waits:
    if the word before has not been taken yet, a sample is dropped and does not count in the block.

    ``interval`` 0: no samples. A block that was begun is then filled up with invalid samples, one a cycle as they are
    taken, so that its ``last`` comes. Their program counter is all ones, and their handshakes are zero. After that
    nothing is sent. The first sample comes ``interval`` cycles after the interval was set from 0. Latency: 1 cycle."""

    LATENCY = 1

    def __init__(self, arch: Arch) -> None:
        self._block_size = arch.sample_block_size
        super().__init__({
            "program_counter": In(COUNTER_BITS), "interval": In(INTERVAL_WIDTH), "handshakes": In(SHOWN),
            "samples": Out(axi.axi4_stream(SAMPLE_BITS)),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit: a count of cycles, and the word that is sent."""
        m = Module()
        word, off = self.samples.payload, self.interval == 0
        waited, due, send = Signal(INTERVAL_WIDTH), Signal(), Signal()
        position = Signal(max(bits_to_count(self._block_size), 1))  # words of the block sent before
        m.d.comb += [
            due.eq(~off & (waited >= self.interval - 1)), word.keep.eq(Const(-1, SAMPLE_BITS // 8)),
            send.eq((due | (off & (position != 0))) & (~self.samples.valid | self.samples.ready)),
        ]
        m.d.sync += waited.eq(Mux(due | off, 0, waited + 1))
        with m.If(self.samples.ready):
            m.d.sync += self.samples.valid.eq(0)
        with m.If(send):
            last = position == self._block_size - 1
            sample = Cat(self.program_counter, self.handshakes)
            m.d.sync += [
                self.samples.valid.eq(1), word.data.eq(Mux(off, FILLER, sample)), word.last.eq(last),
                position.eq(Mux(last, 0, position + 1)),
            ]
        return m
