"""One frozen description of a machine, read from a ``.tarch`` file (docs/architecture.md, "Parameters").

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

from weft.hw.contract.errors import ArchError, WeftError, explain
from weft.hw.contract.numbers import (
    SYSTEMS,
    TABLE_ENTRIES,
    FixedPointEveryStep,
    FixedPointOnce,
    NumberSystem,
    system_of,
)
from weft.hw.contract.numerics import DataType
from weft.hw.contract.packing import NO_PACKING, PACKINGS, PAIR, Packing
from weft.hw.contract.strict_json import read_object

SEPARATE, SHARED = "separate", "shared"
"""Values of ``dram_ports``."""

ONCE, EVERY_STEP = FixedPointOnce.name, FixedPointEveryStep.name
"""Values of ``mac_rounding``, to describe machines with. What a machine's numbers do is asked of ``Arch.numbers``."""


DRAM_OFFSET_BYTES = 1 << 16
"""A DRAM window starts at a multiple of this; its offset register counts blocks of so many bytes."""


def bits_to_count(count: int) -> int:
    """Bits that number ``count`` values, 0..count-1."""
    return (count - 1).bit_length()


LIMITS: dict[str, tuple[int, int]] = {
    "array_size": (2, 256),
    "dram0_depth": (2, 1 << 32),
    "dram1_depth": (2, 1 << 32),
    "local_depth": (2, 1 << 16),
    "accumulator_depth": (2, 1 << 16),
    "simd_registers_depth": (0, 16),
    "stride0_depth": (1, 16),
    "stride1_depth": (1, 16),
    "number_of_threads": (1, 1),
    "thread_queue_depth": (1, 64),
    "accumulator_width": (4, 96),
    "lut_count": (0, 16),
    "lut_depth": (2, 1 << 12),
    "leave_tables": (0, 8),
    "simd_loop_depth": (0, 64),
    "local_banks": (1, 16),
    "accumulator_banks": (1, 16),
    "axi_data_width": (32, 1024),
    "axi_max_burst": (1, 256),
    "axi_address_width": (16, 64),
    "stream_width": (32, 1024),
    "sample_block_size": (1, 1 << 16),
    "register_slices": (0, 1),
    "deep_queues": (0, 1),
    "sampler": (0, 1),
    "decoder_multipliers": (0, 1),
    "weight_rows": (1, 2),
}
"""Allowed integer range of each key, both ends included."""

POWERS_OF_TWO = ("local_banks", "accumulator_banks", "axi_data_width", "axi_max_burst", "stream_width")


