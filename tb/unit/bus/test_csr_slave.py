# SPDX-License-Identifier: Apache-2.0
"""The register table behind AXI4-Lite: every register by its access, strobes, errors, interrupts."""

from random import Random

import pytest
from amaranth.sim import Simulator

from weft.hw.bus.csr_slave import CsrSlave
from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import CONTROL_REGISTERS, Access, Command, Status, parameter_values
from weft.tb.bench.block_bench import simulate
from weft.tb.bench.block_models import Model, Script, Stable

OKAY, SLVERR = 0, 2
KEPT = {"INTERRUPT_ENABLE": 4, "PROGRAM_ADDRESS_HIGH": 8}
"""Bits of registers that are written, of a machine with 40 bits of address, where they are not 32."""
OFFSET = {name: register.offset for name, register in CONTROL_REGISTERS.items()}


def make_arch(array_size: int = 8, **values) -> Arch:
    return Arch(data_type="FP16BP8", array_size=array_size, dram0_depth=256, dram1_depth=512, local_depth=64,
                accumulator_depth=32, simd_registers_depth=1, stride0_depth=4, stride1_depth=2, **values)


class Master(Model):
    """One access at a time; delays of each channel from ``rng``."""

    def __init__(self, dut, rng, delay=0):
        self.dut, self.rng, self.delay = dut, rng, delay
        self.pulses = {"start": 0, "soft_reset": 0}
        self.stable = [Stable("axil.b"), Stable("axil.r")]

    def run(self, steps):
        simulate(self.dut, self, Script(steps))

    def watch(self, ports):
        """Counts pulses and watches the rules of the slave's channels."""
        for name in self.pulses:
            self.pulses[name] += ports[name]
        for channel in self.stable:
            channel.check(ports)

    def access(self, ports, sends, answer):
        """Offers payloads on channels of their own, waits for the answer; returns its payload and the cycles."""
        wait = {name: self.rng.randint(0, self.delay) for name in (*sends, answer)}
        back, cycle, result, pending = f"axil.{answer}", 0, None, set(sends)
        while result is None or pending:
            for name in pending:
                if cycle >= wait[name]:
                    ports.put(f"axil.{name}.payload", sends[name])
                    ports[f"axil.{name}.valid"] = 1
            ports[f"{back}.ready"] = cycle >= wait[answer]
            yield
            for name in sends:
                if ports[f"axil.{name}.valid"] and ports[f"axil.{name}.ready"]:
                    pending.discard(name)
                    ports[f"axil.{name}.valid"] = 0
            if ports[f"{back}.valid"] and ports[f"{back}.ready"]:
                result = ports.get(f"{back}.payload")
                ports[f"{back}.ready"] = 0
            cycle += 1
        return result, cycle

    def write(self, ports, offset, value, strobe=15, *, expect=OKAY):
        answer, _ = yield from self.access(
            ports, {"aw": {"addr": offset, "prot": 0}, "w": {"data": value, "strb": strobe}}, "b")
        assert answer["resp"] == expect

    def read(self, ports, offset, *, expect=OKAY):
        answer, _ = yield from self.access(ports, {"ar": {"addr": offset, "prot": 0}}, "r")
        assert answer["resp"] == expect
        return answer["data"]


