# SPDX-License-Identifier: Apache-2.0
"""What the firmware is told of its shell and of its network, as C headers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from weft.runtime.driver.memory_map import Places
from weft.tmodel.elements import gather, unpack
from weft.tmodel.manifest import TModel

QUOTED = '"\\?'
"""What a string of C has otherwise: its end, escapes, trigraphs."""
TAG = "// SPDX-License-Identifier: Apache-2.0\n"


def c_string(text: str) -> str:
    """Return a text as a string literal of C; what means something else there, or is no ASCII, becomes a point."""
    return '"' + "".join(each if " " <= each <= "~" and each not in QUOTED else "." for each in text) + '"'


def defines(values: Mapping[str, int | str]) -> str:
    """Return a line for each value; numbers are unsigned."""
    return "".join(f"#define {name} {c_string(value) if isinstance(value, str) else f'{value:#x}u'}\n"
                   for name, value in values.items())


def soc_header(soc: Mapping[str, Any]) -> str:
    """Return ``soc.h`` of a shell's ``soc.json``."""
    fields = ("control", "command", "address", "bank", "wait")
    steps = ", ".join(f"{{{', '.join(str(int(step[field])) for field in fields)}}}" for step in soc["dram"]["start"])
    values: dict[str, int | str] = {"SOC_BOARD": soc["board"], "SOC_MACHINE": soc["machine_base"],
                                    "SOC_DRAM": soc["memories"]["dram"]["base"],
                                    **{f"SOC_{name.upper()}": address for name, address in soc["registers"].items()}}
    return (f"{TAG}#ifndef WEFT_SOC_H\n#define WEFT_SOC_H\n\n#include <stdint.h>\n\n{defines(values)}"
            f"#define SOC_DRAM_STEPS {{{steps}}}\n\n"
            "/* A command for the chip, or a value of DFII_CONTROL; `wait` in clock cycles. */\n"
            "struct soc_dram_step {\n    uint32_t control, command, address, bank, wait;\n};\n\n#endif\n")


def linker_memories(soc: Mapping[str, Any]) -> str:
    """Return ``memory.ld``: the flash from the boot image on, and the memory on the chip."""
    flash, stack, base = soc["memories"]["flash"], soc["memories"]["stack"], soc["image"]["base"]
    return (f"MEMORY\n{{\n    flash (rx) : ORIGIN = {base:#x}, LENGTH = {flash['base'] + flash['bytes'] - base:#x}\n"
            f"    stack (rw) : ORIGIN = {stack['base']:#x}, LENGTH = {stack['bytes']:#x}\n}}\n")


def network_header(model: TModel, places: Places, images: int, preload: bytes) -> str:
    """Return ``network.h`` of a network of one program."""
    vectors = model.arch.vector_bytes
    values: dict[str, int | str] = {
        "NETWORK_NAME": model.name, "NETWORK_IMAGES": images, "NETWORK_OUTPUTS": len(model.outputs),
        "NETWORK_IMAGE_BYTES": sum(port.size for port in model.inputs) * vectors,
        "NETWORK_PRELOAD_BYTES": len(preload), "NETWORK_PROGRAM_BYTES": model.program_size,
        "NETWORK_DRAM0": places.machine("dram0"), "NETWORK_DRAM1": places.machine("dram1"),
        "NETWORK_PROGRAM": places.machine("program")}
    tables = [pieces("consts1", ((base, len(content)) for base, content in model.consts)),
              pieces("consts0", ((base, len(content)) for base, content in model.dram0_consts)),
              pieces("inputs", ((port.base, port.size) for port in model.inputs))]
    parts = "".join(f"extern const uint8_t network_{name}_start[];\n"
                    for name in ("consts0", "consts1", "preload", "program", "images"))
    return (f"{TAG}#ifndef WEFT_NETWORK_H\n#define WEFT_NETWORK_H\n\n#include <stdint.h>\n\n{defines(values)}\n"
            "/* Vectors from address `base` of a window on. */\n"
            f"struct network_piece {{\n    uint32_t base, vectors;\n}};\n\n{parts}\n{''.join(tables)}\n"
            f"{outputs(model)}\n#endif\n")


def pieces(name: str, ranges: Iterable[tuple[int, int]]) -> str:
    """Return the C text of a table of ``ranges`` (first vector, vectors) and of its length.

    A table without ranges has one row that nobody reads."""
    rows = list(ranges)
    text = ", ".join(f"{{{base}, {size}}}" for base, size in rows or [(0, 0)])
    return (f"#define NETWORK_{name.upper()} {len(rows)}u\n"
            f"static const struct network_piece network_{name}[] = {{{text}}};\n")


def outputs(model: TModel) -> str:
    """Return the C text of the table ``network_outputs``, which has a row for each output of the model.

    In it ``base`` is the address of the output's first vector in DRAM0. ``positions`` has a number for each of the
    ``elements`` of the user's array, in order: its scalar, counted from the first scalar of that vector."""
    tables, rows = [], []
    for number, port in enumerate(model.outputs):
        found = positions(model, port.name)
        tables.append(f"static const uint32_t network_positions{number}[] = {{{', '.join(map(str, found))}}};\n")
        rows.append(f"    {{{c_string(port.name)}, {port.base}, {len(found)}, network_positions{number}}},\n")
    return (f"struct network_output {{\n    const char *name;\n    uint32_t base, elements;\n"
            f"    const uint32_t *positions;\n}};\n\n{''.join(tables)}"
            f"static const struct network_output network_outputs[] = {{\n{''.join(rows)}}};\n")


def positions(model: TModel, name: str) -> list[int]:
    """Return the number of the scalar that holds each element of an output, in the order of the user's array.

    Scalars are counted from the first one of the output's first vector. An output without a known layout has all
    scalars of its vectors, in order."""
    port = model.output(name)
    scalars = np.arange(port.size * model.arch.array_size).reshape(port.size, -1)
    if port.layout is not None and port.shape is not None:
        scalars = gather(unpack(scalars, port.layout), port.order, port.shape)
    return [int(each) for each in scalars.ravel()]
