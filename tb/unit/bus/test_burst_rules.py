# SPDX-License-Identifier: Apache-2.0
"""Segments as bursts, cycle by cycle, and pages of registers whose reads and writes are under way at once."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from amaranth.sim import Simulator

from weft.hw.bus.bursts import BurstSplitter
from weft.hw.bus.page_router import NOWHERE, PageRouter
from weft.hw.bus.segments import segment_layout
from weft.hw.contract.csr import ADDRESS_WIDTH, SYSTEM_PAGE
from weft.hw.contract.system import page_address


def simulate(dut: Any, bench: Any) -> None:
    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()


def bursts_of(beat: int, beats: int, most: int) -> list[tuple[int, int, bool, bool]]:
    """First beat, beats, first, last: cut where the number of a beat divides by ``most``."""
    cuts = sorted({beat, beat + beats, *(cut for cut in range(beat + 1, beat + beats) if cut % most == 0)})
    found = [*zip(cuts, cuts[1:], strict=False)]
    return [(low, high - low, number == 0, number == len(found) - 1) for number, (low, high) in enumerate(found)]


@pytest.mark.parametrize("most", [1, 4, 16])
@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_segments_become_bursts_without_a_pause(most: int, rate: float) -> None:
    """At full rate one leaves every cycle, also from segment to segment; what is cancelled never comes."""
    rng = Random(f"{most} {rate}")
    dut = BurstSplitter(segment_layout(16, 32, 7), most)
    segments = [(rng.choice([rng.randrange(200), 4 * rng.randrange(40)]),
                 rng.choice([1, 2, most, most + 1, rng.randrange(1, 60)])) for _ in range(30)]
    cancels = {} if rate == 1.0 else {9: 0, 21: 0}  # by segment: after how many of its bursts
    wanted = [(number, burst) for number, (beat, beats) in enumerate(segments)
              for burst in (bursts_of(beat, beats, most) if number not in cancels else [])]

    async def bench(ctx: Any) -> None:
        found: list[Any] = []
        times, number, now = list[int](), 0, 0
        inside: Any = None
        dropped = set[int]()
        while len(found) < len(wanted):
            if number < len(segments):
                ctx.set(dut.i.payload.beat, segments[number][0])
                ctx.set(dut.i.payload.beats_m1, segments[number][1] - 1)
                ctx.set(dut.i.payload.cache, number % 16)
            ctx.set(dut.i.valid, number < len(segments) and rng.random() < rate)
            ctx.set(dut.o.ready, rng.random() < rate)
            cancel = inside in cancels and inside not in dropped
            ctx.set(dut.cancel, cancel)
            ready, valid, payload = ctx.get(dut.i.ready), ctx.get(dut.o.valid), dut.o.payload
            assert not (cancel and ready)
            if valid and ctx.get(dut.o.ready) and not cancel:
                found.append((ctx.get(payload.segment.cache), (
                    ctx.get(payload.beat), ctx.get(payload.len) + 1, bool(ctx.get(payload.first)),
                    bool(ctx.get(payload.last)))))
                times.append(now)
            if cancel:
                dropped.add(inside)
            taken = ready and ctx.get(dut.i.valid)
            await ctx.tick()
            if cancel:
                assert not ctx.get(dut.o.valid)
            if taken:
                inside, number = number, number + 1
            now += 1
            assert now < 4000
        assert found == [(number % 16, burst) for number, burst in wanted]
        assert rate < 1 or times == [*range(times[0], times[0] + len(times))] and times[0] == dut.LATENCY
        assert dropped == cancels.keys()

    simulate(dut, bench)


PAGES = [page_address(0), page_address(1), page_address(SYSTEM_PAGE), page_address(2), page_address(9)]


def test_reads_and_writes_of_pages_are_under_way_at_once() -> None:
    """Each page sees its own addresses alone, one at a time, and data only behind the address of its write.

    The system's page answers for addresses in no page, at one where no register is."""
    rng, dut = Random(5), PageRouter(2)
    slaves = [dut.page0, dut.page1, dut.system]
    axil = dut.axil

    def of(address: int) -> tuple[int, int]:
        page, offset = address >> ADDRESS_WIDTH, address % (1 << ADDRESS_WIDTH)
        return (page, offset) if page < 2 else (2, offset if page == SYSTEM_PAGE else NOWHERE)

    async def bench(ctx: Any) -> None:
        asked: dict[str, list[tuple[int, int]]] = {"ar": [], "aw": []}
        open_to: dict[str, int | None] = {"ar": None, "aw": None}
        sent, answered, data, given = False, {"ar": 0, "aw": 0}, 0, list[tuple[int, int]]()
        offered: dict[str, int | None] = {"ar": None, "aw": None}
        for now in range(400):
            for channel in ("ar", "aw"):
                if offered[channel] is None and rng.random() < 0.7:
                    offered[channel] = rng.choice(PAGES) + 4 * rng.randrange(8)
                    ctx.set(getattr(axil, channel).payload.addr, offered[channel])
                    ctx.set(getattr(axil, channel).payload.prot, now % 8)
                ctx.set(getattr(axil, channel).valid, offered[channel] is not None)
            ctx.set(axil.w.valid, 1)
            ctx.set(axil.w.payload.data, data)
            for name in ("r", "b"):
                ctx.set(getattr(axil, name).ready, rng.random() < 0.5)
            for number, slave in enumerate(slaves):
                for name in ("ar", "aw", "w"):
                    ctx.set(getattr(slave, name).ready, rng.random() < 0.6)
                ctx.set(slave.r.valid, open_to["ar"] == number and rng.random() < 0.5)
                ctx.set(slave.r.payload.data, 1000 * number + now)
                ctx.set(slave.b.valid, open_to["aw"] == number and sent and rng.random() < 0.5)
                ctx.set(slave.b.payload.resp, number)
            for channel, answer in (("ar", "r"), ("aw", "b")):
                port = getattr(axil, channel)
                address = offered[channel] if open_to[channel] is None else None
                target = None if address is None else of(address)
                for number, slave in enumerate(slaves):
                    mine = getattr(slave, channel)
                    assert bool(ctx.get(mine.valid)) == (target is not None and target[0] == number)
                    if target is not None and target[0] == number:
                        assert ctx.get(mine.payload.addr) == target[1]
                        assert ctx.get(mine.payload.prot) == ctx.get(port.payload.prot)
                took = target is not None and bool(ctx.get(getattr(slaves[target[0]], channel).ready))
                assert not offered[channel] or bool(ctx.get(port.ready)) == took
                back, whose = getattr(axil, answer), open_to[channel]
                there = whose is not None and bool(ctx.get(getattr(slaves[whose], answer).valid))
                assert bool(ctx.get(back.valid)) == there
                if there and ctx.get(back.ready):
                    assert whose is not None and ctx.get(getattr(slaves[whose], answer).ready)
                    found = ctx.get(back.payload.data) if answer == "r" else ctx.get(back.payload.resp)
                    assert found == (1000 * whose + now if answer == "r" else whose)
                    open_to[channel], answered[channel] = None, answered[channel] + 1
                    ended = True
                else:
                    ended = False
                if channel == "aw":
                    waits = whose is not None and not sent
                    for number, slave in enumerate(slaves):
                        assert bool(ctx.get(slave.w.valid)) == (waits and whose == number)
                        assert ctx.get(slave.w.payload.data) == data or whose != number
                    moves = waits and whose is not None and bool(ctx.get(slaves[whose].w.ready))
                    assert bool(ctx.get(axil.w.ready)) == moves
                    if moves and whose is not None:
                        given.append((whose, data))
                        data, sent = data + 1, True
                    sent = sent and not ended
                if took and target is not None:
                    asked[channel].append(target)
                    open_to[channel], offered[channel] = target[0], None
            await ctx.tick()
        assert min(answered.values()) > 25
        assert [page for page, _ in given] == [page for page, _ in asked["aw"]][:len(given)]
        assert [value for _, value in given] == [*range(len(given))]

    simulate(dut, bench)
