# SPDX-License-Identifier: Apache-2.0
"""One frozen description of a machine, read from a ``.tarch`` file (docs/machine/parameters.md).

Everything that follows from the parameters (byte sizes, bank depths, instruction widths) is derived here, in
``isa.py`` or in ``registers.py``. A machine that cannot be built is refused with what, found, allowed and way out.
"""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from weft.hw.contract.instructions import COUNTER_WIDTH, Opcode
from weft.hw.contract.keys import Affects, Compatibility, Key, key, rows_of
from weft.hw.contract.numerics import DataType, bits_to_count
from weft.hw.contract.packing import NO_PACKING, PACKINGS, PAIR, Packing
from weft.hw.contract.schemes import (
    FIXED_POINT_SCHEMES,
    TABLE_ENTRIES,
    FixedPointEveryStep,
    FixedPointOnce,
    Scheme,
    SchemeKind,
    scheme_of,
)
from weft.support.errors import ArchError, WeftError, explain
from weft.support.strict_json import read_object

SEPARATE, SHARED = "separate", "shared"
"""Values of ``dram_ports``."""

ONCE, EVERY_STEP = FixedPointOnce.name, FixedPointEveryStep.name
"""Values of ``mac_rounding``, to describe machines with. What a machine's numbers do is asked of ``Arch.scheme``."""


ROW_TAPS, MOST_KERNEL_ROWS = 3, 3
"""Taps of a depthwise MatMul: neighbouring vectors of a row whose products meet in one sum, and the rows that they come
from."""
TAPS = (0, ROW_TAPS, ROW_TAPS * MOST_KERNEL_ROWS)
"""Values of ``depthwise_taps``."""

