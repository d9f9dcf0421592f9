# SPDX-License-Identifier: Apache-2.0
"""Proofs of several cores behind one memory port: each client gets what it asked for, in order, and none starves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Mux, Signal, Value

from weft.hw.bus import port_arbiter
from weft.hw.bus.port_arbiter import PortArbiter, number_of
from weft.hw.contract.arch import Arch
from weft.hw.contract.key_values import SHARED
from weft.tb.formal.archs import SMALL
from weft.tb.formal.fifos import Mark
from weft.tb.formal.harness import Broken, Harness, Inside, is_zero, one_hot
from weft.tb.formal.memories import nobody_starves
from weft.tb.formal.prove import Proof

ARCH = SMALL.replace(dram_ports=SHARED)
CORES, FEW = 2, 3
"""The cores on the port, and the bursts outstanding each way: few, so that the bound is reached."""
JOINING = ARCH.replace(cores=CORES, join_cycles=2, axi_address_width=18)


def arbiter(broken: Broken | None, arch: Arch = ARCH) -> tuple[Harness, PortArbiter, Inside]:
    """Return the arbiter among clients and a memory that do what they like within the rules of streams."""
    harness, keep = Harness(), port_arbiter.OUTSTANDING_BURSTS
    port_arbiter.OUTSTANDING_BURSTS = FEW
    try:
        block = PortArbiter(arch, CORES)
        inside = harness.block(block, broken=broken, rules=False)
    finally:
        port_arbiter.OUTSTANDING_BURSTS = keep
    harness.assume(~block.restart, "turns_go_on")
    return harness, block, inside


def follow(harness: Harness, inside: Inside, order: str, enters: Value, leaves: Value, client: Value) -> Mark:
    """Return the mark of a burst of ``client`` in a queue of clients to be answered.

    The queue holds the bursts in the order in which they come."""
    level = inside(f"{order}.fifo.level")
    mark = Mark(harness, enters, leaves, client, level, order)
    place = Signal(range(2 * FEW))
    harness.m.d.comb += place.eq(inside(f"{order}.fifo.consume") + mark.ahead)
    stored = inside.watch(harness, f"{order}.fifo.storage", Mux(place >= FEW, place - FEW, place))
    harness.always(~mark.inside | ((mark.ahead < level) & (stored == mark.value)), f"{order}_stored")
    return mark


def taken(port: Any) -> Value:
    """Return whether a stream's payload moves in this cycle."""
    return port.valid & port.ready


def reads(broken: Broken | None = None) -> Harness:
    """Prove the reads of four clients: data and programs of two cores."""
    harness, block, inside = arbiter(broken)
    clients = [*(getattr(block, f"data{k}") for k in range(CORES)), *(getattr(block, f"program{k}")
                                                                      for k in range(CORES))]
    fires, r = Cat(taken(client.ar) for client in clients), block.memory.r
    harness.always(~fires.any() | one_hot(fires), "one_address_a_cycle")
    entered = inside.reads("read_addresses.i__payload")
    addresses = Array(client.ar.payload.addr for client in clients)
    harness.always(~fires.any() | (entered[:ARCH.axi_address_width] == addresses[number_of(fires)]), "its_address")
    mark = follow(harness, inside, "read_order", fires.any(), taken(r) & r.payload.last, number_of(fires))
    answered = Cat(*(getattr(block, f"data{k}").r.valid for k in range(CORES)),
                   *(inside.reads(f"program_queue{k}.i__valid") for k in range(CORES)))
    harness.always(~answered.any() | one_hot(answered), "one_is_answered")
    harness.always(~(mark.inside & (mark.ahead == 0) & r.valid) | (answered == 1 << mark.value), "its_client")
    client = harness.constant(range(len(clients)), "client")
    asks = Cat(clients[k].ar.valid if k < CORES else
               clients[k].ar.valid & (inside(f"free_places{k - CORES}") > clients[k].ar.payload.len)
               for k in range(len(clients))).bit_select(client, 1)
    nobody_starves(harness, inside("read_turns.later"), len(clients), client, asks, fires.bit_select(client, 1),
                   fires.any())
    return harness


