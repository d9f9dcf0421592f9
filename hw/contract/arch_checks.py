# SPDX-License-Identifier: Apache-2.0
"""The rules between architecture keys: which values do not go together, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.hw.contract.key_values import SEPARATE, SHARED, TAPS
from weft.hw.contract.packing import NO_PACKING, PAIR
from weft.hw.contract.schemes import MULTIPLIER_WIDTHS, TABLE_ENTRIES, SchemeKind
from weft.support.errors import ArchError

if TYPE_CHECKING:
    from weft.hw.contract.arch import Arch


def check_together(arch: Arch) -> None:
    """Raise ArchError if the values of two or more keys do not go together."""
    arch.scheme.check()
    for name in ("dram0_depth", "dram1_depth"):
        needed = getattr(arch, name) * arch.vector_bytes
        if needed > 1 << arch.axi_address_width:
            most = (1 << arch.axi_address_width) // arch.vector_bytes
            raise ArchError(name, f"{getattr(arch, name)} vectors of {arch.vector_bytes} bytes",
                            f"at most {most} vectors behind {arch.axi_address_width} address bits",
                            f"lower {name} or raise axi_address_width")
    _check_windows_fit(arch)
    _check_cores(arch)
    _check_packing(arch)
    _check_activation_tables(arch)
    _check_multipliers(arch)
    _check_taps(arch)
    _check_output_functions(arch)
    for memory in ("local", "accumulator"):
        banks, depth = getattr(arch, f"{memory}_banks"), getattr(arch, f"{memory}_depth")
        if banks > depth:
            raise ArchError(f"{memory}_banks", banks, f"at most {memory}_depth = {depth}",
                            f"lower {memory}_banks or raise {memory}_depth")
    burst_bytes = arch.axi_max_burst * arch.axi_data_width // 8
    if burst_bytes > 4096:
        raise ArchError("axi_max_burst", f"{arch.axi_max_burst} beats of {arch.axi_data_width // 8} bytes",
                        "bursts of at most 4096 bytes (AXI4)", "lower axi_max_burst or axi_data_width")
    if arch.lut_count and arch.lut_count + 1 > arch.simd_registers_depth:
        raise ArchError("lut_count", arch.lut_count,
                        f"at most simd_registers_depth - 1 = {arch.simd_registers_depth - 1}: a Lookup writes "
                        "one register a table and one for the difference",
                        f"set simd_registers_depth to {arch.lut_count + 1} or more")


def _check_windows_fit(arch: Arch) -> None:
    """Raise ArchError if both DRAM windows do not fit the address space of the one port that they share.

    Each window begins at a multiple of DRAM_OFFSET_BYTES. A machine with a port for each window is not checked."""
    needed, most = arch.dram0_window_bytes + arch.dram1_depth * arch.vector_bytes, 1 << arch.axi_address_width
    if arch.shared_dram and needed > most:
        raise ArchError("dram_ports", f"{SHARED}, with windows that take {needed} bytes together",
                        f"at most {most} bytes behind {arch.axi_address_width} address bits",
                        f"lower dram0_depth or dram1_depth, raise axi_address_width or use {SEPARATE}")


def _check_cores(arch: Arch) -> None:
    """Raise ArchError if keys of several cores do not go together or with other keys.

    The ports that cores share carry both DRAM windows of each core, and the programs too."""
    if arch.memory_ports > arch.cores:
        raise ArchError("memory_ports", f"{arch.memory_ports}, with cores {arch.cores}",
                        f"at most a port a core: {arch.cores}", "lower memory_ports or raise cores")
    if arch.cores == 1 and arch.sync_counters:
        raise ArchError("sync_counters", f"{arch.sync_counters}, with cores 1", "0: there is no other core to "
                        "wait for", "set sync_counters to 0 or raise cores")
    if arch.cores == 1:
        return
    if not arch.shared_dram:
        raise ArchError("dram_ports", f"{arch.dram_ports}, with cores {arch.cores}",
                        f"{SHARED}: a core has one way to its memory port", f"set dram_ports to {SHARED}")
    if arch.stream_width != arch.axi_data_width:
        raise ArchError("stream_width", f"{arch.stream_width}, with cores {arch.cores}",
                        f"axi_data_width = {arch.axi_data_width}: programs come through the memory ports",
                        f"set stream_width to {arch.axi_data_width}")
    needed = arch.cores * arch.dram0_window_bytes + arch.dram1_depth * arch.vector_bytes
    most = 1 << arch.axi_address_width
    if needed > most:
        raise ArchError("cores", f"{arch.cores}, with windows that take {needed} bytes together",
                        f"at most {most} bytes behind {arch.axi_address_width} address bits: a DRAM0 window a "
                        "core and a DRAM1 window", "lower cores, dram0_depth or dram1_depth, or raise "
                        "axi_address_width")


def _check_packing(arch: Arch) -> None:
    """Raise ArchError if ``dsp_packing`` is set on a machine whose products cannot share a DSP block."""
    if arch.packing is None:
        return
    if arch.scheme.largest_product is None:
        raise ArchError("dsp_packing", f"{arch.dsp_packing}, with data_type {arch.data_type}",
                        "a data_type of which two weights fit one DSP block: INT8",
                        f"set data_type to INT8 or dsp_packing to {NO_PACKING}")
    if arch.array_size % PAIR:
        raise ArchError("dsp_packing", f"{arch.dsp_packing}, with array_size {arch.array_size}",
                        "an even array_size: two columns share a block",
                        f"set array_size to {arch.array_size + 1} or dsp_packing to {NO_PACKING}")


def _check_activation_tables(arch: Arch) -> None:
    """Raise ArchError if ``activation_tables`` is set on a machine that cannot have them."""
    if not arch.activation_tables:
        return
    if arch.scheme.kind is not SchemeKind.AFFINE:
        raise ArchError("activation_tables", f"{arch.activation_tables}, with data_type {arch.data_type}",
                        "a data_type whose scalars are bytes: INT8",
                        "set data_type to INT8 or activation_tables to 0")
    if arch.local_depth < TABLE_ENTRIES:
        raise ArchError("activation_tables", f"{arch.activation_tables}, with local_depth {arch.local_depth}",
                        f"a local_depth of {TABLE_ENTRIES} or more: a table is loaded from there",
                        f"set local_depth to {TABLE_ENTRIES} or activation_tables to 0")


def _check_multipliers(arch: Arch) -> None:
    """Raise ArchError if ``multiplier_width`` is set on a machine whose lanes do not requantize."""
    if arch.multiplier_width != MULTIPLIER_WIDTHS[0] and arch.scheme.kind is not SchemeKind.AFFINE:
        raise ArchError("multiplier_width", f"{arch.multiplier_width}, with data_type {arch.data_type}",
                        "a data_type that requantizes by multipliers: INT8",
                        "set data_type to INT8 or leave multiplier_width out")


def _check_taps(arch: Arch) -> None:
    """Raise ArchError if ``depthwise_taps`` has a value that the machine cannot have."""
    if not arch.depthwise_taps:
        return
    if arch.depthwise_taps not in TAPS:
        allowed = ", ".join(map(str, TAPS))
        raise ArchError("depthwise_taps", arch.depthwise_taps, allowed, f"set depthwise_taps to one of {allowed}")
    least = arch.depthwise_taps * arch.tap_rows
    if arch.array_size < least or arch.array_size % arch.tap_rows:
        even = "an even array_size" if arch.tap_rows == PAIR else "an array_size"
        raise ArchError("depthwise_taps", f"{arch.depthwise_taps}, with array_size {arch.array_size}",
                        f"{even} of {least} or more: a tap takes {arch.tap_rows} of the array's rows",
                        f"set array_size to {max(least, arch.array_size + 1)} or depthwise_taps to 0")


def _check_output_functions(arch: Arch) -> None:
    """Raise ArchError if bytes are to have the functions on output of fixed-point numbers."""
    for name in ("output_maximum", "output_slope"):
        if getattr(arch, name) and arch.scheme.kind is not SchemeKind.FIXED_POINT:
            raise ArchError(name, f"{getattr(arch, name)}, with data_type {arch.data_type}",
                            "0, or a data_type with binary points",
                            f"set {name} to 0 and activation_tables to 1 or more: they hold any function of a byte")
