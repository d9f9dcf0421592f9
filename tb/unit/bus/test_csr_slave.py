"""The register table behind AXI4-Lite: every register by its access, strobes, errors, interrupts."""

from random import Random

import pytest

from weft.hw.bus.csr_slave import CsrSlave
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS, Access, Command, Status, parameter_values
from weft.tb.bench.amaranth_axi import Stable, simulate

OKAY, SLVERR = 0, 2
OFFSET = {name: register.offset for name, register in CONTROL_REGISTERS.items()}


def make_arch(array_size: int = 8, **values) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, dram0_depth=256, dram1_depth=512, local_depth=64,
                accumulator_depth=32, simd_registers_depth=1, stride0_depth=4, stride1_depth=2, **values)


class Master:
    """One access at a time; delays of each channel from ``rng``."""

    def __init__(self, dut, rng, delay=0):
        self.dut, self.rng, self.delay = dut, rng, delay
        self.pulses = {"start": 0, "soft_reset": 0}
        self.stable = {"b": Stable("B"), "r": Stable("R")}

    async def run(self, ctx):
        """Counts pulses and watches the rules of the slave's channels."""
        axil = self.dut.axil
        async for _, _, start, reset, *channels in ctx.tick().sample(
                self.dut.start, self.dut.soft_reset, axil.b.valid, axil.b.ready, axil.b.payload.as_value(),
                axil.r.valid, axil.r.ready, axil.r.payload.as_value()):
            self.pulses["start"] += start
            self.pulses["soft_reset"] += reset
            self.stable["b"].check(*channels[:3])
            self.stable["r"].check(*channels[3:])

    async def access(self, ctx, sends, answer):
        """Offers payloads on channels of their own, waits for the answer; returns its payload and the cycles."""
        wait = {name: self.rng.randint(0, self.delay) for name in (*sends, answer)}
        back, cycle, result, pending = getattr(self.dut.axil, answer), 0, None, set(sends)
        while result is None or pending:
            for name in pending:
                channel = getattr(self.dut.axil, name)
                if cycle >= wait[name]:
                    ctx.set(channel.payload, sends[name])
                    ctx.set(channel.valid, 1)
            ctx.set(back.ready, int(cycle >= wait[answer]))
            streams = [getattr(self.dut.axil, name) for name in sends]
            _, _, valid, ready, payload, *taken = await ctx.tick().sample(
                back.valid, back.ready, back.payload, *(stream.valid & stream.ready for stream in streams))
            for name, stream, done in zip(sends, streams, taken, strict=True):
                if done:
                    pending.discard(name)
                    ctx.set(stream.valid, 0)
            if valid and ready:
                result = payload
                ctx.set(back.ready, 0)
            cycle += 1
        return result, cycle

    async def write(self, ctx, offset, value, strobe=15, *, expect=OKAY):
        answer, _ = await self.access(
            ctx, {"aw": {"addr": offset, "prot": 0}, "w": {"data": value, "strb": strobe}}, "b")
        assert answer.resp == expect

    async def read(self, ctx, offset, *, expect=OKAY):
        answer, _ = await self.access(ctx, {"ar": {"addr": offset, "prot": 0}}, "r")
        assert answer.resp == expect
        return answer.data


@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize("delay", [0, 4])
def test_every_register_reads_and_writes_by_its_access(array_size, delay) -> None:
    arch = make_arch(array_size, axi_address_width=40)
    dut, rng = CsrSlave(arch), Random(array_size + delay)
    master = Master(dut, rng, delay)
    live = {"ERROR_CAUSE": 7, "ERROR_PROGRAM_COUNTER": 0xDEADBEEF, "PROGRAM_COUNTER": 0x12345678, "STATUS": 0b100000,
            "CYCLES_LOW": 0x89ABCDEF, "CYCLES_HIGH": 0x01234567, "INSTRUCTIONS_LOW": 5, "INSTRUCTIONS_HIGH": 6}

    async def bench(ctx):
        ctx.set(dut.error_cause, 7)
        ctx.set(dut.error_program_counter, live["ERROR_PROGRAM_COUNTER"])
        ctx.set(dut.program_counter, live["PROGRAM_COUNTER"])
        ctx.set(dut.status.idle, 1)
        ctx.set(dut.cycles, 0x0123456789ABCDEF)
        ctx.set(dut.instructions, 6 << 32 | 5)
        constant = parameter_values(arch) | live
        for name, register in CONTROL_REGISTERS.items():
            value = rng.getrandbits(32) & ~3 if register.access is not Access.READ_WRITE else rng.getrandbits(32)
            await master.write(ctx, register.offset, value)
            expected = {Access.READ_ONLY: constant.get(name), Access.READ_WRITE: value}.get(register.access, 0)
            assert await master.read(ctx, register.offset) == expected, name

    simulate(dut, bench, master)
    assert master.pulses == {"start": 0, "soft_reset": 0}


