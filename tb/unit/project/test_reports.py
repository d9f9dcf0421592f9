# SPDX-License-Identifier: Apache-2.0
"""The generated tables, the C header and the JSON summary say what the contract says."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from weft.hw.contract import csr
from weft.hw.contract.arch import Arch
from weft.hw.contract.causes import Cause
from weft.hw.contract.instructions import OPERATIONS, Opcode, SimdOpcode
from weft.hw.contract.isa import Isa
from weft.hw.contract.presets import presets
from weft.hw.contract.register_table import register_table
from weft.hw.contract.samples import HANDSHAKES
from weft.hw.flow.reports import c_header, isa_text, summary

WITH_LUT = {"simd_registers_depth": 8, "lut_count": 2}
MACHINES = {name: Arch.load(name) for name in presets()} | {"lut": Arch.load("arty").replace(**WITH_LUT)}
machines = pytest.mark.parametrize("arch", MACHINES.values(), ids=MACHINES)


@machines
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_of_the_tables_is_wider_than_the_terminal(arch: Arch, width: int) -> None:
    assert max(map(len, isa_text(arch, width).splitlines())) <= width


@machines
def test_tables_name_everything_the_machine_has(arch: Arch) -> None:
    isa, text = Isa(arch), isa_text(arch, 200)
    assert f"Instruction: {isa.instruction_bytes} bytes" in text
    for opcode in Opcode:
        line = rf"^{int(opcode)} +{OPERATIONS[opcode].name}\b"
        assert bool(re.search(line, text, re.M)) == (opcode in isa.opcodes())
    for register, spec in isa.registers.items():
        line = rf"^0x{int(register):02X} +{register.name} +{spec.width} +0x{spec.reset:X} +{re.escape(spec.meaning)}$"
        assert re.search(line, text, re.M)
    for name, control in csr.CONTROL_REGISTERS.items():
        assert re.search(rf"^0x{control.offset:03X} +{name} +{control.access.value}", text, re.M)
    for cause in Cause:
        assert re.search(rf"^{int(cause)} +{cause.name} ", text, re.M)
    assert ("LOOKUP" in text) == bool(arch.lut_count)


@machines
def test_bits_of_the_layout_are_the_encoder_s(arch: Arch) -> None:
    isa, text = Isa(arch), isa_text(arch, 200)
    for operand in range(3):
        low = isa.operand_offsets[operand]
        bits = f"{low + isa.operand_widths[operand] - 1}:{low}"
        assert re.search(rf"^{bits} +operand {operand} ", text, re.M)


@machines
def test_summary_is_json_with_every_key(arch: Arch) -> None:
    found = json.loads(json.dumps(summary(arch)))
    assert Arch.from_dict(found["arch"]) == arch
    assert found["instruction"]["bytes"] == Isa(arch).instruction_bytes
    assert found["derived"]["vector_bytes"] == arch.vector_bytes
    assert set(found["configure_registers"]) == {register.name for register in register_table(arch)}
    assert found["control_registers"]["ARRAY_SIZE"] == {
        "offset": 0x80, "access": "read only", "meaning": "array_size", "value": arch.array_size}


CHECKS = """
#include "weft.h"
#include <stdio.h>
int main(void)
{
    uint8_t bytes[WEFT_INSTRUCTION_BYTES];
    weft_encode(bytes, WEFT_OP_MAT_MUL, WEFT_MAT_MUL_FLAG_ACCUMULATE, 1 | (uint64_t)1 << WEFT_ADDRESS0_WIDTH, 2, 4);
    for (unsigned i = 0; i < WEFT_INSTRUCTION_BYTES; i++)
        printf("%02x", bytes[i]);
    printf("\\n");
@PRINTS@
    return 0;
}
"""


@machines
def test_header_compiles_as_c99_and_its_numbers_are_the_contract_s(arch: Arch, tmp_path: Path) -> None:
    isa = Isa(arch)
    expected = {
        "INSTRUCTION_BYTES": isa.instruction_bytes,
        "ARRAY_SIZE": arch.array_size,
        "DRAM1_DEPTH": arch.dram1_depth,
        **{f"OPERAND{i}_{what}": values[i] for i in range(3)
           for what, values in (("SHIFT", isa.operand_offsets), ("WIDTH", isa.operand_widths))},
        **{f"OP_{opcode.name}": opcode for opcode in isa.opcodes()},
        **{f"SIMD_OP_{op.name}": op for op in SimdOpcode if op is not SimdOpcode.LOOKUP or arch.lut_count},
        **{f"CONFIG_{register.name}": register for register in register_table(arch)},
        **{f"CSR_{name}": spec.offset for name, spec in csr.CONTROL_REGISTERS.items()},
        **{f"VALUE_{name}": value for name, value in csr.parameter_values(arch).items()},
        **{f"CAUSE_{cause.name}": cause for cause in Cause},
        **{f"STATUS_{bit.name}": 1 << bit for bit in csr.Status},
        **{f"SAMPLE_{name.upper()}": bit for bit, name in enumerate(HANDSHAKES)},
    }
    prints = "\n".join(f'    printf("%llu\\n", (unsigned long long)WEFT_{name});' for name in expected)
    (tmp_path / "weft.h").write_text(c_header(arch))
    (tmp_path / "check.c").write_text(CHECKS.replace("@PRINTS@", prints))
    compiler = shutil.which("gcc") or "cc"
    flags = ["-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror"]
    subprocess.run([compiler, *flags, "check.c", "-o", "check"], cwd=tmp_path, check=True)
    lines = subprocess.run([tmp_path / "check"], capture_output=True, text=True, check=True).stdout.split()
    instruction = isa.mat_mul(1, 2, 5, accumulate=True, local_stride=2)
    assert bytes.fromhex(lines[0]) == isa.assemble([instruction])
    found = dict(zip(expected, map(int, lines[1:]), strict=True))
    assert found == {name: int(value) for name, value in expected.items()}
