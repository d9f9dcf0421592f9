# SPDX-License-Identifier: Apache-2.0
"""Proofs of arbitration and memories: who is served, and that what was written is what is read."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const, Mux, Signal, Value

from weft.hw.contract.arch import Arch
from weft.hw.contract.timing import ACCUMULATOR_READ_LATENCY, LOCAL_READ_LATENCY
from weft.hw.memory.local import LocalMemory
from weft.hw.parts.arbiter import RoundRobin
from weft.hw.parts.fixed_point import resize, saturate
from weft.tb.bench.on_accumulators import RowsAtOnce
from weft.tb.formal.archs import SMALL
from weft.tb.formal.harness import Broken, Harness, is_zero, ones
from weft.tb.formal.prove import BOUNDED, Proof

CELLS = SMALL.replace(local_depth=4, accumulator_depth=4, local_banks=2, accumulator_banks=2)


def round_robin(broken: Broken | None = None) -> Harness:
    """Prove that a client, any of three, that keeps asking sees at most two grants of others before its own."""
    harness, count = Harness(), 3
    block = RoundRobin(count)
    inside = harness.block(block, broken=broken)
    client = harness.constant(range(count), "client")
    harness.assume(client < count, "client")
    asks, gets = block.requests.bit_select(client, 1), block.grant.bit_select(client, 1)
    harness.always(ones(block.grant) <= 1, "one_at_a_time")
    harness.always((block.grant & ~block.requests) == 0, "only_who_asks")
    harness.always(block.grant.any() == block.requests.any(), "nobody_idle")
    nobody_starves(harness, inside("later"), count, client, asks, gets & block.advance,
                   block.grant.any() & block.advance)
    return harness


def nobody_starves(harness: Harness, later: Value, count: int, client: Value, asks: Value, gets: Value,
                   granted: Value) -> None:
    """Assert that a ``client``, any of ``count``, that asks in every cycle is passed over less than ``count`` times.

    ``later``: the RoundRobin's register; ``granted``: some client gets a turn."""
    passed_over = Signal(range(2 * count))
    with harness.m.If(~asks | gets):
        harness.m.d.sync += passed_over.eq(0)
    with harness.m.Elif(granted):
        harness.m.d.sync += passed_over.eq(passed_over + 1)
    served, distance = Signal(range(count + 1)), Signal(range(count + 1))  # served last; how many are in front
    with harness.m.Switch(later):
        for index in range(count - 1):
            with harness.m.Case(((1 << count) - 1) & -(2 << index)):
                harness.m.d.comb += served.eq(index)
        with harness.m.Case(0):
            harness.m.d.comb += served.eq(count - 1)
        with harness.m.Default():
            harness.m.d.comb += served.eq(count)
    harness.m.d.comb += distance.eq(Mux(client > served, client - served - 1, client + count - served - 1))
    harness.always(served != count, "later_is_a_row_of_ones")
    harness.always(passed_over + distance < count, "nobody_starves")


class Seen:
    """A model of one cell, at any address: reads are compared with what it held when they were taken."""

    def __init__(self, harness: Harness, address_width: int, shape: Any) -> None:
        self.harness = harness
        self.address = harness.constant(address_width, "address")
        self.value = Signal(shape, name="cell")
        self.written = Signal(name="cell_written")  # in this cycle: a read of the same cycle may see either value

    def check(self, name: str, port: Any, latency: int, found: Value) -> None:
        harness = self.harness
        taken = port.request.valid & port.request.ready
        here, value = taken & (port.request.payload == self.address) & ~self.written, self.value
        for stage in range(latency):
            taken = harness.past(taken, f"{name}_taken{stage}")
            here, value = harness.past(here, f"{name}_here{stage}"), harness.past(value, f"{name}_value{stage}")
        harness.always(port.response.valid == taken, f"{name}_answered_in_time")
        harness.always(~here | (Value.cast(found).as_unsigned() == value), f"{name}_reads_what_was_written")


def one_bank_one_port(harness: Harness, name: str, ports: list, bank_of: Any) -> None:
    """Assert that clients served in one cycle are served by different banks."""
    for index, left in enumerate(ports):
        for other, right in enumerate(ports[:index]):
            both = left.valid & left.ready & right.valid & right.ready
            harness.always(~both | (bank_of(left) != bank_of(right)), f"{name}_{index}_{other}_different_banks")


def local_beside(broken: Broken | None = None) -> Harness:
    """Two readers that never wait, as long as they ask for different banks, and another one."""
    harness, arch = Harness(), CELLS
    block = LocalMemory(arch, ("r0", "r1", "r2"), ("w0",), first="r0", beside=("r1",))
    harness.block(block, broken=broken)
    first, beside, other = (port.request for port in (block.r0, block.r1, block.r2))
    harness.assume(~(first.valid & beside.valid) | (first.payload[0] != beside.payload[0]), "different_banks")
    harness.always(~first.valid | first.ready, "the_first_never_waits")
    harness.always(~beside.valid | beside.ready, "nor_does_the_one_beside_it")
    harness.always(block.contended == (other.valid & ~other.ready), "who_waits_for_them_is_seen")
    one_bank_one_port(harness, "reads", [first, beside, other], lambda request: request.payload[0])
    return harness


