# SPDX-License-Identifier: Apache-2.0
"""What the hardware's decoder must hand on for a program: the golden decoder and checks, without the machine behind."""

from __future__ import annotations

from typing import Any

from weft.golden.check import Checker
from weft.golden.decode import (
    Configure,
    DataMove,
    Decoder,
    Depthwise,
    LoadActivationTable,
    LoadLut,
    LoadScale,
    LoadWeight,
    MatMul,
    NoOp,
    Signal,
    Simd,
    SimdLoop,
)
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import DataFlow, SimdOpcode, SimdSub
from weft.hw.contract.isa import Isa
from weft.hw.contract.registers import Register
from weft.hw.contract.walk import Walk
from weft.hw.parts.operations import SimdKind, size_width, turns_layout

UNIT_OF_FLOW = {
    DataFlow.DRAM0_TO_LOCAL: "dram0_read", DataFlow.LOCAL_TO_DRAM0: "dram0_write",
    DataFlow.DRAM1_TO_LOCAL: "dram1_read", DataFlow.LOCAL_TO_DRAM1: "dram1_write",
    DataFlow.ACCUMULATOR_TO_LOCAL: "move_out", DataFlow.ACCUMULATOR_TO_LOCAL_RELU: "move_out",
    DataFlow.LOCAL_TO_ACCUMULATOR: "move_in", DataFlow.LOCAL_TO_ACCUMULATOR_ACCUMULATE: "move_in",
}
ON_A_SHARED_PORT = {"dram0_read": "dram_read", "dram0_write": "dram_write", "dram1_read": "dram_read",
                    "dram1_write": "dram_write"}
Fields = dict[str, Any]
"""Dotted name of a field of ``issue_layout`` -> value, ``unit`` as a name; only the fields that mean something."""


def _number(kind: Any) -> int:
    """Return the number of a SimdKind; Amaranth makes its members at run time."""
    return kind.value


