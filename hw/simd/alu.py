# SPDX-License-Identifier: Apache-2.0
"""The ALUs of all lanes: every SIMD operation but Lookup."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw.array.multiplier import Multiplier
from weft.hw.contract.instructions import SimdOpcode as Op
from weft.hw.contract.numerics import DataType
from weft.hw.contract.timing import ALU_LATENCY
from weft.hw.parts import fixed_point


def opcode_is(opcode: Value, *which: Op) -> Value:
    """Return whether a 5-bit opcode is one of these."""
    return Cat(opcode == one for one in which).any()


SWAPPED = Op.ABS, Op.GREATER_THAN
"""The operations that get their arguments the other way round, so that one subtraction, left - right, serves all."""
BY_ONE = Op.INCREMENT, Op.DECREMENT


LEFT, RIGHT, TOTAL, CONSTANT = range(4)
"""The values a result is chosen from: an argument, their sum or difference, or a truth or an end of the range."""
CHOICES = {
    (Op.MIN,): (LEFT, RIGHT), (Op.MAX,): (RIGHT, LEFT), (Op.ABS,): (RIGHT, TOTAL),
    (Op.INCREMENT, Op.DECREMENT, Op.ADD, Op.SUBTRACT): (TOTAL, TOTAL),
    (Op.NOT, Op.AND, Op.OR, Op.GREATER_THAN, Op.GREATER_THAN_EQUAL): (CONSTANT, CONSTANT),
}
"""Operations -> the choice if left - right is negative, and if it is not. All others pass the left argument."""
CONTROL = data.StructLayout({"when_less": 2, "when_not_less": 2, "saturates": 1, "is_truth": 1, "uses_logic": 1,
                             "when_less_true": 1})
"""The control bits of the result multiplexer."""


def control(told: Any, opcode: Value) -> list:
    """Return statements that fill a CONTROL for an opcode."""
    def chosen(side: int) -> Value:
        result: Value = Const(LEFT, 2)
        for operations, choices in CHOICES.items():
            result = Mux(opcode_is(opcode, *operations), choices[side], result)
        return result

    return [
        told.when_less.eq(chosen(0)), told.when_not_less.eq(chosen(1)),
        told.saturates.eq(chosen(1) == TOTAL), told.is_truth.eq(chosen(1) == CONSTANT),
        told.uses_logic.eq(opcode_is(opcode, Op.NOT, Op.AND, Op.OR)),
        told.when_less_true.eq(opcode == Op.GREATER_THAN),
    ]


class Alu(wiring.Component):
    """``result`` of ``opcode`` on ``left`` and ``right``, LATENCY cycles later; free running, one operation a cycle.

    Meaning: ``reference.simd_reference``, for arguments that ``operands`` prepared: Zero and Abs have 0 on the left,
    Increment and Decrement 1.0 on the right, Abs and GreaterThan are swapped. NoOp and Zero pass ``left``. Lookup
    gives anything. Each lane has one multiplier."""

    LATENCY = ALU_LATENCY

    def __init__(self, data_type: DataType, lane_count: int) -> None:
        self._data_type, self._lane_count = data_type, lane_count
        row = data.ArrayLayout(signed(data_type.width), lane_count)
        super().__init__({"opcode": In(unsigned(5)), "left": In(row), "right": In(row), "result": Out(row)})

    @staticmethod
    def operands(data_type: DataType, opcode: Op, left: Any, right: Any) -> tuple[Any, Any]:
        """Return the (left, right) to give the ALU for an instruction's arguments: numbers, or arrays of any shape."""
        first, second = (right, left) if opcode in SWAPPED else (left, right)
        return (first * 0 if opcode in (Op.ZERO, Op.ABS) else first,
                second * 0 + data_type.one if opcode in BY_ONE else second)

    def elaborate(self, platform: Any) -> Module:
        """Return the circuit: the opcode's decoding, shared by all lanes, and the lanes."""
        m = Module()
        # Opcode in the cycles in which stages 1 and 2 hold its operation; what they are told is decoded a cycle ahead.
        opcodes = [Signal(unsigned(5), reset_less=True, name=f"opcode_{stage}") for stage in (1, 2)]
        self._add, self._multiply = Signal(reset_less=True), Signal(reset_less=True)
        self._logic_of, self._control = opcodes[0], Signal(CONTROL, reset_less=True)
        m.d.sync += [
            opcodes[0].eq(self.opcode), opcodes[1].eq(opcodes[0]),
            self._add.eq(opcode_is(self.opcode, Op.INCREMENT, Op.ADD)), self._multiply.eq(opcodes[1] == Op.MULTIPLY),
            *control(self._control, opcodes[0]),
        ]
        for lane in range(self._lane_count):
            self._lane(m, lane)
        return m

    def _lane(self, m: Module, lane: int) -> None:
        """Make one lane: a multiplier and the other operations side by side, then the rounding that both go through."""
        width, point = self._data_type.width, self._data_type.point

        def register(name: str, bits: int = width) -> Signal:
            return Signal(signed(bits), reset_less=True, name=f"{name}_{lane}")

        left, right, wide = (register(name, bits) for name, bits in (
            ("left", width), ("right", width), ("product", 2 * width)))
        m.submodules[f"multiplier_{lane}"] = multiplier = Multiplier(width, width)
        simple, result = register("simple"), register("result")
        multiply, shift = self._multiply, Const(point)
        rounded, kept = (Signal(width + 1, name=f"{name}_{lane}") for name in ("rounded", "kept"))
        m.d.comb += [
            rounded.eq(fixed_point.round_off(fixed_point.cut(
                wide, shift, fixed_point.reached(shift, len(wide)), width), shift, width)),
            kept.eq(Mux(multiply, rounded, Cat(Const(0, 1), simple))),  # through the same carry chain
        ]
        m.d.sync += [
            left.eq(self.left[lane]), right.eq(self.right[lane]),
            wide.eq(multiplier.product),  # stage 3 of the DSP block too
            simple.eq(self._simple(m, lane, left, right)),
            result.eq(fixed_point.add_up(kept)),
        ]
        m.d.comb += [
            multiplier.left.eq(self.left[lane]), multiplier.right.eq(self.right[lane]), multiplier.take_right.eq(1),
            self.result[lane].eq(result),
        ]

    def _simple(self, m: Module, lane: int, left: Signal, right: Signal) -> Value:
        """Return the result of every operation but Multiply, for stage 3.

        Stage 2 has one adder and one comparison; a choice follows."""
        width, one, add, told = self._data_type.width, self._data_type.one, self._add, self._control
        total = Signal(signed(width + 1), reset_less=True, name=f"total_{lane}")
        logic = Signal(reset_less=True, name=f"logic_{lane}")
        arguments = [Signal(width, reset_less=True, name=f"{name}_2_{lane}") for name in ("left", "right")]
        m.d.sync += [
            total.eq(fixed_point.add_with_carry(left, right ^ (~add).replicate(width).as_signed(), ~add)),
            arguments[0].eq(left), arguments[1].eq(right), logic.eq(left.any() | right.any()),
        ]
        with m.Switch(self._logic_of):
            with m.Case(Op.NOT):
                m.d.sync += logic.eq(~left.any())
            with m.Case(Op.AND):
                m.d.sync += logic.eq(left.any() & right.any())
        less, over = total[-1], total[-1] ^ total[-2]
        truth, choice = Signal(name=f"truth_{lane}"), Signal(2, name=f"choice_{lane}")
        m.d.comb += [
            truth.eq(Mux(told.uses_logic, logic, less ^ ~told.when_less_true)),  # also the way to saturate
            choice.eq(Mux(told.saturates & over, CONSTANT, Mux(less, told.when_less, told.when_not_less))),
        ]
        # A multiplexer of four, a 6-input table a bit.
        constant = Mux(told.is_truth, Mux(truth, one, 0), Cat((~less).replicate(width - 1), less))
        return Mux(choice[1], Mux(choice[0], constant, total[:width]), Mux(choice[0], arguments[1], arguments[0]))
