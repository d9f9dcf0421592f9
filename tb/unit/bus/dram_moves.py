# SPDX-License-Identifier: Apache-2.0
"""Random DRAM operations of a machine, and what they mean in plain Python: shared by the tests of reader and writer."""

from dataclasses import dataclass
from random import Random

import numpy as np

from weft.hw.contract.arch import Arch
from weft.hw.contract.walk import Walk
from weft.hw.parts.operation_table import operation_layout
from weft.tb.bench.block_ports import to_bits

WINDOW_BYTES = 65536
MACHINES = [
    # array_size, data type, bus bits, longest burst
    (2, "FP8BP4", 64, 16),
    (2, "FP16BP8", 32, 4),
    (2, "FP32BP16", 128, 16),
    (3, "FP16BP8", 64, 16),
    (3, "FP8BP4", 32, 1),
    (3, "FP18BP10", 64, 8),
    (8, "FP16BP8", 64, 16),
    (8, "FP8BP4", 64, 256),
    (8, "FP18BP10", 128, 16),
    (12, "FP16BP8", 64, 16),
    (12, "FP16BP8", 128, 32),
    (12, "FP8BP4", 32, 16),
    (32, "FP16BP8", 128, 16),
]


def machine_id(machine: tuple[int, str, int, int]) -> str:
    return "x".join(map(str, machine))


def make_arch(machine: tuple[int, str, int, int], depth: int = 256, dram_depth: int = 2000) -> Arch:
    """``machine``: lanes, data type, bits of the bus, beats of a burst."""
    array_size, data_type, bus, burst = machine
    return Arch(data_type=data_type, array_size=array_size, dram0_depth=dram_depth, dram1_depth=dram_depth,
                local_depth=depth, accumulator_depth=64, simd_registers_depth=1, stride0_depth=4, stride1_depth=4,
                axi_data_width=bus, axi_max_burst=burst)


@dataclass
class Move:
    """One operation; strides in vectors."""

    size: int
    rows: int
    local: tuple[int, int, int]  # base, stride_log2, pitch
    dram: tuple[int, int, int]
    window: int
    cache: int

    def raw(self, arch: Arch) -> int:
        local, dram = (dict(zip(("base", "stride_log2", "pitch"), walk, strict=True))
                       for walk in (self.local, self.dram))
        return to_bits(operation_layout(arch, "dram_read"), {
            "size_m1": self.size - 1, "rows_m1": self.rows - 1, "local": local, "dram": dram, "window": self.window,
            "cache": self.cache})

    @staticmethod
    def _addresses(walk: tuple[int, int, int], rows: int, size: int) -> list[int]:
        base, stride_log2, pitch = walk
        return Walk(base, size, 1 << stride_log2, rows, pitch).addresses().ravel().tolist()

    @property
    def local_addresses(self) -> list[int]:
        return self._addresses(self.local, self.rows, self.size)

    def dram_bytes(self, arch: Arch) -> list[int]:
        """Byte address of each vector."""
        return [self.window * WINDOW_BYTES + address * arch.vector_bytes
                for address in self._addresses(self.dram, self.rows, self.size)]

    def beats(self, arch: Arch) -> int:
        """Bus beats of all segments."""
        bus = arch.axi_data_width // 8
        starts = self.dram_bytes(arch)
        whole = self.dram[1] == 0
        runs = [(starts[row * self.size], self.size) for row in range(self.rows)] if whole else [(s, 1) for s in starts]
        return sum((start + count * arch.vector_bytes - 1) // bus - start // bus + 1 for start, count in runs)


def random_move(rng: Random, arch: Arch, longest: int = 40) -> Move:
    """Ranges inside their memories; one in two has rows, one in two a stride on either side."""
    rows = rng.choice([1, 1, rng.randint(2, 5)])
    size = rng.choice([1, 2, rng.randint(1, longest // rows)])

    def walk(depth: int) -> tuple[int, int, int]:
        stride_log2 = rng.choice([0, 0, 1, 2])
        span = (size - 1) << stride_log2
        pitch = rng.randint(0, (depth - 1 - span) // rows) if rows > 1 else rng.randrange(depth)
        pitch = rng.choice([pitch, min(pitch, span + 1)])
        last = span + (rows - 1) * pitch
        return rng.randint(0, depth - 1 - last), stride_log2, pitch

    return Move(size, rows, walk(arch.local_depth), walk(arch.dram0_depth), rng.choice([0, 1, 3]), rng.randrange(16))


def memory_bytes(arch: Arch) -> int:
    """Enough for every window of ``random_move``."""
    return 3 * WINDOW_BYTES + arch.dram0_depth * arch.vector_bytes + 256


def to_vector(arch: Arch, content: bytes) -> int:
    """DRAM bytes as the raw row of local memory: each scalar cut to its width."""
    scalars = np.frombuffer(content, arch.number.storage_dtype)
    width = arch.number.width
    return sum((int(scalar) & ((1 << width) - 1)) << lane * width for lane, scalar in enumerate(scalars))


def to_bytes(arch: Arch, vector: int) -> bytes:
    """A raw row of local memory as it lies in DRAM: each scalar sign-extended."""
    width = arch.number.width
    scalars = [vector >> lane * width & ((1 << width) - 1) for lane in range(arch.array_size)]
    signed = [scalar - (1 << width) if scalar >> (width - 1) else scalar for scalar in scalars]
    return np.array(signed, arch.number.storage_dtype).tobytes()