@pytest.mark.parametrize("array_size", [2, 3, 8])
@pytest.mark.parametrize("delay", [0, 4])
def test_every_register_reads_and_writes_by_its_access(array_size, delay) -> None:
    arch = make_arch(array_size, axi_address_width=40)
    dut, rng = CsrSlave(arch, "ulx3s"), Random(array_size + delay)
    master = Master(dut, rng, delay)
    live = {"ERROR_CAUSE": 7, "ERROR_PROGRAM_COUNTER": 0xDEADBEEF, "PROGRAM_COUNTER": 0x12345678, "STATUS": 0b100000,
            "CYCLES_LOW": 0x89ABCDEF, "CYCLES_HIGH": 0x01234567, "INSTRUCTIONS_LOW": 5, "INSTRUCTIONS_HIGH": 6}

    def steps(ports):
        ports["error_cause"] = 7
        ports["error_program_counter"] = live["ERROR_PROGRAM_COUNTER"]
        ports["program_counter"] = live["PROGRAM_COUNTER"]
        ports.put("status", {"idle": 1})
        ports["cycles"] = 0x0123456789ABCDEF
        ports["instructions"] = 6 << 32 | 5
        constant = parameter_values(arch) | live | {"BOARD": 0xe165ac47}
        for name, register in CONTROL_REGISTERS.items():
            value = rng.getrandbits(32) & ~3 if register.access is not Access.READ_WRITE else rng.getrandbits(32)
            yield from master.write(ports, register.offset, value)
            kept = value & (1 << KEPT.get(name, 32)) - 1
            expected = {Access.READ_ONLY: constant.get(name), Access.READ_WRITE: kept}.get(register.access, 0)
            assert (yield from master.read(ports, register.offset)) == expected, name

    master.run(steps)
    assert master.pulses == {"start": 0, "soft_reset": 0}


def test_strobes_write_their_bytes_only() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(1))

    def steps(ports):
        value = 0
        for strobe in range(16):
            word = 0x01010101 * (strobe + 1)
            yield from master.write(ports, OFFSET["PROGRAM_BYTES"], word, strobe)
            mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
            value = (value & ~mask) | (word & mask)
            assert (yield from master.read(ports, OFFSET["PROGRAM_BYTES"])) == value == ports["program_bytes"]

    master.run(steps)


def test_offsets_outside_the_table_answer_an_error() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(2), 2)

    def steps(ports):
        for offset in sorted(set(range(0, 0x200, 4)) - set(OFFSET.values())) + [0xFFC]:
            yield from master.write(ports, offset, 0xFFFFFFFF, expect=SLVERR)
            assert (yield from master.read(ports, offset, expect=SLVERR)) == 0
        for offset in range(4):
            assert (yield from master.read(ports, OFFSET["IDENTITY"] + offset)) == 0x57454654

    master.run(steps)
    assert master.pulses == {"start": 0, "soft_reset": 0}


def test_commands_pulse_once_and_only_where_strobed() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(3), 3)

    def steps(ports):
        yield from master.write(ports, OFFSET["PROGRAM_ADDRESS_LOW"], 0x1234_5678)
        yield from master.write(ports, OFFSET["CONTROL"], 1 << Command.START)
        yield from master.write(ports, OFFSET["CONTROL"], 3, 0b1110)
        yield from master.write(ports, OFFSET["CONTROL"], 1 << Command.SOFT_RESET)
        yield from master.write(ports, OFFSET["CONTROL"], 0)
        yield from range(3)
        assert ports["program_address"] == 0x1234_5678

    master.run(steps)
    assert master.pulses == {"start": 1, "soft_reset": 1}


def test_interrupts_latch_rises_mask_and_clear() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(4))

    def steps(ports):
        for status in (Status.DONE, Status.ERROR, Status.TIMEOUT, Status.TRACEPOINT):
            bit = 1 << status
            ports.put("status", {status.name.lower(): 1})
            yield from range(3)
            assert (yield from master.read(ports, OFFSET["INTERRUPT_STATUS"])) == bit
            assert not ports["interrupt"]
            yield from master.write(ports, OFFSET["INTERRUPT_ENABLE"], bit)
            yield from range(3)
            assert ports["interrupt"]
            yield from master.write(ports, OFFSET["INTERRUPT_STATUS"], 15 ^ bit)
            assert (yield from master.read(ports, OFFSET["INTERRUPT_STATUS"])) == bit
            yield from master.write(ports, OFFSET["INTERRUPT_STATUS"], bit)
            yield from range(3)
            assert not ports["interrupt"]  # the level alone does not raise it again
            ports["status"] = 0
            yield
            assert (yield from master.read(ports, OFFSET["INTERRUPT_STATUS"])) == 0
            yield from master.write(ports, OFFSET["INTERRUPT_ENABLE"], 0)

    master.run(steps)


