# SPDX-License-Identifier: Apache-2.0
"""The decoder takes instructions and gives decoded ones, one a cycle; it stops before an illegal one.

It has five stages. *Read*: it holds an instruction and its number, and the faults of its form, found on the way in;
Configure registers are read and written. *Multiply* and *sum*: bases, sizes, strides, rows and pitches become last
addresses. These have as many bits as an operand's address, and a further bit says whether more would be needed.
*Check*: last addresses are compared with the memories' depths. *Give*: a legal instruction goes to the interlock.

Each stage holds the configuration as it was when its instruction was read, so a later Configure does not change the
instructions before it."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import CAUSE_WIDTH, Cause
from weft.hw.contract.instructions import PARAMETER_LOADS, DataFlow, Opcode, operand_of
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.timing import DECODE_LATENCY
from weft.hw.contract.units import UNIT_OF_OPCODE, unit_names, unit_of_flow
from weft.hw.control.checks import InstructionView, any_of, first_cause, form_causes, form_faults
from weft.hw.control.config_registers import ConfigRegisters
from weft.hw.control.issue import issue_layout
from weft.hw.control.reach import beyond_depth, factor_width, partial_products, size_m1_width, sum_of
from weft.hw.parts.operations import LOAD_FIELDS, SimdKind, field_registers, target_fields, window_width
from weft.hw.parts.slices import RegisterSlice, Stage

STAGES = ("read", "multiply", "sum", "check", "give")
assert len(STAGES) == DECODE_LATENCY

assert operand_of(Opcode.MAT_MUL, "size") == operand_of(Opcode.DATA_MOVE, "size") == operand_of(
    Opcode.SIGNAL, "size"), "read as one"

DRAM_FLOWS = {"dram0": (DataFlow.DRAM0_TO_LOCAL, DataFlow.LOCAL_TO_DRAM0),
              "dram1": (DataFlow.DRAM1_TO_LOCAL, DataFlow.LOCAL_TO_DRAM1)}
"""DRAM -> the flows of DataMoves from and to it."""

WINDOWS = (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET)
REGISTER_WIDTH = max(Register).bit_length()
"""The bits of a Configure register's number."""


