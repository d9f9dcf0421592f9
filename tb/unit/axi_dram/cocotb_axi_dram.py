# SPDX-License-Identifier: Apache-2.0
"""The cocotb side of test_axi_dram.py. Each test gets the memory's file and size from its environment."""

import itertools
import mmap
import os
import random

import cocotb
from cocotb.triggers import ClockCycles, Combine, RisingEdge
from cocotbext.axi import AxiBus, AxiMaster, AxiResp
from raw_axi import bus_bytes, first_beat, offer, read_stream, start, write_burst, write_stream

PAGE = 4096
STALL = {"none": 0, "some": 64, "heavy": 200}


def memory() -> mmap.mmap:
    """The memory as the parent process sees it: the mapped file itself."""
    with open(os.environ["DRAM_FILE"], "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def axi_master(dut, stall: int = 0) -> AxiMaster:
    """A cocotbext-axi master that rests itself with the same probability."""
    master = AxiMaster(AxiBus.from_prefix(dut, "s_axi"), dut.clk, dut.rst)
    if stall:
        write, read = master.write_if, master.read_if
        for number, channel in enumerate(
            (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel)
        ):
            rng = random.Random(cocotb.RANDOM_SEED + number)
            channel.set_pause_generator(rng.random() * 256 < stall for _ in itertools.count())
    return master


@cocotb.test()
async def random_traffic(dut):
    """Concurrent reads and writes of random place and length; every byte of the file is right in the end."""
    rng = random.Random(cocotb.RANDOM_SEED)
    stall = STALL[os.environ["STALL"]]
    jitter = 20 if stall else 0
    master = axi_master(dut, stall)
    await start(dut, stall=stall, read_latency=rng.randrange(30), write_latency=rng.randrange(30), jitter=jitter)
    region = 4 * PAGE  # each worker owns one region, so that the expected content does not depend on the order
    file = memory()
    expected = bytearray(rng.randbytes(8 * region))
    file[: len(expected)] = bytes(expected)

    async def worker(base: int, rng: random.Random) -> None:
        for _ in range(12):
            length = rng.choice([1, 3, bus_bytes(dut), rng.randrange(1, 300), rng.randrange(1, 6000)])
            at = base + rng.randrange(region - length)
            if rng.random() < 0.5:
                data = rng.randbytes(length)
                response = await master.write(at, data)
                assert response.resp == AxiResp.OKAY
                expected[at : at + length] = data
                assert file[at : at + length] == data, f"write of {length} bytes at {at:#x} is not in the file"
            else:
                response = await master.read(at, length)
                assert response.resp == AxiResp.OKAY
                assert response.data == expected[at : at + length], f"read of {length} bytes at {at:#x}"

    tasks = [cocotb.start_soon(worker(i * region, random.Random(rng.random()))) for i in range(8)]
    await Combine(*tasks)
    assert file[: len(expected)] == bytes(expected)


@cocotb.test()
async def strobes(dut):
    """Raw single-beat writes with every kind of strobe change exactly the bytes that are strobed."""
    rng = random.Random(cocotb.RANDOM_SEED)
    await start(dut, stall=64)
    file, width = memory(), bus_bytes(dut)
    for _ in range(100):
        at = width * rng.randrange(PAGE // width)
        before, data, strobe = file[at : at + width], rng.randbytes(width), rng.getrandbits(width)
        await write_burst(dut, at, [data], strobe=strobe)
        kept = bytes(new if strobe >> i & 1 else old for i, (old, new) in enumerate(zip(before, data, strict=True)))
        assert file[at : at + width] == kept, f"strobe {strobe:0{width}b} at {at:#x}"


@cocotb.test()
async def latency(dut):
    """The first R and the B come exactly as many edges after AR and the last W as configured."""
    for cycles in (2, 3, 10, 100):
        await start(dut, read_latency=cycles, write_latency=cycles + 1)
        assert await write_burst(dut, 0, [bytes(bus_bytes(dut))] * 4) == cycles + 1
        assert await first_beat(dut) == cycles
    await start(dut, read_latency=0, write_latency=0)
    assert await write_burst(dut, 0, [bytes(bus_bytes(dut))]) == 2
    assert await first_beat(dut) == 2


@cocotb.test()
async def jitter(dut):
    """Random latency stays within 0..jitter on top of the latency, and varies."""
    await start(dut, read_latency=5, jitter=7)
    seen = {await first_beat(dut) for _ in range(100)}
    assert min(seen) == 5 and max(seen) == 12 and len(seen) > 4, seen


@cocotb.test()
async def stalls(dut):
    """Each channel alone, resting half the time, halves the rate; at 0 none does."""
    await start(dut)
    bursts, page = 256, list(range(0, 256 * bus_bytes(dut), bus_bytes(dut)))
    for channel in ("ar", "r", "aw", "w", "b"):
        stream = read_stream if channel.endswith("r") else write_stream
        full = await stream(dut, page, 1)
        getattr(dut, f"stall_{channel}").value = 128
        half = await stream(dut, page, 1)
        getattr(dut, f"stall_{channel}").value = 0
        assert full <= bursts + 8, f"{channel}: {full} cycles without stalls"
        assert 1.7 * bursts < half < 2.4 * bursts, f"{channel}: {half} cycles with stalls"


@cocotb.test()
async def full_bandwidth(dut):
    """Reads and writes at once, 64 beats each in bursts of 16, at a latency that outstanding bursts hide."""
    bursts, beats, cycles, slack = 4, 16, 30, 4
    await start(dut, read_latency=cycles, write_latency=cycles)
    await ClockCycles(dut.clk, 10)
    width, began = bus_bytes(dut), int(dut.cycle.value)
    reader = cocotb.start_soon(read_stream(dut, [i * beats * width for i in range(bursts)], beats))
    writer = cocotb.start_soon(write_stream(dut, [PAGE + i * beats * width for i in range(bursts)], beats))
    took_read, took_write = await reader, await writer
    await RisingEdge(dut.clk)  # the counters show the last handshakes one edge later
    total = bursts * beats
    assert total + cycles <= took_read <= total + cycles + slack, took_read
    assert total + cycles <= took_write <= total + cycles + slack, took_write
    assert int(dut.read_beats.value) == int(dut.write_beats.value) == total
    first, last = int(dut.first_cycle.value), int(dut.last_cycle.value)
    assert first == began + 1 and last - first + 1 == max(took_read, took_write)


@cocotb.test()
async def outstanding(dut):
    """Exactly 16 bursts are taken each way while none is answered."""
    await start(dut, read_latency=1000, write_latency=1000)
    width = bus_bytes(dut)
    counts = {"ar": 0, "aw": 0}
    for channel in counts:
        offer(dut, channel, 0, 1)
    dut.s_axi_wvalid.value, dut.s_axi_wlast.value, dut.s_axi_wstrb.value = 1, 1, (1 << width) - 1
    for _ in range(100):
        await RisingEdge(dut.clk)
        for channel in counts:
            counts[channel] += int(getattr(dut, f"s_axi_{channel}ready").value)
    assert counts == {"ar": 16, "aw": 16}
    assert int(dut.write_beats.value) == 16, "data of all writes is taken before the first is answered"


@cocotb.test()
async def late_write(dut):
    """A write shows in memory with its response, not before; a read that overtakes it may see the old or the new."""
    width = bus_bytes(dut)
    file = memory()
    await start(dut, write_latency=50)
    file[0:width] = b"\x11" * width
    writer = cocotb.start_soon(write_burst(dut, 0, [b"\x22" * width]))
    await ClockCycles(dut.clk, 40)
    assert file[0:width] == b"\x11" * width
    await writer
    assert file[0:width] == b"\x22" * width


@cocotb.test()
async def read_samples_early_or_late(dut):
    """What changes between AR and R is seen by some reads and missed by others: neither may be relied on."""
    await start(dut, read_latency=30)
    file, seen = memory(), set()
    for _ in range(40):
        file[0] = 1
        reader = cocotb.start_soon(first_beat(dut))
        await ClockCycles(dut.clk, 20)
        file[0] = 2
        await reader
        seen.add(int(dut.s_axi_rdata.value) & 0xFF)
    assert seen == {1, 2}


@cocotb.test()
async def error_responses(dut):
    """Beats inside [error_lo, error_hi) answer SLVERR, are zero and are not written; their neighbours are fine."""
    width = bus_bytes(dut)
    file, lo, hi = memory(), 64 * width, 80 * width
    file[0:PAGE] = b"\x55" * PAGE
    dut.error_lo.value, dut.error_hi.value = lo, hi
    master = axi_master(dut)
    await start(dut)
    for at, good in ((lo - width, True), (lo, False), (hi - width, False), (hi, True)):
        read = await master.read(at, width)
        assert read.resp == (AxiResp.OKAY if good else AxiResp.SLVERR), hex(at)
        assert read.data == (b"\x55" if good else b"\x00") * width
        write = await master.write(at, b"\x66" * width)
        assert write.resp == (AxiResp.OKAY if good else AxiResp.SLVERR), hex(at)
        assert file[at : at + width] == (b"\x66" if good else b"\x55") * width
    assert (await master.write(lo - 2 * width, b"\x77" * 4 * width)).resp == AxiResp.SLVERR
    assert file[lo - 2 * width : lo + 2 * width] == b"\x77" * 2 * width + b"\x55" * 2 * width
    for response in (AxiResp.EXOKAY, AxiResp.DECERR):
        dut.error_response.value = response
        await ClockCycles(dut.clk, 1)
        assert (await master.read(lo, width)).resp == (await master.write(lo, b"\x77" * width)).resp == response