def test_strobes_write_their_bytes_only() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(1))

    async def bench(ctx):
        value = 0
        for strobe in range(16):
            word = 0x01010101 * (strobe + 1)
            await master.write(ctx, OFFSET["PROGRAM_BYTES"], word, strobe)
            mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
            value = (value & ~mask) | (word & mask)
            assert await master.read(ctx, OFFSET["PROGRAM_BYTES"]) == value == ctx.get(dut.program_bytes)

    simulate(dut, bench, master)


def test_offsets_outside_the_table_answer_an_error() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(2), 2)

    async def bench(ctx):
        for offset in sorted(set(range(0, 0x200, 4)) - set(OFFSET.values())) + [0xFFC]:
            await master.write(ctx, offset, 0xFFFFFFFF, expect=SLVERR)
            assert await master.read(ctx, offset, expect=SLVERR) == 0
        for offset in range(4):
            assert await master.read(ctx, OFFSET["IDENTITY"] + offset) == 0x57454654

    simulate(dut, bench, master)
    assert master.pulses == {"start": 0, "soft_reset": 0}


def test_commands_pulse_once_and_only_where_strobed() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(3), 3)

    async def bench(ctx):
        await master.write(ctx, OFFSET["PROGRAM_ADDRESS_LOW"], 0x1234_5678)
        await master.write(ctx, OFFSET["CONTROL"], 1 << Command.START)
        await master.write(ctx, OFFSET["CONTROL"], 3, 0b1110)
        await master.write(ctx, OFFSET["CONTROL"], 1 << Command.SOFT_RESET)
        await master.write(ctx, OFFSET["CONTROL"], 0)
        await ctx.tick().repeat(3)
        assert ctx.get(dut.program_address) == 0x1234_5678

    simulate(dut, bench, master)
    assert master.pulses == {"start": 1, "soft_reset": 1}


def test_interrupts_latch_rises_mask_and_clear() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(4))

    async def bench(ctx):
        for status in (Status.DONE, Status.ERROR, Status.TIMEOUT, Status.TRACEPOINT):
            wire, bit = dut.status[status.name.lower()], 1 << status
            ctx.set(wire, 1)
            await ctx.tick().repeat(3)
            assert await master.read(ctx, OFFSET["INTERRUPT_STATUS"]) == bit
            assert not ctx.get(dut.interrupt)
            await master.write(ctx, OFFSET["INTERRUPT_ENABLE"], bit)
            await ctx.tick().repeat(2)
            assert ctx.get(dut.interrupt)
            await master.write(ctx, OFFSET["INTERRUPT_STATUS"], 15 ^ bit)
            assert await master.read(ctx, OFFSET["INTERRUPT_STATUS"]) == bit
            await master.write(ctx, OFFSET["INTERRUPT_STATUS"], bit)
            await ctx.tick().repeat(2)
            assert not ctx.get(dut.interrupt)  # the level alone does not raise it again
            ctx.set(wire, 0)
            await ctx.tick()
            assert await master.read(ctx, OFFSET["INTERRUPT_STATUS"]) == 0
            await master.write(ctx, OFFSET["INTERRUPT_ENABLE"], 0)

    simulate(dut, bench, master)


def test_reads_and_writes_do_not_wait_for_each_other() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(5))

    async def bench(ctx):
        ctx.set(dut.axil.aw.payload, {"addr": OFFSET["PROGRAM_BYTES"], "prot": 0})
        ctx.set(dut.axil.aw.valid, 1)  # no data for a while
        await ctx.tick()
        ctx.set(dut.axil.aw.valid, 0)
        _, cycles = await master.access(ctx, {"ar": {"addr": 0, "prot": 0}}, "r")
        assert cycles == 3  # taken, looked up, answered
        ctx.set(dut.axil.w.payload, {"data": 77, "strb": 15})
        ctx.set(dut.axil.w.valid, 1)
        await ctx.tick()
        ctx.set(dut.axil.w.valid, 0)
        await ctx.tick()
        assert ctx.get(dut.axil.b.valid)
        assert await master.read(ctx, OFFSET["PROGRAM_BYTES"]) == 77  # with the write's response still waiting

    simulate(dut, bench, master)
