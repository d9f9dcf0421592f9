# SPDX-License-Identifier: Apache-2.0
"""One frozen description of a machine, read from a ``.tarch`` file (docs/machine/parameters.md).

Everything that follows from the parameters (byte sizes, bank depths, instruction widths) is derived here, in
``isa.py`` or in ``registers.py``. A machine that cannot be built is refused with what, found, allowed and way out.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from weft.hw.contract.arch_checks import check_together
from weft.hw.contract.instructions import COUNTER_WIDTH, Opcode
from weft.hw.contract.key_values import DRAM_OFFSET_BYTES, ONCE, ROW_TAPS, SEPARATE, SHARED, TAPS
from weft.hw.contract.keys import Affects, Compatibility, Key, key, rows_of
from weft.hw.contract.numerics import DataType, bits_to_count
from weft.hw.contract.packing import NO_PACKING, PACKINGS, PAIR, Packing
from weft.hw.contract.presets import find
from weft.hw.contract.schemes import FIXED_POINT_SCHEMES, MULTIPLIER_WIDTHS, TABLE_ENTRIES, Scheme, scheme_of
from weft.support.errors import ArchError, nearest
from weft.support.strict_json import read_object

_SAME, _OTHER_NUMBERS, _REFUSED = Compatibility.SAME, Compatibility.OTHER_NUMBERS, Compatibility.REFUSED
_NOTHING, _TIMING, _PROGRAM, _CONSTANTS = Affects.NOTHING, Affects.TIMING, Affects.PROGRAM, Affects.CONSTANTS


@dataclass(frozen=True, kw_only=True)
class Arch:
    """A machine: its fields are the table of architecture keys, a row each. Depths count vectors, widths bits."""

    data_type: str = key(
        "type of every scalar in local memory and DRAM: `FP<width>BP<point>`, width 4..32, or `INT8`",
        _CONSTANTS, _REFUSED)
    array_size: int = key("lanes: rows and columns of the array, scalars in a vector",
                          _CONSTANTS, _REFUSED, integers=(2, 256))
    dram0_depth: int = key("window of DRAM0: tensors between layers", _CONSTANTS, _REFUSED, integers=(2, 1 << 32))
    dram1_depth: int = key("window of DRAM1: constants, and odd channel tiles of tensors",
                           _CONSTANTS, _REFUSED, integers=(2, 1 << 32))
    local_depth: int = key("local memory", _PROGRAM, _REFUSED, integers=(2, 1 << 16), neutral=1 << 16)
    accumulator_depth: int = key("accumulators", _PROGRAM, _REFUSED, integers=(2, 1 << 16), neutral=1 << 16)
    simd_registers_depth: int = key("registers of the SIMD unit, for each lane",
                                    _CONSTANTS, _REFUSED, integers=(0, 16))
    stride0_depth: int = key("strides of operand 0: 1, 2, 4, ... so many of them",
                             _CONSTANTS, _REFUSED, integers=(1, 16))
    stride1_depth: int = key("strides of operand 1", _CONSTANTS, _REFUSED, integers=(1, 16))
    number_of_threads: int = key("accepted as the original tools write it, without effect: there is one stream of "
                                 "instructions", _NOTHING, _SAME, default=1, integers=(1, 1))
    thread_queue_depth: int = key("accepted as the original tools write it, without effect: each unit has a queue of "
                                  "its own (`deep_queues`)", _NOTHING, _SAME, default=8, integers=(1, 64))
    mac_rounding: str = key(
        "; ".join(f"`{name}`: {scheme.meaning}" for name, scheme in FIXED_POINT_SCHEMES.items()),
        _CONSTANTS, _OTHER_NUMBERS, default=ONCE, choices=tuple(FIXED_POINT_SCHEMES),
        choice_hint="use once, unless results of the original are to be matched")
    accumulator_width: int | None = key(
        "bits of an accumulator; default twice the data type's, with `every_step` the data type's, with `INT8` 32",
        _CONSTANTS, _OTHER_NUMBERS, default=None, integers=(4, 96))
    lut_count: int = key("lookup tables of the SIMD unit; 0 leaves Lookup out",
                         _CONSTANTS, _REFUSED, default=0, integers=(0, 16))
    lut_depth: int = key("entries of each lookup table", _CONSTANTS, _REFUSED, default=64, integers=(2, 1 << 12))
    simd_loop_depth: int = key("longest body of a SIMDLoop; 0 leaves the loop out",
                               _PROGRAM, _REFUSED, default=16, integers=(0, 64), neutral=0)
    local_banks: int = key("interleaved banks of local memory; default 2 where it has 2 or 3 vectors",
                           _TIMING, _SAME, default=4, integers=(1, 16), power_of_two=True, neutral=1)
    accumulator_banks: int = key("interleaved banks of the accumulators",
                                 _TIMING, _SAME, default=2, integers=(1, 16), power_of_two=True, neutral=1)
    axi_data_width: int = key("bits of each DRAM port",
                              _CONSTANTS, _SAME, default=64, integers=(32, 1024), power_of_two=True)
    axi_max_burst: int = key("longest burst, in beats",
                             _TIMING, _SAME, default=16, integers=(1, 256), power_of_two=True, neutral=1)
    axi_address_width: int = key("bits of a byte address",
                                 _NOTHING, _REFUSED, default=32, integers=(16, 64), neutral=64)
    stream_width: int = key("bits of the instruction stream",
                            _TIMING, _SAME, default=64, integers=(32, 1024), power_of_two=True)
    sample_block_size: int = key("performance samples between two `TLAST`",
                                 _NOTHING, _SAME, default=1024, integers=(1, 1 << 16))
    register_slices: int = key("1 cuts the handshakes between blocks: a faster clock for some cycles of latency",
                               _TIMING, _SAME, default=0, integers=(0, 1))
    dram_ports: str = key("`separate`: an AXI port for each DRAM window; `shared`: one for both, for less logic",
                          _PROGRAM, _SAME, default=SEPARATE, choices=(SEPARATE, SHARED),
                          choice_hint=f"use {SHARED} where the board has one port, else {SEPARATE}")
    deep_queues: int = key("1 lets each unit have 4 operations outstanding, not 2 (MatMul and SIMD 8, not 4)",
                           _TIMING, _SAME, default=0, integers=(0, 1))
    sampler: int = key("0 leaves performance samples out: `m_axis_sample` stays silent",
                       _NOTHING, _SAME, default=1, integers=(0, 1), neutral=0)
    dsp_packing: str = key("`none`, or the DSP block of a Xilinx chip that makes two products of `INT8`: `DSP48E1` "
                           "(7 series), `DSP48E2` (UltraScale)",
                           _PROGRAM, _SAME, default=NO_PACKING, choices=tuple(PACKINGS),
                           choice_hint=f"use the block of the chip, or {NO_PACKING}")
    decoder_multipliers: int = key(
        "0 makes the decoder's two products, rows x pitch, of look-up tables: two DSP blocks less",
        _TIMING, _SAME, default=1, integers=(0, 1))
    activation_tables: int = key("tables of 256 bytes for DataMoves out of the accumulators, with `INT8`; 0 leaves "
                                 "them out", _CONSTANTS, _REFUSED, default=0, integers=(0, 8), since=2,
                                 former="leave_tables")
    weight_load_rows: int = key("2 lets LoadWeight take two rows a cycle where they replace the whole column",
                                _PROGRAM, _SAME, default=1, integers=(1, 2), since=2, former="weight_rows")
    repeat_depth: int = key("instructions that a Repeat reaches back over; 0 leaves it out",
                            _PROGRAM, _REFUSED, default=0, integers=(0, 1 << 12), power_of_two=True, since=2)
    depthwise_taps: int = key("3 lets a MatMul multiply each lane by weights of its own, of 3 neighbouring vectors; 9 "
                              "of 3 such rows at once; 0 leaves that out",
                              _CONSTANTS, _REFUSED, default=0, integers=(0, max(TAPS)), since=2)
    multiplier_width: int = key("bits of the multiplier by which a lane of `INT8` requantizes; 24 bits, as single "
                                "precision has, make whole networks equal, for one DSP block more a lane",
                                _CONSTANTS, _REFUSED, default=MULTIPLIER_WIDTHS[0],
                                integers=(MULTIPLIER_WIDTHS[0], MULTIPLIER_WIDTHS[-1]), since=2)
    output_maximum: int = key("1 lets the ReLU of the accumulators' move-out unit end at a number that programs choose "
                              "(ReLU6, Clip)", _CONSTANTS, _REFUSED, default=0, integers=(0, 1), since=2)
    output_slope: int = key("1 lets the ReLU of the accumulators' move-out unit multiply what is below zero by a "
                            "number that programs choose (LeakyReLU); a DSP block a lane",
                            _CONSTANTS, _REFUSED, default=0, integers=(0, 1), since=2)
    cores: int = key("machines of this description that work side by side on one memory, each on a program of its own",
                     _CONSTANTS, _SAME, default=1, integers=(1, 16), since=2)
    memory_ports: int = key("AXI ports that the cores share, dealt out in turn: core k has port k modulo memory_ports",
                            _CONSTANTS, _SAME, default=1, integers=(1, 4), since=2)
    sync_counters: int = key("counters of each core by which it waits for other cores (Signal); 0 leaves them out",
                             _PROGRAM, _REFUSED, default=0, integers=(0, 1 << COUNTER_WIDTH), since=2)
    join_cycles: int = key("cycles that a read of DRAM1 waits at a shared memory port for the other cores to ask for "
                           "the same, so that one burst serves all; 0 leaves joined reads out",
                           _PROGRAM, _SAME, default=0, integers=(0, (1 << 16) - 1), since=2)

    def __post_init__(self) -> None:
        """Fill in the default accumulator width, and check every key. Raise ArchError."""
        rows = KEYS.values()
        for row in rows:
            if row.choices:  # first: the default of accumulator_width asks what they say
                row.check(getattr(self, row.name))
        if self.accumulator_width is None:
            width = scheme_of(self.number, self.mac_rounding).default_accumulator_width(self.number)
            object.__setattr__(self, "accumulator_width", width)
        for row in rows:
            row.check(getattr(self, row.name))
        check_together(self)

    # -- derived ---------------------------------------------------------------------------------------------------
    @cached_property
    def number(self) -> DataType:
        """The type of a scalar in local memory and DRAM."""
        return DataType.parse(self.data_type)

    @cached_property
    def scheme(self) -> Scheme:
        """The number scheme of the machine: the arithmetic of its scalars, sums and accumulators."""
        return scheme_of(self.number, self.mac_rounding)(self.number, self.accumulator_bits, self.multiplier_width)

    @property
    def parameter_loads(self) -> dict[Opcode, int]:
        """The opcodes that load the move-out unit's requantization parameters -> vectors that each reads."""
        tables = {Opcode.LOAD_ACTIVATION_TABLE: TABLE_ENTRIES} if self.activation_tables else {}
        return {**self.scheme.parameter_loads, **tables}

    @property
    def packing(self) -> Packing | None:
        """The way in which two products share a DSP block; None if each has its own."""
        return PACKINGS[self.dsp_packing]

    @property
    def residue_bits(self) -> int:
        """The count of low bits of the high column's sum that packed columns carry beside the DSP cascade."""
        assert self.packing is not None and self.scheme.largest_product is not None
        return self.packing.residue_bits(self.array_size * self.scheme.largest_product)

    @property
    def row_taps(self) -> int:
        """Taps of a row of the kernel in a depthwise MatMul; 0 on machines without."""
        return min(self.depthwise_taps, ROW_TAPS)

    @property
    def kernel_rows(self) -> int:
        """Rows of the kernel in a depthwise MatMul; 0 on machines without."""
        return self.depthwise_taps // ROW_TAPS

    @property
    def tap_rows(self) -> int:
        """Rows of the array that one tap of a depthwise MatMul takes.

        It is 1, or 2 for bytes, whose columns may share an activation in pairs: each of the two columns has a row of
        its own."""
        return 1 if self.scheme.largest_product is None else PAIR

    @property
    def accumulator_bits(self) -> int:
        """Bits of an accumulator: the key ``accumulator_width`` with its default applied."""
        assert self.accumulator_width is not None
        return self.accumulator_width

    @property
    def shared_dram(self) -> bool:
        """Whether both DRAM windows lie behind one port."""
        return self.dram_ports == SHARED

    @property
    def vector_bytes(self) -> int:
        """Bytes of one vector in DRAM."""
        return self.array_size * self.number.scalar_bytes

    @property
    def dram0_window_bytes(self) -> int:
        """Bytes from the begin of a window of the whole DRAM0 to where the next one can begin."""
        return -(-self.dram0_depth * self.vector_bytes // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES

    @property
    def vector_beats(self) -> float:
        """Cycles that a DRAM channel takes for a vector, on average over many in a row.

        All cores that share a memory port are taken to ask for as much at the same time."""
        return max(1.0, 8 * self.vector_bytes / self.axi_data_width) * self.cores_a_port

    @property
    def joins_reads(self) -> bool:
        """Whether cores share a memory port that joins their reads of constants."""
        return self.join_cycles > 0 and self.cores > self.memory_ports

    @property
    def cores_a_port(self) -> int:
        """Cores behind the memory port that has most of them."""
        return -(-self.cores // self.memory_ports)

    @property
    def local_address_width(self) -> int:
        """Bits of a local memory address, in vectors."""
        return bits_to_count(self.local_depth)

    @property
    def accumulator_address_width(self) -> int:
        """Bits of an accumulator address, in vectors."""
        return bits_to_count(self.accumulator_depth)

    @property
    def dram_address_width(self) -> int:
        """Bits of a DRAM address in vectors, for the wider of the two windows."""
        return max(bits_to_count(self.dram0_depth), bits_to_count(self.dram1_depth))

    @property
    def lane_count(self) -> int:
        """Lanes of the machine: scalars in a vector."""
        return self.array_size

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Arch:
        """Return the machine that a dictionary of architecture keys describes.

        The dictionary is the object of a ``.tarch`` file, or ``arch`` of a ``.tmodel``; former names of keys are taken
        too. Raise ArchError if a key is unknown or missing, or a value is not allowed."""
        values = {FORMER_NAMES.get(name, name): value for name, value in values.items()}
        for name in values:
            if name not in KEYS:
                raise ArchError(name, "an unknown key", ", ".join(KEYS), nearest(name, KEYS, "remove it"))
        missing = [name for name, row in KEYS.items() if row.default is dataclasses.MISSING and name not in values]
        if missing:
            raise ArchError(missing[0], "nothing", "a value: the key has no default", f"add {', '.join(missing)}")
        return cls(**{**_fewer_banks(values), **values})

    def to_dict(self) -> dict[str, Any]:
        """Return every architecture key with its value, defaults applied; ``from_dict`` takes it back."""
        return dataclasses.asdict(self)

    def replace(self, **values: Any) -> Arch:
        """Return this machine with some keys changed; defaults that follow from a changed key follow again."""
        return Arch.from_dict({**self.to_dict(), **self._dependents(values), **values})

    def _dependents(self, values: dict[str, Any]) -> dict[str, Any]:
        """Return the keys that go back to their default, as None, when ``values`` are changed."""
        return {"accumulator_width": None} if {"mac_rounding", "data_type"} & set(values) else {}

    @classmethod
    def load(cls, name_or_path: str | Path) -> Arch:
        """Return the machine of a preset's name, such as ``pynq``, or of the path of a ``.tarch`` file.

        Raise ArchError if the file does not describe a machine that can be built."""
        return cls.from_dict(read_object(find(name_or_path), "architecture file",
                                         "a JSON object of architecture keys", "start from a preset of arch/"))


def _fewer_banks(values: dict[str, Any]) -> dict[str, int]:
    """Return the default of ``local_banks`` for a local memory of fewer vectors than banks; else nothing."""
    depth = values.get("local_depth")
    if not isinstance(depth, int) or not 0 < depth < KEYS["local_banks"].default:
        return {}
    return {"local_banks": 1 << depth.bit_length() - 1}


KEYS: dict[str, Key] = rows_of(Arch)
"""The table of architecture keys: name -> row."""
FORMER_NAMES = {row.former: name for name, row in KEYS.items() if row.former}
"""Former name of a key -> its name."""


def largest(name: str) -> int:
    """Return the largest value that an integer key may have."""
    high = KEYS[name].high
    assert high is not None, f"{name} is no integer"
    return high