DRAM_OFFSET_BYTES = 1 << 16
"""A DRAM window starts at a multiple of this; its offset register counts blocks of so many bytes."""


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
    local_banks: int = key("interleaved banks of local memory",
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
        self._check_together()

    def _check_together(self) -> None:
        """Raise ArchError if the values of two or more keys do not go together."""
        self.scheme.check()
        for name in ("dram0_depth", "dram1_depth"):
            needed = getattr(self, name) * self.vector_bytes
            if needed > 1 << self.axi_address_width:
                most = (1 << self.axi_address_width) // self.vector_bytes
                raise ArchError(name, f"{getattr(self, name)} vectors of {self.vector_bytes} bytes",
                                f"at most {most} vectors behind {self.axi_address_width} address bits",
                                f"lower {name} or raise axi_address_width")
        self._check_windows_fit()
        self._check_cores()
        self._check_packing()
        self._check_activation_tables()
        self._check_taps()
        self._check_output_functions()
        for memory in ("local", "accumulator"):
            banks, depth = getattr(self, f"{memory}_banks"), getattr(self, f"{memory}_depth")
            if banks > depth:
                raise ArchError(f"{memory}_banks", banks, f"at most {memory}_depth = {depth}",
                                f"lower {memory}_banks or raise {memory}_depth")
        burst_bytes = self.axi_max_burst * self.axi_data_width // 8
        if burst_bytes > 4096:
            raise ArchError("axi_max_burst", f"{self.axi_max_burst} beats of {self.axi_data_width // 8} bytes",
                            "bursts of at most 4096 bytes (AXI4)", "lower axi_max_burst or axi_data_width")
        if self.lut_count and self.lut_count + 1 > self.simd_registers_depth:
            raise ArchError("lut_count", self.lut_count,
                            f"at most simd_registers_depth - 1 = {self.simd_registers_depth - 1}: a Lookup writes "
                            "one register a table and one for the difference",
                            f"set simd_registers_depth to {self.lut_count + 1} or more")

    def _check_windows_fit(self) -> None:
        """Raise ArchError if both DRAM windows do not fit the address space of the one port that they share.

        Each window begins at a multiple of DRAM_OFFSET_BYTES. A machine with a port for each window is not checked."""
        needed, most = self.dram0_window_bytes + self.dram1_depth * self.vector_bytes, 1 << self.axi_address_width
        if self.shared_dram and needed > most:
            raise ArchError("dram_ports", f"{SHARED}, with windows that take {needed} bytes together",
                            f"at most {most} bytes behind {self.axi_address_width} address bits",
                            f"lower dram0_depth or dram1_depth, raise axi_address_width or use {SEPARATE}")

    def _check_cores(self) -> None:
        """Raise ArchError if keys of several cores do not go together or with other keys.

        The ports that cores share carry both DRAM windows of each core, and the programs too."""
        if self.memory_ports > self.cores:
            raise ArchError("memory_ports", f"{self.memory_ports}, with cores {self.cores}",
                            f"at most a port a core: {self.cores}", "lower memory_ports or raise cores")
        if self.cores == 1 and self.sync_counters:
            raise ArchError("sync_counters", f"{self.sync_counters}, with cores 1", "0: there is no other core to "
                            "wait for", "set sync_counters to 0 or raise cores")
        if self.cores == 1:
            return
        if not self.shared_dram:
            raise ArchError("dram_ports", f"{self.dram_ports}, with cores {self.cores}",
                            f"{SHARED}: a core has one way to its memory port", f"set dram_ports to {SHARED}")
        if self.stream_width != self.axi_data_width:
            raise ArchError("stream_width", f"{self.stream_width}, with cores {self.cores}",
                            f"axi_data_width = {self.axi_data_width}: programs come through the memory ports",
                            f"set stream_width to {self.axi_data_width}")
        needed = self.cores * self.dram0_window_bytes + self.dram1_depth * self.vector_bytes
        most = 1 << self.axi_address_width
        if needed > most:
            raise ArchError("cores", f"{self.cores}, with windows that take {needed} bytes together",
                            f"at most {most} bytes behind {self.axi_address_width} address bits: a DRAM0 window a "
                            "core and a DRAM1 window", "lower cores, dram0_depth or dram1_depth, or raise "
                            "axi_address_width")

    def _check_packing(self) -> None:
        """Raise ArchError if ``dsp_packing`` is set on a machine whose products cannot share a DSP block."""
        if self.packing is None:
            return
        if self.scheme.largest_product is None:
            raise ArchError("dsp_packing", f"{self.dsp_packing}, with data_type {self.data_type}",
                            "a data_type of which two weights fit one DSP block: INT8",
                            f"set data_type to INT8 or dsp_packing to {NO_PACKING}")
        if self.array_size % PAIR:
            raise ArchError("dsp_packing", f"{self.dsp_packing}, with array_size {self.array_size}",
                            "an even array_size: two columns share a block",
                            f"set array_size to {self.array_size + 1} or dsp_packing to {NO_PACKING}")

    def _check_activation_tables(self) -> None:
        """Raise ArchError if ``activation_tables`` is set on a machine that cannot have them."""
        if not self.activation_tables:
            return
        if self.scheme.kind is not SchemeKind.AFFINE:
            raise ArchError("activation_tables", f"{self.activation_tables}, with data_type {self.data_type}",
                            "a data_type whose scalars are bytes: INT8",
                            "set data_type to INT8 or activation_tables to 0")
        if self.local_depth < TABLE_ENTRIES:
            raise ArchError("activation_tables", f"{self.activation_tables}, with local_depth {self.local_depth}",
                            f"a local_depth of {TABLE_ENTRIES} or more: a table is loaded from there",
                            f"set local_depth to {TABLE_ENTRIES} or activation_tables to 0")

    def _check_taps(self) -> None:
        """Raise ArchError if ``depthwise_taps`` has a value that the machine cannot have."""
        if not self.depthwise_taps:
            return
        if self.depthwise_taps not in TAPS:
            allowed = ", ".join(map(str, TAPS))
            raise ArchError("depthwise_taps", self.depthwise_taps, allowed, f"set depthwise_taps to one of {allowed}")
        least = self.depthwise_taps * self.tap_rows
        if self.array_size < least or self.array_size % self.tap_rows:
            even = "an even array_size" if self.tap_rows == PAIR else "an array_size"
            raise ArchError("depthwise_taps", f"{self.depthwise_taps}, with array_size {self.array_size}",
                            f"{even} of {least} or more: a tap takes {self.tap_rows} of the array's rows",
                            f"set array_size to {max(least, self.array_size + 1)} or depthwise_taps to 0")

    def _check_output_functions(self) -> None:
        """Raise ArchError if bytes are to have the functions on output of fixed-point numbers."""
        for name in ("output_maximum", "output_slope"):
            if getattr(self, name) and self.scheme.kind is not SchemeKind.FIXED_POINT:
                raise ArchError(name, f"{getattr(self, name)}, with data_type {self.data_type}",
                                "0, or a data_type with binary points",
                                f"set {name} to 0 and activation_tables to 1 or more: they hold any function of a byte")

    # -- derived ---------------------------------------------------------------------------------------------------
    @cached_property
    def number(self) -> DataType:
        """The type of a scalar in local memory and DRAM."""
        return DataType.parse(self.data_type)

    @cached_property
    def scheme(self) -> Scheme:
        """The number scheme of the machine: the arithmetic of its scalars, sums and accumulators."""
        return scheme_of(self.number, self.mac_rounding)(self.number, self.accumulator_bits)

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
                near = difflib.get_close_matches(name, KEYS, 1)
                raise ArchError(name, "an unknown key", ", ".join(KEYS),
                                f"did you mean {near[0]}?" if near else "remove it")
        missing = [name for name, row in KEYS.items() if row.default is dataclasses.MISSING and name not in values]
        if missing:
            raise ArchError(missing[0], "nothing", "a value: the key has no default", f"add {', '.join(missing)}")
        return cls(**values)

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


KEYS: dict[str, Key] = rows_of(Arch)
"""The table of architecture keys: name -> row."""
FORMER_NAMES = {row.former: name for name, row in KEYS.items() if row.former}
"""Former name of a key -> its name."""


def largest(name: str) -> int:
    """Return the largest value that an integer key may have."""
    high = KEYS[name].high
    assert high is not None, f"{name} is no integer"
    return high


PRESETS = Path(__file__).parents[2] / "presets"
"""The room `arch/`, in a checkout and in an installed wheel."""


def presets() -> dict[str, Path]:
    """Return name -> file of every preset that ships with the project."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.tarch"))}


def find(name_or_path: str | Path) -> Path:
    """Return the ``.tarch`` file that a preset's name or a path means. Raise WeftError if there is none."""
    path = Path(name_or_path)
    if path.suffix == ".tarch" and _is_file(path):
        return path
    known = presets()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    raise WeftError(explain("architecture", name_or_path, f"a preset ({', '.join(sorted(known))}) or an existing "
                            ".tarch file", "name one of them with -a"))


def _is_file(path: Path) -> bool:
    """Tell whether ``path`` is a regular file; a path that the system cannot take is none."""
    try:
        return path.is_file()
    except OSError:  # such as a name longer than the system takes
        return False
