# SPDX-License-Identifier: Apache-2.0
"""hw/contract/csr.py: what a machine says of itself, stated by hand."""

from __future__ import annotations

from weft.hw.contract.arch import Arch
from weft.hw.contract.csr import parameter_values


def test_a_machine_says_its_sizes() -> None:
    arch = Arch.load("tiny").replace(
        data_type="FP18BP10", array_size=6, local_depth=3000, accumulator_depth=500, dram0_depth=70000,
        dram1_depth=90000, simd_registers_depth=3, lut_count=2, simd_loop_depth=5, stride0_depth=4, stride1_depth=7,
        accumulator_width=40)
    values = parameter_values(arch)
    assert (values["ARRAY_SIZE"], values["LOCAL_DEPTH"], values["ACCUMULATOR_DEPTH"]) == (6, 3000, 500)
    assert (values["DRAM0_DEPTH_M1"], values["DRAM1_DEPTH_M1"]) == (69999, 89999)
    assert (values["SIMD"], values["STRIDES"]) == (0x05_02_03, 0x07_04)
    assert values["DATA_TYPE"] == 18 | 10 << 8 | 40 << 16 | arch.scheme.code << 24