class Decoder(wiring.Component):
    """``i``: raw instructions. ``o``: decoded legal ones, DECODE_LATENCY cycles later; NoOp and Configure end here.

    ``fault`` stays high from an illegal instruction on, with ``cause`` and ``fault_program_counter``; then nothing
    more is taken or given until a reset. ``halt`` stops the decoder likewise from outside. ``drained``: nothing is
    outstanding behind ``o``. ``busy``: an instruction is inside. ``accepted`` and ``retired`` pulse when an
    instruction comes in and when it leaves as legal; ``program_counter`` is the number of the next instruction.
    ``windows``: the places of the two DRAM windows, in blocks of 64 KiB. ``timeout``, ``tracepoint`` and
    ``sample_interval``: values of Configure registers."""

    def __init__(self, arch: Arch) -> None:
        self._arch, self.isa, self._size_width = arch, Isa(arch), size_m1_width(arch)
        super().__init__({
            "i": In(stream.Signature(unsigned(8 * self.isa.instruction_bytes))),
            "o": Out(stream.Signature(issue_layout(arch))), "windows": Out(data.ArrayLayout(window_width(arch), 2)),
            "halt": In(1), "drained": In(1), "busy": Out(1),
            "fault": Out(1), "cause": Out(CAUSE_WIDTH), "fault_program_counter": Out(32),
            "program_counter": Out(32), "accepted": Out(1), "retired": Out(1),
            "timeout": Out(16), "tracepoint": Out(32), "sample_interval": Out(16),
        })

    def elaborate(self, platform: object) -> Module:
        """Return the circuit.

        Flow: i -> read: form, Configure -> multiply: products -> sum: last addresses -> check: depths -> give -> o."""
        m = Module()
        multiply, add, check = self._stages()
        travels = multiply.shape().members
        raw = Signal.like(self.i.payload, reset_less=True)
        forms = Signal(data.ArrayLayout(data.StructLayout({cause.name: 1 for cause in form_causes(self._arch)}), 2),
                       name="forms", reset_less=True)
        read_valid, multiply_valid, sum_valid, check_valid = (Signal(name=f"{name}_valid") for name in STAGES[:-1])
        read_ready, multiply_ready, sum_ready, check_ready = (Signal(name=f"{name}_ready") for name in STAGES[:-1])
        stop = self.fault | self.halt
        moves_window, hold = Signal(reset_less=True), Signal()  # a DRAM window moves only when nothing is under way
        given = data.StructLayout({"issue": self.o.payload.shape(), "to_unit": 1})
        m.submodules.give = give = RegisterSlice(given) if self._arch.register_slices else Stage(given)
        halted = self.halt & ~self.fault  # what is legal goes on after a fault behind it, but not after a halt
        behind = Cat(multiply_valid, sum_valid, check_valid, give.o.valid & ~halted).any()
        m.d.comb += [
            self.busy.eq(read_valid | behind),
            sum_ready.eq(~check_valid | check_ready), multiply_ready.eq(~sum_valid | sum_ready),
            read_ready.eq((~multiply_valid | multiply_ready) & ~hold & ~stop),
            self.i.ready.eq((~read_valid | read_ready) & ~stop),
            self.accepted.eq(self.i.valid & self.i.ready),
        ]
        with m.If(self.i.ready):
            m.d.sync += [read_valid.eq(self.i.valid), raw.eq(self.i.payload)]
            arriving = InstructionView(self.isa, self.i.payload)
            register = arriving.field(Opcode.CONFIGURE, "register")
            m.d.sync += moves_window.eq(arriving.opcode_is(Opcode.CONFIGURE) & any_of(register, WINDOWS))
            for in_loop in (0, 1):
                faults = form_faults(self._arch, arriving, in_loop)
                m.d.sync += [forms[in_loop][cause.name].eq(fault) for cause, fault in faults.items()]
        with m.If(~multiply_valid | multiply_ready):
            m.d.sync += multiply_valid.eq(read_valid & read_ready)
        with m.If(multiply_ready):
            m.d.sync += [sum_valid.eq(multiply_valid), *(add[name].eq(multiply[name]) for name in travels)]
            self._multiply(m, multiply, add)
        with m.If(sum_ready):
            m.d.sync += [
                check_valid.eq(sum_valid), *(check[name].eq(add[name]) for name in travels),
                *(check[f"last{k}"].eq(self._last(add, k)) for k in (0, 1)),
            ]
        with m.If(self.halt):
            m.d.sync += [valid.eq(0) for valid in (read_valid, multiply_valid, sum_valid, check_valid)]
        m.d.comb += hold.eq(moves_window & (behind | ~self.drained))
        self._read(m, raw, forms, read_valid & read_ready, multiply)
        self._check(m, check, check_valid, check_ready, give.i)
        self._give(m, give.o, halted)
        return m

    def _stages(self) -> list[Signal]:
        """Return the registers of the stages multiply, sum and check."""
        issue, size = issue_layout(self._arch), self._size_width
        # Beside the decoded instruction each stage holds the form's cause and the terms of its last addresses.
        travels = {"issue": issue, "cause": CAUSE_WIDTH, "oversize": 1, "flat1": 1, "far_dram0": 1, "far_dram1": 1,
                   "size": size, **({"tap_reach": self._arch.local_address_width + 1}
                                    if self._arch.kernel_rows > 1 else {})}
        terms: dict[str, object] = {}
        lasts: dict[str, object] = {}
        for k in (0, 1):
            operand = issue[f"operand{k}"].shape
            products = partial_products(self._arch, Signal(self._arch.local_address_width),
                                        Signal(operand["pitch"].width))
            terms |= {f"along{k}": unsigned(size + (1 << operand["stride_log2"].width) - 1),
                      **{f"across{k}_{part}": unsigned(len(product)) for part, product in enumerate(products)}}
            lasts[f"last{k}"] = data.StructLayout({"address": operand["last"].width, "beyond": 1})
        stages = {"multiply": travels, "sum": {**travels, **terms}, "check": {**travels, **lasts}}
        return [Signal(data.StructLayout(fields), name=name, reset_less=True) for name, fields in stages.items()]

    # -- read ------------------------------------------------------------------------------------------------------
    def _read(self, m: Module, raw, forms, leaves, out) -> None:
        """Decode the instruction of the stage *read* into ``out`` when it ``leaves``.

        Configure registers and the loop's state are updated then. ``forms``: the faults of its form, outside a loop
        body and within one."""
        view = InstructionView(self.isa, raw)
        register = view.field(Opcode.CONFIGURE, "register")[:REGISTER_WIDTH]  # where it is legal
        value = view.field(Opcode.CONFIGURE, "value")
        m.submodules.registers = registers = ConfigRegisters(self._arch, len(register), len(value))
        loop_left = Signal(range(max(self._arch.simd_loop_depth, 1) + 1))
        loop_iterations, loop_oversize = Signal(self._size_width), Signal()
        in_loop = (loop_left != 0) & (self._arch.simd_loop_depth != 0)
        cause, legal = Signal(CAUSE_WIDTH), ~Mux(in_loop, forms[1].as_value().any(), forms[0].as_value().any())
        configure = view.opcode_is(Opcode.CONFIGURE) & legal
        sets_counter = configure & (register == Register.PROGRAM_COUNTER)
        m.d.comb += [
            cause.eq(first_cause({form: Mux(in_loop, forms[1][form.name], forms[0][form.name])
                                  for form in form_causes(self._arch)})),
            registers.write.eq(leaves & configure),
            registers.number.eq(register), registers.value.eq(value),
            self.timeout.eq(registers.timeout), self.tracepoint.eq(registers.tracepoint),
            self.sample_interval.eq(registers.sample_interval),
            self.windows[0].eq(registers.dram0_offset), self.windows[1].eq(registers.dram1_offset),
        ]
        loop = view.opcode_is(Opcode.SIMD_LOOP) & legal
        iterations, body_m1 = view.field(Opcode.SIMD_LOOP, "iterations"), view.field(Opcode.SIMD_LOOP, "body")
        with m.If(leaves):
            m.d.sync += self.program_counter.eq(Mux(sets_counter, value, self.program_counter + 1))
            m.d.sync += loop_left.eq(Mux(loop, body_m1 + 1, Mux(in_loop, loop_left - 1, 0)))
            with m.If(loop):
                m.d.sync += [loop_iterations.eq(iterations), loop_oversize.eq(self._oversize(iterations))]
            m.d.sync += [
                out.cause.eq(cause),
                *self._addresses(view, registers, out),
                *self._sizes(view, registers, out, in_loop, loop_iterations, loop_oversize),
                *self._details(view, registers, out.issue, in_loop, loop_left),
                *([out.tap_reach.eq(tap_reach(view, registers))] if self._arch.kernel_rows > 1 else []),
            ]

    def _oversize(self, raw):
        """Return whether a size has bits beyond those of ``size_m1_width``."""
        return raw[self._size_width:].any() if len(raw) > self._size_width else Const(0, 1)

    def _addresses(self, view: InstructionView, registers, out) -> list:
        """Return statements for the operands, their pitches, and the memories that they are in."""
        issue, zeroes = out.issue, view.flag(Opcode.MAT_MUL, "zeroes")
        mat_mul = view.opcode_is(Opcode.MAT_MUL)
        move, simd = view.opcode_is(Opcode.DATA_MOVE), view.opcode_is(Opcode.SIMD)
        far = {dram: view.flow_is(*flows) for dram, flows in DRAM_FLOWS.items()}
        ranges1 = mat_mul | move | (simd & view.flag(Opcode.SIMD, "read"))
        if self._arch.sync_counters:
            signal, second = view.opcode_is(Opcode.SIGNAL), view.flag(Opcode.SIGNAL, "dram1")
            ranges1 = ranges1 | signal
            far = {"dram0": far["dram0"] | (signal & ~second), "dram1": far["dram1"] | (signal & second)}
        reads_vectors = view.opcode_is(Opcode.LOAD_WEIGHT) & ~view.flag(Opcode.LOAD_WEIGHT, "zeroes")
        for opcode in self._arch.parameter_loads:
            reads_vectors = reads_vectors | view.opcode_is(opcode)
        return [
            issue.operand0.base.eq(view.address(0)), issue.operand0.stride_log2.eq(view.stride_log2(0)),
            issue.operand1.base.eq(view.address(1)), issue.operand1.stride_log2.eq(view.stride_log2(1)),
            issue.operand0.pitch.eq(Mux(mat_mul, registers.mat_mul_local_pitch, registers.move_local_pitch)),
            issue.operand1.pitch.eq(Mux(mat_mul, registers.mat_mul_accumulator_pitch, registers.move_far_pitch)),
            issue.local0.eq((mat_mul & ~zeroes) | move | reads_vectors | view.opcode_is(Opcode.LOAD_LUT)),
            issue.accumulators0.eq(simd & view.flag(Opcode.SIMD, "write")),
            issue.range1.eq(ranges1), out.far_dram0.eq(far["dram0"]), out.far_dram1.eq(far["dram1"]),
        ]

    def _sizes(self, view, registers, out, in_loop, loop_iterations, loop_oversize) -> list:
        """Return statements for an operation's sizes. ``size``: vectors - 1 along the stride.

        A LoadWeight of zeros longer than the column does what one of a whole column does, so its size is clamped."""
        mat_mul, move = view.opcode_is(Opcode.MAT_MUL), view.opcode_is(Opcode.DATA_MOVE)
        load, simd = view.opcode_is(Opcode.LOAD_WEIGHT), view.opcode_is(Opcode.SIMD)
        lut, loop = view.opcode_is(Opcode.LOAD_LUT), view.opcode_is(Opcode.SIMD_LOOP)
        width, most = self._size_width, Const(self._arch.array_size, self._size_width)
        zeroes = load & view.flag(Opcode.LOAD_WEIGHT, "zeroes")
        sized = mat_mul | move
        if self._arch.sync_counters:
            sized = sized | view.opcode_is(Opcode.SIGNAL)
        size_m1, rows_m1 = view.field(Opcode.MAT_MUL, "size"), view.field(Opcode.LOAD_WEIGHT, "size")
        iterations_m1 = view.field(Opcode.SIMD_LOOP, "iterations")
        weights = Mux(zeroes & (rows_m1 > most), most, rows_m1[:width])
        return [
            out.size.eq(Mux(sized, size_m1[:width],
                            Mux(load, weights, Mux(lut, self._arch.lut_depth - 1,
                                                   Mux(simd & in_loop, loop_iterations,
                                                       Mux(loop, iterations_m1[:width], self._one_size(view))))))),
            out.oversize.eq(((mat_mul | move) & self._oversize(size_m1))
                            | (load & ~zeroes & self._oversize(rows_m1))
                            | (simd & in_loop & loop_oversize)),
            out.flat1.eq(simd & view.flag(Opcode.SIMD, "hold")),
            out.issue.rows_m1.eq(Mux(mat_mul, registers.mat_mul_rows, Mux(move, registers.move_rows, 0))),
        ]

    def _one_size(self, view: InstructionView):
        """Return vectors - 1 of an instruction without a size field: those that its opcode loads, or one vector."""
        size: Value | int = 0
        for opcode, vectors in self._arch.parameter_loads.items():
            size = Mux(view.opcode_is(opcode), vectors - 1, size)
        return size

    def _details(self, view: InstructionView, registers, issue, in_loop, loop_left) -> list:
        """Return statements for the fields of ``issue`` that are neither addresses nor sizes."""
        dram0 = view.flow_is(*DRAM_FLOWS["dram0"])
        if self._arch.sync_counters:
            dram0 = dram0 | (view.opcode_is(Opcode.SIGNAL) & ~view.flag(Opcode.SIGNAL, "dram1"))
        kind = Mux(view.opcode_is(Opcode.SIMD_LOOP), SimdKind.LOOP.value,
                   Mux(view.opcode_is(Opcode.LOAD_LUT), SimdKind.LOAD_LUT.value, SimdKind.INSTRUCTION.value))
        return [
            *(issue.unit[name].eq(chosen) for name, chosen in unit_of(view, self._arch).items()),
            issue.program_counter.eq(self.program_counter),
            issue.in_loop.eq(in_loop), issue.loop_last.eq(loop_left == 1), issue.flags.eq(view.flags),
            *self._parameters(view, registers, issue),
            issue.cache.eq(Mux(dram0, registers.dram0_cache, registers.dram1_cache)),
            *([issue.dram1.eq(~dram0)] if self._arch.shared_dram else []),
            issue.simd_kind.as_value().eq(kind), issue.sub.eq(view.sub),
            issue.body_m1.eq(view.field(Opcode.SIMD_LOOP, "body")),
            issue.table.eq(view.field(Opcode.LOAD_LUT, "table")),
            *(issue[name].eq(view.field(Opcode.SIGNAL, name)) for name in target_fields(self._arch)),
        ]

    def _parameters(self, view: InstructionView, registers, issue) -> list:
        """Return statements for quantization parameters: those in Configure registers, and which of them are loaded."""
        held = {field: getattr(registers, register.name.lower())
                for field, register in field_registers(self._arch).items()}
        if Opcode.LOAD_ACTIVATION_TABLE in self._arch.parameter_loads:  # the table that is loaded, or looked up in
            loads, table = view.opcode_is(Opcode.LOAD_ACTIVATION_TABLE), view.field(Opcode.LOAD_ACTIVATION_TABLE,
                "table")
            held["activation_table"] = Mux(loads, table, held["activation_table"])
        return [*(issue[LOAD_FIELDS[opcode]].eq(view.opcode_is(opcode)) for opcode in self._arch.parameter_loads),
                *(issue[field].eq(value) for field, value in held.items())]

    # -- multiply and sum -------------------------------------------------------------------------------------------
    def _multiply(self, m: Module, multiply, add) -> None:
        """Compute the terms of each operand's reach, in vectors.

        ``along`` is (size - 1) x stride within a row, ``across`` is (rows - 1) x pitch, in partial products."""
        sizes = multiply.size, Mux(multiply.flat1, 0, multiply.size)
        for index, size in enumerate(sizes):
            operand = multiply.issue[f"operand{index}"]
            products = partial_products(self._arch, multiply.issue.rows_m1, operand.pitch)
            along = size << operand.stride_log2
            if index and self._arch.sync_counters:  # a Signal's range ends with its last stride
                along = along | Mux(multiply.issue.unit.sync, (1 << operand.stride_log2) - 1, 0)
            m.d.sync += [add[f"along{index}"].eq(along),
                         *(add[f"across{index}_{part}"].eq(product) for part, product in enumerate(products))]

    def _last(self, add, index: int) -> Value:
        """Return an operand's last address in its own bits, and a bit that says whether it lies beyond them."""
        operand = add.issue[f"operand{index}"]
        width = len(operand.base)
        parts = [add[name] for name in add.shape().members if name.startswith(f"across{index}_")]
        places = [0, *(factor_width(self._arch) * part for part in range(len(parts)))]
        reaches = [(term << place) for term, place in zip((add[f"along{index}"], *parts), places, strict=True)]
        if not index and self._arch.kernel_rows > 1:
            reaches.append(add.tap_reach)
        reach = sum_of([operand.base, *(term[:width] for term in reaches)])
        return Cat(reach[:width], Cat(reach[width:], *(term[width:] for term in reaches)).any())

    # -- check and give --------------------------------------------------------------------------------------------
    def _check(self, m: Module, check, valid, ready, give) -> None:
        """Compare last addresses with depths.

        A fault stops the decoder; a legal instruction goes to the stage *give*."""
        arch, issue = self._arch, check.issue
        last0, last1 = check.last0, check.last1
        on_chip1 = issue.range1 & ~check.far_dram0 & ~check.far_dram1
        beyond = {
            Cause.LOCAL_RANGE: issue.local0 & (beyond_depth(last0, arch.local_depth) | check.oversize),
            Cause.ACCUMULATOR_RANGE:
                (issue.accumulators0 & (beyond_depth(last0, arch.accumulator_depth) | check.oversize))
                | (on_chip1 & (beyond_depth(last1, arch.accumulator_depth) | (check.oversize & ~check.flat1))),
            Cause.DRAM0_RANGE: check.far_dram0 & beyond_depth(last1, arch.dram0_depth),
            Cause.DRAM1_RANGE: check.far_dram1 & beyond_depth(last1, arch.dram1_depth),
        }
        form = {cause: check.cause == cause for cause in form_causes(arch)}
        cause = Signal(CAUSE_WIDTH, name="check_cause")
        legal = cause == Cause.NONE
        weights_waiting = Signal(init=1)  # loaded since the last MatMul, or before a reset
        turns = Signal(issue.turns.shape())  # of loads and swaps so far
        out, to_unit = give.payload.issue, issue.unit.as_value().any()
        m.d.comb += [
            cause.eq(first_cause({**form, **beyond})),
            ready.eq(~self.fault & ~self.halt & give.ready),
            give.valid.eq(valid & legal & ~self.fault & ~self.halt), give.payload.to_unit.eq(to_unit),
            out.eq(issue), out.operand0.last.eq(last0.address),
            out.operand1.last.eq(last1.address), out.size_m1.eq(check.size),
            out.swap.eq(weights_waiting), out.turns.eq(turns),
        ]
        with m.If(valid & ~legal & ~self.fault & ~self.halt):
            m.d.sync += [self.fault.eq(1), self.cause.eq(cause), self.fault_program_counter.eq(issue.program_counter)]
        with m.If(give.valid & give.ready):
            m.d.sync += [
                weights_waiting.eq(issue.unit.load_weight | (weights_waiting & ~issue.unit.mat_mul)),
                turns.loads.eq(turns.loads + issue.unit.load_weight),
                turns.swaps.eq(turns.swaps ^ (issue.unit.mat_mul & weights_waiting)),
            ]

    def _give(self, m: Module, given, halted) -> None:
        """Give a legal instruction to the interlock; NoOp and Configure end here."""
        m.d.comb += [
            self.o.payload.eq(given.payload.issue), self.o.valid.eq(given.valid & given.payload.to_unit & ~halted),
            given.ready.eq((~given.payload.to_unit | self.o.ready) & ~halted),
            self.retired.eq(given.valid & given.ready),
        ]


def tap_reach(view: InstructionView, registers: ConfigRegisters) -> Value:
    """Return by how many vectors what the last row of taps meets lies behind what the first one meets.

    So far a depthwise MatMul reads beyond its walk."""
    rows, pitch = registers.tap_rows, registers.tap_pitch
    depthwise = view.opcode_is(Opcode.MAT_MUL) & (registers.tap_origin != 0)
    return Mux(depthwise & rows[0] & rows[2], pitch << 1, Mux(depthwise & rows[1] & (rows[0] | rows[2]), pitch, 0))


def unit_of(view: InstructionView, arch: Arch) -> dict[str, Value]:
    """Return, for each unit, whether an instruction goes to it: NoOp and Configure go to none."""
    absent = PARAMETER_LOADS - set(arch.parameter_loads)
    goes = [*((unit, view.opcode_is(opcode)) for opcode, unit in UNIT_OF_OPCODE.items() if opcode not in absent),
            *((unit, view.flow_is(flow)) for flow, unit in unit_of_flow(arch).items())]
    return {name: Cat(*(chosen for unit, chosen in goes if unit == name)).any() for name in unit_names(arch)}
