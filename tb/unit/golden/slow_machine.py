# SPDX-License-Identifier: Apache-2.0
"""A second reading of the design: one scalar at a time, in plain Python, sharing no arithmetic with the golden machine.

Only the widths of fields come from the contract (``Isa.address``, ``Isa.unpack_sub``). Opcodes, flag bits, operand and
register numbers and every rule are written out again, as numbers, on purpose: a mistake in the tables of ``isa.py``,
which golden machine, hardware and estimator all read, must not be made here too.
"""

from __future__ import annotations

from fractions import Fraction

from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import Instruction
from weft.hw.contract.isa import Isa

ONE_SOURCE, TWO_SOURCES = {2, 3, 6, 7, 11, 16}, {4, 5, 8, 9, 10, 12, 13, 14, 15}
ROWS = {1: 0x10, 2: 0x14}  # opcode -> first of its three rows registers


def clip(value: int, width: int) -> int:
    return max(-(2 ** (width - 1)), min(2 ** (width - 1) - 1, value))


def rounded(value: int, shift: int) -> int:
    return round(Fraction(value, 2 ** shift))  # Python's round is half to even


def signed_byte(value: int) -> int:
    return value - 256 if value > 127 else value


class Refused(Exception):
    def __init__(self, cause: Cause, program_counter: int) -> None:
        super().__init__(cause, program_counter)
        self.cause, self.program_counter = cause, program_counter