def local(broken: Broken | None = None) -> Harness:
    harness, arch = Harness(), CELLS
    block = LocalMemory(arch, ("r0", "r1"), ("w0", "w1"), first="r0", first_writer="w1")
    harness.block(block, broken=broken)
    first, other = block.r0.request, block.r1.request
    harness.always(first.ready, "the_first_never_waits")
    harness.always(block.w1.request.ready, "nor_does_the_first_writer")
    harness.always(block.contended == (first.valid & other.valid & ~other.ready), "who_waits_for_it_is_seen")
    cell = Seen(harness, arch.local_address_width, arch.number.width * arch.array_size)
    reads, writes = [block.r0, block.r1], [block.w0, block.w1]
    one_bank_one_port(harness, "reads", [port.request for port in reads], lambda request: request.payload[0])
    one_bank_one_port(harness, "writes", [port.request for port in writes], lambda request: request.payload.address[0])
    for port in writes:
        request = port.request
        with harness.m.If(request.valid & request.ready & (request.payload.address == cell.address)):
            harness.m.d.sync += cell.value.eq(request.payload.data.as_value())
            harness.m.d.comb += cell.written.eq(1)
    for index, port in enumerate(reads):
        cell.check(f"r{index}", port, LOCAL_READ_LATENCY, port.response.payload.as_value())
    return harness


def accumulator_ports(broken: Broken | None = None) -> Harness:
    """Prove the arbitration of two readers, the array and two writers on two banks."""
    harness = Harness()
    block = RowsAtOnce(CELLS, ("r0", "r1"), ("w0", "w1"))
    harness.block(block, leave=("mat_mul.request.ready",), broken=broken)
    writes, reads = [block.mat_mul, block.w0, block.w1], [block.r0, block.r1]
    one_bank_one_port(harness, "writes", [port.request for port in writes], lambda request: request.payload.address[0])
    one_bank_one_port(harness, "reads", [port.request for port in reads], lambda request: request.payload[0])
    for index, port in enumerate(writes):
        adds = port.request.valid & port.request.ready & port.request.payload.accumulate
        for other, read in enumerate(reads):
            both = adds & read.request.valid & read.request.ready
            different = port.request.payload.address[0] != read.request.payload[0]
            harness.always(~both | different, f"accumulate_{index}_has_the_read_port_not_{other}")
    harness.always(block.mat_mul.request.ready, "the_array_never_waits")
    return harness


def accumulators(arch: Arch) -> Any:
    """Return a function that makes the proof of lane 0 of any cell of the accumulators.

    The array and a writer write it and accumulate in it, back to back as they like."""
    def build(broken: Broken | None = None) -> Harness:
        harness = Harness()
        block = RowsAtOnce(arch, ("r0",), ("w0",))
        harness.block(block, broken=broken)
        width = arch.accumulator_bits
        cell = Seen(harness, arch.accumulator_address_width, width)
        writes = [block.mat_mul, block.w0]
        requests = [port.request for port in writes]
        for request in requests:
            given = request.payload.data[0]
            old = Mux(request.payload.accumulate, cell.value.as_signed(), Const(0))
            total = resize(given, max(width, len(given)) + 2) + old
            with harness.m.If(request.valid & request.ready & (request.payload.address == cell.address)):
                harness.m.d.sync += cell.value.eq(saturate(total, width))
                harness.m.d.comb += cell.written.eq(1)
        cell.check("r0", block.r0, ACCUMULATOR_READ_LATENCY, block.r0.response.payload[0])
        return harness
    return build


PROOFS = [
    Proof("round_robin", "RoundRobin: one grant, only to who asks, nobody passed over more than n - 1 times",
          round_robin, {"later": is_zero}),
    Proof("local_memory",
          "local memory: one client a bank and port, the first at once; reads see the last write to any address", local,
          {"read0.grant": lambda *_: 0b11}, 8, BOUNDED),
    Proof("local_memory_beside", "local memory: readers in different banks never wait, and see who waits for them",
          local_beside, {"contended": is_zero}, 2),
    Proof("accumulator_ports", "accumulators: one client a bank and port, the array never waits", accumulator_ports,
          {"accumulators.writes0.open": lambda *_: 0b11}, 2),
    Proof("accumulators", "accumulators: reads see every write and accumulate taken before, back to back",
          accumulators(CELLS.replace(accumulator_depth=2, accumulator_banks=1, accumulator_width=4)),
          {"accumulators.bank0.hit1": is_zero}, 10, BOUNDED, fast=False),
]