@dataclass(frozen=True, kw_only=True)
class Arch:
    """A machine. Depths count vectors, widths bits; ``accumulator_width`` None takes its default.

    ``register_slices`` 1 cuts the handshakes between blocks by registers: a faster clock, for a few cycles more for an
    operation that waits for another one. ``dram_ports`` "shared": one AXI port, with one read and one write engine, for
    both DRAM windows. ``deep_queues`` 1 lets each unit have twice as many operations outstanding.
    ``sampler`` 0 leaves performance samples out. ``dsp_packing``: the DSP block that makes two products.
    ``decoder_multipliers`` 0: the decoder's two products, rows x pitch, are look-up tables and no DSP blocks.
    ``leave_tables``: so many tables of 256 bytes, in which a DataMove out of the accumulators may look its bytes up.
    ``weight_rows`` 2: a load of the whole column of weights takes two rows a cycle.
    """

    data_type: str
    array_size: int
    dram0_depth: int
    dram1_depth: int
    local_depth: int
    accumulator_depth: int
    simd_registers_depth: int
    stride0_depth: int
    stride1_depth: int
    number_of_threads: int = 1
    thread_queue_depth: int = 8
    mac_rounding: str = ONCE
    accumulator_width: int | None = None
    lut_count: int = 0
    lut_depth: int = 64
    simd_loop_depth: int = 16
    local_banks: int = 4
    accumulator_banks: int = 2
    axi_data_width: int = 64
    axi_max_burst: int = 16
    axi_address_width: int = 32
    stream_width: int = 64
    sample_block_size: int = 1024
    register_slices: int = 0
    dram_ports: str = SEPARATE
    deep_queues: int = 0
    sampler: int = 1
    dsp_packing: str = NO_PACKING
    decoder_multipliers: int = 1
    leave_tables: int = 0
    weight_rows: int = 1

    def __post_init__(self) -> None:
        if self.mac_rounding not in tuple(SYSTEMS):  # a list from a file cannot be looked up
            raise ArchError("mac_rounding", self.mac_rounding, " or ".join(SYSTEMS),
                            "use once, unless results of the original are to be matched")
        if self.dram_ports not in (SEPARATE, SHARED):
            raise ArchError("dram_ports", self.dram_ports, f"{SEPARATE} or {SHARED}",
                            f"use {SHARED} where the board has one port, else {SEPARATE}")
        if self.dsp_packing not in tuple(PACKINGS):
            raise ArchError("dsp_packing", self.dsp_packing, " or ".join(PACKINGS),
                            f"use the block of the chip, or {NO_PACKING}")
        if self.accumulator_width is None:
            width = system_of(self.number, self.mac_rounding).default_accumulator_width(self.number)
            object.__setattr__(self, "accumulator_width", width)
        for key, (low, high) in LIMITS.items():
            self._check_integer(key, low, high)
        self._check_together()

    def _check_integer(self, key: str, low: int, high: int) -> None:
        value = getattr(self, key)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ArchError(key, value, f"an integer, {low}..{high}", f"set {key} within {low}..{high}")
        if key in POWERS_OF_TWO and value & (value - 1):
            near = 1 << (value.bit_length() - 1)
            raise ArchError(key, value, "a power of two", f"set {key} to {near} or {2 * near}")

    def _check_together(self) -> None:
        """What two keys allow each other."""
        self.numbers.check()
        for key in ("dram0_depth", "dram1_depth"):
            needed = getattr(self, key) * self.vector_bytes
            if needed > 1 << self.axi_address_width:
                most = (1 << self.axi_address_width) // self.vector_bytes
                raise ArchError(key, f"{getattr(self, key)} vectors of {self.vector_bytes} bytes",
                                f"at most {most} vectors behind {self.axi_address_width} address bits",
                                f"lower {key} or raise axi_address_width")
        self._check_windows_fit()
        self._check_packing()
        self._check_leave_tables()
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
        """Behind one port both windows lie in one memory, each from a block on."""
        first = -(-self.dram0_depth * self.vector_bytes // DRAM_OFFSET_BYTES) * DRAM_OFFSET_BYTES
        needed, most = first + self.dram1_depth * self.vector_bytes, 1 << self.axi_address_width
        if self.shared_dram and needed > most:
            raise ArchError("dram_ports", f"{SHARED}, with windows that take {needed} bytes together",
                            f"at most {most} bytes behind {self.axi_address_width} address bits",
                            f"lower dram0_depth or dram1_depth, raise axi_address_width or use {SEPARATE}")

    def _check_packing(self) -> None:
        if self.packing is None:
            return
        if self.numbers.largest_product is None:
            raise ArchError("dsp_packing", f"{self.dsp_packing}, with data_type {self.data_type}",
                            "a data_type of which two weights fit one DSP block: INT8",
                            f"set data_type to INT8 or dsp_packing to {NO_PACKING}")
        if self.array_size % PAIR:
            raise ArchError("dsp_packing", f"{self.dsp_packing}, with array_size {self.array_size}",
                            "an even array_size: two columns share a block",
                            f"set array_size to {self.array_size + 1} or dsp_packing to {NO_PACKING}")

    def _check_leave_tables(self) -> None:
        if not self.leave_tables:
            return
        if not self.numbers.has_scales:
            raise ArchError("leave_tables", f"{self.leave_tables}, with data_type {self.data_type}",
                            "a data_type whose scalars are bytes: INT8",
                            "set data_type to INT8 or leave_tables to 0")
        if self.local_depth < TABLE_ENTRIES:
            raise ArchError("leave_tables", f"{self.leave_tables}, with local_depth {self.local_depth}",
                            f"a local_depth of {TABLE_ENTRIES} or more: a table is loaded from there",
                            f"set local_depth to {TABLE_ENTRIES} or leave_tables to 0")

    # -- derived ---------------------------------------------------------------------------------------------------
    @cached_property
    def number(self) -> DataType:
        """The scalar type."""
        return DataType.parse(self.data_type)

    @cached_property
    def numbers(self) -> NumberSystem:
        """The arithmetic: scalars, sums and accumulators."""
        return system_of(self.number, self.mac_rounding)(self.number, self.accumulator_bits)

    @property
    def packing(self) -> Packing | None:
        """How two products share a DSP block; None where each has its own."""
        return PACKINGS[self.dsp_packing]

    @property
    def residue_bits(self) -> int:
        """Low bits of the high column's sum that packed columns carry beside the cascade."""
        assert self.packing is not None and self.numbers.largest_product is not None
        return self.packing.residue_bits(self.array_size * self.numbers.largest_product)

    @property
    def accumulator_bits(self) -> int:
        """``accumulator_width``, default applied."""
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
    def vector_beats(self) -> float:
        """Cycles that a DRAM channel takes for a vector, on average over many in a row."""
        return max(1.0, 8 * self.vector_bytes / self.axi_data_width)

    @property
    def local_address_width(self) -> int:
        return bits_to_count(self.local_depth)

    @property
    def accumulator_address_width(self) -> int:
        return bits_to_count(self.accumulator_depth)

    @property
    def dram_address_width(self) -> int:
        """Bits of a DRAM address in vectors, the wider of the two windows."""
        return max(bits_to_count(self.dram0_depth), bits_to_count(self.dram1_depth))

    @property
    def lane_count(self) -> int:
        return self.array_size

    # -- files -----------------------------------------------------------------------------------------------------
    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Arch:
        """From the object of a ``.tarch`` (or of a ``.tmodel``'s ``arch``). Raises ArchError."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        for key in values:
            if key not in fields:
                near = difflib.get_close_matches(key, fields, 1)
                raise ArchError(key, "an unknown key", ", ".join(fields),
                                f"did you mean {near[0]}?" if near else "remove it")
        missing = [name for name, field in fields.items()
                   if field.default is dataclasses.MISSING and name not in values]
        if missing:
            raise ArchError(missing[0], "nothing", "a value: the key has no default", f"add {', '.join(missing)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value, defaults applied; ``from_dict`` takes it back."""
        return dataclasses.asdict(self)

    def replace(self, **values: Any) -> Arch:
        """The same machine with some keys changed; what follows from a changed key follows again."""
        return Arch.from_dict({**self.to_dict(), **self._dependents(values), **values})

    def _dependents(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"accumulator_width": None} if {"mac_rounding", "data_type"} & set(values) else {}

    @classmethod
    def load(cls, name_or_path: str | Path) -> Arch:
        """A preset's name (``pynq``) or the path of a ``.tarch`` file. Raises ArchError."""
        return cls.from_dict(read_object(find(name_or_path), "architecture file",
                                         "a JSON object of architecture keys", "start from a preset of arch/"))


PRESETS = Path(__file__).parents[2] / "presets"
"""The room `arch/`, in a checkout and in an installed wheel."""


def presets() -> dict[str, Path]:
    """Name -> file of every preset that ships."""
    return {path.stem: path for path in sorted(PRESETS.glob("*.tarch"))}


def find(name_or_path: str | Path) -> Path:
    """The ``.tarch`` file meant by a preset's name or a path. Raises WeftError when there is none."""
    path = Path(name_or_path)
    if path.suffix == ".tarch" and _is_file(path):
        return path
    known = presets()
    if str(name_or_path) in known:
        return known[str(name_or_path)]
    raise WeftError(explain("architecture", name_or_path, f"a preset ({', '.join(sorted(known))}) or an existing "
                            ".tarch file", "name one of them with -a"))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name longer than the system takes
        return False