class DecodeReference:
    """The decoder's reference: ``step`` takes one raw instruction.

    ``program_counter`` and ``registers`` are those of the next instruction."""

    def __init__(self, arch: Arch) -> None:
        self.arch, self.isa = arch, Isa(arch)
        self.registers = {register: spec.reset for register, spec in self.isa.registers.items()}
        self.checker = Checker(self.isa, Decoder(self.isa, self.registers))
        self.program_counter = 0
        self.loop: tuple[int, int] | None = None
        """Iterations, body instructions still to come."""
        self.weights_waiting = True
        """Loaded since the last MatMul, or before the reset, which keeps them."""
        self.loads = self.swaps = 0

    def step(self, raw: int) -> Cause | Fields | None:
        """Return the cause of an illegal instruction, None for one that ends in the decoder, else what is handed on."""
        instruction = self.isa.decode(raw)
        operation = self.checker.check(instruction, self.loop[0] if self.loop else None)
        if isinstance(operation, Cause):
            return operation
        fields = getattr(self, f"_{type(operation).__name__}")(operation)
        common = {"program_counter": self.program_counter, "flags": instruction.flags}
        self.program_counter = (self.program_counter + 1) % (1 << 32)
        if isinstance(operation, Configure) and operation.register == Register.PROGRAM_COUNTER:
            self.program_counter = operation.value
        if fields is None:
            return None
        nowhere = {"local0": 0, "accumulators0": 0, "range1": 0, "in_loop": 0, "rows_m1": 0}
        return {**nowhere, **common, **fields}

    @staticmethod
    def _walk(operand: int, walk: Walk) -> Fields:
        fields = {"base": walk.base, "stride_log2": walk.stride.bit_length() - 1, "last": walk.last}
        if walk.rows > 1:
            fields["pitch"] = walk.pitch
        return {f"operand{operand}.{name}": value for name, value in fields.items()}

    def _shifts(self) -> Fields:
        """Return the fields of the Configure registers that rescale and requantize."""
        if self.arch.data_type == "INT8":
            places = {"activation_zero_point": 0x1A, "input_zero_point": 0x1B, "input_multiplier": 0x1C,
                      "scale_shift": 0x19, "output_zero_point": 0x1D}
            if self.arch.activation_tables:
                places["activation_table"] = 0x1E
            values = {name: self.registers[Register(number)] for name, number in places.items()}
            values |= self._taps()
            return {name: value - 256 if name.endswith("zero_point") and value > 127 else value
                    for name, value in values.items()}
        return {"input_shift": self.registers[Register.INPUT_SHIFT],
                "output_shift": self.registers[Register.OUTPUT_SHIFT], **self._taps(), **self._output_functions()}

    def _output_functions(self) -> Fields:
        places = {"output_maximum": 0x0D, "output_slope": 0x0E}
        values = {name: self.registers[Register(number)] for name, number in places.items()
                  if getattr(self.arch, name)}
        return {name: value - 65536 if name == "output_slope" and value > 32767 else value
                for name, value in values.items()}

    def _taps(self) -> Fields:
        if not self.arch.depthwise_taps:
            return {}
        places = {"tap_origin": 0x0C, "tap_dropped": 0x17}
        if self.arch.depthwise_taps == 9:
            places |= {"tap_rows": 0x0F, "tap_pitch": 0x1F}
        return {name: self.registers[Register(number)] for name, number in places.items()}

    def _NoOp(self, operation: NoOp) -> None:
        return None

    def _Configure(self, operation: Configure) -> None:
        self.registers[Register(operation.register)] = operation.value

    def _turns(self) -> Fields:
        layout = turns_layout(self.arch)
        return {f"turns.{name}": count % (1 << layout[name].width)
                for name, count in (("loads", self.loads), ("swaps", self.swaps))}

    def _MatMul(self, operation: MatMul) -> Fields:
        swap, self.weights_waiting = self.weights_waiting, False
        local = {"local0": 1, **self._walk(0, operation.local)} if operation.local else {}
        far = operation.accumulator
        turns, self.swaps = self._turns(), self.swaps + swap
        return {"unit": "mat_mul", "swap": swap, "range1": 1, **turns, **local, **self._walk(1, far), **self._shifts(),
                "size_m1": far.size - 1, "rows_m1": far.rows - 1}

    def _Depthwise(self, operation: Depthwise) -> Fields:
        fields = self._MatMul(MatMul(*operation[:3]))
        if operation.local and operation.rows:
            fields["operand0.last"] += (operation.rows[-1] - operation.rows[0]) * operation.pitch
        return fields

    def _DataMove(self, operation: DataMove) -> Fields:
        far, memory = operation.far, operation.flow.far_memory.upper()
        place = self._shifts() if memory == "ACCUMULATOR" else {
            "window": self.registers[Register[f"{memory}_OFFSET"]],
            "cache": self.registers[Register[f"{memory}_CACHE"]]}
        unit = UNIT_OF_FLOW[operation.flow]
        if self.arch.dram_ports == "shared" and unit in ON_A_SHARED_PORT:
            unit, place["dram1"] = ON_A_SHARED_PORT[unit], int(memory == "DRAM1")
        return {"unit": unit, "local0": 1, "range1": 1, **place,
                **self._walk(0, operation.local), **self._walk(1, far),
                "size_m1": far.size - 1, "rows_m1": far.rows - 1}

    def _LoadWeight(self, operation: LoadWeight) -> Fields:
        """Return the fields of a LoadWeight.

        Zeros beyond a full column change nothing, so their number is cut there."""
        self.weights_waiting = True
        turns, self.loads = self._turns(), self.loads + 1
        if operation.local is None:
            return {"unit": "load_weight", **turns, "size_m1": min(operation.size - 1, self.arch.array_size)}
        return {"unit": "load_weight", "local0": 1, **turns, **self._walk(0, operation.local),
                "size_m1": operation.size - 1}

    def _Simd(self, operation: Simd) -> Fields:
        iterations, left = self.loop or (1, 0)
        sub = SimdSub(SimdOpcode(operation.opcode), operation.left, operation.right, operation.destination)
        fields = {"unit": "simd", "simd_kind": _number(SimdKind.INSTRUCTION), **self._shifts(), "in_loop": left > 0,
                  "loop_last": left == 1, "sub": self.isa.pack_sub(sub)}
        if operation.write is not None:
            fields |= {"accumulators0": 1, **self._walk(0, Walk(operation.write, iterations, operation.write_stride))}
        if operation.read is not None:
            fields["range1"] = 1
            if operation.read_stride:
                fields |= self._walk(1, Walk(operation.read, iterations, operation.read_stride))
            else:
                fields |= {"operand1.base": operation.read, "operand1.last": operation.read}
        self.loop = (iterations, left - 1) if left > 1 else None
        return fields

    def _SimdLoop(self, operation: SimdLoop) -> Fields:
        """Return the fields of a loop's header.

        More iterations than any memory has vectors are legal while no body instruction touches a memory."""
        self.loop = operation.iterations, operation.body
        return {"unit": "simd", "simd_kind": _number(SimdKind.LOOP), "body_m1": operation.body - 1,
                "size_m1": operation.iterations - 1 & (1 << size_width(self.arch)) - 1}

    def _LoadScale(self, operation: LoadScale) -> Fields:
        return {"unit": "move_out", "load_scale": 1, "local0": 1, **self._walk(0, operation.local), "size_m1": 6}

    def _LoadActivationTable(self, operation: LoadActivationTable) -> Fields:
        return {"unit": "move_out", "load_table": 1, "load_scale": 0, "activation_table": operation.table, "local0": 1,
                **self._walk(0, operation.local), "size_m1": 255}

    def _Signal(self, operation: Signal) -> Fields:
        target = operation.above << 4 | operation.counter
        return {"unit": "sync", "range1": 1, "dram1": int(operation.dram1), "target": target,
                "operand1.base": operation.far.base, "operand1.last": operation.far.last}

    def _LoadLut(self, operation: LoadLut) -> Fields:
        return {"unit": "simd", "simd_kind": _number(SimdKind.LOAD_LUT), "table": operation.table, "local0": 1,
                **self._walk(0, operation.local)}