def joined_reads(broken: Broken | None = None) -> Harness:
    """Prove the reads of two cores whose reads of the same constants are joined, and of their programs.

    Each client's address is the one that goes out. Its beats come in order and together with those of all that were
    joined. No read of constants waits longer than ``join_cycles`` for other cores; then it takes turns as others do."""
    harness, block, inside = arbiter(broken, JOINING)
    data_ports = [getattr(block, f"data{k}") for k in range(CORES)]
    clients = [*data_ports, *(getattr(block, f"program{k}") for k in range(CORES))]
    fires, r = Cat(taken(client.ar) for client in clients), block.memory.r
    entered = inside.reads("read_addresses.i__payload")
    for k, client in enumerate(clients):
        harness.always(~fires[k] | (entered[:JOINING.axi_address_width] == client.ar.payload.addr), f"address{k}")
    may_join = Cat(port.ar.payload.user & port.ar.payload.cache[1] for port in data_ports)
    lengths = data_ports[0].ar.payload.len == data_ports[1].ar.payload.len
    harness.always(~fires.any() | one_hot(fires) | ((fires == 0b11) & may_join.all() & lengths), "joined_are_alike")
    mark = follow(harness, inside, "read_order", fires.any(), taken(r) & r.payload.last, fires)
    answered = Cat(*(port.r.valid & port.r.ready for port in data_ports),
                   *(inside.reads(f"program_queue{k}.i__valid") for k in range(CORES)))
    harness.always(~answered.any() | taken(r), "with_the_beat")
    harness.always(~(mark.inside & (mark.ahead == 0) & taken(r)) | (answered == mark.value), "its_clients")
    for k, port in enumerate(data_ports):
        held = Signal(range(JOINING.join_cycles + 1), name=f"held{k}")
        waits = port.ar.valid & may_join[k]
        with harness.m.If(waits & ~port.ar.ready):
            harness.m.d.sync += held.eq(Mux(held == JOINING.join_cycles, held, held + 1))
        with harness.m.Else():
            harness.m.d.sync += held.eq(0)
        harness.always(inside("join_waited") >= held, f"waited{k}")
    client = harness.constant(range(len(clients)), "client")
    overdue = inside("join_waited") == JOINING.join_cycles
    asks = Cat(clients[k].ar.valid & (~may_join[k] | overdue) if k < CORES else
               clients[k].ar.valid & (inside(f"free_places{k - CORES}") > clients[k].ar.payload.len)
               for k in range(len(clients))).bit_select(client, 1)
    nobody_starves(harness, inside("read_turns.later"), len(clients), client, asks, fires.bit_select(client, 1),
                   fires.any())
    return harness


def writes(broken: Broken | None = None) -> Harness:
    """Prove the writes of two cores.

    A burst's beats come one behind another, with its address, and its response goes to its core."""
    harness, block, inside = arbiter(broken)
    clients = [getattr(block, f"data{k}") for k in range(CORES)]
    fires, begins, b = Cat(taken(client.w) for client in clients), inside("begins"), block.memory.b
    within, owner = Signal(name="burst_is_open"), Signal(CORES, name="burst_owner")
    lasts = Cat(client.w.payload.last for client in clients)
    with harness.m.If(fires.any()):
        harness.m.d.sync += [within.eq((fires & lasts) == 0), owner.eq(fires)]
    harness.always((within == inside("within")) & (owner == inside("owner")), "known_inside")
    harness.always(~fires.any() | one_hot(fires), "one_beat_a_cycle")
    harness.always(~within | one_hot(owner), "a_burst_has_an_owner")
    harness.always(~(within & fires.any()) | (fires == owner), "a_burst_stays_together")
    harness.always(begins == (fires.any() & ~within), "an_address_with_each_first_beat")
    mark = follow(harness, inside, "write_order", begins, taken(b), number_of(fires))
    answered = Cat(client.b.valid for client in clients)
    harness.always(~answered.any() | one_hot(answered), "one_is_answered")
    harness.always(~(mark.inside & (mark.ahead == 0) & b.valid) | (answered == 1 << mark.value), "its_core")
    client = harness.constant(range(CORES), "client")
    queued = Cat(inside.reads(f"waiting{k}.o__ready") for k in range(CORES))
    ready = Cat(inside(f"waiting{k}.fifo.level") != 0 for k in range(CORES)) & Cat(
        client.w.valid for client in clients)
    harness.always((queued != 0) == begins, "the_address_of_the_burst_that_begins")
    nobody_starves(harness, inside("write_turns.later"), CORES, client, ready.bit_select(client, 1) & ~(
        within & owner.bit_select(client, 1)), queued.bit_select(client, 1), begins)
    return harness


PROOFS = [
    Proof("port_reads", "PortArbiter: beats read go to who asked, in order; nobody passed over more than n - 1 times",
          reads, {"read_turns.later": is_zero}),
    Proof("port_read_order", "the same, around a broken queue of who is answered", reads,
          {"asked": is_zero}),
    Proof("port_joined_reads", "PortArbiter with join_cycles: joined reads are alike and answered together; none waits "
          "longer for others", joined_reads, {"join_waited": is_zero}),
    Proof("port_writes", "PortArbiter: bursts written stay together, responses go to who wrote; nobody starves", writes,
          {"within": is_zero}),
]