class SlowMachine:
    def __init__(self, arch: Arch) -> None:
        self.arch, self.isa = arch, Isa(arch)
        lanes = range(arch.array_size)
        self.w, self.p = arch.number.width, arch.number.point
        self.int8 = arch.data_type == "INT8"
        self.exact = arch.mac_rounding == "once"
        self.acc_width = arch.accumulator_bits
        self.local = [[0 for _ in lanes] for _ in range(arch.local_depth)]
        self.acc = [[0 for _ in lanes] for _ in range(arch.accumulator_depth)]
        self.weights = [[0 for _ in lanes] for _ in range(arch.array_size + 1)]
        self.simd_registers = [[0 for _ in lanes] for _ in range(arch.simd_registers_depth)]
        self.luts = [[[0 for _ in lanes] for _ in range(arch.lut_depth)] for _ in range(arch.lut_count + 1)]
        self.scale = [(0, 0) for _ in lanes]
        self.activation_tables = [[[0 for _ in lanes] for _ in range(256)] for _ in range(arch.activation_tables)]
        self.dram: list[dict[int, int]] = [{}, {}]
        self.config = {0x00: 0, 0x01: 0, 0x04: 0, 0x05: 0, 0x08: 100, 0x09: 2 ** 32 - 1, 0x0A: 0, 0x0B: 0,
                       0x10: 0, 0x11: 0, 0x12: 0, 0x14: 0, 0x15: 0, 0x16: 0, 0x18: self.p, 0x19: self.p}
        if self.int8:
            del self.config[0x18]
            self.config |= {0x19: 0, 0x1A: 0, 0x1B: 0, 0x1C: 1, 0x1D: 0} | ({0x1E: 0} if arch.activation_tables else {})
        if arch.depthwise_taps:
            self.config |= {0x0C: 0, 0x17: 0}
        if arch.depthwise_taps == 9:
            self.config |= {0x0F: 1, 0x1F: 0}
        self.config |= ({0x0D: 2 ** (self.w - 1) - 1} if arch.output_maximum else {})
        self.config |= ({0x0E: 0} if arch.output_slope else {})
        self.held = [0] * 16
        self.pc = 0
        self.before: list[Instruction] = []
        self.loop: tuple[int, int, list[Instruction]] | None = None

    # -- legality --------------------------------------------------------------------------------------------------
    def causes(self, ins: Instruction) -> set[Cause]:
        arch, found = self.arch, set()
        op, flags, a, b, c = ins.opcode, ins.flags, ins.operand0, ins.operand1, ins.operand2
        has = {0, 1, 2, 3, 4, 15} | ({5} if arch.lut_count else set()) | ({6} if arch.simd_loop_depth else set())
        has |= ({7} if self.int8 else set()) | ({8} if arch.activation_tables else set())
        has |= ({9} if arch.repeat_depth else set()) | ({10} if arch.sync_counters else set())
        if op not in has:
            return {Cause.OPCODE}
        if self.loop and op != 4:
            found.add(Cause.LOOP_BODY)
        allowed = {1: range(4), 2: (0, 1, 2, 3, 12, 13, 14, 15), 3: range(4), 4: range(16 if self.loop else 8),
                   10: range(4)}
        if flags not in allowed.get(op, (0,)):
            return found | {Cause.FLAGS}
        address_bits = [self.isa.address_widths[i] + self.isa.stride_widths[i] for i in (0, 1)]
        sub_bits = self.isa.sub_width
        limits = {0: (0, 0, 0), 1: (address_bits[0], address_bits[1], 99), 2: (address_bits[0], address_bits[1], 99),
                  3: (address_bits[0], 99, 0), 4: (address_bits[0], address_bits[1], sub_bits),
                  5: (address_bits[0], 99, 0), 6: (99, 99, 0), 7: (address_bits[0], 0, 0), 8: (address_bits[0], 99, 0),
                  9: (99, 99, 0), 10: (20, address_bits[1], 99), 15: (99, 99, 0)}[op]
        if any(value >> bits for value, bits in zip((a, b, c), limits, strict=True)):
            return found | {Cause.RESERVED_BITS}
        return found | self.value_causes(ins)

    def value_causes(self, ins: Instruction) -> set[Cause]:
        arch, found, config = self.arch, set(), self.config
        op, flags, b, c = ins.opcode, ins.flags, ins.operand1, ins.operand2
        (near, near_stride), (far, far_stride) = self.isa.address(0, ins.operand0), self.isa.address(1, ins.operand1)
        if op in (1, 2):
            rows, pitch, far_pitch = (config[ROWS[op] + i] for i in range(3))
            far_depth, cause = arch.accumulator_depth, Cause.ACCUMULATOR_RANGE
            if op == 2 and flags < 4:
                far_depth = (arch.dram0_depth, arch.dram1_depth)[flags // 2]
                cause = (Cause.DRAM0_RANGE, Cause.DRAM1_RANGE)[flags // 2]
            further = max(map(self.further, self.rows_of_taps()), default=0) if op == 1 and config.get(0x0C) else 0
            if not (op == 1 and flags & 2) and near + further + c * near_stride + rows * pitch >= arch.local_depth:
                found.add(Cause.LOCAL_RANGE)
            if far + c * far_stride + rows * far_pitch >= far_depth:
                found.add(cause)
        if op == 3 and not flags & 1 and near + b * near_stride >= arch.local_depth:
            found.add(Cause.LOCAL_RANGE)
        if op == 5:
            if near + (arch.lut_depth - 1) * near_stride >= arch.local_depth:
                found.add(Cause.LOCAL_RANGE)
            if b > arch.lut_count:
                found.add(Cause.LUT_TABLE)
        if op == 7 and near + 6 * near_stride >= arch.local_depth:
            found.add(Cause.LOCAL_RANGE)
        if op == 8:
            if near + 255 * near_stride >= arch.local_depth:
                found.add(Cause.LOCAL_RANGE)
            if b == 0 or b > arch.activation_tables:
                found.add(Cause.LUT_TABLE)
        if op == 9:  # a legal one is another instruction by now
            found.add(Cause.REPEAT)
        if op == 10:
            if far + (c + 1) * far_stride > (arch.dram0_depth, arch.dram1_depth)[flags >> 1]:
                found.add((Cause.DRAM0_RANGE, Cause.DRAM1_RANGE)[flags >> 1])
            if ins.operand0 % 16 >= arch.sync_counters or ins.operand0 >> 4 >= (256 if flags & 1 else 2 ** arch.cores):
                found.add(Cause.SIGNAL)
        if op == 6 and b + 1 > arch.simd_loop_depth:
            found.add(Cause.LOOP_BODY)
        if op == 4:
            found |= self.simd_causes(flags, near, near_stride, far, far_stride, c)
        if op == 15:
            found |= self.configure_causes(ins.operand0, b)
        return found

    def simd_causes(self, flags: int, write: int, write_stride: int, read: int, read_stride: int, c: int) -> set[Cause]:
        found = set()
        k = self.loop[0] - 1 if self.loop else 0
        if flags & 1 and read + (0 if flags & 8 else k * read_stride) >= self.arch.accumulator_depth:
            found.add(Cause.ACCUMULATOR_RANGE)
        if flags & 2 and write + k * write_stride >= self.arch.accumulator_depth:
            found.add(Cause.ACCUMULATOR_RANGE)
        code, left, right, destination = self.isa.unpack_sub(c)
        if code > (16 if self.arch.lut_count else 15):
            return found | {Cause.SIMD_OPCODE}
        named = [destination] + [left] * (code in ONE_SOURCE | TWO_SOURCES) + [right] * (code in TWO_SOURCES)
        if code == 16:
            named.append(destination + self.arch.lut_count)
        if max(named) > self.arch.simd_registers_depth:
            found.add(Cause.SIMD_REGISTER)
        return found

    def configure_causes(self, register: int, value: int) -> set[Cause]:
        arch = self.arch
        if register not in self.config:
            return {Cause.REGISTER}
        near = 2 ** (arch.local_depth - 1).bit_length() - 1
        acc = 2 ** (arch.accumulator_depth - 1).bit_length() - 1
        far = max(acc, *(2 ** (depth - 1).bit_length() - 1 for depth in (arch.dram0_depth, arch.dram1_depth)))
        most = {0x01: 15, 0x05: 15, 0x08: 0xFFFF, 0x09: 2 ** 32 - 1, 0x0A: 2 ** 32 - 1, 0x0B: 0xFFFF, 0x10: near,
                0x0C: 3, 0x17: 3, 0x11: near, 0x12: acc, 0x14: near, 0x15: near, 0x16: far, 0x18: self.acc_width - 1,
                0x19: 42 if self.int8 else self.acc_width - 1, 0x1A: 255, 0x1B: 255, 0x1C: 2 ** 17 - 1, 0x1D: 255,
                0x1E: arch.activation_tables, 0x0F: 7, 0x1F: near, 0x0D: 2 ** (self.w - 1) - 1, 0x0E: 2 ** 16 - 1}
        if register in (0, 4):
            window = (arch.dram0_depth, arch.dram1_depth)[register // 4] * arch.vector_bytes
            bad = value * 65536 + window > 2 ** arch.axi_address_width or value >= 2 ** 32
        elif register in (0x18, 0x19) and not self.exact:
            bad = value != self.p
        else:
            bad = value > most[register]
        return {Cause.REGISTER_VALUE} if bad else set()

    # -- running ---------------------------------------------------------------------------------------------------
    def run(self, program: bytes) -> None:
        size = self.isa.instruction_bytes
        for start in range(0, len(program), size):
            word = self.isa.decode(int.from_bytes(program[start:start + size], "little"))
            legal = word.opcode == 9 and word.flags == word.operand2 == 0
            if self.arch.repeat_depth and legal and word.operand0 < min(self.arch.repeat_depth, len(self.before)):
                for _ in range(word.operand1 + 1):
                    self.step(self.repeated(len(self.before) - word.operand0 - 1))
            else:
                self.step(word)

    def repeated(self, source: int) -> Instruction:
        """What comes next where the instruction at ``source`` of all before is repeated."""
        old = self.before[source]
        if old.opcode == 15:
            return old
        latest, then = self.alike(old, len(self.before)), self.alike(old, source)
        a, b = (now + mine - base for now, mine, base in zip(latest, (old.operand0, old.operand1), then, strict=True))
        return old._replace(operand0=a % 2 ** self.isa.operand_widths[0], operand1=b % 2 ** self.isa.operand_widths[1])

    def alike(self, ins: Instruction, end: int) -> tuple[int, int]:
        """Operands 0 and 1 of the last instruction like this one before ``end``."""
        for old in reversed(self.before[:end]):
            if old.opcode == ins.opcode and (ins.opcode != 2 or old.flags == ins.flags):
                return old.operand0, old.operand1
        return 0, 0

    def step(self, ins: Instruction) -> None:
        found = self.causes(ins)
        if found:
            raise Refused(min(found), self.pc)
        self.pc = (self.pc + 1) % 2 ** 32
        self.before.append(ins)
        {0: lambda ins: None, 1: self.mat_mul, 2: self.data_move, 3: self.load_weight, 4: self.simd, 5: self.load_lut,
         6: self.simd_loop, 7: self.load_scale, 8: self.load_activation_table, 10: self.signal,
         15: self.configure}[ins.opcode](ins)

    def rescale_input(self, value: int) -> int:
        if self.int8:
            return value
        return clip(value * 2 ** self.config[0x18], self.acc_width) if self.exact else value

    def requantize(self, value: int) -> int:
        if self.int8:
            return clip(value, 8)
        return clip(rounded(value, self.config[0x19]), self.w) if self.exact else value

    def put(self, address: int, lane: int, value: int, accumulate: int) -> None:
        self.acc[address][lane] = clip((self.acc[address][lane] if accumulate else 0) + value, self.acc_width)

    def pairs(self, ins: Instruction) -> list[tuple[int, int]]:
        (near, near_stride), (far, far_stride) = self.isa.address(0, ins.operand0), self.isa.address(1, ins.operand1)
        rows, pitch, far_pitch = (self.config[ROWS[ins.opcode] + i] for i in range(3))
        return [(near + k * near_stride + r * pitch, far + k * far_stride + r * far_pitch)
                for r in range(rows + 1) for k in range(ins.operand2 + 1)]

    def rows_of_taps(self) -> list[int]:
        return [row for row in (0, 1, 2) if self.config.get(0x0F, 1) >> row & 1]

    def further(self, row: int) -> int:
        """Vectors by which what a row of taps meets lies behind the address."""
        return (row - self.rows_of_taps()[0]) * self.config.get(0x1F, 0)

    def depthwise(self, ins: Instruction) -> None:
        """Output k of a row is the bias and, for each row of taps, three products for each side, the last tap's
        first: tap t meets vector k + t - origin of what the row of taps meets."""
        origin, sides, length = self.config[0x0C] - 1, 2 if self.int8 else 1, ins.operand2 + 1
        zero = signed_byte(self.config[0x1A]) if self.int8 else 0
        pairs = self.pairs(ins)
        for start in range(0, len(pairs), length):
            row = pairs[start:start + length]
            for k in range(length - self.config[0x17]):
                for lane in range(self.arch.array_size):
                    y = 0 if self.int8 else self.rescale_input(self.weights[0][lane])
                    for weight in range(self.arch.depthwise_taps * sides):
                        tap, side, line = 2 - weight // sides % 3, weight % sides, weight // sides // 3
                        meets, x = k + tap - origin, 0
                        if 0 <= meets < length and line in self.rows_of_taps() and not ins.flags & 2:
                            x = self.local[row[meets][0] + self.further(line)][lane - lane % sides + side] - zero
                        factor = self.weights[1 + weight][lane]
                        product = x * (max(factor, -127) if self.int8 else factor)
                        y = y + product if self.exact else clip(rounded(product + y * 2 ** self.p, self.p), self.w)
                    self.put(row[k][1], lane, y, ins.flags & 1)

    def mat_mul(self, ins: Instruction) -> None:
        if self.config.get(0x0C):
            self.depthwise(ins)
            return
        lanes = range(self.arch.array_size)
        for near, far in self.pairs(ins):
            inputs = [0] * len(lanes) if ins.flags & 2 else list(self.local[near])
            for column in lanes:
                y = 0 if self.int8 else self.rescale_input(self.weights[0][column])
                for lane in lanes:
                    product = inputs[lane] * self.weights[1 + lane][column]
                    if self.int8:
                        zero = 0 if ins.flags & 2 else signed_byte(self.config[0x1A])
                        product = (inputs[lane] - zero) * max(self.weights[1 + lane][column], -127)
                    y = y + product if self.exact else clip(rounded(product + y * 2 ** self.p, self.p), self.w)
                self.put(far, column, y, ins.flags & 1)

    def data_move(self, ins: Instruction) -> None:
        flow, lanes = ins.flags, range(self.arch.array_size)
        scalar = self.arch.number.scalar_bytes
        for near, far in self.pairs(ins):
            for lane in lanes:
                if flow in (12, 14):
                    self.local[near][lane] = self.moved_out(self.acc[far][lane], lane, relu=flow == 14)
                elif flow in (13, 15):
                    self.put(far, lane, self.moved_in(self.local[near][lane]), flow == 15)
                else:
                    port = flow // 2
                    at = self.config[4 * port] * 65536 + far * self.arch.vector_bytes + lane * scalar
                    self.move_scalar(self.dram[port], at, near, lane, to_dram=bool(flow & 1))

    def moved_in(self, value: int) -> int:
        if self.int8:
            return (value - signed_byte(self.config[0x1B])) * self.config[0x1C]
        return self.rescale_input(value)

    def moved_out(self, value: int, lane: int, *, relu: bool) -> int:
        if not self.int8:
            value = self.requantize(value)
            if not relu:
                return value
            if value < 0:
                slope = self.config.get(0x0E, 0)
                value = clip(rounded(value * (slope - 65536 if slope > 32767 else slope), 14), self.w)
            return min(value, self.config.get(0x0D, value))
        multiplier, bias = self.scale[lane]
        zero = signed_byte(self.config[0x1D])
        result = clip(rounded(clip(value + bias, 25) * multiplier, self.config[0x19]) + zero, 8)
        result = max(result, zero) if relu else result
        table = self.config.get(0x1E, 0)
        return self.activation_tables[table - 1][result + 128][lane] if table else result

    def load_activation_table(self, ins: Instruction) -> None:
        near, stride = self.isa.address(0, ins.operand0)
        self.activation_tables[ins.operand1 - 1] = [list(self.local[near + k * stride]) for k in range(256)]

    def signal(self, ins: Instruction) -> None:
        """This machine is core 0, and alone."""
        counter, above = ins.operand0 % 16, ins.operand0 >> 4
        self.held[counter] += -above if ins.flags & 1 else above % 2
        assert self.held[counter] >= 0, "a wait that lasts for ever"

    def load_scale(self, ins: Instruction) -> None:
        near, stride = self.isa.address(0, ins.operand0)
        for lane in range(self.arch.array_size):
            code = bytes(self.local[near + k * stride][lane] % 256 for k in range(7))
            self.scale[lane] = (int.from_bytes(code[:3], "little") % 2 ** self.arch.multiplier_width,
                                int.from_bytes(code[3:], "little", signed=True))

    def move_scalar(self, dram: dict[int, int], at: int, near: int, lane: int, *, to_dram: bool) -> None:
        scalar = self.arch.number.scalar_bytes
        if to_dram:
            for k, byte in enumerate(self.local[near][lane].to_bytes(scalar, "little", signed=True)):
                dram[at + k] = byte
            return
        bits = sum(dram.get(at + k, 0) << 8 * k for k in range(scalar)) % 2 ** self.w
        self.local[near][lane] = bits - 2 ** self.w if bits >> (self.w - 1) else bits

    def load_weight(self, ins: Instruction) -> None:
        near, stride = self.isa.address(0, ins.operand0)
        for k in range(ins.operand1, -1, -1):
            self.shift_in([0] * self.arch.array_size if ins.flags & 1 else list(self.local[near + k * stride]))
        if ins.flags & 2:
            self.shift_in([0] * self.arch.array_size)

    def shift_in(self, row: list[int]) -> None:
        self.weights.insert(0, row)
        self.weights.pop()

    def simd_loop(self, ins: Instruction) -> None:
        self.loop = ins.operand0 + 1, ins.operand1 + 1, []

    def simd(self, ins: Instruction) -> None:
        if self.loop is None:
            self.simd_once(ins, 0, self.simd_registers)
            return
        iterations, length, body = self.loop
        body.append(ins)
        if len(body) == length:
            self.loop = None
            for k in range(iterations):
                registers = [list(register) for register in self.simd_registers]
                for each in body:
                    self.simd_once(each, k, registers)

    def simd_once(self, ins: Instruction, k: int, registers: list[list[int]]) -> None:
        write, write_stride = self.isa.address(0, ins.operand0)
        read, read_stride = self.isa.address(1, ins.operand1)
        code, left, right, destination = self.isa.unpack_sub(ins.operand2)
        read += 0 if ins.flags & 8 else k * read_stride
        write += k * write_stride
        for lane in range(self.arch.array_size):
            sources = [self.requantize(self.acc[read][lane]) if ins.flags & 1 else 0,
                       *(register[lane] for register in registers)]
            x = sources[left] if code in ONE_SOURCE | TWO_SOURCES else sources[0]
            y = sources[right] if code in TWO_SOURCES else 0
            if code == 16:
                result, values = self.look_up(x, lane)
                for i, value in enumerate(values):
                    registers[destination + i][lane] = value
            else:
                result = self.alu(code, x, y)
            if destination and code:  # NoOp writes none
                registers[destination - 1][lane] = result
            if ins.flags & 2:
                self.put(write, lane, self.rescale_input(result), ins.flags & 4)

    def alu(self, code: int, x: int, y: int) -> int:
        one, w = 2 ** self.p, self.w
        return [lambda: x, lambda: 0, lambda: x, lambda: one * (x == 0), lambda: one * (x != 0 and y != 0),
                lambda: one * (x != 0 or y != 0), lambda: clip(x + one, w), lambda: clip(x - one, w),
                lambda: clip(x + y, w), lambda: clip(x - y, w), lambda: clip(rounded(x * y, self.p), w),
                lambda: clip(abs(x), w), lambda: one * (x > y), lambda: one * (x >= y), lambda: min(x, y),
                lambda: max(x, y)][code]()

    def look_up(self, x: int, lane: int) -> tuple[int, list[int]]:
        first, second = self.luts[0][0][lane], self.luts[0][1][lane]
        step = second - first
        log2 = 0
        while step and step % 2 ** (log2 + 1) == 0:
            log2 += 1
        spacing = 2 ** (log2 if step else self.w - 1)
        index = min(max((x - first + spacing // 2) // spacing, 0), self.arch.lut_depth - 1)
        return clip(x - (first + index * spacing), self.w), [table[index][lane] for table in self.luts[1:]]

    def load_lut(self, ins: Instruction) -> None:
        near, stride = self.isa.address(0, ins.operand0)
        self.luts[ins.operand1] = [list(self.local[near + k * stride]) for k in range(self.arch.lut_depth)]

    def configure(self, ins: Instruction) -> None:
        self.config[ins.operand0] = ins.operand1
        if ins.operand0 == 0x0A:
            self.pc = ins.operand1