def test_a_rise_in_the_cycle_in_which_its_bit_is_cleared_is_kept() -> None:
    """Of rises one cycle later each the first are cleared: those before the cycle that the answer follows."""
    kept, clears = list[bool](), list[int]()
    bit = 1 << Status.DONE
    for rise in range(6):
        dut = CsrSlave(make_arch())
        master = Master(dut, Random(1))

        def steps(ports, rise=rise, master=master):
            ports.put("axil.aw.payload", {"addr": OFFSET["INTERRUPT_STATUS"], "prot": 0})
            ports.put("axil.w.payload", {"data": bit, "strb": 15})
            ports["axil.aw.valid"] = ports["axil.w.valid"] = 1
            for cycle in range(8):
                if cycle == rise:
                    ports.put("status", {"done": 1})
                yield
                if cycle == 0:
                    ports["axil.aw.valid"] = ports["axil.w.valid"] = 0
                if ports["axil.b.valid"] and len(clears) == rise:
                    clears.append(cycle - 1)
            ports["axil.b.ready"] = 1
            yield
            ports["axil.b.ready"] = 0
            kept.append(bool((yield from master.read(ports, OFFSET["INTERRUPT_STATUS"])) & bit))

        master.run(steps)
    assert len({*clears}) == 1 and kept == [rise >= clears[0] for rise in range(6)] and 0 < clears[0] < 5


def test_reads_and_writes_do_not_wait_for_each_other() -> None:
    dut = CsrSlave(make_arch())
    master = Master(dut, Random(5))

    def steps(ports):
        ports.put("axil.aw.payload", {"addr": OFFSET["PROGRAM_BYTES"], "prot": 0})
        ports["axil.aw.valid"] = 1  # no data for a while
        yield
        ports["axil.aw.valid"] = 0
        _, cycles = yield from master.access(ports, {"ar": {"addr": 0, "prot": 0}}, "r")
        assert cycles == 3  # taken, looked up, answered
        ports.put("axil.w.payload", {"data": 77, "strb": 15})
        ports["axil.w.valid"] = 1
        yield
        ports["axil.w.valid"] = 0
        yield from range(2)
        assert ports["axil.b.valid"]
        assert (yield from master.read(ports, OFFSET["PROGRAM_BYTES"])) == 77  # with the write's response still waiting

    master.run(steps)


def test_reads_that_are_offered_without_a_pause_are_answered_one_by_one() -> None:
    """Whenever the host takes an answer: no address is taken before the answer to the one before has left."""
    dut = CsrSlave(Arch.load("tiny"))
    asked = [CONTROL_REGISTERS[name].offset for name in ("IDENTITY", "ARRAY_SIZE", "VERSION", "LOCAL_DEPTH") * 3]
    rng, found = Random(5), []

    async def bench(ctx) -> None:
        taken = 0
        for _ in range(200):
            ctx.set(dut.axil.ar.valid, taken < len(asked))
            ctx.set(dut.axil.ar.payload.addr, asked[min(taken, len(asked) - 1)])
            ctx.set(dut.axil.r.ready, rng.random() < 0.4)
            if ctx.get(dut.axil.r.valid) and ctx.get(dut.axil.r.ready):
                found.append(ctx.get(dut.axil.r.payload.data))
            taken += ctx.get(dut.axil.ar.valid) and ctx.get(dut.axil.ar.ready)
            assert taken - len(found) <= 1
            await ctx.tick()

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    values = parameter_values(Arch.load("tiny"))
    assert found == [values[name] for name in ("IDENTITY", "ARRAY_SIZE", "VERSION", "LOCAL_DEPTH") * 3]
