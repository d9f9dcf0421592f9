"""Verilator's own C++ library and its headers, precompiled: the same for every design, half of what g++ takes for a
small one, built once.

Traced and covered designs need other variants of both and compile their own.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from weft.support.cache import cache_directory

from weft.simulate import toolchain
from weft.simulate.make import BUILD_FAST, make, optimise
from weft.simulate.once import built_once

LIBRARY_FAST = "-O0"
"""Of the library beside BUILD_FAST: to optimise it takes 12 s, more than short runs win by it."""
LIBRARY_HEADERS = ("verilated", "verilated_dpi", "verilated_vpi")
HEADERS = "runtime.h"
"""Includes all of them."""
RULES = f"""
libverilated.a: $(VK_GLOBAL_OBJS)
\t$(AR) rcs $@ $^
weft_runtime: libverilated.a {HEADERS}.fast.gch {HEADERS}.slow.gch
"""


def library(objects: Path) -> Path:
    """The folder with the library, and with the headers for optimised code and for the rest. ``objects``: what
    Verilator made of any design, from whose makefile it is built where it is not there."""
    name = hashlib.sha256(f"{toolchain.tool_versions()}, {optimise()}".encode()).hexdigest()[:12]
    directory = cache_directory("verilated") / name
    with built_once(directory) as work:
        if work is not None:
            _fill(work, objects)
    return directory


def _fill(work: Path, objects: Path) -> None:
    (objects / HEADERS).write_text("".join(f'#include "{name}.h"\n' for name in LIBRARY_HEADERS))
    (objects / "runtime.mk").write_text((objects / "Vtop.mk").read_text() + RULES)
    variables = toolchain.make_variables(optimise())
    if optimise() == BUILD_FAST:
        variables["OPT_GLOBAL"] = LIBRARY_FAST
    make(objects, "weft_runtime", variables, work / "build.log", "runtime.mk")
    for made in ("libverilated.a", f"{HEADERS}.fast.gch", f"{HEADERS}.slow.gch"):
        (objects / made).rename(work / made)


def with_library(folder: Path) -> dict[str, str]:
    """Variables of make for a design that takes library and headers from there instead of compiling its own."""
    fast, slow = (f"-include {folder / HEADERS}.{speed} -Winvalid-pch" for speed in ("fast", "slow"))
    return {"VM_GLOBAL_FAST": "", "VM_GLOBAL_SLOW": "", "USER_LDLIBS": str(folder / "libverilated.a"),
            "CFG_CXXFLAGS_PCH_I": "", "VK_PCH_H": str(folder / HEADERS), "VK_PCH_I_FAST": "", "VK_PCH_I_SLOW": "",
            "OPT_FAST": f"{optimise()} {fast}", "OPT_SLOW": slow}
