# SPDX-License-Identifier: Apache-2.0
"""Build random legal programs action by action; ``random_program`` is the way in."""

from __future__ import annotations

import random

from weft.golden.legality import first_stop
from weft.hw.contract.arch import Arch
from weft.hw.contract.instructions import DataFlow, Instruction, Opcode, SimdOpcode, SimdSub, simd_argument_count
from weft.hw.contract.isa import Isa
from weft.hw.contract.register_table import output_registers
from weft.hw.contract.registers import Register
from weft.hw.contract.schemes import SCALE_VECTORS, TABLE_ENTRIES
from weft.hw.contract.timing import SIMD_IN_FLIGHT

MOST_OFFSET_BLOCKS = (1 << 40) // (1 << 16)
"""golden/dram.py cuts its address space here."""
MOST_VECTORS = 48
"""Longest usual range of one row."""
LONG_VECTORS = 300
"""Longest range that comes now and then."""
REPEATS_TRIED = 4
MOST_HELD = 6
"""What a counter holds at most."""
MOST_REPEATED = 24
"""Instructions of one Repeat: a random program is short."""

Program = list[Instruction]


class ProgramMaker:
    """A program in the making: random legal actions are appended, and what legality depends on is kept."""

    def __init__(self, arch: Arch, seed: int, core: int = 0) -> None:
        self.arch, self.isa = arch, Isa(arch)
        self.random = random.Random(seed)
        self.program: Program = []
        self.history = self.isa.history()
        self.program_counter = 0
        self.rows = {Opcode.MAT_MUL: (1, 0, 0), Opcode.DATA_MOVE: (1, 0, 0)}
        """Rows, near pitch, far pitch as configured."""
        self.tap_registers = {Register.TAP_ORIGIN: 0, Register.TAP_ROWS: 1, Register.TAP_PITCH: 0}
        self.core, self.held = core, [0] * arch.sync_counters
        """What the core's own counters hold; it posts to nobody else."""
        self.recent: dict[str, list[int]] = {memory: [0] for memory in ("local", "accumulator", "dram0", "dram1")}
        self.depths = {memory: getattr(arch, f"{memory}_depth") for memory in self.recent}

    def emit(self, *instructions: Instruction) -> None:
        for instruction in instructions:
            self.program.append(instruction)
            for each in self.history.expand(instruction):
                self._follow(each)

    def _follow(self, instruction: Instruction) -> None:
        """Note what an instruction that a Repeat may have made changes of what legality depends on."""
        self.program_counter = (self.program_counter + 1) % (1 << 32)
        if instruction.opcode == Opcode.SIGNAL:
            self.held = self.held_after(self.held, instruction) or self.held
        if instruction.opcode != Opcode.CONFIGURE:
            return
        register, value = instruction.operand0, instruction.operand1
        if register == Register.PROGRAM_COUNTER:
            self.program_counter = value
        for opcode, first in ((Opcode.MAT_MUL, Register.MAT_MUL_ROWS), (Opcode.DATA_MOVE, Register.MOVE_ROWS)):
            if first <= register < first + 3:
                held = list(self.rows[opcode])
                held[register - first] = value + (register == first)
                self.rows[opcode] = held[0], held[1], held[2]
        if register in self.tap_registers:
            self.tap_registers[Register(register)] = value

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # -- addresses -------------------------------------------------------------------------------------------------
    def size(self, most: int) -> int:
        """Return 1..most, from several classes: single, tiny, around the array size, any, everything."""
        lanes = self.arch.array_size
        sizes = [1, self.random.randint(1, 4), lanes - 1, lanes, lanes + 1, self.random.randint(1, MOST_VECTORS)]
        if self.chance(0.05):
            sizes = [LONG_VECTORS]
        return max(1, min(self.random.choice(sizes), most, LONG_VECTORS))

    def stride(self, operand: int, size: int, room: int) -> int:
        """Return a stride of the operand with which ``size`` vectors span less than ``room``; most often 1."""
        depth = (self.arch.stride0_depth, self.arch.stride1_depth)[operand]
        legal = [1 << k for k in range(depth) if (size - 1) << k < room]
        return 1 if self.chance(0.5) else self.random.choice(legal)

    def base(self, memory: str, span: int) -> int:
        """Return an address at which ``span`` addresses fit, often at, beside or across a range used before."""
        last = self.depths[memory] - span
        base = self.random.choice([self.random.randint(0, last), self.random.randint(0, min(last, MOST_VECTORS)), last])
        if self.chance(0.6):
            near = self.random.choice(self.recent[memory])
            base = self.random.choice([near, near + 1, near - 1, near - span, near - span + 1, near - span // 2])
        base = max(0, min(base, last))
        self.recent[memory] = [*self.recent[memory][-6:], base, base + span]
        return base

    def tap_reach(self) -> int:
        """Return the vectors that a depthwise MatMul reads beyond its walk, for rows of taps."""
        origin, mask, pitch = self.tap_registers.values()
        return 2 * pitch if mask in (5, 7) and origin else pitch if mask in (3, 6) and origin else 0

    def ranges(self, opcode: Opcode, memories: tuple[str, str],
               beyond: tuple[int, int] = (0, 0)) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Return size and (address, stride) of both operands, rows included, and vectors ``beyond`` their walks."""
        rows, *pitches = self.rows.get(opcode, (1, 0, 0))
        rooms = [self.depths[memory] - (rows - 1) * pitch - more
                 for memory, pitch, more in zip(memories, pitches, beyond, strict=True)]
        size = self.size(min(rooms))
        operands = []
        for operand, (memory, room) in enumerate(zip(memories, rooms, strict=True)):
            stride = self.stride(operand, size, room)
            span = (size - 1) * stride + 1 + self.depths[memory] - room
            operands.append((self.base(memory, span), stride))
        return size, operands[0], operands[1]

    # -- legal actions ---------------------------------------------------------------------------------------------
    def no_op(self) -> None:
        self.emit(self.isa.no_op())

    def mat_mul(self) -> None:
        rows, pitch, _ = self.rows[Opcode.MAT_MUL]
        if self.tap_reach() and (rows - 1) * pitch + self.tap_reach() >= self.depths["local"]:
            self.emit(self.isa.configure(Register.TAP_PITCH, 0))
        size, (local, local_stride), (accumulator, accumulator_stride) = self.ranges(
            Opcode.MAT_MUL, ("local", "accumulator"), (self.tap_reach(), 0))
        self.emit(self.isa.mat_mul(local, accumulator, size, accumulate=self.chance(0.5), zeroes=self.chance(0.1),
                                   local_stride=local_stride, accumulator_stride=accumulator_stride))

    def data_move(self, flow: DataFlow | None = None) -> None:
        flow = self.random.choice(list(DataFlow)) if flow is None else flow
        size, (local, local_stride), (far, far_stride) = self.ranges(Opcode.DATA_MOVE, ("local", flow.far_memory))
        self.emit(self.isa.data_move(flow, local, far, size, local_stride=local_stride, far_stride=far_stride))

    def load_weight(self) -> None:
        most = min(self.depths["local"], 1 << self.isa.operand_widths[1])
        size = min(self.random.choice([self.arch.array_size + 1, self.arch.array_size, self.size(most)]), most)
        stride = self.stride(0, size, self.depths["local"])
        self.emit(self.isa.load_weight(self.base("local", (size - 1) * stride + 1), size, zeroes=self.chance(0.1),
                                       zero_bias=self.chance(0.3), local_stride=stride))

    def sub(self) -> SimdSub:
        """Return a legal SIMD sub-instruction; sources that the operation does not read are any that can be written."""
        depth = self.arch.simd_registers_depth
        opcode = self.random.choice(self.isa.simd_opcodes())
        any_source = (1 << self.isa.simd_register_width) - 1
        left, right = (self.random.randint(0, depth if index < simd_argument_count(opcode) else any_source)
                       for index in range(2))
        most = depth - self.arch.lut_count if opcode is SimdOpcode.LOOKUP else depth
        return SimdSub(opcode, left, right, self.random.randint(0, most))

    def simd(self) -> None:
        self.emit(self.any_simd(1, False))

    def any_simd(self, iterations: int, in_loop: bool, *, same: tuple[int, int] | None = None) -> Instruction:
        """Return a SIMD that is legal in every iteration; ``same``: the (address, stride) of both accesses."""
        accesses: list[tuple[int, int]] = []
        for operand in (0, 1):
            stride = self.stride(operand, iterations, self.depths["accumulator"]) if in_loop else \
                1 << self.random.randrange((self.arch.stride0_depth, self.arch.stride1_depth)[operand])
            span = (iterations - 1) * stride + 1 if in_loop else 1
            accesses.append(same or (self.base("accumulator", span), stride))
        (write, write_stride), (read, read_stride) = accesses
        return self.isa.simd(self.sub(), read=read if self.chance(0.85) else None,
                             write=write if self.chance(0.7) else None, accumulate=self.chance(0.3),
                             hold=in_loop and self.chance(0.2), read_stride=read_stride, write_stride=write_stride)

    def simd_loop(self) -> None:
        if not self.arch.simd_loop_depth:
            return
        iterations, body = self.loop_head()
        same = None
        if self.chance(0.4):
            stride = self.stride(0, iterations, self.depths["accumulator"])
            if stride < 1 << self.arch.stride1_depth:
                same = self.base("accumulator", (iterations - 1) * stride + 1), stride
        for _ in range(body):
            self.emit(self.any_simd(iterations, True, same=same if self.chance(0.8) else None))

    def loop_head(self, least: int = 1) -> tuple[int, int]:
        """Emit a SIMDLoop; return its iterations, at least ``least``, and the length of its body."""
        iterations = max(least, self.size(min(self.depths["accumulator"], 1 << self.isa.operand_widths[0])))
        if iterations > MOST_VECTORS:  # any number of them beyond whole fillings of the pipeline
            iterations -= len(self.program) % SIMD_IN_FLIGHT
        body = self.random.choice([1, 2, 3, self.arch.simd_loop_depth, self.random.randint(1, 16)])
        body = min(body, self.arch.simd_loop_depth, 1 << self.isa.operand_widths[1])
        self.emit(self.isa.simd_loop(iterations, body))
        return iterations, body

    def load_lut(self, table: int | None = None) -> None:
        depth = self.arch.lut_depth
        if not self.arch.lut_count or depth > self.depths["local"]:
            return
        stride = self.stride(0, depth, self.depths["local"])
        table = self.random.randint(0, self.arch.lut_count) if table is None else table
        self.emit(self.isa.load_lut(self.base("local", (depth - 1) * stride + 1), table, local_stride=stride))

    def load_scale(self) -> None:
        if not self.arch.scheme.per_lane or self.depths["local"] < SCALE_VECTORS:
            return
        stride = self.stride(0, SCALE_VECTORS, self.depths["local"])
        self.emit(self.isa.load_scale(self.base("local", (SCALE_VECTORS - 1) * stride + 1), local_stride=stride))

    def load_activation_table(self, table: int | None = None) -> None:
        if not self.arch.activation_tables or self.depths["local"] < TABLE_ENTRIES:
            return
        stride = self.stride(0, TABLE_ENTRIES, self.depths["local"])
        table = self.random.randint(1, self.arch.activation_tables) if table is None else table
        self.emit(self.isa.load_activation_table(self.base("local", (TABLE_ENTRIES - 1) * stride + 1), table,
                                            local_stride=stride))

    def signal(self) -> None:
        """Emit a post to nobody or to the core itself, or a wait for what it has posted."""
        if not self.arch.sync_counters:
            return
        dram1, counter = self.chance(0.5), self.random.randrange(self.arch.sync_counters)
        size = self.size(self.depths[f"dram{int(dram1)}"])
        first = self.base(f"dram{int(dram1)}", size)
        if self.chance(0.5):
            amount = self.random.randint(0, self.held[counter])
            self.emit(self.isa.wait(counter, amount, first, size, dram1=dram1))
        else:
            cores = [self.core] if self.held[counter] < MOST_HELD and self.chance(0.7) else []
            self.emit(self.isa.post(counter, cores, first, size, dram1=dram1))

    def settle(self) -> None:
        """Emit waits that leave the counters at 0."""
        for counter, held in enumerate(self.held):
            if held:
                self.emit(self.isa.wait(counter, held, 0, 1))

    def held_after(self, held: list[int], instruction: Instruction) -> list[int] | None:
        """Return what the counters hold after a Signal, None if it waits for more, or posts to another core."""
        counter, above = instruction.operand0 & 15, instruction.operand0 >> 4
        if instruction.flags & 1:
            more = -above
        elif above & ~(1 << self.core):
            return None
        else:
            more = int(above != 0)
        left = held[counter] + more
        return None if not 0 <= left <= MOST_HELD else [*held[:counter], left, *held[counter + 1:]]

    def repeat(self) -> None:
        """Emit a Repeat of legal instructions, if a few tries find one; often of what it makes itself."""
        reach = min(self.arch.repeat_depth, len(self.program))
        for _ in range(REPEATS_TRIED):
            distance = self.random.choice([1, 2, 3, self.random.randint(1, reach), reach])
            if distance <= reach:
                count = self.random.choice([1, 2, distance, 2 * distance + 1, self.random.randint(1, MOST_REPEATED)])
                self._try(self.isa.repeat(distance, min(count, MOST_REPEATED)))

    def _try(self, repeat: Instruction) -> None:
        """Emit a Repeat if all is legal then, and no loop is open at the end."""
        words = self.isa.assemble([*self.program, repeat])
        left = 0
        for opcode, body in self.isa.split(words)[[0, 3]].T.tolist():
            left = left - 1 if left else body + 1 if opcode == Opcode.SIMD_LOOP else 0
        if left or first_stop(words, self.arch) is not None or not self._signals_end(words):
            return
        self.emit(repeat)
        if any(rows > 1 for rows, *_ in self.rows.values()):  # with pitches that may leave no room
            self.rows_mat_mul()
            self.rows_move()

    def _signals_end(self, words: bytes) -> bool:
        """Tell whether no wait of a program of this core alone lasts for ever."""
        held: list[int] | None = [0] * self.arch.sync_counters
        for row in self.isa.split(words).T.tolist() if self.arch.sync_counters else ():
            if held is not None and row[0] == Opcode.SIGNAL:
                held = self.held_after(held, Instruction(*row))
        return held is not None

    # -- registers -------------------------------------------------------------------------------------------------
    def configure(self) -> None:
        taps = [self.taps] * 3 if self.arch.depthwise_taps else []
        functions = [self.output_function] * 2 if output_registers(self.arch) else []
        self.random.choice([self.rows_mat_mul, self.rows_move, self.shifts, self.shifts, self.plain_register, *taps,
                            *functions])()

    def output_function(self) -> None:
        """Choose the slope or the largest result of ReLUs of the move-out unit."""
        register = self.random.choice(list(output_registers(self.arch)))
        most = self.isa.registers[register].maximum
        self.emit(self.isa.configure(register, self.random.choice(
            [0, 1, most, most // 2, most // 2 + 1, self.random.randint(0, most), self.random.randint(0, most)])))

    def taps(self) -> None:
        """Choose whether the next MatMuls are depthwise, and how."""
        self.emit(self.isa.configure(Register.TAP_ORIGIN, self.random.choice([0, 1, 2, 2, 3])),
                  self.isa.configure(Register.TAP_DROPPED, self.random.choice([0, 0, 1, 2, 3])))
        if self.arch.kernel_rows > 1:
            masks = [7, 7, 7, 6, 3, self.random.randrange(8)]
            pitches = [4, 8, self.random.randint(0, 9), self.random.randint(0, self.depths["local"] // 4)]
            self.emit(self.isa.configure(Register.TAP_ROWS, self.random.choice(masks)),
                      self.isa.configure(Register.TAP_PITCH, self.random.choice(pitches)))

    def rows_mat_mul(self) -> None:
        self._rows(Opcode.MAT_MUL, Register.MAT_MUL_ROWS, self.depths["accumulator"])

    def rows_move(self) -> None:
        far_depth = min(self.depths[memory] for memory in ("accumulator", "dram0", "dram1"))
        self._rows(Opcode.DATA_MOVE, Register.MOVE_ROWS, far_depth)

    def _rows(self, opcode: Opcode, first: Register, far_depth: int) -> None:
        """Set rows and both pitches, such that at least one vector in each row fits every memory.

        Often go back to one row, whose pitches are the largest: they must not count."""
        rows, pitches = 1, [self.isa.registers[Register(first + index)].maximum for index in (1, 2)]
        if self.chance(0.7):
            rows = min(self.random.randint(2, 5), self.isa.registers[first].maximum + 1)
            for index, depth in enumerate((self.depths["local"], far_depth)):
                most = min((depth - 1) // max(rows - 1, 1), self.isa.registers[Register(first + 1 + index)].maximum)
                pitches[index] = self.random.choice([0, 1, self.random.randint(0, min(most, 9)),
                                                     self.random.randint(0, most)])
                pitches[index] = min(pitches[index], most)
        for index, value in enumerate((rows - 1, *pitches)):
            self.emit(self.isa.configure(Register(first + index), value))

    def shifts(self) -> None:
        """Set a register by which accumulators are loaded or requantized."""
        if self.arch.scheme.per_lane:
            self.scales()
            return
        register = self.random.choice([Register.INPUT_SHIFT, Register.OUTPUT_SHIFT])
        values = [self.arch.number.point]
        if self.arch.scheme.chooses_points:
            values += [0, 1, self.random.randrange(self.arch.accumulator_bits), self.arch.number.width]
        self.emit(self.isa.configure(register, min(self.random.choice(values), self.arch.accumulator_bits - 1)))

    def scales(self) -> None:
        registers = [Register.ACTIVATION_ZERO_POINT, Register.INPUT_ZERO_POINT, Register.INPUT_MULTIPLIER,
                     Register.OUTPUT_SHIFT,
                     Register.OUTPUT_SHIFT, Register.OUTPUT_ZERO_POINT]
        register = self.random.choice([*registers,
                                       *([Register.ACTIVATION_TABLE] * 3 if self.arch.activation_tables else [])])
        most = self.isa.registers[register].maximum
        values = [0, 1, self.random.randint(0, most), most, most // 2, most // 2 + 1]
        if register is Register.OUTPUT_SHIFT:
            values += [self.random.randint(8, 32) for _ in range(6)]
        self.emit(self.isa.configure(register, self.random.choice(values)))

    def plain_register(self) -> None:
        register = self.random.choice([Register.DRAM0_OFFSET, Register.DRAM1_OFFSET, Register.DRAM0_CACHE,
                                       Register.DRAM1_CACHE, Register.TIMEOUT, Register.TRACEPOINT,
                                       Register.PROGRAM_COUNTER])
        most = self.isa.registers[register].maximum
        value = self.random.choice([0, most, self.random.randint(0, most)])
        if register in (Register.DRAM0_OFFSET, Register.DRAM1_OFFSET):
            window = getattr(self.arch, f"dram{int(register is Register.DRAM1_OFFSET)}_depth") * self.arch.vector_bytes
            room = max(0, MOST_OFFSET_BLOCKS - window // (1 << 16) - 1)
            value = min(self.random.choice([0, 0, 1, 2, most]), most, room)
        value &= (1 << self.isa.operand_widths[1]) - 1
        if register is Register.TRACEPOINT and len(self.program) % 2:  # both only watch, and share a draw
            register = Register.SAMPLE_INTERVAL
            value &= self.isa.registers[register].maximum
        self.emit(self.isa.configure(register, value))

    # -- whole programs --------------------------------------------------------------------------------------------
    def preamble(self) -> None:
        """Bring data everywhere: local memory, accumulators, weights and tables."""
        size = min(self.depths["local"], self.depths["dram0"], LONG_VECTORS)
        self.emit(self.isa.data_move(DataFlow.DRAM0_TO_LOCAL, 0, 0, size))
        self.data_move(DataFlow.LOCAL_TO_ACCUMULATOR)
        self.load_weight()
        self.load_scale()
        for table in range(self.arch.activation_tables):
            self.load_activation_table(table + 1)
        for table in range(self.arch.lut_count + 1):
            self.load_lut(table)

    ACTIONS: dict[str, int] = {
        "no_op": 1, "mat_mul": 8, "data_move": 9, "load_weight": 4, "simd": 5, "simd_loop": 3, "load_lut": 1,
        "configure": 4}
    ACTIONS_WITH_SCALES: dict[str, int] = {**ACTIONS, "configure": 6, "load_scale": 2}
    ACTIONS_WITH_ACTIVATION_TABLES: dict[str, int] = {**ACTIONS_WITH_SCALES, "load_activation_table": 1}
    """Action -> relative frequency."""

    def action(self) -> None:
        if self.arch.repeat_depth and self.chance(0.2):
            self.repeat()
            return
        actions = self.ACTIONS_WITH_SCALES if self.arch.scheme.per_lane else self.ACTIONS
        actions = self.ACTIONS_WITH_ACTIVATION_TABLES if self.arch.activation_tables else actions
        actions = {**actions, "signal": 4} if self.arch.sync_counters else actions
        name = self.random.choices(list(actions), list(actions.values()))[0]
        getattr(self, name)()

    def fill(self, length: int) -> None:
        """Append actions until the program has at least ``length`` instructions."""
        while len(self.program) < length:
            self.action()
