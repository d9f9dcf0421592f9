# SPDX-License-Identifier: Apache-2.0
"""Verilator's own C++ library and its precompiled headers, built once for all designs.

They are half of what g++ takes for a small design. Traced and covered designs need other variants and compile their
own."""

from __future__ import annotations

import hashlib
from pathlib import Path

from weft.simulate import toolchain
from weft.simulate.make import BUILD_FAST, make, optimise
from weft.simulate.once import built_once
from weft.support.cache import cache_directory

LIBRARY_FAST = "-O0"
"""The flags of the library beside BUILD_FAST; optimising it takes 12 s, more than short runs gain."""
LIBRARY_HEADERS = ("verilated", "verilated_dpi", "verilated_vpi")
HEADERS = "runtime.h"
"""The header that includes all others."""
RULES = f"""
libverilated.a: $(VK_GLOBAL_OBJS)
\t$(AR) rcs $@ $^
weft_runtime: libverilated.a {HEADERS}.fast.gch {HEADERS}.slow.gch
"""


def library(objects: Path) -> Path:
    """Return the folder with the library and the precompiled headers; build it if needed.

    ``objects``: Verilator's output for any design, whose makefile builds the library. Headers are there for optimised
    code and for other code."""
    name = hashlib.sha256(f"{toolchain.tool_versions()}, {optimise()}".encode()).hexdigest()[:12]
    directory = cache_directory("verilated") / name
    with built_once(directory) as work:
        if work is not None:
            _fill(work, objects)
    return directory


def _fill(work: Path, objects: Path) -> None:
    """Build Verilator's library and its precompiled headers in ``objects``, and move them to ``work``.

    ``objects`` is the folder of Verilator's output for some design. The log of make goes into ``work``. Raise
    BuildError if make fails."""
    (objects / HEADERS).write_text("".join(f'#include "{name}.h"\n' for name in LIBRARY_HEADERS))
    (objects / "runtime.mk").write_text((objects / "Vtop.mk").read_text() + RULES)
    variables = toolchain.make_variables(optimise())
    if optimise() == BUILD_FAST:
        variables["OPT_GLOBAL"] = LIBRARY_FAST
    make(objects, "weft_runtime", variables, work / "build.log", "runtime.mk")
    for made in ("libverilated.a", f"{HEADERS}.fast.gch", f"{HEADERS}.slow.gch"):
        (objects / made).rename(work / made)


def with_library(folder: Path) -> dict[str, str]:
    """Return variables of make for a design that uses the library and headers in ``folder``."""
    fast, slow = (f"-include {folder / HEADERS}.{speed} -Winvalid-pch" for speed in ("fast", "slow"))
    return {"VM_GLOBAL_FAST": "", "VM_GLOBAL_SLOW": "", "USER_LDLIBS": str(folder / "libverilated.a"),
            "CFG_CXXFLAGS_PCH_I": "", "VK_PCH_H": str(folder / HEADERS), "VK_PCH_I_FAST": "", "VK_PCH_I_SLOW": "",
            "OPT_FAST": f"{optimise()} {fast}", "OPT_SLOW": slow}
