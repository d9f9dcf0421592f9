"""The ALUs of all lanes: every SIMD operation but Lookup."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from weft.hw import fixed_point
from weft.hw.isa import SimdOpcode as Op
from weft.hw.numerics import DataType
from weft.hw.timing import ALU_LATENCY


def opcode_is(opcode: Value, *which: Op) -> Value:
    """Whether a 5-bit opcode is one of these."""
    return Cat(opcode == one for one in which).any()


SWAPPED = Op.ABS, Op.GREATER_THAN
"""Operations that get their arguments the other way round, so that one subtraction, left - right, serves all."""
BY_ONE = Op.INCREMENT, Op.DECREMENT


class Alu(wiring.Component):
    """``opcode``, ``left``, ``right`` in, ``result`` out, LATENCY cycles later; free running, one operation a cycle.

    Meaning: ``reference.simd_reference``, for arguments made ready by ``operands``: Zero and Abs have 0 on the left,
    Increment and Decrement 1.0 on the right, Abs and GreaterThan are swapped. NoOp and Zero pass ``left``. Lookup gives
    anything. One multiplier a lane.
    """

    LATENCY = ALU_LATENCY

    def __init__(self, data_type: DataType, lane_count: int) -> None:
        self._data_type, self._lane_count = data_type, lane_count
        row = data.ArrayLayout(signed(data_type.width), lane_count)
        super().__init__({"opcode": In(unsigned(5)), "left": In(row), "right": In(row), "result": Out(row)})

    @staticmethod
    def operands(data_type: DataType, opcode: Op, left: Any, right: Any) -> tuple[Any, Any]:
        """What to give as ``left`` and ``right`` (numbers or arrays) for an instruction's arguments."""
        first, second = (right, left) if opcode in SWAPPED else (left, right)
        return (first * 0 if opcode in (Op.ZERO, Op.ABS) else first,
                second * 0 + data_type.one if opcode in BY_ONE else second)

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        # Opcode in the cycles in which stage 1, 2 and 3 hold its operation.
        opcodes = [Signal(unsigned(5), reset_less=True, name=f"opcode_{stage}") for stage in (1, 2, 3)]
        m.d.sync += [opcodes[0].eq(self.opcode), opcodes[1].eq(opcodes[0]), opcodes[2].eq(opcodes[1])]
        for lane in range(self._lane_count):
            self._lane(m, lane, opcodes)
        return m

    def _lane(self, m: Module, lane: int, opcodes: list[Signal]) -> None:
        width, point = self._data_type.width, self._data_type.point

        def register(name: str, bits: int = width) -> Signal:
            return Signal(signed(bits), reset_less=True, name=f"{name}_{lane}")

        left, right, product, wide = (register(name, bits) for name, bits in (
            ("left", width), ("right", width), ("multiplier", 2 * width), ("product", 2 * width)))
        simple, result = register("simple"), register("result")
        multiply, shift = opcodes[2] == Op.MULTIPLY, Const(point)
        rounded = Signal(width + 2, name=f"rounded_{lane}")
        over, limit = fixed_point.limits(rounded, width)
        m.d.comb += rounded.eq(fixed_point.round_off(fixed_point.cut(wide, shift, width), shift, width))
        m.d.sync += [
            left.eq(self.left[lane]), right.eq(self.right[lane]),  # stages 1, 2, 3 inside a DSP block
            product.eq(left * right),
            wide.eq(product),
            simple.eq(self._simple(m, lane, left, right, opcodes)),
            result.eq(Mux(multiply & over, limit, Mux(multiply, rounded[:width], simple))),
        ]
        m.d.comb += self.result[lane].eq(result)

    def _simple(self, m: Module, lane: int, left: Signal, right: Signal, opcodes: list[Signal]) -> Value:
        """What stage 3 takes for all but Multiply: one adder, and flags, in stage 2; the choice after it."""
        width, one = self._data_type.width, self._data_type.one
        add = opcode_is(opcodes[0], Op.INCREMENT, Op.ADD)
        total = Signal(signed(width + 1), reset_less=True, name=f"total_{lane}")
        flags = Signal(data.StructLayout({"left": 1, "right": 1}), reset_less=True, name=f"flags_{lane}")
        arguments = [Signal(width, reset_less=True, name=f"{name}_2_{lane}") for name in ("left", "right")]
        m.d.sync += [
            total.eq(fixed_point.add_with_carry(left, right ^ (~add).replicate(width).as_signed(), ~add)),
            flags.left.eq(left.any()), flags.right.eq(right.any()),
            arguments[0].eq(left), arguments[1].eq(right),
        ]
        less, over = total[-1], total[-1] ^ total[-2]
        take_right, take_total, truth = (Signal(name=f"{name}_{lane}") for name in (
            "take_right", "take_total", "truth"))
        m.d.comb += truth.eq(~less)  # also the way to saturate
        with m.Switch(opcodes[1]):
            with m.Case(Op.NOT):
                m.d.comb += truth.eq(~flags.left)
            with m.Case(Op.AND):
                m.d.comb += truth.eq(flags.left & flags.right)
            with m.Case(Op.OR):
                m.d.comb += truth.eq(flags.left | flags.right)
            with m.Case(Op.GREATER_THAN):
                m.d.comb += truth.eq(less)
            with m.Case(Op.MIN):
                m.d.comb += take_right.eq(~less)
            with m.Case(Op.MAX):
                m.d.comb += take_right.eq(less)
            with m.Case(Op.ABS):
                m.d.comb += [take_right.eq(less), take_total.eq(~less)]
            with m.Case(Op.INCREMENT, Op.DECREMENT, Op.ADD, Op.SUBTRACT):
                m.d.comb += take_total.eq(1)
        # A multiplexer of four, a 6-input table a bit: left, right, total, a constant.
        is_truth = opcode_is(opcodes[1], Op.NOT, Op.AND, Op.OR, Op.GREATER_THAN, Op.GREATER_THAN_EQUAL)
        choice = Signal(2, name=f"choice_{lane}")
        m.d.comb += choice.eq(Cat(take_right | is_truth | (take_total & over), take_total | is_truth))
        constant = Mux(is_truth, Mux(truth, one, 0), Cat(truth.replicate(width - 1), ~truth))
        return Mux(choice[1], Mux(choice[0], constant, total[:width]), Mux(choice[0], arguments[1], arguments[0]))
